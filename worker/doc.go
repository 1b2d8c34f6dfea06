// Package worker assembles a Spillway worker: for each route a consumer, permits, breakers, a downstream, the replay
// engine and the compensator, over one Postgres and one Redis. It is the library's front door: the command, the demo
// and the tests run the same [Worker].
//
// A program that embeds Spillway loads a [Config], gives [Options.Handlers] its own handler for a route, and runs:
//
//	cfg, err := worker.Load("spillway.yaml", os.Environ())
//	...
//	w, err := worker.New(ctx, cfg, worker.Options{Handlers: map[string]order.Handler{"wallet": myWallet}})
//	...
//	err = w.Run(ctx) // until ctx ends; drains, commits and leaves the group
//
// [Worker.Reload] changes permits, rates and what else docs/settings.md calls hot while it runs; [Worker.Follow] does so
// whenever the settings file changes.
//
// [Worker.Run] owns every goroutine and ends them in this order: HTTP stays up while the lanes drain and the replay
// engines and compensators finish what is in flight, all within shutdown.grace; then HTTP, Redis and Postgres close.
package worker
