package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"spillway/bench/report"
	"spillway/bench/rig"
	"spillway/internal/embed"
	"spillway/internal/wallet"
)

// stage is what every playing stands on.
type stage struct {
	*rig.Servers

	dir    string // of the binary
	logs   string // where the worker's logs stay, or dir
	binary string
	plays  int
	setup  map[string]string
	watch  bool // print what the wallet sees, each second

	permits, rate int // of the worker; of orders, a second
}

// open finds the servers and builds the command.
func open(ctx context.Context, logs string) (s *stage, err error) {
	s = &stage{setup: report.Machine(), logs: logs}
	if s.Servers, err = rig.Open(ctx, s.setup); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "spillway-story-"); err != nil {
		return nil, err
	}
	if s.logs == "" {
		s.logs = s.dir
	}
	s.binary = filepath.Join(s.dir, "spillway")
	build := exec.CommandContext(ctx, "go", "build", "-o", s.binary, "./cmd/spillway")
	build.Dir = ".."
	if text, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the command: %w\n%s", err, text)
	}
	return s, nil
}

func (s *stage) close() error { return os.RemoveAll(s.dir) }

// topic makes the topic and returns a producer to it and what takes both away.
func (s *stage) topic(ctx context.Context, name string) (*kgo.Client, func() error, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(s.Kafka), kgo.DefaultProduceTopic(name), kgo.ProducerLinger(0),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return nil, nil, err
	}
	if _, err := kadm.NewClient(client).CreateTopic(ctx, partitions, 1, nil, name); err != nil {
		client.Close()
		return nil, nil, err
	}
	return client, func() error {
		client.Close()
		return s.Drop(context.WithoutCancel(ctx), name)
	}, nil
}

// spillway starts the command; it ends with this process at the latest.
func (s *stage) spillway(stderr io.Writer, args ...string) (*embed.Process, error) {
	c := exec.Command(s.binary, args...)
	c.Stdout, c.Stderr = stderr, stderr
	return embed.Launch(c, embed.Owner{}, embed.Tied, syscall.SIGKILL)
}

// purse is the wallet's process, and how to speak to it.
type purse struct {
	process *embed.Process
	address string
	client  *http.Client
}

func (s *stage) wallet(mode wallet.Mode) (*purse, error) {
	text, err := json.Marshal(mode)
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p := &purse{client: &http.Client{Timeout: 5 * time.Second}}
	p.process, err = s.spillway(w, "wallet", "--listen", "127.0.0.1:0", "--mode", string(text))
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(r).ReadString('\n')
	_, after, ok := strings.Cut(line, "http://")
	if err != nil || !ok {
		return nil, errors.Join(fmt.Errorf("the wallet says %q in place of its address", line), err, p.end())
	}
	p.address, _, _ = strings.Cut(after, ",")
	go func() {
		_, _ = io.Copy(io.Discard, r) // it may say more; it ends with the process
		_ = r.Close()
	}()
	return p, nil
}

func (p *purse) end() error {
	if err := p.process.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.process.Done()
	return nil
}

// mode switches how the wallet behaves.
func (p *purse) mode(ctx context.Context, m wallet.Mode) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return p.ask(ctx, http.MethodPut, "/mode", strings.NewReader(string(text)), nil)
}

func (p *purse) counts(ctx context.Context) (c wallet.Counts, err error) {
	return c, p.ask(ctx, http.MethodGet, "/counts", nil, &c)
}

// applied asks whether an order took effect.
func (p *purse) applied(ctx context.Context, number string) (bool, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+"/pay/"+url.PathEscape(number), nil)
	if err != nil {
		return false, err
	}
	a, err := p.client.Do(q)
	if err != nil {
		return false, err
	}
	return a.StatusCode == http.StatusOK, a.Body.Close()
}

func (p *purse) ask(ctx context.Context, method, path string, body io.Reader, into any) error {
	q, err := http.NewRequestWithContext(ctx, method, "http://"+p.address+path, body)
	if err != nil {
		return err
	}
	a, err := p.client.Do(q)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(a.Body)
	if err := errors.Join(err, a.Body.Close()); err != nil {
		return err
	}
	if a.StatusCode != http.StatusOK {
		return fmt.Errorf("the wallet answers %s to %s %s: %s", a.Status, method, path, text)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}
