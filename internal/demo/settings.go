package demo

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"spillway/internal/config"
)

// route is the name of the demo's one route.
const route = "wallet"

// settingsText is the worker's settings. Waits are short, so that a minute shows what else takes many; how they stand
// to each other is as usual.
const settingsText = `kafka:
  brokers: %s
  session_timeout: 6s
  heartbeat: 1s
redis:
  url: %s
  prefix: %s
postgres:
  url: %s
http:
  listen: 127.0.0.1:0
shutdown:
  grace: 2s
routes:
  - name: %s
    topic: %s
    group: %s
    watch: 5s
    number: {from: value, pointer: /order_no}
    lease: 10s
    permits: {limit: %d}
    prefetch: {bytes: 4MiB, partition_bytes: 8KiB, records: 2000}
    downstream:
      url: %s
      timeout: %s
      slow: 600ms
      submit: {path: /pay}
      lookup: {path: "/pay/{number}"}
    breaker:
      window: 5s
      consecutive: 10
      wilson_z: 1
      open_wait: %s
      open_wait_max: %s
      ramp_step: %s
    replay: {attempts: 5, delay: 500ms, delay_max: 2s, retry_after_max: 1s, lease: 10s, patience: 5s}
    compensate: {after: %s, grace: %s, delay: 300ms, delay_max: 1s, interval: 200ms}
`

// settings makes the worker's config for what the demo stands on. length is the story's: in a short one the breaker
// must be quicker.
func settings(s *stand, walletURL string, length time.Duration) (*config.Config, error) {
	brokers := make([]string, len(s.brokers))
	for i, b := range s.brokers {
		brokers[i] = quote(b)
	}
	openWait := min(max(length/30, 400*time.Millisecond), 2*time.Second)
	rampStep := min(max(length/200, 100*time.Millisecond), 300*time.Millisecond)
	text := fmt.Sprintf(settingsText,
		"["+strings.Join(brokers, ", ")+"]", quote(s.redisURL), quote(s.name), quote(s.postgresURL),
		route, quote(s.topic), quote(s.group), permits, quote(walletURL), callTimeout,
		openWait, openWait, rampStep, lookupAfter, lookupGrace)
	return config.Parse("the demo's settings", []byte(text), nil)
}

// quote writes a text as YAML reads it, whatever it holds.
func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `""` // a string can be marshalled
	}
	return string(b)
}
