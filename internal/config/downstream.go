package config

import "time"

// Downstream is the HTTP service that takes a route's orders.
type Downstream struct {
	URL             URL               `yaml:"url" need:"true" scheme:"http|https" example:"http://127.0.0.1:8080" help:"Start of every address, up to the paths below; no user, query or fragment."`
	URLs            []URL             `yaml:"urls" scheme:"http|https" form:"a list of at most 15 addresses that differ from url in their host alone" example:"http://127.0.0.1:8081" help:"Further instances of the same service. Each call goes to one of them or to url; one that fails more than the others is left out for a while."`
	Timeout         time.Duration     `yaml:"timeout" default:"300ms" min:"1ms" max:"2m" help:"Deadline of a submit, from the permit to the end of the answer; shorter than the breaker's window."`
	LookupTimeout   time.Duration     `yaml:"lookup_timeout" derive:"timeout" min:"1ms" max:"2m" help:"Deadline of a lookup; shorter than the breaker's window."`
	Slow            time.Duration     `yaml:"slow" derive:"half of timeout" min:"0s" max:"2m" help:"A success slower than this is a slow call to the breaker; 0s turns it off."`
	MaxAnswer       Size              `yaml:"max_answer" default:"64KiB" min:"1KiB" max:"16MiB" help:"Most that is read of an answer's body."`
	Headers         map[string]Secret `yaml:"headers" form:"header names with one value each" help:"Headers of every request; values may hold placeholders. They are kept secret."`
	BearerToken     Secret            `yaml:"bearer_token" form:"a text" help:"Sent as Authorization: Bearer."`
	BearerTokenFile string            `yaml:"bearer_token_file" form:"a file" example:"/run/secrets/wallet" help:"File that holds the token; its last line break is not part of it."`
	TLS             DownstreamTLS     `yaml:"tls" help:"For an https url."`
	Submit          Submit            `yaml:"submit" help:"The request that delivers an order. Idempotency-Key is added by itself."`
	Lookup          Lookup            `yaml:"lookup" help:"The request that asks what became of an order."`
}

// DownstreamTLS is trust in the service's certificate; see [DownstreamTLS.Build].
type DownstreamTLS struct {
	CAFile     string `yaml:"ca_file" form:"a PEM file" example:"/etc/spillway/ca.pem" help:"Authorities to trust instead of the system's."`
	CertFile   string `yaml:"cert_file" form:"a PEM file" example:"/etc/spillway/client.pem" help:"Client certificate; needs key_file."`
	KeyFile    string `yaml:"key_file" form:"a PEM file" example:"/etc/spillway/client.key" help:"Key of the client certificate."`
	ServerName string `yaml:"server_name" form:"a host name" example:"wallet.internal" help:"Name the certificate must bear, where it is not the url's host."`
	Insecure   bool   `yaml:"insecure" default:"false" help:"Believe any certificate. For trials only."`
}

// Submit is the request that delivers an order.
type Submit struct {
	Method      string            `yaml:"method" default:"POST" accept:"POST|PUT|PATCH" help:"HTTP method."`
	Path        string            `yaml:"path" need:"true" form:"a path that begins with /, with placeholders where wanted" example:"/orders" help:"Path below the url, with a query if need be; {number} stands for the escaped business number."`
	Headers     map[string]Secret `yaml:"headers" form:"header names with one value each" help:"Headers of this request alone, beside those above. Their values are kept secret."`
	ContentType string            `yaml:"content_type" default:"application/json" form:"a media type" help:"Content-Type of the body."`
	Body        string            `yaml:"body" default:"{value}" form:"a text with placeholders where wanted" help:"Body. {value} is the record's value, bytes exact; in JSON and forms {number}, {route}, {topic}, {key}, {header:NAME} and {value:/pointer} stand for what they say, escaped for their place."`
	Rules       []SubmitRule      `yaml:"rules" help:"What an answer means, where the built-in table does not fit. The first rule that matches counts."`
}

// Lookup is the request that asks what became of an order.
type Lookup struct {
	Method  string            `yaml:"method" default:"GET" accept:"GET|POST" help:"HTTP method; the request has no body."`
	Path    string            `yaml:"path" need:"true" form:"a path that begins with / and holds {number}" example:"/orders/{number}" help:"Path below the url, with a query if need be; {number} stands for the escaped business number."`
	Headers map[string]Secret `yaml:"headers" form:"header names with one value each" help:"Headers of this request alone, beside those above. Their values are kept secret."`
	Rules   []LookupRule      `yaml:"rules" help:"What an answer means, where the built-in table does not fit. The first rule that matches counts."`
}

// SubmitRule says what a submit's answer means. Every condition given must hold.
type SubmitRule struct {
	Status  []StatusRange `yaml:"status" form:"status codes or ranges such as 409 or 200-299" example:"200-299" help:"Status codes that match; every one where not given."`
	Pointer string        `yaml:"pointer" form:"a JSON pointer such as /status" example:"/status" help:"Member of the answer to compare."`
	Equals  []string      `yaml:"equals" form:"texts" example:"PAID" help:"Values of that member that match."`
	Outcome string        `yaml:"outcome" need:"true" accept:"SUCCEEDED|REJECTED|INVALID|OVERLOADED|UNKNOWN" example:"SUCCEEDED" help:"What such an answer means."`
}

// LookupRule says what a lookup's answer means. Every condition given must hold.
type LookupRule struct {
	Status  []StatusRange `yaml:"status" form:"status codes or ranges such as 409 or 200-299" example:"200-299" help:"Status codes that match; every one where not given."`
	Pointer string        `yaml:"pointer" form:"a JSON pointer such as /status" example:"/status" help:"Member of the answer to compare."`
	Equals  []string      `yaml:"equals" form:"texts" example:"PAID" help:"Values of that member that match."`
	Verdict string        `yaml:"verdict" need:"true" accept:"SUCCEEDED|FAILED|PROCESSING|NOT_FOUND|NO_VERDICT" example:"SUCCEEDED" help:"What such an answer means."`
}

// Scopes of a breaker.
const (
	ScopeShared = "shared"
	ScopeWorker = "worker"
)

// Breaker is when a route stops calling its downstream. The names and bounds are those of package breaker; a zero rate
// or count turns its rule off.
type Breaker struct {
	Mode             string        `yaml:"mode" default:"enforce" accept:"disabled|observe|alert|enforce" help:"Count nothing; count and never refuse; the same and notify; refuse."`
	Scope            string        `yaml:"scope" default:"shared" accept:"shared|worker" help:"Whether the workers share its state through Redis, or each knows its own calls only."`
	Window           time.Duration `yaml:"window" default:"10s" min:"1s" max:"5m" whole:"1s" help:"How far back the failure rate looks, in whole seconds."`
	FailureRate      Percent       `yaml:"failure_rate" default:"50%" min:"0%" max:"100%" help:"Share of failures that opens it; 0% turns the rule off."`
	MinimumCalls     int           `yaml:"minimum_calls" default:"20" min:"1" max:"1000000" help:"Results the window must hold before a rate means anything."`
	SlowWindow       time.Duration `yaml:"slow_window" derive:"window" min:"1s" max:"5m" whole:"1s" help:"How far back the slow rate looks, in whole seconds."`
	SlowRate         Percent       `yaml:"slow_rate" default:"50%" min:"0%" max:"100%" help:"Share of slow calls that opens it; 0% turns the rule off."`
	SlowMinimumCalls int           `yaml:"slow_minimum_calls" derive:"minimum_calls" min:"1" max:"1000000" help:"Results the slow window must hold."`
	Consecutive      int           `yaml:"consecutive" default:"20" min:"0" max:"1000000" help:"Failures in a row, as answers come in or in the order of the calls, that open it whatever the window holds; 0 turns the rule off."`
	WilsonZ          float64       `yaml:"wilson_z" default:"0" min:"0" max:"5" help:"Standard score of the Wilson lower bound that a rate must reach; 0 compares the raw rate."`
	OpenWait         time.Duration `yaml:"open_wait" default:"30s" min:"1ms" max:"24h" help:"How long the first opening lasts."`
	OpenJitter       Percent       `yaml:"open_jitter" default:"20%" min:"0%" max:"99%" help:"Spread of that wait, to both sides."`
	OpenGrowth       float64       `yaml:"open_growth" default:"1.5" min:"1" max:"10" help:"Factor of the wait at each further opening."`
	OpenWaitMax      time.Duration `yaml:"open_wait_max" derive:"5m, or open_wait if longer" min:"1ms" max:"24h" help:"Longest wait, before the spread."`
	Probes           int           `yaml:"probes" default:"3" min:"1" max:"100" help:"First probes that must succeed before the ramp."`
	ProbesInFlight   int           `yaml:"probes_in_flight" default:"1" min:"1" max:"16" help:"First probes that may run at once."`
	ProbeFailures    int           `yaml:"probe_failures" default:"2" min:"1" max:"100" help:"Bad first probes in a row that open it again."`
	RampStart        Percent       `yaml:"ramp_start" default:"1%" min:"0.01%" max:"100%" help:"Share of calls admitted in the ramp's first step."`
	RampFactor       float64       `yaml:"ramp_factor" default:"2" min:"1.01" max:"100" help:"Factor of the share from step to step."`
	RampStep         time.Duration `yaml:"ramp_step" default:"3s" min:"1ms" max:"10m" help:"How long a step lasts."`
	RampMinimumCalls int           `yaml:"ramp_minimum_calls" derive:"5, or minimum_calls if less" min:"1" max:"1000000" help:"Results that the ramp's own rates need; at most minimum_calls."`
	SuccessesToClose int           `yaml:"successes_to_close" default:"0" min:"0" max:"1000" help:"Successful probes that close it, in place of first probes and ramp; 0 ramps."`
}
