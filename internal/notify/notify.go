package notify

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/desk"
)

// Recorder keeps events. It may be told of an event twice.
type Recorder interface {
	AddBreakerEvents(ctx context.Context, events []desk.BreakerEvent) error
}

// RecordTarget is the name of the Recorder among the targets; no webhook may have it.
const RecordTarget = "postgres"

// Config says who is told, and how hard it is tried. The zero value of a number is its default.
type Config struct {
	Routes   []string      // all there are, for the metrics
	Webhooks []Webhook     // with names of their own
	Timeout  time.Duration // of one try: 5 s
	Tries    int           // of a message to a webhook: 5
	Backoff  time.Duration // before the second try: 1 s; doubles, up to MaxWait
	MaxWait  time.Duration // between two tries, whatever a webhook asks for: 30 s
	Flush    time.Duration // what is done about waiting events once the context has ended: 1 s
}

func (c Config) withDefaults() Config {
	fill := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	fill(&c.Timeout, 5*time.Second)
	fill(&c.Backoff, time.Second)
	fill(&c.MaxWait, 30*time.Second)
	fill(&c.Flush, time.Second)
	if c.Tries == 0 {
		c.Tries = 5
	}
	return c
}

// recordTries bounds how often a batch is offered to the Recorder: with the default waits, for about ten minutes.
const recordTries = 24

// Notifier tells all targets. Make it with New and run it once.
type Notifier struct {
	cfg     Config
	explain func(ctx context.Context, e *desk.BreakerEvent)
	log     *slog.Logger
	lines   []*line
	sent    *prometheus.CounterVec
	dropped *prometheus.CounterVec
}

// line is the way to one target.
type line struct {
	name  string
	box   *box
	tries int
	pace  time.Duration // least time between two deliveries

	// pick, where set, chooses the events to be shown.
	pick func(events []desk.BreakerEvent) (shown, rest []desk.BreakerEvent)

	// deliver makes one try. It returns how long the target asks to be left alone for, if it did not take the message and
	// said so.
	deliver func(ctx context.Context, shown []desk.BreakerEvent, rest int) (wait time.Duration, err error)
}

// Results of a notification.
const (
	resultSent      = "sent"
	resultCollapsed = "collapsed" // counted in a message, and not shown in it
	resultFailed    = "failed"
)

// New makes a notifier that writes to record and the webhooks. transport makes the requests to those; nil for one with
// TLS 1.2 at least and the environment's proxy. explain, where not nil, adds to an event what is known of it elsewhere, just
// before it is told; it may be called more than once for an event, and only from Run. Nothing is connected to yet.
func New(c Config, record Recorder, transport http.RoundTripper, explain func(ctx context.Context, e *desk.BreakerEvent),
	log *slog.Logger, reg prometheus.Registerer,
) *Notifier {
	c = c.withDefaults()
	n := &Notifier{
		cfg: c, explain: explain, log: log,
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_notifications_total",
			Help: "Breaker events told to a target: sent, collapsed into a message that counts them, or failed for good.",
		}, []string{"route", "target", "result"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_notifications_dropped_total",
			Help: "Breaker events that gave way to newer ones because a target was too slow or away.",
		}, []string{"route", "target"}),
	}
	n.lines = append(n.lines, &line{
		name: RecordTarget, box: newBox(), tries: recordTries,
		deliver: func(ctx context.Context, events []desk.BreakerEvent, _ int) (time.Duration, error) {
			return 0, record.AddBreakerEvents(ctx, events)
		},
	})
	if transport == nil {
		transport = newTransport(c.Timeout)
	}
	for _, w := range c.Webhooks {
		hook := &hook{Webhook: w, transport: transport}
		n.lines = append(n.lines, &line{
			name: w.Name, box: newBox(), tries: c.Tries, pace: w.MinInterval, pick: collapse, deliver: hook.deliver,
		})
	}
	for _, route := range c.Routes {
		for _, l := range n.lines {
			n.dropped.WithLabelValues(route, l.name)
			for _, result := range []string{resultSent, resultCollapsed, resultFailed} {
				n.sent.WithLabelValues(route, l.name, result)
			}
		}
	}
	reg.MustRegister(n.sent, n.dropped)
	return n
}

// Notify takes an event to be told. It never waits, and may be called from anywhere, before Run and after it too.
func (n *Notifier) Notify(e desk.BreakerEvent) {
	for _, l := range n.lines {
		if lost, full := l.box.put(e); full {
			n.dropped.WithLabelValues(lost.Route, l.name).Inc()
		}
	}
}

// Run tells events until ctx ends, then takes Config.Flush at most for those that wait. It returns nil.
func (n *Notifier) Run(ctx context.Context) error {
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	// What is under way when ctx ends may go on until the flush is over.
	defer context.AfterFunc(ctx, func() {
		flush := time.NewTimer(n.cfg.Flush)
		defer flush.Stop()
		select {
		case <-flush.C:
			stop()
		case <-working.Done():
		}
	})()
	var lines sync.WaitGroup
	for _, l := range n.lines {
		lines.Go(func() { n.serve(ctx, working, l) })
	}
	lines.Wait()
	return nil
}

// serve tells one target until ctx ends, and then, while working lasts, what is left.
func (n *Notifier) serve(ctx, working context.Context, l *line) {
	for {
		select {
		case <-l.box.wake:
		case <-ctx.Done():
			n.tell(ctx, working, l)
			return
		}
		if n.tell(ctx, working, l) {
			pause(ctx, l.pace)
		}
	}
}

// tell delivers what is in the box, in one message, however many tries that takes. Once ctx has ended there is one try. It
// reports whether there was anything to tell.
func (n *Notifier) tell(ctx, working context.Context, l *line) bool {
	events := l.box.take()
	if len(events) == 0 {
		return false
	}
	shown, rest := events, []desk.BreakerEvent(nil)
	if l.pick != nil {
		shown, rest = l.pick(events)
	}
	if n.explain != nil {
		for i := range shown {
			n.explain(working, &shown[i])
		}
	}
	wait := n.cfg.Backoff
	for try := 1; ; try++ {
		asked, err := n.try(working, l, shown, len(rest))
		if err == nil {
			n.count(l, shown, resultSent)
			n.count(l, rest, resultCollapsed)
			return true
		}
		last := isFinal(err) || try >= l.tries || ctx.Err() != nil
		n.log.LogAttrs(working, slog.LevelWarn, "breaker events not delivered", slog.String("target", l.name),
			slog.Int("events", len(events)), slog.Int("try", try), slog.Bool("given_up", last), slog.String("error", err.Error()))
		if last {
			n.count(l, events, resultFailed)
			return true
		}
		pause(ctx, min(max(wait, asked), n.cfg.MaxWait))
		wait = min(2*wait, n.cfg.MaxWait)
	}
}

func (n *Notifier) try(ctx context.Context, l *line, shown []desk.BreakerEvent, rest int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Timeout)
	defer cancel()
	return l.deliver(ctx, shown, rest)
}

func (n *Notifier) count(l *line, events []desk.BreakerEvent, result string) {
	for i := range events {
		n.sent.WithLabelValues(events[i].Route, l.name, result).Inc()
	}
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
