package breaker

import "fmt"

// MarshalText returns the state's name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the name of a state.
func (s *State) UnmarshalText(text []byte) error {
	for c := Closed; c <= HalfOpen; c++ {
		if c.String() == string(text) {
			*s = c
			return nil
		}
	}
	return fmt.Errorf("state %q, accepted: closed, open or half-open", text)
}

// MarshalText returns the force's name.
func (f Force) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads the name of a force.
func (f *Force) UnmarshalText(text []byte) error {
	for c := ForceNone; c <= ForceObserve; c++ {
		if c.String() == string(text) {
			*f = c
			return nil
		}
	}
	return fmt.Errorf("force %q, accepted: none, open, closed or observe", text)
}

// MarshalText returns the reason's name.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the name of a reason. One that is not known, because a newer version wrote it, is ReasonNone: it
// explains a move and decides nothing.
func (r *Reason) UnmarshalText(text []byte) error {
	*r = ReasonNone
	for c := ReasonNone; c <= ReasonQuorum; c++ {
		if c.String() == string(text) {
			*r = c
		}
	}
	return nil
}
