package main

import (
	"context"
	"fmt"
	"os/user"
	"strings"
	"time"

	"spillway/internal/admin"
	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/order"
)

// lettersCmd looks at dead letters and resolves them.
type lettersCmd struct {
	List    lettersListCmd    `cmd:"" help:"List dead letters, the newest first."`
	Show    lettersShowCmd    `cmd:"" help:"Show one dead letter with its record."`
	Requeue lettersRequeueCmd `cmd:"" help:"Send dead letters back: each starts a new life."`
	Discard lettersDiscardCmd `cmd:"" help:"Give dead letters up, for good."`
}

// lettersFilter is what picks dead letters.
type lettersFilter struct {
	Route     string `placeholder:"NAME" help:"Only of this route."`
	Reason    reason `placeholder:"REASON" help:"Only of this reason, such as ATTEMPTS_EXHAUSTED or UNDECODABLE."`
	Prefix    string `placeholder:"TEXT" help:"Only business numbers that start with this."`
	OlderThan length `placeholder:"TIME" help:"Only those written at least this long ago: 15m, 24h."`
}

func (f *lettersFilter) filter() desk.LetterFilter {
	return desk.LetterFilter{
		Route: f.Route, Reason: order.Reason(f.Reason), Prefix: f.Prefix, OlderThan: time.Duration(f.OlderThan),
	}
}

// lettersListCmd is spillway admin dead-letters list.
type lettersListCmd struct {
	adminFlags
	lettersFilter

	Status letterStatus `default:"waiting" placeholder:"STATUS" help:"Only waiting, requeued or discarded ones, or all: waiting if not given."`
	Limit  pageSize     `default:"100" placeholder:"N" help:"Most rows to list, 1 to 1000: 100 if not given."`
	Before rowID        `placeholder:"ID" help:"Only those with a smaller id: what the page before ended with."`
}

// Help is shown by spillway admin dead-letters list --help.
func (*lettersListCmd) Help() string {
	return `Reads PostgreSQL. A dead letter is an order, or a record that could not become one, that needs a person: nothing touches it
until it is requeued or discarded. NUMBER is "-" where no business number could be read.

  spillway admin dead-letters list --route wallet --reason ATTEMPTS_EXHAUSTED --older-than 1h

Exit codes: 0 done, also if nothing passes the filter; 1 if the dead letters could not be read; 2 for mistakes on the
command line or in the settings.`
}

// Run implements the command.
func (c *lettersListCmd) Run(s *surroundings) error {
	return c.withStore(s, func(ctx context.Context, cfg *config.Config, st *store) error {
		f := c.filter()
		f.Status, f.Before, f.Limit = desk.LetterStatus(c.Status), int64(c.Before), int(c.Limit)
		list, err := admin.ListLetters(ctx, st, f)
		if err != nil {
			return err
		}
		hintRoute(s, cfg, c.Route)
		if c.JSON {
			return admin.WriteJSON(s.out, list)
		}
		return list.WriteTable(s.out, time.Now())
	})
}

// lettersShowCmd is spillway admin dead-letters show.
type lettersShowCmd struct {
	adminFlags

	ID  rowID `arg:"" help:"Id of the dead letter, from the listing."`
	Raw bool  `xor:"form" help:"Write the exact bytes of the record's value and nothing else, to a file or a pipe."`
}

// Help is shown by spillway admin dead-letters show --help.
func (*lettersShowCmd) Help() string {
	return `Reads PostgreSQL. A long value is cut, with a note. --raw writes the value's exact bytes to standard output, of an
unreadable item of the replay queue its bytes; it refuses a terminal, where they could do anything. --json has key, value
and headers in base64, every byte, and null for Kafka's null.

  spillway admin dead-letters show 17 --raw > value.bin

Exit codes: 0 done, 1 if there is no such dead letter or it could not be read, 2 for mistakes on the command line or in
the settings.`
}

// Run implements the command.
func (c *lettersShowCmd) Run(s *surroundings) error {
	switch {
	case c.Raw && c.JSON:
		return usage("--raw and --json: want one of them")
	case c.Raw && s.stdoutTerminal:
		return usage("--raw: the exact bytes may do anything to a terminal: want a file or a pipe, such as > value.bin")
	}
	return c.withStore(s, func(ctx context.Context, _ *config.Config, st *store) error {
		view, err := admin.ShowLetter(ctx, st, int64(c.ID))
		if err != nil {
			return err
		}
		switch {
		case c.Raw:
			if view.Bytes() == nil {
				s.complain("spillway: note: the value is null, so nothing was written\n")
			}
			_, err := s.out.Write(view.Bytes())
			return err
		case c.JSON:
			return admin.WriteJSON(s.out, view)
		}
		return view.Write(s.out, time.Now())
	})
}

// resolveFlags is what requeue and discard have in common.
type resolveFlags struct {
	adminFlags
	lettersFilter

	IDs    []rowID `arg:"" optional:"" name:"id" help:"Ids of dead letters, from the listing."`
	All    bool    `help:"All that wait and pass the filter, instead of ids."`
	Limit  handful `default:"100" placeholder:"N" help:"With --all: most to take, 1 to 10000, of more the newest: 100 if not given."`
	Yes    bool    `help:"With --all: say that you mean it."`
	DryRun bool    `help:"Say for each what would become of it. Changes nothing."`
	By     string  `placeholder:"OPERATOR" help:"Who does it, for the history: the user of the operating system if not given."`
}

// picks checks the flags that say which dead letters are meant.
func (c *resolveFlags) picks() error {
	filtered := c.filter() != desk.LetterFilter{}
	switch {
	case c.All && len(c.IDs) > 0:
		return usage("ids and --all: want one or the other")
	case !c.All && filtered:
		return usage("a filter without --all: want --all with it, or ids alone")
	case !c.All && len(c.IDs) == 0:
		return usage("no dead letters named: want ids, or --all with a filter where wanted")
	case c.All && !c.Yes && !c.DryRun:
		return usage("--all may take up to %d dead letters: want --dry-run to see which, or --yes to do it", c.Limit)
	case c.Yes && c.DryRun:
		return usage("--yes and --dry-run: want one of them")
	}
	return nil
}

// sign is who does it, and why.
func (c *resolveFlags) sign(note string) (desk.Sign, error) {
	by := desk.Sign{Operator: c.By, Note: note}
	if by.Operator == "" {
		u, err := user.Current()
		if err != nil {
			return by, usage("--by is needed: the operating system does not say who you are")
		}
		by.Operator = u.Username
	}
	if err := by.Check(); err != nil {
		return by, usage("--by: %v", err)
	}
	return by, nil
}

// resolve picks the dead letters, does it, and prints what became of each.
func (c *resolveFlags) resolve(s *surroundings, note, verb string, do func(*admin.Resolver, context.Context, []int64) (*admin.Results, error)) error {
	if err := c.picks(); err != nil {
		return err
	}
	by, err := c.sign(note)
	if err != nil {
		return err
	}
	return c.withStore(s, func(ctx context.Context, cfg *config.Config, st *store) error {
		r := &admin.Resolver{Letters: st, Orders: st, Rules: admin.NumberRules(cfg), By: by, DryRun: c.DryRun}
		ids := make([]int64, len(c.IDs))
		for i, id := range c.IDs {
			ids[i] = int64(id)
		}
		if c.All {
			hintRoute(s, cfg, c.Route)
			if ids, err = r.Pick(ctx, c.filter(), int(c.Limit)); err != nil {
				return err
			}
		}
		results, failed := do(r, ctx, ids)
		if c.JSON {
			err = admin.WriteJSON(s.out, results)
		} else {
			err = results.WriteTable(s.out)
		}
		switch {
		case failed != nil:
			return fmt.Errorf("%d of %d dead letters were looked after; then: %w", len(results.Letters), len(ids), failed)
		case err != nil:
			return err
		case results.NotDone > 0 && c.DryRun:
			return &exitError{code: exitFailure, text: fmt.Sprintf("%d of %d dead letters would not be %s", results.NotDone, len(results.Letters), verb)}
		case results.NotDone > 0:
			return &exitError{code: exitFailure, text: fmt.Sprintf("%d of %d dead letters were not %s", results.NotDone, len(results.Letters), verb)}
		case c.All && len(ids) == int(c.Limit):
			s.complain("spillway: note: the limit of %d was reached; there may be more\n", c.Limit)
		}
		return nil
	})
}

// lettersRequeueCmd is spillway admin dead-letters requeue.
type lettersRequeueCmd struct {
	resolveFlags

	Note string `placeholder:"TEXT" help:"Why, for the history."`
}

// Help is shown by spillway admin dead-letters requeue --help.
func (*lettersRequeueCmd) Help() string {
	return `Changes PostgreSQL; the workers do the rest. An order becomes PROCESSING and UNKNOWN: the compensator looks it up first, so
that one which was applied after all is not sent again, and otherwise it has all its attempts anew. A record that could
not become an order becomes one if a business number can be read from it by the settings as they are now; if not, it is
refused with the reason.

Each dead letter is done or not by itself, and has a line of its own: requeued; refused, with the reason;
resolved_already; not_found; unconfirmed, where the call failed and may have been done, and asking again is harmless. The
order's history names who did it.

  spillway admin dead-letters requeue 17 18 --note "wallet was mended"
  spillway admin dead-letters requeue --all --route wallet --reason ATTEMPTS_EXHAUSTED --limit 500 --dry-run

Exit codes: 0 if all were requeued (or would be), 1 if any was not, 2 for mistakes on the command line or in the settings;
nothing was done then.`
}

// Run implements the command.
func (c *lettersRequeueCmd) Run(s *surroundings) error {
	return c.resolve(s, c.Note, "requeued", (*admin.Resolver).Requeue)
}

// lettersDiscardCmd is spillway admin dead-letters discard.
type lettersDiscardCmd struct {
	resolveFlags

	Note string `required:"" placeholder:"TEXT" help:"Why, for the history. Required."`
}

// Help is shown by spillway admin dead-letters discard --help.
func (*lettersDiscardCmd) Help() string {
	return `Changes PostgreSQL. The orders become DISCARDED, which is final: nothing sends them any more. Their records stay readable
with "dead-letters show".

Each dead letter is done or not by itself, and has a line of its own: discarded, resolved_already, not_found, or
unconfirmed, where the call failed and may have been done, and asking again is harmless.

  spillway admin dead-letters discard 17 --note "test order, never meant to be paid"

Exit codes: 0 if all were discarded (or would be), 1 if any was not, 2 for mistakes on the command line or in the
settings; nothing was done then.`
}

// Run implements the command.
func (c *lettersDiscardCmd) Run(s *surroundings) error {
	if strings.TrimSpace(c.Note) == "" {
		return usage("--note is blank: want why, for the history")
	}
	return c.resolve(s, c.Note, "discarded", (*admin.Resolver).Discard)
}
