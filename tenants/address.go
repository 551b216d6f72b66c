package tenants

import "net/netip"

// NetworkOf names the callers who share a bound: an IPv4 address, or the /64 that an IPv6
// subscriber has to himself.
func NetworkOf(remote netip.Addr) string {
	remote = remote.Unmap().WithZone("")
	switch {
	case !remote.IsValid():
		return "none"
	case remote.Is4():
		return remote.String()
	}
	p, err := remote.Prefix(64)
	if err != nil {
		return "none"
	}
	return p.Addr().String()
}
