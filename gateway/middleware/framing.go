package middleware

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
)

// Framing has a server end a connection after a request that says by Content-Length as well as by Transfer-Encoding how
// long it is (RFC 9112, section 6.1): a proxy before it may have believed the other one, and what follows may be
// somebody else's request. It is called before the server serves a listener that Framed returned. What such a
// connection brings of bodies that look like the header ends it too, which costs no more than another connection. So do
// all requests of HTTP/1.0, whose Transfer-Encoding the server removes and does not heed (section 6.1 too).
func Framing(server *http.Server) {
	next := server.Handler
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(connKey{}).(*framedConn)
		if !r.ProtoAtLeast(1, 1) || conn != nil && slices.Contains(r.TransferEncoding, "chunked") && conn.length.Load() { // the server has removed the header
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

type connKey struct{}

// Framed returns the listener for a server with Framing.
func Framed(l net.Listener) net.Listener { return framed{l} }

type framed struct{ net.Listener }

func (l framed) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		return &framedConn{TCPConn: tcp}, err
	}
	return c, err
}

// framedConn notes whether a line that was read from it begins with Content-Length. The server reads it from one
// goroutine at a time.
type framedConn struct {
	*net.TCPConn
	length  atomic.Bool
	matched int // bytes of lengthLine
}

const lengthLine = "\ncontent-length:"

func (c *framedConn) Read(into []byte) (int, error) {
	n, err := c.TCPConn.Read(into)
	if !c.length.Load() {
		c.look(into[:n])
	}
	return n, err
}

func (c *framedConn) look(part []byte) {
	for len(part) > 0 {
		if c.matched == 0 {
			at := bytes.IndexByte(part, '\n')
			if at < 0 {
				return
			}
			c.matched, part = 1, part[at+1:]
			continue
		}
		is := part[0]
		if is >= 'A' && is <= 'Z' {
			is |= 0x20
		}
		switch {
		case is != lengthLine[c.matched] && is == '\n':
			c.matched = 1
		case is != lengthLine[c.matched]:
			c.matched = 0
		default:
			c.matched++
		}
		if part = part[1:]; c.matched == len(lengthLine) {
			c.length.Store(true)
			return
		}
	}
}
