package operation

import (
	"context"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/internal/typos"
	"tenantry/tenants"
)

// Call is one call of an operation. It belongs to one request; handlers must not keep it.
type Call struct {
	Operation *Row
	Tenant    *tenants.Tenant
	Principal *tenants.Principal
	// Workspace is the organization's data that this caller and request may see.
	Workspace *store.Workspace
	Scope     store.Scope
	Query     Query
	Body      Body
	Unknown   fault.List // names the fields of the body that callers cannot set; see Operation.Joins
	// Upload is the file that is the body, if the row takes one. Reading fails with a *Problem if the file is larger
	// than allowed or stops arriving.
	Upload io.Reader
	// UploadSize is the length of that file as the caller declares it, in bytes; -1: the caller does not.
	UploadSize int64

	RequestID string
	Remote    netip.Addr
	BaseURL   string      // "https://acme.example.com", of this organization
	Header    http.Header // of the answer, for facts that have no place in the envelope
	Strict    bool        // input that would be ignored is refused with a 400
	// SessionToken is the token of the browser session that authenticated the caller. Signing out needs it.
	SessionToken string

	// CrossSite, of a call of a row with AnySite: a page of another site makes the call, and it is not a plain read.
	CrossSite bool
	// CountVisitor counts a call of a row with AnySite against the limit of visitors. of names what the caller visits. Its
	// error is a 429. Nil: visitors are not counted.
	CountVisitor func(ctx context.Context, of string) error

	// Revision is the revision of the one record that the handler answers, in a row that is Revised; 0: none. The
	// answer then has an ETag.
	Revision int64
	// NoneMatch are the tags of If-None-Match, which name answers that the caller already has.
	NoneMatch Tags

	// AuditNote goes into the audit record if the row is audited. It must not hold secrets or personal values.
	AuditNote map[string]string

	// Expired is a time in Unix milliseconds: records deleted before it are about to be removed for good; 0: none are.
	Expired int64

	// Known caches the definitions that the call has read.
	Known record.Known

	// Narrow returns filters that the list or export that the call answers has besides those of the caller; see
	// crud.Only. They are asked for when the parameters of the call have been read.
	Narrow []func(context.Context, *Call) (store.Filter, error)

	// Discard makes Commit answer as if it had stored the batch, or refuse it if there is no room for it, but store
	// nothing.
	Discard bool

	// Journal adds the records of the pipeline to the last batch; see Commit. Nil adds nothing.
	Journal Journal

	// Undo, if a handler sets it, reverts the handler's work when its success cannot be reported: the handler failed
	// after all, the audit record cannot be written, or the caller of a row that answers a secret Once is gone.
	Undo func(ctx context.Context) error

	// Recheck, if the handler of an open operation sets it, checks against the current organization whether the caller
	// may still have what it was given. It runs whenever the access of the call is confirmed, and its error is
	// answered. A handler that only reads and does not stream may set it after the call TookLong.
	Recheck func(ctx context.Context, t *tenants.Tenant) error

	credential Credential
	origin     string
	began      time.Time // when Run was called

	claim     *store.Claim
	journaled bool

	uploadLimit   int64 // bytes; see LimitUpload
	uploadLimitOf string
	contents      []*Content // which the handler has returned

	path    func(name string) string
	sent    http.Header
	ignored []string
	match   Tags // of If-Match
}

// NewCall returns a Call whose path parameters come from path. It is strict unless the row belongs to the contract.
func NewCall(o *Row, path func(string) string) *Call {
	return &Call{Operation: o, Header: http.Header{}, Strict: o != nil && !o.Contract, path: path}
}

// Path returns a path parameter; "" if the matched path has none of that name.
func (c *Call) Path(name string) string { return c.path(name) }

// Origin returns the origin of the page that makes the call; empty if no page does, or its browser does not say.
func (c *Call) Origin() string { return c.origin }

// Rename gives a path parameter another value, such as the identifier for a name that the caller used.
func (c *Call) Rename(name, value string) {
	was := c.path
	c.path = func(asked string) string {
		if asked == name {
			return value
		}
		return was(asked)
	}
}

// RequestHeader returns a header parameter of the row; "" if it was not sent. A header that is sent more than once is
// a 400.
func (c *Call) RequestHeader(name string) (string, error) {
	values := c.sent.Values(name)
	if len(values) > 1 {
		return "", BadRequest("The header %s must be sent only once", name)
	}
	return strings.Join(values, ""), nil
}

// maxIgnored bounds how many names of ignored input the answer lists.
const maxIgnored = 20

// Ignore notes input that was not used. The answer names it in the header X-Ignored; a call with strict handling is
// refused with a 400 instead.
func (c *Call) Ignore(name string) {
	if len(c.ignored) < maxIgnored && !slices.Contains(c.ignored, name) {
		c.ignored = append(c.ignored, name)
	}
}

// maxSuggested is the longest name, in bytes, for which similar ones are looked for.
const maxSuggested = 64

// Ignored returns the names of ignored input.
func (c *Call) Ignored() []string { return c.ignored }

// Entitled returns all of the organization's data that the caller may see, even if the request names fewer teams.
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

// CheckIgnored returns the 400 of strict handling if input was ignored. A handler that ignores further input calls it
// before it changes anything.
func (c *Call) CheckIgnored() error {
	if !c.Strict || len(c.ignored) == 0 {
		return nil
	}
	return c.untaken(c.ignored...)
}

// untaken returns the 400 for parameters or members of the body that the operation does not take. It suggests the
// parameter of which a single name is probably a misspelling.
func (c *Call) untaken(names ...string) *Problem {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = strconv.Quote(texts.Clip(name))
	}
	hint, root, rest := "", names[0], ""
	if i := strings.IndexByte(root, '['); i >= 0 {
		root, rest = root[:i], root[i:]
	}
	if len(names) == 1 && len(names[0]) <= maxSuggested {
		var known []string
		for _, p := range c.Operation.Params {
			if p.In == InQuery {
				known = append(known, p.Name)
			}
		}
		if near := typos.Nearest(root, known); near != "" && near != root {
			meant := strconv.Quote(near + rest) // for its escapes, because rest is any text
			hint = "; did you mean " + meant[1:len(meant)-1] + "?"
		}
	}
	return BadRequest("The operation does not take %s%s", strings.Join(quoted, ", "), hint)
}

// Warn adds to the header X-Warning of a successful answer. An empty text adds nothing. Characters outside of ASCII are
// escaped, because clients disagree about how headers encode them.
func (c *Call) Warn(text string) {
	var ascii strings.Builder
	for _, r := range text {
		if r < utf8.RuneSelf {
			ascii.WriteRune(r)
		} else {
			ascii.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
	}
	text = ascii.String()
	switch said := c.Header.Get("X-Warning"); {
	case text == "" || strings.Contains(said, text):
	case said == "":
		c.Header.Set("X-Warning", text)
	default:
		c.Header.Set("X-Warning", said+"; "+text)
	}
}

// IgnoreParts is Ignore for parts of fields. With strict handling it returns a 400; the handler must return that
// before it stores anything.
func (c *Call) IgnoreParts(names ...string) error {
	for _, name := range names {
		c.Ignore(name)
	}
	if c.Strict && len(names) > 0 {
		return BadRequest("Not accepted with strict handling: %s", strings.Join(names, ", "))
	}
	return nil
}
