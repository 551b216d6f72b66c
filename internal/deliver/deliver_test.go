package deliver_test

import (
	"mime"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"tenantry/internal/deliver"
)

// utf16Of returns a text in UTF-16 with a byte order mark.
func utf16Of(text string, little bool) string {
	b := []byte{0xfe, 0xff}
	for _, unit := range utf16.Encode([]rune(text)) {
		b = append(b, byte(unit>>8), byte(unit))
	}
	for i := 0; little && i < len(b); i += 2 {
		b[i], b[i+1] = b[i+1], b[i]
	}
	return string(b)
}

const (
	page   = "<!DOCTYPE html><html><script>alert(1)</script></html>"
	vector = `<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>`
)

// bodies are the begins of files, with what they show.
func bodies() map[string]string {
	png, jpeg, gif := "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "\xff\xd8\xff\xe0\x00\x10JFIF\x00", "GIF89a\x01\x00\x01\x00"
	return map[string]string{
		"":                                       "text/plain; charset=utf-8",
		"hello":                                  "text/plain; charset=utf-8",
		"h\xc3\xa9llo":                           "text/plain; charset=utf-8",
		"\xef\xbb\xbfhello":                      "text/plain; charset=utf-8",
		"cut at a character \xc3":                "text/plain; charset=utf-8",
		"h\xe9llo in Latin-1":                    "text/plain",
		utf16Of("hello", true):                   "text/plain",
		utf16Of("hello", false):                  "text/plain",
		"alert(1)":                               "text/plain; charset=utf-8",
		"#!/bin/sh\nrm -rf /":                    "text/plain; charset=utf-8",
		"\x00\x01\x02\x03":                       "application/octet-stream",
		png:                                      "image/png",
		png + page:                               "image/png",
		jpeg:                                     "image/jpeg",
		jpeg + vector:                            "image/jpeg",
		gif:                                      "image/gif",
		gif + "PK\x03\x04":                       "image/gif",
		"GIF89a=1;alert(1)":                      "image/gif",
		"RIFF\x10\x00\x00\x00WEBPVP8 ":           "image/webp",
		"\x00\x00\x00\x1cftypavif\x00":           "image/avif",
		"\x00\x00\x00\x1cftypheic\x00":           "image/heic",
		"\x00\x00\x00\x1cftypisom\x00":           "video/mp4",
		"\x00\x00\x00\x1cftypmp42\x00":           "video/mp4",
		"\x00\x00\x00\x1cftypqt  \x00":           "video/quicktime",
		"\x00\x00\x00\x1cftypM4A \x00":           "audio/mp4",
		"BM\x00\x00\x00\x00":                     "image/bmp",
		"ID3\x03\x00":                            "audio/mpeg",
		"\xff\xfb\x90\x00":                       "audio/mpeg",
		"\xff\xf1\x50\x80":                       "audio/aac",
		"fLaC\x00\x00\x00\x22":                   "audio/flac",
		"OggS\x00\x02":                           "application/ogg",
		"RIFF\x10\x00\x00\x00WAVEfmt ":           "audio/wave",
		"\x1a\x45\xdf\xa3\x01":                   "video/webm",
		"%PDF-1.7\n" + page:                      "application/pdf",
		page + "%PDF-1.7":                        "text/html",
		"PK\x03\x04":                             "application/zip",
		"\x1f\x8b\x08":                           "application/x-gzip",
		page:                                     "text/html",
		" \t\r\n\f" + page:                       "text/html",
		"\xef\xbb\xbf" + page:                    "text/html",
		"\xef\xbb\xbf\n<!-- x -->" + page:        "text/html",
		"<!-- a --> <!-- b -->\n<script>":        "text/html",
		"<!-- " + strings.Repeat("x", 2000):      "text/html",
		"<!--><script>alert(1)</script>":         "text/html",
		"<BODY onload=x>":                        "text/html",
		utf16Of(page, true):                      "text/html",
		utf16Of(page, false):                     "text/html",
		"<?php x ?>" + page:                      "text/html",
		vector:                                   "image/svg+xml",
		"\n\xef\xbb\xbf" + vector:                "text/plain; charset=utf-8",
		"\xef\xbb\xbf \n" + vector:               "image/svg+xml",
		"<!-- x --><svg onload=alert(1)>":        "image/svg+xml",
		"<!DOCTYPE svg><x>":                      "image/svg+xml",
		"\xef\xbb\xbf<?xml version='1.0'?><rss>": "text/xml",
		"<?xml version='1.0'?>" + vector:         "image/svg+xml",
		"<?xml version='1.0'?><!-- <html> --><!DOCTYPE svg PUBLIC 'x'>" + vector: "image/svg+xml",
		`<s:svg xmlns:s="http://www.w3.org/2000/svg">`:                           "image/svg+xml",
		"<SVG onload=alert(1)>": "image/svg+xml",
		utf16Of(vector, true):   "image/svg+xml",
		"<?xml version='1.0'?><x:script xmlns:x='http://www.w3.org/1999/xhtml'>": "text/xml",
		"<?xml-stylesheet href='x'?><?xml version='1.0'?><a>":                    "text/html",
		"\n<?xml version='1.0'?><rss>":                                           "text/xml",
		"<!DOCTYPE x [<!ENTITY y SYSTEM 'file:///'>]>":                           "text/xml",
	}
}

func TestSniff(t *testing.T) {
	t.Parallel()
	for body, want := range bodies() {
		if got := deliver.Sniff([]byte(body)); got != want {
			t.Errorf("%.60q: got %s, want %s", body, got, want)
		}
	}
	if got := deliver.Sniff([]byte(strings.Repeat(" ", 2000) + "\xff")); got != "text/plain; charset=utf-8" {
		t.Errorf("a long text: got %s, want that only its begin is looked at", got)
	}
}

// active are types that browsers execute, or read types from, in the spellings that they understand and some more.
func active() []string {
	return []string{
		"text/html", "image/svg+xml", "text/xml", "application/xml", "application/xhtml+xml", "text/javascript",
		"application/javascript", "application/x-javascript", "text/ecmascript", "application/rss+xml", "text/css",
		"text/vtt",
		"application/mathml+xml", "text/xsl", "application/x-shockwave-flash", "application/java-archive",
		"text/cache-manifest",
		"application/wasm", "application/json", "text/csv", "application/zip", "application/msword",
		"application/octet-stream",
		"multipart/x-mixed-replace", "multipart/related", "message/rfc822", "application/x-mimearchive", "application/hta",
		"application/vnd.openxmlformats-officedocument.wordprocessingml.document", "image/x-icon", "image/heic",
		"image/tiff",
		"model/gltf+json", "font/woff2", "video/avi", "audio/midi", "text/rtf", "chemical/x-pdb", "*/*", "image/*",
		"text", "",
		"TEXT/HTML", " text/html ", "text/html;", "text/html; charset=utf-7", "text/html;charset=\"\r\n\"",
		"text/html\r\nX-Y: z",
		"text/html\x00", "\x00text/html", "text/html, image/png", "image/png, text/html",
		"image/png\r\nContent-Type: text/html",
		"image/png\ntext/html", "image/png;text/html", "image/png text/html", "text /html", "text/ html",
		"text//html", "text/html/",
		"/html", "text/", "tеxt/html", "text\\html", "image/png\x00", "image/png;\r\n\r\n<script>",
		"image/svg+xml;image/png",
		"image/png(", "image/png\u2028", "image/ｐng", "image/png%0d%0a", "image/pnģ", "\"image/png\"",
		"image/png; a=b; a=c",
		"application/pdf, text/html", "Image/SVG+XML", "image/svg", "image/svg-xml", "text/html;image/png",
		"content-type: image/png",
		strings.Repeat("a", 10_000) + "/b", "a/" + strings.Repeat("b", 10_000), "audio/x-mpegurl", "text/plain/html",
	}
}

// harmless are types that are shown.
func harmless() []string {
	return []string{
		"image/jpeg", "image/png", "image/gif", "image/webp", "image/avif", "image/bmp", "application/pdf", "text/plain",
		"audio/mpeg", "audio/mp4", "audio/ogg", "audio/wav", "audio/flac", "video/mp4", "video/webm", "video/ogg",
		"video/quicktime", "IMAGE/PNG", " image/png ", "image/png; x=y", "image/jpg", "audio/mp3",
		"text/plain; charset=utf-7",
	}
}

// TestPolicyOfHostileTypes checks every type with every body: neither a type nor bytes that browsers execute are shown,
// and headers stay headers.
func TestPolicyOfHostileTypes(t *testing.T) {
	t.Parallel()
	markup := []string{"text/html", "image/svg+xml", "text/xml"}
	tried := 0
	for i, declared := range slices.Concat(active(), harmless()) {
		for body := range bodies() {
			tried++
			sniffed := deliver.Sniff([]byte(body))
			s := deliver.Policy(declared, sniffed, "'self'")
			if s.Inline && (i < len(active()) || slices.Contains(markup, sniffed)) {
				t.Errorf("%.60q of %.60q: got %v, want an attachment", declared, body, s)
			}
			if s.Inline && sniffed == "text/plain; charset=utf-8" && !strings.HasPrefix(s.ContentType, "text/plain") {
				t.Errorf("%.60q of text: got %v, want an attachment", declared, s)
			}
			media, params, err := mime.ParseMediaType(s.ContentType)
			if err != nil || len(s.ContentType) > 255 || strings.ContainsAny(s.ContentType, "\r\n\x00,") ||
				len(params) > 0 && s.ContentType != "text/plain; charset=utf-8" {
				t.Errorf("%.60q: got %q, %v, want a media type", declared, s.ContentType, err)
			}
			sandboxed := strings.HasSuffix(s.CSP, "; sandbox")
			if sandboxed == (s.Inline && media == "application/pdf") || !strings.HasPrefix(s.CSP, "default-src 'none'; ") ||
				!strings.Contains(s.CSP, "; frame-ancestors 'self'") || strings.Contains(s.CSP, "script-src") {
				t.Errorf("%.60q of %.60q: got the policy %s", declared, body, s.CSP)
			}
		}
	}
	if tried < 3000 {
		t.Errorf("got %d pairs, want at least 3000", tried)
	}
}

func TestPolicy(t *testing.T) {
	t.Parallel()
	const utf8 = "text/plain; charset=utf-8"
	for _, c := range []struct {
		declared, sniffed, want string
		inline                  bool
	}{
		{"image/png", "image/png", "image/png", true},
		{"image/png; x=y", "image/png", "image/png", true},
		{"IMAGE/PNG", "image/png", "image/png", true},
		{"image/jpg", "image/jpeg", "image/jpeg", true},
		{"image/png", "image/jpeg", "image/jpeg", true},
		{"image/avif", "image/avif", "image/avif", true},
		{"image/bmp", "image/bmp", "image/bmp", true},
		{"image/webp", "image/webp", "image/webp", true},
		{"image/png", "application/octet-stream", "image/png", false},
		{"image/png", "image/svg+xml", "image/png", false},
		{"image/png", "application/pdf", "image/png", false},
		{"image/png", "video/mp4", "image/png", false},
		{"image/png", utf8, "image/png", false},
		{"image/png", "image/heic", "image/png", false},
		{"application/pdf", "application/pdf", "application/pdf", true},
		{"application/x-pdf", "application/pdf", "application/x-pdf", true},
		{"application/pdf", "text/html", "application/pdf", false},
		{"application/pdf", "application/octet-stream", "application/pdf", false},
		{"text/plain", utf8, utf8, true},
		{"text/plain; charset=latin1", utf8, utf8, true},
		{"text/plain", "text/plain", "text/plain", true},
		{"text/plain; charset=utf-8", "text/plain", "text/plain", true},
		{"text/plain", "text/html", "text/plain", false},
		{"text/plain", "application/octet-stream", "text/plain", false},
		{"text/plain", "image/png", "text/plain", false},
		{"audio/mpeg", "audio/mpeg", "audio/mpeg", true},
		{"audio/mp3", "application/octet-stream", "audio/mpeg", true},
		{"audio/x-wav", "audio/wave", "audio/wav", true},
		{"audio/ogg", "application/ogg", "audio/ogg", true},
		{"video/mp4", "video/mp4", "video/mp4", true},
		{"video/quicktime", "video/quicktime", "video/quicktime", true},
		{"video/webm", "video/webm", "video/webm", true},
		{"audio/mpeg", utf8, "audio/mpeg", false},
		{"audio/mpeg", "text/html", "audio/mpeg", false},
		{"video/mp4", "application/zip", "video/mp4", false},
		{"video/mp4", "image/png", "video/mp4", false},
		{"video/x-msvideo", "video/avi", "video/x-msvideo", false},
		{"text/html", "text/html", "text/html", false},
		{"text/html", utf8, "text/html", false},
		{"image/svg+xml", "image/svg+xml", "image/svg+xml", false},
		{"application/zip", "application/zip", "application/zip", false},
		{"application/octet-stream", "image/png", "application/octet-stream", false},
		{"", "image/png", "application/octet-stream", false},
		{"nonsense", "image/png", "application/octet-stream", false},
		{"image/*", "image/png", "application/octet-stream", false},
		{"multipart/x-mixed-replace", utf8, "application/octet-stream", false},
		{"message/rfc822", utf8, "application/octet-stream", false},
		{"image/png, text/html", "image/png", "application/octet-stream", false},
		{strings.Repeat("a", 128) + "/b", utf8, "application/octet-stream", false},
		{"a/" + strings.Repeat("b", 128), utf8, "application/octet-stream", false},
	} {
		if got := deliver.Policy(c.declared, c.sniffed, ""); got.ContentType != c.want || got.Inline != c.inline {
			t.Errorf("%s of %s: got %v, want %s, inline %v", c.declared, c.sniffed, got, c.want, c.inline)
		}
	}
}

func TestPolicyFrameAncestors(t *testing.T) {
	t.Parallel()
	for sources, want := range map[string]string{
		"":                                 "'none'",
		" ":                                "'none'",
		"'self'":                           "'self'",
		"https://a.example https://b.test": "https://a.example https://b.test",
		"'self'; script-src *":             "'none'",
		"'self', default-src *":            "'none'",
		"'self'\r\nX: y":                   "'none'",
		"https://ä.example":                "'none'",
		"'self'\x7f":                       "'none'",
	} {
		const begin = "default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'; frame-ancestors "
		if got := deliver.Policy("image/png", "image/png", sources).CSP; got != begin+want+"; sandbox" {
			t.Errorf("%q: got %s, want %s", sources, got, want)
		}
	}
	pdf := deliver.Policy("application/pdf", "application/pdf", "'self'").CSP
	if want := "default-src 'none'; img-src 'self'; object-src 'self'; frame-src 'self'; " +
		"style-src 'unsafe-inline'; frame-ancestors 'self'"; pdf != want {
		t.Errorf("got %s for PDF, want %s", pdf, want)
	}
}

func FuzzPolicy(f *testing.F) {
	for body := range bodies() {
		f.Add("image/png", body, "'self'")
	}
	for _, declared := range slices.Concat(active(), harmless()) {
		f.Add(declared, "hello", "")
	}
	f.Fuzz(func(t *testing.T, declared, body, sources string) {
		sniffed := deliver.Sniff([]byte(body))
		s := deliver.Policy(declared, sniffed, sources)
		for _, header := range []string{s.ContentType, s.CSP} {
			if strings.ContainsFunc(header, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("got %q, want visible ASCII", header)
			}
		}
		if s.Inline && (sniffed == "text/html" || sniffed == "image/svg+xml" || sniffed == "text/xml") {
			t.Errorf("%q of %q: got %v, want an attachment", declared, body, s)
		}
	})
}

// TestPolicyOfCode: no page can load an uploaded file as a script, a style or a module.
func TestPolicyOfCode(t *testing.T) {
	t.Parallel()
	for _, declared := range []string{
		"text/javascript", "Application/JavaScript", "application/x-javascript; charset=utf-8", "text/javascript1.5",
		"text/ecmascript", "application/x-ecmascript", "text/jscript", "text/livescript", "text/css", "application/wasm",
	} {
		if got := deliver.Policy(declared, "text/plain; charset=utf-8", ""); got.ContentType != "application/octet-stream" || got.Inline {
			t.Errorf("%s: got %+v, want an attachment of no type", declared, got)
		}
	}
}
