// Package layout renders pages. It holds the templates and their assets, the frame of a page, the parts that many pages
// share, and the messages for requests that cannot be served. Other packages pass a view, a plain struct of what the
// template shows, to Renderer.Render with the name of a template.
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

// Sheet returns a style sheet of pages; empty: there is none of that name.
func Sheet(name string) string {
	text, err := assets.ReadFile("assets/" + name)
	if err != nil {
		return ""
	}
	return string(text)
}

// Renderer renders the templates. Safe for concurrent use.
type Renderer struct {
	templates *template.Template
	log       *slog.Logger
	baseURL   func(slug string) string
}

// New parses the templates. An error is a bug in the program.
func New(baseURL func(slug string) string, log *slog.Logger) (*Renderer, error) {
	t, err := template.ParseFS(assets, "assets/*.html")
	if err != nil {
		return nil, fmt.Errorf("console pages: %w", err)
	}
	return &Renderer{t, log, baseURL}, nil
}

// Assets calls serve with each file that pages load.
func Assets(serve func(name, contentType string, content []byte)) error {
	contentTypes := map[string]string{
		"console.css": "text/css; charset=utf-8",
		"report.css":  "text/css; charset=utf-8",
		"console.js":  "text/javascript; charset=utf-8",
		"files.js":    "text/javascript; charset=utf-8",
		"follow.js":   "text/javascript; charset=utf-8",
		"work.js":     "text/javascript; charset=utf-8",
	}
	for name, contentType := range contentTypes {
		content, err := assets.ReadFile("assets/" + name)
		if err != nil {
			return fmt.Errorf("console assets: %w", err)
		}
		serve(name, contentType, content)
	}
	return nil
}

// NotFound answers 404 to visitors who are not signed in.
func (p *Renderer) NotFound(w http.ResponseWriter) {
	p.Render(w, http.StatusNotFound, "message", MessageView{
		Frame: Frame{Title: "There is no such page"},
		Text:  "Check the address, or ask the person who gave it to you.",
		Home:  true,
	})
}

// ContentSecurityPolicy returns the policy of a page: it loads files of its own origin only. ancestors are the origins
// whose pages may show it in a frame.
func ContentSecurityPolicy(ancestors ...string) string {
	return "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors " + strings.Join(ancestors, " ")
}

// FormPolicy returns the policy of the page of a public form. target is an origin to which visitors are sent once they
// have sent the form, empty for none; ancestors are the origins whose pages may show it in a frame.
func FormPolicy(target string, ancestors ...string) string {
	if len(ancestors) == 0 {
		ancestors = []string{"'none'"}
	}
	policy := ContentSecurityPolicy(ancestors...)
	if target != "" { // browsers hold redirects after a form against the policy too
		policy = strings.Replace(policy, "form-action 'self'", "form-action 'self' "+target, 1)
	}
	return policy
}

// FilesPolicy returns the policy of a page that no other may show, and that also loads pictures, audio, video and frames
// of one other origin.
func FilesPolicy(origin string) string {
	return "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; " +
		"img-src 'self' data: " + origin + "; media-src " + origin + "; frame-src " + origin + "; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
}

// AddressView is a page that tells visitors what the address of an organization looks like, because they may be at the
// wrong one.
type AddressView struct {
	Frame
	Address string // a template with <organization>; empty to tell nothing
}

// AddressView returns the view with the address of the installation's organizations.
func (p *Renderer) AddressView(title string) AddressView {
	return AddressView{Frame{Title: title}, p.baseURL("<organization>")}
}

// Frame is the part of a view that the frame of every page shows.
type Frame struct {
	Title        string
	Organization string // its name in the header; empty to show none
	SignedIn     bool   // the page is for a person who is signed in, and has a navigation
	HasProblems  bool   // the input of a form has faults, which the title announces
	TakesFiles   bool   // files can be dropped on the page
	Follows      *Follows
}

// Follows says which events change what a page shows. A page without scripts does not follow them.
type Follows struct {
	Kinds  string // kinds of records, separated by commas
	Record string // the identifier of the one record that is shown; empty for all of the kinds
	After  string // the cursor from before the page was made; empty if the event log has not begun
}

// Render answers with the page that the named template makes of a view. If the template fails, it logs the error and
// answers 500.
func (p *Renderer) Render(w http.ResponseWriter, code int, name string, data any) {
	var buf bytes.Buffer
	if err := p.templates.ExecuteTemplate(&buf, name, data); err != nil {
		p.log.Error("a page could not be made", "page", name, "error", err)
		http.Error(w, "Something went wrong. Please try again.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(buf.Bytes()) // an error means that the browser has gone
}

// Message answers with a page that shows only a message. organization is the name in the header, empty for none.
func (p *Renderer) Message(w http.ResponseWriter, code int, organization, title, text string) {
	p.Render(w, code, "message", MessageView{Frame: Frame{Title: title, Organization: organization}, Text: text})
}

// MessageView is a page that shows only a message.
type MessageView struct {
	Frame
	Text    string
	SignIn  bool      // adds a link to the sign-in page, in another window
	Home    bool      // adds a link to the overview
	Instead site.Link // leads to a page that can be shown
}

// Unavailable answers 503 and asks the visitor to try again.
func (p *Renderer) Unavailable(w http.ResponseWriter, organization string) {
	w.Header().Set("Retry-After", "2")
	p.Message(w, http.StatusServiceUnavailable, organization,
		"Not available at the moment", "Please try again in a moment.")
}

// TooMany tells a visitor who exceeds a limit when to try again.
func (p *Renderer) TooMany(w http.ResponseWriter, r *http.Request, problem *operation.Problem) {
	seconds := int(math.Ceil(problem.RetryAfter.Seconds()))
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	text := "There are too many requests at the moment. The address is right: try again in " + Wait(seconds) + "."
	if r.Method == http.MethodPost {
		text = "There are too many requests at the moment. Nothing was saved. Reload this page in " + Wait(seconds) +
			": your browser then sends again what you typed."
	}
	p.Message(w, problem.Code, "", "Please wait a moment", text)
}

// Wait formats a wait: "1 second", "90 seconds", and in minutes from two minutes on.
func Wait(seconds int) string {
	switch {
	case seconds == 1:
		return "1 second"
	case seconds < 120:
		return strconv.Itoa(seconds) + " seconds"
	}
	return strconv.Itoa((seconds+59)/60) + " minutes"
}
