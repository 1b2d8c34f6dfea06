package admin

import "time"

// LanesPath is where a worker serves WorkerLanes as JSON, beside its metrics.
const LanesPath = "/lanes"

// WorkerLanes is what a worker says of its live lanes: what limits each, and what holds back its offsets.
type WorkerLanes struct {
	Owner string    `json:"owner"` // the worker's name in leases and history
	At    time.Time `json:"at"`
	Lanes []Lane    `json:"lanes"`
}

// Lane is one route's live lane at one moment.
type Lane struct {
	Route      string   `json:"route"`
	Constraint string   `json:"constraint"` // what limits it now, as spillway_binding_constraint says
	Holds      []string `json:"holds"`      // why its partitions are paused
	Partitions int      `json:"partitions"` // assigned
	Paused     int      `json:"paused"`
	InFlight   int      `json:"in_flight"` // attempts
	Queued     int      `json:"queued"`    // records that wait for a permit
	HeldBytes  int64    `json:"held_bytes"`
	Lag        int64    `json:"lag"`            // records not settled yet, those not read included
	Head       *Head    `json:"head,omitempty"` // none while every offset moves
}

// Head is the record that has held back a partition's committed offset for longest.
type Head struct {
	Partition int32   `json:"partition"`
	Offset    int64   `json:"offset"`
	Number    string  `json:"number,omitempty"` // business number of its order; none while it is not admitted
	Seconds   float64 `json:"seconds"`          // since the offset last moved
	Behind    int     `json:"behind"`           // records read after it, finished ones included
	At        string  `json:"at"`               // where it is: intake, line, call or settle
}
