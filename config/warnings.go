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

// Warning describes a setting that works but is seldom intended, in words for operators: what it is about, what is
// unusual, and what to do. Unsafe settings are faults instead, and nothing starts with them.
type Warning struct{ About, Says, Advice string }

// Bounds on the public addresses of trusted proxies, as lengths of a prefix. Networks that together have as many
// addresses as a prefix shorter than the widest are refused; a prefix shorter than the wide one is a warning.
const (
	widestIPv4, wideIPv4 = 8, 12
	widestIPv6, wideIPv6 = 16, 24
)

// warn adds warnings about settings that are seldom intended, and reports unsafe ones as faults. memory is that of the
// machine in bytes, 0 if it is unknown.
func (c *Config) warn(memory uint64, fault func(name, format string, args ...any)) {
	note := func(about, advice, format string, args ...any) {
		c.Warnings = append(c.Warnings, Warning{about, fmt.Sprintf(format, args...), advice})
	}
	for _, of := range []struct{ bits, widest, wide int }{{32, widestIPv4, wideIPv4}, {128, widestIPv6, wideIPv6}} {
		switch named, share := c.publicProxies(of.bits); {
		case share >= math.Ldexp(1, 1-of.widest):
			fault("trusted_proxies", "%s holds so many addresses that any caller could name another's as its own, "+
				"which bypasses address lists and limits: name the networks of your own proxies, like 10.0.0.0/8", named)
		case share >= math.Ldexp(1, 1-of.wide):
			note("trusted_proxies", "name only the networks of your own proxies",
				"%s is very wide: every host in it can claim any client address", named)
		}
	}

	u, err := url.Parse(strings.ReplaceAll(c.PublicURL, "{slug}", "slug"))
	if err == nil && c.PublicURL != "" && c.BaseDomain != "" &&
		!strings.EqualFold(u.Hostname(), "slug."+strings.Trim(c.BaseDomain, ".")) {
		note("base_domain", "set public_url to https://{slug}."+c.BaseDomain+", or leave base_domain out",
			"links are written as %s, but only hosts like <slug>.%s are answered: links lead nowhere, and people cannot sign in there",
			c.PublicURL, c.BaseDomain)
	}

	if c.Files.Store == FilesFolder && c.Files.Folder == "" && c.Backends[c.Control].Engine == EngineMongo {
		note("files.folder", "set it to a folder that all replicas share, or set files.store to s3",
			"the bytes of files are in the data folder of this process, where other replicas do not find them")
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
			"%d MiB are more than the %d MiB of memory that this process may use, so the limit has no effect",
			c.Memory.Limit, memory>>20)
	}
}

// publicProxies returns the public networks of trusted_proxies whose addresses have that many bits, in words, and their
// share of all such addresses. Overlapping networks are counted once.
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

// private reports whether all addresses of a network are private.
func private(network netip.Prefix) bool {
	return slices.ContainsFunc([]string{
		"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16", "127.0.0.0/8", "fc00::/7", "fe80::/10",
	}, func(text string) bool {
		known := netip.MustParsePrefix(text)
		return known.Bits() <= network.Bits() && known.Contains(network.Addr())
	})
}

// serviceLink matches the variables that Kubernetes sets in the containers of a namespace with a Service whose name
// begins with tenantry: TENANTRY_PORT=tcp://10.0.0.1:80, TENANTRY_SERVICE_HOST and others.
var serviceLink = regexp.MustCompile(`^` + EnvPrefix + `([A-Z0-9_]+_)?(SERVICE_HOST=[0-9a-fA-F.:]+|` +
	`SERVICE_PORT(_[A-Z0-9_]+)?=\d+|PORT=(tcp|udp|sctp)://.*|` +
	`PORT_\d+_(TCP|UDP|SCTP)(=(tcp|udp|sctp)://.*|_PROTO=(tcp|udp|sctp)|_PORT=\d+|_ADDR=[0-9a-fA-F.:]+))$`)

// warnServiceLinks adds a warning about variables that Kubernetes set. They are not settings, so they are not faults.
func (c *Config) warnServiceLinks(variables []string) {
	if len(variables) == 0 {
		return
	}
	slices.Sort(variables)
	says := variables[0] + " was set by Kubernetes for a Service and is not a setting; it is ignored"
	if n := len(variables) - 1; n > 0 {
		says = fmt.Sprintf("%s and %d more variables were set by Kubernetes for a Service and are not settings; they are ignored",
			variables[0], n)
	}
	c.Warnings = append(c.Warnings, Warning{
		About: "environment", Says: says,
		Advice: "set enableServiceLinks: false for the pod, or give the Service a name that does not begin with tenantry",
	})
}
