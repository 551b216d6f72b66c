//go:build race

package gatewaytest

// Raced reports whether the race detector is on. It makes programs about ten times slower and larger, so tests that
// measure memory skip.
const Raced = true
