package middleware

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
)

// Framing makes the server close a connection after a request that has both Content-Length and Transfer-Encoding (RFC
// 9112, section 6.1): a proxy may have used the other header, and what follows may be a request of another client.
// Requests of HTTP/1.0 close the connection as well, because the server removes their Transfer-Encoding without heeding
// it.
//
// Call Framing before the server serves a listener returned by Framed. A body with a line that looks like a
// Content-Length header also closes the connection, at the price of a new connection.
func Framing(server *http.Server) {
	next := server.Handler
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(connKey{}).(*framedConn)
		// The server removes Content-Length from a chunked request, so only the connection has seen it.
		ambiguous := conn != nil && slices.Contains(r.TransferEncoding, "chunked") && conn.sawLength.Load()
		if !r.ProtoAtLeast(1, 1) || ambiguous {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

type connKey struct{}

// Framed returns a listener for a server with Framing.
func Framed(l net.Listener) net.Listener { return framed{l} }

type framed struct{ net.Listener }

func (l framed) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if s, ok := c.(stream); ok {
		return &framedConn{stream: s}, err
	}
	return c, err
}

// stream is a TCP connection, or what wraps one. The server uses these methods.
type stream interface {
	net.Conn
	io.ReaderFrom
	CloseWrite() error
}

// framedConn records whether a line that was read begins with Content-Length. The server reads a connection from one
// goroutine at a time.
type framedConn struct {
	stream
	sawLength atomic.Bool
	matched   int // bytes of lengthLine matched so far
}

// NetConn returns the connection that c wraps.
func (c *framedConn) NetConn() net.Conn { return c.stream }

const lengthLine = "\ncontent-length:"

func (c *framedConn) Read(into []byte) (int, error) {
	n, err := c.stream.Read(into)
	if !c.sawLength.Load() {
		c.scan(into[:n])
	}
	return n, err
}

// scan searches the bytes for lengthLine, which may be spread over several reads.
func (c *framedConn) scan(part []byte) {
	for len(part) > 0 {
		if c.matched == 0 {
			at := bytes.IndexByte(part, '\n')
			if at < 0 {
				return
			}
			c.matched, part = 1, part[at+1:]
			continue
		}
		char := part[0]
		if char >= 'A' && char <= 'Z' {
			char |= 0x20
		}
		switch {
		case char != lengthLine[c.matched] && char == '\n':
			c.matched = 1
		case char != lengthLine[c.matched]:
			c.matched = 0
		default:
			c.matched++
		}
		if part = part[1:]; c.matched == len(lengthLine) {
			c.sawLength.Store(true)
			return
		}
	}
}
