// Package texts holds what is written alike everywhere: texts from outside in messages, and times.
package texts

import (
	"strings"
	"time"
	"unicode"
)

// most is how many bytes of a text from outside stand in a message.
const most = 64

// Clip shortens a text from outside for a message. What is left is valid UTF-8.
func Clip(s string) string {
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return strings.ToValidUTF8(s, "?")
}

// Plain reports whether text has 1 to most ASCII letters, digits and bytes of more.
func Plain(text string, most int, more string) bool {
	if text == "" || len(text) > most {
		return false
	}
	for i := range len(text) {
		if c := text[i]; (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && strings.IndexByte(more, c) < 0 {
			return false
		}
	}
	return true
}

// PlainLower is Plain without letters in upper case.
func PlainLower(text string, most int, more string) bool {
	return Plain(text, most, more) && strings.ToLower(text) == text
}

// Trim returns a name without what nobody sees at its ends: blanks of every kind, no-break and zero-width ones among
// them. Every name that people read is stored so. Tabs and line ends stay beside others: a name with them is refused.
func Trim(name string) string {
	if strings.TrimSpace(name) == "" {
		return ""
	}
	return strings.TrimFunc(name, func(r rune) bool {
		return unicode.In(r, unicode.Z) || r == '\u200b' || r == '\u2060' || r == '\ufeff'
	})
}

// One returns the name of a thing with its article.
func One(name string) string {
	if name != "" && strings.ContainsRune("aeioAEIO", rune(name[0])) {
		return "an " + name
	}
	return "a " + name
}

// TimeLayout is how times are written in answers, bundles and values: RFC 3339, in UTC, with
// milliseconds. All have one width, so that the order of texts is that of times.
const TimeLayout = "2006-01-02T15:04:05.000Z"

// Time writes a moment in Unix milliseconds.
func Time(ms int64) string { return time.UnixMilli(ms).UTC().Format(TimeLayout) }
