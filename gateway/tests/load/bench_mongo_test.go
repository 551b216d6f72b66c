package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"tenantry/backends/mongo/mongotest"
	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
)

// BenchmarkReadsMongo makes every read over HTTP on one connection, with MongoDB. store-us is the time in which a
// request waits for calls of the storage engine, concurrent or sequential; own-us is the rest, in the gateway and in
// HTTP.
func BenchmarkReadsMongo(b *testing.B) {
	if os.Getenv(mongotest.Variable) == "" {
		b.Skip(mongotest.Variable + " names no server")
	}
	benchmarkReads(b)
}

// BenchmarkReadsMongoAway is the same with a network round trip of 2 ms to MongoDB.
func BenchmarkReadsMongoAway(b *testing.B) {
	server := os.Getenv(mongotest.Variable)
	if server == "" {
		b.Skip(mongotest.Variable + " names no server")
	}
	address, err := url.Parse(server)
	if err != nil {
		b.Fatal(err)
	}
	address.Host = away(b, address.Host, 2*time.Millisecond)
	database := mongotest.Database(b)
	benchmarkReads(b, func(cfg *config.Config, _ *gateway.Options) {
		if err := gatewaytest.UseMongo(cfg, address.String(), database); err != nil {
			b.Fatal(err)
		}
	})
}

// away returns an address that forwards to the server and delays its replies.
func away(b *testing.B, server string, delay time.Duration) string {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	var running sync.WaitGroup
	b.Cleanup(func() {
		_ = listener.Close()
		running.Wait()
	})
	running.Go(func() {
		for {
			here, err := listener.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", server)
			if err != nil {
				_ = here.Close()
				continue
			}
			running.Go(func() {
				_, _ = io.Copy(there, here) // it ends with the connection
				_ = there.Close()
			})
			running.Go(func() {
				defer here.Close()
				chunk := make([]byte, 1<<20)
				for {
					n, err := there.Read(chunk)
					time.Sleep(delay)
					if _, werr := here.Write(chunk[:n]); err != nil || werr != nil {
						return
					}
				}
			})
		}
	})
	return listener.Addr().String()
}

// BenchmarkReadsEmbedded is the same on SQLite.
func BenchmarkReadsEmbedded(b *testing.B) { benchmarkReads(b, gatewaytest.Embedded) }

func benchmarkReads(b *testing.B, options ...gatewaytest.Option) {
	var s spans
	w := fixture.NewWorld(b, append(options, quiet, s.option)...)
	for _, r := range readsOf(b, w.A) {
		b.Run(r.operation+"/"+r.name, func(b *testing.B) { benchmark(b, w.A, &r, &s) })
	}
}

func benchmark(b *testing.B, p *fixture.Party, r *read, s *spans) {
	conn, err := net.Dial("tcp", p.App.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	request, answers := r.bytes(b, p.Host), bufio.NewReader(conn)
	ask := func() {
		if _, err := conn.Write(request); err != nil {
			b.Fatal(err)
		}
		response, err := http.ReadResponse(answers, nil)
		if err != nil {
			b.Fatal(err)
		}
		_, err = io.Copy(io.Discard, response.Body)
		if err := errors.Join(err, response.Body.Close()); err != nil || response.StatusCode != r.code() {
			b.Fatal(response.Status, err)
		}
	}
	for range 3 {
		ask()
	}
	s.take()
	var total, inStore time.Duration
	calls, organizations := 0, 0
	b.ReportAllocs()
	for b.Loop() {
		began := time.Now()
		ask()
		total += time.Since(began)
		waited, n, others := s.take()
		inStore += waited
		calls += n
		organizations += others
	}
	each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / float64(b.N) }
	b.ReportMetric(each(total), "us/op")
	b.ReportMetric(each(inStore), "store-us/op")
	b.ReportMetric(each(total-inStore), "own-us/op")
	b.ReportMetric(float64(calls)/float64(b.N), "calls/op")
	b.ReportMetric(float64(organizations)/float64(b.N), "refreshes/op")
	b.ReportMetric(0, "ns/op")
}

// bytes formats the request as it goes over the wire.
func (r *read) bytes(b *testing.B, host string) []byte {
	b.Helper()
	request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://"+host+r.target, nil)
	if err != nil {
		b.Fatal(err)
	}
	for _, show := range r.Shown {
		show(request)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "GET %s HTTP/1.1\r\nHost: %s\r\n", request.URL.RequestURI(), host)
	if err := request.Header.Write(&out); err != nil {
		b.Fatal(err)
	}
	out.WriteString("\r\n")
	return out.Bytes()
}

// spans are the times of calls of the store.
type spans struct {
	mu     sync.Mutex
	all    []span
	others int // calls on organizations, which are read again twice a second
}

type span struct{ from, to time.Time }

func (s *spans) option(_ *config.Config, o *gateway.Options) {
	o.Observe = func(c store.Call) {
		now := time.Now()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all = append(s.all, span{now.Add(-c.Took), now})
		if c.Collection == "organizations" {
			s.others++
		}
	}
}

// take returns, since its last call, how long at least one call was in progress, the number of calls, and the number of
// additional calls that refreshed the organization.
func (s *spans) take() (waited time.Duration, calls, others int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortFunc(s.all, func(a, b span) int { return a.from.Compare(b.from) })
	var until time.Time
	for _, one := range s.all {
		if one.from.After(until) {
			until = one.from
		}
		if one.to.After(until) {
			waited += one.to.Sub(until)
			until = one.to
		}
	}
	calls, others = len(s.all)-s.others, s.others
	s.all, s.others = s.all[:0], 0
	return waited, calls, others
}
