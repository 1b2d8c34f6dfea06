package breaker

import "time"

// Key names what a breaker guards.
type Key struct {
	Service  string
	Endpoint string
}

// String returns service/endpoint.
func (k Key) String() string { return k.Service + "/" + k.Endpoint }

// Event is one move of a breaker and the evidence for it. Counts are those of the state that was left, as the rule in
// Reason saw them; they are zero where no rule counted (a wait that ended, a force).
type Event struct {
	Key        Key
	At         time.Time
	From       State
	To         State
	Mode       Mode
	Reason     Reason
	Source     Source
	Generation uint64 // of the state that begins; grows with every event of a breaker, so it tells their order

	Window    time.Duration // how far back the rule looked; for the ramp's own rules, the time since half-open began
	Samples   int           // results; for consecutive-failures in the order of the calls, its calls whether answered or not
	Failures  int
	Slow      int
	Rate      float64       // the rule's bad share of the samples
	Bound     float64       // the Wilson lower bound of Rate; Rate itself while Config.Z is zero
	Threshold float64       // what Bound reached; a count for consecutive-failures and the probe rules
	Wait      time.Duration // how long the breaker stays open; zero unless To is Open

	at time.Duration
}

// Snapshot is a breaker at one moment, for metrics and the admin command.
type Snapshot struct {
	Key        Key
	State      State
	Mode       Mode
	Force      Force
	Generation uint64
	Since      time.Time // when the state began
	NextProbe  time.Time // when an open breaker admits its next call, or its force ends; zero unless open
	ForceEnds  time.Time // zero unless forced
	Share      float64   // the share of calls admitted: 1 closed, 0 open or first probes, the ramp's share in between
	Probes     int       // probes admitted in this half-open state and not reported yet
	Streak     int       // failures in a row, as they were reported

	FailureSamples int     // results in the failure window
	Failures       int     // failures among them
	FailureRate    float64 // Failures / FailureSamples, 0 without samples
	FailureBound   float64 // its Wilson lower bound
	SlowSamples    int     // results in the slow window
	SlowCalls      int     // slow ones among them
	SlowRate       float64
	SlowBound      float64

	Linked bool   // a record shared with other workers rules
	Epoch  uint64 // of that record, or of the last one
	Own    bool   // the state comes from this breaker's own evidence or clock, and differs from the record's

	OpenStreak int           // openings since the service was last seen in good health
	OpenWait   time.Duration // the wait drawn at the last opening
	Totals     Totals
}

// Totals only grow. They count every report, also those that decide nothing.
type Totals struct {
	Admitted     uint64 // calls admitted, in every mode
	Successes    uint64
	Failures     uint64
	Slow         uint64
	Ignored      uint64
	Stale        uint64 // results of an earlier generation, also counted by kind above
	Late         uint64 // probes reported a second time or after their deadline, also counted by kind above
	Lost         uint64 // probes that reached their deadline without a report
	Opened       uint64 // moves to open
	Refused      uint64 // calls refused; a call under way may be among them and be admitted after all
	WouldRefuse  uint64 // calls that enforce mode would have refused
	ForcedStates uint64 // forces put on
}
