package worker

import (
	"bytes"
	"testing"
	"time"

	"spillway/consumer"
	"spillway/internal/admin"
)

func TestLaneViewNamesWhatHoldsBackTheOffset(t *testing.T) {
	t.Parallel()
	s := consumer.Status{
		Level: consumer.Level{Queued: 7, HeldBytes: 900}, Assigned: 3, Paused: 3, InFlight: 2, Lag: 12,
		Constraint: consumer.ConstraintStore, Holds: []consumer.HoldReason{consumer.HoldStore},
		Head: consumer.Head{
			Partition: 2, Offset: 41, Number: "T-7", For: 90 * time.Second, Behind: 5, At: consumer.StopCall,
		},
	}
	var b bytes.Buffer
	for _, s := range []consumer.Status{s, {Constraint: consumer.ConstraintNone}} {
		if err := admin.WriteJSON(&b, laneView("wallet", s)); err != nil {
			t.Fatal(err)
		}
	}
	want := `{"route":"wallet","constraint":"store","holds":["store"],"partitions":3,"paused":3,"in_flight":2,"queued":7,"held_bytes":900,` +
		`"lag":12,"head":{"partition":2,"offset":41,"number":"T-7","seconds":90,"behind":5,"at":"call"}}
{"route":"wallet","constraint":"none","holds":[],"partitions":0,"paused":0,"in_flight":0,"queued":0,"held_bytes":0,"lag":0}
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s", got)
	}
}
