//go:build linux || darwin

package diskroom

import "syscall"

// free returns how many bytes an unprivileged process can still write to the file system of a folder.
func free(folder string) (bytes int64, known bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(folder, &s); err != nil {
		return 0, false
	}
	return int64(s.Bavail) * int64(s.Bsize), true //nolint:unconvert // the types differ by system
}
