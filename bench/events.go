package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	streams      = 10_000 // of one organization
	fewerStreams = 1_000  // next to creates
	streamed     = 100    // events whose way to the readers is timed
)

// followed is a source whose organization has an event log.
func followed(from source, o place) source {
	return func(ctx context.Context, b *bench) (*traffic, error) {
		t, err := from(ctx, b)
		if err == nil {
			_, err = b.cursor(ctx, o)
		}
		return t, err
	}
}

// cursor follows an organization and returns its last cursor.
func (b *bench) cursor(ctx context.Context, o place) (string, error) {
	t, c, err := o(ctx, b)
	if err != nil {
		return "", err
	}
	_, body, err := t.ask(ctx, c.request(http.MethodGet, "/api/events", ""))
	_, next, found := strings.Cut(string(body), `"next":"`)
	if next, _, _ = strings.Cut(next, `"`); err == nil && !found {
		err = fmt.Errorf("no cursor in %s", body)
	}
	return next, err
}

// readers are connections that read the events of an organization.
type readers struct {
	conns []net.Conn
	mu    sync.Mutex
	came  map[string][]time.Time // when the event of each record arrived, once its reader has ended
	done  sync.WaitGroup
}

// openStreams opens n streams. Unless they are timed, what they are sent is only taken, as cheaply as possible.
func openStreams(ctx context.Context, t *traffic, c caller, n int, timed bool) (*readers, error) {
	r := &readers{came: map[string][]time.Time{}}
	for range n {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", t.addr)
		if err == nil {
			r.conns = append(r.conns, conn)
			_, err = conn.Write(c.request(http.MethodGet, "/api/events/stream", ""))
		}
		lines := bufio.NewReaderSize(conn, 1<<10)
		for line := ""; err == nil && !strings.HasPrefix(line, "id: "); {
			if line, err = lines.ReadString('\n'); strings.HasPrefix(line, "HTTP/1.1 ") && !strings.Contains(line, " 200 ") {
				err = errors.New(line)
			}
		}
		if err != nil {
			r.close()
			return nil, err
		}
		if timed {
			r.done.Go(func() { r.read(lines) })
		} else {
			r.done.Go(func() { take(conn) })
		}
	}
	return r, nil
}

// read notes when each event arrived. Readers share nothing until they end, so that none waits for another.
func (r *readers) read(lines *bufio.Reader) {
	type arrival struct {
		record string
		at     time.Time
	}
	var own []arrival
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			break
		}
		if _, after, found := bytes.Cut(line, []byte(`"record":"`)); found {
			record, _, _ := bytes.Cut(after, []byte(`"`))
			own = append(own, arrival{string(record), time.Now()})
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range own {
		r.came[a.record] = append(r.came[a.record], a.at)
	}
}

// take reads until the connection ends.
func take(conn net.Conn) {
	part := make([]byte, 64<<10)
	for {
		if _, err := conn.Read(part); err != nil {
			return
		}
	}
}

func (r *readers) close() {
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.done.Wait()
}

// streaming measures the memory of many streams, and how long an event takes from the answer of its create to a reader.
func streaming(o place) func(context.Context, *bench) ([]fact, error) {
	return func(ctx context.Context, b *bench) ([]fact, error) {
		t, c, err := o(ctx, b)
		if err != nil {
			return nil, err
		}
		if _, err = b.cursor(ctx, o); err != nil {
			return nil, err
		}
		n := streams / b.small
		before := t.server.resident()
		r, err := openStreams(ctx, t, c, n, true)
		if err != nil {
			return nil, err
		}
		defer r.close()
		answered := map[string]time.Time{}
		for range streamed {
			_, body, err := t.ask(ctx, c.request(http.MethodPost, "/api/custom/objects/tree/records", `{"values":{"species":"oak","height":21.5}}`))
			if err != nil {
				return nil, err
			}
			_, id, _ := strings.Cut(string(body), `"id":"`)
			id, _, _ = strings.Cut(id, `"`)
			answered[id] = time.Now()
			time.Sleep(250 * time.Millisecond)
		}
		resident := t.server.resident()
		time.Sleep(time.Second) // the last ones arrive
		r.close()
		time.Sleep(2 * time.Second) // the gateway notices within a second
		var took []float64
		for id, at := range answered {
			for _, came := range r.came[id] {
				took = append(took, max(0, came.Sub(at).Seconds()*1000))
			}
		}
		if len(took) != streamed*n {
			return nil, fmt.Errorf("%d events arrived, want %d", len(took), streamed*n)
		}
		slices.Sort(took)
		return []fact{
			{what: fmt.Sprintf("resident memory with %s streams of one organization", withCommas(n)),
				figure: fmt.Sprintf("%d MiB, before %d", resident>>20, before>>20), goal: "200 MiB more"},
			{what: fmt.Sprintf("from the answer of a create to each of %s readers", withCommas(n)),
				figure: fmt.Sprintf("median %s ms, p99 %s ms", number(took[len(took)/2]), number(took[len(took)*99/100])), goal: "p99 50 ms"},
		}, nil
	}
}

// besideStreams measures creates in an organization that is followed by streams.
func besideStreams(from source, o place, n int) source {
	return func(ctx context.Context, b *bench) (*traffic, error) {
		t, err := from(ctx, b)
		if err != nil {
			return nil, err
		}
		run := *t
		run.prepare = func(ctx context.Context, _ *traffic) error {
			own, c, err := o(ctx, b)
			if err != nil {
				return err
			}
			_, err = memoize(b, "streams", func() (*readers, error) { return openStreams(ctx, own, c, n/b.small, false) })
			return err
		}
		return &run, nil
	}
}
