package localredis

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// maxBuffered bounds the bytes that one side may send before the other reads them.
const maxBuffered = 64 << 20

// newPipe returns the two ends of an in-memory connection. Unlike those of net.Pipe they are buffered, because a client
// that sends many commands before it reads a reply and a server that replies before it reads the next command would
// wait for each other.
func newPipe() (net.Conn, net.Conn) {
	a, b := newBuffer(), newBuffer()
	return &conn{in: a, out: b}, &conn{in: b, out: a}
}

type conn struct{ in, out *buffer }

func (c *conn) Read(p []byte) (int, error)  { return c.in.read(p) }
func (c *conn) Write(p []byte) (int, error) { return c.out.write(p) }

func (c *conn) Close() error {
	c.in.close()
	c.out.close()
	return nil
}

func (c *conn) LocalAddr() net.Addr               { return address{} }
func (c *conn) RemoteAddr() net.Addr              { return address{} }
func (c *conn) SetReadDeadline(t time.Time) error { c.in.setDeadline(t); return nil }

// SetWriteDeadline does nothing, because writes do not block.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

type address struct{}

func (address) Network() string { return "memory" }
func (address) String() string  { return "memory" }

// buffer is one direction of a connection.
type buffer struct {
	mu       sync.Mutex
	changed  *sync.Cond
	data     []byte
	closed   bool
	deadline time.Time
	timer    *time.Timer
}

func newBuffer() *buffer {
	b := &buffer{}
	b.changed = sync.NewCond(&b.mu)
	return b
}

func (b *buffer) read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.data) == 0 {
		switch {
		case b.closed:
			return 0, io.EOF
		case !b.deadline.IsZero() && !time.Now().Before(b.deadline):
			return 0, os.ErrDeadlineExceeded
		case len(p) == 0:
			return 0, nil
		}
		b.changed.Wait()
	}
	n := copy(p, b.data)
	if b.data = b.data[n:]; len(b.data) == 0 {
		b.data = nil
	}
	return n, nil
}

func (b *buffer) write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, io.ErrClosedPipe
	}
	if len(b.data)+len(p) > maxBuffered {
		return 0, errors.New("the buffer of the in-process Redis connection is full")
	}
	b.data = append(b.data, p...)
	b.changed.Broadcast()
	return len(p), nil
}

func (b *buffer) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.stopTimer()
	b.changed.Broadcast()
}

func (b *buffer) setDeadline(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopTimer()
	b.deadline = t
	if !t.IsZero() && !b.closed {
		b.timer = time.AfterFunc(time.Until(t)+time.Millisecond, func() { // must not fire early, because it fires once
			b.mu.Lock() // a reader either waits already or will see the deadline
			defer b.mu.Unlock()
			b.changed.Broadcast()
		})
	}
	b.changed.Broadcast()
}

func (b *buffer) stopTimer() {
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
}
