// Package handover lets one process of a gateway take over from another without refusing or cutting anybody. It passes
// the listening sockets, whose queues go on filling meanwhile, and the connections that wait for their next request.
package handover

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// ErrSuspended is returned by Accept after Close and Suspend.
var ErrSuspended = errors.New("the listener accepts no more connections")

// Listener accepts TCP connections until it is closed or suspended. It then takes each connection from its server as
// soon as that waits for a request on it. Safe for concurrent use.
type Listener struct {
	tcp      *net.TCPListener
	origin   Socket // without its connections
	arrivals chan arrival
	stop     chan struct{} // closed by Close
	still    chan struct{} // closed when stopped and nothing is running
	begin    sync.Once

	mu       sync.Mutex // guards what follows
	stopped  bool
	released bool
	running  int                       // goroutines and connections
	conns    map[*Conn]struct{}        // in the hands of a server
	waiting  map[*net.TCPConn]struct{} // inherited, and without a request until now
	idle     []*net.TCPConn            // taken from the server
}

type arrival struct {
	tcp *net.TCPConn
	err error
}

// Listen returns a Listener on the socket. It also returns the connections of the socket, each when its next request
// arrives and if that is within idle. The caller owns what Release returns.
func Listen(s *Socket, idle time.Duration) *Listener {
	l := &Listener{
		tcp: s.Listener, origin: *s, arrivals: make(chan arrival), stop: make(chan struct{}), still: make(chan struct{}),
		conns: map[*Conn]struct{}{}, waiting: map[*net.TCPConn]struct{}{},
	}
	l.origin.Conns = nil
	for _, c := range s.Conns {
		if err := c.SetReadDeadline(time.Now().Add(idle)); err != nil {
			_ = c.Close() // the client has gone
			continue
		}
		l.waiting[c] = struct{}{}
	}
	return l
}

// Watch makes the server tell the connections of a Listener when it waits for a request. Call it before Serve. A
// connection that wraps another has a method NetConn, which returns that.
func Watch(server *http.Server) {
	server.ConnState = func(c net.Conn, state http.ConnState) {
		for state == http.StateIdle {
			if found, ok := c.(*Conn); ok {
				found.await(1)
				return
			}
			wrapper, ok := c.(interface{ NetConn() net.Conn })
			if !ok {
				return
			}
			c = wrapper.NetConn()
		}
	}
}

// Accept returns the next connection, a *Conn. Error: ErrSuspended once Close was called.
func (l *Listener) Accept() (net.Conn, error) {
	l.begin.Do(l.start)
	select {
	case <-l.stop:
		return nil, ErrSuspended
	case a := <-l.arrivals:
		l.mu.Lock()
		defer l.mu.Unlock()
		switch {
		case a.err != nil && l.stopped:
			return nil, ErrSuspended
		case a.err != nil:
			return nil, a.err
		}
		c := &Conn{TCPConn: a.tcp, listener: l, stopped: l.stopped}
		c.await(2) // the server sets one deadline when it begins and one before it reads the header
		l.conns[c] = struct{}{}
		return c, nil
	}
}

// start begins to accept, and to wait for requests on the inherited connections.
func (l *Listener) start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return
	}
	l.running += 1 + len(l.waiting)
	go func() {
		defer l.ended()
		for {
			tcp, err := l.tcp.AcceptTCP()
			if !l.deliver(arrival{tcp, err}) {
				return
			}
		}
	}()
	for tcp := range l.waiting {
		go func() {
			defer l.ended()
			err := awaitRequest(tcp)
			l.mu.Lock()
			_, ours := l.waiting[tcp]
			delete(l.waiting, tcp)
			kept := ours && l.stopped && errors.Is(err, os.ErrDeadlineExceeded)
			if kept {
				l.keep(tcp)
			}
			l.mu.Unlock()
			switch {
			case kept || !ours:
			case err != nil:
				_ = tcp.Close() // it was idle for too long, or the client has gone
			default:
				l.deliver(arrival{tcp: tcp})
			}
		}()
	}
}

// deliver passes an arrival to Accept. It returns false if there is no Accept any more; the connection is kept then.
func (l *Listener) deliver(a arrival) bool {
	if a.tcp != nil {
		l.mu.Lock()
		l.running++ // until Conn.Close
		l.mu.Unlock()
	}
	select {
	case l.arrivals <- a:
		return true
	case <-l.stop:
	}
	if a.tcp != nil {
		l.mu.Lock()
		l.keep(a.tcp)
		l.running--
		l.mu.Unlock()
	}
	return false
}

// keep keeps an idle connection for Release, or closes it if that was called before. The caller holds mu.
func (l *Listener) keep(tcp *net.TCPConn) {
	if l.released {
		_ = tcp.Close()
		return
	}
	l.idle = append(l.idle, tcp)
}

func (l *Listener) ended() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
	l.settle()
}

// settle closes still when nothing is running any more. The caller holds mu.
func (l *Listener) settle() {
	if l.stopped && l.running == 0 {
		select {
		case <-l.still:
		default:
			close(l.still)
		}
	}
}

// Addr returns the address of the socket.
func (l *Listener) Addr() net.Addr { return l.tcp.Addr() }

// Close stops accepting; the socket remains open, and new connections wait in its queue. Each connection is taken from
// its server when that waits for a request.
func (l *Listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return nil
	}
	l.stopped, l.origin.Since = true, time.Now()
	close(l.stop)
	err := l.tcp.SetDeadline(time.Unix(1, 0)) // wakes AcceptTCP
	for tcp := range l.waiting {
		_ = tcp.SetReadDeadline(time.Unix(1, 0)) // it fails if the connection is closed
	}
	for c := range l.conns {
		c.wake()
	}
	l.settle()
	return err
}

// Refuse is Close, and closes the socket too, so that new connections are refused.
func (l *Listener) Refuse() error { return errors.Join(l.Close(), l.tcp.Close()) }

// Suspend is Close, and waits until no request is running. It returns the error of ctx if that ends before.
func (l *Listener) Suspend(ctx context.Context) error {
	if err := l.Close(); err != nil {
		return err
	}
	select {
	case <-l.still:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Release stops accepting and returns the socket, with the connections that were taken from the server. They belong to
// the caller. Later calls return nil.
func (l *Listener) Release() *Socket {
	_ = l.Close() // it fails if the socket cannot be used; then closing it is all that can be done
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released {
		return nil
	}
	l.released = true
	s := l.origin
	s.Conns = l.idle
	for tcp := range l.waiting {
		delete(l.waiting, tcp) // its goroutine ends without touching it
		s.Conns = append(s.Conns, tcp)
	}
	l.idle = nil
	_ = l.tcp.SetDeadline(time.Time{})
	return &s
}

// Conn is a connection of a Listener.
type Conn struct {
	*net.TCPConn
	listener *Listener

	mu      sync.Mutex // guards what follows; it may be taken while that of the listener is held
	between bool       // no byte of the next request has been read
	// ahead is set if the last Read got a single byte as wanted. While a server handles a request it reads one byte to
	// notice that the client has gone. It may get that of the next request: fast clients send it before that Read ends.
	ahead bool
	// deadlines is how many read deadlines the server sets before it reads the next request. When it sets one more, the
	// request has begun: its first bytes came together with the request before.
	deadlines int
	reading   bool
	stopped   bool
	kept      bool // taken from the server
}

// await notes that the server waits for a request.
func (c *Conn) await(deadlines int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.between, c.deadlines = !c.ahead, deadlines
}

// wake ends the present or next Read that waits for a request.
func (c *Conn) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	if c.between && c.reading {
		_ = c.TCPConn.SetReadDeadline(time.Unix(1, 0)) // it fails if the connection is closed
	}
}

// SetReadDeadline is that of a net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	if c.deadlines--; c.deadlines < 0 {
		c.between = false
	}
	c.mu.Unlock()
	return c.TCPConn.SetReadDeadline(t)
}

// Read is that of a net.Conn. After Close of the listener it returns io.EOF instead of waiting for a request: a server
// then closes the connection and answers nothing.
func (c *Conn) Read(p []byte) (int, error) {
	c.mu.Lock()
	if c.between && c.stopped {
		c.kept = true
		c.mu.Unlock()
		return 0, io.EOF
	}
	c.reading = true
	c.mu.Unlock()
	n, err := c.TCPConn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading, c.ahead = false, n == 1 && len(p) == 1
	if n > 0 {
		c.between = false
	} else if c.between && c.stopped && errors.Is(err, os.ErrDeadlineExceeded) {
		c.kept = true
		return 0, io.EOF
	}
	return n, err
}

// Close closes the connection, or returns it to its listener if it was taken from the server.
func (c *Conn) Close() error {
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	c.mu.Lock()
	kept := c.kept
	c.mu.Unlock()
	if _, open := l.conns[c]; !open {
		if kept {
			return nil
		}
		return c.TCPConn.Close() // says that it is closed
	}
	delete(l.conns, c)
	l.running--
	defer l.settle()
	if kept {
		l.keep(c.TCPConn)
		return nil
	}
	return c.TCPConn.Close()
}
