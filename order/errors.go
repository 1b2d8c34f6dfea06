package order

import "errors"

// ErrQueueFull says that the replay queue took nothing because its bound is reached. The orders stay in Postgres,
// REPLAYING, and the scanner brings them in once there is room; intake holds meanwhile.
var ErrQueueFull = errors.New("the replay queue is full")
