package config_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"spillway/internal/config"
	"spillway/internal/downstream"
	"spillway/internal/redis"
)

// TestTemplatesAreJudgedAsTheDownstreamJudgesThem holds the check to its promise: the verdict of the worker.
func TestTemplatesAreJudgedAsTheDownstreamJudgesThem(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("testdata/minimal.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		body, contentType, path, header, value string
		ok                                     bool
	}{
		{ok: true},
		{body: "{value}", contentType: "text/csv", ok: true},
		{body: `{"no": "{number}", "at": {value:/a/b}, "all": {value}}`, ok: true},
		{body: `{"no": {number}}`},
		{body: `{"no": "{value}"}`},
		{body: `{"no": "{unknown}"}`},
		{body: `{"no": "{number}"`},
		{body: `{"no": "{number`},
		{body: `{"x": "{header:h}", "y": "\"{key}{route}{topic}"}`, ok: true},
		{body: `{"x": "{header:}"}`},
		{body: `{"x": "{value:a}"}`},
		{body: `{"x": "{value:/~2}"}`},
		{body: `{}`, ok: true},
		{body: `{"a": "{ not one }"}`, ok: true},
		{body: "a={number}&b={value:/x}", contentType: "application/x-www-form-urlencoded", ok: true},
		{body: "a={number} b", contentType: "application/x-www-form-urlencoded"},
		{body: "a={value}", contentType: "application/x-www-form-urlencoded"},
		{body: "<a>{number}</a>", contentType: "application/xml"},
		{body: `["{number}"]`, contentType: "application/vnd.x+json; charset=utf-8", ok: true},
		{path: "/pay/{number}", ok: true},
		{path: "/pay/{number}?a={key}&b=1", ok: true},
		{path: "/pay/{value}"},
		{path: "/pay/{value:/id}", ok: true},
		{path: "/a b"},
		{path: "/a/../b"},
		{path: "/a/%2e%2E/b"},
		{path: "/a/%2f/b", ok: true},
		{path: "/a#b"},
		{path: "/a?b=c d"},
		{path: "/a?b=%zz"},
		{path: "/ä"},
		{path: "pay"},
		{path: "/{x}"},
		{path: "/{"},
		{header: "X-A", value: "v {number}", ok: true},
		{header: "X-A", value: "{value}"},
		{header: "X-A", value: " v"},
		{header: "X A", value: "v"},
		{header: "idempotency-key", value: "v"},
		{header: "X-Idempotency-Key", value: "v"},
		{header: "Content-Type", value: "v"},
		{header: "Accept-Encoding", value: "v"},
		{header: "TE", value: "v"},
		{header: "Authorization", value: "Basic x", ok: true},
	} {
		c := downstream.Config{
			URL:    "http://127.0.0.1:8080",
			Submit: downstream.Request{Method: "POST", Path: or(x.path, "/pay"), Body: or(x.body, "{value}"), ContentType: or(x.contentType, "application/json")},
			Lookup: downstream.Request{Method: "GET", Path: "/pay/{number}"},
		}
		text := strings.Replace(string(file), "path: /pay\n", "path: "+strconv.Quote(c.Submit.Path)+
			"\n        body: "+strconv.Quote(c.Submit.Body)+"\n        content_type: "+strconv.Quote(c.Submit.ContentType)+"\n", 1)
		if x.header != "" {
			c.Headers = []downstream.Header{{Name: x.header, Value: x.value}}
			text = strings.Replace(text, "      submit:", "      headers: {"+strconv.Quote(x.header)+": "+strconv.Quote(x.value)+"}\n      submit:", 1)
		}
		_, theirs := downstream.New(c)
		_, ours := config.Parse("f", []byte(text), nil)
		if (theirs == nil) != x.ok || (ours == nil) != x.ok {
			t.Errorf("%+v\ndownstream: %v\nconfig: %v", x, theirs, ours)
		}
	}
}

func or(text, fallback string) string {
	if text == "" {
		return fallback
	}
	return text
}

func TestRedisAddressesAreJudgedAsTheClientJudgesThem(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("testdata/minimal.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for url, ok := range map[string]bool{
		"redis://h": true, "rediss://h:1/15": true, "redis://u:p@h:6379/0": true, "redis://[::1]:6379": true, "redis://:p@h/": true,
		"redis://": false, "redis://h:0": false, "redis://h:65536": false, "redis://h/x": false, "redis://h/-1": false,
		"redis://h/0?a=b": false, "http://h": false, "h:6379": false, "redis://h/0#f": false, "redis:h": false,
	} {
		client, theirs := redis.Open(redis.Config{URL: url})
		if theirs == nil {
			_ = client.Close()
		}
		_, ours := config.Parse("f", []byte(strings.Replace(string(file), "redis://127.0.0.1:6379/0", url, 1)), nil)
		if (theirs == nil) != ok || (ours == nil) != ok {
			t.Errorf("%s\nredis: %v\nconfig: %v", url, theirs, ours)
		}
	}
}

// TestInstancesAreJudgedAsTheDownstreamJudgesThem does the same for the addresses of a service.
func TestInstancesAreJudgedAsTheDownstreamJudgesThem(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("testdata/minimal.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for urls, ok := range map[string]bool{
		"http://10.0.0.2":                     true,
		"http://10.0.0.2:8080/":               true,
		"http://127.0.0.1":                    true,
		"http://127.0.0.1:8080":               false,
		"http://127.0.0.1:8080/":              false,
		"https://10.0.0.2":                    false,
		"http://10.0.0.2/a":                   false,
		"http://10.0.0.2/?":                   false,
		"http://u@10.0.0.2":                   false,
		"http://a,http://A:80":                false,
		"http://a,http://a:81":                true,
		strings.Repeat("http://a,", 16):       false,
		"http://[::1]:8080,http://[::2]:8080": true,
	} {
		_, theirs := downstream.New(downstream.Config{
			URL: "http://127.0.0.1:8080", Others: strings.Split(strings.TrimSuffix(urls, ","), ","),
			Submit: downstream.Request{Path: "/orders"}, Lookup: downstream.Request{Path: "/orders/{number}"},
		})
		_, ours := config.Parse("f", file, []string{"SPILLWAY_ROUTES_WALLET_DOWNSTREAM_URLS=" + urls})
		if (theirs == nil) != ok || (ours == nil) != ok {
			t.Errorf("%s: want %v\ndownstream: %v\nconfig: %v", urls, ok, theirs, ours)
		}
	}
}
