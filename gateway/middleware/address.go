package middleware

import (
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// peer returns the address at the other end of the connection, or the zero Addr if it cannot be parsed.
func peer(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}

// trusts reports whether the address is that of a trusted proxy.
func (p *Pipeline) trusts(addr netip.Addr) bool {
	return slices.ContainsFunc(p.Proxies, func(network netip.Prefix) bool { return network.Contains(addr) })
}

// Host returns the host of the request. X-Forwarded-Host counts only from a trusted proxy. The host parameter of
// Forwarded is ignored.
func (p *Pipeline) Host(r *http.Request) string {
	if len(p.Proxies) > 0 {
		if forwarded := r.Header.Values("X-Forwarded-Host"); len(forwarded) == 1 && p.trusts(peer(r)) {
			return forwarded[0]
		}
	}
	return r.Host
}

// remote returns the address of the caller. It is that of the connection, or, if a trusted proxy made the connection,
// the last address in X-Forwarded-For or Forwarded (RFC 7239) that is not a trusted proxy. It returns the zero Addr if
// that entry is not an address, or if both headers are present and disagree.
func (p *Pipeline) remote(r *http.Request) netip.Addr {
	addr := peer(r)
	if len(p.Proxies) == 0 && p.Unproxied == nil {
		return addr
	}
	xForwardedFor, forwarded := r.Header["X-Forwarded-For"], r.Header["Forwarded"]
	if p.Unproxied != nil && (xForwardedFor != nil || forwarded != nil) {
		p.Unproxied(r.Context())
	}
	if !p.trusts(addr) {
		return addr
	}
	switch {
	case xForwardedFor == nil && forwarded == nil:
		return addr
	case forwarded == nil:
		return p.lastUntrusted(strings.Split(strings.Join(xForwardedFor, ","), ","))
	}
	addr = p.lastUntrusted(forwardedFor(strings.Join(forwarded, ",")))
	if xForwardedFor != nil && addr != p.lastUntrusted(strings.Split(strings.Join(xForwardedFor, ","), ",")) {
		return netip.Addr{}
	}
	return addr
}

// lastUntrusted returns the last node that is not a trusted proxy, or the first node if all are trusted. A node that is
// not an address ends the search with the zero Addr, because the nodes before it are vouched for by it alone.
func (p *Pipeline) lastUntrusted(nodes []string) (addr netip.Addr) {
	for _, node := range slices.Backward(nodes) {
		if addr = nodeAddress(node); !p.trusts(addr) {
			return addr
		}
	}
	return addr
}

// nodeAddress parses an address with or without a port: 192.0.2.1, 192.0.2.1:80, 2001:db8::1, [2001:db8::1],
// [2001:db8::1]:80. It drops the zone, which has no meaning on another machine. It returns the zero Addr for anything
// else, such as unknown, an obfuscated identifier (_x) or an empty text.
func nodeAddress(node string) netip.Addr {
	node = strings.Trim(node, " \t")
	host, port, found := node, "", false
	if inner, bracketed := strings.CutPrefix(node, "["); bracketed {
		var closed bool
		if host, port, closed = strings.Cut(inner, "]"); !closed || !strings.Contains(host, ":") {
			return netip.Addr{}
		}
		if port, found = strings.CutPrefix(port, ":"); !found && port != "" {
			return netip.Addr{}
		}
	} else if strings.Count(node, ":") == 1 {
		host, port, found = strings.Cut(node, ":")
	}
	if found && !validPort(port) {
		return netip.Addr{}
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}
	}
	return addr.WithZone("").Unmap()
}

// validPort reports whether the text is a port number, or an obfuscated port of RFC 7239.
func validPort(text string) bool {
	if name, obfuscated := strings.CutPrefix(text, "_"); obfuscated {
		return name != "" && strings.Trim(name, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._-") == ""
	}
	_, err := strconv.ParseUint(text, 10, 16)
	return err == nil && len(text) <= 5
}

// forwardedFor returns the for= node of each element of a Forwarded header, in order. The node is empty if the element
// has none or several. If the header is malformed, forwardedFor returns one empty node.
func forwardedFor(header string) (nodes []string) {
	malformed := []string{""}
	node, named := "", 0
	for rest := header; ; {
		name, value, after, ok := forwardedPair(rest)
		if !ok {
			return malformed
		}
		if strings.EqualFold(name, "for") {
			node, named = value, named+1
		}
		if after != "" && after[0] == ';' {
			rest = after[1:]
			continue
		}
		if named != 1 {
			node = ""
		}
		nodes = append(nodes, node)
		if after == "" {
			return nodes
		}
		rest, node, named = after[1:], "", 0 // a comma
	}
}

// forwardedPair parses one name=value pair, which may be empty. after is the rest of the text, which begins with a
// semicolon or comma unless it is empty.
func forwardedPair(text string) (name, value, after string, ok bool) {
	text = strings.TrimLeft(text, " \t")
	if text == "" || text[0] == ';' || text[0] == ',' { // the grammar allows an empty one
		return "", "", text, true
	}
	name, text, found := strings.Cut(text, "=")
	if !found || strings.ContainsAny(name, " \t\";,") {
		return "", "", "", false
	}
	if quoted, is := strings.CutPrefix(text, `"`); is {
		value, text, ok = unquoted(quoted)
		text = strings.TrimLeft(text, " \t")
		return name, value, text, ok && (text == "" || text[0] == ';' || text[0] == ',')
	}
	end := strings.IndexAny(text, `;,"`)
	if end < 0 {
		end = len(text)
	}
	return name, strings.TrimRight(text[:end], " \t"), text[end:], !strings.HasPrefix(text[end:], `"`)
}

// unquoted parses a quoted string after its opening quote. after is the text behind the closing quote.
func unquoted(text string) (value, after string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			return b.String(), text[i+1:], true
		case '\\':
			if i++; i == len(text) {
				return "", "", false
			}
		}
		b.WriteByte(text[i])
	}
	return "", "", false
}
