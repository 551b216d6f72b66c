package config

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// memoryLimit returns how many bytes of memory the process may use: those of the machine, or fewer if a control group
// limits them; 0 if that cannot be read.
func memoryLimit() uint64 {
	var least uint64
	note := func(n uint64) {
		if n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	if raw, err := os.ReadFile("/proc/meminfo"); err == nil {
		if _, after, found := bytes.Cut(raw, []byte("MemTotal:")); found {
			line, _, _ := strings.Cut(string(after), "kB")
			n, _ := strconv.ParseUint(strings.TrimSpace(line), 10, 64)
			note(n << 10)
		}
	}
	groups, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers, path
		if len(parts) != 3 {
			continue
		}
		root, file := "/sys/fs/cgroup", "memory.max"
		if parts[1] != "" {
			root, file = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
		}
		for at := filepath.Join("/", parts[2]); ; at = filepath.Dir(at) { // a group is also bound by those above it
			note(readBytes(filepath.Join(root, at, file)))
			if at == "/" {
				break
			}
		}
	}
	return least
}

// readBytes returns the number in a file, 0 if there is none or it means no limit.
func readBytes(path string) uint64 {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 64)
	if err != nil || n >= 1<<62 { // max, or its numeric form in version 1 of control groups
		return 0
	}
	return n
}
