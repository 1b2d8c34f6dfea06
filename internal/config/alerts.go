package config

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"
)

// Alerts says who is told of the moves of breakers, beside the logs and the record.
type Alerts struct {
	Webhooks []Webhook `yaml:"webhooks" form:"a list of at most 16 sections" help:"Addresses that get a message when a breaker in mode alert or enforce moves."`
}

// Forms of a webhook.
const (
	FormGeneric  = "generic"
	FormSlack    = "slack"
	FormFeishu   = "feishu"
	FormDingTalk = "dingtalk"
	FormWeCom    = "wecom"
)

// Webhook is one address that is told. Its whole URL is a secret: services put their token into the path.
type Webhook struct {
	Name        string        `yaml:"name" need:"true" form:"1 to 40 of a-z 0-9 -, used once, not postgres" example:"ops" help:"Label of the webhook in metrics and logs."`
	Form        string        `yaml:"form" default:"generic" accept:"generic|slack|feishu|dingtalk|wecom" help:"JSON with every field, or a message as the service takes it."`
	URL         Secret        `yaml:"url" form:"an address like https://host:port/…; http for generic alone, or on this machine" help:"Address, token included. It is kept secret, all of it."`
	URLFile     string        `yaml:"url_file" form:"a file" example:"/run/secrets/webhook" help:"File that holds the url, instead of url; its last line break is not part of it."`
	Secret      Secret        `yaml:"secret" form:"a text" help:"Signs the messages of the forms generic, feishu and dingtalk with HMAC-SHA256."`
	SecretFile  string        `yaml:"secret_file" form:"a file" example:"/run/secrets/webhook-secret" help:"File that holds the secret, instead of secret; its last line break is not part of it."`
	MinInterval time.Duration `yaml:"min_interval" default:"10s" min:"1s" max:"1h" help:"Least time between two messages; what moves meanwhile goes into the next one, which says how many moves it leaves out."`
}

const (
	maxWebhooks    = 16
	webhookURLForm = "https://host:port/…; http for generic alone, or on this machine"
)

// recordTarget is what the record is called among those told; see package notify.
const recordTarget = "postgres"

func (l *loader) checkAlerts(webhooks []Webhook) {
	l.rule(len(webhooks) <= maxWebhooks, "alerts.webhooks", fmt.Sprintf("holds %d webhooks", len(webhooks)), fmt.Sprintf("at most %d", maxWebhooks))
	names := map[string]string{}
	for i := range webhooks {
		h, path := &webhooks[i], fmt.Sprintf("alerts.webhooks[%d]", i)
		l.rule(isRouteName(h.Name) && h.Name != recordTarget, join(path, "name"), "does not do", "1 to 40 of a-z 0-9 -, not "+recordTarget)
		other, taken := names[h.Name]
		l.rule(!taken || h.Name == "", join(path, "name"), "is the name of "+other+" too", "a name that no other webhook has")
		names[h.Name] = path
		address, secret := join(path, "url"), join(path, "secret")
		l.rule(!h.URL.Empty() || h.URLFile != "", address, "is needed, or url_file", webhookURLForm)
		l.rule(h.URL.Empty() || h.URLFile == "", join(path, "url_file"), "is given beside url", "one of the two", address)
		l.rule(h.Secret.Empty() || h.SecretFile == "", join(path, "secret_file"), "is given beside secret", "one of the two", secret)
		if h.Form == FormSlack || h.Form == FormWeCom {
			for _, p := range []string{secret, join(path, "secret_file")} {
				l.rule(!l.given(p), p, "has no effect with form "+h.Form, "form generic, feishu or dingtalk, or no such key", join(path, "form"))
			}
		}
		if !h.URL.Empty() {
			l.checkWebhookURL(path, "url", h)
		}
	}
}

// webhookFiles reads the files that webhooks name.
func (l *loader) webhookFiles(webhooks []Webhook) {
	for i := range webhooks {
		h, path := &webhooks[i], fmt.Sprintf("alerts.webhooks[%d]", i)
		if text, ok := l.secretFile(join(path, "url_file"), h.URLFile); ok {
			h.URL = NewSecret(text)
			l.checkWebhookURL(path, "url_file", h)
		}
		if text, ok := l.secretFile(join(path, "secret_file"), h.SecretFile); ok {
			h.Secret = NewSecret(text)
		}
	}
}

// checkWebhookURL looks at a webhook's address, which the setting of that name gave. Its words hold nothing of it.
func (l *loader) checkWebhookURL(path, name string, h *Webhook) {
	at := join(path, name)
	text := h.URL.Reveal()
	u, err := url.Parse(text)
	if err != nil || !isToken(text) || (u.Scheme != "https" && u.Scheme != "http") || u.Opaque != "" || u.Hostname() == "" {
		l.rule(false, at, "is no address of a webhook", webhookURLForm)
		return
	}
	l.rule(u.Port() == "" || isPort(u.Port(), 1), at, "has an impossible port", webhookURLForm)
	l.rule(u.User == nil, at, "holds a user", "an address without one")
	l.rule(u.Fragment == "", at, "holds a fragment", "an address without one")
	l.rule(u.Scheme == "https" || h.Form == FormGeneric || isThisMachine(u.Hostname()), at,
		"is not https, so that its token could be read on the way", webhookURLForm, join(path, "form"))
}

// isThisMachine reports whether a host is a loopback one.
func isThisMachine(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || (ip != nil && ip.IsLoopback())
}
