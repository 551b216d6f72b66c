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

// spread says which of its requests a side is asked next.
type spread string

const (
	even spread = "even" // any, each as likely
	zipf spread = "zipf" // the k-th with a likelihood of 1/k^1.1
	once spread = "once" // one after the other, each once, and then no more
)

// traffic is what one side of a line is asked.
type traffic struct {
	*process
	server   *server // Tenantry, which tells how many requests failed; nil: a rival
	requests [][]byte
	spread   spread
	// again, where it is there, makes ready for each run what the one before used up.
	again func(context.Context, *traffic) error
}

// result is one run of wrk.
type result struct {
	Requests float64 `json:"requests"`
	Seconds  float64 `json:"seconds"`
	Median   float64 `json:"median"` // µs from request to answer
	P99      float64 `json:"p99"`    // the 99th percentile of the same
	Refused  float64 `json:"refused"`
	Broken   float64 `json:"broken"` // connections, and answers that did not come
	cpu      time.Duration
}

func (r result) rate() float64 { return r.Requests / r.Seconds }

var errNoAnswer = errors.New("no request was answered; -seconds gives more time")

// readResult finds what our script wrote in the output of wrk.
func readResult(output []byte) (r result, err error) {
	_, told, found := bytes.Cut(output, []byte("\nresult "))
	if !found {
		return r, fmt.Errorf("wrk told no result: %q", output[max(0, len(output)-500):])
	}
	if err := json.NewDecoder(bytes.NewReader(told)).Decode(&r); err != nil {
		return r, fmt.Errorf("what wrk told: %w", err)
	}
	if r.Requests <= 0 || r.Seconds <= 0 {
		return r, errNoAnswer
	}
	return r, nil
}

// run asks for so many seconds, on so many connections.
func (b *bench) run(ctx context.Context, t *traffic, connections int, seconds float64) (r result, err error) {
	if t.again != nil {
		if err := t.again(ctx, t); err != nil {
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

// failed returns how many answers of the server were failures that wrk takes for successes.
func (t *traffic) failed(ctx context.Context) (float64, error) {
	if t.server == nil {
		return 0, nil
	}
	return t.server.figures(ctx, "tenantry_requests_total", `code="200"`, `status="failed"`)
}

// check asks once what can be asked more than once, so that no failure is measured.
func (t *traffic) check(ctx context.Context) error {
	if t.spread == once {
		return nil
	}
	_, _, err := t.ask(ctx, t.requests[0])
	return err
}

// ask sends one request as it stands. Any answer but a success is an error.
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
	if t.server != nil && strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") { // a file is none
		err = json.Unmarshal(body, &envelope)
	}
	if err != nil || resp.StatusCode != http.StatusOK || envelope.Status != "ok" {
		line, _, _ := bytes.Cut(request, []byte("\r\n"))
		return nil, nil, fmt.Errorf("%s is answered %s: %.500s", line, resp.Status, body)
	}
	return resp.Header, body, nil
}

// requests writes them to a file of their own, and returns its path.
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

// While ours is slow before it is measured, in µs by the median, it may be making the index that this deserves: that is
// waited for so long.
const (
	slow     = 500_000
	patience = 3 * time.Minute
)

// compare asks the sides of a line in turns, and returns the results of each.
func (b *bench) compare(ctx context.Context, sides []*traffic, connections []int) ([][]result, error) {
	results := make([][]result, len(sides))
	for turn := range b.turns + 1 {
		order := make([]int, len(sides))
		for i := range order {
			order[i] = i
		}
		if turn%2 == 0 { // what the machine does besides must not meet the same side always
			slices.Reverse(order)
		}
		for _, i := range order {
			seconds := b.seconds
			if turn == 0 { // warms up
				if sides[i].again != nil {
					continue
				}
				seconds = 1
			}
			r, err := b.run(ctx, sides[i], connections[i], seconds)
			for began := time.Now(); turn == 0 && i == 0 && time.Since(began) < patience && (errors.Is(err, errNoAnswer) || r.Median > slow); {
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
