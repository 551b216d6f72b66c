//go:build !unix

package handover

import (
	"errors"
	"net"
	"os"
)

var errUnsupported = errors.New("this system cannot pass sockets to another process")

func send(*net.UnixConn, Sockets) error { return errUnsupported }

func receive(*net.UnixConn) (Sockets, error) { return nil, errUnsupported }

func listenerOf(*os.File) (*net.TCPListener, error) { return nil, errUnsupported }

func awaitRequest(*net.TCPConn) error { return nil }
