package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/alibaba/sentinel-golang/api"
	"github.com/alibaba/sentinel-golang/core/base"
	sentinel "github.com/alibaba/sentinel-golang/core/circuitbreaker"
	"github.com/alibaba/sentinel-golang/logging"
	"github.com/cep21/circuit/v3"
	"github.com/cep21/circuit/v3/closers/hystrix"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/sony/gobreaker/v2"

	"spillway/breaker"
)

// All contenders have the same rule where they know it: half of the calls of the last 10 s failed, at least 20 calls,
// and then an hour's wait.
const (
	window   = 10 * time.Second
	minimum  = 20
	openWait = time.Hour
)

var errDown = errors.New("down")

// loop makes n calls one after the other and returns how many were admitted. The loop is written out for each
// contender, so that no call through a variable is timed with it.
type loop func(n int) (admitted int)

// contender is one breaker, closed in permit and open in reject. A nil loop: it has no such call.
type contender struct {
	name   string
	permit loop // admitted, and reported as a success
	reject loop
	timed  loop // permit with the caller's time
}

func contenders() ([]contender, error) {
	made := []contender{floor()}
	for _, build := range []func() (contender, error){ours, failsafe, gobreakerTwoStep, sentinelOnly, cep21} {
		c, err := build()
		if err != nil {
			return nil, err
		}
		made = append(made, c)
	}
	return made, nil
}

// oursName is what the others are compared with.
const oursName = "spillway"

func ours() (contender, error) {
	cfg := breaker.Config{FailureWindow: window, FailureMinCalls: minimum, OpenWait: openWait, OpenWaitMax: openWait}
	closed, err := breaker.New(breaker.Key{Service: "bench", Endpoint: "closed"}, cfg, nil, nil)
	if err != nil {
		return contender{}, err
	}
	open, err := breaker.New(breaker.Key{Service: "bench", Endpoint: "open"}, cfg, nil, nil)
	if err != nil {
		return contender{}, err
	}
	for range minimum {
		if p, ok := open.Allow(); ok {
			open.Done(p, breaker.Failure)
		}
	}
	// With the caller's time the duration of each call is looked at too: it costs no clock.
	cfg.SlowCall = time.Second
	timed, err := breaker.New(breaker.Key{Service: "bench", Endpoint: "timed"}, cfg, nil, nil)
	if err != nil {
		return contender{}, err
	}
	return contender{
		name: oursName,
		permit: func(n int) (admitted int) {
			for range n {
				if p, ok := closed.Allow(); ok {
					closed.Done(p, breaker.Success)
					admitted++
				}
			}
			return admitted
		},
		reject: func(n int) (admitted int) {
			for range n {
				if _, ok := open.Allow(); ok {
					admitted++
				}
			}
			return admitted
		},
		timed: func(n int) (admitted int) {
			now := time.Now()
			for i := range n {
				if i%64 == 0 {
					now = now.Add(5 * time.Microsecond) // seconds go by in it as they do in permit
				}
				if p, ok := timed.AllowAt(now); ok {
					timed.DoneAt(now, p, breaker.Success)
					admitted++
				}
			}
			return admitted
		},
	}, nil
}

// floor is the least that any breaker does: read a word that says "closed" and count a call; read one that says "open"
// and count a refusal. It has no window, no rule and no clock.
func floor() contender {
	var state, other, calls, refused atomic.Uint64
	other.Store(1)
	permit := func(n int) (admitted int) {
		for range n {
			if state.Load() == 0 {
				calls.Add(1)
				admitted++
			}
		}
		return admitted
	}
	return contender{
		name: "floor", permit: permit, timed: permit,
		reject: func(n int) (admitted int) {
			for range n {
				if other.Load() == 0 {
					admitted++
					continue
				}
				refused.Add(1)
			}
			return admitted
		},
	}
}

// failsafe is used by its bare permits, which is its cheapest form.
func failsafe() (contender, error) {
	build := func() circuitbreaker.CircuitBreaker[any] {
		return circuitbreaker.NewBuilder[any]().WithFailureRateThreshold(.5, minimum, window).WithDelay(openWait).Build()
	}
	closed, open := build(), build()
	open.Open()
	return contender{
		name: "failsafe",
		permit: func(n int) (admitted int) {
			for range n {
				if closed.TryAcquirePermit() {
					closed.RecordSuccess()
					admitted++
				}
			}
			return admitted
		},
		reject: func(n int) (admitted int) {
			for range n {
				if open.TryAcquirePermit() {
					admitted++
				}
			}
			return admitted
		},
	}, nil
}

func gobreakerTwoStep() (contender, error) {
	settings := gobreaker.Settings{
		Interval: window, BucketPeriod: time.Second, Timeout: openWait,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.Requests >= minimum && 2*c.TotalFailures >= c.Requests },
	}
	closed, open := gobreaker.NewTwoStepCircuitBreaker[any](settings), gobreaker.NewTwoStepCircuitBreaker[any](settings)
	for range minimum {
		if done, err := open.Allow(); err == nil {
			done(errDown)
		}
	}
	return contender{
		name: "gobreaker",
		permit: func(n int) (admitted int) {
			for range n {
				if done, err := closed.Allow(); err == nil {
					done(nil)
					admitted++
				}
			}
			return admitted
		},
		reject: func(n int) (admitted int) {
			for range n {
				if _, err := open.Allow(); err == nil {
					admitted++
				}
			}
			return admitted
		},
	}, nil
}

// sentinelOnly is a chain of the breaker's two slots alone, without Sentinel's statistics.
func sentinelOnly() (contender, error) {
	logging.ResetGlobalLoggerLevel(logging.ErrorLevel)
	chain := base.NewSlotChain()
	chain.AddRuleCheckSlot(sentinel.DefaultSlot)
	chain.AddStatSlot(sentinel.DefaultMetricStatSlot)
	rule := func(resource string) *sentinel.Rule {
		return &sentinel.Rule{
			Resource: resource, Strategy: sentinel.ErrorRatio, RetryTimeoutMs: uint32(openWait.Milliseconds()),
			MinRequestAmount: minimum, StatIntervalMs: uint32(window.Milliseconds()), StatSlidingWindowBucketCount: 10, Threshold: .5,
		}
	}
	if _, err := sentinel.LoadRules([]*sentinel.Rule{rule("closed"), rule("open")}); err != nil {
		return contender{}, err
	}
	with := api.WithSlotChain(chain)
	for range minimum {
		if entry, blocked := api.Entry("open", with); blocked == nil {
			api.TraceError(entry, errDown)
			entry.Exit()
		}
	}
	return contender{
		name: "sentinel",
		permit: func(n int) (admitted int) {
			for range n {
				if entry, blocked := api.Entry("closed", with); blocked == nil {
					entry.Exit()
					admitted++
				}
			}
			return admitted
		},
		reject: func(n int) (admitted int) {
			for range n {
				if entry, blocked := api.Entry("open", with); blocked == nil {
					entry.Exit()
					admitted++
				}
			}
			return admitted
		},
	}, nil
}

// cep21 has no permits: it runs a function, here an empty one, without its timeout and without a limit of its own.
func cep21() (contender, error) {
	build := func(name string) *circuit.Circuit {
		return circuit.NewCircuitFromConfig(name, circuit.Config{
			General: circuit.GeneralConfig{
				ClosedToOpenFactory: hystrix.OpenerFactory(hystrix.ConfigureOpener{
					ErrorThresholdPercentage: 50, RequestVolumeThreshold: minimum, RollingDuration: window, NumBuckets: 10,
				}),
				OpenToClosedFactory: hystrix.CloserFactory(hystrix.ConfigureCloser{SleepWindow: openWait}),
			},
			Execution: circuit.ExecutionConfig{Timeout: -1, MaxConcurrentRequests: -1},
			Fallback:  circuit.FallbackConfig{Disabled: true},
		})
	}
	closed, open := build("closed"), build("open")
	open.OpenCircuit()
	ctx, nothing := context.Background(), func(context.Context) error { return nil }
	run := func(c *circuit.Circuit) loop {
		return func(n int) (admitted int) {
			for range n {
				if c.Run(ctx, nothing) == nil {
					admitted++
				}
			}
			return admitted
		}
	}
	return contender{name: "circuit", permit: run(closed), reject: run(open)}, nil
}
