//go:build race

package gatewaytest

// Raced is whether the race detector watches, which makes a program some ten times slower and larger: what measures
// memory can then say nothing.
const Raced = true
