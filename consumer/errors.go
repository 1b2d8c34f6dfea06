package consumer

import "errors"

// ErrFenced says that the group has moved on: this generation's offsets can't be committed any more. What was not
// committed is read again by the next owner of the partition, and the orders table knows what it need not call.
var ErrFenced = errors.New("the group generation is over")
