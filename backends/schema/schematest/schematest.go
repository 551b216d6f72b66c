// Package schematest calls operations as the gateway does, for tests of modules.
package schematest

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"tenantry/backends/store"
	"tenantry/gateway/api"
	"tenantry/tenants"
)

// Request is one call. Zero members are what most tests want: an API key with every
// permission, no query, no body.
type Request struct {
	Operation string
	Path      map[string]string
	Query     string
	Body      string // no body where empty
	Principal *tenants.Principal
	Strict    bool
}

// Answer is what the caller sees.
type Answer struct {
	Code    int
	Status  string
	Message string
	Data    string // JSON
	Ignored []string
}

// Bench calls the operations of a module for one organization. It is safe for concurrent use.
type Bench struct {
	Rows   []api.Operation
	Tenant *tenants.Tenant
	Base   *store.Workspace // unscoped
}

// Key returns a service account with the permissions; without any it has them all.
func Key(permissions ...tenants.Permission) *tenants.Principal {
	if permissions == nil {
		permissions = tenants.AllPermissions()
	}
	return &tenants.Principal{Kind: tenants.ServiceAccount, KeyID: "k", KeyKind: tenants.ServerFull, Permissions: permissions}
}

// Do makes the call.
func (b *Bench) Do(t testing.TB, r Request) Answer {
	t.Helper()
	i := slices.IndexFunc(b.Rows, func(o api.Operation) bool { return o.Name == r.Operation })
	if i < 0 {
		t.Fatalf("no operation %s", r.Operation)
	}
	row := &b.Rows[i]
	c := api.NewCall(row, func(name string) string { return r.Path[name] })
	c.Tenant, c.Principal, c.Strict = b.Tenant, r.Principal, c.Strict || r.Strict
	if c.Principal == nil {
		c.Principal = Key()
	}
	ctx, cancel := context.WithTimeout(t.Context(), row.Deadline())
	defer cancel()
	result, err := b.run(ctx, c, r)
	answer := Answer{Code: 200, Status: api.StatusOK, Message: result.Message, Ignored: c.Ignored()}
	data := result.Data
	if err != nil {
		p := api.ProblemOf(err)
		if row.Failure != nil {
			p = row.Failure(p)
		}
		answer.Code, answer.Status, answer.Message, data = p.Code, api.StatusFailed, p.Message, p.Envelope().Data
		if p.Code >= 500 {
			t.Logf("%s: %v", r.Operation, err)
		}
	} else if answer.Message == "" {
		answer.Message = row.Message
	}
	text, err := json.Marshal(data)
	if err != nil {
		t.Fatalf("%s: data does not encode: %v", r.Operation, err)
	}
	answer.Data = string(text)
	return answer
}

func (b *Bench) run(ctx context.Context, c *api.Call, r Request) (api.Result, error) {
	if err := c.Operation.Rule.Check(c.Principal); err != nil {
		return api.Result{}, err
	}
	query, err := api.ParseQuery(r.Query)
	if err != nil {
		return api.Result{}, err
	}
	if err := c.Bind(query); err != nil {
		return api.Result{}, err
	}
	if r.Body != "" {
		body, err := api.ParseBody([]byte(r.Body))
		if err != nil {
			return api.Result{}, err
		}
		if err := c.BindBody(body); err != nil {
			return api.Result{}, err
		}
	}
	teams, err := c.Teams()
	if err != nil {
		return api.Result{}, err
	}
	c.Scope = c.Principal.Scope(c.Tenant, teams)
	c.Workspace = b.Base.Scoped(c.Scope)
	return c.Operation.Handler(ctx, c)
}
