package middleware

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"tenantry/operation"
	"tenantry/tenants"
)

const (
	// feedPatience is how long a caller of a feed may take for what it is sent.
	feedPatience = 5 * time.Second
	feedBuffer   = 64 << 10 // bytes that the system keeps for a caller that reads slowly
	feedsBehind  = 32 << 20 // bytes that the gateway keeps besides, for all callers
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
	l := &line{kept: &x.p.feedsBehind, conn: conn, feed: f, place: place}
	l.raw = rawOf(conn)
	_ = conn.SetDeadline(time.Time{}) // an error shows with the first piece
	if l.Send(head.Bytes(), true) == nil {
		f.Join(l)
	}
	return nil
}

// rawOf returns the connection of the system under one that wraps it, with a bound on its buffer; nil if there is none.
func rawOf(conn net.Conn) syscall.RawConn {
	for {
		switch c := conn.(type) {
		case *tls.Conn:
			return nil // it alone seals what is written
		case interface { // a TCP connection, or what embeds one
			syscall.Conn
			SetWriteBuffer(bytes int) error
		}:
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
	kept   *atomic.Int64
	peeked [1]byte
	behind []byte    // what the caller has not taken yet, at most a piece
	since  time.Time // when it last took something
	closed sync.Once
}

// Send implements operation.Line.
func (l *line) Send(piece []byte, patient bool) error {
	var err error
	if patient || l.raw == nil {
		err = l.wait(piece)
	} else {
		err = l.try(piece)
	}
	if err != nil && !errors.Is(err, operation.ErrBehind) {
		l.Close()
	}
	return err
}

// wait sends a piece, and what the caller has not taken before.
func (l *line) wait(piece []byte) error {
	err := l.conn.SetWriteDeadline(time.Now().Add(feedPatience))
	if err == nil {
		_, err = l.conn.Write(append(l.behind, piece...))
	}
	l.keep(nil)
	return errors.Join(err, l.conn.SetWriteDeadline(time.Time{}))
}

// try sends what the caller takes at once.
func (l *line) try(piece []byte) error {
	if len(l.behind) > 0 {
		switch n, err := l.write(l.behind); {
		case err != nil:
			return err
		case n > 0:
			l.keep(l.behind[n:])
			l.since = time.Now()
		}
		if len(l.behind) > 0 {
			if time.Since(l.since) > feedPatience {
				return errStopped
			}
			return operation.ErrBehind
		}
	}
	n, err := l.write(piece)
	if n == len(piece) || err != nil {
		return err
	}
	l.since = time.Now()
	if l.keep(slices.Clone(piece[n:])); l.kept.Load() > feedsBehind {
		return errStopped
	}
	return nil
}

// keep replaces what is kept for the caller.
func (l *line) keep(behind []byte) {
	l.kept.Add(int64(len(behind) - len(l.behind)))
	l.behind = behind
}

var errStopped = errors.New("the caller has stopped reading")

// write writes as much as the system takes at once.
func (l *line) write(piece []byte) (n int, err error) {
	failed := l.raw.Write(func(fd uintptr) bool {
		for err == nil && n < len(piece) {
			var some int
			if some, err = syscall.Write(int(fd), piece[n:]); errors.Is(err, syscall.EINTR) {
				err = nil
				continue
			}
			n += max(some, 0)
		}
		return true
	})
	if errors.Is(err, syscall.EAGAIN) {
		err = nil
	}
	return n, errors.Join(failed, err)
}

// Confirm implements operation.Line.
func (l *line) Confirm(ctx context.Context) (*tenants.Tenant, error) {
	if l.left() {
		return nil, errLeft
	}
	return l.feed.Confirm(ctx)
}

var errLeft = errors.New("the caller has closed the connection")

// left reports whether the caller has closed the connection, which otherwise shows only with the second piece after that.
func (l *line) left() (left bool) {
	if l.raw == nil {
		return false
	}
	failed := l.raw.Read(func(fd uintptr) bool {
		n, _, err := syscall.Recvfrom(int(fd), l.peeked[:], syscall.MSG_PEEK) // what else it sends is nobody's business
		left = err == nil && n == 0 || err != nil && !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR)
		return true
	})
	return left || failed != nil
}

// Close implements operation.Line.
func (l *line) Close() {
	l.closed.Do(func() {
		_ = l.conn.Close()
		l.keep(nil)
		l.place.leave()
	})
}
