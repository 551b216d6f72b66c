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
