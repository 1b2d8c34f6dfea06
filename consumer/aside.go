package consumer

import "time"

// setAside takes a record out of what waits for a permit: it waits for an earlier one of its chain. It stays held. The
// lock is held.
func (g *generation) setAside(partition int32, size int64) {
	g.gate.Aside(time.Now(), 1, size)
	g.wake()
	if p := g.parts[partition]; p != nil {
		p.aside++
		p.asideBytes += size
		g.fill(p)
	}
}

// rest sets aside what waits for its tenant's rate, and with less than zero takes it back. The lock is held.
func (g *generation) rest(partition int32, records int, bytes int64) {
	if records > 0 {
		g.gate.Aside(time.Now(), records, bytes)
		g.wake()
		g.admit.set()
	} else {
		g.gate.Unstarted(time.Now(), -records, -bytes)
	}
	if p := g.parts[partition]; p != nil {
		p.aside += records
		p.asideBytes += bytes
		g.fill(p)
	}
}

// unaside takes setAside back. The lock is held.
func (g *generation) unaside(partition int32, size int64) {
	g.gate.Unstarted(time.Now(), 1, size)
	if p := g.parts[partition]; p != nil {
		p.aside--
		p.asideBytes -= size
		g.fill(p)
	}
}

// fill leaves a partition out of the fetch while too much of it stands behind an open record or waits for its chain, and
// lets it in again once that is down to a half. What is aside may take half of what the route may hold, in equal parts, so
// that hot keys of one partition leave room for all others. The lock is held.
func (g *generation) fill(p *part) {
	share := 2 * len(g.parts)
	records := max(g.limits.Records/share, leastAside)
	bytes := max(g.limits.Bytes/int64(share), g.limits.PartitionBytes)
	full := p.ledger.Len() > maxOpen || p.aside > records || p.asideBytes > bytes
	open := p.ledger.Len() < maxOpen/2 && p.aside <= records/2 && p.asideBytes <= bytes/2
	if full != p.full && (full || open) {
		p.full = full
		g.gate.Full(p.id, full)
	}
}
