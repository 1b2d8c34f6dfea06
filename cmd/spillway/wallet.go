package main

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"spillway/internal/wallet"
)

// walletCmd is spillway wallet: the demo's downstream as a process of its own.
type walletCmd struct {
	Listen string `default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Address to serve on."`
	Mode   string `default:"healthy" placeholder:"NAME|JSON" help:"How to behave at first: a name, or JSON as PUT /mode takes it."`
	Dedupe bool   `help:"Use the Idempotency-Key: an order that was applied is not applied again. Without it an order sent twice is applied twice, which is what a check wants to see."`
	Seed   uint64 `default:"1" help:"Seed of what is drawn by chance."`
}

// Help is shown by spillway wallet --help.
func (*walletCmd) Help() string {
	return `A simulated payment service for trials: the downstream of the demo and of deploy/. It is not meant for an open network.

It takes POST /pay with an Idempotency-Key, answers GET /pay/{number} truthfully, and keeps a ledger of what it did for
each number. How it behaves can be switched while it runs:

  curl -X PUT -d '{"name":"slow"}' http://127.0.0.1:8080/mode

The names are healthy, slow, failing, overloaded, timeouts, resets and flaky; behaviours can be given one by one instead,
for "pay" and "lookup", each of kind answer, hang, reset or cut; "capacity" bounds how many requests are worked on at once:

  curl -X PUT -d '{"pay":[{"kind":"answer","status":503,"weight":1},{"kind":"answer","latency":"80ms","weight":9}]}' \
    http://127.0.0.1:8080/mode

GET /mode shows what holds, GET /counts shows the ledger in numbers, GET /duplicates the orders applied more than once, POST /forget empties it,
GET /healthz answers as long as it runs.`
}

// Run implements the command.
func (c *walletCmd) Run(s *surroundings) error {
	text := c.Mode
	if !strings.HasPrefix(text, "{") {
		text = fmt.Sprintf(`{"name":%q}`, text)
	}
	mode, err := wallet.ParseMode([]byte(text))
	if err != nil {
		return fmt.Errorf("--mode: %w", err)
	}
	ctx, stop := signal.NotifyContext(s.ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	w := wallet.New(wallet.Config{Dedupe: c.Dedupe, Seed: c.Seed, Mode: mode})
	return w.Run(ctx, c.Listen, func(addr net.Addr) {
		_, _ = fmt.Fprintf(s.err, "wallet: listening on http://%s, %s\n", addr, w.Mode().Name)
	})
}
