//go:build unix

package handover

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"syscall"
	"time"
)

const (
	maxHeader = 1 << 16 // bytes of the header
	maxMemory = 1 << 30 // bytes
	batch     = 100     // descriptors in a message; Linux allows 253
	maxConns  = 1 << 20
)

// header is sent first, then the memory, and then the descriptors: those of the listeners, and of the connections of
// each, in its order.
type header struct {
	Version int            `json:"version"` // of the format
	Sockets []headerSocket `json:"sockets"`
	Memory  int            `json:"memory"` // bytes
}

type headerSocket struct {
	Name    string    `json:"name"`
	Address string    `json:"address"`
	Since   time.Time `json:"since"`
	Conns   int       `json:"conns"`
}

const formatVersion = 1

// send passes the estate to the process at the other end. Its sockets remain open in this one.
func send(to *net.UnixConn, e Estate) error {
	h := header{Version: formatVersion, Memory: len(e.Memory)}
	var all, conns []syscall.Conn
	for _, name := range slices.Sorted(maps.Keys(e.Sockets)) {
		s := e.Sockets[name]
		h.Sockets = append(h.Sockets, headerSocket{s.Name, s.Address, s.Since, len(s.Conns)})
		all = append(all, s.Listener)
		for _, c := range s.Conns {
			conns = append(conns, c)
		}
	}
	raw, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if _, err := to.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(raw))), raw...)); err != nil {
		return err
	}
	if _, err := to.Write(e.Memory); err != nil {
		return err
	}
	for part := range slices.Chunk(append(all, conns...), batch) {
		if err := sendDescriptors(to, part); err != nil {
			return err
		}
		if _, err := io.ReadFull(to, make([]byte, 1)); err != nil { // few may be under way at a time
			return err
		}
	}
	return nil
}

func sendDescriptors(to *net.UnixConn, of []syscall.Conn) error {
	fds := make([]int, 0, len(of))
	var sendNext func(of []syscall.Conn) error
	sendNext = func(of []syscall.Conn) error { // each descriptor stays valid while its control function runs
		if len(of) == 0 {
			_, _, err := to.WriteMsgUnix([]byte{0}, syscall.UnixRights(fds...), nil)
			return err
		}
		raw, err := of[0].SyscallConn()
		if err != nil {
			return err
		}
		var sent error
		err = raw.Control(func(fd uintptr) {
			fds = append(fds, int(fd))
			sent = sendNext(of[1:])
		})
		return errors.Join(err, sent)
	}
	return sendNext(of)
}

// receive returns the estate that the process at the other end passes.
func receive(from *net.UnixConn) (Estate, error) {
	h, err := receiveHeader(from)
	if err != nil {
		return Estate{}, err
	}
	memory := make([]byte, h.Memory)
	if _, err := io.ReadFull(from, memory); err != nil {
		return Estate{}, err
	}
	sockets, err := receiveSockets(from, h)
	return Estate{sockets, memory}, err
}

func receiveHeader(from *net.UnixConn) (h header, err error) {
	size := make([]byte, 4)
	if _, err := io.ReadFull(from, size); err != nil {
		return h, err
	}
	n := binary.BigEndian.Uint32(size)
	if n > maxHeader {
		return h, fmt.Errorf("a header of %d bytes", n)
	}
	raw := make([]byte, n)
	if _, err := io.ReadFull(from, raw); err != nil {
		return h, err
	}
	if err := json.Unmarshal(raw, &h); err != nil {
		return h, err
	}
	if h.Version != formatVersion {
		return h, fmt.Errorf("the running server hands over in the format %d, this program takes %d",
			h.Version, formatVersion)
	}
	if h.Memory < 0 || h.Memory > maxMemory {
		return h, fmt.Errorf("a header with %d bytes of memory", h.Memory)
	}
	for _, s := range h.Sockets {
		if s.Conns < 0 || s.Conns > maxConns {
			return h, fmt.Errorf("a header with %d connections", s.Conns)
		}
	}
	return h, nil
}

func receiveSockets(from *net.UnixConn, h header) (_ Sockets, err error) {
	expected := len(h.Sockets)
	for _, s := range h.Sockets {
		expected += s.Conns
	}
	var files []*os.File
	defer func() {
		for _, f := range files { // the sockets have descriptors of their own
			_ = f.Close()
		}
	}()
	for len(files) < expected {
		more, err := receiveDescriptors(from)
		files = append(files, more...)
		if err != nil {
			return nil, err
		}
		if _, err := from.Write([]byte{0}); err != nil {
			return nil, err
		}
	}
	sockets := Sockets{}
	defer func() {
		if err != nil {
			_ = sockets.Close()
		}
	}()
	next := len(h.Sockets)
	for i, s := range h.Sockets {
		socket := &Socket{Name: s.Name, Address: s.Address, Since: s.Since}
		if socket.Listener, err = listenerOf(files[i]); err != nil {
			return sockets, err
		}
		sockets[s.Name] = socket
		for range s.Conns {
			c, err := net.FileConn(files[next])
			next++
			if tcp, ok := c.(*net.TCPConn); ok {
				socket.Conns = append(socket.Conns, tcp)
			} else if err == nil {
				_ = c.Close()
			} // an error means that the client has gone
		}
	}
	return sockets, nil
}

func receiveDescriptors(from *net.UnixConn) (files []*os.File, err error) {
	oob := make([]byte, syscall.CmsgSpace(4*batch))
	n, oobn, flags, _, err := from.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return nil, err
	}
	messages, err := syscall.ParseSocketControlMessage(oob[:oobn])
	for _, m := range messages {
		fds, rightsErr := syscall.ParseUnixRights(&m)
		err = errors.Join(err, rightsErr)
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "inherited"))
		}
	}
	switch {
	case err != nil:
	case n == 0:
		err = io.ErrUnexpectedEOF
	case len(files) == 0 || flags&syscall.MSG_CTRUNC != 0:
		err = errors.New("not all descriptors could be taken; raise the limit of open files (ulimit -n)")
	}
	return files, err
}

// listenerOf returns the TCP listener of a descriptor, which remains open.
func listenerOf(f *os.File) (*net.TCPListener, error) {
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%s is not a TCP socket", l.Addr()), l.Close())
	}
	return tcp, nil
}

// awaitRequest waits until bytes have arrived on a connection, without reading them, or its read deadline has passed.
// It returns io.EOF if the client has closed it.
func awaitRequest(c *net.TCPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var peekErr error
	err = raw.Read(func(fd uintptr) bool {
		n := 0
		for peekErr = syscall.EINTR; errors.Is(peekErr, syscall.EINTR); {
			n, _, peekErr = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		}
		if n == 0 && peekErr == nil {
			peekErr = io.EOF
		}
		return !errors.Is(peekErr, syscall.EAGAIN)
	})
	return errors.Join(err, peekErr)
}
