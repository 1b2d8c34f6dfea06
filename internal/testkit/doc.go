// Package testkit holds what service tests share: the addresses of real servers, a topic or database of a test's own,
// servers that a test may kill and restart, a proxy that breaks connections, and the test binary run again as a child
// process that can be killed.
//
// The addresses come from the environment that "scripts/services env" prints. A test whose server is missing is skipped
// with the reason, and fails under CI=true, so that a green run there has run it.
package testkit
