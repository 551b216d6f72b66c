package gateway

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"tenantry/backends/api"
	"tenantry/gateway/control"
)

// rowsOf is a module of given rows.
type rowsOf []api.Operation

func (r rowsOf) Operations() []api.Operation { return r }

func goodRow() api.Operation {
	return api.Operation{
		Name: "things.get", Method: http.MethodGet, Path: "/api/things", Tag: "Things", Summary: "Get things",
		Credentials: api.Key | api.Session, Kinds: api.ServerKeys, Rule: api.AnyCaller(),
		Data: struct{}{}, Message: "Things found", Example: struct{}{},
		Handler: func(context.Context, *api.Call) (api.Result, error) { return api.Result{}, nil },
	}
}

func TestK6_RowWithoutPolicyIsNotServed(t *testing.T) {
	t.Parallel()
	if rows, err := operationRows([]serving{rowsOf{goodRow()}}); err != nil || len(rows) != 1 {
		t.Fatalf("a good row: %v", err)
	}
	for name, breakIt := range map[string]func(*api.Operation){
		"everything":             func(o *api.Operation) { *o = api.Operation{} },
		"rule":                   func(o *api.Operation) { o.Rule = api.Rule{} },
		"credentials":            func(o *api.Operation) { o.Credentials = 0 },
		"kinds":                  func(o *api.Operation) { o.Kinds = 0 },
		"kinds without keys":     func(o *api.Operation) { o.Credentials = api.Session },
		"open with a credential": func(o *api.Operation) { o.Credentials |= api.Open },
		"reading keys write":     func(o *api.Operation) { o.Method = http.MethodPost },
		"audit":                  func(o *api.Operation) { o.Method, o.Kinds = http.MethodDelete, api.ServerFull },
		"handler":                func(o *api.Operation) { o.Handler = nil },
		"undeclared parameter":   func(o *api.Operation) { o.Path = "/api/things/{id}" },
		"outside":                func(o *api.Operation) { o.Path = "/things" },
	} {
		row := goodRow()
		breakIt(&row)
		if len(row.Validate()) == 0 {
			t.Errorf("%s: the row is valid", name)
		}
		if _, err := operationRows([]serving{rowsOf{goodRow()}, rowsOf{row}}); err == nil {
			t.Errorf("%s: the row is served", name)
		}
	}
	for _, g := range new(control.Server).Groups() {
		for _, c := range g.Commands {
			if _, err := operationRows([]serving{rowsOf{goodRow()}, rowsOf{c.Row}}); len(c.Row.Validate()) > 0 || err == nil || !strings.Contains(err.Error(), "is the operator's") {
				t.Errorf("the command %s is served in public: %v", c.Name, err)
			}
		}
	}
	_, err := operationRows([]serving{rowsOf{goodRow()}, rowsOf{goodRow()}})
	if err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("two rows of one name: %v", err)
	}
}

// What the gateway serves goes through operationRows, so that a bad row keeps it from starting.
func TestK6_EveryServedRowHasAPolicy(t *testing.T) {
	t.Parallel()
	var zero api.Rule
	if zero.Check(nil, nil) == nil {
		t.Error("the zero rule admits a caller")
	}
	if api.Kinds(0).Admits("server_full") || api.ServerKeys.Admits("") || api.ServerKeys.Admits("browser") {
		t.Error("kinds admit what they do not name")
	}
}
