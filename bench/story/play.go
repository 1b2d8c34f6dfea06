package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"spillway/bench/rig"
	"spillway/internal/embed"
	"spillway/internal/wallet"
)

const (
	partitions = 12
	perSecond  = 1000
	permits    = 50
	valueBytes = 200
	lasts      = 70 * time.Second
	recovers   = 50 * time.Second // when the last phase begins
	patience   = 4 * time.Minute  // from the last order to the end of the last one
)

// phase is how the wallet behaves from a moment on.
type phase struct {
	at   time.Duration
	mode wallet.Mode
}

// phases is the story. Each request is answered in the way of the moment at which it came.
func phases() []phase {
	ill := wallet.Failing(503).RefuseLookups(503)
	return []phase{
		{0, wallet.Healthy(10 * time.Millisecond)},
		{10 * time.Second, wallet.Healthy(100 * time.Millisecond)},
		{25 * time.Second, ill},
		{40 * time.Second, wallet.Timeouts(1, 0, 0)},
		{recovers, wallet.Healthy(10 * time.Millisecond)},
	}
}

// waits are the settings in which an edition differs from the defaults: YAML of the route, indented by four.
type waits string

// shortWaits are those that the worker can be tuned to where a downstream may be asked again after two seconds.
func shortWaits(degrade string) waits {
	return waits(fmt.Sprintf(`
    degrade: %s
    lease: 4s
    breaker: {consecutive: 10, open_wait: 2s, open_growth: 1, probe_failures: 1, ramp_step: 300ms, ramp_start: 20%%}
    replay: {delay: 500ms, delay_max: 2s, lease: 4s, patience: 5s}
    compensate: {after: 1s, grace: 2s, delay: 500ms, delay_max: 2s, interval: 200ms}`, degrade))
}

const settings = `
kafka: {brokers: ["%s"], session_timeout: %v}
shutdown: {grace: %v}
redis: {url: "%s", prefix: "%s"}
postgres: {url: "%s"}
http: {listen: "127.0.0.1:0"}
routes:
  - name: wallet
    topic: %s
    group: %s
    permits: {limit: %d}
    downstream:
      url: http://%s
      submit: {path: /pay}
      lookup: {path: "/pay/{number}"}%s
`

// player is one playing.
type player struct {
	*stage
	name     string
	config   string
	database *rig.Database
	purse    *purse
	producer *kgo.Client
	log      *os.File
	worker   *embed.Process

	produced []time.Time // by order; written by one goroutine
	tale     tale
}

// play plays the story once, and counts.
func (s *stage) play(ctx context.Context, e edition) (t tale, err error) {
	s.plays++
	p := &player{stage: s, name: fmt.Sprintf("%s_story_%d", s.Tag, s.plays)}
	undo, err := p.set(ctx, e)
	defer func() {
		for i := range undo {
			err = errors.Join(err, undo[len(undo)-1-i]())
		}
	}()
	if err != nil {
		return t, err
	}
	if err := p.start(); err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, p.end()) }()
	if err := p.warm(ctx); err != nil {
		return t, err
	}
	begin := time.Now()
	g, running := errgroup.WithContext(ctx)
	g.Go(func() error { return p.produce(running, begin) })
	g.Go(func() error { return p.turn(running, begin) })
	g.Go(func() error { return p.kill(running, begin, e.kills) })
	if p.watch {
		g.Go(func() error { return p.look(running, begin) })
	}
	if err := g.Wait(); err != nil {
		return t, err
	}
	return p.tale, p.count(ctx, begin.Add(recovers))
}

// set makes what the playing needs. What it returns undoes it, also after an error.
func (p *player) set(ctx context.Context, e edition) (undo []func() error, err error) {
	if p.database, err = p.Database(ctx, fmt.Sprintf("story_%d", p.plays)); err != nil {
		return undo, err
	}
	undo = append(undo, func() error { return p.database.End(ctx) })
	var drop func() error
	if p.producer, drop, err = p.topic(ctx, p.name); err != nil {
		return undo, err
	}
	undo = append(undo, drop)
	if p.purse, err = p.wallet(phases()[0].mode); err != nil {
		return undo, err
	}
	undo = append(undo, p.purse.end)
	var remove func()
	p.config, remove, err = rig.SettingsFile(fmt.Sprintf(settings, p.Kafka, e.session, e.session-3*time.Second, p.Redis, p.name, p.database.URL,
		p.name, p.name, p.permits, p.purse.address, e.waits))
	if err != nil {
		return undo, err
	}
	undo = append(undo, func() error { remove(); return nil })
	if p.log, err = os.Create(filepath.Join(p.logs, p.name+e.suffix+".log")); err != nil {
		return undo, err
	}
	return append(undo, p.log.Close), nil
}

func (p *player) start() (err error) {
	p.worker, err = p.spillway(p.log, "worker", "-c", p.config)
	return err
}

// end stops the worker as an operator would.
func (p *player) end() error {
	if err := p.worker.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.worker.Done():
	case <-time.After(20 * time.Second):
		return errors.Join(errors.New("the worker did not end within 20 s of SIGTERM"), p.worker.Signal(syscall.SIGKILL))
	}
	if code := p.worker.ExitCode(); code != 0 {
		return fmt.Errorf("the worker ended with code %d, see %s", code, p.log.Name())
	}
	return nil
}

// warm waits until the first order went through.
func (p *player) warm(ctx context.Context) error {
	p.hand(ctx, 1)
	for began := time.Now(); ; {
		c, err := p.purse.counts(ctx)
		if err != nil || c.Effects > 0 {
			return err
		}
		if time.Since(began) > 30*time.Second {
			return fmt.Errorf("the first order was not delivered within 30 s, see %s", p.log.Name())
		}
		if err := until(ctx, time.Now().Add(20*time.Millisecond)); err != nil {
			return err
		}
	}
}

// hand gives the next n orders to the broker.
func (p *player) hand(ctx context.Context, n int) {
	for range n {
		i := len(p.produced)
		p.produced = append(p.produced, time.Now())
		p.producer.Produce(ctx, &kgo.Record{
			Partition: int32(i % partitions), Key: []byte(rig.Number(i)), Value: rig.Value(i, valueBytes),
		}, nil) // a record that failed is an order that is lost
	}
}

// produce keeps the rate until the story's end.
func (p *player) produce(ctx context.Context, begin time.Time) error {
	const steps = 100 // a second
	for step := range int(lasts/time.Second) * steps {
		if err := until(ctx, begin.Add(time.Duration(step)*time.Second/steps)); err != nil {
			return err
		}
		p.hand(ctx, p.rate*(step%steps+1)/steps-p.rate*(step%steps)/steps)
	}
	return p.producer.Flush(ctx)
}

// turn changes the wallet's mood.
func (p *player) turn(ctx context.Context, begin time.Time) error {
	for _, next := range phases()[1:] {
		if err := until(ctx, begin.Add(next.at)); err != nil {
			return err
		}
		if err := p.purse.mode(ctx, next.mode); err != nil {
			return err
		}
	}
	return nil
}

// look prints what the wallet sees.
func (p *player) look(ctx context.Context, begin time.Time) error {
	var before wallet.Counts
	for second := time.Second; second <= lasts; second += time.Second {
		if err := until(ctx, begin.Add(second)); err != nil {
			return err
		}
		now, err := p.purse.counts(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("%3.0f s  %5d POSTs  %5d effects  %4d lookups  %3d in flight  %3d answers of 503\n", second.Seconds(),
			now.Posts-before.Posts, now.Effects-before.Effects, now.Lookups-before.Lookups, now.InFlight, now.Refused)
		before = now
	}
	return nil
}

// kill ends the worker without a word at these moments, starts it again at once, and measures when the next POST comes.
func (p *player) kill(ctx context.Context, begin time.Time, at []time.Duration) error {
	for _, moment := range at {
		if err := until(ctx, begin.Add(moment)); err != nil {
			return err
		}
		if err := p.worker.Signal(syscall.SIGKILL); err != nil {
			return err
		}
		killed := time.Now()
		<-p.worker.Done()
		// What the dead one had sent is read by now, or will never be: the wallet reads at once.
		if err := until(ctx, killed.Add(20*time.Millisecond)); err != nil {
			return err
		}
		before, err := p.purse.counts(ctx)
		if err != nil {
			return err
		}
		if err := p.start(); err != nil {
			return err
		}
		for {
			if err := until(ctx, time.Now().Add(10*time.Millisecond)); err != nil {
				return err
			}
			now, err := p.purse.counts(ctx)
			if err != nil {
				return err
			}
			if now.Posts > before.Posts {
				break
			}
		}
		p.tale.firstPosts = append(p.tale.firstPosts, time.Since(killed).Round(10*time.Millisecond))
	}
	return nil
}

// count waits until everything has come to rest, and judges. healthy is when the last phase began.
func (p *player) count(ctx context.Context, healthy time.Time) error {
	for began := time.Now(); time.Since(began) < patience; {
		done, err := p.database.Count(ctx, "SELECT count(*) FROM orders WHERE state <> 1")
		if err != nil {
			return err
		}
		if int(done) >= len(p.produced) {
			break
		}
		if err := until(ctx, time.Now().Add(time.Second)); err != nil {
			return err
		}
	}
	rows, err := p.database.Texts(ctx, "SELECT format('%s %s %s', number, state, (extract(epoch FROM updated_at) * 1e6)::bigint) FROM orders")
	if err != nil {
		return err
	}
	counts, err := p.purse.counts(ctx)
	if err != nil {
		return err
	}
	t := &p.tale
	spans, parked, succeeded, err := p.read(rows, healthy.Add(lasts+patience))
	if err != nil {
		return err
	}
	t.parked = len(parked)
	for _, number := range parked {
		applied, err := p.purse.applied(ctx, number)
		if err != nil {
			return err
		}
		if applied {
			t.parkedApplied++
		}
	}
	// An order counts as delivered when both say so: Postgres and the wallet. Parked ones are counted as such.
	t.lost = len(p.produced) - min(succeeded, int(counts.Numbers)-t.parkedApplied) - t.parked
	t.doubleEffects = int(counts.Effects - counts.Numbers)
	t.maxInFlight, t.maxPosts, t.answers503 = int(counts.MaxFlight), int(counts.MaxPayment), int(counts.Refused)
	t.lookups = int(counts.Lookups)
	t.caughtUp, t.worstAge = caughtUp(healthy, spans)
	return nil
}

// read takes the rows apart. What is not final ends at never.
func (p *player) read(rows []string, never time.Time) (spans []span, parked []string, succeeded int, err error) {
	spans = make([]span, len(p.produced))
	for i, at := range p.produced {
		spans[i] = span{produced: at, final: never}
	}
	for _, row := range rows {
		var index, state int
		var updated int64
		if _, err := fmt.Sscanf(row, "T-%d %d %d", &index, &state, &updated); err != nil || index >= len(spans) {
			return nil, nil, 0, fmt.Errorf("an order that nobody made: %q", row)
		}
		switch state {
		case stateSucceeded:
			succeeded++
			spans[index].final = time.UnixMicro(updated)
		case stateDead:
			parked = append(parked, rig.Number(index))
		}
	}
	return spans, parked, succeeded, nil
}

// How order states stand in the table.
const (
	stateSucceeded = 2
	stateDead      = 4
)

// until waits for a moment.
func until(ctx context.Context, at time.Time) error {
	t := time.NewTimer(time.Until(at))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
