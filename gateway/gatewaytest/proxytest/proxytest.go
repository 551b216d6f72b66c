// Package proxytest puts a TCP proxy in front of a server, for tests of what happens while
// the network between them is in trouble.
package proxytest

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// Proxy leads to a server until its test ends.
type Proxy struct {
	Addr  string // stays the same
	proxy *toxiproxy.Proxy
}

// Start returns a proxy before the server at that address.
func Start(t testing.TB, upstream string) *Proxy {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &Proxy{proxy: toxiproxy.NewProxy(server, "proxy", "127.0.0.1:0", upstream)}
	if err := p.proxy.Start(); err != nil {
		t.Fatalf("starting a proxy: %v", err)
	}
	p.Addr = p.proxy.Listen
	t.Cleanup(p.proxy.Stop)
	return p
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
	for _, one := range f.toxics {
		text, err := json.Marshal(one)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.proxy.Toxics.AddToxicJson(strings.NewReader(string(text))); err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
	}
}

// Heal ends all trouble.
func (p *Proxy) Heal(t testing.TB) {
	t.Helper()
	p.proxy.Toxics.ResetToxics(context.Background())
	if err := p.proxy.Start(); err != nil && err != toxiproxy.ErrProxyAlreadyStarted { //nolint:errorlint // as that library returns it
		t.Fatalf("starting the proxy again: %v", err)
	}
}
