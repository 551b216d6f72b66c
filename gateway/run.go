package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"tenantry/gateway/handover"
	"tenantry/gateway/middleware"
)

// phase says how far the process is.
type phase int32

const (
	starting phase = iota
	serving
	stopping
)

func (p phase) String() string { return [...]string{"starting", "ok", "stopping"}[p] }

type atomicPhase struct{ n atomic.Int32 }

func (a *atomicPhase) Load() phase   { return phase(a.n.Load()) }
func (a *atomicPhase) Store(p phase) { a.n.Store(int32(p)) }

// server is an HTTP server with its listener.
type server struct {
	*http.Server
	listener *handover.Listener
	serve    net.Listener // the listener, as the server sees it
}

// Run serves until ctx ends or a successor asks to take over; see HandOver. It returns nil after a clean stop.
//
// When ctx ends, the gateway says for timeouts.drain that it is not ready, and goes on serving; then it accepts no more
// connections. Running requests may end within timeouts.shutdown.
func (a *App) Run(ctx context.Context) error {
	servers := []server{{a.public, a.publicL, middleware.Framed(a.publicL)}}
	if a.adminL != nil {
		servers = append(servers, server{a.admin, a.adminL, a.adminL})
	}
	failed := make(chan error, len(servers))
	var running sync.WaitGroup
	for _, s := range servers {
		running.Go(func() {
			err := s.Serve(s.serve)
			if !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, handover.ErrSuspended) {
				failed <- err
			}
		})
	}
	a.phase.Store(serving)
	var err error
	select {
	case <-ctx.Done():
		a.phase.Store(stopping)
		err = a.drain(ctx, failed)
	case err = <-failed:
	case a.successor = <-a.successors:
		a.log.InfoContext(ctx, "another process takes over", "process", a.successor.PID)
	}
	a.phase.Store(stopping)
	if err != nil {
		err = fmt.Errorf("serving: %w", err)
	}
	a.events.EndFeeds()
	timeout := a.settings().Timeouts.Shutdown
	if a.successor != nil {
		a.endCommands(ctx, timeout) // while requests are served, because commands may take long
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	cut := make(chan error, len(servers))
	for _, s := range servers { // at once: a long profile must not use up the time of requests
		running.Go(func() {
			e := a.end(stop, s)
			if e != nil {
				_ = s.Close() // cuts the requests still running
				e = fmt.Errorf("requests were cut after %s: %w", timeout, e)
			}
			cut <- e
		})
	}
	running.Wait()
	for range servers {
		err = errors.Join(err, <-cut)
	}
	return err
}

func (a *App) endCommands(ctx context.Context, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	a.lock.stopCommands(ctx)
}

// drain says that the gateway is not ready, and waits until load balancers have noticed. Connections are closed after
// their next answer meanwhile, so that few are left to be closed without one. It returns early with an error of a
// server, or when the operator hurries.
func (a *App) drain(ctx context.Context, failed <-chan error) error {
	wait := a.settings().Timeouts.Drain
	if wait == 0 {
		return nil
	}
	a.leaving.Store(true)
	a.log.InfoContext(ctx, "stopping: not ready, but still serving", "for", wait.String())
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-a.hurry:
	case err := <-failed:
		return err
	}
	return nil
}

// end stops accepting and waits for running requests. Without a successor their connections are closed.
func (a *App) end(ctx context.Context, s server) error {
	if a.successor == nil {
		_ = s.listener.Refuse()       // it fails if the socket is closed already
		s.SetKeepAlivesEnabled(false) // tells the clients of running requests
	}
	err := s.listener.Suspend(ctx)
	if err == nil {
		err = s.Shutdown(ctx)
	}
	return err
}

// announceClose tells clients to close their connection after the answer while the gateway leaves.
func (a *App) announceClose(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.leaving.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// controlHandler takes commands and successors.
func (a *App) controlHandler() http.Handler {
	commands := a.Control()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == handover.Path {
			a.takeSuccessor(w, r)
			return
		}
		commands.ServeHTTP(w, r)
	})
}

func (a *App) takeSuccessor(w http.ResponseWriter, r *http.Request) {
	if p := a.phase.Load(); p != serving {
		http.Error(w, "it is "+p.String(), http.StatusServiceUnavailable)
		return
	}
	if !a.asked.CompareAndSwap(false, true) {
		http.Error(w, "another process takes over already", http.StatusConflict)
		return
	}
	s, err := handover.Accept(w, r)
	if err != nil {
		a.asked.Store(false)
		a.log.WarnContext(r.Context(), "a process that wanted to take over did not go on", "error", err)
		return
	}
	a.successors <- s
}

// Close releases the stores and the data folder, and closes the sockets unless they are for a successor. Later calls
// return the result of the first.
func (a *App) Close() error {
	a.closing.Do(func() {
		sockets := a.releaseSockets()
		if a.successor != nil {
			a.estate = handover.Estate{Sockets: sockets, Memory: a.exportSessions()}
		} else {
			_ = sockets.Close() // nothing was accepted on them
		}
		select {
		case s := <-a.successors: // it came too late
			s.Refuse()
		default:
		}
		a.err = a.Services.Close()
	})
	return a.err
}

// SlowTakeover is after how long each of the two processes of a takeover says that it waits for the other one.
const SlowTakeover = 3 * time.Second

// exportSessions returns what the Redis inside the process has; nil if there is none.
func (a *App) exportSessions() []byte {
	if a.localRedis == nil {
		return nil
	}
	raw, err := a.localRedis.Export()
	if err != nil {
		a.log.Warn("people have to sign in again after the takeover", "error", err)
	}
	return raw
}

// HandOver passes everything to the successor that made Run end, and waits until it serves. Without one it does
// nothing. Call it after Close. After an error nothing serves, and the caller may go on with what is left, which it owns
// then.
func (a *App) HandOver(ctx context.Context) (left handover.Estate, err error) {
	if a.successor == nil {
		return left, nil
	}
	slow := time.AfterFunc(SlowTakeover, func() {
		a.log.WarnContext(ctx, "requests wait for the process that takes over, which does not serve yet",
			"process", a.successor.PID, "advice", "if it does not go on, end it, and this process serves again")
	})
	defer slow.Stop()
	if err := a.successor.Give(ctx, a.estate); err != nil {
		return a.estate, err
	}
	_ = a.estate.Sockets.Close() // the successor has descriptors of its own
	return left, nil
}
