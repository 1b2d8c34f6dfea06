package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// program is a child process: the worker, or the stub.
type program struct {
	name   string
	cmd    *exec.Cmd
	input  io.Closer // the stub ends with it
	output *tail
	ended  chan struct{}
}

// tail keeps the last of what a program prints.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailBytes = 8 << 10

// Write keeps p's end.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if n := len(t.text); n > 2*tailBytes {
		t.text = append(t.text[:0], t.text[n-tailBytes:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// start starts a program that does not outlive this one; log takes a copy of what it prints.
func start(name string, log io.Writer, cmd *exec.Cmd) (*program, error) {
	p := &program{name: name, cmd: cmd, output: &tail{}, ended: make(chan struct{})}
	cmd.Stderr = io.MultiWriter(p.output, log)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the %s: %w", name, err)
	}
	go func() {
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
		close(p.ended)
	}()
	return p, nil
}

// kill ends the program at once and waits until it is gone.
func (p *program) kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.ended
}

// stop lets a worker drain.
func (p *program) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	select {
	case <-p.ended:
	case <-time.After(20 * time.Second):
		p.kill()
		return fmt.Errorf("the %s did not end:\n%s", p.name, p.output)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("the %s ended with %d:\n%s", p.name, code, p.output)
	}
	return nil
}

// alive says why the program is no more.
func (p *program) alive() error {
	select {
	case <-p.ended:
		return fmt.Errorf("the %s ended: %v\n%s", p.name, p.cmd.ProcessState, p.output)
	default:
		return nil
	}
}

// memory is what the program holds in memory, in bytes.
func (p *program) memory() (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if kilobytes, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kilobytes), "kB")), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("the kernel does not say how much memory the %s has", p.name)
}

// build makes the command as its users have it.
func build(ctx context.Context, dir string) (path string, err error) {
	path = filepath.Join(dir, "spillway")
	text, err := exec.CommandContext(ctx, "go", "build", "-C", "..", "-trimpath", "-ldflags", "-s -w", "-o", path, "./cmd/spillway").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the command: %w\n%s", err, text)
	}
	return path, nil
}

// downstream is the stub, seen from here.
type downstream struct {
	*program

	url string
}

func startStub() (*downstream, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), stubEnv+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p, err := start("stub", io.Discard, cmd)
	if err != nil {
		return nil, err
	}
	p.input = in
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		p.kill()
		return nil, fmt.Errorf("the stub says no address: %w\n%s", err, p.output)
	}
	return &downstream{program: p, url: "http://" + strings.TrimSpace(address)}, nil
}

// set changes the stub's mood.
func (d *downstream) set(ctx context.Context, m mood) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = ask(ctx, http.MethodPost, d.url+"/mood", text)
	return err
}

// read returns what the stub has seen.
func (d *downstream) read(ctx context.Context) (r reading, err error) {
	text, err := ask(ctx, http.MethodGet, d.url+"/reading", nil)
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(text, &r)
}

// counts returns how often each order was submitted, or applied.
func (d *downstream) counts(ctx context.Context, what string) ([]byte, error) {
	return ask(ctx, http.MethodGet, d.url+"/counts/"+what, nil)
}

// ask makes one request and returns its answer whole.
func ask(ctx context.Context, method, url string, body []byte) (text []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	text, err = io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, text)
	}
	return text, err
}
