// Package proxytest puts a TCP proxy in front of a server, for tests with a faulty network between them.
package proxytest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// Proxy forwards connections to a server until its test ends.
type Proxy struct {
	Addr     string // stays the same while the proxy breaks and heals
	server   *toxiproxy.ApiServer
	upstream string
	proxy    *toxiproxy.Proxy
}

// Start returns a proxy in front of the server at that address.
func Start(t testing.TB, upstream string) *Proxy {
	t.Helper()
	p := &Proxy{Addr: loopback(), server: toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), upstream: upstream}
	p.start(t)
	t.Cleanup(func() { p.proxy.Stop() })
	return p
}

// loopback returns a random loopback address on systems that have many of them, because another program may take the
// port that a proxy releases while it refuses connections.
func loopback() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1:0"
	}
	return fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}

func (p *Proxy) start(t testing.TB) {
	t.Helper()
	p.proxy = toxiproxy.NewProxy(p.server, "proxy", p.Addr, p.upstream)
	if err := p.proxy.Start(); err != nil {
		t.Fatalf("starting a proxy: %v", err)
	}
	p.Addr = p.proxy.Listen
}

// changeLimit is how long a change of the proxy may take.
const changeLimit = 5 * time.Second

// change applies a change to the proxy. The library may deadlock with a connection that has just ended; change then
// ends all connections and restarts the proxy.
func (p *Proxy) change(t testing.TB, do func(*toxiproxy.Proxy) error) {
	t.Helper()
	for {
		done := make(chan error, 1)
		go func(proxy *toxiproxy.Proxy) { done <- do(proxy) }(p.proxy)
		select {
		case err := <-done:
			if err != nil {
				t.Fatalf("changing the proxy: %v", err)
			}
			return
		case <-time.After(changeLimit):
			p.proxy.Stop()
			p.start(t)
		}
	}
}

// Fault is a kind of network fault.
type Fault struct {
	Name string
	// toxics are the faults in the terms of the proxy; without any the proxy does not listen.
	toxics []toxic
}

type toxic struct {
	Type       string         `json:"type"`
	Stream     string         `json:"stream"`
	Toxicity   float32        `json:"toxicity"`
	Attributes map[string]int `json:"attributes"`
}

func replies(kind string, attributes map[string]int) toxic {
	return toxic{kind, "downstream", 1, attributes}
}

// Refused cuts every connection and refuses new ones.
func Refused() Fault { return Fault{Name: "refused"} }

// Silent accepts connections and data, and never answers.
func Silent() Fault {
	return Fault{"silent", []toxic{replies("timeout", map[string]int{"timeout": 0})}}
}

// Late delays every reply by that many milliseconds, plus or minus jitter.
func Late(milliseconds, jitter int) Fault {
	return Fault{"late", []toxic{replies("latency", map[string]int{"latency": milliseconds, "jitter": jitter})}}
}

// Reset resets every connection at its first reply.
func Reset() Fault {
	return Fault{"reset", []toxic{replies("reset_peer", map[string]int{"timeout": 0})}}
}

// Cut ends every connection after that many bytes of replies, in the middle of one.
func Cut(bytes int) Fault {
	return Fault{"cut", []toxic{replies("limit_data", map[string]int{"bytes": bytes})}}
}

// Sliced sends replies in pieces of about size bytes, with that many microseconds between two.
func Sliced(size, microseconds int) Fault {
	return Fault{"sliced", []toxic{replies("slicer", map[string]int{"average_size": size, "size_variation": 1, "delay": microseconds})}}
}

// Lossy is Late, and drops all replies of that percentage of connections.
func Lossy(percent, milliseconds, jitter int) Fault {
	drop := replies("timeout", map[string]int{"timeout": 0})
	drop.Toxicity = float32(percent) / 100
	return Fault{"lossy", append(Late(milliseconds, jitter).toxics, drop)}
}

// Break starts the fault.
func (p *Proxy) Break(t testing.TB, f Fault) {
	t.Helper()
	if len(f.toxics) == 0 {
		p.proxy.Stop()
		return
	}
	p.change(t, func(proxy *toxiproxy.Proxy) error {
		for _, one := range f.toxics {
			text, err := json.Marshal(one)
			if err != nil {
				return err
			}
			if _, err := proxy.Toxics.AddToxicJson(strings.NewReader(string(text))); err != nil {
				return fmt.Errorf("%s: %w", f.Name, err)
			}
		}
		return nil
	})
}

// Heal ends all faults.
func (p *Proxy) Heal(t testing.TB) {
	t.Helper()
	p.change(t, func(proxy *toxiproxy.Proxy) error {
		proxy.Toxics.ResetToxics(context.Background())
		if err := proxy.Start(); err != nil && err != toxiproxy.ErrProxyAlreadyStarted { //nolint:errorlint // as that library returns it
			return err
		}
		return nil
	})
}
