package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/board"
	"spillway/internal/wallet"
	"spillway/worker"
)

// Config says how to tell the story. The zero value of each field is its default.
type Config struct {
	// Duration of the story without the drain, MinDuration to MaxDuration, default DefaultDuration.
	Duration time.Duration
	// Kafka lists a real cluster's host:port, without TLS or SASL. Empty: a stand-in in memory.
	Kafka []string
	// RedisURL leads to a real Redis. Empty: a stand-in in memory.
	RedisURL string
	// PostgresURL leads to a database whose user may create schemas. Empty: a server of the demo's own.
	PostgresURL string

	// Out takes the board and what is said while servers start; nil for nobody.
	Out io.Writer
	// Plain asks for plain lines even on a terminal, NoColor for no colours.
	Plain, NoColor bool
	// Logger hears the worker; nil for nobody.
	Logger *slog.Logger
}

// drainPatience bounds the wait until everything has come to rest, once nothing is written any more.
const drainPatience = 45 * time.Second

// gaugePatience bounds the wait for the board's last frame to show that.
const gaugePatience = 2 * time.Second

// ErrInterrupted says that the story was ended before its end: there is no verdict.
var ErrInterrupted = errors.New("interrupted before the end of the story: no verdict")

// Run tells the story and returns the report. It returns an error where there is no report: the servers did not start,
// the worker ended, or ctx did (ErrInterrupted). What it made on real servers is removed, and its own servers are ended,
// before it returns.
func Run(ctx context.Context, cfg Config) (r Report, err error) {
	if cfg.Duration == 0 {
		cfg.Duration = DefaultDuration
	}
	if cfg.Duration < MinDuration || cfg.Duration > MaxDuration {
		return r, fmt.Errorf("duration %s: want %s to %s", cfg.Duration, MinDuration, MaxDuration)
	}
	if cfg.Out == nil {
		cfg.Out = io.Discard
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := newStand(ctx, cfg)
	if s != nil {
		defer func() { err = errors.Join(err, s.close(ctx)) }()
	}
	if err == nil {
		r, err = tell(ctx, cfg, s)
	}
	if ctx.Err() != nil {
		err = ErrInterrupted // and what else went wrong is for that reason
	}
	return r, err
}

// show is the story under way.
type show struct {
	cfg      Config
	stand    *stand
	wallet   *wallet.Wallet
	meter    *meter
	worker   *worker.Worker
	producer *producer
	registry *prometheus.Registry
	began    time.Time

	mu    sync.Mutex // guards what follows
	phase string
}

// tell plays the story on what it stands on.
func tell(ctx context.Context, cfg Config, s *stand) (Report, error) {
	sh := &show{cfg: cfg, stand: s, wallet: wallet.New(wallet.Config{Seed: 1, Mode: healthy()}), registry: prometheus.NewRegistry()}
	sh.meter = newMeter(sh.wallet)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return Report{}, fmt.Errorf("listen for the wallet: %w", err)
	}
	server := &http.Server{Handler: sh.meter, ConnContext: sh.meter.remember, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // ends by Close below
	}()
	defer func() {
		_ = server.Close() // what still hangs there is meant to
		<-served
	}()

	c, err := settings(s, "http://"+listener.Addr().String(), cfg.Duration)
	if err != nil {
		return Report{}, err
	}
	if sh.producer, err = newProducer(s.brokers, s.topic); err != nil {
		return Report{}, err
	}
	defer sh.producer.close()
	sh.worker, err = worker.New(ctx, c, worker.Options{Logger: cfg.Logger, Registry: sh.registry})
	if err != nil {
		return Report{}, fmt.Errorf("start the worker: %w", err)
	}
	return sh.play(ctx)
}

// play runs the worker, the producer and the board around the chapters, and audits once all have ended.
func (sh *show) play(ctx context.Context) (Report, error) {
	sh.began = time.Now()
	sh.say(chapters()[0].name)
	background := context.WithoutCancel(ctx)
	running, stopWorker := context.WithCancel(ctx)
	writing, stopWriting := context.WithCancel(running)
	showing, stopBoard := context.WithCancel(background)
	defer stopWorker()
	defer stopWriting()
	defer stopBoard()

	var workerErr, writeErr error
	workerEnded := make(chan struct{})
	go func() {
		defer close(workerEnded)
		workerErr = sh.worker.Run(running)
	}()
	produced := make(chan struct{})
	go func() {
		defer close(produced)
		writeErr = sh.producer.Run(writing)
	}()
	boardEnded := make(chan struct{})
	go func() {
		defer close(boardEnded)
		b := board.New(board.Config{Route: route, Plain: sh.cfg.Plain, NoColor: sh.cfg.NoColor}, sh.cfg.Out, sh.registry, sh.caption)
		if err := b.Run(showing); err != nil {
			sh.cfg.Logger.WarnContext(ctx, "the board has ended", slog.Any("error", err))
		}
	}()

	err := sh.chapters(running, workerEnded)
	stopWriting()
	<-produced
	if err == nil {
		sh.say("draining")
		err = sh.drain(running, workerEnded)
	}
	took := time.Since(sh.began)
	if err == nil {
		sh.say("drained")
		err = sh.rest(running, workerEnded)
	}
	stopBoard() // its last frame is of a worker that still runs
	<-boardEnded
	stopWorker()
	<-workerEnded
	told, readErr := board.Read(sh.registry, route, time.Now())
	if err = errors.Join(err, workerErr, writeErr, readErr); err != nil {
		return Report{}, err
	}
	e, err := gather(ctx, sh.stand, sh.producer, sh.wallet, sh.meter)
	if err != nil {
		return Report{}, fmt.Errorf("audit: %w", err)
	}
	return judge(e, told, took), nil
}

// errWorkerEnded and errPostgresEnded say who left the story early.
var (
	errWorkerEnded   = errors.New("the worker ended before the story did")
	errPostgresEnded = errors.New("PostgreSQL ended before the story did")
)

// chapters turns the wallet's mode through the story.
func (sh *show) chapters(ctx context.Context, workerEnded <-chan struct{}) error {
	var share float64
	for _, c := range chapters() {
		sh.say(c.name)
		sh.wallet.SetMode(c.mode)
		share += c.share
		end := sh.began.Add(time.Duration(share * float64(sh.cfg.Duration)))
		if err := sh.wait(ctx, time.Until(end), workerEnded); err != nil {
			return err
		}
	}
	return nil
}

// wait lets d pass, unless the story can't go on.
func (sh *show) wait(ctx context.Context, d time.Duration, workerEnded <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-workerEnded:
		return errWorkerEnded
	case <-sh.stand.gone():
		return errPostgresEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}

// drain waits until nothing is PROCESSING and everything is committed, at most drainPatience. That it did not get there
// is not its error: the audit will say so.
func (sh *show) drain(ctx context.Context, workerEnded <-chan struct{}) error {
	const look = 200 * time.Millisecond
	end := time.Now().Add(drainPatience)
	for time.Now().Before(end) {
		processing, err := sh.stand.unsettled(ctx)
		if err == nil && processing == 0 {
			var o offsets
			if o, err = sh.stand.readOffsets(ctx); err == nil && o.written == o.committed {
				return nil
			}
		}
		if err != nil && ctx.Err() == nil {
			sh.cfg.Logger.WarnContext(ctx, "the demo can't see whether all is settled", slog.Any("error", err))
		}
		if err := sh.wait(ctx, look, workerEnded); err != nil {
			return err
		}
	}
	return nil
}

// rest waits until the gauges show the calm too, at most gaugePatience: some are looked after every few seconds only.
func (sh *show) rest(ctx context.Context, workerEnded <-chan struct{}) error {
	const look = 100 * time.Millisecond
	for end := time.Now().Add(gaugePatience); time.Now().Before(end); {
		r, err := board.Read(sh.registry, route, time.Now())
		if err == nil && r.Calm() {
			return nil
		}
		if err := sh.wait(ctx, look, workerEnded); err != nil {
			return err
		}
	}
	return nil
}

func (sh *show) say(phase string) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.phase = phase
}

// caption is what the board shows beside the metrics.
func (sh *show) caption() board.Caption {
	sh.mu.Lock()
	phase := sh.phase
	sh.mu.Unlock()
	counts := sh.wallet.Counts()
	return board.Caption{
		Title: "Spillway demo", Phase: phase, Told: time.Since(sh.began), Total: sh.cfg.Duration,
		Extra: append([]string{
			fmt.Sprintf("wallet: %s; %d orders applied, %d of them twice", sh.wallet.Mode().Name, counts.Numbers, counts.Duplicates),
			"metrics: http://" + sh.worker.Addr() + "/metrics",
		}, sh.stand.says...),
	}
}
