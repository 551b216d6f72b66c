// Package redistest starts real Redis servers for tests, which can kill and restart them. Tests are skipped if
// redis-server is not installed.
package redistest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"tenantry/tenants/redisconn"
)

// startLimit is how long a server may take to start.
const startLimit = 30 * time.Second

// Server is a redis-server process on the loopback address that ends with its test.
type Server struct {
	Addr string // the same after restarts
	Dir  string // folder of its snapshots and its log

	t       testing.TB
	program string
	args    []string
	probe   redisconn.Options // for connections that check whether it answers
	process *exec.Cmd
	exited  chan struct{}
}

// Option changes how a server is started.
type Option func(*Server)

// Args adds arguments to redis-server's command line.
func Args(args ...string) Option { return func(s *Server) { s.args = append(s.args, args...) } }

// Credentials sets the credentials with which the test itself connects to the server.
func Credentials(o redisconn.Options) Option { return func(s *Server) { s.probe = o } }

// Await returns once the client reaches its server, which can take a second after refused connections, because the
// client pauses.
func Await(t testing.TB, client redis.UniversalClient) {
	t.Helper()
	deadline := time.Now().Add(startLimit)
	for {
		err := client.Ping(context.Background()).Err()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the client does not come back: %v", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Program returns the path of an installed program of Redis, or skips the test.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed", name)
	}
	return path
}

// Start returns a running server without snapshots or append-only file, unless Args enable them.
func Start(t testing.TB, options ...Option) *Server {
	t.Helper()
	s := &Server{t: t, program: Program(t, "redis-server"), Addr: FreeAddr(t), Dir: t.TempDir()}
	for _, o := range options {
		o(s)
	}
	s.probe.Addrs = []string{s.Addr}
	t.Cleanup(s.Kill)
	s.Restart()
	return s
}

// FreeAddr returns a loopback address with a free port. The port is below the range that systems allocate from, because
// another process could get one of those before it is used.
func FreeAddr(t testing.TB) string {
	t.Helper()
	var err error
	for range 100 {
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000))); err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal(err)
	return ""
}

// Port returns the port of an address.
func Port(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

// Restart starts the server, which must not be running, with the data in its folder, and returns once it answers.
func (s *Server) Restart() {
	s.t.Helper()
	if s.process != nil {
		s.t.Fatal("the server is running already")
	}
	args := []string{"--bind", "127.0.0.1", "--dir", s.Dir, "--logfile", s.log(), "--save", "", "--daemonize", "no",
		"--databases", "16"}
	if s.probe.TLS == nil {
		args = append(args, "--port", Port(s.Addr))
	}
	s.awaitPort()
	process := exec.Command(s.program, append(args, s.args...)...)
	if err := process.Start(); err != nil {
		s.t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = process.Wait()
	}()
	s.process, s.exited = process, exited
	s.wait()
}

// awaitPort returns once the server can listen. The child with which a killed server was saving its data may still hold
// the port.
func (s *Server) awaitPort() {
	s.t.Helper()
	for deadline := time.Now().Add(startLimit); ; time.Sleep(5 * time.Millisecond) {
		l, err := net.Listen("tcp", s.Addr)
		if err == nil {
			_ = l.Close()
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatal(err)
		}
	}
}

func (s *Server) log() string { return filepath.Join(s.Dir, "log") }

// wait returns once the server answers. It probes with new connections, because the server listens before it has loaded
// its data, and an existing client would pause after a refused connection.
func (s *Server) wait() {
	s.t.Helper()
	deadline := time.Now().Add(startLimit)
	for {
		err := s.ask()
		if err == nil {
			return
		}
		select {
		case <-s.exited:
			s.t.Fatalf("redis-server ended at its start:\n%s", s.tail())
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("redis-server does not answer: %v\n%s", err, s.tail())
		}
	}
}

func (s *Server) ask() error {
	conn, err := net.Dial("tcp", s.Addr)
	if err != nil {
		return err
	}
	_ = conn.Close()
	client, err := redisconn.Open(s.probe)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return client.Ping(ctx)
}

func (s *Server) tail() string {
	text, err := os.ReadFile(s.log())
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(text, []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-15):], []byte("\n")))
}

// Kill ends the server as kill -9 does and waits until it is gone.
func (s *Server) Kill() {
	if s.process == nil {
		return
	}
	_ = s.process.Process.Kill()
	<-s.exited
	s.process = nil
}

// Signal sends a signal to the process, such as SIGSTOP.
func (s *Server) Signal(sig os.Signal) {
	s.t.Helper()
	if err := s.process.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// Open returns a client of the server, as the product creates it, that is closed with the test.
func (s *Server) Open(t testing.TB) redis.UniversalClient {
	t.Helper()
	return Open(t, s.probe)
}

// Open returns a client with these options that is closed with the test.
func Open(t testing.TB, o redisconn.Options) redis.UniversalClient {
	t.Helper()
	client, err := redisconn.Dial(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Cluster starts a cluster of three masters and returns their addresses. The test is skipped if the installed redis-cli
// cannot create one.
func Cluster(t testing.TB) []string {
	t.Helper()
	cli := Program(t, "redis-cli")
	// The help command exits with code 1.
	if help, _ := exec.Command(cli, "--cluster", "help").CombinedOutput(); !strings.Contains(string(help),
		"--cluster-replicas") {
		t.Skip("redis-cli cannot make clusters")
	}
	var addrs []string
	var first *Server
	for range 3 {
		s := Start(t, Args("--cluster-enabled", "yes", "--cluster-port", Port(FreeAddr(t)), "--cluster-node-timeout", "5000",
			"--cluster-config-file", "nodes.conf"))
		addrs = append(addrs, s.Addr)
		if first == nil {
			first = s
		}
	}
	args := append([]string{"--cluster", "create"}, addrs...)
	if out, err := exec.Command(cli, append(args, "--cluster-replicas", "0",
		"--cluster-yes")...).CombinedOutput(); err != nil {
		t.Fatalf("redis-cli --cluster create: %v\n%s", err, out)
	}
	// Every node must know the whole cluster before the test writes.
	deadline := time.Now().Add(startLimit)
	for _, addr := range addrs {
		client := Open(t, redisconn.Options{Addrs: []string{addr}})
		for {
			info, err := client.ClusterInfo(context.Background()).Result()
			if err == nil && strings.Contains(info, "cluster_state:ok") &&
				strings.Contains(info, "cluster_known_nodes:"+strconv.Itoa(len(addrs))) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the cluster does not form: %v\n%s\n%s", err, info, first.tail())
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return addrs
}
