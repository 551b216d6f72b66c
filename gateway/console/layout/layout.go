// Package layout writes pages: the templates and the files that they load, the frame around a page, the parts that many
// pages have, and the messages for visitors who cannot be shown what they asked for. Each package of pages hands its
// view to Renderer.Render by the name of a template; views are plain structs of what the template shows.
package layout

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"

	"tenantry/gateway/console/site"
	"tenantry/operation"
)

//go:embed assets
var assets embed.FS

// Renderer writes pages of the templates. Safe for concurrent use.
type Renderer struct {
	templates *template.Template
	log       *slog.Logger
	baseURL   func(slug string) string
}

// New parses the templates. An error is a fault of the program.
func New(baseURL func(slug string) string, log *slog.Logger) (*Renderer, error) {
	t, err := template.ParseFS(assets, "assets/*.html")
	if err != nil {
		return nil, fmt.Errorf("console pages: %w", err)
	}
	return &Renderer{t, log, baseURL}, nil
}

// Assets calls serve with each file that pages load.
func Assets(serve func(name, contentType string, content []byte)) error {
	for name, contentType := range map[string]string{"console.css": "text/css; charset=utf-8", "report.css": "text/css; charset=utf-8", "console.js": "text/javascript; charset=utf-8"} {
		content, err := assets.ReadFile("assets/" + name)
		if err != nil {
			return fmt.Errorf("console assets: %w", err)
		}
		serve(name, contentType, content)
	}
	return nil
}

// Missing answers 404 to visitors who are not signed in.
func (p *Renderer) Missing(w http.ResponseWriter) {
	p.Render(w, http.StatusNotFound, "message", MessageView{Frame: Frame{Title: "There is no such page"}, Text: "Check the address, or ask whoever gave it to you.", Home: true})
}

// ContentSecurityPolicy is what a page may load, and whose pages may show it in a frame.
func ContentSecurityPolicy(ancestors ...string) string {
	return "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors " + strings.Join(ancestors, " ")
}

// Stranger is the view of people who may be at the wrong address.
type Stranger struct {
	Frame
	Address string // how an organization's looks
}

// Stranger returns the view of somebody who may be at the wrong address.
func (p *Renderer) Stranger(title string) Stranger {
	return Stranger{Frame{Title: title}, p.baseURL("<organization>")}
}

// Frame is around every page.
type Frame struct {
	Title        string
	Organization string
	Inside       bool // a page of somebody who is signed in
	Faulty       bool // something that was sent is wrong
}

// Render answers with the page that the template of the name makes of the view. A template that fails is logged, and
// answered as 500.
func (p *Renderer) Render(w http.ResponseWriter, code int, name string, data any) {
	var buf bytes.Buffer
	if err := p.templates.ExecuteTemplate(&buf, name, data); err != nil {
		p.log.Error("a page could not be made", "page", name, "error", err)
		http.Error(w, "Something went wrong. Please try again.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(buf.Bytes()) // a browser that has gone cannot be told
}

// Message answers with a page that is a message alone. organization is its name in the header; empty: the page tells
// none.
func (p *Renderer) Message(w http.ResponseWriter, code int, organization, title, text string) {
	p.Render(w, code, "message", MessageView{Frame: Frame{Title: title, Organization: organization}, Text: text})
}

// MessageView is a page that is a message alone.
type MessageView struct {
	Frame
	Text   string
	SignIn bool // leads to signing in, in another window
	Home   bool // leads to the overview
	// Instead leads to what can be shown.
	Instead site.Link
}

// Unavailable answers 503, and asks to try again.
func (p *Renderer) Unavailable(w http.ResponseWriter, organization string) {
	w.Header().Set("Retry-After", "2")
	p.Message(w, http.StatusServiceUnavailable, organization, "Not available at the moment", "Please try again in a moment.")
}

// TooMany asks a visitor who is over a limit to come back.
func (p *Renderer) TooMany(w http.ResponseWriter, r *http.Request, problem *operation.Problem) {
	seconds := int(math.Ceil(problem.RetryAfter.Seconds()))
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	text := "More is asked for than can be answered at once. Nothing is wrong with the address: try again in " + Wait(seconds) + "."
	if r.Method == http.MethodPost {
		text = "More is asked for than can be answered at once. Nothing was saved. Load this page again in " + Wait(seconds) + ": the browser sends once more what you typed."
	}
	p.Message(w, problem.Code, "", "Please wait a moment", text)
}

// Wait writes 1 second, 2 seconds; from two minutes on in minutes.
func Wait(seconds int) string {
	switch {
	case seconds == 1:
		return "1 second"
	case seconds < 120:
		return strconv.Itoa(seconds) + " seconds"
	}
	return strconv.Itoa((seconds+59)/60) + " minutes"
}
