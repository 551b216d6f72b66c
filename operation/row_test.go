package operation_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"tenantry/operation"
	"tenantry/tenants"
)

func goodRow() operation.Row {
	return operation.Row{
		Name: "things.get", Method: http.MethodGet, Path: "/api/things/{id}",
		Policy: operation.Policy{
			Credentials: operation.Key | operation.Session, Kinds: operation.ServerKeys,
			Rule: operation.AnyCaller(),
		},
		Request:  operation.Request{Params: []operation.Param{{Name: "id", In: operation.InPath, Shape: operation.Text}}},
		Response: operation.Response{Data: struct{}{}, Message: "Thing found", Example: struct{}{}},
		Docs:     operation.Docs{Tag: "Things", Summary: "Get a thing"},
		Handler:  func(context.Context, *operation.Call) (operation.Result, error) { return operation.Result{}, nil },
	}
}

// takesBody makes the row one that writes what its body says, takesFile what its file does.
func takesBody(o *operation.Row) {
	o.Method, o.Kinds, o.Audit, o.Body = http.MethodPost, operation.ServerFull, operation.AuditAlways, []operation.Field{}
}

func takesFile(o *operation.Row) {
	takesBody(o)
	o.Body, o.Upload, o.UploadExamples, o.UploadLimit = nil, []string{"text/csv"}, []string{"a\n1\n"}, 1
}

// answersBytes makes the row one that answers bytes.
func answersBytes(o *operation.Row) {
	o.Content, o.Data, o.Message, o.Example = []string{operation.AnyMedia}, nil, "", nil
}

// TestValidate_Bytes: rows that answer bytes or nothing need no example of an envelope, and may be at paths of their
// own.
func TestValidate_Bytes(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*operation.Row){
		"content":           func(o *operation.Row) { answersBytes(o); o.Path = "/files/things/{id}" },
		"content, API":      answersBytes,
		"no content":        func(o *operation.Row) { takesBody(o); answersBytes(o); o.Content, o.Code = nil, http.StatusNoContent },
		"created":           func(o *operation.Row) { takesBody(o); o.Code = http.StatusCreated },
		"PATCH":             func(o *operation.Row) { takesBody(o); o.Method = http.MethodPatch },
		"file by PUT":       func(o *operation.Row) { takesFile(o); o.Method = http.MethodPut },
		"file by PATCH":     func(o *operation.Row) { takesFile(o); o.Method = http.MethodPatch },
		"any file":          func(o *operation.Row) { takesFile(o); o.Upload = []string{operation.AnyMedia} },
		"header of OPTIONS": func(o *operation.Row) { o.Options = map[string]string{"X-A": "1"} },
	} {
		row := goodRow()
		change(&row)
		if faults := row.Validate(); len(faults) > 0 {
			t.Errorf("%s: got %v, want no faults", name, faults)
		}
	}
}

// TestValidate: a row that forgets something is not served.
func TestValidate(t *testing.T) {
	t.Parallel()
	row := goodRow()
	if faults := row.Validate(); len(faults) > 0 {
		t.Fatalf("a good row: %v", faults)
	}
	tests := []struct {
		name   string
		change func(*operation.Row)
		says   string
	}{
		{"no name", func(o *operation.Row) { o.Name = "" }, "the name must have the form things.verb"},
		{"name of one word", func(o *operation.Row) { o.Name = "things" }, "the name must have the form things.verb"},
		{"name in capitals", func(o *operation.Row) { o.Name = "Things.get" }, "the name must have the form things.verb"},
		{"method", func(o *operation.Row) {
			o.Method, o.Kinds, o.Audit = "FETCH", operation.ServerFull, operation.AuditAlways
		}, "unknown method"},
		{"no credential", func(o *operation.Row) { o.Credentials, o.Kinds = 0, 0 }, "takes no credential"},
		{"open and a key", func(o *operation.Row) { o.Credentials |= operation.Open }, "is open and takes a credential"},
		{"key without kinds", func(o *operation.Row) { o.Kinds = 0 }, "key kinds and credentials disagree"},
		{"kinds without key", func(o *operation.Row) { o.Credentials = operation.Session }, "key kinds and credentials disagree"},
		{"kind of pages without key", func(o *operation.Row) { o.Credentials, o.Kinds = operation.Session, operation.Browser }, "key kinds and credentials disagree"},
		{"open to keys of servers", func(o *operation.Row) { o.Credentials, o.Kinds = operation.Open, operation.ServerFull }, "key kinds and credentials disagree"},
		{"operator's and a key", func(o *operation.Row) { o.Credentials |= operation.Operator }, "is for the operator and takes another credential"},
		{"writes audited where something is noted", func(o *operation.Row) {
			o.Method, o.Kinds, o.Audit = http.MethodDelete, operation.ServerFull, operation.AuditNoted
		}, "changes something but is not audited"},
		{"tells a secret unaudited", func(o *operation.Row) { o.Once = true }, "answers a secret"},
		{"tells all unaudited", func(o *operation.Row) { o.Streams = []string{"text/csv"} }, "answers a secret or a stream"},
		{"body limit below 0", func(o *operation.Row) { takesBody(o); o.BodyLimit = -1 }, "a body limit must be from 1 to"},
		{"body limit above all", func(o *operation.Row) { takesBody(o); o.BodyLimit = operation.MaxBulkLimit + 1 }, "a body limit must be from 1 to"},
		{"body limit without a body", func(o *operation.Row) { o.BodyLimit = 5 }, "and needs a body"},
		{"file beside a body", func(o *operation.Row) { takesFile(o); o.Body = []operation.Field{} }, "an upload must be the whole body of a POST"},
		{"file by DELETE", func(o *operation.Row) { takesFile(o); o.Method = http.MethodDelete }, "an upload must be the whole body of a POST"},
		{"file without limit", func(o *operation.Row) { takesFile(o); o.UploadLimit = 0 }, "an upload must be the whole body of a POST"},
		{"file without example", func(o *operation.Row) { takesFile(o); o.UploadExamples = nil }, "an upload must be the whole body of a POST"},
		{"writes unaudited", func(o *operation.Row) { o.Method, o.Kinds = http.MethodDelete, operation.ServerFull }, "changes something but is not audited"},
		{"read-only key may write", func(o *operation.Row) { o.Method, o.Audit = http.MethodPost, operation.AuditAlways }, "takes read-only keys but does not read"},
		{"no rule", func(o *operation.Row) { o.Rule = operation.Rule{} }, "has no rule"},
		{"no handler", func(o *operation.Row) { o.Handler = nil }, "has no handler"},
		{"no data", func(o *operation.Row) { o.Data = nil }, "lacks data"},
		{"no message", func(o *operation.Row) { o.Message = "" }, "lacks data"},
		{"no summary", func(o *operation.Row) { o.Summary = "" }, "lacks data"},
		{"no tag", func(o *operation.Row) { o.Tag = "" }, "lacks data"},
		{"no example", func(o *operation.Row) { o.Example = nil }, "lacks data"},
		{"GET with a body", func(o *operation.Row) { o.Body = []operation.Field{} }, "is a GET but takes a body"},
		{"status of a failure", func(o *operation.Row) { o.Code = http.StatusNotFound }, "the status of a success must be"},
		{"content by POST", func(o *operation.Row) { takesBody(o); answersBytes(o) }, "content must be the whole answer of a GET"},
		{"content and rows", func(o *operation.Row) {
			answersBytes(o)
			o.Streams, o.Audit = []string{"text/csv"}, operation.AuditAlways
		}, "content must be the whole answer of a GET"},
		{"content with a revision", func(o *operation.Row) { answersBytes(o); o.Revised = true }, "content must be the whole answer of a GET"},
		{"content of a creation", func(o *operation.Row) { answersBytes(o); o.Code = http.StatusCreated }, "content must be the whole answer of a GET"},
		{"content told once", func(o *operation.Row) { answersBytes(o); o.Once, o.Audit = true, operation.AuditAlways }, "content must be the whole answer of a GET"},
		{"content without a summary", func(o *operation.Row) { answersBytes(o); o.Summary = "" }, "lacks data"},
		{"no content with a revision", func(o *operation.Row) { o.Code, o.Revised = http.StatusNoContent, true }, "answers 204 and something to read"},
		{"no content in rows", func(o *operation.Row) {
			o.Code, o.Streams, o.Audit = http.StatusNoContent, []string{"text/csv"}, operation.AuditAlways
		}, "answers 204 and something to read"},
		{"path of content", func(o *operation.Row) { o.Path = "/files/things/{id}" }, "must begin with /api/ or /auth/"},
		{"path elsewhere", func(o *operation.Row) { o.Path = "/things/{id}" }, "must begin with /api/ or /auth/"},
		{"undeclared path parameter", func(o *operation.Row) { o.Params = nil }, "path parameter id is not declared"},
		{"path parameter declared as query", func(o *operation.Row) { o.Params[0].In = operation.InQuery }, "path parameter id is not declared"},
		{"undeclared parameter of an alias", func(o *operation.Row) { o.Aliases = []string{"/api/things/{id}/{part}"} }, "path parameter part is not declared"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			row := goodRow()
			test.change(&row)
			faults := row.Validate()
			if len(faults) != 1 || !strings.Contains(faults[0].Error(), test.says) {
				t.Errorf("got %v, want one fault: %s", faults, test.says)
			}
		})
	}
	var zero operation.Row
	if faults := zero.Validate(); len(faults) < 6 {
		t.Errorf("the zero row has %d faults only: %v", len(faults), faults)
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	key := func(p ...tenants.Permission) *tenants.Principal {
		return &tenants.Principal{Kind: tenants.ServiceAccount, Admin: true, Permissions: p} // Admin has no meaning for an account
	}
	person := func(p ...tenants.Permission) *tenants.Principal {
		return &tenants.Principal{Kind: tenants.Person, Permissions: p}
	}
	admin := &tenants.Principal{Kind: tenants.Person, Admin: true}
	lacks := func(p string) string {
		return `{"status":"failed","message":"Lacking necessary permission ` + p + `","data":{"permission":"` + p + `"}}`
	}
	denied := `{"status":"failed","message":"` + operation.DeniedMessage + `","data":[]}`
	tests := []struct {
		name string
		rule operation.Rule
		who  *tenants.Principal
		want string // envelope of the refusal
	}{
		{"the zero rule refuses an admin", operation.Rule{}, admin, denied},
		{"any caller", operation.AnyCaller(), key(), ""},
		{"handler decides", operation.HandlerDecides(), key(), ""},
		{"permission held", operation.Needs(tenants.Contacts), key(tenants.Contacts), ""},
		{"permission lacking", operation.Needs(tenants.Contacts), key(tenants.ManageForms), lacks("contacts")},
		{"admin holds all", operation.Needs(tenants.ManageKeys), admin, ""},
		{"one of, the second", operation.NeedsOneOf(tenants.ViewFormSubmissions, tenants.ManageForms), person(tenants.ManageForms), ""},
		{"one of, none", operation.NeedsOneOf(tenants.ViewFormSubmissions, tenants.ManageForms), person(), lacks("view_form_submissions")},
		{"persons need, a key", operation.PersonsNeed(tenants.ManageFiles), key(), ""},
		{"persons need, a person without", operation.PersonsNeed(tenants.ManageFiles), person(tenants.ManageForms), lacks("manage_files")},
		{"persons need, a person with", operation.PersonsNeed(tenants.ManageFiles), person(tenants.ManageFiles), ""},
		{"persons need, nobody known", operation.PersonsNeed(tenants.ManageFiles), &tenants.Principal{}, lacks("manage_files")},
		{"admin only, admin", operation.AdminOnly("Manage Compliance"), admin, ""},
		{"admin only, the strongest key", operation.AdminOnly("Manage Compliance"), key(tenants.AllPermissions()...), `{"status":"failed","message":"Manage Compliance","data":{"permission":"Manage Compliance"}}`},
		{"admin only, a person with every permission", operation.AdminOnly("Manage Compliance"), person(tenants.AllPermissions()...), `{"status":"failed","message":"Manage Compliance","data":{"permission":"Manage Compliance"}}`},
		{"unlimited, a person in no team", operation.AnyCaller().Unlimited(), person(), ""},
		{"unlimited, an administrator limited to teams", operation.AnyCaller().Unlimited(), &tenants.Principal{Kind: tenants.Person, Admin: true, Teams: []string{}}, `{"status":"failed","message":"` + operation.NotLimited + `","data":[]}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			err := test.rule.Check(test.who, &tenants.Tenant{Org: tenants.Organization{Features: map[string]bool{tenants.FeatureTeams: true}}})
			if test.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if p := operation.ProblemOf(err); err == nil || p.Code != http.StatusForbidden || envelope(t, p) != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
	if !operation.AdminOnly("x").IsAdminOnly() || operation.AnyCaller().IsAdminOnly() {
		t.Error("IsAdminOnly")
	}
	rule := operation.Needs(tenants.Contacts)
	rule.Permissions()[0] = tenants.ManageKeys
	if rule.Check(key(tenants.ManageKeys), nil) == nil {
		t.Error("Permissions gives away the rule's own list")
	}
}

// TestAdmits: which credential an operation takes, and from where.
func TestAdmits(t *testing.T) {
	t.Parallel()
	const page = "https://app.example.com"
	key := func(kind tenants.KeyKind) *tenants.Principal {
		return &tenants.Principal{Kind: tenants.ServiceAccount, KeyKind: kind, Origins: []string{page}}
	}
	person, operator, nobody := &tenants.Principal{Kind: tenants.Person}, &tenants.Principal{Kind: tenants.Operator}, &tenants.Principal{Kind: tenants.Anonymous}
	for _, tt := range []struct {
		name        string
		credentials operation.Credentials
		kinds       operation.Kinds
		who         *tenants.Principal
		origin      string
		want        bool
	}{
		{"operator", operation.Operator, 0, operator, "", true},
		{"person on a command", operation.Operator, 0, person, "", false},
		{"key on a command", operation.Operator, 0, key(tenants.ServerFull), "", false},
		{"operator elsewhere", operation.Key | operation.Session, operation.ServerKeys, operator, "", false},
		{"operator where it is open", operation.Open, 0, operator, "", false},
		{"nobody where it is open", operation.Open, 0, nobody, page, true},
		{"person", operation.Session, 0, person, "", true},
		{"person where keys count alone", operation.Key, operation.ServerKeys, person, "", false},
		{"key", operation.Key, operation.ServerKeys, key(tenants.ServerFull), "", true},
		{"key of another kind", operation.Key, operation.ServerFull, key(tenants.ServerRead), "", false},
		{"key of a server from a page", operation.Key, operation.ServerKeys, key(tenants.ServerFull), page, false},
		{"key of pages", operation.Key, operation.Browser, key(tenants.Browser), page, true},
		{"key of pages from none", operation.Key, operation.Browser, key(tenants.Browser), "", false},
		{"key of pages from another", operation.Key, operation.Browser, key(tenants.Browser), "https://evil.example.com", false},
		{"key of pages where it is for servers", operation.Key, operation.ServerKeys, key(tenants.Browser), page, false},
	} {
		err := (&operation.Row{Policy: operation.Policy{Credentials: tt.credentials, Kinds: tt.kinds}}).Admits(tt.who, tt.origin)
		if (err == nil) != tt.want || err != nil && operation.ProblemOf(err).Code != http.StatusForbidden {
			t.Errorf("%s: got %v, want (err == nil) = %v", tt.name, err, tt.want)
		}
	}
}

// TestHeadersThatRowsTake: which operations honour Idempotency-Key and If-Match.
func TestHeadersThatRowsTake(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name                    string
		change                  func(*operation.Row)
		repeatable, conditional bool
	}{
		{"reads", func(*operation.Row) {}, false, false},
		{"reads a record", func(o *operation.Row) { o.Revised = true }, false, true},
		{"writes", takesBody, true, false},
		{"makes a record", func(o *operation.Row) { takesBody(o); o.Revised = true }, true, false},
		{"acts on a record", func(o *operation.Row) { takesBody(o); o.Revised, o.OnRecord = true, true }, true, true},
		{"changes a record", func(o *operation.Row) { takesBody(o); o.Method, o.Revised = http.MethodPut, true }, true, true},
		{"acts on what has no revision", func(o *operation.Row) { takesBody(o); o.OnRecord = true }, true, false},
		{"is about sessions", func(o *operation.Row) { takesBody(o); o.Path = "/auth/things" }, false, false},
		{"is open to all", func(o *operation.Row) { takesBody(o); o.Credentials, o.Kinds = operation.Open, 0 }, false, false},
		{"takes a file", takesFile, false, false},
	} {
		row := goodRow()
		tt.change(&row)
		if row.Repeatable() != tt.repeatable || row.Conditional() != tt.conditional {
			t.Errorf("%s: repeatable %t, conditional %t", tt.name, row.Repeatable(), row.Conditional())
		}
	}
}

// TestRun_Headers: those that an operation does not take, or that are broken, are refused before its handler runs.
func TestRun_Headers(t *testing.T) {
	t.Parallel()
	record := func(o *operation.Row) { takesBody(o); o.Method, o.Revised = http.MethodPut, true }
	for _, tt := range []struct {
		name   string
		change func(*operation.Row)
		header http.Header
		want   int
	}{
		{"a file", takesFile, http.Header{}, http.StatusOK},
		{"a file with a key to repeat it", takesFile, http.Header{"Idempotency-Key": {"a"}}, http.StatusBadRequest},
		{"a write with a key to repeat it", takesBody, http.Header{"Idempotency-Key": {"a"}}, http.StatusOK},
		{"If-Match", record, http.Header{"If-Match": {`*`}}, http.StatusOK},
		{"If-Match with a list", record, http.Header{"If-Match": {`"0", "1"`}}, http.StatusOK},
		{"If-Match with something after it", record, http.Header{"If-Match": {`"0", 1`}}, http.StatusBadRequest},
		{"If-Match of nothing", record, http.Header{"If-Match": {""}}, http.StatusBadRequest},
		{"If-Match where there is no record", takesBody, http.Header{"If-Match": {`"0"`}}, http.StatusBadRequest},
		{"If-None-Match on a write", record, http.Header{"If-None-Match": {`"0"`}}, http.StatusBadRequest},
		{"a parameter", takesBody, http.Header{"X-Part": {"a"}}, http.StatusOK},
		{"a parameter twice", takesBody, http.Header{"X-Part": {"a", "b"}}, http.StatusBadRequest},
	} {
		row := goodRow()
		tt.change(&row)
		row.Handler = func(_ context.Context, c *operation.Call) (operation.Result, error) {
			_, err := c.RequestHeader("X-Part")
			return operation.Result{}, err
		}
		c := operation.NewCall(&row, func(string) string { return "" })
		c.Tenant, c.Principal = &tenants.Tenant{}, &tenants.Principal{Kind: tenants.ServiceAccount, KeyKind: tenants.ServerFull}
		code := http.StatusOK
		if _, err := operation.Run(t.Context(), c, operation.Input{Header: tt.header}); err != nil {
			code = operation.ProblemOf(err).Code
		}
		if code != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, code, tt.want)
		}
	}
}

func TestKinds(t *testing.T) {
	t.Parallel()
	all := []tenants.KeyKind{tenants.ServerFull, tenants.ServerRead, tenants.Browser, "", "admin"}
	for kinds, want := range map[operation.Kinds][]bool{
		0:                                        {false, false, false, false, false},
		operation.ServerFull:                     {true, false, false, false, false},
		operation.ServerKeys:                     {true, true, false, false, false},
		operation.Browser:                        {false, false, true, false, false},
		operation.ServerKeys | operation.Browser: {true, true, true, false, false},
	} {
		for i, kind := range all {
			if got := kinds.Admits(kind); got != want[i] {
				t.Errorf("%b admits %q: %t", kinds, kind, got)
			}
		}
	}
}

func TestRowDefaults(t *testing.T) {
	t.Parallel()
	o := operation.Row{Path: "/api/a", Aliases: []string{"/api/b"}}
	if o.BodyMax() != operation.DefaultBodyLimit || o.Deadline() != operation.DefaultTimeout || strings.Join(o.Paths(), " ") != "/api/a /api/b" {
		t.Errorf(`got %d %s %v, want o.BodyMax() = %v and o.Deadline() = %v and strings.Join(o.Paths(), " ") = "/api/a /api/b"`,
			o.BodyMax(), o.Deadline(), o.Paths(), operation.DefaultBodyLimit, operation.DefaultTimeout)
	}
	o.BodyLimit, o.Timeout = 7, time.Minute
	if o.BodyMax() != 7 || o.Deadline() != time.Minute {
		t.Errorf("got %d %s, want o.BodyMax() = 7 and o.Deadline() = %v", o.BodyMax(), o.Deadline(), time.Minute)
	}
	c := operation.NewCall(&o, func(name string) string { return "<" + name + ">" })
	c.Note("field", "phone")
	if c.Path("id") != "<id>" || c.AuditNote["field"] != "phone" || c.Header == nil {
		t.Errorf("call %+v", c)
	}
}
