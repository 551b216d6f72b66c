package deliver

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// utf8Text is the type of plain text of which the first bytes are UTF-8.
const utf8Text = "text/plain; charset=utf-8"

// sniffLen is how many bytes are looked at.
const sniffLen = 1024

// Sniff returns the media type that the first bytes of a file show; 1024 are enough. It is
// "text/plain; charset=utf-8" for plain text in UTF-8 and "text/plain" for other text, without parameters for all other
// types, and "application/octet-stream" if the bytes show none.
//
// Byte order marks, white space, comments and declarations before the first element do not hide HTML, SVG or XML.
func Sniff(first []byte) string {
	first = first[:min(len(first), sniffLen)]
	if media := sniffMarkup(toUTF8(first)); media != "" {
		return media
	}
	if media := sniffMedia(first); media != "" {
		return media
	}
	media, _, _ := strings.Cut(http.DetectContentType(first), ";")
	if media == "text/plain" && isUTF8(first) {
		return utf8Text
	}
	return media
}

// toUTF8 returns text without its byte order mark, converted from UTF-16 if that names it.
func toUTF8(b []byte) []byte {
	var order binary.ByteOrder = binary.BigEndian
	switch {
	case bytes.HasPrefix(b, []byte("\xff\xfe")):
		order = binary.LittleEndian
	case !bytes.HasPrefix(b, []byte("\xfe\xff")):
		return bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
	}
	var units []uint16
	for b = b[2:]; len(b) >= 2; b = b[2:] {
		units = append(units, order.Uint16(b))
	}
	return []byte(string(utf16.Decode(units)))
}

// sniffMarkup returns the type of text that begins with markup, or "".
func sniffMarkup(b []byte) string {
	declared := false // as XML
	for {
		b = bytes.TrimLeft(b, "\t\n\f\r ")
		var end string
		switch {
		case bytes.HasPrefix(b, []byte("<!--")):
			end = "-->"
		case bytes.HasPrefix(b, []byte("<?")):
			declared = declared || bytes.HasPrefix(b, []byte("<?xml"))
			end = "?>"
		}
		after := bytes.Index(b, []byte(end))
		if end == "" || after < 0 {
			break // the first element, or no end of the comment
		}
		b = b[after+len(end):]
	}
	lower := bytes.ToLower(b)
	isSVG := bytes.HasPrefix(lower, []byte("<svg")) || bytes.HasPrefix(lower, []byte("<!doctype svg")) ||
		bytes.HasPrefix(b, []byte("<")) && bytes.Contains(b, []byte("http://www.w3.org/2000/svg"))
	switch media, _, _ := strings.Cut(http.DetectContentType(b), ";"); {
	case isSVG:
		return "image/svg+xml"
	case media == "text/html":
		return media
	case declared, media == "text/xml", bytes.HasPrefix(lower, []byte("<!doctype")):
		return "text/xml"
	}
	return ""
}

// sniffMedia returns the type of audio, video and pictures that net/http does not know, or "".
func sniffMedia(b []byte) string {
	const brandAt = 8
	switch {
	case len(b) >= brandAt+4 && string(b[4:brandAt]) == "ftyp":
		switch brand := string(b[brandAt : brandAt+4]); brand {
		case "avif", "avis":
			return "image/avif"
		case "heic", "heix", "mif1", "msf1":
			return "image/heic"
		case "M4A ", "M4B ":
			return "audio/mp4"
		case "qt  ":
			return "video/quicktime"
		}
		return "video/mp4"
	case bytes.HasPrefix(b, []byte("fLaC")):
		return "audio/flac"
	case len(b) >= 2 && b[0] == 0xff && (b[1] == 0xfb || b[1] == 0xf3 || b[1] == 0xf2):
		return "audio/mpeg"
	case len(b) >= 2 && b[0] == 0xff && (b[1] == 0xf1 || b[1] == 0xf9):
		return "audio/aac"
	}
	return ""
}

// isUTF8 reports whether the begin of a text is UTF-8. Its last character may be cut.
func isUTF8(b []byte) bool {
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r == utf8.RuneError && size == 1 {
			return !utf8.FullRune(b)
		}
		b = b[size:]
	}
	return true
}
