// Package texts formats texts that are written the same way everywhere: foreign texts in messages, names and times.
package texts

import (
	"strings"
	"time"
	"unicode"
)

// maxClip is how many bytes of a foreign text a message contains.
const maxClip = 64

// Clip shortens a foreign text for a message. The result is valid UTF-8.
func Clip(s string) string {
	if len(s) > maxClip {
		return strings.ToValidUTF8(s[:maxClip], "") + "..."
	}
	return strings.ToValidUTF8(s, "?")
}

// Plain reports whether text consists of 1 to most ASCII letters, digits and bytes of more.
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

// PlainLower is Plain without upper-case letters.
func PlainLower(text string, most int, more string) bool {
	return Plain(text, most, more) && strings.ToLower(text) == text
}

// Trim removes invisible characters from both ends of a name: blanks of every kind, including no-break and zero-width
// ones. Every name that people read is stored this way. Tabs and line ends stay unless the name has nothing else,
// because a name with them is refused.
func Trim(name string) string {
	if strings.TrimSpace(name) == "" {
		return ""
	}
	return strings.TrimFunc(name, func(r rune) bool {
		return unicode.In(r, unicode.Z) || r == '\u200b' || r == '\u2060' || r == '\ufeff'
	})
}

// WithArticle returns a noun with its indefinite article.
func WithArticle(name string) string {
	if name != "" && strings.ContainsRune("aeioAEIO", rune(name[0])) {
		return "an " + name
	}
	return "a " + name
}

// TimeLayout is the format of times in answers, bundles and values: RFC 3339, in UTC, with milliseconds. All have the
// same width, so texts sort like times.
const TimeLayout = "2006-01-02T15:04:05.000Z"

// Time formats a time that is given in Unix milliseconds.
func Time(ms int64) string { return time.UnixMilli(ms).UTC().Format(TimeLayout) }

// TimeOrNull is Time; nil for 0.
func TimeOrNull(ms int64) *string {
	if ms == 0 {
		return nil
	}
	text := Time(ms)
	return &text
}

// maxTime is the longest text, in bytes, that is read as a date or time.
const maxTime = 40

// NoSuchTime returns the end of a message about text that is written like a date or time but is none, such as
// 2024-02-30, and "" for other text.
func NoSuchTime(text string) string {
	if len(text) > maxTime {
		return ""
	}
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if _, err := time.Parse(layout, text); err != nil && strings.HasSuffix(err.Error(), "out of range") {
			return "; there is no such day or time"
		}
	}
	return ""
}
