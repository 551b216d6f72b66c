package webhooks

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"tenantry/internal/fault"
)

// TestGuard: nothing is sent to addresses that are not of the internet, however they are written, unless the operator
// allows them.
func TestGuard(t *testing.T) {
	t.Parallel()
	allowing := &guard{allowed: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/32")}}
	for address, want := range map[string]bool{
		"93.184.216.34": true, "8.8.8.8": true, "2606:2800:220:1:248:1893:25c8:1946": true, "::ffff:8.8.8.8": true, "172.32.0.1": true, "100.128.0.1": true,
		"0.0.0.0": false, "10.0.0.1": false, "10.255.255.255": false, "100.64.0.1": false, "127.0.0.1": false, "127.9.9.9": false,
		"169.254.169.254": false, "172.16.0.1": false, "172.31.255.255": false, "192.0.0.8": false, "192.0.2.1": false, "192.88.99.1": false,
		"192.168.1.1": false, "198.18.0.1": false, "198.51.100.1": false, "203.0.113.1": false, "224.0.0.1": false, "239.255.255.250": false,
		"240.0.0.1": false, "255.255.255.255": false,
		"::": false, "::1": false, "::7f00:1": false, "::ffff:127.0.0.1": false, "::ffff:10.0.0.1": false, "64:ff9b::a00:1": false, "::ffff:0:127.0.0.1": false, "4000::1": false, "64:ff9b:1::1": false,
		"100::1": false, "2001::1": false, "2001:db8::1": false, "2002:a00:1::": false, "2002:808:808::1": false, "3fff::1": false, "fc00::1": false,
		"fd12:3456::1": false, "fe80::1": false, "fe80::1%eth0": false, "fec0::1": false, "ff02::1": false,
	} {
		a := netip.MustParseAddr(address)
		if got := (&guard{}).permits(a); got != want {
			t.Errorf("permits(%s) = %t, want %t", address, got, want)
		}
	}
	for address, want := range map[string]bool{"10.1.2.3": true, "10.2.0.1": false, "::ffff:10.1.2.3": true, "fd00:1::9": true, "fd00:2::9": false} {
		if got := allowing.permits(netip.MustParseAddr(address)); got != want {
			t.Errorf("with networks allowed, permits(%s) = %t, want %t", address, got, want)
		}
	}
}

// TestGuard_Control: the address that is dialled decides, and one without TLS must be in a network that is allowed.
func TestGuard_Control(t *testing.T) {
	t.Parallel()
	g := &guard{allowed: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}
	plain := t.Context()
	for address, want := range map[string]bool{
		"127.0.0.1:80": true, "127.0.0.2:80": false, "8.8.8.8:443": true, "[::1]:443": false, "name.example.com:443": false, "": false,
	} {
		if got := g.control(plain, "tcp", address, nil) == nil; got != want {
			t.Errorf("dialling %q is permitted: %t, want %t", address, got, want)
		}
	}
	without := withoutTLS(plain)
	for address, want := range map[string]bool{"127.0.0.1:80": true, "8.8.8.8:80": false} {
		if got := g.control(without, "tcp", address, nil) == nil; got != want {
			t.Errorf("dialling %q without TLS is permitted: %t, want %t", address, got, want)
		}
	}
	var errs fault.List
	if g.check("http://127.0.0.1/", &errs); len(errs) > 0 {
		t.Errorf("got %v, want http to be taken where networks are allowed", errs)
	}
}

// TestBackoff: tries become rarer, and Retry-After is read in both forms and bounded.
func TestBackoff(t *testing.T) {
	t.Parallel()
	for n := range 20 {
		if backoff(n+1) < backoff(n) {
			t.Errorf("backoff(%d) = %s after %s, want no less", n+1, backoff(n+1), backoff(n))
		}
	}
	now := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "120": 2 * time.Minute, "-5": 0, "soon": 0, "99999999": maxRetryAfter, "Sun, 22 Nov 2026 10:01:00 GMT": time.Minute,
		"Sun, 22 Nov 2026 09:00:00 GMT": 0,
	} {
		if got := retryAfter(text, now); got != want {
			t.Errorf("retryAfter(%q) = %s, want %s", text, got, want)
		}
	}
}

// TestDeliveryID: notes of one webhook have the order of events.
func TestDeliveryID(t *testing.T) {
	t.Parallel()
	const hook = "665f1c2ab4d3e2f1a0b9c8d7"
	if a, b := deliveryID(hook, "k3f4x2m7qa-9"), deliveryID(hook, "k3f4x2m7qa-10"); len(a) != 24 || a >= b {
		t.Errorf("got %s and %s, want 24 digits in the order of events", a, b)
	}
	if got := before("k3f4x2m7qa-10"); got != "k3f4x2m7qa-9" {
		t.Errorf("before = %s", got)
	}
}

// TestDeliveryIDs: notes of different webhooks, and of different events, have different identifiers, also if the
// identifiers of the webhooks end alike, and those of one webhook are in the order of events.
func TestDeliveryIDs(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, hook := range []string{"6b0ad9cd361bb242eb542065", "6b0ad9ce361bb242eb542065"} {
		last := ""
		for i := range 1000 {
			id := deliveryID(hook, fmt.Sprintf("k3f4x2m7qa-%d", i+1))
			if seen[id] || id <= last || len(id) != len(hook) {
				t.Fatalf("%s is given twice, or not in order", id)
			}
			seen[id], last = true, id
		}
	}
}
