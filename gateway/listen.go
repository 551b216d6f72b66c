package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"tenantry/config"
	"tenantry/gateway/handover"
)

// ErrListen: an address of the settings cannot be listened on.
var ErrListen = errors.New("cannot listen")

// listen opens the sockets for the addresses of the settings, unless they are inherited.
func (a *App) listen(ctx context.Context, cfg config.Config, inherited handover.Sockets) error {
	open := func(name, setting, address string) (*handover.Listener, error) {
		socket := inherited.Take(name, address)
		if socket == nil {
			var lc net.ListenConfig
			l, err := lc.Listen(ctx, "tcp", address)
			if other := inherited[name]; other != nil && errors.Is(err, syscall.EADDRINUSE) {
				return nil, fmt.Errorf("%w (the server that hands over listens on %s: write the address as it does)",
					listenError(setting, address, err), other.Address)
			}
			if err != nil {
				return nil, listenError(setting, address, err)
			}
			tcp, ok := l.(*net.TCPListener)
			if !ok { // no address of the network tcp has another type
				return nil, errors.Join(listenError(setting, address, errors.ErrUnsupported), l.Close())
			}
			socket = &handover.Socket{Name: name, Address: address, Listener: tcp}
		}
		return handover.Listen(socket, cfg.Timeouts.Idle), nil
	}
	var err error
	a.publicL, err = open(handover.HTTP, "listen", cfg.Listen)
	if err == nil && cfg.AdminListen != "" {
		a.adminL, err = open(handover.Admin, "admin_listen", cfg.AdminListen)
	}
	return err
}

// listenError names the setting and its address once; err is of net.ListenConfig.
func listenError(setting, address string, err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	var invalid *net.AddrError
	if errors.As(err, &invalid) {
		err = errors.New(invalid.Err)
	}
	return fmt.Errorf("%s: %w on %s: %w", setting, ErrListen, address, err)
}

// releaseSockets stops listening and returns the sockets.
func (a *App) releaseSockets() handover.Sockets {
	sockets := handover.Sockets{}
	for _, l := range []*handover.Listener{a.publicL, a.adminL} {
		if l == nil {
			continue
		}
		if s := l.Release(); s != nil {
			sockets[s.Name] = s
		}
	}
	return sockets
}

// returnSockets puts the sockets that were inherited back, because another attempt may need them, and closes the
// others.
func (a *App) returnSockets(inherited handover.Sockets) {
	sockets := a.releaseSockets()
	for name, s := range sockets {
		if s.Inherited {
			inherited[name] = s
			delete(sockets, name)
		}
	}
	_ = sockets.Close() // nothing was accepted on them
}

func portOf(l net.Listener) string {
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}
