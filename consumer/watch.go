package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"spillway/order"
)

// Head is the record that holds back a partition's committed offset.
type Head struct {
	Partition int32
	Offset    int64
	Number    string        // of its order; empty while it is not admitted
	For       time.Duration // since the offset last moved, to watchEvery
	Behind    int           // records read after it, finished ones included
	At        Stop
}

// Stop is where a record is that holds back an offset. The set is closed.
type Stop string

// The stops.
const (
	StopIntake Stop = "intake" // read and not admitted
	StopLine   Stop = "line"   // waits for a permit, a rate, its key or its retry
	StopCall   Stop = "call"   // an attempt is under way
	StopSettle Stop = "settle" // waits to be written down, or put into the replay queue
)

// heldBack is how long an offset may stand still before the log says so.
const heldBack = 10 * time.Second

// watchLoop looks for what holds back the offsets, and whether the lane is wedged; then it says so to end.
func (g *generation) watchLoop(taking context.Context, end context.CancelCauseFunc) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	dog := watchdog{call: g.cfg.Overdue, stuck: g.cfg.Stuck}
	for {
		select {
		case now := <-tick.C:
			g.tellHeads(taking, now)
			what := dog.look(now, g.sight(now))
			if what == noWedge {
				continue
			}
			number := g.abandon(now)
			g.m.wedged.WithLabelValues(string(what)).Inc()
			g.cfg.Logger.ErrorContext(taking, "lane is wedged: its generation ends", slog.String("at", string(what)),
				slog.String("number", number))
			end(fmt.Errorf("the lane is wedged: %s", what))
			return
		case <-taking.Done():
			return
		}
	}
}

func (g *generation) sight(now time.Time) sight {
	g.mu.Lock()
	defer g.mu.Unlock()
	e, _ := g.line.Peek(now)
	s := sight{
		ready: e != nil && !g.want.on && !g.barred, begun: g.begun,
		waits: g.settling.len() > 0 && !g.gate.Holding(HoldStore), written: g.written,
	}
	for w := range g.held {
		if !w.since.IsZero() {
			s.oldest = max(s.oldest, now.Sub(w.since))
		}
	}
	return s
}

// abandon marks the attempts that nobody waits for any more, and returns the number of one of them.
func (g *generation) abandon(now time.Time) (number string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for w := range g.held {
		if !w.since.IsZero() && now.Sub(w.since) > g.cfg.Overdue {
			w.abandoned = true
			g.abandoned++
			number = w.order.Number
		}
	}
	return number
}

// tellHeads notes since when each partition's offset stands still, and logs each that has for long, once.
func (g *generation) tellHeads(ctx context.Context, now time.Time) {
	var told []Head
	g.mu.Lock()
	for _, p := range g.parts {
		at := p.ledger.Committable()
		if p.ledger.Len() == 0 || at != p.head || p.headSince.IsZero() {
			p.head, p.headSince, p.headTold = at, now, false
			continue
		}
		if now.Sub(p.headSince) > heldBack && !p.headTold {
			p.headTold = true
			told = append(told, g.headOf(p, now))
		}
	}
	g.mu.Unlock()
	for _, h := range told {
		g.cfg.Logger.WarnContext(ctx, "a record holds back the committed offset", slog.Int("partition", int(h.Partition)),
			slog.Int64("offset", h.Offset), slog.String("number", h.Number), slog.String("at", string(h.At)),
			slog.Duration("for", h.For.Round(time.Second)), slog.Int("behind", h.Behind))
	}
}

// longestHead is the head that has held back its partition for longest; a zero Head where none does. The lock is held.
func (g *generation) longestHead(now time.Time) Head {
	var longest *part
	for _, p := range g.parts {
		if p.ledger.Len() > 0 && p.ledger.Committable() == p.head && !p.headSince.IsZero() &&
			(longest == nil || p.headSince.Before(longest.headSince)) {
			longest = p
		}
	}
	if longest == nil {
		return Head{}
	}
	return g.headOf(longest, now)
}

// headOf describes a partition's head. The lock is held.
func (g *generation) headOf(p *part, now time.Time) Head {
	h := Head{
		Partition: p.id, Offset: p.head, For: max(now.Sub(p.headSince), 0), Behind: p.ledger.Len() - 1, At: StopIntake,
	}
	for w := range g.held {
		if w.ledger != p.ledger || w.order.Message.Offset != p.head {
			continue
		}
		h.Number = w.order.Number
		switch {
		case !w.since.IsZero():
			h.At = StopCall
		case w.begun:
			h.At = StopSettle
		default:
			h.At = StopLine
		}
		break
	}
	return h
}

// lateSettle bounds the writing of an answer that came after its generation.
const lateSettle = 10 * time.Second

// settleLate writes down an answer that came when its generation was over: for the order it counts, where the order is
// still ours; for the offset it is too late.
func (g *generation) settleLate(working context.Context, w *work, a order.Answer) {
	g.m.outcome(a)
	defer g.landed(w) // not before it is written: a crash between would send it after the next of its chain
	ctx, cancel := context.WithTimeout(context.WithoutCancel(working), lateSettle)
	defer cancel()
	s := g.settlingOf(w, a)
	done, err := g.store.Settle(ctx, g.cfg.Owner, []order.Settlement{s.settlement})
	if err != nil {
		g.cfg.Logger.WarnContext(ctx, "late answer not written: the order is left to the scanner",
			slog.String("number", w.order.Number), slog.Any("error", err))
		return
	}
	g.unapplied(ctx, s, done[0]) // one that is REPLAYING now is found by the scanner
}
