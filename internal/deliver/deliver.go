// Package deliver says how files of strangers are served, so that no browser takes one for a page or a script of ours.
// All functions are pure and safe for concurrent use.
//
// Whoever serves a file must also send X-Content-Type-Options: nosniff, without which a browser may look for another
// type than the one that Policy chose.
package deliver

import (
	"mime"
	"strings"
)

// octets is the type of bytes of which nothing is known.
const octets = "application/octet-stream"

// Served says how bytes are served.
type Served struct {
	ContentType string // the header Content-Type
	Inline      bool   // show in the browser; otherwise only offer to save
	CSP         string // the header Content-Security-Policy
}

// Policy returns how bytes are served that their uploader declared as one type and that Sniff found to be another.
// frameAncestors are the sources that may frame them, as in the directive frame-ancestors; 'none' if they are empty or
// no sources.
//
// Inline are pictures, audio, video, PDF and plain text, if the bytes do not contradict. All else is an attachment with
// its declared type, or application/octet-stream if that is no media type or one of code. Parameters of the declared type are dropped;
// plain text has a charset if its bytes are UTF-8.
func Policy(declared, sniffed, frameAncestors string) Served {
	media := mediaType(declared)
	shown := media
	if canonical, ok := canonicalType(media); ok {
		shown = canonical
	}
	found, _, _ := strings.Cut(sniffed, ";")
	s := Served{ContentType: media}
	switch kindOf(shown) {
	case picture:
		if s.Inline = kindOf(found) == picture; s.Inline {
			s.ContentType = found // browsers go by the bytes of a picture, so one type under another does no harm
		}
	case sound: // some have no signature
		if s.Inline = found == octets || found == "application/ogg" || kindOf(found) == sound; s.Inline {
			s.ContentType = shown
		}
	case document:
		s.Inline = found == shown
	case text:
		if s.Inline = found == shown; s.Inline && sniffed == utf8Text {
			s.ContentType = utf8Text
		}
	}
	s.CSP = contentPolicy(s.Inline && shown == "application/pdf", frameAncestors)
	return s
}

// contentPolicy returns the value of the header Content-Security-Policy. The page that a browser makes for a picture,
// audio or video loads the file again and has styles.
//
// PDF has no sandbox, because the viewers of browsers do not work in one. They are objects or frames of a page that the
// browser makes, and keep the scripts of a PDF from the origin.
func contentPolicy(pdf bool, frameAncestors string) string {
	if !areSources(frameAncestors) {
		frameAncestors = "'none'"
	}
	if pdf {
		return "default-src 'none'; img-src 'self'; object-src 'self'; frame-src 'self'; style-src 'unsafe-inline'; " +
			"frame-ancestors " + frameAncestors
	}
	return "default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'; frame-ancestors " +
		frameAncestors + "; sandbox"
}

// areSources reports whether a text has sources and cannot end its directive or its header.
func areSources(text string) bool {
	return isHeader(text) && !strings.ContainsAny(text, ";,") && strings.TrimSpace(text) != ""
}

// isHeader reports whether a text has only visible ASCII and spaces.
func isHeader(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// mediaType returns the type and subtype of a declared type in lower case, or application/octet-stream if it is none.
// So are types of which parts have types of their own, and those that any page could load as a script or a style: a tag
// that loads one asks nobody whether it is an attachment.
func mediaType(declared string) string {
	const longest = 127 // of a type and of a subtype, RFC 6838
	if !isHeader(declared) {
		return octets
	}
	media, _, err := mime.ParseMediaType(declared)
	kind, subtype, ok := strings.Cut(media, "/")
	if err != nil || !ok || len(kind) > longest || len(subtype) > longest || strings.Contains(media, "*") ||
		kind == "multipart" || kind == "message" || isCode(subtype) {
		return octets
	}
	return media
}

// isCode reports whether pages load a subtype as a script, a style or a module. The names of scripts are those of the
// MIME Sniffing Standard.
func isCode(subtype string) bool {
	for _, part := range []string{"javascript", "ecmascript", "jscript", "livescript"} {
		if strings.Contains(subtype, part) {
			return true
		}
	}
	return subtype == "css" || subtype == "wasm"
}

// canonicalType returns the registered name of a type that is often declared under another one.
func canonicalType(media string) (string, bool) {
	switch media {
	case "image/jpg", "image/pjpeg":
		return "image/jpeg", true
	case "image/x-png":
		return "image/png", true
	case "image/x-ms-bmp", "image/x-bmp":
		return "image/bmp", true
	case "audio/mp3", "audio/x-mp3", "audio/x-mpeg":
		return "audio/mpeg", true
	case "audio/m4a", "audio/x-m4a":
		return "audio/mp4", true
	case "audio/x-wav", "audio/wave", "audio/vnd.wave":
		return "audio/wav", true
	case "audio/x-flac":
		return "audio/flac", true
	case "application/x-pdf":
		return "application/pdf", true
	}
	return "", false
}

// kind is how a browser shows a type.
type kind uint8

const (
	other kind = iota
	picture
	sound // or video
	document
	text
)

// kindOf returns how browsers show a type. Only types that cannot contain scripts have one other than other, and PDF,
// whose scripts its viewer isolates.
func kindOf(media string) kind {
	switch media {
	case "image/jpeg", "image/png", "image/gif", "image/webp", "image/avif", "image/bmp":
		return picture
	case "audio/mpeg", "audio/mp4", "audio/aac", "audio/ogg", "audio/opus", "audio/wav", "audio/wave", "audio/webm",
		"audio/flac", "video/mp4", "video/webm", "video/ogg", "video/quicktime":
		return sound
	case "application/pdf":
		return document
	case "text/plain":
		return text
	}
	return other
}
