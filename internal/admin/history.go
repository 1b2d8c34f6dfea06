package admin

import (
	"io"
	"strconv"
	"time"

	"spillway/internal/desk"
)

// HistoryWindow is how far back the history of breakers looks.
const HistoryWindow = 24 * time.Hour

// BreakerHistory is what became of one route's breakers in the last 24 hours, over all workers, as PostgreSQL has it.
type BreakerHistory struct {
	Route       string    `json:"route"`
	Endpoint    string    `json:"endpoint"`
	Openings    int       `json:"openings"` // of all workers: three that follow one record count three
	Workers     int       `json:"workers"`  // how many of them opened
	LastOpened  time.Time `json:"last_opened,omitzero"`
	LastReason  string    `json:"last_reason,omitempty"`
	OpenSeconds float64   `json:"open_seconds"` // in which at least one worker's was open
}

// Histories makes the summaries fit to be shown.
func Histories(summaries []desk.BreakerSummary) []BreakerHistory {
	all := make([]BreakerHistory, len(summaries))
	for i, s := range summaries {
		all[i] = BreakerHistory{
			Route: s.Route, Endpoint: s.Endpoint, Openings: s.Openings, Workers: s.Workers, LastReason: s.LastReason,
			OpenSeconds: s.Open.Seconds(),
		}
		if !s.LastOpened.IsZero() {
			all[i].LastOpened = s.LastOpened.UTC()
		}
	}
	return all
}

// writeHistory writes the last 24 hours for people; nothing where nothing moved.
func writeHistory(w io.Writer, all []BreakerHistory, now time.Time) error {
	if len(all) == 0 {
		return nil
	}
	if _, err := io.WriteString(w, "\n"); err != nil {
		return err
	}
	t := newTable(w, "LAST 24H", "ENDPOINT", "OPENINGS", "BY WORKERS", "OPEN FOR", "LAST OPENED", "LAST REASON")
	for _, h := range all {
		last := "-"
		if !h.LastOpened.IsZero() {
			last = Age(now.Sub(h.LastOpened)) + " ago"
		}
		t.row(cell(h.Route, 0), cell(h.Endpoint, 0), strconv.Itoa(h.Openings), strconv.Itoa(h.Workers),
			Age(time.Duration(h.OpenSeconds*float64(time.Second))), last, cell(h.LastReason, 0))
	}
	return t.flush()
}
