// Package http3 stands in for github.com/quic-go/quic-go/http3, by which Gin serves HTTP/3 where that is asked for.
package http3

import (
	"errors"
	"net/http"
)

// ErrUnused is the error of everything here.
var ErrUnused = errors.New("HTTP/3 is not part of this program; see replace in its go.mod")

// ListenAndServeQUIC returns ErrUnused.
func ListenAndServeQUIC(addr, certFile, keyFile string, handler http.Handler) error { return ErrUnused }
