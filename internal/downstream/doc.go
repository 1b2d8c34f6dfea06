// Package downstream delivers orders over HTTP/1.1: it is an [order.Handler].
//
// A call is one request and its answer. It is never repeated here, by us or by net/http: every repetition is a
// counted attempt that somebody decided on. Redirects are not followed, for 307 and 308 send the body again,
// elsewhere. Idempotency-Key is the order's business number at every attempt, and the body is a function of the record and
// the config alone, so it is the same bytes at every attempt.
//
// # Templates
//
// Paths, header values and bodies may hold placeholders:
//
//	{number}          the business number
//	{route} {topic}   the route's name and the record's topic
//	{key}             the record's key
//	{header:NAME}     the newest record header of that name
//	{value}           the record's value, bytes exact: in a body alone
//	{value:/a/b}      what a JSON pointer (RFC 6901) finds in the value
//
// What stands for a placeholder is escaped for its place: percent-encoded in a path or query, as string content
// within a JSON string. Outside a JSON string only {value} and {value:/a/b} may stand, and give the JSON as the record
// has it, digits exact. A record that lacks what a template asks for is INVALID: it is not sent.
//
// # What an answer means
//
// The route's rules come first, then these defaults:
//
//	2xx                   SUCCEEDED, once the answer was read to its end
//	402 409 422           REJECTED
//	400 404 413           INVALID
//	429 503               OVERLOADED, with Retry-After
//	401 403 407           OVERLOADED, with a pause of our own: the service did nothing, and what is wrong is our
//	                      credentials, not the order. The pause keeps such attempts from counting against the cap, so
//	                      that a token that ran out does not bury every order of the hour; the breaker sees failures and
//	                      stops the calls.
//	3xx, other 4xx, 1xx   UNKNOWN: no rule covers them. They are likely our own mistake (a wrong method or path), so
//	                      INVALID, which buries at once and tells the breaker nothing, would be the dearer guess.
//	5xx                   UNKNOWN
//	no answer, or a part  UNKNOWN; NOT_SENT where not even the head of the request left this machine
//
// A route with a rule that finds SUCCEEDED in the body has said how its service confirms: then a 2xx that no rule matches
// is UNKNOWN. The same goes for lookups, NOT_FOUND and 404.
//
// A lookup's defaults: in a 2xx the text at /status (SUCCEEDED, FAILED, REJECTED, PROCESSING, PENDING or NOT_FOUND);
// 404 is NOT_FOUND; anything else shows nothing.
package downstream
