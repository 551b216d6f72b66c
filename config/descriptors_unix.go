//go:build unix

package config

import "syscall"

// descriptorLimit returns how many files and sockets the process may have open. Go raises the
// limit in force to the highest allowed when a program starts.
func descriptorLimit() uint64 {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 1024 // the smallest default of common systems
	}
	return uint64(l.Cur) //nolint:unconvert // signed on some systems
}
