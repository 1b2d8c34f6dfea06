package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes. It is written with a unit: 512B, 64KiB, 1MiB, or 64kB, 1MB in powers of ten.
type Size int64

// sizeUnits lists the units of a size, the largest first: String takes the first that divides evenly.
func sizeUnits() []struct {
	name  string
	bytes int64
} {
	return []struct {
		name  string
		bytes int64
	}{
		{"GiB", 1 << 30},
		{"MiB", 1 << 20},
		{"KiB", 1 << 10},
		{"GB", 1e9},
		{"MB", 1e6},
		{"kB", 1e3},
		{"B", 1},
	}
}

// String returns the size with the largest binary unit that divides it.
func (s Size) String() string {
	for _, u := range sizeUnits()[:3] {
		if s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// Percent is a share in hundredths: 50 is half. It is written with its sign: 50%.
type Percent float64

// Share returns the percentage as a part of one.
func (p Percent) Share() float64 { return float64(p) / 100 }

func (p Percent) String() string { return strconv.FormatFloat(float64(p), 'f', -1, 64) + "%" }

// Rate is how often something may begin, per second. It is written with a unit: 200/s, 30/m, 500/h; 0 is written none.
type Rate float64

// rateUnits lists the units of a rate, with their seconds.
func rateUnits() []struct {
	name    string
	seconds float64
} {
	return []struct {
		name    string
		seconds float64
	}{{"/s", 1}, {"/m", 60}, {"/h", 3600}}
}

// String returns the rate with the unit that gives the shortest number, of those that are read as the same rate again.
func (r Rate) String() string {
	if r == 0 {
		return noRate
	}
	best := strconv.FormatFloat(float64(r), 'f', -1, 64) + "/s"
	for _, u := range rateUnits() {
		text := strconv.FormatFloat(float64(r)*u.seconds, 'f', -1, 64) + u.name
		if again, why := parseRate(text); why == "" && again == r && len(text) < len(best) {
			best = text
		}
	}
	return best
}

// noRate is how a rate without a limit is written.
const noRate = "none"

// StatusRange is the HTTP status codes From to To, both included.
type StatusRange struct{ From, To int }

// Has reports whether the code is in the range.
func (r StatusRange) Has(code int) bool { return r.From <= code && code <= r.To }

func (r StatusRange) String() string {
	if r.From == r.To {
		return strconv.Itoa(r.From)
	}
	return fmt.Sprintf("%d-%d", r.From, r.To)
}

// formatDuration prints a duration without the zero parts that a reader need not see: 1h, not 1h0m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// The parsers below return what is wrong with the text, or "".

func parseDuration(text string) (d time.Duration, why string) {
	if bareNumber(text) {
		return 0, "has no unit"
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil && strings.HasPrefix(text, "-"):
		return 0, "is negative"
	case err != nil:
		return 0, "is not a duration"
	case d < 0:
		return 0, "is negative"
	}
	return d, ""
}

func parseSize(text string) (n Size, why string) {
	if bareNumber(text) {
		return 0, "has no unit"
	}
	if strings.HasPrefix(text, "-") {
		return 0, "is negative"
	}
	for _, u := range sizeUnits() {
		digits, ok := strings.CutSuffix(text, u.name)
		if !ok || !wholeNumber(digits) {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n > math.MaxInt64/u.bytes {
			return 0, "is too large"
		}
		return Size(n * u.bytes), ""
	}
	return 0, "is not a size"
}

func parsePercent(text string) (p Percent, why string) {
	if bareNumber(text) {
		return 0, "has no % sign"
	}
	number, ok := strings.CutSuffix(text, "%")
	if !ok || !bareNumber(number) {
		return 0, "is not a percentage"
	}
	f, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil:
		return 0, "is not a percentage"
	case f < 0:
		return 0, "is negative"
	}
	return Percent(f), ""
}

func parseRate(text string) (r Rate, why string) {
	switch {
	case text == noRate:
		return 0, ""
	case bareNumber(text):
		return 0, "has no unit"
	case strings.HasPrefix(text, "-"):
		return 0, "is negative"
	}
	for _, u := range rateUnits() {
		number, ok := strings.CutSuffix(text, u.name)
		if !ok || !bareNumber(number) {
			continue
		}
		f, err := strconv.ParseFloat(number, 64)
		switch {
		case err != nil:
			return 0, "is too large"
		case f == 0:
			return 0, "would let nothing through; none is no limit"
		case f < u.seconds/3600:
			return 0, "is too small"
		}
		return Rate(f / u.seconds), ""
	}
	return 0, "is not a rate"
}

func parseInt(text string) (n int, why string) {
	switch digits, negative := strings.CutPrefix(text, "-"); {
	case !wholeNumber(digits) && bareNumber(text):
		return 0, "is not a plain whole number"
	case !wholeNumber(digits):
		return 0, "is not a whole number"
	case negative:
		return 0, "is negative"
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, "is too large"
	}
	return n, ""
}

func parseFloat(text string) (f float64, why string) {
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || !bareNumber(text):
		return 0, "is not a number"
	case f < 0:
		return 0, "is negative"
	}
	return f, ""
}

func parseBool(text string) (b bool, why string) {
	switch strings.ToLower(text) {
	case "true", "yes", "on", "1":
		return true, ""
	case "false", "no", "off", "0":
		return false, ""
	}
	return false, "is neither true nor false"
}

func parseStatus(text string) (r StatusRange, why string) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	if !wholeNumber(from) || !wholeNumber(to) || len(from) != 3 || len(to) != 3 {
		return r, "is not a status code or range"
	}
	r.From, _ = strconv.Atoi(from)
	r.To, _ = strconv.Atoi(to)
	switch {
	case r.From < 100 || r.To > 599:
		return r, "is outside 100 to 599"
	case r.From > r.To:
		return r, "runs backwards"
	}
	return r, ""
}

// bareNumber reports whether the text is a decimal number without a unit: 250, -1, 1.5, .5. What only looks like one in
// some notation (0x1F, 1_000, 010) is none, so that nothing is read in a base its writer did not mean.
func bareNumber(text string) bool {
	whole, fraction, dot := strings.Cut(strings.TrimLeft(text, "+-"), ".")
	return whole+fraction != "" && digitsOnly(whole) && digitsOnly(fraction) && (whole != "" || dot)
}

// wholeNumber reports whether the text is digits without a leading zero.
func wholeNumber(text string) bool {
	return text != "" && digitsOnly(text) && (text == "0" || text[0] != '0')
}

func digitsOnly(text string) bool { return strings.Trim(text, "0123456789") == "" }
