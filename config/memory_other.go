//go:build !linux

package config

// memoryLimit returns 0, because the limit cannot be read on this system.
func memoryLimit() uint64 { return 0 }
