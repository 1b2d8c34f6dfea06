package config

import (
	"fmt"
	"reflect"
	"time"
)

// derive sets what was not given and follows from other settings.
func (l *loader) derive() {
	for i := range l.cfg.Routes {
		l.deriveRoute(l.routePath(i), &l.cfg.Routes[i])
	}
}

func (l *loader) deriveRoute(path string, r *Route) {
	derived(l, path, "group", &r.Group, "spillway-"+r.Name)

	derived(l, join(path, "permits"), "max", &r.Permits.Max, min(4*r.Permits.Limit, 10_000))

	d, p := &r.Downstream, join(path, "downstream")
	derived(l, p, "lookup_timeout", &d.LookupTimeout, d.Timeout)
	derived(l, p, "slow", &d.Slow, d.Timeout/2)

	b, p := &r.Breaker, join(path, "breaker")
	derived(l, p, "slow_window", &b.SlowWindow, b.Window)
	derived(l, p, "slow_minimum_calls", &b.SlowMinimumCalls, b.MinimumCalls)
	derived(l, p, "open_wait_max", &b.OpenWaitMax, max(5*time.Minute, b.OpenWait))
	derived(l, p, "ramp_minimum_calls", &b.RampMinimumCalls, min(5, b.MinimumCalls))
}

// derived gives a setting its value unless it was given.
func derived[T any](l *loader, path, name string, v *T, value T) {
	p := join(path, name)
	if l.given(p) {
		return
	}
	*v = value
	l.defaults[p] = show(printed(reflect.ValueOf(value)))
}

// printed writes a value as it would be written in the file; what is secret stays hidden.
func printed(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		return formatDuration(x)
	case string:
		return x
	}
	return fmt.Sprint(v.Interface())
}

// routePath is the path of the route with index i.
func (l *loader) routePath(i int) string {
	return l.entryPath("routes", reflect.ValueOf(l.cfg.Routes), i)
}
