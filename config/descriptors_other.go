//go:build !unix

package config

// descriptorLimit returns a safe number, because the system has no such limit.
func descriptorLimit() uint64 { return 16_384 }
