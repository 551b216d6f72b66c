package gateway

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"tenantry/gateway/control"
	"tenantry/operation"
)

// rowsOf is an operationSource of given rows.
type rowsOf []operation.Row

func (r rowsOf) Operations() []operation.Row { return r }

func goodRow() operation.Row {
	return operation.Row{
		Name: "things.get", Method: http.MethodGet, Path: "/api/things",
		Policy: operation.Policy{
			Credentials: operation.Key | operation.Session, Kinds: operation.ServerKeys,
			Rule: operation.AnyCaller(),
		},
		Response: operation.Response{Data: struct{}{}, Message: "Things found", Example: struct{}{}},
		Docs:     operation.Docs{Tag: "Things", Summary: "Get things"},
		Handler:  func(context.Context, *operation.Call) (operation.Result, error) { return operation.Result{}, nil },
	}
}

func TestRowWithoutPolicyIsNotServed(t *testing.T) {
	t.Parallel()
	if rows, err := operationRows([]operationSource{rowsOf{goodRow()}}); err != nil || len(rows) != 1 {
		t.Fatalf("operationRows of a valid row = %d rows, %v, want 1", len(rows), err)
	}
	for name, breakIt := range map[string]func(*operation.Row){
		"everything":             func(o *operation.Row) { *o = operation.Row{} },
		"rule":                   func(o *operation.Row) { o.Rule = operation.Rule{} },
		"credentials":            func(o *operation.Row) { o.Credentials = 0 },
		"kinds":                  func(o *operation.Row) { o.Kinds = 0 },
		"kinds without keys":     func(o *operation.Row) { o.Credentials = operation.Session },
		"open with a credential": func(o *operation.Row) { o.Credentials |= operation.Open },
		"reading keys write":     func(o *operation.Row) { o.Method = http.MethodPost },
		"audit":                  func(o *operation.Row) { o.Method, o.Kinds = http.MethodDelete, operation.ServerFull },
		"handler":                func(o *operation.Row) { o.Handler = nil },
		"undeclared parameter":   func(o *operation.Row) { o.Path = "/api/things/{id}" },
		"outside":                func(o *operation.Row) { o.Path = "/things" },
	} {
		row := goodRow()
		breakIt(&row)
		if len(row.Validate()) == 0 {
			t.Errorf("%s: Validate found no fault, want one", name)
		}
		if _, err := operationRows([]operationSource{rowsOf{goodRow()}, rowsOf{row}}); err == nil {
			t.Errorf("%s: operationRows returned no error, want one", name)
		}
	}
	for _, g := range new(control.Server).Groups() {
		for _, c := range g.Commands {
			_, err := operationRows([]operationSource{rowsOf{goodRow()}, rowsOf{c.Row}})
			if len(c.Row.Validate()) > 0 || err == nil || !strings.Contains(err.Error(), "is for the operator") {
				t.Errorf("the command %s is served in public: %v", c.Name, err)
			}
		}
	}
	_, err := operationRows([]operationSource{rowsOf{goodRow()}, rowsOf{goodRow()}})
	if err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("two rows with one name: %v, want an error with \"twice\"", err)
	}
}

// TestRowsReferToOperations checks that the operations which a row names for its pages exist.
func TestRowsReferToOperations(t *testing.T) {
	t.Parallel()
	for field, set := range map[string]func(docs *operation.Docs, name string){
		"Page":    func(docs *operation.Docs, name string) { docs.Page = name },
		"Defines": func(docs *operation.Docs, name string) { docs.Defines = name },
	} {
		row := goodRow()
		set(&row.Docs, row.Name)
		if _, err := operationRows([]operationSource{rowsOf{row}}); err != nil {
			t.Errorf("%s names an operation: %v, want no error", field, err)
		}
		set(&row.Docs, "things.removed")
		_, err := operationRows([]operationSource{rowsOf{row}})
		if err == nil || !strings.Contains(err.Error(), "refers to things.removed") {
			t.Errorf("%s names no operation: %v, want an error that says so", field, err)
		}
	}
}

// TestEveryServedRowHasAPolicy: zero values of rules and kinds admit nobody.
func TestEveryServedRowHasAPolicy(t *testing.T) {
	t.Parallel()
	var zero operation.Rule
	if zero.Check(nil, nil) == nil {
		t.Error("the zero rule admits a caller")
	}
	if operation.Kinds(0).Admits("server_full") || operation.ServerKeys.Admits("") || operation.ServerKeys.Admits("browser") {
		t.Error("kinds admit what they do not name")
	}
}
