package operation

import (
	"context"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/tenants"
)

// Call is one call of an operation. It belongs to one request; handlers do not keep it.
type Call struct {
	Operation *Row
	Tenant    *tenants.Tenant
	Principal *tenants.Principal
	// Workspace is the organization's data as this caller and request may see it.
	Workspace *store.Workspace
	Scope     store.Scope
	Query     Query
	Body      Body
	Unknown   fault.List // names the fields of the body that callers cannot set; see Operation.Joins
	// Upload is the file that is the body, where the row takes one. Errors of reading it: a *Problem where
	// it is larger than it may be or stops arriving.
	Upload    io.Reader
	RequestID string
	Remote    netip.Addr
	BaseURL   string      // "https://acme.example.com", of this organization
	Header    http.Header // of the answer; facts that have no place in the envelope go here
	Strict    bool        // input that would be ignored is a 400
	// SessionToken is the browser session the caller was authenticated by, for ending it.
	SessionToken string

	// Revision is that of the one record which a handler answers with, in a row that is Revised; 0: none.
	// The answer then bears an ETag.
	Revision int64
	// NoneMatch are the tags that the caller has already, of If-None-Match.
	NoneMatch Tags

	// AuditNote goes into the audit record, where the row asks for one. Never a secret or a personal value.
	AuditNote map[string]string

	// Expired is the time, in Unix milliseconds, before which records were deleted that are about to end; 0: none are.
	Expired int64

	// Known are the definitions that the call has read, so that none is read twice.
	Known record.Known

	// Journal is what Commit adds to the last batch; nil: nothing.
	Journal Journal

	// Undo, where a handler sets it, takes back what the handler did if its success cannot be told: because the
	// handler failed after all, the audit record cannot be written, or, of a row that tells a secret Once,
	// nobody waits for it any more.
	Undo func(ctx context.Context) error

	// Recheck, where the handler of an open operation sets it, says whether what the caller was given is still good,
	// of the organization as it is then: it is asked whenever the access of a call is confirmed. Its error is answered.
	// One that reads and streams nothing may leave that until the call TookLong.
	Recheck func(ctx context.Context, t *tenants.Tenant) error

	credential Credential
	origin     string
	began      time.Time // once the caller is known

	claim     *store.Claim
	journaled bool

	path    func(name string) string
	sent    http.Header
	ignored []string
	match   Tags // of If-Match
}

// NewCall returns a Call whose path parameters come from path. It is strict where the row is
// none of the contract's.
func NewCall(o *Row, path func(string) string) *Call {
	return &Call{Operation: o, Header: http.Header{}, Strict: o != nil && !o.Contract, path: path}
}

// Path returns a path parameter, "" where the path taken has none of that name.
func (c *Call) Path(name string) string { return c.path(name) }

// Rename gives a path parameter another value: what else the caller may call the same thing.
func (c *Call) Rename(name, value string) {
	was := c.path
	c.path = func(asked string) string {
		if asked == name {
			return value
		}
		return was(asked)
	}
}

// RequestHeader returns a parameter that the row has in the header, "" where it was not sent. What is there
// more than once is a 400.
func (c *Call) RequestHeader(name string) (string, error) {
	values := c.sent.Values(name)
	if len(values) > 1 {
		return "", BadRequest("The header %s must be there once", name)
	}
	return strings.Join(values, ""), nil
}

// maxIgnored bounds the header that names what was ignored.
const maxIgnored = 20

// Ignore notes input that was not used. The answer names it in the header X-Ignored; a
// caller who asked for strict handling gets a 400 instead.
func (c *Call) Ignore(name string) {
	if len(c.ignored) < maxIgnored && !slices.Contains(c.ignored, name) {
		c.ignored = append(c.ignored, name)
	}
}

// Ignored returns the names of ignored input.
func (c *Call) Ignored() []string { return c.ignored }

// Entitled returns the organization's data as the caller may see it, whatever the request was narrowed to.
func (c *Call) Entitled() *store.Workspace {
	return c.Tenant.Workspace().Scoped(c.Principal.Scope(c.Tenant, nil))
}

// Note adds a fact to the audit record.
func (c *Call) Note(key, value string) {
	if c.AuditNote == nil {
		c.AuditNote = map[string]string{}
	}
	c.AuditNote[key] = value
}

// CheckIgnored returns the 400 that strict handling answers where something was ignored.
// A handler that ignores more input calls it before it changes anything.
func (c *Call) CheckIgnored() error {
	if !c.Strict || len(c.ignored) == 0 {
		return nil
	}
	names := make([]string, len(c.ignored))
	for i, name := range c.ignored {
		names[i] = texts.Clip(name)
	}
	return BadRequest("The operation does not take %q", names)
}

// Warn adds to the header X-Warning what the caller should know of a call that succeeds. An empty text adds nothing.
func (c *Call) Warn(text string) {
	switch said := c.Header.Get("X-Warning"); {
	case text == "" || strings.Contains(said, text):
	case said == "":
		c.Header.Set("X-Warning", text)
	default:
		c.Header.Set("X-Warning", said+"; "+text)
	}
}

// IgnoreParts is Ignore for parts of fields. With strict handling it returns the 400 to answer with
// before anything is stored.
func (c *Call) IgnoreParts(names ...string) error {
	for _, name := range names {
		c.Ignore(name)
	}
	if c.Strict && len(names) > 0 {
		return BadRequest("Not accepted with strict handling: %s", strings.Join(names, ", "))
	}
	return nil
}
