package config

import "time"

// Route is one topic delivered to one downstream, a bulkhead of its own.
type Route struct {
	Name       string        `yaml:"name" need:"true" form:"1 to 40 of a-z 0-9 -, used once" example:"wallet" help:"Label of the route in metrics, tables and commands; part of every order's identity, so it must not change."`
	Topic      string        `yaml:"topic" need:"true" form:"a topic's name (1 to 249 of a-z A-Z 0-9 . _ -), used by one route" example:"orders.in" help:"Topic whose records are delivered."`
	Group      string        `yaml:"group" derive:"spillway-<name>" form:"1 to 249 printable characters, used by one route" help:"Consumer group."`
	Start      string        `yaml:"start" default:"earliest" accept:"earliest|latest" help:"Where a group without a committed offset begins."`
	Isolation  string        `yaml:"isolation" default:"read_committed" accept:"read_committed|read_uncommitted" help:"Whether records of aborted transactions are left out."`
	Watch      time.Duration `yaml:"watch" default:"10s" min:"100ms" max:"10m" help:"Time between looks for new partitions."`
	Number     Number        `yaml:"number" help:"Where a record carries its business number."`
	Tombstones string        `yaml:"tombstones" default:"dead" accept:"dead|skip" help:"A record without a value becomes a dead letter, or is passed over."`
	Lease      time.Duration `yaml:"lease" default:"30s" min:"1s" max:"1h" help:"How long an order belongs to a worker that went silent; more than twice as long as a call and a second."`
	Watchdog   time.Duration `yaml:"watchdog" default:"1m" min:"5s" max:"1h" help:"Time without progress, with work waiting and nothing to explain it, after which a worker gives its partitions back and takes them anew."`
	Degrade    string        `yaml:"degrade" default:"spill" accept:"spill|hold|skip" help:"What an open breaker means for a fresh record: the replay queue, waiting in Kafka, or a dead letter for later."`
	Ordering   string        `yaml:"ordering" default:"none" accept:"none|key|partition" help:"Which records of a partition run one at a time, in the order of their offsets: none of them, those with the same key (a null key is no key), or all."`
	Permits    Permits       `yaml:"permits" help:"Calls in flight at once, of this worker."`
	Rate       RateLimits    `yaml:"rate" help:"Submits begun per second. At the limit the worker holds; nothing is spilled."`
	Prefetch   Prefetch      `yaml:"prefetch" hot:"true" help:"What may be read ahead."`
	Downstream Downstream    `yaml:"downstream" help:"The service that takes the orders."`
	Breaker    Breaker       `yaml:"breaker" help:"When to stop calling a service that is ill."`
	Retry      Retry         `yaml:"retry" help:"A second attempt at once, where nothing of the first left this machine."`
	Replay     Replay        `yaml:"replay" help:"Orders to be sent later."`
	Compensate Compensate    `yaml:"compensate" help:"Orders whose outcome is unknown: looked up before anything is sent again."`
}

// Places of a business number.
const (
	FromKey    = "key"
	FromHeader = "header"
	FromValue  = "value"
)

// Number says where a record carries its business number.
type Number struct {
	From    string `yaml:"from" default:"key" accept:"key|header|value" help:"The record's key, one of its headers, or a member of its JSON value."`
	Header  string `yaml:"header" form:"a record header's name" example:"order-no" help:"Header to take it from, with from: header."`
	Pointer string `yaml:"pointer" form:"a JSON pointer such as /order_no" example:"/order_no" help:"Member to take it from, with from: value."`
}

// Whether the limit of permits is adapted.
const (
	PermitsFixed   = "fixed"
	PermitsObserve = "observe"
	PermitsEnforce = "enforce"
)

// Permits bounds the calls in flight.
type Permits struct {
	Limit  int           `yaml:"limit" default:"50" min:"1" max:"10000" hot:"true" help:"Calls in flight at once; with another mode than fixed, to begin with."`
	Mode   string        `yaml:"mode" default:"fixed" accept:"fixed|observe|enforce" hot:"true" help:"Whether the limit is adapted to what the service takes, between min and max: not, computed and shown, or in force."`
	Min    int           `yaml:"min" default:"1" min:"1" max:"10000" hot:"true" help:"Lowest limit that is adapted to; at most limit."`
	Max    int           `yaml:"max" derive:"4 x limit, at most 10000" example:"200" min:"1" max:"10000" hot:"true" help:"Highest limit that is adapted to; at least limit."`
	Wait   time.Duration `yaml:"wait" default:"20ms" min:"1ms" max:"1m" hot:"true" help:"Time without a free permit after which the partitions pause."`
	Fleet  int           `yaml:"fleet" default:"0" min:"0" max:"1000000" hot:"while on" help:"Calls in flight at once of all workers together, never exceeded; kept through Redis, and without Redis the worker holds after a few seconds. 0 is no such bound."`
	Shares Shares        `yaml:"shares" hot:"true" help:"Guaranteed parts of the limit; idle permits are lent. They add up to 100%."`
}

// Shares splits the permits of a route among its lanes.
type Shares struct {
	Live       Percent `yaml:"live" default:"70%" min:"1%" max:"100%" help:"Fresh records."`
	Replay     Percent `yaml:"replay" default:"20%" min:"0%" max:"99%" help:"The replay queue."`
	Compensate Percent `yaml:"compensate" default:"10%" min:"0%" max:"99%" help:"Lookups."`
}

// RateLimits bounds how many submits begin per second.
type RateLimits struct {
	Limit  Rate    `yaml:"limit" default:"none" min:"none" max:"1000000/s" example:"200/s" hot:"true" help:"Submits of this worker, of live and replayed orders together. Lookups are no submits."`
	Burst  int     `yaml:"burst" default:"0" min:"0" max:"1000000" hot:"true" help:"Submits at once after a pause; 0 is a tenth of a second's worth, at least 1."`
	Fleet  Rate    `yaml:"fleet" default:"none" min:"none" max:"1000000/s" example:"1000/s" hot:"while on" help:"Submits of all workers together: each has a share by its demand, given through Redis."`
	Tenant Tenants `yaml:"tenant" help:"A limit for each tenant in this worker, so that one cannot take all of the rate."`
}

// FromNone says that records name no tenant.
const FromNone = "none"

// Tenants says whose order a record is, and how many submits of each may begin.
type Tenants struct {
	From    string `yaml:"from" default:"none" accept:"none|header|value" help:"One of the record's headers or a member of its JSON value names the tenant; none: there are no tenants. Records that name none are one tenant."`
	Header  string `yaml:"header" form:"a record header's name" example:"shop" help:"Header to take it from, with from: header."`
	Pointer string `yaml:"pointer" form:"a JSON pointer such as /shop" example:"/shop" help:"Member to take it from, with from: value."`
	Limit   Rate   `yaml:"limit" default:"none" min:"none" max:"1000000/s" example:"20/s" hot:"true" help:"Submits of one tenant in this worker."`
	Max     int    `yaml:"max" default:"1000" min:"1" max:"100000" hot:"true" help:"Tenants told apart; while more are busy, those beyond share one limit."`
}

// Prefetch bounds what is read ahead.
type Prefetch struct {
	Bytes          Size `yaml:"bytes" default:"64MiB" min:"64KiB" max:"16GiB" help:"Ceiling on the memory of everything read and not yet done, all partitions together."`
	PartitionBytes Size `yaml:"partition_bytes" default:"1MiB" min:"1KiB" max:"1GiB" help:"What one fetch asks for of one partition; it may bring up to twice as much. A larger record is read all the same."`
	Records        int  `yaml:"records" default:"5000" min:"1" max:"10000000" help:"Nothing more is read while so many records wait for a permit."`
}

// Retry is the second attempt after one of which nothing was sent: connection refused, no route, no name.
type Retry struct {
	Budget Percent       `yaml:"budget" default:"5%" min:"0%" max:"100%" help:"Such attempts for every hundred first ones; beyond it, and with 0% always, the order goes into the replay queue."`
	Delay  time.Duration `yaml:"delay" default:"50ms" min:"1ms" max:"1s" help:"Wait before it, without a permit."`
}

// Replay is the route's replay queue.
type Replay struct {
	Attempts      int           `yaml:"attempts" default:"3" min:"1" max:"100" hot:"true" help:"Attempts before a dead letter, the first included."`
	AttemptsTotal int           `yaml:"attempts_total" default:"20" min:"1" max:"10000" hot:"true" help:"The same with the attempts that do not count: a breaker's probes and polite refusals."`
	Delay         time.Duration `yaml:"delay" default:"1s" min:"1ms" max:"1h" hot:"true" help:"Wait before the second attempt; doubles after that."`
	DelayMax      time.Duration `yaml:"delay_max" default:"1m" min:"1ms" max:"24h" hot:"true" help:"Longest such wait."`
	RetryAfterMax time.Duration `yaml:"retry_after_max" default:"5m" min:"1s" max:"24h" hot:"true" help:"Longest wait that a service's Retry-After may ask for."`
	Rate          Rate          `yaml:"rate" default:"none" min:"none" max:"1000000/s" example:"50/s" hot:"true" help:"Submits of replayed orders in this worker, within rate.limit."`
	Capacity      int           `yaml:"capacity" default:"100000" min:"100" max:"100000000" hot:"true" help:"Orders the queue may hold; full means that intake holds."`
	Batch         int           `yaml:"batch" default:"100" min:"1" max:"100" help:"Orders taken at once."`
	Lease         time.Duration `yaml:"lease" default:"30s" min:"1s" max:"1h" help:"How long a claim on the queue belongs to a worker that went silent; more than twice as long as a call and a second."`
	Patience      time.Duration `yaml:"patience" default:"1m" min:"100ms" max:"24h" hot:"true" help:"Overdue time after which the scanner asks whether the queue still has an order."`
	Reread        time.Duration `yaml:"reread" default:"10m" min:"1s" max:"24h" hot:"true" help:"Time in which an order that a worker handed back unsent is to be read from Kafka again; after that it goes through the queue."`
}

// What a lookup that finds nothing leads to, once past the grace period.
const (
	NotFoundResend = "resend"
	NotFoundFail   = "fail"
)

// Compensate is the route's compensator.
type Compensate struct {
	After    time.Duration `yaml:"after" default:"5s" min:"1ms" max:"24h" hot:"true" help:"Time from an unknown outcome to the first lookup."`
	Grace    time.Duration `yaml:"grace" default:"10s" min:"1ms" max:"24h" hot:"true" help:"Time since the last attempt before \"not found\" is believed; not shorter than a call."`
	Attempts int           `yaml:"attempts" default:"20" min:"1" max:"10000" hot:"true" help:"Lookups without a verdict before a dead letter."`
	Delay    time.Duration `yaml:"delay" default:"1s" min:"1ms" max:"1h" hot:"true" help:"Wait after the first lookup without a verdict; doubles after that."`
	DelayMax time.Duration `yaml:"delay_max" default:"1m" min:"1ms" max:"24h" hot:"true" help:"Longest such wait."`
	Interval time.Duration `yaml:"interval" default:"1s" min:"10ms" max:"1h" help:"Time between scans that found nothing."`
	Batch    int           `yaml:"batch" default:"100" min:"1" max:"500" help:"Orders claimed at once."`
	Rate     Rate          `yaml:"rate" default:"none" min:"none" max:"1000000/s" example:"20/s" hot:"true" help:"Lookups of this worker."`
	NotFound string        `yaml:"not_found" default:"resend" accept:"resend|fail" help:"What \"not found\" means once the grace is over: send it again with the same key, or FAILED."`
}
