package config

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
)

// FuzzParse holds Parse to its promises: no panic, an error with problems or a config, no control character in a message, and
// a dump that means the same when it is read again.
func FuzzParse(f *testing.F) {
	text, err := os.ReadFile("testdata/minimal.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text), "SPILLWAY_ROUTES_WALLET_PERMITS_LIMIT=7")
	f.Add(secretive, "SPILLWAY_REDIS_URL=redis://:C4NARY@h")
	f.Add(string(Example()), "SPILLWAY_KAFKA_BROKERS= a:1 , b:2 ,")
	f.Add(strings.Replace(string(text), "/pay/{number}", "/pay/{number}?a={value:/x}", 1), "SPILLWAY_ROUTES_WALLET_DOWNSTREAM_SUBMIT_BODY={\"a\":\"{number}\"}")
	f.Add(string(text), "SPILLWAY_ROUTES_WALLET_RATE_FLEET=7/m")
	f.Add("routes: [{name: a, name: b}, null, 5, {name: a}]\n", "SPILLWAY_ROUTES_A_TOPIC=\x00")
	f.Add("a: &x [*x]\n<<: *x\n? 1\n: !!int 2\n", "SPILLWAY_=")
	// Found here: names with control characters were printed as they are.
	f.Add(string(text), "SPILLWAY_ROUTES\x1b_TOPIC=C")
	f.Add(strings.Replace(string(text), "name: wallet", "name: \"a\\x1b\"", 1), "")
	f.Fuzz(func(t *testing.T, text, variable string) {
		if len(text) > 1<<16 || strings.Count(text, "[")+strings.Count(text, "{")+strings.Count(text, "- ") > 500 {
			t.Skip("the parser's time grows with the square of the nesting")
		}
		c, err := Parse("fuzz.yaml", []byte(text), []string{variable})
		var wrong *Error
		if err != nil && (!errors.As(err, &wrong) || len(wrong.Problems) == 0 || c != nil) {
			t.Fatalf("err %v, config %v", err, c)
		}
		if err != nil {
			for _, p := range wrong.Problems {
				if p.Why == "" || p.Variable == "" && p.Line < 1 || strings.ContainsAny(p.String(), "\n\r\x1b\x00") {
					t.Errorf("problem %+v", p)
				}
			}
			return
		}
		dump := string(c.Redacted())
		if strings.Contains(dump, hidden) {
			return
		}
		again, err := Parse("dump.yaml", []byte(dump), nil)
		if err != nil {
			t.Fatalf("the dump does not pass: %v\n%s", err, dump)
		}
		if !reflect.DeepEqual(again, c) {
			t.Errorf("read again:\n%s\nwant:\n%s", again.Redacted(), dump)
		}
	})
}
