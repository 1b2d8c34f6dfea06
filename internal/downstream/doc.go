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
//
// # Several instances
//
// A service may have several instances, all with the same paths. Each call goes to one: of two drawn at random, the one
// with fewer calls in flight; an instance that has just failed looks busier for a second, or one that fails at once would
// draw the calls to itself. A call is not tried again elsewhere. Submits and lookups alike go to any instance that is in.
//
// An instance is suspect when its share of failures among its last 16 results is above twice that of the others by a
// quarter, with at least 4 failures. A suspect is taken out at 5 failures in a row or 8 of 16, for 5 s at first and for
// twice as long each time, until it has shown health: 16 successes, and longer in than it was out. When its time is over the
// next call is its probe, one at a time; two successes in a row bring it back. At most half are out. A service that is ill as
// a whole has no suspects, so nothing is taken out of it.
//
// What failed at a suspect for which there is room among those out, or at one that is out, is marked as one instance's
// own failure ([order.Answer.OneInstance]), and the service's breaker ignores it. All else reaches the breaker as ever: an
// instance's first three failures, those of a service that is ill, and those of a bad instance beyond the half. An instance
// that is slow but answers gets fewer calls and is never taken out; its slow answers count for the breaker.
package downstream
