package consumer

import "sync"

// retryBudget bounds retries to a share of the first attempts: a bucket of tokens to which each first attempt adds the
// share and from which each retry takes one. It begins full and never holds more than a hundred attempts are worth, so
// that a calm hour saves nothing up for an outage. It is safe for concurrent use.
type retryBudget struct {
	share float64
	most  float64

	mu     sync.Mutex // guards tokens
	tokens float64
}

// newRetryBudget makes a budget of share retries for each first attempt, 0 to 1. With 0 there are none.
func newRetryBudget(share float64) *retryBudget {
	b := &retryBudget{share: min(max(share, 0), 1)}
	if b.share > 0 {
		b.most = max(100*b.share, 1)
	}
	b.tokens = b.most
	return b
}

// earn counts a first attempt.
func (b *retryBudget) earn() {
	b.mu.Lock()
	b.tokens = min(b.tokens+b.share, b.most)
	b.mu.Unlock()
}

// spend takes the right to one retry, if there is one.
func (b *retryBudget) spend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tokens < 1-1e-9 { // twenty times 0.05 may fall short of 1
		return false
	}
	b.tokens--
	return true
}
