package board

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/term"
)

// Config holds what a board can be told. The zero value of each field but Route is its default.
type Config struct {
	Route string // whose metrics are shown; required

	// Plain asks for a line at a time even on a terminal.
	Plain bool
	// NoColor asks for no attributes; see https://no-color.org.
	NoColor bool

	// Frame is the pause between two frames on a terminal, default 250 ms, and Log the one between two plain lines,
	// default 1 s.
	Frame, Log time.Duration
}

// rateWindow is how far back rates look, and keep how many readings that takes at most.
const (
	rateWindow = 2 * time.Second
	keep       = 64
)

// Board shows a route's metrics until it is told to end. Run it once.
type Board struct {
	cfg      Config
	out      io.Writer
	from     prometheus.Gatherer
	caption  func() Caption
	terminal *os.File // nil where out is none

	past  []Reading // oldest first, at most keep
	drawn int       // lines of the frame on the screen
}

// New makes a board that writes to out. caption is asked for each frame, in Run's goroutine.
func New(cfg Config, out io.Writer, from prometheus.Gatherer, caption func() Caption) *Board {
	if cfg.Frame <= 0 {
		cfg.Frame = 250 * time.Millisecond
	}
	if cfg.Log <= 0 {
		cfg.Log = time.Second
	}
	b := &Board{cfg: cfg, out: out, from: from, caption: caption}
	if f, ok := out.(*os.File); ok && !cfg.Plain && term.IsTerminal(int(f.Fd())) {
		b.terminal = f
	}
	return b
}

// Run draws until ctx ends, then once more, and gives the cursor back. It returns nil, or why nothing can be written:
// a board that nobody sees is no reason to stop anything else.
func (b *Board) Run(ctx context.Context) error {
	pause := b.cfg.Log
	if b.terminal != nil {
		pause = b.cfg.Frame
	}
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		over := ctx.Err() != nil
		if err := b.frame(time.Now(), over); err != nil {
			return fmt.Errorf("write the board: %w", err)
		}
		if over {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// frame draws what the metrics say at now.
func (b *Board) frame(now time.Time, last bool) error {
	r, err := Read(b.from, b.cfg.Route, now)
	v := View{Caption: b.caption(), Now: r, Before: b.before(r)}
	if err != nil {
		v.Trouble = err.Error()
	}
	var frame bytes.Buffer
	if b.terminal == nil {
		frame.WriteString(Line(v) + "\n")
	} else {
		b.redraw(&frame, v, last)
	}
	_, err = b.out.Write(frame.Bytes())
	return err
}

// redraw draws over the frame before. The screen does not scroll: what does not fit into its height is left out.
func (b *Board) redraw(frame *bytes.Buffer, v View, last bool) {
	width, height, err := term.GetSize(int(b.terminal.Fd()))
	if err != nil || width <= 0 || height <= 1 {
		width, height = 80, 24
	}
	lines := Lines(v, Style{Width: width, Color: !b.cfg.NoColor})
	lines = lines[:min(len(lines), height-1)]
	if b.drawn == 0 {
		frame.WriteString("\x1b[?25l") // the cursor hides
	} else {
		fmt.Fprintf(frame, "\r\x1b[%dA", b.drawn)
	}
	for _, line := range lines {
		frame.WriteString(line + "\x1b[K\n")
	}
	frame.WriteString("\x1b[J") // and nothing is left of a longer frame
	if last {
		frame.WriteString("\x1b[?25h")
	}
	b.drawn = len(lines)
}

// before is the reading that rates are taken over: the oldest of the last rateWindow, or the one before that.
func (b *Board) before(now Reading) Reading {
	b.past = append(b.past, now)
	for len(b.past) > 1 && (now.At.Sub(b.past[1].At) >= rateWindow || len(b.past) > keep) {
		b.past = b.past[1:]
	}
	return b.past[0]
}
