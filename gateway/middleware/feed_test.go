package middleware

import (
	"crypto/tls"
	"net"
	"testing"
)

// TestRawOf: what is written to a sealed connection goes through what seals it.
func TestRawOf(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if rawOf(conn) == nil {
		t.Error("got no raw connection of a TCP connection")
	}
	if rawOf(tls.Client(conn, new(tls.Config))) != nil {
		t.Error("got the raw connection under TLS, want none")
	}
}
