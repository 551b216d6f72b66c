package middleware

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"tenantry/operation"
	"tenantry/tenants"
)

const (
	// feedPatience is how long a caller of a feed may take for what it is sent.
	feedPatience = 5 * time.Second
	feedBuffer   = 64 << 10 // bytes that the system keeps for a caller that reads slowly
	feedBehind   = 64 << 10 // bytes that the gateway keeps besides
)

// feed answers with a feed. The connection is taken from the server, so that a feed costs neither a goroutine nor the
// buffers of a request. It returns the problem to answer with instead.
func (x *exchange) feed(ctx context.Context, f *operation.Feed) *operation.Problem {
	if x.r.ProtoMajor != 1 {
		return &operation.Problem{Code: http.StatusHTTPVersionNotSupported, Message: "Feeds need HTTP/1.1"}
	}
	place, err := x.enter(ctx, x.p.Feeds, 1)
	if err != nil {
		return x.problem(ctx, err)
	}
	x.head(http.StatusOK, x.op.Feeds)
	h := x.w.Header()
	h.Set("Connection", "close")
	h.Set("X-Accel-Buffering", "no") // otherwise some proxies keep events back
	if x.r.Method == http.MethodHead {
		place.leave()
		x.w.WriteHeader(http.StatusOK)
		return nil
	}
	conn, _, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		place.leave()
		x.code = 0
		return x.problem(ctx, err)
	}
	var head bytes.Buffer
	head.WriteString("HTTP/1.1 200 OK\r\n")
	_ = h.Write(&head) // to memory
	head.WriteString("Date: " + time.Now().UTC().Format(http.TimeFormat) + "\r\n\r\n")
	x.leave() // a feed takes no room of a request
	l := &line{conn: conn, feed: f, place: place}
	l.raw = rawOf(conn)
	_ = conn.SetDeadline(time.Time{}) // an error shows with the first piece
	if l.Send(head.Bytes(), true) == nil {
		_ = conn.SetDeadline(time.Time{})
		f.Join(l)
	}
	return nil
}

// rawOf returns the connection of the system under one that wraps it, with a bound on its buffer; nil if there is none.
func rawOf(conn net.Conn) syscall.RawConn {
	for {
		switch c := conn.(type) {
		case *net.TCPConn:
			_ = c.SetWriteBuffer(feedBuffer)
			raw, err := c.SyscallConn()
			if err != nil {
				return nil
			}
			return raw
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return nil
		}
	}
}

// line is an operation.Line on a connection.
type line struct {
	conn   net.Conn
	raw    syscall.RawConn // nil: every piece waits for the caller
	feed   *operation.Feed
	place  place
	behind []byte    // what the caller has not taken yet
	since  time.Time // when that began
	closed sync.Once
}

// Send implements operation.Line.
func (l *line) Send(piece []byte, patient bool) error {
	err := l.send(piece, patient || l.raw == nil)
	if err != nil {
		l.Close()
	}
	return err
}

var errBehind = errors.New("the caller reads too slowly")

func (l *line) send(piece []byte, patient bool) error {
	l.behind = append(l.behind, piece...)
	if len(l.behind) == 0 {
		return nil
	}
	if patient {
		err := l.conn.SetWriteDeadline(time.Now().Add(feedPatience))
		if err == nil {
			_, err = l.conn.Write(l.behind)
		}
		l.behind = nil
		return err
	}
	if l.since.IsZero() {
		l.since = time.Now()
	}
	var failed error
	err := l.raw.Write(func(fd uintptr) bool {
		for len(l.behind) > 0 {
			n, err := syscall.Write(int(fd), l.behind)
			switch {
			case errors.Is(err, syscall.EINTR):
				continue
			case err != nil && !errors.Is(err, syscall.EAGAIN):
				failed = err
			}
			if err != nil {
				return true
			}
			l.behind = l.behind[n:]
		}
		return true
	})
	switch {
	case err != nil || failed != nil:
		return errors.Join(err, failed)
	case len(l.behind) == 0:
		l.behind, l.since = nil, time.Time{}
	case len(l.behind) > feedBehind, time.Since(l.since) > feedPatience:
		return errBehind
	}
	return nil
}

// Confirm implements operation.Line.
func (l *line) Confirm(ctx context.Context) (*tenants.Tenant, error) { return l.feed.Confirm(ctx) }

// Close implements operation.Line.
func (l *line) Close() {
	l.closed.Do(func() {
		_ = l.conn.Close()
		l.place.leave()
	})
}
