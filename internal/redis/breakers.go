package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/breaker"
	"spillway/breaker/fleet"
)

// Bounds of what a breaker leaves in Redis.
const (
	maxNotes       = 100
	forgetMember   = time.Minute
	keepRecord     = 60 * 24 * time.Hour // twice the longest force, counted from the last exchange
	maxMove        = 365 * 24 * time.Hour
	viewHead       = 6 // values before the members in an answer
	valuesOfMember = 4
)

// Breakers keeps the records that breakers share. It implements fleet.Store and may be used concurrently. The keys of one
// breaker share one hash tag, {prefix:breaker:service/endpoint}:
//
//	:record   HASH  epoch, since and ends (of a force) in Unix ms by the server's clock, body (JSON)
//	:members  HASH  worker → when it was seen, its slots, their end, whether it wants one, and its statement (JSON);
//	                "" → when the first of them came
//	:audit    LIST  the latest orders, newest first: Unix ms and JSON
type Breakers struct{ client *Client }

var _ fleet.Store = (*Breakers)(nil)

// Breakers returns the store of all breakers under the client's prefix.
func (c *Client) Breakers() *Breakers { return &Breakers{client: c} }

// breakerKeys are the names of what belongs to one breaker.
type breakerKeys struct{ record, members, audit string }

func (s *Breakers) keys(key breaker.Key) breakerKeys {
	tag := "{" + s.client.prefix + ":breaker:" + strings.NewReplacer("{", "(", "}", ")").Replace(key.String()) + "}"
	return breakerKeys{record: tag + ":record", members: tag + ":members", audit: tag + ":audit"}
}

// Exchange implements fleet.Store.
func (s *Breakers) Exchange(ctx context.Context, worker string, reports []fleet.Report) ([]fleet.View, error) {
	cmds, err := s.client.each(ctx, "breaker_exchange", len(reports), func(i int) ([]string, []any, error) {
		r := &reports[i]
		k := s.keys(r.Key)
		forget := max(forgetMember, 2*(r.Lease+r.Deadline))
		body, err := json.Marshal(statementOf(r.Evidence))
		return []string{k.record, k.members}, []any{
			worker, r.Evidence.Slots, flag(r.Wants), r.Limit, r.Lease.Milliseconds(), r.Deadline.Milliseconds(), flag(r.Gone),
			forget.Milliseconds(), keepRecord.Milliseconds(), body,
		}, err
	})
	if err != nil {
		return nil, fmt.Errorf("redis breakers: %w", err)
	}
	views := make([]fleet.View, len(cmds))
	for i, cmd := range cmds {
		if views[i], err = viewOf(cmd); err != nil {
			return nil, fmt.Errorf("redis breaker %s: %w", reports[i].Key, err)
		}
		if !reports[i].Gone {
			views[i].Members = append(views[i].Members, fleet.Member{
				Worker: worker, Wants: reports[i].Wants, Evidence: reports[i].Evidence,
			})
		}
	}
	return views, nil
}

// Move implements fleet.Store.
func (s *Breakers) Move(ctx context.Context, moves []fleet.Move) ([]bool, error) {
	cmds, err := s.client.each(ctx, "breaker_move", len(moves), func(i int) ([]string, []any, error) {
		m := &moves[i]
		k := s.keys(m.Key)
		body, err := json.Marshal(bodyOf(m.Record))
		if err != nil {
			return nil, nil, err
		}
		left, note := "", []byte(nil)
		if m.Record.Force != breaker.ForceNone {
			left = strconv.FormatInt(m.Record.ForceLeft.Milliseconds(), 10)
		}
		if m.Note != nil {
			note, err = json.Marshal(m.Note)
		}
		return []string{k.record, k.audit}, []any{
			strconv.FormatUint(m.Expect, 10), strconv.FormatUint(m.Record.Epoch, 10), min(m.Record.Age, maxMove).Milliseconds(),
			left, body, note, maxNotes, keepRecord.Milliseconds(),
		}, err
	})
	if err != nil {
		return nil, fmt.Errorf("redis breakers: %w", err)
	}
	done := make([]bool, len(cmds))
	for i, cmd := range cmds {
		if done[i], err = cmd.Bool(); err != nil {
			return nil, fmt.Errorf("redis breaker %s: %w", moves[i].Key, err)
		}
	}
	return done, nil
}

// Look implements fleet.Store.
func (s *Breakers) Look(ctx context.Context, keys []breaker.Key) ([]fleet.View, error) {
	cmds, err := s.client.each(ctx, "breaker_look", len(keys), func(i int) ([]string, []any, error) {
		k := s.keys(keys[i])
		return []string{k.record, k.members}, nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("redis breakers: %w", err)
	}
	views := make([]fleet.View, len(cmds))
	for i, cmd := range cmds {
		if views[i], err = viewOf(cmd); err != nil {
			return nil, fmt.Errorf("redis breaker %s: %w", keys[i], err)
		}
	}
	return views, nil
}

// Audit implements fleet.Store. At most 100 orders are kept.
func (s *Breakers) Audit(ctx context.Context, key breaker.Key, n int) ([]fleet.Note, error) {
	if n < 1 {
		return nil, nil
	}
	lines, err := s.client.db.LRange(ctx, s.keys(key).audit, 0, int64(n)-1).Result()
	if err != nil {
		return nil, fmt.Errorf("redis breaker %s: %w", key, err)
	}
	notes := make([]fleet.Note, len(lines))
	for i, line := range lines {
		at, text, _ := strings.Cut(line, " ")
		ms, err := strconv.ParseInt(at, 10, 64)
		if err == nil {
			err = json.Unmarshal([]byte(text), &notes[i])
		}
		if err != nil {
			return nil, fmt.Errorf("redis breaker %s: an order of the audit does not parse: %w", key, err)
		}
		notes[i].At = time.UnixMilli(ms).UTC()
	}
	return notes, nil
}

// recordBody is a Record without its epoch and its times, which the server keeps apart.
type recordBody struct {
	Moves   uint64          `json:"moves"`
	State   breaker.State   `json:"state"`
	Ramping bool            `json:"ramping,omitempty"`
	Wait    time.Duration   `json:"wait"`
	Opens   int             `json:"opens"`
	Force   breaker.Force   `json:"force"`
	Why     breaker.Grounds `json:"why"`
	By      string          `json:"by"`
}

func bodyOf(r breaker.Record) recordBody {
	return recordBody{
		Moves: r.Moves, State: r.State, Ramping: r.Ramping, Wait: r.Wait, Opens: r.Opens, Force: r.Force, Why: r.Why, By: r.By,
	}
}

// statement is a worker's Evidence without its slots: numbers in a fixed order, since every worker reads those of all the
// others a few times a second. A later version may add numbers at the end.
type statement [20]int64

func statementOf(e breaker.Evidence) statement {
	return statement{
		int64(e.Epoch), int64(e.State), int64(flag(e.Ramping)), e.RampAge.Milliseconds(), int64(flag(e.Own)), int64(e.Force), //nolint:gosec // an epoch is far below 1<<63
		int64(e.Failure.Samples), int64(e.Failure.Failures), int64(e.Failure.Slow),
		int64(e.Slow.Samples), int64(e.Slow.Failures), int64(e.Slow.Slow), int64(e.Successes),
		int64(e.Half.Samples), int64(e.Half.Failures), int64(e.Half.Slow), int64(e.ProbesGood), int64(e.ProbesBad),
		int64(e.Slots), int64(e.Probing),
	}
}

func (s statement) evidence() breaker.Evidence {
	window := func(i int) breaker.Window {
		return breaker.Window{Samples: int(s[i]), Failures: int(s[i+1]), Slow: int(s[i+2])}
	}
	return breaker.Evidence{
		Epoch: uint64(s[0]), State: breaker.State(s[1]), Ramping: s[2] != 0, RampAge: time.Duration(s[3]) * time.Millisecond, //nolint:gosec // written by statementOf
		Own: s[4] != 0, Force: breaker.Force(s[5]), Failure: window(6), Slow: window(9), Successes: int(s[12]), //nolint:gosec // written by statementOf
		Half: window(13), ProbesGood: int(s[16]), ProbesBad: int(s[17]), Slots: int(s[18]), Probing: int(s[19]),
	}
}

// viewOf reads the answer of breaker_exchange or breaker_look. A record that cannot be read is a closed one, since each
// worker still opens by itself, and the next move mends it. A member's statement that cannot be read makes that member
// one that has seen nothing.
func viewOf(cmd *redis.Cmd) (fleet.View, error) {
	values, err := cmd.StringSlice()
	if err != nil {
		return fleet.View{}, err
	}
	if len(values) < viewHead || (len(values)-viewHead)%valuesOfMember != 0 {
		return fleet.View{}, fmt.Errorf("an answer of %d values", len(values))
	}
	var v fleet.View
	now, errNow := strconv.ParseInt(values[0], 10, 64)
	epoch, errEpoch := strconv.ParseUint(values[1], 10, 64)
	since, errSince := strconv.ParseInt(values[2], 10, 64)
	ends, errEnds := strconv.ParseInt(values[3], 10, 64)
	slots, errSlots := strconv.Atoi(values[5])
	if err := errors.Join(errNow, errEpoch, errSince, errEnds, errSlots); err != nil {
		return v, err
	}
	v.Slots = slots
	if epoch > 0 {
		var b recordBody
		if err := json.Unmarshal([]byte(values[4]), &b); err != nil {
			b = recordBody{By: "unreadable"}
		}
		v.Record = breaker.Record{
			Epoch: epoch, Moves: b.Moves, State: b.State, Ramping: b.Ramping, Wait: b.Wait, Opens: b.Opens,
			Force: b.Force, Why: b.Why, By: b.By, Age: milliseconds(now - since),
		}
		if b.Force != breaker.ForceNone {
			v.Record.ForceLeft = milliseconds(ends - now)
		}
	}
	for i := viewHead; i < len(values); i += valuesOfMember {
		m := fleet.Member{Worker: values[i], Wants: values[i+2] == "1"}
		seen, err := strconv.ParseInt(values[i+1], 10, 64)
		if err != nil {
			return v, err
		}
		m.Seen = milliseconds(seen)
		var s statement
		if err := json.Unmarshal([]byte(values[i+3]), &s); err == nil {
			m.Evidence = s.evidence()
		}
		v.Members = append(v.Members, m)
	}
	return v, nil
}

// milliseconds makes a duration of at most a year, and none below zero: a server's clock may jump.
func milliseconds(n int64) time.Duration {
	return time.Duration(min(max(n, 0), maxMove.Milliseconds())) * time.Millisecond
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
