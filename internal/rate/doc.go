// Package rate bounds how many submits and lookups of one route begin per second. It is pure: time is an argument, nothing
// waits, nothing is read from anywhere, and asking allocates nothing.
//
// A submit needs a token from every limit that is set: the tenant's, its lane's (the replay queue's), and the route's, which
// is the smaller of the worker's own limit and its share of the fleet's. A lookup needs one from the limit of lookups and
// from no other: it is no submit. All are taken or none.
//
// Where live and replayed orders both wait for the route's tokens they are served by weight, so that neither starves the
// other however often it asks.
package rate
