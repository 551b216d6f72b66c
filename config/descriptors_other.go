//go:build !unix

package config

// descriptorLimit returns what is safe where the system knows no such limit.
func descriptorLimit() uint64 { return 16_384 }
