package mail

import (
	"bytes"
	"embed"
	"fmt"
	htmltemplate "html/template"
	"math"
	"slices"
	"strings"
	texttemplate "text/template"
	"unicode"
	"unicode/utf8"

	"tenantry/tenants"
)

// Content is what a mail says. The text and the HTML of the mail are made of it.
type Content struct {
	Subject    string
	Title      string
	Paragraphs []string
	Facts      []Fact
	Action     Link // an empty URL: none
	After      []string
	Footer     string // why the mail was sent
	// ReplyTo is the address to which answers go; empty: the sender.
	ReplyTo string
	// Unsubscribe is the address of the page that ends such mails; empty: there is none.
	Unsubscribe string
	// Organization is the name of the organization, and Color its color, such as #1f5fbf; empty: the usual one.
	Organization, Color string
	Pictures            []Picture
	Table               Table
	Files               []File
}

// Picture is a picture in a mail.
type Picture struct {
	PNG []byte `json:"png"`
	Alt string `json:"alt"` // what it shows, in words
	// Width and Height are how large it is shown, in pixels.
	Width  int              `json:"width"`
	Height int              `json:"height"`
	Source htmltemplate.URL `json:"-"` // its address in the mail
}

// Table is a table in a mail.
type Table struct {
	Head []string   `json:"head,omitempty"`
	Rows [][]string `json:"rows,omitempty"`
	Note string     `json:"note,omitempty"` // below it
}

// File is attached to a mail.
type File struct {
	Name string `json:"name"`
	Data []byte `json:"data"`
}

// Fact is a value with its label.
type Fact struct{ Label, Value string }

// Link is an address with its label.
type Link struct{ Label, URL string }

const (
	maxLine  = 200    // characters of a subject or a name
	maxFact  = 4000   // characters of a value
	maxFacts = 100    // values of one mail
	maxBody  = 20_000 // characters of all values
)

// Button returns the declarations of style that color a button: the text is white, or dark on a light color.
func (c *Content) Button() htmltemplate.CSS {
	const usual = "background:#1f5fbf;color:#ffffff"
	red, green, blue, ok := tenants.ParseColor(c.Color)
	if !ok {
		return usual
	}
	ink := "#ffffff"
	if luminance(red, green, blue) > 0.215 { // there both have a contrast of 4 to 1
		ink = "#1c2430"
	}
	return htmltemplate.CSS(fmt.Sprintf("background:#%02x%02x%02x;color:%s", red, green, blue, ink)) //nolint:gosec // of numbers
}

// luminance is the relative luminance of a color, as WCAG 2 defines it.
func luminance(red, green, blue uint8) float64 {
	linear := func(part uint8) float64 {
		v := float64(part) / 255
		if v <= 0.04045 {
			return v / 12.92
		}
		return math.Pow((v+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(red) + 0.7152*linear(green) + 0.0722*linear(blue)
}

// line returns a text as one line without control characters, so that it cannot begin a header of its own.
func line(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r == utf8.RuneError, unicode.Is(unicode.Cf, r): // such as those that reverse the direction of writing
			return -1
		case unicode.IsControl(r), unicode.IsSpace(r):
			return ' '
		}
		return r
	}, text)
	return cut(strings.Join(strings.Fields(text), " "), maxLine)
}

// cut returns at most that many characters of a text.
func cut(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// bounded returns a copy whose values have at most the sizes that a mail may have.
func (c *Content) bounded() *Content {
	b, room := *c, maxBody
	b.Subject, b.Title, b.Organization = line(c.Subject), line(c.Title), line(c.Organization)
	b.Facts = nil
	b.Pictures = slices.Clone(c.Pictures)
	for i := range b.Pictures {
		b.Pictures[i].Source = htmltemplate.URL("cid:" + pictureID(i)) //nolint:gosec // it has no value of anybody
	}
	for _, f := range c.Facts {
		if len(b.Facts) == maxFacts || room <= 0 {
			break
		}
		f.Label, f.Value = line(f.Label), cut(strings.ToValidUTF8(f.Value, ""), min(maxFact, room))
		room -= utf8.RuneCountInString(f.Value)
		b.Facts = append(b.Facts, f)
	}
	return &b
}

// pictureID returns the Content-ID of a picture.
func pictureID(i int) string { return fmt.Sprintf("picture-%d", i) }

//go:embed mail.html mail.txt
var templates embed.FS

// parsed holds the templates of a mail.
type parsed struct {
	html *htmltemplate.Template
	text *texttemplate.Template
}

func parse() parsed {
	return parsed{
		htmltemplate.Must(htmltemplate.ParseFS(templates, "mail.html")),
		texttemplate.Must(texttemplate.ParseFS(templates, "mail.txt")),
	}
}

// render returns the text and the HTML.
func (c *Content) render(p parsed) (text, html string, err error) {
	b := c.bounded()
	var t, h bytes.Buffer
	if err := p.text.Execute(&t, b); err != nil {
		return "", "", err
	}
	if err := p.html.Execute(&h, b); err != nil {
		return "", "", err
	}
	return strings.TrimSpace(t.String()) + "\n", h.String(), nil
}
