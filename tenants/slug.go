package tenants

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"tenantry/internal/fault"
	"tenantry/internal/texts"
)

const (
	maxSlug = 63  // a label of a host name
	maxHost = 253 // a host name without its trailing dot
)

// reservedSlugs returns names that a visitor could mistake for the service itself.
func reservedSlugs() []string {
	return []string{
		"abuse", "account", "accounts", "admin", "administrator", "api", "app", "apps", "assets", "auth", "autoconfig",
		"autodiscover", "billing", "blog", "cdn", "console", "dashboard", "demo", "dev", "dns", "docs", "download",
		"example", "files", "ftp", "gateway", "git", "help", "hostmaster", "id", "imap", "info", "internal", "localhost",
		"login", "mail", "media", "metrics", "monitoring", "mx", "ns", "ns1", "ns2", "oauth", "openapi", "pop", "postmaster",
		"public", "register", "root", "secure", "security", "shop", "signin", "signup", "smtp", "sso", "staging", "static",
		"status", "support", "sysadmin", "system", "tenantry", "test", "webmail", "webmaster", "wpad", "www", "www1", "www2",
	}
}

func checkSlug(faults *fault.List, slug string) {
	switch {
	case slug == "":
		faults.Add("slug", fault.Required, "slug is required")
	case len(slug) > maxSlug:
		faults.Add("slug", fault.Length, "a slug has at most %d characters", maxSlug)
	case !validSlug(slug):
		faults.Add("slug", fault.Format, "a slug consists of a-z, 0-9 and hyphens, starts and ends with a letter or digit, "+
			"and has no hyphens at positions 3 and 4")
	case slices.Contains(reservedSlugs(), slug):
		faults.Add("slug", fault.Forbidden, "the slug %q is reserved; choose another", slug)
	}
}

// validSlug reports whether text can be a slug. Hyphens at positions 3 and 4 mark encoded international names (xn--),
// which could imitate another organization's name.
func validSlug(text string) bool {
	return validLabel(text) && (len(text) < 4 || text[2:4] != "--")
}

func validLabel(text string) bool {
	return texts.PlainLower(text, maxSlug, "-") && strings.Trim(text, "-") == text
}

// hostSlug returns the slug in a host ("acme.example.com:8080"). With a base domain, the host must be one label
// followed by that domain. Without one, at least one label must follow the slug.
func hostSlug(host, base string) (string, bool) {
	name, ok := hostName(host)
	if !ok {
		return "", false
	}
	slug, domain, ok := strings.Cut(name, ".")
	if !ok || !validSlug(slug) {
		return "", false
	}
	if base != "" {
		return slug, domain == base
	}
	for label := range strings.SplitSeq(domain, ".") {
		if !validLabel(label) {
			return "", false
		}
	}
	return slug, !numericHost(domain)
}

// hostName strips the port and one trailing dot, and lowers the case of ASCII letters.
func hostName(host string) (string, bool) {
	if len(host) > maxHost+1+len(":65535") {
		return "", false
	}
	name, port, found := strings.Cut(host, ":")
	if found && !validPort(port) {
		return "", false
	}
	name = strings.TrimSuffix(name, ".")
	if len(name) > maxHost {
		return "", false
	}
	// ToLower would turn the Kelvin sign into a k.
	if strings.ContainsFunc(name, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return "", false
	}
	return strings.ToLower(name), true
}

func validPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return err == nil && len(text) <= 5
}

// numericHost reports whether clients would read the name as an IPv4 address, because its last label is a decimal or
// hexadecimal number.
func numericHost(domain string) bool {
	last := domain[strings.LastIndexByte(domain, '.')+1:]
	if last != "" && (last[0] < '0' || last[0] > '9') { // the common case, decided without a scan
		return false
	}
	if digits, isHex := strings.CutPrefix(last, "0x"); isHex {
		return strings.Trim(digits, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// checkName notes what is wrong with a name that people read: it must have 1 to limit characters and no control
// characters.
func checkName(faults *fault.List, field, text string, limit int) {
	switch {
	case strings.TrimSpace(text) == "":
		faults.Add(field, fault.Required, "%s is required", field)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		faults.Add(field, fault.Format, "%s must be valid UTF-8 without control characters", field)
	case utf8.RuneCountInString(text) > limit:
		faults.Add(field, fault.Length, "%s has at most %d characters", field, limit)
	}
}
