//go:build !linux

package maintest

// inMemory does nothing on this system.
func inMemory() {}
