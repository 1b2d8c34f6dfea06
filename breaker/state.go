package breaker

// State is what a breaker does with calls.
type State uint8

// The states. Closed is the zero value: a new breaker admits every call.
const (
	Closed   State = iota // calls pass and are counted
	Open                  // calls are refused until the wait is over
	HalfOpen              // a few probes pass, then a growing share of the calls
)

// String returns the state as it appears in logs, labels and the admin command.
func (s State) String() string {
	switch s {
	case Closed:
		return "closed"
	case Open:
		return "open"
	case HalfOpen:
		return "half-open"
	}
	return "invalid"
}

// Mode says how much of its mind a breaker may act on.
type Mode uint8

// The modes. Enforce is the zero value and so the default.
const (
	ModeEnforce  Mode = iota // refuses calls and notifies
	ModeAlert                // notifies, never refuses
	ModeObserve              // counts, never refuses, never notifies
	ModeDisabled             // counts nothing, never refuses
)

// String returns the mode's name.
func (m Mode) String() string {
	switch m {
	case ModeEnforce:
		return "enforce"
	case ModeAlert:
		return "alert"
	case ModeObserve:
		return "observe"
	case ModeDisabled:
		return "disabled"
	}
	return "invalid"
}

func (m Mode) valid() bool { return m <= ModeDisabled }

// Result is what a call showed about the service it went to.
type Result uint8

// The results. Ignored is the zero value: a result nobody filled in decides nothing.
const (
	Ignored Result = iota // no evidence either way; a probe's slot is given back
	Success               // the service is well; becomes Slow beyond Config.SlowCall
	Failure               // the service is ill
	Slow                  // the service answered, too late to be called well
)

// String returns the result's name.
func (r Result) String() string {
	switch r {
	case Ignored:
		return "ignored"
	case Success:
		return "success"
	case Failure:
		return "failure"
	case Slow:
		return "slow"
	}
	return "invalid"
}

// Force is an operator's order that stands above mode and evidence until it expires.
type Force uint8

// The forces.
const (
	ForceNone    Force = iota // the breaker decides
	ForceOpen                 // every call is refused, in every mode
	ForceClosed               // every call is admitted, whatever the results say
	ForceObserve              // counts and moves, never refuses or notifies, whatever the mode
)

// String returns the force's name.
func (f Force) String() string {
	switch f {
	case ForceNone:
		return "none"
	case ForceOpen:
		return "open"
	case ForceClosed:
		return "closed"
	case ForceObserve:
		return "observe"
	}
	return "invalid"
}

// holds reports whether the force decides the state.
func (f Force) holds() bool { return f == ForceOpen || f == ForceClosed }

// Reason says which rule moved a breaker.
type Reason uint8

// The reasons.
const (
	ReasonNone            Reason = iota
	ReasonFailureRate            // the failure rate of the window reached its threshold
	ReasonSlowRate               // the slow rate of the window reached its threshold
	ReasonConsecutive            // too many failures in a row
	ReasonProbesFailed           // too many first probes in a row were bad
	ReasonRampFailureRate        // the failure rate since half-open reached its threshold
	ReasonRampSlowRate           // the slow rate since half-open reached its threshold
	ReasonWaitOver               // the open wait is over
	ReasonProbesSucceeded        // the successes that close it were seen
	ReasonRampDone               // the ramp reached the top
	ReasonForced                 // an operator forced the state
	ReasonForceEnded             // the force expired or was lifted
	ReasonDisabled               // the breaker was disabled
	ReasonQuorum                 // enough workers of the fleet opened by themselves
)

// String returns the reason as it appears in logs and labels.
func (r Reason) String() string {
	switch r {
	case ReasonNone:
		return "none"
	case ReasonFailureRate:
		return "failure-rate"
	case ReasonSlowRate:
		return "slow-rate"
	case ReasonConsecutive:
		return "consecutive-failures"
	case ReasonProbesFailed:
		return "probes-failed"
	case ReasonRampFailureRate:
		return "ramp-failure-rate"
	case ReasonRampSlowRate:
		return "ramp-slow-rate"
	case ReasonWaitOver:
		return "wait-over"
	case ReasonProbesSucceeded:
		return "probes-succeeded"
	case ReasonRampDone:
		return "ramp-done"
	case ReasonForced:
		return "forced"
	case ReasonForceEnded:
		return "force-ended"
	case ReasonDisabled:
		return "disabled"
	case ReasonQuorum:
		return "quorum"
	}
	return "invalid"
}

// Source says whose evidence or order moved a breaker.
type Source uint8

// The sources.
const (
	SourceLocal  Source = iota // this breaker's own evidence and clock
	SourceForced               // an operator
	SourceShared               // the record shared with other workers
)

// String returns the source's name.
func (s Source) String() string {
	switch s {
	case SourceLocal:
		return "local"
	case SourceForced:
		return "forced"
	case SourceShared:
		return "shared"
	}
	return "invalid"
}
