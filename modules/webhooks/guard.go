package webhooks

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"tenantry/internal/fault"
)

// guard says to which addresses may be sent. It is immutable.
type guard struct {
	allowed []netip.Prefix
}

// forbidden are the networks that belong to nobody on the internet, or lead into such networks by translation.
func forbidden() []netip.Prefix {
	var all []netip.Prefix
	for _, text := range strings.Fields(
		// "This network", private, shared (CGNAT), loopback, link-local, protocol assignments, documentation, 6to4
		// relays, benchmarks, multicast and reserved.
		"0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 " +
			"192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.168.0.0/16 192.175.48.0/24 198.18.0.0/15 " +
			"198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4 " +
			// Unspecified, loopback and IPv4-compatible; NAT64; discard; Teredo, benchmarks, ORCHID and documentation;
			// 6to4; documentation; segment routing; unique local; link-local; site-local; multicast.
			"::/96 64:ff9b::/96 64:ff9b:1::/48 100::/64 2001::/23 2001:db8::/32 2002::/16 3fff::/20 5f00::/16 " +
			"fc00::/7 fe80::/10 fec0::/10 ff00::/8",
	) {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// permits reports whether the operator allows the address, or it is one of the internet.
func (g *guard) permits(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	in := func(p netip.Prefix) bool { return p.Contains(a) }
	unicast := a.Is4() || netip.MustParsePrefix("2000::/3").Contains(a) // of IPv6 nothing else is of the internet
	return a.IsValid() && (slices.ContainsFunc(g.allowed, in) || unicast && !slices.ContainsFunc(forbidden(), in))
}

// names reports whether the operator has allowed the address by name, so that it may be used without TLS.
func (g *guard) names(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return slices.ContainsFunc(g.allowed, func(p netip.Prefix) bool { return p.Contains(a) })
}

// errForbidden: the address is not one to which may be sent. It does not say more, because callers must not learn which
// addresses exist inside.
var errForbidden = errors.New("the address is in a network to which nothing is sent")

type plainKey struct{}

// withoutTLS marks the context of a request without TLS.
func withoutTLS(ctx context.Context) context.Context { return context.WithValue(ctx, plainKey{}, true) }

// control refuses connections to addresses that the guard does not permit. It is called with the address that a name led
// to, right before the connection is made.
func (g *guard) control(ctx context.Context, _, address string, _ syscall.RawConn) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return errForbidden
	}
	a, err := netip.ParseAddr(host)
	if err != nil || !g.permits(a) || ctx.Value(plainKey{}) != nil && !g.names(a) {
		return errForbidden
	}
	return nil
}

const dialTimeout = 5 * time.Second

func (g *guard) dialer() *net.Dialer {
	return &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, ControlContext: g.control}
}

// check notes the faults of an address that a caller gives.
func (g *guard) check(text string, errs *fault.List) {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" || u.Hostname() == "" || strings.ContainsAny(text, " \t\\") {
		errs.Add("url", fault.Format, "url must be an address such as https://crm.example.com/tenantry")
		return
	}
	switch {
	case u.Scheme == "http" && len(g.allowed) > 0: // the address is checked when it is dialled
	case u.Scheme != "https":
		errs.Add("url", fault.Format, "url must begin with https://")
		return
	}
	if u.User != nil || u.Fragment != "" {
		errs.Add("url", fault.Format, "url must not have a user name, a password or a fragment")
		return
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil && !g.permits(a) {
		errs.Add("url", fault.Forbidden, "url: %s", errForbidden)
	}
}
