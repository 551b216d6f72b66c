package handover

import (
	"errors"
	"net"
	"time"
)

// The names of sockets.
const (
	HTTP  = "http"
	Admin = "admin"
)

// Socket is a listening socket, with connections that wait for their next request. Its owner closes it.
type Socket struct {
	Name      string    // HTTP or Admin
	Address   string    // the address of the settings that it was made for
	Inherited bool      // another process, or another part of this one, has used it
	Since     time.Time // nothing was accepted since then; zero: unknown
	Listener  *net.TCPListener
	Conns     []*net.TCPConn
}

// Close closes the socket and its connections.
func (s *Socket) Close() error {
	var errs []error
	for _, c := range s.Conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(append(errs, s.Listener.Close())...)
}

// Estate is what a process leaves to the next one.
type Estate struct {
	Sockets Sockets
	Memory  []byte // content of the Redis inside the process; empty: none
}

// Sockets are those that a process inherits, by name.
type Sockets map[string]*Socket

// Take removes and returns the socket for an address of the settings, or nil if there is none. It is that of another
// address too if that leads to the same one, such as localhost:8080 instead of 127.0.0.1:8080.
func (s Sockets) Take(name, address string) *Socket {
	found := s[name]
	if found == nil || found.Address != address && !found.is(address) {
		return nil
	}
	delete(s, name)
	found.Address, found.Inherited = address, true
	return found
}

// is reports whether the socket listens on the address. One that is not known, or has port 0, is not.
func (s *Socket) is(address string) bool {
	at, err := net.ResolveTCPAddr("tcp", address)
	return err == nil && at.String() == s.Listener.Addr().String()
}

// Close closes all sockets that were not taken.
func (s Sockets) Close() error {
	var errs []error
	for name, socket := range s {
		errs = append(errs, socket.Close())
		delete(s, name)
	}
	return errors.Join(errs...)
}
