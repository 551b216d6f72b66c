//go:build !linux

package config

// memoryLimit returns 0: it cannot be read here.
func memoryLimit() uint64 { return 0 }
