package redis_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"spillway/internal/redis"
)

func TestErrorsNeverShowThePassword(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	server.RequireUserAuth("app", "right")
	for _, url := range []string{
		"redis://:CANARY@ho st:99999",
		"redis://:CANARY@host:99999",
		"redis://:CANARY@host:port",
		"redis://user:CANARY",
		"redis://CANARY:6379:6379",
		"redis://host/CANARY",
		"redis://host/-1?password=CANARY",
		"redis://host?password=CANARY",
		"redis://host#CANARY",
		"http://:CANARY@host",
		"CANARY",
		"redis:CANARY@host",
		"redis://:CAN%ZZARY@host",
		"redis://:CANARY@[::1",
		"redis://:CANARY@",
		"redis://\x00:CANARY@host",
		"",
	} {
		_, err := redis.Open(redis.Config{URL: url})
		if err == nil {
			t.Errorf("%q was taken", url)
			continue
		}
		if text := err.Error(); strings.Contains(text, "CANARY") || strings.Contains(text, "ARY") || !strings.Contains(text, "redis://") {
			t.Errorf("%q: %v", url, err)
		}
	}
	for _, url := range []string{
		"redis://app:CANARY@" + server.Addr(), // refused by the server
		"redis://:CANARY@127.0.0.1:1",         // nobody there
		"rediss://:CANARY@" + server.Addr(),   // no TLS there
	} {
		client, err := redis.Open(redis.Config{URL: url})
		if err != nil {
			t.Errorf("%q: %v", url, err)
			continue
		}
		err = client.Ping(t.Context())
		if err == nil || strings.Contains(err.Error(), "CANARY") {
			t.Errorf("ping: %v", err)
		}
		_ = client.Close()
	}
}

func TestURLLeadsToTheUserAndDatabase(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	server.RequireUserAuth("app", "p@ss:/word")
	client, err := redis.Open(redis.Config{URL: fmt.Sprintf("redis://app:p%%40ss%%3A%%2Fword@%s/3", server.Addr()), Prefix: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if err := client.Queue("pay", 10).Push(t.Context(), entries(1, 1)); err != nil {
		t.Fatal(err)
	}
	if got, err := server.DB(3).List("{x:pay}:ready"); err != nil || len(got) != 1 {
		t.Errorf("database 3 holds %v (%v)", got, err)
	}
}

func TestConfigOutOfBoundsIsRefused(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]redis.Config{
		"braces in the prefix": {URL: "redis://host", Prefix: "a{b}"},
		"negative timeout":     {URL: "redis://host", Call: -1},
		"negative pool":        {URL: "redis://host", Pool: -1},
	} {
		if _, err := redis.Open(cfg); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}
