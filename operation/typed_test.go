package operation_test

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"tenantry/internal/fault"
	"tenantry/operation"
	"tenantry/tenants"
)

type typedIn struct {
	ID    string   `json:"id"`
	Name  string   `json:"name" rule:"required max=5" doc:"Its name." example:"Ada"`
	View  string   `json:"view" rule:"enum=full|basic" default:"full"`
	Count *int     `json:"count,omitempty" rule:"min=1 max=10"`
	Teams []string `json:"teams,omitempty" rule:"max=2 each=3"`
	Open  bool     `json:"open,omitempty"`
}

func typedRow(method string) operation.Row {
	o := goodRow()
	o.Params, o.Method = nil, method
	if method != http.MethodGet {
		o.Kinds, o.Audit = operation.ServerFull, operation.AuditAlways
	}
	return operation.Typed(o, func(_ context.Context, _ *operation.Call, in typedIn) (typedIn, error) { return in, nil })
}

// TestTyped: what a handler gets is read, filled and checked as its input declares, and the row documents it.
func TestTyped(t *testing.T) {
	t.Parallel()
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		row := typedRow(method)
		if faults := row.Validate(); len(faults) > 0 || len(row.Params)+len(row.Body) != 6 || !row.Params[0].Required {
			t.Fatalf("%s: got %v, %+v %+v, want len(faults) <= 0 and len(row.Params)+len(row.Body) = 6 and row.Params[0].Required",
				method, faults, row.Params, row.Body)
		}
	}
	seven := 7
	for _, c := range []struct {
		query, body string
		want        typedIn
		faults      string
	}{
		{"name=Ada", `{"name": "Ada"}`, typedIn{ID: "x", Name: "Ada", View: "full"}, ""},
		{"name=Ada&count=7&teams[]=a&teams[]=b&open=1&view=basic", `{"name": "Ada", "count": 7, "teams": ["a", "b"], "open": true, "view": "basic"}`,
			typedIn{ID: "x", Name: "Ada", View: "basic", Count: &seven, Teams: []string{"a", "b"}, Open: true}, ""},
		{"", `{}`, typedIn{}, "name required"},
		{"name=+&view=half&count=0&teams[]=abcd", `{"name": " ", "view": "half", "count": 0, "teams": ["abcd"]}`, typedIn{}, "name required view format count range teams length"},
		{"name=Rosalind&count=many&open=perhaps", `{"name": "Rosalind", "count": "7", "open": null}`, typedIn{}, "name length count range open type"},
	} {
		for method, in := range map[string]operation.Input{
			http.MethodGet:  {Query: c.query},
			http.MethodPost: {Body: func(context.Context) (operation.Body, error) { return operation.ParseBody([]byte(c.body)) }},
		} {
			row := typedRow(method)
			call := operation.NewCall(&row, func(string) string { return "x" })
			call.Tenant, call.Principal = &tenants.Tenant{}, &tenants.Principal{Kind: tenants.Person}
			result, err := operation.Run(t.Context(), call, in)
			var refused *fault.Error
			var faults []string
			if errors.As(err, &refused) {
				for _, f := range refused.Faults {
					faults = append(faults, f.Field, f.Code)
				}
			}
			if got := strings.Join(faults, " "); got != c.faults || err == nil && !reflect.DeepEqual(result.Data, c.want) {
				t.Errorf("%s %s %s: got %+v, %v, want %v", method, c.query, c.body, result.Data, err, c.faults)
			}
		}
	}
}

// TestOn: what the operation is about is found, or refused, before anything is said of the input.
func TestOn(t *testing.T) {
	t.Parallel()
	base := goodRow()
	base.Params = nil
	row := operation.On(base, func(_ context.Context, c *operation.Call) (string, error) {
		if id := c.Path("id"); id != "gone" {
			return "record " + id, nil
		}
		return "", operation.NotFound("gone")
	}, func(_ context.Context, _ *operation.Call, rec string, in struct {
		Size int `json:"size" rule:"min=1 max=9" default:"3"`
	}) (string, error) {
		return rec + strings.Repeat("!", in.Size), nil
	})
	for id, wants := range map[string][2]string{
		"there": {"record there!!!", "size must be a whole number from 1 to 9"},
		"gone":  {"gone", "gone"},
	} {
		for i, query := range []string{"", "size=10"} {
			call := operation.NewCall(&row, func(string) string { return id })
			call.Tenant, call.Principal = &tenants.Tenant{}, &tenants.Principal{Kind: tenants.Person}
			result, err := operation.Run(t.Context(), call, operation.Input{Query: query})
			got := result.Data
			if err != nil {
				got = err.Error()
			}
			if text, _ := got.(string); !strings.HasSuffix(text, wants[i]) {
				t.Errorf("%s ?%s: %v", id, query, got)
			}
		}
	}
}

// TestTyped_Faults: an input that declares what is not known cannot be served.
func TestTyped_Faults(t *testing.T) {
	t.Parallel()
	row := operation.Typed(goodRow(), func(_ context.Context, _ *operation.Call, _ struct {
		A string `json:"a" rule:"most=5"`
	}) (string, error) {
		return "", nil
	})
	if faults := row.Validate(); len(faults) != 1 || !strings.Contains(faults[0].Error(), "most=5") {
		t.Errorf(`got %v, want len(faults) = 1 and containing "most=5"`, faults)
	}
}

// TestOperator: the operator's rows take the operator alone, and the operator is taken nowhere else.
func TestOperator(t *testing.T) {
	t.Parallel()
	row := goodRow()
	commands := goodRow()
	commands.Name, commands.Path, commands.Params, commands.Credentials, commands.Kinds = "org.show", "/v1/org/show", nil, operation.Operator, 0
	if faults := commands.Validate(); len(faults) > 0 {
		t.Fatalf("got %v, want len(faults) <= 0", faults)
	}
	for _, change := range []func(*operation.Row){
		func(o *operation.Row) { o.Credentials |= operation.Session },
		func(o *operation.Row) { o.Path = "/api/org/show" },
		func(o *operation.Row) { o.Method = http.MethodPost },
	} {
		wrong := commands
		if change(&wrong); len(wrong.Validate()) == 0 {
			t.Errorf("a row of the operator that is none: %+v", wrong)
		}
	}
	for kind, own := range map[tenants.PrincipalKind]*operation.Row{
		tenants.Operator: &commands, tenants.Person: &row, tenants.ServiceAccount: &row, tenants.Anonymous: &row,
	} {
		for _, op := range []*operation.Row{&row, &commands} {
			call := operation.NewCall(op, func(string) string { return "" })
			call.Tenant = &tenants.Tenant{}
			call.Principal = &tenants.Principal{Kind: kind, Admin: true, KeyKind: tenants.ServerFull, Permissions: tenants.AllPermissions()}
			if _, err := operation.Run(t.Context(), call, operation.Input{}); (err == nil) != (op == own) {
				t.Errorf("a principal of kind %d on %s: %v", kind, op.Path, err)
			}
		}
	}
}

// A field without an upper bound says nothing of the largest number there is.
func TestTypedNamesTheBoundsThatThereAre(t *testing.T) {
	t.Parallel()
	type page struct {
		Limit int `json:"limit,omitempty"`
		Size  int `json:"size,omitempty" rule:"min=1 max=9"`
	}
	row := goodRow()
	row.Params = nil
	row = operation.Typed(row, func(_ context.Context, _ *operation.Call, in page) (page, error) { return in, nil })
	call := operation.NewCall(&row, func(string) string { return "" })
	call.Tenant, call.Principal = &tenants.Tenant{}, &tenants.Principal{Kind: tenants.Person}
	_, err := operation.Run(t.Context(), call, operation.Input{Query: "limit=-1&size=10"})
	if want := "limit must be a whole number, at least 0; size must be a whole number from 1 to 9"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// A whole number has one notation in a query and one in a body. One that is not given is the default.
func TestTypedNumbers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method string
		good   []string
		bad    []string
	}{
		{http.MethodGet, []string{"1", "100", "%2B5"}, []string{"", "0", "101", "x", "1.5", "1e1", "-1", "+1", "99999999999999999999", "0x10", "1_0"}},
		{http.MethodPost, []string{"1", "100", "5"}, []string{"0", "101", "1.5", `"5"`, "null", "[5]", "true", "1e0", "99999999999999999999", "-0"}},
	} {
		row := goodRow()
		row.Params = nil
		if row.Method = c.method; c.method == http.MethodPost {
			row.Kinds = operation.ServerFull
		}
		row = operation.Typed(row, func(_ context.Context, _ *operation.Call, in struct {
			Page int64 `json:"page" rule:"min=1 max=100" default:"7"`
		}) (int64, error) {
			return in.Page, nil
		})
		ask := func(query, body string) (any, error) {
			call := operation.NewCall(&row, func(string) string { return "" })
			call.Tenant, call.Principal = &tenants.Tenant{}, &tenants.Principal{Kind: tenants.Person}
			result, err := operation.Run(t.Context(), call, operation.Input{Query: query, Body: func(context.Context) (operation.Body, error) { return operation.ParseBody([]byte(body)) }})
			return result.Data, err
		}
		if n, err := ask("", "{}"); n != int64(7) || err != nil {
			t.Errorf("%s: not given: %v, %v", c.method, n, err)
		}
		for i, value := range append(c.good, c.bad...) {
			query, body := "page="+value, `{"page": `+value+`}`
			if c.method == http.MethodGet {
				body = "{}"
			} else {
				query = ""
			}
			if n, err := ask(query, body); (err == nil) != (i < len(c.good)) || err != nil && !strings.HasSuffix(err.Error(), "page must be a whole number from 1 to 100") {
				t.Errorf("%s %s: got %v, %v, want (err == nil) = %v", c.method, value, n, err, (i < len(c.good)))
			}
		}
	}
}
