package gatewaytest

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"tenantry/operation"
)

// Request changes a request before it is sent.
type Request func(*http.Request)

// WithKey sets the API key.
func WithKey(token string) Request { return Header("x-service-token", token) }

// Header adds a header.
func Header(name, value string) Request {
	return func(r *http.Request) { r.Header.Add(name, value) }
}

// Cookie adds a session cookie.
func Cookie(c *http.Cookie) Request {
	return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value}) }
}

// JSON sets the body to the value as JSON.
func JSON(v any) Request {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return Body("application/json", string(raw))
}

// Body sets the body and its content type.
func Body(contentType, body string) Request {
	return func(r *http.Request) {
		r.Header.Set("Content-Type", contentType)
		r.Body = io.NopCloser(strings.NewReader(body))
		r.ContentLength = int64(len(body))
	}
}

// Answer is the answer to a request.
type Answer struct {
	Code   int
	Header http.Header
	Body   []byte
	// The members of the envelope. Numbers in Data are json.Number.
	Status  string
	Message string
	Data    any
}

// Text returns the body as text.
func (a *Answer) Text() string { return string(a.Body) }

// DataJSON returns data as it is spelled in the body.
func (a *Answer) DataJSON() string {
	var e struct {
		Data json.RawMessage `json:"data"`
	}
	_ = json.Unmarshal(a.Body, &e) // other bodies have no data
	return string(e.Data)
}

// Field returns data[name], or nil if data is not an object or lacks it.
func (a *Answer) Field(name string) any {
	m, _ := a.Data.(map[string]any)
	return m[name]
}

// Do sends a request for the organization and returns the answer. An answer that the OpenAPI document does not describe
// fails the test.
func (o *Org) Do(t testing.TB, method, path string, changes ...Request) *Answer {
	t.Helper()
	return o.Gateway.Do(t, method, o.Host, path, changes...)
}

// Get sends a GET request with a key; an empty token sends none.
func (o *Org) Get(t testing.TB, token, path string, changes ...Request) *Answer {
	t.Helper()
	if token != "" {
		changes = append([]Request{WithKey(token)}, changes...)
	}
	return o.Do(t, http.MethodGet, path, changes...)
}

// Do sends a request to any host; see Org.Do.
func (g *Gateway) Do(t testing.TB, method, host, path string, changes ...Request) *Answer {
	t.Helper()
	a := g.raw(t, method, host, path, changes, nil)
	if strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/auth/") || strings.HasPrefix(path, operation.ContentPath) ||
		strings.HasPrefix(path, operation.FormPath) {
		e := g.validator(t).ValidateResponse(t, method, path, a.Code, a.Header, a.Body)
		a.Status, _ = e["status"].(string)
		a.Message, _ = e["message"].(string)
		a.Data = e["data"]
	}
	return a
}

// Page gets a page or a file of the organization, which is not an operation.
func (o *Org) Page(t testing.TB, path string, changes ...Request) *Answer {
	t.Helper()
	return o.raw(t, http.MethodGet, o.Host, path, changes, nil)
}

// Page sends a request that is not for an operation to any host.
func (g *Gateway) Page(t testing.TB, method, host, path string, changes ...Request) *Answer {
	t.Helper()
	return g.raw(t, method, host, path, changes, nil)
}

// As is Page with exactly the session in the request, even if it has been replaced.
func (g *Gateway) As(t testing.TB, method, host, path string, changes ...Request) *Answer {
	t.Helper()
	return g.send(t, g.request(t, method, host, path, changes, nil))
}

func (g *Gateway) raw(t testing.TB, method, host, path string, changes []Request, body io.Reader) *Answer {
	t.Helper()
	r := g.request(t, method, host, path, changes, body)
	session := g.replaceSession(r)
	a := g.send(t, r)
	if session != nil && (strings.HasPrefix(path, "/api/me/") || strings.HasPrefix(path, "/do/")) {
		for _, c := range (&http.Response{Header: a.Header}).Cookies() {
			if c.Name == session.Name {
				g.renewed.Store(session.Value, c.Value)
			}
		}
	}
	return a
}

func (g *Gateway) request(t testing.TB, method, host, path string, changes []Request, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, g.URL(path), body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	r.Host = host
	for _, change := range changes {
		change(r)
	}
	return r
}

func (g *Gateway) send(t testing.TB, r *http.Request) *Answer {
	t.Helper()
	resp, err := g.client.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", r.Method, r.URL, err)
	}
	defer resp.Body.Close()
	var raw []byte
	if resp.Header.Get("Content-Type") == operation.EventStream && r.Method != http.MethodHead {
		raw, err = firstBlock(resp.Body) // it has no end
	} else {
		raw, err = io.ReadAll(resp.Body)
	}
	if err != nil {
		t.Fatalf("%s %s: %v", r.Method, r.URL, err)
	}
	return &Answer{Code: resp.StatusCode, Header: resp.Header, Body: raw}
}

// firstBlock reads a stream of events up to its first empty line.
func firstBlock(from io.Reader) (text []byte, err error) {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if text = append(text, line...); err != nil || len(line) == 1 {
			return text, err
		}
	}
}

// replaceSession replaces the session of the request by the one that succeeded it, and returns that; nil if the request
// has none.
func (g *Gateway) replaceSession(r *http.Request) *http.Cookie {
	cookies := r.Cookies()
	if len(cookies) != 1 {
		return nil
	}
	c := cookies[0]
	for next, ok := g.renewed.Load(c.Value); ok; next, ok = g.renewed.Load(c.Value) {
		c.Value = next.(string)
		r.Header.Set("Cookie", c.Name+"="+c.Value)
	}
	return c
}
