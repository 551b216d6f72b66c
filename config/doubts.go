package config

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Doubt is something that works and is seldom meant, in words for whoever runs the gateway: what it is about, what is
// so, and what to do. What is unsafe is no doubt but a fault, with which nothing starts.
type Doubt struct{ About, Says, Advice string }

// How many addresses proxies may have on the internet, by the length of a prefix: as many as a network with a shorter
// one has are refused where it is shorter than the first, and doubted where than the second.
const (
	widestIPv4, wideIPv4 = 8, 12
	widestIPv6, wideIPv6 = 16, 24
)

// doubt notes what is seldom meant of the settings, and reports what is unsafe as a fault. memory is that of the
// machine in bytes, 0 where it is not known.
func (c *Config) doubt(memory uint64, fault func(name, format string, args ...any)) {
	note := func(about, advice, format string, args ...any) {
		c.Doubts = append(c.Doubts, Doubt{about, fmt.Sprintf(format, args...), advice})
	}
	for _, of := range []struct{ bits, widest, wide int }{{32, widestIPv4, wideIPv4}, {128, widestIPv6, wideIPv6}} {
		switch named, share := c.publicProxies(of.bits); {
		case share >= math.Ldexp(1, 1-of.widest):
			fault("trusted_proxies", "%s holds so many addresses that any caller could name another's as its own, "+
				"which opens lists of addresses and evades limits: name the networks of your own proxies, like 10.0.0.0/8", named)
		case share >= math.Ldexp(1, 1-of.wide):
			note("trusted_proxies", "name no more than the networks of your own proxies", "%s is very wide: whoever has an address in it may say where calls come from", named)
		}
	}
	if u, err := url.Parse(strings.ReplaceAll(c.PublicURL, "{slug}", "slug")); err == nil && c.PublicURL != "" && c.BaseDomain != "" &&
		!strings.EqualFold(u.Hostname(), "slug."+strings.Trim(c.BaseDomain, ".")) {
		note("base_domain", "set public_url to https://{slug}."+c.BaseDomain+", or leave base_domain out",
			"links are written as %s, but only hosts like <slug>.%s are answered: links lead nowhere, and people cannot sign in there", c.PublicURL, c.BaseDomain)
	}
	if cache := uint64(max(c.SQLite.Cache, 0)) << 20; memory > 0 && c.BackendsOf(EngineSQLite) > 0 {
		mib := memory >> 20
		switch {
		case cache > memory:
			fault("sqlite.cache", "%d MiB are more than the %d MiB of memory that this process may use: set it to %d or less",
				c.SQLite.Cache, mib, mib/4)
		case cache > memory/2:
			note("sqlite.cache", fmt.Sprintf("set it to %d or less", mib/4),
				"%d MiB are more than half of the %d MiB of memory that this process may use", c.SQLite.Cache, mib)
		}
	}
	if limit := uint64(max(c.Memory.Limit, 0)) << 20; memory > 0 && limit > memory {
		note("memory.limit", fmt.Sprintf("set it below %d", memory>>20),
			"%d MiB are more than the %d MiB of memory that this process may use, so it bounds nothing", c.Memory.Limit, memory>>20)
	}
}

// publicProxies returns the networks of trusted_proxies whose addresses have that many bits and are somebody's on the
// internet, in words, and their share of all such addresses, each counted once.
func (c *Config) publicProxies(bits int) (named string, share float64) {
	type written struct {
		netip.Prefix
		text string
	}
	var all, apart []written
	for _, text := range c.TrustedProxies {
		if network, err := ParseNetwork(text); err == nil && network.Addr().BitLen() == bits && !private(network) {
			all = append(all, written{network, text})
		}
	}
	slices.SortStableFunc(all, func(a, b written) int { return cmp.Compare(a.Bits(), b.Bits()) })
	for _, network := range all {
		if !slices.ContainsFunc(apart, func(wider written) bool { return wider.Overlaps(network.Prefix) }) {
			apart, share = append(apart, network), share+math.Ldexp(1, -network.Bits())
		}
	}
	switch n := len(apart); {
	case n > 2:
		named = fmt.Sprintf("%s, together with %d more networks,", apart[0].text, n-1)
	case n == 2:
		named = fmt.Sprintf("%s, together with %s,", apart[0].text, apart[1].text)
	case n == 1:
		named = apart[0].text
	}
	return named, share
}

// private reports whether a network has addresses alone that are not anybody's on the internet.
func private(network netip.Prefix) bool {
	return slices.ContainsFunc([]string{
		"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16", "127.0.0.0/8", "fc00::/7", "fe80::/10",
	}, func(text string) bool {
		known := netip.MustParsePrefix(text)
		return known.Bits() <= network.Bits() && known.Contains(network.Addr())
	})
}

// serviceLink fits the variables that Kubernetes puts into every container beside a Service whose name begins with
// tenantry: TENANTRY_PORT=tcp://10.0.0.1:80, TENANTRY_SERVICE_HOST and others.
var serviceLink = regexp.MustCompile(`^` + EnvPrefix + `([A-Z0-9_]+_)?(SERVICE_HOST=[0-9a-fA-F.:]+|SERVICE_PORT(_[A-Z0-9_]+)?=\d+|PORT=(tcp|udp|sctp)://.*|` +
	`PORT_\d+_(TCP|UDP|SCTP)(=(tcp|udp|sctp)://.*|_PROTO=(tcp|udp|sctp)|_PORT=\d+|_ADDR=[0-9a-fA-F.:]+))$`)

// linked notes the variables that are Kubernetes' own. They say nothing, so they are no fault.
func (c *Config) linked(variables []string) {
	if len(variables) == 0 {
		return
	}
	slices.Sort(variables)
	says := variables[0] + " was made by Kubernetes for a Service, and is no setting"
	if n := len(variables) - 1; n > 0 {
		says = fmt.Sprintf("%s and %d more variables were made by Kubernetes for a Service, and are no settings", variables[0], n)
	}
	c.Doubts = append(c.Doubts, Doubt{
		About: "environment", Says: says + "; they are ignored",
		Advice: "set enableServiceLinks: false for the pod, or give the Service a name that does not begin with tenantry",
	})
}
