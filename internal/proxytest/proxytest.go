// Package proxytest puts a TCP proxy in front of a server, for tests of what happens while
// the network between them is in trouble.
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

// Proxy leads to a server until its test ends.
type Proxy struct {
	Addr     string // stays the same
	server   *toxiproxy.ApiServer
	upstream string
	proxy    *toxiproxy.Proxy
}

// Start returns a proxy before the server at that address.
func Start(t testing.TB, upstream string) *Proxy {
	t.Helper()
	p := &Proxy{Addr: loopback(), server: toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), upstream: upstream}
	p.start(t)
	t.Cleanup(func() { p.proxy.Stop() })
	return p
}

// loopback returns an address that nobody else uses, where there are many: a port that a proxy lets go of while it
// refuses may be somebody's when it listens again.
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

// changeLimit is how long a change of the trouble may take.
const changeLimit = 5 * time.Second

// change makes a change to the proxy. The library may wait for a connection that has just
// ended, which waits for the library; then all connections end, and the proxy begins anew.
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

// Fault is a kind of trouble.
type Fault struct {
	Name string
	// toxics as the proxy knows them; none: nobody listens.
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

// Silent takes connections and what is sent, and never answers.
func Silent() Fault {
	return Fault{"silent", []toxic{replies("timeout", map[string]int{"timeout": 0})}}
}

// Late holds every reply back for that many milliseconds, give or take jitter.
func Late(milliseconds, jitter int) Fault {
	return Fault{"late", []toxic{replies("latency", map[string]int{"latency": milliseconds, "jitter": jitter})}}
}

// Reset resets every connection at its first reply.
func Reset() Fault {
	return Fault{"reset", []toxic{replies("reset_peer", map[string]int{"timeout": 0})}}
}

// Cut ends every connection after so many bytes of replies, in the middle of one.
func Cut(bytes int) Fault {
	return Fault{"cut", []toxic{replies("limit_data", map[string]int{"bytes": bytes})}}
}

// Sliced sends replies in pieces of about size bytes, with so many microseconds between two.
func Sliced(size, microseconds int) Fault {
	return Fault{"sliced", []toxic{replies("slicer", map[string]int{"average_size": size, "size_variation": 1, "delay": microseconds})}}
}

// Lossy is Late, and of so many in a hundred connections no reply comes at all.
func Lossy(percent, milliseconds, jitter int) Fault {
	drop := replies("timeout", map[string]int{"timeout": 0})
	drop.Toxicity = float32(percent) / 100
	return Fault{"lossy", append(Late(milliseconds, jitter).toxics, drop)}
}

// Break begins the trouble.
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

// Heal ends all trouble.
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
