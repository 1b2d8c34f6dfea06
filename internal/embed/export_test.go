package embed

import (
	"context"
	"errors"
	"os"
	"time"
)

// What the tests reach that nobody else should.
var (
	Sweep  = sweep
	Unpack = unpack
)

// Fetch gets the package into kept.
func Fetch(ctx context.Context, kept string) error { return fetch(ctx, kept, nil) }

// Orphan makes the server look like one whose process was killed two minutes ago, and returns its folder.
func (p *Postgres) Orphan() (string, error) {
	old := time.Now().Add(-2 * sweepAfter)
	return p.dir, errors.Join(p.lock.Close(), os.Chtimes(p.dir, old, old))
}

// Dir is the server's folder.
func (p *Postgres) Dir() string { return p.dir }
