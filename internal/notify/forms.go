package notify

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"spillway/internal/desk"
)

// Form is what a webhook takes and how it answers.
type Form int

// The forms. Generic is the zero value.
const (
	Generic  Form = iota // JSON with every field; any 2xx will do
	Slack                // an incoming webhook
	Feishu               // a custom bot, Lark's too
	DingTalk             // a custom robot
	WeCom                // a group robot
)

func (f Form) String() string {
	switch f {
	case Generic:
		return "generic"
	case Slack:
		return "slack"
	case Feishu:
		return "feishu"
	case DingTalk:
		return "dingtalk"
	case WeCom:
		return "wecom"
	}
	return fmt.Sprintf("Form(%d)", int(f))
}

// ParseForm reads a form's name as String writes it.
func ParseForm(name string) (Form, error) {
	for f := Generic; f <= WeCom; f++ {
		if f.String() == name {
			return f, nil
		}
	}
	return 0, fmt.Errorf("form %q: want generic, slack, feishu, dingtalk or wecom", name)
}

// genericEvent is an event on the way to a generic webhook. Times without a unit in their name are RFC 3339.
type genericEvent struct {
	At         time.Time        `json:"at"`
	Worker     string           `json:"worker"`
	Route      string           `json:"route"`
	Endpoint   string           `json:"endpoint"`
	From       string           `json:"from"`
	To         string           `json:"to"`
	Reason     string           `json:"reason"`
	Source     string           `json:"source"`
	Mode       string           `json:"mode"`
	Generation uint64           `json:"generation"`
	WindowMS   int64            `json:"window_ms"`
	Samples    int              `json:"samples"`
	Failures   int              `json:"failures"`
	Slow       int              `json:"slow"`
	Rate       float64          `json:"rate"`
	Bound      float64          `json:"bound"`
	Threshold  float64          `json:"threshold"`
	WaitMS     int64            `json:"wait_ms"`
	Operator   string           `json:"operator,omitempty"`
	Note       string           `json:"note,omitempty"`
	Errors     []desk.CallError `json:"errors"`
}

// maxField bounds each text of others in a generic message, in bytes.
const maxField = 512

// genericMessage is the body for a generic webhook.
type genericMessage struct {
	Kind       string         `json:"kind"`
	Title      string         `json:"title"`
	Events     []genericEvent `json:"events"`
	Suppressed int            `json:"suppressed"` // events that are not shown
}

func generic(events []desk.BreakerEvent, rest int) genericMessage {
	m := genericMessage{Kind: "spillway.breaker", Title: title(events), Suppressed: rest}
	for i := range events {
		e := &events[i]
		g := genericEvent{
			At: e.At.UTC(), Worker: e.Worker, Route: e.Route, Endpoint: e.Endpoint, From: e.From, To: e.To, Reason: e.Reason,
			Source: e.Source, Mode: e.Mode, Generation: e.Generation, WindowMS: e.Window.Milliseconds(), Samples: e.Samples,
			Failures: e.Failures, Slow: e.Slow, Rate: e.Rate, Bound: e.Bound, Threshold: e.Threshold,
			WaitMS: e.Wait.Milliseconds(), Operator: plain(e.Operator, maxField), Note: plain(e.Note, maxField), Errors: []desk.CallError{},
		}
		for _, c := range e.Errors {
			c.At = c.At.UTC()
			c.Number, c.RequestID, c.Detail = plain(c.Number, maxField), plain(c.RequestID, maxField), plain(c.Detail, maxField)
			g.Errors = append(g.Errors, c)
		}
		m.Events = append(m.Events, g)
	}
	return m
}

// request makes the request of a form. now is when it is signed: the services take signatures for an hour.
func (w *Webhook) request(events []desk.BreakerEvent, rest int, now time.Time) (*http.Request, error) {
	address, err := url.Parse(w.URL)
	if err != nil {
		return nil, errAddress // the error would show it
	}
	head := http.Header{"Content-Type": {"application/json; charset=utf-8"}, "User-Agent": {"spillway"}}
	body, err := w.body(events, rest, now)
	if err != nil {
		return nil, err
	}
	switch w.Form {
	case Generic:
		if w.Secret != "" {
			stamp := strconv.FormatInt(now.Unix(), 10)
			sum := mac(w.Secret, append([]byte(stamp+"."), body...))
			head.Set("X-Spillway-Signature", "t="+stamp+",v1="+hex.EncodeToString(sum))
		}
	case DingTalk:
		if w.Secret != "" {
			stamp := strconv.FormatInt(now.UnixMilli(), 10)
			query := address.Query()
			query.Set("timestamp", stamp)
			query.Set("sign", base64.StdEncoding.EncodeToString(mac(w.Secret, []byte(stamp+"\n"+w.Secret))))
			address.RawQuery = query.Encode()
		}
	case Slack, Feishu, WeCom:
	}
	return &http.Request{
		Method: http.MethodPost, URL: address, Host: address.Host, Header: head, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}, nil
}

// body is the JSON of a form.
func (w *Webhook) body(events []desk.BreakerEvent, rest int, now time.Time) ([]byte, error) {
	switch w.Form {
	case Generic:
		return encode(generic(events, rest))
	case Slack:
		// Slack reads <…> as links and mentions, and & as the begin of an entity; the rest stays as it is.
		escape := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
		return encode(map[string]any{"text": escape.Replace(text(events, rest)), "mrkdwn": false})
	case Feishu:
		// A post: its text elements are shown as they are, where a plain message would obey <at …>.
		var content [][]map[string]string
		for _, line := range lines(events, rest) {
			content = append(content, []map[string]string{{"tag": "text", "text": line}})
		}
		m := map[string]any{
			"msg_type": "post",
			"content":  map[string]any{"post": map[string]any{"en_us": map[string]any{"title": title(events), "content": content}}},
		}
		if w.Secret != "" {
			stamp := strconv.FormatInt(now.Unix(), 10)
			m["timestamp"], m["sign"] = stamp, base64.StdEncoding.EncodeToString(mac(stamp+"\n"+w.Secret, nil))
		}
		return encode(m)
	case DingTalk, WeCom:
		return encode(map[string]any{"msgtype": "text", "text": map[string]string{"content": text(events, rest)}})
	}
	return nil, fmt.Errorf("%s is no form", w.Form)
}

// text is a whole message of lines.
func text(events []desk.BreakerEvent, rest int) string {
	return title(events) + "\n" + strings.Join(lines(events, rest), "\n")
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func mac(key string, message []byte) []byte {
	h := hmac.New(sha256.New, []byte(key))
	h.Write(message)
	return h.Sum(nil)
}
