package redis

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"spillway/internal/quota"
)

// keepTable is how long a table outlives the last report. While it is there, a fleet that starts need not wait until all
// holders of a table that was lost must be through.
const keepTable = 60 * 24 * time.Hour

// Quotas keeps the tables of what fleets share: one hash each, {prefix:quota:key}, worker → row, and "" → head. One key, so
// that it is lost whole or not at all. It implements quota.Store and may be used concurrently.
type Quotas struct{ client *Client }

var _ quota.Store = (*Quotas)(nil)

// Quotas returns the tables under the client's prefix.
func (c *Client) Quotas() *Quotas { return &Quotas{client: c} }

func (s *Quotas) key(key string) string {
	return "{" + s.client.prefix + ":quota:" + strings.NewReplacer("{", "(", "}", ")").Replace(key) + "}"
}

// Exchange implements quota.Store. A server that does not tell its run id in INFO is an error: it could not be told from
// one that has lost what was granted.
func (s *Quotas) Exchange(ctx context.Context, worker string, reports []quota.Report) ([]quota.Answer, error) {
	cmds, err := s.client.each(ctx, "quota_exchange", len(reports), func(i int) ([]string, []any, error) {
		r := &reports[i]
		return []string{s.key(r.Key)}, []any{
			worker, strconv.FormatUint(r.Seq, 10), r.Held, r.Want, r.Most, r.Cap, r.Hold.Milliseconds(), flag(r.Gone),
			quota.Step.Milliseconds(), quota.Pass.Milliseconds(), quota.Turn.Milliseconds(), quota.MaxCap, keepTable.Milliseconds(),
		}, nil
	})
	if err != nil {
		return nil, fmt.Errorf("redis quotas: %w", err)
	}
	answers := make([]quota.Answer, len(cmds))
	for i, cmd := range cmds {
		v, err := cmd.Int64Slice()
		if err == nil && len(v) != 6 {
			err = fmt.Errorf("an answer of %d values", len(v))
		}
		if err != nil {
			return nil, fmt.Errorf("redis quota %s: %w", reports[i].Key, err)
		}
		answers[i] = quota.Answer{
			Stale: v[0] == 1, Grant: v[1], Cap: v[2], Allotted: v[3], Workers: int(v[4]), Unsure: v[5] == 1,
		}
	}
	return answers, nil
}
