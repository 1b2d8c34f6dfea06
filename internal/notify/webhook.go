package notify

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"spillway/internal/desk"
)

// Webhook is an address that is told. Its URL and Secret are secret.
type Webhook struct {
	Name        string
	Form        Form
	URL         string
	Secret      string        // signs messages of the forms generic, feishu and dingtalk; empty for none
	MinInterval time.Duration // between two messages
}

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 16 << 10

// errAddress says that a webhook's address can't be parsed. The parser's own error would show it.
var errAddress = errors.New("the address is no URL")

// finalError is a refusal that a further try would meet again.
type finalError struct{ text string }

func (e *finalError) Error() string { return e.text }

func isFinal(err error) bool {
	var final *finalError
	return errors.Is(err, errAddress) || errors.As(err, &final)
}

// newTransport makes the connections. They are not kept: messages are rare.
func newTransport(timeout time.Duration) *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: timeout}).DialContext,
		TLSHandshakeTimeout:    timeout,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// hook is a webhook with the means to call it.
type hook struct {
	Webhook

	transport http.RoundTripper
}

// deliver makes one try.
func (h *hook) deliver(ctx context.Context, shown []desk.BreakerEvent, rest int) (wait time.Duration, err error) {
	request, err := h.request(shown, rest, time.Now())
	if err != nil {
		return 0, err
	}
	// RoundTrip and not a Client: no redirects, no cookies, no URL in the errors.
	response, err := h.transport.RoundTrip(request.WithContext(ctx))
	if err != nil {
		return 0, errors.New(h.clean(err.Error()))
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	_ = response.Body.Close() // what was read of it is all there is
	if err != nil {
		return 0, errors.New(h.clean(err.Error()))
	}
	if err := h.judge(response.StatusCode, body); err != nil {
		return retryAfter(response.Header), err
	}
	return 0, nil
}

// judge says what an answer means. The text of an answer is not repeated where its code tells enough.
func (h *hook) judge(status int, body []byte) error {
	switch {
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status >= 500:
		return fmt.Errorf("the webhook answered %d", status)
	case status < 200 || status >= 300:
		return &finalError{fmt.Sprintf("the webhook answered %d", status)}
	}
	switch h.Form {
	case Generic, Slack:
		return nil
	case Feishu:
		// 11232: too many messages.
		return h.judgeCode(body, "code", "msg", 11232)
	case DingTalk:
		// -1: busy; 130101 and 410100: too many messages.
		return h.judgeCode(body, "errcode", "errmsg", -1, 130101, 410100)
	case WeCom:
		// -1: busy; 45009: too many messages.
		return h.judgeCode(body, "errcode", "errmsg", -1, 45009)
	}
	return nil
}

// judgeCode looks at an answer that carries a code in its body: 0 is well, passing ones may be tried again.
func (h *hook) judgeCode(body []byte, code, message string, passing ...int64) error {
	var answer map[string]json.RawMessage
	var n int64
	if json.Unmarshal(body, &answer) != nil || json.Unmarshal(answer[code], &n) != nil {
		return &finalError{"the webhook's answer has no " + code}
	}
	if n == 0 {
		return nil
	}
	var words string
	_ = json.Unmarshal(answer[message], &words) // without words the code must do
	s := fmt.Sprintf("the webhook answered %s %d", code, n)
	if words != "" {
		s += ": " + plain(h.clean(words), maxNote)
	}
	if slices.Contains(passing, n) {
		return errors.New(s)
	}
	return &finalError{s}
}

// retryAfter is how many seconds the answer asks for; zero where it asks for none.
func retryAfter(h http.Header) time.Duration {
	n, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || n < 0 || n > 3600 {
		return 0
	}
	return time.Duration(n) * time.Second
}

// minSecret is the length in bytes from which a part of an address is taken for a secret.
const minSecret = 6

// clean keeps the address's secret parts and the secret out of a text.
func (h *hook) clean(s string) string {
	hidden := []string{h.URL, h.Secret}
	if u, err := url.Parse(h.URL); err == nil {
		hidden = append(hidden, u.RequestURI(), u.EscapedPath(), u.Path, u.RawQuery)
		for part := range strings.SplitSeq(u.Path, "/") {
			if len(part) >= minSecret {
				hidden = append(hidden, part, url.PathEscape(part))
			}
		}
		for _, values := range u.Query() {
			for _, v := range values {
				hidden = append(hidden, v, url.QueryEscape(v))
			}
		}
		if password, ok := u.User.Password(); ok {
			hidden = append(hidden, password, u.User.String())
		}
	}
	for _, text := range hidden {
		if len(text) >= minSecret {
			s = strings.ReplaceAll(s, text, "***")
		}
	}
	return s
}
