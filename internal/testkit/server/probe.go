package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// probeTimeout bounds one question to a server that is starting.
const probeTimeout = time.Second

// ask dials addr, writes request and reads len(answer) bytes.
func ask(ctx context.Context, addr string, request, answer []byte) error {
	dialer := net.Dialer{Timeout: probeTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	err = conn.SetDeadline(time.Now().Add(probeTimeout))
	if err == nil {
		_, err = conn.Write(request)
	}
	if err == nil {
		_, err = io.ReadFull(conn, answer)
	}
	return errors.Join(err, conn.Close())
}

// probeRedis pings. A server that is loading its data answers with an error, which is not yet ready.
func probeRedis(ctx context.Context, addr string) error {
	answer := make([]byte, len("+PONG\r\n"))
	if err := ask(ctx, addr, []byte("PING\r\n"), answer); err != nil {
		return err
	}
	if string(answer) != "+PONG\r\n" {
		return fmt.Errorf("redis answers %q to a ping", answer)
	}
	return nil
}

// probeKafka asks for the broker's versions: it answers only once it has joined its own quorum.
func probeKafka(ctx context.Context, addr string) error {
	// Length, API key 18 (ApiVersions), version 0, correlation id 7, no client id.
	request := []byte{0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 0xff, 0xff}
	answer := make([]byte, 10) // length, correlation id, error code
	if err := ask(ctx, addr, request, answer); err != nil {
		return err
	}
	if code := binary.BigEndian.Uint16(answer[8:]); code != 0 {
		return fmt.Errorf("kafka answers ApiVersions with error code %d", code)
	}
	return nil
}

// readTail returns at most the last n bytes of a file.
func readTail(path string, n int64) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if _, err := file.Seek(max(0, info.Size()-n), io.SeekStart); err != nil {
		return "", err
	}
	text, err := io.ReadAll(file)
	return string(text), err
}
