package handover

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// firstInherited is the first descriptor that a service manager passes, see sd_listen_fds(3).
const firstInherited = 3

// Activated returns the sockets that a service manager such as systemd passes to this process by the variables
// LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES; nil if there are none. Their names must be http and admin; a single socket
// may have any name and is that of http.
func Activated(environ []string) (Sockets, error) { return activated(environ, firstInherited) }

func activated(environ []string, first int) (_ Sockets, err error) {
	set := map[string]string{}
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		set[name] = value
	}
	if set["LISTEN_PID"] != strconv.Itoa(os.Getpid()) || set["LISTEN_FDS"] == "" {
		return nil, nil
	}
	n, err := strconv.Atoi(set["LISTEN_FDS"])
	if err != nil || n < 1 || n > 2 {
		return nil, fmt.Errorf("LISTEN_FDS is %q, want 1 or 2 sockets", set["LISTEN_FDS"])
	}
	names := strings.Split(set["LISTEN_FDNAMES"], ":")
	if n == 1 && names[0] != Admin {
		names = []string{HTTP}
	}
	sockets := Sockets{}
	defer func() {
		if err != nil {
			_ = sockets.Close()
		}
	}()
	for i := range n {
		f := os.NewFile(uintptr(first+i), "inherited")
		l, err := listenerOf(f)
		_ = f.Close() // the listener has a descriptor of its own
		if err != nil {
			return sockets, fmt.Errorf("inherited socket %d: %w", i+1, err)
		}
		if i >= len(names) || names[i] != HTTP && names[i] != Admin || sockets[names[i]] != nil {
			_ = l.Close() // nothing was accepted on it
			return sockets, fmt.Errorf("LISTEN_FDNAMES is %q: name the sockets http and admin (FileDescriptorName=)",
				set["LISTEN_FDNAMES"])
		}
		sockets[names[i]] = &Socket{Name: names[i], Address: l.Addr().String(), Listener: l}
	}
	return sockets, nil
}
