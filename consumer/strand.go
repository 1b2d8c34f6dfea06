package consumer

import "time"

// strand keeps the chains occupied of calls that outlived their generation: an order of the same chain must not run beside
// them in the next. A chain is free again when the call's answer is written down, and at the latest when the order's lease is over:
// then the order is the scanner's, and a call that never returns must not hold up its key for good.
func (g *generation) strand(ws []*work) {
	if g.cfg.Ordering == Unordered {
		return
	}
	g.Lane.mu.Lock()
	defer g.Lane.mu.Unlock()
	g.mu.Lock() // for leasedAt: the renewer may have been left behind
	defer g.mu.Unlock()
	for _, w := range ws {
		if w.landed {
			continue
		}
		g.stranded[w] = struct{}{}
		time.AfterFunc(time.Until(w.leasedAt.Add(g.cfg.Lease)), func() { g.landed(w) })
	}
}

// landed frees what strand keeps.
func (l *Lane) landed(w *work) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.landed = true
	if _, ok := l.stranded[w]; !ok {
		return
	}
	delete(l.stranded, w)
	if g := l.now.Load(); g != nil {
		g.vacate(w)
	}
}

// occupy takes over the chains that are stranded. Lane.mu is held, and nobody else knows g.
func (g *generation) occupy() {
	for w := range g.stranded {
		g.line.Occupy(w.entry.Partition, w.entry.Key)
	}
}

// vacate lets the first order go that waits for a chain that was occupied.
func (g *generation) vacate(w *work) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if next := g.line.Vacate(w.entry.Partition, w.entry.Key); next != nil {
		next.Value.aside = false
		g.unaside(next.Partition, next.Value.size)
		g.dispatch.set()
	}
}
