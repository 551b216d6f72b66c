package mail

import (
	"bytes"
	netmail "net/mail"
	"strings"
	"testing"
	"time"
	"unicode"

	"tenantry/config"
)

// TestHostileTextsBeginNoHeader checks that no text of a mail, in a name, a subject or a value, adds a header or a
// recipient, and that the subject and the name come out as one line.
func TestHostileTextsBeginNoHeader(t *testing.T) {
	t.Parallel()
	c := config.Mail{From: "noreply@example.com"}
	if err := c.URL.UnmarshalText([]byte("smtp://127.0.0.1:25")); err != nil {
		t.Fatal(err)
	}
	s, err := NewServer(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, hostile := range []string{
		"a\r\nBcc: victim@example.com", "a\nBcc: victim@example.com", "a\rBcc: victim@example.com", "a\r\n\r\n<b>body</b>",
		"=?utf-8?q?a=0d=0aBcc:_victim@example.com?=", `a" <victim@example.com>, "b`, "a\x00b", "a\u2028Bcc: victim@example.com",
		"a\u0085Bcc: victim@example.com", "\u202egpj.exe", strings.Repeat("ü", 5000), "\xff\xfe", "Ada, <x@y>", "",
		strings.Repeat("a\r\n ", 1000),
	} {
		m, err := s.message("665f1c2ab4d3e2f1a0b9c8d7", hostile, "ada@example.com", &Content{
			Subject: hostile, Title: hostile, Organization: hostile, Paragraphs: []string{hostile}, Facts: []Fact{{hostile, hostile}},
			Action: Link{hostile, "https://acme.example.com/x?y=" + hostile}, Footer: hostile, ReplyTo: "bob@example.com",
			Unsubscribe: "https://acme.example.com/unsubscribe?token=x",
			Table:       Table{[]string{hostile}, [][]string{{hostile}}, hostile}, Pictures: []Picture{{PNG: []byte("x"), Alt: hostile}},
			Files: []File{{hostile, []byte("a,b")}}, Color: hostile,
		}, time.UnixMilli(1717509162000))
		if err != nil {
			t.Fatalf("%q: %v", hostile, err)
		}
		var raw bytes.Buffer
		if _, err := m.WriteTo(&raw); err != nil {
			t.Fatalf("%q: %v", hostile, err)
		}
		read, err := netmail.ReadMessage(&raw)
		if err != nil {
			t.Fatalf("%q: %v", hostile, err)
		}
		known := map[string]bool{}
		for _, name := range []string{
			"From", "To", "Subject", "Date", "Message-Id", "Auto-Submitted", "Reply-To", "List-Unsubscribe", "List-Unsubscribe-Post", "Mime-Version", "Content-Type",
		} {
			known[name] = true
		}
		for name, values := range read.Header {
			if !known[name] || len(values) != 1 {
				t.Errorf("%q: got the header %s: %q", hostile, name, values)
			}
		}
		to, err := read.Header.AddressList("To")
		if err != nil || len(to) != 1 || to[0].Address != "ada@example.com" {
			t.Errorf("%q: got the recipients %v %v", hostile, to, err)
		}
		from, err := read.Header.AddressList("From")
		if err != nil || len(from) != 1 || from[0].Address != "noreply@example.com" || strings.ContainsFunc(from[0].Name, unicode.IsControl) {
			t.Errorf("%q: got the senders %v %v", hostile, from, err)
		}
		if list := read.Header.Get("List-Unsubscribe"); list != "<https://acme.example.com/unsubscribe?token=x>" {
			t.Errorf("List-Unsubscribe = %q", list)
		}
	}
}

// TestLine checks the texts that become one line.
func TestLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", " a \r\n b\t": "a b", "a\u0085b\u2028c": "a b c", "x\u202ey": "xy", "a\x00b": "a b", "\xffa": "a",
		strings.Repeat("ü", 201): strings.Repeat("ü", 199) + "…", strings.Repeat("ü", 200): strings.Repeat("ü", 200),
	} {
		if got := line(text); got != want {
			t.Errorf("line(%q) = %q, want %q", text, got, want)
		}
	}
	for address, want := range map[string]string{"ada@example.com": "a***@example.com", "ü@example.com": "ü***@example.com", "": "", "@x": "", `"a@b"@c.example`: `"***@c.example`} {
		if got := Masked(address); got != want {
			t.Errorf("Masked(%q) = %q, want %q", address, got, want)
		}
	}
}

// TestContentIsBounded checks that a mail does not grow with the values it tells.
func TestContentIsBounded(t *testing.T) {
	t.Parallel()
	c := &Content{Subject: "s", Title: "t"}
	for range 500 {
		c.Facts = append(c.Facts, Fact{strings.Repeat("l", 1000), strings.Repeat("<", 100_000)})
	}
	text, html, err := c.render(parse())
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 64<<10 || len(html) > 256<<10 {
		t.Errorf("got %d bytes of text and %d of HTML, want at most %d and %d", len(text), len(html), 64<<10, 256<<10)
	}
}

// TestButton checks that texts of buttons contrast with the color of an organization, and that no other text becomes style.
func TestButton(t *testing.T) {
	t.Parallel()
	for color, want := range map[string]string{
		"": "background:#1f5fbf;color:#ffffff", "#000000": "background:#000000;color:#ffffff", "#FFEE00": "background:#ffee00;color:#1c2430",
		"#c71e4f": "background:#c71e4f;color:#ffffff", "#ffffff": "background:#ffffff;color:#1c2430", "red": "background:#1f5fbf;color:#ffffff",
		"#12345;}": "background:#1f5fbf;color:#ffffff", "#-12345": "background:#1f5fbf;color:#ffffff", "#+12345": "background:#1f5fbf;color:#ffffff",
	} {
		c := Content{Color: color}
		if got := string(c.Button()); got != want {
			t.Errorf("%q: got %s, want %s", color, got, want)
		}
	}
}
