package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// withWebhooks is the minimal file with webhooks, each the inside of a flow mapping, from line 3 on.
func withWebhooks(t *testing.T, webhooks ...string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("alerts:\n  webhooks:\n")
	for _, w := range webhooks {
		b.WriteString("    - {" + w + "}\n")
	}
	return b.String() + minimal(t)
}

func TestWebhooksAreRead(t *testing.T) {
	t.Parallel()
	c := mustParse(t, withWebhooks(t, `name: ops, url: "http://alerts.internal/hook"`,
		`name: chat, form: feishu, url: "https://open.feishu.example/hook/x", secret: s, min_interval: 1m`,
		`name: here, form: slack, url: "http://127.0.0.1:8080/x"`))
	hooks := c.Alerts.Webhooks
	if len(hooks) != 3 || hooks[0].Form != FormGeneric || hooks[0].MinInterval != 10*time.Second ||
		hooks[0].URL.Reveal() != "http://alerts.internal/hook" || hooks[1].Secret.Reveal() != "s" || hooks[1].MinInterval != time.Minute {
		t.Errorf("webhooks %+v", hooks)
	}
	if len(mustParse(t, minimal(t)).Alerts.Webhooks) != 0 {
		t.Error("webhooks nobody asked for")
	}
}

func TestMistakesInWebhooksAreRefused(t *testing.T) {
	t.Parallel()
	const urlForm = "; accepted: https://host:port/…; http for generic alone, or on this machine"
	ops := `name: ops, url: "https://h/x"`
	for _, x := range []struct{ in, want string }{
		{`url: "https://h/x"`, "name: is not given"},
		{`name: Ops, url: "https://h/x"`, "name: Ops does not do; accepted: 1 to 40 of a-z 0-9 -, not postgres"},
		{`name: postgres, url: "https://h/x"`, "name: postgres does not do"},
		{`name: ops`, "url: is needed, or url_file" + urlForm},
		{`name: ops, url: "ftp://h/x"`, "url: *** is no address of a webhook" + urlForm},
		{`name: ops, url: "https:///x"`, "url: *** is no address of a webhook" + urlForm},
		{`name: ops, url: "https://h/x y"`, "url: *** is no address of a webhook" + urlForm},
		{`name: ops, url: "https://u@h/x"`, "url: *** holds a user; accepted: an address without one"},
		{`name: ops, url: "https://h/x#y"`, "url: *** holds a fragment; accepted: an address without one"},
		{`name: ops, url: "https://h:70000/x"`, "url: *** has an impossible port" + urlForm},
		{`name: ops, form: slack, url: "http://h/x"`, "url: *** is not https, so that its token could be read on the way" + urlForm},
		{ops + `, url_file: /x`, "url_file: /x is given beside url; accepted: one of the two"},
		{ops + `, secret: s, secret_file: /x`, "secret_file: /x is given beside secret; accepted: one of the two"},
		{ops + `, form: wecom, secret: s`, "secret: *** has no effect with form wecom; accepted: form generic, feishu or dingtalk, or no such key"},
		{ops + `, form: teams`, "form: teams is not known; accepted: generic, slack, feishu, dingtalk or wecom"},
		{ops + `, min_interval: 10`, "min_interval: 10 has no unit; accepted: a duration with a unit (ms, s, m, h), 1s to 1h, such as 10s"},
		{ops + `, min_interval: 500ms`, "min_interval: 500ms is too small"},
		{ops + `, channel: x`, "channel: is not a setting"},
	} {
		got := problems(t, withWebhooks(t, x.in))
		if len(got) != 1 || !strings.Contains(got[0], "alerts.webhooks[0]."+x.want) || !strings.HasPrefix(got[0], "spillway.yaml:3:") {
			t.Errorf("%s:\n%s\nwant %s", x.in, strings.Join(got, "\n"), x.want)
		}
	}
	wantProblems(t, problems(t, withWebhooks(t, ops, ops)),
		"spillway.yaml:4:14: alerts.webhooks[1].name: ops is the name of alerts.webhooks[0] too; accepted: a name that no other webhook has")
	var many []string
	for i := range 17 {
		many = append(many, fmt.Sprintf(`name: ops-%d, url: "https://h/x"`, i))
	}
	wantProblems(t, problems(t, withWebhooks(t, many...)), "spillway.yaml:2:3: alerts.webhooks: holds 17 webhooks; accepted: at most 16")
}

func TestAWebhooksAddressAndSecretComeFromFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	address, secret := write("address", "https://h/C4NARY\n"), write("secret", "C4NARY\n")
	text := withWebhooks(t, "name: ops, form: dingtalk, url_file: "+address+", secret_file: "+secret)
	c, err := Load(write("spillway.yaml", text), nil)
	if err != nil {
		t.Fatal(err)
	}
	if h := c.Alerts.Webhooks[0]; h.URL.Reveal() != "https://h/C4NARY" || h.Secret.Reveal() != "C4NARY" {
		t.Errorf("url %q, secret %q", h.URL.Reveal(), h.Secret.Reveal())
	}
	noCanary(t, "dump", string(c.Redacted()))
	write("address", "http://h/C4NARY")
	_, err = Load(filepath.Join(dir, "spillway.yaml"), nil)
	if err == nil || !strings.Contains(err.Error(), "alerts.webhooks[0].url_file: "+address+" is not https") || strings.Contains(err.Error(), "C4NARY") {
		t.Errorf("err = %v", err)
	}
}
