package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"tenantry/gateway/cli"
)

// answer is the result of a run of the command.
type answer struct {
	code           int
	stdout, stderr string
}

// run runs the command to its end.
func run(t *testing.T, stdin string, args ...string) answer {
	t.Helper()
	return runWith(t, nil, stdin, args...)
}

func runWith(t *testing.T, environ []string, stdin string, args ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code := cli.Main(ctx, args, strings.NewReader(stdin), &stdout, &stderr, environ, nil)
	return answer{code, stdout.String(), stderr.String()}
}

// must runs a command, fails the test unless it succeeds, and parses its result.
func must[T any](t *testing.T, stdin string, args ...string) T {
	t.Helper()
	a := run(t, stdin, args...)
	if a.code != 0 {
		t.Fatalf("tenantry %q: exit %d\n%s%s", args, a.code, a.stdout, a.stderr)
	}
	var v T
	if err := json.Unmarshal([]byte(a.stdout), &v); err != nil {
		t.Fatalf("tenantry %q: the result is not JSON: %v\n%s", args, err, a.stdout)
	}
	return v
}

// lines is a writer whose lines a test can await.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	r    *io.PipeReader
	w    *io.PipeWriter
	in   chan string
}

func newLines() *lines {
	l := &lines{in: make(chan string, 100)}
	l.r, l.w = io.Pipe()
	go func() {
		defer close(l.in)
		s := bufio.NewScanner(l.r)
		for s.Scan() {
			l.in <- s.Text()
		}
	}()
	return l
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	l.text.Write(p)
	l.mu.Unlock()
	return l.w.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// process is a command that runs until it is stopped.
type process struct {
	stdout *lines
	stderr *lines
	stop   context.CancelFunc
	code   chan int
}

// launch runs a command in the background until the end of the test.
func launch(t *testing.T, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{stdout: newLines(), stderr: newLines(), stop: cancel, code: make(chan int, 1)}
	go func() { // drains the lines of standard error, which tests do not await
		for range p.stderr.in {
		}
	}()
	go func() {
		code := cli.Main(ctx, args, strings.NewReader(""), p.stdout, p.stderr, nil, nil)
		_ = p.stdout.w.Close()
		_ = p.stderr.w.Close()
		p.code <- code
	}()
	t.Cleanup(func() { p.end(t) })
	return p
}

// end stops the command and returns its exit code.
func (p *process) end(t *testing.T) int {
	t.Helper()
	p.stop()
	select {
	case code := <-p.code:
		p.code <- code
		return code
	case <-time.After(20 * time.Second):
		t.Fatal("the command did not end")
		return -1
	}
}

// line awaits the next line of standard output.
func (p *process) line(t *testing.T) string {
	t.Helper()
	select {
	case text, ok := <-p.stdout.in:
		if !ok {
			t.Fatalf("the command ended: %s", p.stderr)
		}
		return text
	case <-time.After(20 * time.Second):
		t.Fatalf("no line came; standard error holds: %s", p.stderr)
		return ""
	}
}

// serve runs the gateway on the folder and returns it with its addresses.
func serve(t *testing.T, dir string) (p *process, addr, admin string) {
	t.Helper()
	p = launch(t, "serve", "--init", "--data", dir, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	text := p.line(t)
	found := regexp.MustCompile(`^tenantry is ready on http://(127\.0\.0\.1:\d+) \(operations on http://(127\.0\.0\.1:\d+)\)$`).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("serve printed %q", text)
	}
	return p, found[1], found[2]
}

// ask reads a path of an organization of the gateway at addr.
func ask(t *testing.T, addr, slug, path, key string) (int, string) {
	t.Helper()
	return send(t, http.MethodGet, addr, slug, path, key, "")
}

// send sends a request to an organization of the gateway at addr.
func send(t *testing.T, method, addr, slug, path, key, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if slug != "" { // the operations listener answers to its own names alone
		req.Host = slug + ".localhost"
	}
	if key != "" {
		req.Header.Set("x-service-token", key)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

func contains(text string, parts ...string) error {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return fmt.Errorf("%q is missing in:\n%s", part, text)
		}
	}
	return nil
}
