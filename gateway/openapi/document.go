// Package openapi makes the OpenAPI 3.1 document from operation rows and the Go types of their answers. It has no
// knowledge of single operations.
//
// The tags of a struct describe its members: json as in encoding/json, doc (the description), format ("date-time") and
// enum ("a,b"). A blank field with a doc tag describes the struct itself; with a model tag, it names a struct type that
// has no name. A member without omitempty or omitzero is required, and may be null if it is a pointer.
package openapi

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tenantry/operation"
	"tenantry/tenants"
)

// Info describes the service.
type Info struct {
	Title   string
	Version string
	// ServerURL is the address of an organization, with one name in braces for its slug:
	// "https://{organization}.example.com". Empty: the address that serves the document.
	ServerURL string
	// Cookie is the name of the session cookie. Empty: __Host-tenantry_session.
	Cookie string
	// Message is an example of what is sent to webhooks about records of a kind; nil: nothing is.
	Message func(kind string) any
}

// Document is an OpenAPI document. It is immutable and safe for concurrent use.
type Document struct{ text []byte }

// JSON returns the document as compact JSON. The caller must not change the bytes.
func (d *Document) JSON() []byte { return d.text }

// Names of the components and headers that every document has.
const (
	keyScheme     = "apiKey"
	sessionScheme = "session"

	keyHeader     = "x-service-token"
	defaultCookie = "__Host-tenantry_session"

	teamsParam       = "teams"
	preferParam      = "prefer"
	ifMatchParam     = "if_match"
	ifNoneMatchParam = "if_none_match"
	idempotencyParam = "idempotency_key"

	tagsPattern = `^(\*|(W/)?"[!#-~]*"( ?, ?(W/)?"[!#-~]*")*)$`

	ignoredHeader    = "X-Ignored"
	tagHeader        = "ETag"
	replayedHeader   = "Idempotency-Replayed"
	requestIDHeader  = "X-Request-Id"
	retryAfterHeader = "Retry-After"

	limitHeader     = "RateLimit-Limit"
	remainingHeader = "RateLimit-Remaining"
	resetHeader     = "RateLimit-Reset"
)

// Build makes the document of the operations. The result does not depend on the order of the rows. The error names all
// rows that cannot be described.
func Build(info Info, ops []operation.Row) (*Document, error) {
	b := &builder{
		schemas: newSchemas(), components: map[string]object{},
		paths: map[string]map[string]object{}, ids: map[string]bool{},
	}
	servers, err := serversOf(info.ServerURL)
	if err != nil {
		return nil, err
	}
	if info.Title == "" || info.Version == "" {
		return nil, errors.New("the document needs a title and a version")
	}
	if err := b.sharedResponses(); err != nil {
		return nil, err
	}
	var faults []error
	byName := func(a, b operation.Row) int { return strings.Compare(a.Name, b.Name) }
	for _, op := range slices.SortedFunc(slices.Values(ops), byName) {
		if err := b.add(&op); err != nil {
			faults = append(faults, fmt.Errorf("operation %s (%s %s): %w", op.Name, op.Method, op.Path, err))
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	sent, err := b.webhooks(info, ops)
	if err != nil {
		return nil, fmt.Errorf("describing what is sent to webhooks: %w", err)
	}
	document := object{
		{"openapi", "3.1.1"},
		{"info", object{{"title", info.Title}, {"version", info.Version}, {"description", generalRules}}},
		{"jsonSchemaDialect", "https://json-schema.org/draft/2020-12/schema"},
		{"servers", servers},
		{"tags", tagsOf(ops)},
		{"paths", b.pathItems()},
		{"webhooks", sent},
		{"components", object{
			{"securitySchemes", securitySchemes(cmp.Or(info.Cookie, defaultCookie), ops)},
			{"parameters", sharedParameters()},
			{"headers", sharedHeaders()},
			{"responses", sorted(b.components)},
			{"schemas", sorted(b.schemas.components)},
		}},
	}
	text, err := encode(document)
	if err != nil {
		return nil, fmt.Errorf("writing the OpenAPI document: %w", err)
	}
	return &Document{text}, nil
}

// builder collects the parts of the document.
type builder struct {
	schemas    *schemas
	components map[string]object            // responses by name
	paths      map[string]map[string]object // by path, then method
	ids        map[string]bool
}

func (b *builder) pathItems() object {
	items := make(map[string]object, len(b.paths))
	for path, methods := range b.paths {
		items[path] = sorted(methods)
	}
	return sorted(items)
}

func serversOf(template string) ([]any, error) {
	if template == "" {
		return []any{object{{"url", "/"}}}, nil
	}
	server := object{{"url", template}}
	before, rest, found := strings.Cut(template, "{")
	if found {
		name, after, closed := strings.Cut(rest, "}")
		if !closed || name == "" || strings.ContainsAny(name, "{") || strings.ContainsAny(before+after, "{}") {
			return nil, fmt.Errorf("the server address %q is invalid: it may have one name in braces, for the slug of the organization",
				template)
		}
		server = server.with("variables", object{{name, object{
			{"default", "acme"}, {"description", "The organization's slug, the first label of the host."},
		}}})
	}
	return []any{server}, nil
}

func tagsOf(ops []operation.Row) []any {
	var names []string
	for i := range ops {
		names = append(names, ops[i].Tag)
	}
	slices.Sort(names)
	tags := []any{}
	for _, name := range slices.Compact(names) {
		tags = append(tags, object{{"name", name}})
	}
	return tags
}

func securitySchemes(cookie string, ops []operation.Row) object {
	var browser []string
	for i := range ops {
		if ops[i].Kinds.Admits(tenants.Browser) && !ops[i].Rule.IsAdminOnly() {
			browser = append(browser, ops[i].ID(0))
		}
	}
	slices.Sort(browser)
	return object{
		{keyScheme, object{
			{"type", "apiKey"}, {"in", "header"}, {"name", keyHeader},
			{"description", "An API key of a service account. It must be sent in exactly one header of that name, and nowhere else. " +
				"Keys of the kind " + strconv.Quote(tenants.Browser.Label()) + " may call " +
				cmp.Or(strings.Join(browser, ", "), "nothing") + "; each operation says which other kinds may call it."},
		}},
		{sessionScheme, object{
			{"type", "apiKey"}, {"in", "cookie"}, {"name", cookie},
			{"description", "The browser session of a signed-in person."},
		}},
	}
}

func sharedParameters() object {
	return object{
		{teamsParam, object{
			{"name", "teams[]"}, {"in", "query"}, {"required", false},
			{"description", "Narrows the answer to these teams; it never widens what the caller may see. Repeat the parameter for several teams. " +
				"Values that are not team identifiers are ignored; with strict handling they are a 400. Without brackets only the last value counts."},
			{"style", "form"}, {"explode", true},
			{"schema", teamList()},
			{"example", []string{"64b7f0c2a1d3e4f5a6b7c8d9"}},
		}},
		{preferParam, headerParameter("Prefer", object{{"type", "string"}},
			"handling=strict (RFC 7240) makes input that would be ignored a 400.").with("example", "handling=strict")},
		{ifMatchParam, headerParameter("If-Match", object{{"type", "string"}, {"pattern", tagsPattern}},
			"Carries out the call only if the record has the revision of one of these tags, as "+tagHeader+" gave them; "+
				"otherwise the answer is a 412.")},
		{ifNoneMatchParam, headerParameter("If-None-Match", object{{"type", "string"}, {"pattern", tagsPattern}},
			"Tags of answers that the caller has, as "+tagHeader+" gave them. If one is the tag of this answer, the answer is a 304 without a body.")},
		{idempotencyParam, headerParameter("Idempotency-Key",
			object{{"type", "string"}, {"minLength", 1}, {"maxLength", 255}, {"pattern", "^[!-~]+$"}},
			"Names this request, so that it can be sent again without being carried out twice: "+
				"for 24 hours the same caller gets the same answer again, with the header "+replayedHeader+". "+
				"Another path, query or body with the same key is a 422. While the first request is being carried out, "+
				"and if its answer was lost or had a secret that is shown once, the answer is a 409 that says so. "+
				"Answers with code 412, or 500 and above, are not kept. Choose the key at random, such as a UUID.")},
	}
}

// headerParameter describes an optional request header.
func headerParameter(name string, schema object, description string) object {
	return object{{"name", name}, {"in", "header"}, {"required", false}, {"description", description}, {"schema", schema}}
}

// teamList is the schema of a list of team identifiers.
func teamList() object {
	return object{{"type", "array"}, {"items", object{{"type", "string"}, {"pattern", "^[0-9a-f]{24}$"}}}}
}

func sharedHeaders() object {
	return object{
		{ignoredHeader, header(false, object{{"type", "string"}},
			"The names of parameters and body fields that were ignored, separated by commas: "+
				"the operation does not know them, or callers may not set them.")},
		{tagHeader, header(false, object{{"type", "string"}},
			"Names the revision of the record and the content of the answer, for the request headers If-Match and If-None-Match.")},
		{replayedHeader, header(false, object{{"type", "string"}, {"const", "true"}},
			"true if the request was carried out before, and this is the answer from then.")},
		{requestIDHeader, header(true, object{{"type", "string"}},
			"Names the request in the log of the service. A caller may choose it with the request header of that name.")},
		{retryAfterHeader, header(true, object{{"type", "integer"}, {"minimum", 0}},
			"Seconds to wait before the request is sent again.")},
		{limitHeader, header(false, object{{"type", "integer"}, {"minimum", 1}},
			"How many requests the limit admits in its period. If several limits apply, it is the tightest. "+
				"The RateLimit headers are absent if no limit counted the request, such as when the credential was not accepted.")},
		{remainingHeader, header(false, object{{"type", "integer"}, {"minimum", 0}},
			"How many more requests that limit admits now.")},
		{resetHeader, header(false, object{{"type", "integer"}, {"minimum", 0}},
			"Seconds until that limit is full again if no more requests are sent. It fills up evenly.")},
	}
}

// header describes a header of an answer.
func header(required bool, schema object, description string) object {
	described := object{{"description", description}}
	if required {
		described = append(described, member{"required", true})
	}
	return append(described, member{"schema", schema})
}
