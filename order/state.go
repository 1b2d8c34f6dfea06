package order

import "fmt"

// State is where an order stands. The numbers are stored in Postgres and never change meaning.
type State int16

// The states.
const (
	Processing State = 1
	Succeeded  State = 2 // final: the downstream confirmed it
	Failed     State = 3 // final: the downstream refused it
	Dead       State = 4 // a dead letter: waits for a person
	Discarded  State = 5 // final: a person gave it up
)

// States lists every state in the order of their numbers.
func States() []State { return []State{Processing, Succeeded, Failed, Dead, Discarded} }

// Final reports whether the state never changes again.
func (s State) Final() bool {
	switch s {
	case Succeeded, Failed, Discarded:
		return true
	case Processing, Dead:
		return false
	}
	return false
}

func (s State) String() string {
	switch s {
	case Processing:
		return "PROCESSING"
	case Succeeded:
		return "SUCCEEDED"
	case Failed:
		return "FAILED"
	case Dead:
		return "DEAD"
	case Discarded:
		return "DISCARDED"
	}
	return fmt.Sprintf("State(%d)", int16(s))
}

// ParseState reads a state's name as String writes it.
func ParseState(name string) (State, error) {
	for _, s := range States() {
		if s.String() == name {
			return s, nil
		}
	}
	return 0, fmt.Errorf("state %q: want PROCESSING, SUCCEEDED, FAILED, DEAD or DISCARDED", name)
}

// Phase says who is due to act on a PROCESSING order. The numbers are stored in Postgres.
type Phase int16

// The phases.
const (
	NoPhase   Phase = 0 // the order is not PROCESSING
	InFlight  Phase = 1 // an attempt holds the lease; once the lease is over nobody knows what it did
	Replaying Phase = 2 // it waits in the replay queue, or was withdrawn; the last attempt, if any, left no effect behind
	Unknown   Phase = 3 // the compensator looks it up before anything is sent again
)

// Phases lists every phase of a PROCESSING order.
func Phases() []Phase { return []Phase{InFlight, Replaying, Unknown} }

func (p Phase) String() string {
	switch p {
	case NoPhase:
		return "-"
	case InFlight:
		return "IN_FLIGHT"
	case Replaying:
		return "REPLAYING"
	case Unknown:
		return "UNKNOWN"
	}
	return fmt.Sprintf("Phase(%d)", int16(p))
}

// CanMove reports whether an order may go from one state to another. Everything else is refused by the guarded
// UPDATE that every store makes of a transition.
func CanMove(from, to State) bool {
	switch from {
	case Processing:
		return to != Discarded // a person discards dead letters only
	case Dead:
		return to == Processing || to == Discarded
	case Succeeded, Failed, Discarded:
		return false
	}
	return false
}

// Lane is whose permits a call uses. The three lanes of a route share its permits.
type Lane int

// The lanes.
const (
	LaneLive       Lane = iota // records fresh from Kafka
	LaneReplay                 // items of the replay queue
	LaneCompensate             // the compensator's lookups
)

// Lanes is how many lanes a route has.
const Lanes = 3

func (l Lane) String() string {
	switch l {
	case LaneLive:
		return "live"
	case LaneReplay:
		return "replay"
	case LaneCompensate:
		return "compensate"
	}
	return fmt.Sprintf("Lane(%d)", int(l))
}
