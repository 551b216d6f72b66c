package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

//go:embed load.lua
var script []byte

// spread says in which order the requests of a side are sent.
type spread string

const (
	even spread = "even" // at random, all equally likely
	zipf spread = "zipf" // at random, the k-th with a probability proportional to 1/k^1.1
	once spread = "once" // in order, each once
)

// traffic is the requests for one side of a line.
type traffic struct {
	*process
	server   *server // Tenantry, which reports failed requests; nil: a rival
	requests [][]byte
	spread   spread
	// prepare, if not nil, restores before each run what the previous run used up.
	prepare func(context.Context, *traffic) error
}

// result is one run of wrk.
type result struct {
	Requests float64 `json:"requests"`
	Seconds  float64 `json:"seconds"`
	Median   float64 `json:"median"` // µs from request to answer
	P99      float64 `json:"p99"`    // the 99th percentile of the same
	Refused  float64 `json:"refused"`
	Broken   float64 `json:"broken"` // failed connections and missing answers
	cpu      time.Duration
}

func (r result) rate() float64 { return r.Requests / r.Seconds }

var errNoAnswer = errors.New("no request was answered; use -seconds to allow more time")

// readResult reads the result that our script wrote into the output of wrk.
func readResult(output []byte) (r result, err error) {
	_, told, found := bytes.Cut(output, []byte("\nresult "))
	if !found {
		return r, fmt.Errorf("wrk printed no result: %q", output[max(0, len(output)-500):])
	}
	if err := json.NewDecoder(bytes.NewReader(told)).Decode(&r); err != nil {
		return r, fmt.Errorf("reading the result of wrk: %w", err)
	}
	if r.Requests <= 0 || r.Seconds <= 0 {
		return r, errNoAnswer
	}
	return r, nil
}

// run sends the traffic for that many seconds over that many connections.
func (b *bench) run(ctx context.Context, t *traffic, connections int, seconds float64) (r result, err error) {
	if t.prepare != nil {
		if err := t.prepare(ctx, t); err != nil {
			return r, err
		}
	}
	if err := t.check(ctx); err != nil {
		return r, err
	}
	asked, err := b.requests(t.requests)
	if err != nil {
		return r, err
	}
	defer os.Remove(asked)
	failed, err := t.failed(ctx)
	if err != nil {
		return r, err
	}
	used := t.cpu()
	cmd := exec.CommandContext(ctx, b.wrk, "-t1", fmt.Sprintf("-c%d", connections), fmt.Sprintf("-d%.0fs", max(1, seconds)), "--timeout", "60s",
		"-s", filepath.Join(b.dir, "load.lua"), "http://"+t.addr, "--", asked, string(t.spread))
	output, err := cmd.CombinedOutput()
	if err != nil {
		return r, fmt.Errorf("wrk: %w: %s", err, output)
	}
	if r, err = readResult(output); err != nil {
		return r, err
	}
	r.cpu = t.cpu() - used
	after, err := t.failed(ctx)
	r.Refused += after - failed
	return r, err
}

// failed returns how many answers of the server were failures with the code 200, which wrk counts as successes.
func (t *traffic) failed(ctx context.Context) (float64, error) {
	if t.server == nil {
		return 0, nil
	}
	return t.server.figures(ctx, "tenantry_requests_total", `code="200"`, `status="failed"`)
}

// check sends the first request, if it may be repeated, so that no failing request is measured.
func (t *traffic) check(ctx context.Context) error {
	if t.spread == once {
		return nil
	}
	_, _, err := t.ask(ctx, t.requests[0])
	return err
}

// ask sends one request unchanged. Every answer except a success is an error.
func (t *traffic) ask(ctx context.Context, request []byte) (header http.Header, body []byte, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", t.addr)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := conn.Write(request); err != nil {
		return nil, nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(io.LimitReader(resp.Body, 64<<20)); err != nil {
		return nil, nil, err
	}
	envelope := struct{ Status string }{"ok"}
	if t.server != nil && strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") { // a file has no envelope
		err = json.Unmarshal(body, &envelope)
	}
	if err != nil || resp.StatusCode != http.StatusOK || envelope.Status != "ok" {
		line, _, _ := bytes.Cut(request, []byte("\r\n"))
		return nil, nil, fmt.Errorf("%s: got %s: %.500s", line, resp.Status, body)
	}
	return resp.Header, body, nil
}

// requests writes the requests to a new file and returns its path.
func (b *bench) requests(all [][]byte) (string, error) {
	f, err := os.CreateTemp(b.dir, "requests-*")
	if err != nil {
		return "", err
	}
	w := bufio.NewWriter(f)
	for _, r := range all {
		fmt.Fprintf(w, "%d\n%s", len(r), r)
	}
	return f.Name(), errors.Join(w.Flush(), f.Close())
}

// While the warm-up of our side has a median (in µs) above slowMedian, Tenantry may be making an index for its queries.
// compare waits for that, at most for indexWait.
const (
	slowMedian = 500_000
	indexWait  = 3 * time.Minute
)

// compare measures the sides of a line in turns and returns the results of each. The first turn warms up.
func (b *bench) compare(ctx context.Context, sides []*traffic, connections []int) ([][]result, error) {
	results := make([][]result, len(sides))
	for turn := range b.turns + 1 {
		order := make([]int, len(sides))
		for i := range order {
			order[i] = i
		}
		if turn%2 == 0 { // other work of the machine must not always affect the same side
			slices.Reverse(order)
		}
		for _, i := range order {
			seconds := b.seconds
			if turn == 0 { // warms up
				if sides[i].prepare != nil {
					continue
				}
				seconds = 1
			}
			r, err := b.run(ctx, sides[i], connections[i], seconds)
			for began := time.Now(); turn == 0 && i == 0 && time.Since(began) < indexWait && (errors.Is(err, errNoAnswer) || r.Median > slowMedian); {
				r, err = b.run(ctx, sides[i], connections[i], seconds)
			}
			if turn == 0 && errors.Is(err, errNoAnswer) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if turn > 0 {
				results[i] = append(results[i], r)
			}
		}
	}
	return results, nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
