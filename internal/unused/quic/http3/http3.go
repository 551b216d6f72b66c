// Package http3 replaces github.com/quic-go/quic-go/http3, which Gin imports for HTTP/3.
package http3

import (
	"errors"
	"net/http"
)

// ErrUnused is the error of everything here.
var ErrUnused = errors.New("HTTP/3 is not part of this program; see replace in its go.mod")

// ListenAndServeQUIC returns ErrUnused.
func ListenAndServeQUIC(addr, certFile, keyFile string, handler http.Handler) error { return ErrUnused }
