package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"spillway/bench/rig"
)

// said is what a worker's metrics say.
type said struct {
	generations float64
	calls       map[int]int64 // live submits, by bucket of the time they took
	schema      int32         // what a bucket is
}

var listens = regexp.MustCompile(`"http":"([^"]+)"`)

// address waits until the worker says where its metrics are.
func (p *program) address(ctx context.Context) (string, error) {
	for range 1000 {
		if m := listens.FindStringSubmatch(p.output.String()); m != nil {
			return m[1], nil
		}
		if err := errors.Join(p.alive(), rig.Sleep(ctx, 10*time.Millisecond)); err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("the %s says no address:\n%s", p.name, p.output)
}

// scrape reads the metrics in the form that has the fine buckets.
func scrape(ctx context.Context, address string) (s said, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return s, err
	}
	req.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeProtoDelim)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	s.calls = map[int]int64{}
	families := expfmt.NewDecoder(resp.Body, expfmt.ResponseFormat(resp.Header))
	for {
		var f dto.MetricFamily
		if err := families.Decode(&f); errors.Is(err, io.EOF) {
			return s, nil
		} else if err != nil {
			return s, err
		}
		switch f.GetName() {
		case "spillway_kafka_generations_total":
			for _, m := range f.GetMetric() {
				s.generations += m.GetCounter().GetValue()
			}
		case "spillway_call_seconds":
			for _, m := range f.GetMetric() {
				if slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "lane" && l.GetValue() == "live" }) {
					s.add(m.GetHistogram())
				}
			}
		}
	}
}

// add counts the buckets of a native histogram in: spans of neighbours, each count as its difference to the one before.
func (s *said) add(h *dto.Histogram) {
	s.schema = h.GetSchema()
	at, count, next := 0, int64(0), 0
	for _, span := range h.GetPositiveSpan() {
		at += int(span.GetOffset())
		for range span.GetLength() {
			count += h.GetPositiveDelta()[next]
			s.calls[at] += count
			at++
			next++
		}
	}
}

// percentile is the time that a share of the calls made between two looks took at most: the upper end of its bucket,
// which is wider than the next by a tenth at the most.
func percentile(before, after said, share float64) (time.Duration, error) {
	if before.schema != after.schema && len(before.calls) > 0 {
		return 0, errors.New("the worker's histogram has changed its buckets")
	}
	all := int64(0)
	for at, n := range after.calls {
		all += n - before.calls[at]
	}
	left := int64(math.Ceil(float64(all) * share))
	for _, at := range slices.Sorted(maps.Keys(after.calls)) {
		if left -= after.calls[at] - before.calls[at]; left <= 0 && all > 0 {
			seconds := math.Exp2(float64(at) * math.Exp2(-float64(after.schema)))
			return time.Duration(seconds * float64(time.Second)), nil
		}
	}
	return 0, errors.New("no calls in the whole phase")
}
