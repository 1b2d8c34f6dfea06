package breaker

import (
	"testing"
	"time"
)

func benchBreaker(tb testing.TB, cfg Config) *Breaker {
	tb.Helper()
	b, err := New(Key{"s", "e"}, cfg, nil, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func BenchmarkPermit(b *testing.B) {
	br := benchBreaker(b, Config{SlowCall: time.Second})
	b.ReportAllocs()
	for b.Loop() {
		if p, ok := br.Allow(); ok {
			br.Done(p, Success)
		}
	}
}

func BenchmarkPermitWithoutSlowCalls(b *testing.B) {
	br := benchBreaker(b, Config{})
	b.ReportAllocs()
	for b.Loop() {
		if p, ok := br.Allow(); ok {
			br.Done(p, Success)
		}
	}
}

func BenchmarkPermitParallel(b *testing.B) {
	br := benchBreaker(b, Config{SlowCall: time.Second})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if p, ok := br.Allow(); ok {
				br.Done(p, Success)
			}
		}
	})
}

func BenchmarkPermitAtGivenTime(b *testing.B) {
	br := benchBreaker(b, Config{SlowCall: time.Second})
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		if p, ok := br.AllowAt(now); ok {
			br.DoneAt(now, p, Success)
		}
	}
}

func BenchmarkReject(b *testing.B) {
	br := benchBreaker(b, Config{})
	if err := br.Force(ForceOpen, time.Hour); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		br.Allow()
	}
}

func BenchmarkRejectAtGivenTime(b *testing.B) {
	br := benchBreaker(b, Config{})
	if err := br.Force(ForceOpen, time.Hour); err != nil {
		b.Fatal(err)
	}
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		br.AllowAt(now)
	}
}

func BenchmarkClock(b *testing.B) {
	start := time.Now()
	for b.Loop() {
		time.Since(start)
	}
}
