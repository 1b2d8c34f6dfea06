package worker

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"spillway/breaker"
	"spillway/consumer"
	"spillway/internal/admin"
	"spillway/internal/config"
	"spillway/internal/downstream"
	"spillway/internal/kafka"
	"spillway/internal/permit"
	"spillway/internal/rate"
	"spillway/order"
)

// What follows turns settings into the parts' own configurations. Every value was checked by package config.

func kafkaConfig(cfg *Config, r *config.Route, opts Options) (kafka.Config, error) {
	k := kafka.Config{
		Brokers: cfg.Kafka.Brokers, Topic: r.Topic, Group: r.Group, ClientID: cfg.Kafka.ClientID, Route: r.Name,
		SessionTimeout: cfg.Kafka.SessionTimeout, HeartbeatInterval: cfg.Kafka.Heartbeat, WatchInterval: r.Watch,
		RebalanceTimeout: max(cfg.Kafka.SessionTimeout, 2*cfg.Shutdown.Grace),
		Dial:             opts.DialKafka, Registerer: opts.Registry, Logger: opts.Logger,
	}
	if r.Start == "latest" {
		k.Start = kafka.Latest
	}
	if r.Isolation == "read_uncommitted" {
		k.Isolation = kafka.ReadUncommitted
	}
	if s := cfg.Kafka.SASL; s.Mechanism != config.SASLNone {
		k.SASL = kafka.SASL{Mechanism: s.Mechanism, Username: s.Username, Password: s.Password.Reveal()}
	}
	tls, err := cfg.Kafka.TLS.Build()
	if err != nil {
		return k, fmt.Errorf("kafka.tls: %w", err)
	}
	k.TLS = tls
	return k, nil
}

func laneConfig(cfg *Config, r *config.Route, owner string, opts Options) consumer.Config {
	c := consumer.Config{
		Route: r.Name, Owner: owner, Policy: r.Policy(),
		Limits: limitsConfig(r),
		Stuck:  r.Watchdog, RetryBudget: r.Retry.Budget.Share(), RetryDelay: r.Retry.Delay,
		PermitWait: r.Permits.Wait, Lease: r.Lease, CallBudget: r.Downstream.Timeout + callMargin,
		Drain: cfg.Shutdown.Grace, Logger: opts.Logger.With(slog.String("route", r.Name)), Registerer: opts.Registry,
	}
	c.Number = admin.NumberRule(r.Number)
	for _, o := range []consumer.Ordering{consumer.ByKey, consumer.ByPartition} {
		if r.Ordering == o.String() {
			c.Ordering = o
		}
	}
	c.Tenant = tenant(r.Rate.Tenant)
	if r.Tombstones == "skip" {
		c.Tombstones = consumer.SkipTombstones
	}
	if opts.Trace != nil {
		c.Trace = func(step consumer.Step, number string) { opts.Trace(r.Name, step, number) }
	}
	return c
}

func limitsConfig(r *config.Route) consumer.Limits {
	return consumer.Limits{
		Bytes: int64(r.Prefetch.Bytes), PartitionBytes: int64(r.Prefetch.PartitionBytes),
		Records: r.Prefetch.Records, Permits: r.Permits.Limit, Tenants: r.Rate.Tenant.Max,
	}
}

// mostPermits is how many permits there may be until the settings change.
func mostPermits(r *config.Route) int {
	if r.Permits.Mode == config.PermitsEnforce {
		return r.Permits.Max
	}
	return r.Permits.Limit
}

func permitConfig(r *config.Route) permit.Config {
	s, mode := r.Permits.Shares, permit.Fixed
	switch r.Permits.Mode {
	case config.PermitsObserve:
		mode = permit.Observe
	case config.PermitsEnforce:
		mode = permit.Enforce
	}
	return permit.Config{
		Limit: r.Permits.Limit, Mode: mode, Min: r.Permits.Min, Max: r.Permits.Max,
		Live: s.Live.Share(), Replay: s.Replay.Share(), Compensate: s.Compensate.Share(),
	}
}

func rateConfig(r *config.Route) rate.Config {
	s := r.Permits.Shares
	return rate.Config{
		Limit: float64(r.Rate.Limit), Burst: r.Rate.Burst, Replay: float64(r.Replay.Rate), Compensate: float64(r.Compensate.Rate),
		LiveShare: s.Live.Share(), ReplayShare: s.Replay.Share(), Tenant: float64(r.Rate.Tenant.Limit), Tenants: r.Rate.Tenant.Max,
		Shared: r.Rate.Fleet > 0,
	}
}

// tenant is where a route's records name their tenant.
func tenant(t config.Tenants) consumer.Tenant {
	switch t.From {
	case config.FromHeader:
		return consumer.Tenant{From: consumer.TenantFromHeader, Header: t.Header}
	case config.FromValue:
		return consumer.Tenant{From: consumer.TenantFromPointer, Pointer: t.Pointer}
	}
	return consumer.Tenant{}
}

// tenantRule is the same for the replay engine, which need not look where there are no tenants.
func tenantRule(t config.Tenants) func(m *order.Message) string {
	if t.From == config.FromNone {
		return nil
	}
	return tenant(t).Of
}

// BreakerConfig is the part of a route's settings that makes its breakers.
func BreakerConfig(r *config.Route) breaker.Config {
	b := r.Breaker
	c := breaker.Config{
		FailureWindow: b.Window, FailureRate: orOff(b.FailureRate.Share()), FailureMinCalls: b.MinimumCalls,
		SlowCall: r.Downstream.Slow, SlowWindow: b.SlowWindow, SlowRate: orOff(b.SlowRate.Share()), SlowMinCalls: b.SlowMinimumCalls,
		ConsecutiveFailures: int(orOff(float64(b.Consecutive))), Z: b.WilsonZ,
		OpenWait: b.OpenWait, OpenJitter: orOff(b.OpenJitter.Share()), OpenGrowth: b.OpenGrowth, OpenWaitMax: b.OpenWaitMax,
		FirstProbes: b.Probes, ProbesInFlight: b.ProbesInFlight, ProbeFailures: b.ProbeFailures,
		RampStart: b.RampStart.Share(), RampFactor: b.RampFactor, RampStep: b.RampStep, RampMinCalls: b.RampMinimumCalls,
		SuccessesToClose: b.SuccessesToClose,
		PermitDeadline:   max(r.Downstream.Timeout, r.Downstream.LookupTimeout) + callMargin,
	}
	switch b.Mode {
	case "disabled":
		c.Mode = breaker.ModeDisabled
	case "observe":
		c.Mode = breaker.ModeObserve
	case "alert":
		c.Mode = breaker.ModeAlert
	default:
		c.Mode = breaker.ModeEnforce
	}
	return c
}

// orOff turns the settings' "zero turns it off" into the breaker's "negative turns it off".
func orOff(v float64) float64 {
	if v == 0 {
		return -1
	}
	return v
}

func downstreamConfig(r *config.Route) (downstream.Config, error) {
	d := r.Downstream
	c := downstream.Config{
		URL: d.URL.Reveal(), MaxConns: mostPermits(r), MaxAnswer: int(d.MaxAnswer), BearerToken: d.BearerToken.Reveal(),
		Headers: headers(d.Headers),
		Submit: downstream.Request{
			Method: d.Submit.Method, Path: d.Submit.Path, Headers: headers(d.Submit.Headers),
			ContentType: d.Submit.ContentType, Body: d.Submit.Body,
		},
		Lookup: downstream.Request{Method: d.Lookup.Method, Path: d.Lookup.Path, Headers: headers(d.Lookup.Headers)},
	}
	for _, rule := range d.Submit.Rules {
		outcome, err := order.ParseOutcome(rule.Outcome)
		if err != nil {
			return c, err
		}
		c.SubmitRules = append(c.SubmitRules, downstream.SubmitRule{
			When: when(rule.Status, rule.Pointer, rule.Equals), Outcome: outcome,
		})
	}
	for _, rule := range d.Lookup.Rules {
		verdict, err := order.ParseVerdict(rule.Verdict)
		if err != nil {
			return c, err
		}
		c.LookupRules = append(c.LookupRules, downstream.LookupRule{
			When: when(rule.Status, rule.Pointer, rule.Equals), Verdict: verdict,
		})
	}
	for _, u := range d.URLs {
		c.Others = append(c.Others, u.Reveal())
	}
	tls, err := d.TLS.Build()
	if err != nil {
		return c, fmt.Errorf("downstream.tls: %w", err)
	}
	c.TLS = tls
	return c, nil
}

func when(status []config.StatusRange, pointer string, equals []string) downstream.When {
	w := downstream.When{Pointer: pointer, Equals: equals}
	for _, s := range status {
		w.Status = append(w.Status, downstream.StatusRange{From: s.From, To: s.To})
	}
	return w
}

func headers(hs map[string]config.Secret) []downstream.Header {
	out := make([]downstream.Header, 0, len(hs))
	for _, name := range slices.Sorted(maps.Keys(hs)) {
		out = append(out, downstream.Header{Name: name, Value: hs[name].Reveal(), Secret: true})
	}
	return out
}
