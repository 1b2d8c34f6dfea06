package admin

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"spillway/internal/desk"
	"spillway/order"
)

// hostile is what others may write to harm who reads it.
var hostile = []string{
	`<img src=x onerror="document.title='pwn'">`, `</script><script>1</script>`, `{{7*7}}`, `javascript:alert(1)`,
	"\x1b[2J", "\x1b]0;pwn\x07", "\u009b2J", "\x9b2J", "\u202egnp.exe", "a\r\nb\x00\x08\x7f\ufeff", "\xff\xfe",
}

func TestWhatOthersWroteIsShownLiterally(t *testing.T) {
	t.Parallel()
	d := newDesktop(t)
	all := strings.Join(hostile, " ")
	var headers []order.Header
	for _, h := range hostile {
		headers = append(headers, order.Header{Key: h, Value: []byte(h)})
	}
	m := message(1, all, all+"\n"+all, headers...)
	m.Topic = all
	number := hostile[0] + hostile[1]
	o := d.admit(m, number)
	t2 := dead(order.Reason(all), desk.Fit(all))
	d.settle(o, t2)
	d.must(d.Bury(d.Context(), []order.DeadRecord{
		{Route: all, Number: all, Message: m, Reason: order.Reason(all), Detail: all},
		{Route: all, Raw: []byte(all), Reason: order.QueueItemUnreadable, Detail: all},
	}))
	r := d.resolver()
	r.By = desk.Sign{Operator: hostile[4] + hostile[8] + hostile[9], Note: all}
	results, err := r.Requeue(d.Context(), []int64{1, 2, 3})
	d.must(err)

	now := d.at()
	texts := map[string]func(*bytes.Buffer) error{
		"results": func(b *bytes.Buffer) error { return errors.Join(results.WriteTable(b), WriteJSON(b, results)) },
		"orders list": func(b *bytes.Buffer) error {
			l, err := ListOrders(d.Context(), d, desk.OrderFilter{})
			return errors.Join(err, l.WriteTable(b, now), WriteJSON(b, l))
		},
		"orders show": func(b *bytes.Buffer) error {
			v, err := ShowOrder(d.Context(), d, "wallet", number)
			d.must(err)
			return errors.Join(v.Write(b, now), WriteJSON(b, v))
		},
		"letters list": func(b *bytes.Buffer) error {
			l, err := ListLetters(d.Context(), d, desk.LetterFilter{})
			return errors.Join(err, l.WriteTable(b, now), WriteJSON(b, l))
		},
	}
	for id := int64(1); id <= 3; id++ {
		texts[fmt.Sprintf("letters show %d", id)] = func(b *bytes.Buffer) error {
			v, err := ShowLetter(d.Context(), d, id)
			d.must(err)
			return errors.Join(v.Write(b, now), WriteJSON(b, v))
		}
	}
	for what, write := range texts {
		var out bytes.Buffer
		d.must(write(&out))
		checkSafe(t, what, out.String())
		if what == "letters show 2" {
			for _, literal := range []string{hostile[0], hostile[1], hostile[2], hostile[3], `\x1b[2J`, `\x1b]0;pwn\a`, `\u009b2J`, `\x9b2J`, `\u202egnp.exe`} {
				if !strings.Contains(out.String(), literal) {
					t.Errorf("%s does not show %s literally:\n%s", what, literal, out.String())
				}
			}
		}
	}

	v, err := ShowLetter(d.Context(), d, 2)
	d.must(err)
	var out bytes.Buffer
	d.must(WriteJSON(&out, v))
	var back struct {
		Record struct {
			Key, Value string
			Headers    []struct {
				Name       string
				NameBase64 string `json:"name_base64"`
				Value      string
			}
		}
	}
	d.must(json.Unmarshal(out.Bytes(), &back))
	for i, h := range back.Record.Headers {
		name := h.Name
		if h.NameBase64 != "" {
			raw, err := base64.StdEncoding.DecodeString(h.NameBase64)
			d.must(err)
			name = string(raw)
		}
		if name != hostile[i] || h.Value != base64.StdEncoding.EncodeToString([]byte(hostile[i])) {
			t.Errorf("header %d reads as %q: %q", i, name, h.Value)
		}
	}
	if back.Record.Value != base64.StdEncoding.EncodeToString(m.Value) || back.Record.Key != base64.StdEncoding.EncodeToString(m.Key) {
		t.Error("the JSON does not hold the exact bytes")
	}
}
