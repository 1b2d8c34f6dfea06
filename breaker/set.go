package breaker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxKeysLimit is the most breakers a Set may hold.
const maxKeysLimit = 100_000

// ErrSetFull is returned by Set.Get for a new key while every breaker of the set is in use.
var ErrSetFull = errors.New("breaker set is full")

// Set holds one breaker for each key, all with one configuration, and never more than a given number. It forgets a
// breaker only to make room for a new key, and only one that is closed, has no samples in its windows, no failures in
// a row, no growth of its wait to remember, and no permit under way: forgetting an open breaker would close it. It is
// safe for concurrent use.
type Set struct {
	cfg     Config
	maxKeys int
	listen  func(Event)

	mu  sync.RWMutex // guards what follows
	m   map[Key]*Breaker
	rnd *rand.Rand
}

// NewSet returns an empty set of at most maxKeys breakers (1 to 100000; zero stands for 1000). cfg, rnd and listen are
// as in New; rnd seeds a source for each breaker.
func NewSet(cfg Config, maxKeys int, rnd *rand.Rand, listen func(Event)) (*Set, error) {
	maxKeys = orDefault(maxKeys, 1000)
	var v validation
	v.count("maxKeys", maxKeys, 1, maxKeysLimit)
	if err := errors.Join(append(v.errs, cfg.Validate())...); err != nil {
		return nil, fmt.Errorf("breaker set: %w", err)
	}
	if rnd == nil {
		rnd = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) //nolint:gosec // jitter, not a secret
	}
	return &Set{cfg: cfg, maxKeys: maxKeys, listen: listen, m: make(map[Key]*Breaker), rnd: rnd}, nil
}

// Get returns the breaker of a key and creates it closed if the key is new; the error is ErrSetFull then, if no
// breaker can be forgotten. Get a breaker for each call rather than keep it: the set may forget it once it is idle.
func (s *Set) Get(key Key) (*Breaker, error) {
	if b, ok := s.Find(key); ok {
		return b, nil
	}
	return s.create(time.Now(), key)
}

// GetAt is Get at a given moment.
func (s *Set) GetAt(now time.Time, key Key) (*Breaker, error) {
	if b, ok := s.Find(key); ok {
		return b, nil
	}
	return s.create(now, key)
}

// Find returns the breaker of a key if the set holds one, and creates none.
func (s *Set) Find(key Key) (b *Breaker, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	b, ok = s.m[key]
	return b, ok
}

// Len returns how many breakers the set holds.
func (s *Set) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.m)
}

// Snapshots returns every breaker as it is now, ordered by key.
func (s *Set) Snapshots() []Snapshot { return s.SnapshotsAt(time.Now()) }

// SnapshotsAt is Snapshots at a given moment.
func (s *Set) SnapshotsAt(now time.Time) []Snapshot {
	s.mu.RLock()
	breakers := make([]*Breaker, 0, len(s.m))
	for _, b := range s.m {
		breakers = append(breakers, b)
	}
	s.mu.RUnlock()
	slices.SortFunc(breakers, func(a, b *Breaker) int {
		if c := strings.Compare(a.key.Service, b.key.Service); c != 0 {
			return c
		}
		return strings.Compare(a.key.Endpoint, b.key.Endpoint)
	})
	// A snapshot may wake the listener, which may use the set: not under its lock.
	snapshots := make([]Snapshot, len(breakers))
	for i, b := range breakers {
		snapshots[i] = b.SnapshotAt(now)
	}
	return snapshots
}

func (s *Set) create(now time.Time, key Key) (*Breaker, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.m[key]; b != nil {
		return b, nil
	}
	if len(s.m) >= s.maxKeys {
		s.forget(now)
	}
	if len(s.m) >= s.maxKeys {
		return nil, fmt.Errorf("breaker for %s: %w (%d keys)", key, ErrSetFull, s.maxKeys)
	}
	rnd := rand.New(rand.NewPCG(s.rnd.Uint64(), s.rnd.Uint64())) //nolint:gosec // jitter, not a secret
	b := newBreaker(now, key, s.cfg, rnd, s.listen)
	s.m[key] = b
	return b, nil
}

// forget drops every idle breaker at once, so that a set that stays near its bound does not look at all of them for
// each new key.
func (s *Set) forget(now time.Time) {
	for key, b := range s.m {
		if b.idle(now.Sub(b.start)) {
			delete(s.m, key)
		}
	}
}
