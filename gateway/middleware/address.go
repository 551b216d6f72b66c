package middleware

import (
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// peer returns the address at the other end of the connection.
func peer(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}

func (p *Pipeline) trusts(addr netip.Addr) bool {
	return slices.ContainsFunc(p.Proxies, func(network netip.Prefix) bool { return network.Contains(addr) })
}

// host returns the host name asked for. X-Forwarded-Host counts only from a trusted proxy; the host of
// Forwarded never does.
func (p *Pipeline) host(r *http.Request) string {
	if len(p.Proxies) > 0 {
		if forwarded := r.Header.Values("X-Forwarded-Host"); len(forwarded) == 1 && p.trusts(peer(r)) {
			return forwarded[0]
		}
	}
	return r.Host
}

// remote returns the caller's address: the connection's own, or, where that is a trusted proxy's, the last
// one that X-Forwarded-For or Forwarded (RFC 7239) names and that is no trusted proxy. The zero Addr says
// that there is none: the header names something that is no address, or both are there and disagree.
func (p *Pipeline) remote(r *http.Request) netip.Addr {
	addr := peer(r)
	if len(p.Proxies) == 0 && p.Unproxied == nil {
		return addr
	}
	each, standard := r.Header["X-Forwarded-For"], r.Header["Forwarded"]
	if p.Unproxied != nil && (each != nil || standard != nil) {
		p.Unproxied(r.Context())
	}
	if !p.trusts(addr) {
		return addr
	}
	switch {
	case each == nil && standard == nil:
		return addr
	case standard == nil:
		return p.farthest(strings.Split(strings.Join(each, ","), ","))
	}
	forwarded := p.farthest(forwardedFor(strings.Join(standard, ",")))
	if each != nil && forwarded != p.farthest(strings.Split(strings.Join(each, ","), ",")) {
		return netip.Addr{}
	}
	return forwarded
}

// farthest returns the last of the nodes that is no trusted proxy, the first where all are. One that is no
// address ends the search: whatever stands before it, only who could not be read vouches for.
func (p *Pipeline) farthest(nodes []string) (addr netip.Addr) {
	for _, node := range slices.Backward(nodes) {
		if addr = nodeAddress(node); !p.trusts(addr) {
			return addr
		}
	}
	return addr
}

// nodeAddress reads an address with or without a port: 192.0.2.1, 192.0.2.1:80, 2001:db8::1, [2001:db8::1],
// [2001:db8::1]:80. A zone is dropped, since it means nothing to another machine. Whatever is no address gives
// the zero Addr: unknown, an obfuscated identifier (_x), an empty text.
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

// validPort reports whether the text is a port: a number, or an obfuscated one as RFC 7239 has them.
func validPort(text string) bool {
	if name, obfuscated := strings.CutPrefix(text, "_"); obfuscated {
		return name != "" && strings.Trim(name, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._-") == ""
	}
	_, err := strconv.ParseUint(text, 10, 16)
	return err == nil && len(text) <= 5
}

// forwardedFor returns the node that each element of a Forwarded header names by for=, in their order: empty
// where one names none, or more than one. A header that cannot be read as a whole has one element without any.
func forwardedFor(header string) (nodes []string) {
	unreadable := []string{""}
	node, named := "", 0
	for rest := header; ; {
		name, value, after, ok := forwardedPair(rest)
		if !ok {
			return unreadable
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

// forwardedPair reads one name=value, or nothing, up to the next semicolon, comma or the end, which after begins with.
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

// unquoted reads a quoted string whose first quote has been read, and returns what follows it.
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
