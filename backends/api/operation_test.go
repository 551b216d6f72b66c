package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"tenantry/backends/api"
	"tenantry/tenants"
)

func goodRow() api.Operation {
	return api.Operation{
		Name: "things.get", Method: http.MethodGet, Path: "/api/things/{id}", Tag: "Things", Summary: "Get a thing",
		Credentials: api.Key | api.Session, Kinds: api.ServerKeys, Rule: api.AnyCaller(),
		Params: []api.Param{{Name: "id", In: api.InPath, Shape: api.Text}},
		Data:   struct{}{}, Message: "Thing found", Example: struct{}{},
		Handler: func(context.Context, *api.Call) (api.Result, error) { return api.Result{}, nil },
	}
}

// takesBody makes the row one that writes what its body says, takesFile what its file does.
func takesBody(o *api.Operation) {
	o.Method, o.Kinds, o.Audit, o.Body = http.MethodPost, api.ServerFull, api.AuditAlways, []api.Field{}
}

func takesFile(o *api.Operation) {
	takesBody(o)
	o.Body, o.Upload, o.UploadExamples, o.UploadLimit = nil, []string{"text/csv"}, []string{"a\n1\n"}, 1
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
		change func(*api.Operation)
		says   string
	}{
		{"no name", func(o *api.Operation) { o.Name = "" }, "the name is not like things.verb"},
		{"name of one word", func(o *api.Operation) { o.Name = "things" }, "the name is not like things.verb"},
		{"name in capitals", func(o *api.Operation) { o.Name = "Things.get" }, "the name is not like things.verb"},
		{"method", func(o *api.Operation) { o.Method, o.Kinds, o.Audit = "FETCH", api.ServerFull, api.AuditAlways }, "unknown method"},
		{"no credential", func(o *api.Operation) { o.Credentials, o.Kinds = 0, 0 }, "takes no credential"},
		{"open and a key", func(o *api.Operation) { o.Credentials |= api.Open }, "is open and takes a credential"},
		{"key without kinds", func(o *api.Operation) { o.Kinds = 0 }, "key kinds and credentials disagree"},
		{"kinds without key", func(o *api.Operation) { o.Credentials = api.Session }, "key kinds and credentials disagree"},
		{"kind of pages without key", func(o *api.Operation) { o.Credentials, o.Kinds = api.Session, api.Browser }, "key kinds and credentials disagree"},
		{"open to keys of servers", func(o *api.Operation) { o.Credentials, o.Kinds = api.Open, api.ServerFull }, "key kinds and credentials disagree"},
		{"operator's and a key", func(o *api.Operation) { o.Credentials |= api.Operator }, "is the operator's and takes another credential"},
		{"writes audited where something is noted", func(o *api.Operation) { o.Method, o.Kinds, o.Audit = http.MethodDelete, api.ServerFull, api.AuditNoted }, "changes something and is not audited"},
		{"tells a secret unaudited", func(o *api.Operation) { o.Once = true }, "answers with a secret"},
		{"tells all unaudited", func(o *api.Operation) { o.Streams = []string{"text/csv"} }, "answers with a secret, or with all there is"},
		{"body limit below 0", func(o *api.Operation) { takesBody(o); o.BodyLimit = -1 }, "a body limit is from 1 to"},
		{"body limit above all", func(o *api.Operation) { takesBody(o); o.BodyLimit = api.MaxBulkLimit + 1 }, "a body limit is from 1 to"},
		{"body limit without a body", func(o *api.Operation) { o.BodyLimit = 5 }, "of an operation that takes a body"},
		{"file beside a body", func(o *api.Operation) { takesFile(o); o.Body = []api.Field{} }, "a file is the whole body of a POST"},
		{"file by PUT", func(o *api.Operation) { takesFile(o); o.Method = http.MethodPut }, "a file is the whole body of a POST"},
		{"file without limit", func(o *api.Operation) { takesFile(o); o.UploadLimit = 0 }, "a file is the whole body of a POST"},
		{"file without example", func(o *api.Operation) { takesFile(o); o.UploadExamples = nil }, "a file is the whole body of a POST"},
		{"writes unaudited", func(o *api.Operation) { o.Method, o.Kinds = http.MethodDelete, api.ServerFull }, "changes something and is not audited"},
		{"read-only key may write", func(o *api.Operation) { o.Method, o.Audit = http.MethodPost, api.AuditAlways }, "takes read-only keys but does not read"},
		{"no rule", func(o *api.Operation) { o.Rule = api.Rule{} }, "has no rule"},
		{"no handler", func(o *api.Operation) { o.Handler = nil }, "has no handler"},
		{"no data", func(o *api.Operation) { o.Data = nil }, "lacks data"},
		{"no message", func(o *api.Operation) { o.Message = "" }, "lacks data"},
		{"no summary", func(o *api.Operation) { o.Summary = "" }, "lacks data"},
		{"no tag", func(o *api.Operation) { o.Tag = "" }, "lacks data"},
		{"no example", func(o *api.Operation) { o.Example = nil }, "lacks data"},
		{"GET with a body", func(o *api.Operation) { o.Body = []api.Field{} }, "reads and takes a body"},
		{"path elsewhere", func(o *api.Operation) { o.Path = "/things/{id}" }, "is outside /api/ and /auth/"},
		{"undeclared path parameter", func(o *api.Operation) { o.Params = nil }, "path parameter id is not declared"},
		{"path parameter declared as query", func(o *api.Operation) { o.Params[0].In = api.InQuery }, "path parameter id is not declared"},
		{"undeclared parameter of an alias", func(o *api.Operation) { o.Aliases = []string{"/api/things/{id}/{part}"} }, "path parameter part is not declared"},
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
	var zero api.Operation
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
	denied := `{"status":"failed","message":"` + api.DeniedMessage + `","data":[]}`
	tests := []struct {
		name string
		rule api.Rule
		who  *tenants.Principal
		want string // envelope of the refusal
	}{
		{"the zero rule refuses an admin", api.Rule{}, admin, denied},
		{"any caller", api.AnyCaller(), key(), ""},
		{"handler decides", api.HandlerDecides(), key(), ""},
		{"permission held", api.Needs(tenants.Contacts), key(tenants.Contacts), ""},
		{"permission lacking", api.Needs(tenants.Contacts), key(tenants.ManageForms), lacks("contacts")},
		{"admin holds all", api.Needs(tenants.ManageKeys), admin, ""},
		{"one of, the second", api.NeedsOneOf(tenants.ViewFormSubmissions, tenants.ManageForms), person(tenants.ManageForms), ""},
		{"one of, none", api.NeedsOneOf(tenants.ViewFormSubmissions, tenants.ManageForms), person(), lacks("view_form_submissions")},
		{"persons need, a key", api.PersonsNeed(tenants.ManageFiles), key(), ""},
		{"persons need, a person without", api.PersonsNeed(tenants.ManageFiles), person(tenants.ManageForms), lacks("manage_files")},
		{"persons need, a person with", api.PersonsNeed(tenants.ManageFiles), person(tenants.ManageFiles), ""},
		{"persons need, nobody known", api.PersonsNeed(tenants.ManageFiles), &tenants.Principal{}, lacks("manage_files")},
		{"admin only, admin", api.AdminOnly("Manage Compliance"), admin, ""},
		{"admin only, the strongest key", api.AdminOnly("Manage Compliance"), key(tenants.AllPermissions()...), `{"status":"failed","message":"Manage Compliance","data":{"permission":"Manage Compliance"}}`},
		{"admin only, a person with every permission", api.AdminOnly("Manage Compliance"), person(tenants.AllPermissions()...), `{"status":"failed","message":"Manage Compliance","data":{"permission":"Manage Compliance"}}`},
		{"unlimited, a person in no team", api.AnyCaller().Unlimited(), person(), ""},
		{"unlimited, an administrator limited to teams", api.AnyCaller().Unlimited(), &tenants.Principal{Kind: tenants.Person, Admin: true, Teams: []string{}}, `{"status":"failed","message":"` + api.NotLimited + `","data":[]}`},
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
			if p := api.ProblemOf(err); err == nil || p.Code != http.StatusForbidden || envelope(t, p) != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
	if !api.AdminOnly("x").IsAdminOnly() || api.AnyCaller().IsAdminOnly() {
		t.Error("IsAdminOnly")
	}
	rule := api.Needs(tenants.Contacts)
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
		credentials api.Credentials
		kinds       api.Kinds
		who         *tenants.Principal
		origin      string
		want        bool
	}{
		{"operator", api.Operator, 0, operator, "", true},
		{"person on a command", api.Operator, 0, person, "", false},
		{"key on a command", api.Operator, 0, key(tenants.ServerFull), "", false},
		{"operator elsewhere", api.Key | api.Session, api.ServerKeys, operator, "", false},
		{"operator where it is open", api.Open, 0, operator, "", false},
		{"nobody where it is open", api.Open, 0, nobody, page, true},
		{"person", api.Session, 0, person, "", true},
		{"person where keys count alone", api.Key, api.ServerKeys, person, "", false},
		{"key", api.Key, api.ServerKeys, key(tenants.ServerFull), "", true},
		{"key of another kind", api.Key, api.ServerFull, key(tenants.ServerRead), "", false},
		{"key of a server from a page", api.Key, api.ServerKeys, key(tenants.ServerFull), page, false},
		{"key of pages", api.Key, api.Browser, key(tenants.Browser), page, true},
		{"key of pages from none", api.Key, api.Browser, key(tenants.Browser), "", false},
		{"key of pages from another", api.Key, api.Browser, key(tenants.Browser), "https://evil.example.com", false},
		{"key of pages where it is for servers", api.Key, api.ServerKeys, key(tenants.Browser), page, false},
	} {
		err := (&api.Operation{Credentials: tt.credentials, Kinds: tt.kinds}).Admits(tt.who, tt.origin)
		if (err == nil) != tt.want || err != nil && api.ProblemOf(err).Code != http.StatusForbidden {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// TestHeadersThatRowsTake: which operations honour Idempotency-Key and If-Match.
func TestHeadersThatRowsTake(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name                    string
		change                  func(*api.Operation)
		repeatable, conditional bool
	}{
		{"reads", func(*api.Operation) {}, false, false},
		{"reads a record", func(o *api.Operation) { o.Revised = true }, false, true},
		{"writes", takesBody, true, false},
		{"makes a record", func(o *api.Operation) { takesBody(o); o.Revised = true }, true, false},
		{"acts on a record", func(o *api.Operation) { takesBody(o); o.Revised, o.OnRecord = true, true }, true, true},
		{"changes a record", func(o *api.Operation) { takesBody(o); o.Method, o.Revised = http.MethodPut, true }, true, true},
		{"acts on what has no revision", func(o *api.Operation) { takesBody(o); o.OnRecord = true }, true, false},
		{"is about sessions", func(o *api.Operation) { takesBody(o); o.Path = "/auth/things" }, false, false},
		{"is open to all", func(o *api.Operation) { takesBody(o); o.Credentials, o.Kinds = api.Open, 0 }, false, false},
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
	record := func(o *api.Operation) { takesBody(o); o.Method, o.Revised = http.MethodPut, true }
	for _, tt := range []struct {
		name   string
		change func(*api.Operation)
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
		row.Handler = func(_ context.Context, c *api.Call) (api.Result, error) {
			_, err := c.RequestHeader("X-Part")
			return api.Result{}, err
		}
		c := api.NewCall(&row, func(string) string { return "" })
		c.Tenant, c.Principal = &tenants.Tenant{}, &tenants.Principal{Kind: tenants.ServiceAccount, KeyKind: tenants.ServerFull}
		code := http.StatusOK
		if _, err := api.Run(t.Context(), c, api.Input{Header: tt.header}); err != nil {
			code = api.ProblemOf(err).Code
		}
		if code != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, code, tt.want)
		}
	}
}

func TestKinds(t *testing.T) {
	t.Parallel()
	all := []tenants.KeyKind{tenants.ServerFull, tenants.ServerRead, tenants.Browser, "", "admin"}
	for kinds, want := range map[api.Kinds][]bool{
		0:                            {false, false, false, false, false},
		api.ServerFull:               {true, false, false, false, false},
		api.ServerKeys:               {true, true, false, false, false},
		api.Browser:                  {false, false, true, false, false},
		api.ServerKeys | api.Browser: {true, true, true, false, false},
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
	o := api.Operation{Path: "/api/a", Aliases: []string{"/api/b"}}
	if o.BodyMax() != api.DefaultBodyLimit || o.Deadline() != api.DefaultTimeout || strings.Join(o.Paths(), " ") != "/api/a /api/b" {
		t.Errorf("%d %s %v", o.BodyMax(), o.Deadline(), o.Paths())
	}
	o.BodyLimit, o.Timeout = 7, time.Minute
	if o.BodyMax() != 7 || o.Deadline() != time.Minute {
		t.Errorf("%d %s", o.BodyMax(), o.Deadline())
	}
	c := api.NewCall(&o, func(name string) string { return "<" + name + ">" })
	c.Note("field", "phone")
	if c.Path("id") != "<id>" || c.AuditNote["field"] != "phone" || c.Header == nil {
		t.Errorf("call %+v", c)
	}
}
