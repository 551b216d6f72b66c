package deliver

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName bounds the bytes of a file name. File systems take 255.
const maxName = 200

// Disposition returns the value of the header Content-Disposition (RFC 6266) for a file of that name, which may be any
// text. It has visible ASCII and spaces only. A name that is not ASCII, or that old browsers would misread, is given
// twice: as an approximation in ASCII, and encoded (RFC 8187).
//
// What would mislead people, leave a folder or be no name on some system is replaced by underscores: control characters
// and those that change the direction of writing, separators of paths and other characters that Windows refuses, dots
// at the begin. Names of devices get an underscore in front. Long names are cut to 200 bytes and keep their extension.
// If nothing remains, the name is "file".
func Disposition(inline bool, name string) string {
	name = safeName(name)
	ascii := strings.Map(func(r rune) rune {
		if r > '~' || r == '%' { // some browsers decode %41
			return '_'
		}
		return r
	}, name)
	value := "attachment"
	if inline {
		value = "inline"
	}
	value += `; filename="` + ascii + `"`
	if ascii != name {
		value += "; filename*=UTF-8''" + encode(name)
	}
	return value
}

// safeName returns a name that Disposition may offer.
func safeName(name string) string {
	name = strings.Map(func(r rune) rune {
		if misleading(r) || strings.ContainsRune(`/\:*?"<>|`, r) {
			return '_'
		}
		return r
	}, strings.ToValidUTF8(name, "_"))
	name = cut(trimEnd(strings.TrimLeftFunc(name, unicode.IsSpace)))
	rest := strings.TrimLeft(name, ".")
	name = strings.Repeat("_", len(name)-len(rest)) + rest
	if strings.TrimFunc(name, func(r rune) bool { return r == '_' || r == '.' || unicode.IsSpace(r) }) == "" {
		return "file"
	}
	if isDevice(name) {
		name = "_" + name
	}
	return name
}

// trimEnd returns the name without dots and spaces at its end, which Windows drops.
func trimEnd(name string) string {
	return strings.TrimRightFunc(name, func(r rune) bool { return r == '.' || unicode.IsSpace(r) })
}

// misleading reports whether a character is not seen, or changes the order in which others are.
func misleading(r rune) bool {
	switch {
	case unicode.IsControl(r), r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return true
	case r == 0x200e, r == 0x200f, r == 0x061c, r == 0x2028, r == 0x2029:
		return true
	case r == 0xfeff, r == utf8.RuneError, r >= 0xe0000 && r <= 0xe007f:
		return true
	}
	return false
}

// isDevice reports whether Windows takes a name for that of a device, whatever its extension is.
func isDevice(name string) bool {
	base, _, _ := strings.Cut(strings.ToUpper(name), ".")
	base = strings.TrimRight(base, " ")
	switch base {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$":
		return true
	}
	port, ok := strings.CutPrefix(base, "COM")
	if !ok {
		port, ok = strings.CutPrefix(base, "LPT")
	}
	return ok && utf8.RuneCountInString(port) == 1 && strings.Contains("0123456789¹²³", port)
}

// cut returns the name in at most maxName bytes, with its extension.
func cut(name string) string {
	if len(name) <= maxName {
		return name
	}
	extension := ""
	if dot := strings.LastIndexByte(name, '.'); dot > 0 && len(name)-dot <= 20 {
		extension = name[dot:]
	}
	end := maxName - len(extension)
	for !utf8.RuneStart(name[end]) {
		end--
	}
	return trimEnd(trimEnd(name[:end]) + extension)
}

// encode returns a text as RFC 8187 wants it.
func encode(text string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(text) {
		c := text[i]
		letter := c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
		if letter || c >= '0' && c <= '9' || strings.IndexByte("!#$&+-.^_`|~", c) >= 0 {
			b.WriteByte(c)
		} else {
			b.WriteString(string([]byte{'%', hex[c>>4], hex[c&15]}))
		}
	}
	return b.String()
}
