// Package localredis runs a Redis server inside the process, for installations with a single process. Clients connect
// to
// it through memory: it opens no socket.
package localredis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"tenantry/tenants/redisconn"
)

// tick is the interval at which lifetimes are reduced. Entries expire at most this much early or late.
const tick = 200 * time.Millisecond

// maxNames bounds the keys for which miniredis counts changes. It keeps these counts forever, even of deleted keys.
const maxNames = 16_384

// ErrClosed is returned after Close.
var ErrClosed = errors.New("the in-process Redis is closed")

// Server is an in-process Redis server whose entries expire in real time. Its data end with the process. It is safe for
// concurrent use.
type Server struct {
	mini *miniredis.Miniredis
	stop chan struct{}
	done chan struct{}

	versions *map[string]uint // counts of changes by key; a field of mini, guarded by mini's lock

	mu      sync.Mutex
	closed  bool
	clients []io.Closer
}

// Start returns a running Server. The caller must close it.
func Start() (*Server, error) {
	s := &Server{mini: miniredis.NewMiniRedis(), stop: make(chan struct{}), done: make(chan struct{})}
	conn, err := s.mini.Dial() // the first connection starts the server
	if err != nil {
		return nil, fmt.Errorf("start the in-process Redis: %w", err)
	}
	_ = conn.Close()
	if s.versions = versions(s.mini.DB(0)); s.versions == nil {
		s.mini.Close()
		return nil, errors.New("start the in-process Redis: this version of miniredis counts changes of keys in another form")
	}
	s.mini.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) (done bool) {
		if done = cmd == "WATCH"; done { // it needs the counts that forget drops
			c.WriteError("ERR the in-process Redis has no WATCH")
		}
		return done
	})
	go s.run()
	return s, nil
}

// run reduces the lifetimes of entries, which miniredis does not do by itself in real time. Its own mode for that walks
// over all entries at every command.
func (s *Server) run() {
	defer close(s.done)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
			now := time.Now()
			s.mini.FastForward(now.Sub(last))
			last = now
			s.forget()
		}
	}
}

// versions returns the map in which miniredis counts the changes of each key, or nil if it has no such map.
func versions(db *miniredis.RedisDB) *map[string]uint {
	counts := reflect.ValueOf(db).Elem().FieldByName("keyVersion")
	if !counts.IsValid() || counts.Type() != reflect.TypeFor[map[string]uint]() {
		return nil
	}
	return (*map[string]uint)(counts.Addr().UnsafePointer())
}

// forget drops the counts if there are too many. Only WATCH uses them.
func (s *Server) forget() {
	s.mini.Lock()
	defer s.mini.Unlock()
	if len(*s.versions) >= maxNames {
		*s.versions = map[string]uint{}
	}
}

// Client returns a client of the server. Closing it is optional. Only the options Timeout and Trace are used.
func (s *Server) Client(o redisconn.Options) (redisconn.Client, error) {
	client, err := Dial(s, o)
	if err != nil {
		return nil, err
	}
	return redisconn.Of(client), nil
}

// Dial is Client for callers that need the library's own client. It is not a method, because users of a Server would
// then compile the library's types.
func Dial(s *Server, o redisconn.Options) (redis.UniversalClient, error) {
	o.Addrs, o.Dialer = []string{"in-process:0"}, s.dial
	client, err := redisconn.Dial(o)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = client.Close()
		return nil, ErrClosed
	}
	s.clients = append(s.clients, client)
	return client, nil
}

func (s *Server) dial(context.Context, string, string) (net.Conn, error) {
	s.mu.Lock() // Close must see every connection, because nothing would end it later
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	client, server := newPipe()
	s.mini.Server().ServeConn(server)
	return client, nil
}

// Close ends the clients, the connections and the server, and waits for their goroutines. It may be called more than
// once.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.done
		return nil
	}
	s.closed = true
	clients := s.clients
	s.mu.Unlock()
	close(s.stop)
	<-s.done
	var err error
	for _, client := range clients {
		if e := client.Close(); e != nil && !errors.Is(e, redis.ErrClosed) {
			err = errors.Join(err, e)
		}
	}
	s.mini.Close()
	return err
}
