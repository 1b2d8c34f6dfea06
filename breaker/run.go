package breaker

// unansweredWeighs is what a call that has not failed weighs against one that has.
const unansweredWeighs = 2

// run looks at calls in the order they were admitted, not in the order they answer: when a service falls ill, the good
// answers of calls that began before go on for as long as a call takes, between the failures of those that began after, and say
// nothing about it now.
//
// It begins with a call that failed. Calls admitted earlier are left out, whatever they show. Among the later ones, as far
// as the latest of them that failed, each failure counts 1 and each call that has not failed counts -2. Those are
// unanswered, and must be taken for good: failures are often quick, so that of a service which fails now and then the
// failures are known first. One good answer of a later call ends the run.
//
// The score of a service that fails a share p < 2/3 of its calls is a random walk that drifts down. The chance that a run ever
// comes from 1 to n is x^-(n-1), with p*x^3 - x^2 + 1 - p = 0 and x > 1: for n = 20 one run in two billion at p = 0.3, in three
// million at 0.4, in nine thousand at 0.5.
type run struct {
	first  uint64 // number of the failed call it began with; 0: there is no run
	last   uint64 // number of the latest admitted call that failed
	failed int
}

// bad counts the failure of a call; number 0 is no call. A run that is below -limit is hopeless and begins anew with the
// failure at hand, so that one failure before an outage does not hide the outage for as long as a good call takes.
func (r *run) bad(number uint64, limit int) {
	switch {
	case number == 0 || limit <= 0:
		return
	case r.first == 0:
		*r = run{first: number, last: number, failed: 1}
	case number > r.first:
		r.failed++
		r.last = max(r.last, number)
		if r.score() < -limit {
			*r = run{first: number, last: number, failed: 1}
		}
	}
}

// good ends the run when the call was admitted after the run's first.
func (r *run) good(number uint64) {
	if r.first != 0 && number > r.first {
		*r = run{}
	}
}

// others is how many calls of the run have not failed. It is never below zero, though permits be reported twice.
func (r *run) others() int {
	if r.first == 0 {
		return 0
	}
	return max(int(r.last-r.first)+1-r.failed, 0) //nolint:gosec // a count of calls
}

func (r *run) score() int { return r.failed - unansweredWeighs*r.others() }
