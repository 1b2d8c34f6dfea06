// Package consumer takes partitions to attempts to offsets: the live lane of a route.
package consumer
