package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"
	"time"

	"tenantry/internal/maintest"
)

// asCommand is the variable with which the test binary runs as the command.
const asCommand = "TENANTRY_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		_ = os.Unsetenv(asCommand)
		os.Exit(run())
	}
	os.Exit(maintest.Run(m))
}

func command(ctx context.Context, t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	return cmd
}

// TestServerOutlivesClientsThatHangUp closes connections while answers are written to them. The failed writes raise
// SIGPIPE, which must not end the server.
func TestServerOutlivesClientsThatHangUp(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := command(ctx, t, "serve", "--init", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--admin-listen", "")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	found := regexp.MustCompile(`http://(\S+)`).FindStringSubmatch(line)
	if err != nil || found == nil {
		t.Fatalf("serve printed %q, %v, want its address", line, err)
	}
	address := found[1]
	request := bytes.Repeat([]byte("GET /api/openapi.json HTTP/1.1\r\nHost: acme.localhost\r\n\r\n"), 20)
	for i := range 50 {
		hangUp(t, address, request, time.Duration(i%5)*time.Millisecond)
	}
	if err := cmd.Process.Signal(syscall.SIGPIPE); err != nil {
		t.Fatalf("signalling the server: got %v, want a running server", err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for range 20 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/api/openapi.json", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatalf("after clients hung up: got %v, want an answer", err)
		}
		_ = resp.Body.Close()
		time.Sleep(5 * time.Millisecond) // a shutdown would take as long
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the server ended with %v after SIGTERM, want no error; it wrote %.500s", err, stderr.String())
	}
}

// hangUp sends requests and resets the connection after a moment.
func hangUp(t *testing.T, address string, request []byte, after time.Duration) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatalf("connecting: got %v, want a connection", err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write(request); err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
	time.Sleep(after)
	if err := conn.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
}

// TestCommandWhosePipeIsClosed checks that a command with a closed output reports an error instead of being killed.
func TestCommandWhosePipeIsClosed(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	cmd := command(t.Context(), t, "version")
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = w, &stderr
	err = cmd.Run()
	_ = w.Close()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !bytes.Contains(stderr.Bytes(), []byte("broken pipe")) {
		t.Errorf("the command ended with %v and printed %q, want code 1 and a broken pipe", err, stderr.String())
	}
}
