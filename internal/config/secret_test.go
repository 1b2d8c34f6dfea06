package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const canary = "C4NARY"

// noCanary fails where a secret is to be seen.
func noCanary(t *testing.T, where, text string) {
	t.Helper()
	if strings.Contains(text, canary) {
		t.Errorf("%s shows a secret:\n%s", where, text)
	}
}

// secretive has a canary in every place that holds a secret.
const secretive = `kafka:
  brokers: [127.0.0.1:9092]
  sasl: {mechanism: plain, username: u, password: C4NARY1}
redis:
  url: redis://C4NARY-user:C4NARY2@redis.internal:6379/0
postgres:
  url: postgres://u:C4NARY3@pg.internal:5432/db?sslmode=disable&sslpassword=C4NARY4
alerts:
  webhooks:
    - {name: ops, form: dingtalk, url: "https://oapi.example/robot/C4NARY9?access_token=C4NARY10", secret: C4NARY11}
routes:
  - name: wallet
    topic: orders.in
    downstream:
      url: http://wallet.internal:8080
      bearer_token: C4NARY5
      headers: {X-Api-Key: C4NARY6}
      submit: {path: /pay, headers: {X-Sign: C4NARY7}}
      lookup: {path: "/pay/{number}", headers: {X-Sign: C4NARY8}}
`

func TestNoWayOfPrintingShowsASecret(t *testing.T) {
	t.Parallel()
	c := mustParse(t, secretive)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%p", "%T"} {
		noCanary(t, verb, fmt.Sprintf(verb, c))
		noCanary(t, verb, fmt.Sprintf(verb, *c))
		noCanary(t, verb, fmt.Sprintf(verb, c.Kafka.SASL.Password))
		noCanary(t, verb, fmt.Sprintf(verb, c.Redis.URL))
		// fmt calls no methods of what lies in unexported fields.
		noCanary(t, verb, fmt.Sprintf(verb, struct{ cfg Config }{*c}))
		noCanary(t, verb, fmt.Sprintf(verb, struct{ s Secret }{c.Kafka.SASL.Password}))
	}
	asJSON, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	noCanary(t, "json", string(asJSON))
	asYAML, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	noCanary(t, "yaml", string(asYAML))
	var log bytes.Buffer
	for _, h := range []slog.Handler{slog.NewJSONHandler(&log, nil), slog.NewTextHandler(&log, nil)} {
		slog.New(h).InfoContext(t.Context(), "x", slog.Any("config", c), slog.Any("value", *c), slog.Any("secret", c.Kafka.SASL.Password),
			slog.Any("url", c.Redis.URL), slog.Any("headers", c.Routes[0].Downstream.Headers))
	}
	noCanary(t, "slog", log.String())
	dump := string(c.Redacted())
	noCanary(t, "dump", dump)
	for _, want := range []string{"redis.internal:6379/0", "pg.internal:5432/db", "sslmode=disable", "password: \"***\"", "X-Api-Key: \"***\""} {
		if !strings.Contains(dump, want) {
			t.Errorf("the dump does not show %s:\n%s", want, dump)
		}
	}
	if c.Kafka.SASL.Password.Reveal() != canary+"1" || c.Routes[0].Downstream.Headers["X-Api-Key"].Reveal() != canary+"6" {
		t.Error("the secrets themselves are lost")
	}
}

func TestNoMessageShowsASecret(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ from, to string }{
		{"redis://C4NARY-user:C4NARY2@redis.internal:6379/0", "redis://:C4NARY@ho st:99999"},
		{"redis://C4NARY-user:C4NARY2@redis.internal:6379/0", "'redis://:C4NARY@host:99999'"},
		{"redis://C4NARY-user:C4NARY2@redis.internal:6379/0", "'redis://:C4#N/C4NARY?x@host'"},
		{"redis://C4NARY-user:C4NARY2@redis.internal:6379/0", "'redis://:C4NARY'"},
		{"redis://C4NARY-user:C4NARY2@redis.internal:6379/0", "':C4NARY@host:6379'"},
		{"redis://C4NARY-user:C4NARY2@redis.internal:6379/0", "redis://h/0?password=C4NARY"},
		{"postgres://u:C4NARY3@pg.internal:5432/db?sslmode=disable&sslpassword=C4NARY4", "host=h password=C4NARY"},
		{"postgres://u:C4NARY3@pg.internal:5432/db?sslmode=disable&sslpassword=C4NARY4", "'postgres://u:%zzC4NARY@h/db'"},
		{"127.0.0.1:9092", "u:C4NARY@127.0.0.1:9092x"},
		{"http://wallet.internal:8080", "http://u:C4NARY@wallet.internal:8080"},
		{"http://wallet.internal:8080", "ftp://C4NARY@h"},
		{"password: C4NARY1", "password: [C4NARY1]"},
		{"password: C4NARY1", "pasword: C4NARY1"},
		{"password: C4NARY1", "password: C4NARY1, password: C4NARY9"},
		{"{mechanism: plain, username: u, password: C4NARY1}", "C4NARY"},
		{"mechanism: plain", "mechanism: none"},
		{"C4NARY5", `"C4NARY with blanks"`},
		{"C4NARY5", "'C4NARY"},
		{"X-Api-Key: C4NARY6", `X-Api-Key: "C4NARY\x01"`},
		{"X-Api-Key: C4NARY6", `Idempotency-Key: C4NARY`},
		{"X-Api-Key: C4NARY6", `X-Api-Key: {a: C4NARY}`},
		{"X-Api-Key: C4NARY6", `X-Api-Key: "{C4NARY}"`},
		{"https://oapi.example/robot/C4NARY9", "http://oapi.example/robot/C4NARY9"},
		{"https://oapi.example/robot/C4NARY9", "https://C4NARY@oapi.example/robot/C4NARY9"},
		{"https://oapi.example/robot/C4NARY9", "ftp://oapi.example/robot/C4NARY9"},
		{"https://oapi.example/robot/C4NARY9", "C4NARY"},
		{"https://oapi.example/robot/C4NARY9", "https://oapi.example:99999/C4NARY9"},
		{"https://oapi.example/robot/C4NARY9", "https://oapi.example/%zzC4NARY9"},
		{"form: dingtalk", "form: slack"},
		{"form: dingtalk", "form: dingtalk, url_file: /x, secret_file: /y"},
	} {
		text := strings.Replace(secretive, x.from, x.to, 1)
		if text == secretive {
			t.Fatalf("%q is not in the file", x.from)
		}
		for _, problem := range problems(t, text) {
			noCanary(t, x.to, problem)
		}
	}
	for _, variable := range []string{
		"SPILLWAY_REDIS_URL=redis://:C4NARY@ho st:99999", "SPILLWAY_KAFKA_SASL_PASWORD=C4NARY", "SPILLWAY_POSTGRES_URL=C4NARY",
		"SPILLWAY_ROUTES_WALLET_DOWNSTREAM_BEARER_TOKEN=C4NARY C4NARY",
	} {
		for _, problem := range problems(t, secretive, variable) {
			noCanary(t, variable, problem)
		}
	}
}

func TestHostAndPortStayVisibleInABrokenAddress(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                                    "",
		"redis://:C4NARY@ho st:99999":         "redis://***@ho st:99999",
		"redis://h:6379/0":                    "redis://h:6379/0",
		"redis://:a/b?c#d@h:6379/0":           "redis://***@h:6379/0",
		"redis://:C4NARY":                     "redis://***",
		"redis://C4NARY:x:6379":               "redis://***",
		"C4NARY":                              "***",
		"C4 NARY://h":                         "***",
		"postgres://h1:1,h2:2/db":             "postgres://h1:1,h2:2/db",
		"postgres://[::1]:5432/db":            "postgres://[::1]:5432/db",
		"postgres://u@h/db?sslmode=require&x": "postgres://***@h/db?sslmode=require&***",
		"postgres://h/db?password=C4NARY":     "postgres://h/db?password=***",
		"postgres://h/db?a=b&sslmode=x#C4":    "postgres://h/db?a=***&sslmode=***",
		"http://h/p#C4NARY":                   "http://h/p#***",
	} {
		if got := NewURL(in).String(); got != want {
			t.Errorf("%q prints %q, want %q", in, got, want)
		}
	}
}

func TestSecretsComeFromFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	secret := write("secret", canary+" @/é\n")
	token := write("token", canary+"\r\n")
	text := strings.NewReplacer(
		"password: C4NARY1", "password_file: "+secret,
		"redis://C4NARY-user:C4NARY2@redis.internal:6379/0", "redis://user@redis.internal:6379/0\n  password_file: "+secret,
		"bearer_token: C4NARY5", "bearer_token_file: "+token,
	).Replace(secretive)
	c, err := Load(write("spillway.yaml", text), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Kafka.SASL.Password.Reveal(); got != canary+" @/é" {
		t.Errorf("kafka password %q", got)
	}
	if got, want := c.Redis.URL.Reveal(), "redis://user:C4NARY%20%40%2F%C3%A9@redis.internal:6379/0"; got != want {
		t.Errorf("redis url %q, want %q", got, want)
	}
	if got := c.Routes[0].Downstream.BearerToken.Reveal(); got != canary {
		t.Errorf("bearer token %q", got)
	}
	noCanary(t, "dump", strings.ReplaceAll(string(c.Redacted()), secret, ""))

	for _, x := range []struct{ text, want string }{
		{strings.Replace(text, secret, filepath.Join(dir, "none"), 1), "kafka.sasl.password_file: " + filepath.Join(dir, "none") + " cannot be read: no such file or directory"},
		{strings.Replace(text, token, write("empty", "\n"), 1), "bearer_token_file: " + filepath.Join(dir, "empty") + " is an empty file"},
		{strings.Replace(text, "redis://user@", "redis://user:x@", 1), "redis.password_file: " + secret + " is given beside a password in redis.url"},
		{strings.Replace(text, "kafka:", "kafka:\n  tls: {enabled: true, ca_file: "+secret+"}", 1), "kafka.tls.ca_file: " + secret + " holds no certificate"},
	} {
		_, err := Load(write("bad.yaml", x.text), nil)
		var wrong *Error
		if !errors.As(err, &wrong) || len(wrong.Problems) != 1 || !strings.Contains(wrong.Error(), x.want) {
			t.Errorf("err = %v\nwant %s", err, x.want)
		}
	}
	_, err = Load(filepath.Join(dir, "none.yaml"), nil)
	if want := "none.yaml: cannot be read: no such file or directory; accepted: a settings file; `spillway config init` writes one"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("err = %v\nwant %s", err, want)
	}
}
