// Package schematest calls operations as the gateway does, for tests of modules.
package schematest

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/crypto/keyring"
	"tenantry/internal/request"
	"tenantry/operation"
	"tenantry/tenants"
)

// Request is one call. The zero values are what most tests need: an API key with every permission, no query, no body.
type Request struct {
	Operation string
	Path      map[string]string
	Query     string
	Body      string // empty: no body
	Principal *tenants.Principal
	Origin    string // origin of the page that sends the call
	Strict    bool
	Of        *request.Request // the request of the call; nil: none
}

// Answer is the answer as the caller sees it.
type Answer struct {
	Code    int
	Status  string
	Message string
	Data    string // JSON
	Ignored []string
}

// Bench calls the operations of a module for one organization. Safe for concurrent use.
type Bench struct {
	Rows      []operation.Row
	Tenant    *tenants.Tenant
	Directory *tenants.Directory
}

// Open returns a Bench for an organization with the number 1 on the engine. It validates each row as the gateway does.
func Open(t testing.TB, engine store.Engine, module interface {
	Kept() []record.Kept
	Operations() []operation.Row
},
) *Bench {
	t.Helper()
	rows := module.Operations()
	for _, row := range rows {
		for _, fault := range row.Validate() {
			t.Error(fault)
		}
	}
	kinds := tenants.NewKinds()
	ring, err := keyring.Create(filepath.Join(t.TempDir(), "keyring"))
	if err != nil {
		t.Fatal(err)
	}
	directory, err := tenants.NewDirectory(t.Context(), tenants.DirectoryOptions{
		Store: store.New(store.Options{
			Engine: engine, Control: kinds.Specs(), Tenant: record.Specs(module.Kept()),
		}), Kinds: kinds, Keyring: ring,
	})
	if err != nil {
		t.Fatal(err)
	}
	tenant, err := directory.Create(t.Context(), tenants.NewOrganization{Slug: "acme", Name: "Acme"})
	if err != nil {
		t.Fatal(err)
	}
	return &Bench{rows, tenant, directory}
}

// Base returns the organization's documents, unscoped.
func (b *Bench) Base() *store.Workspace { return b.Tenant.Workspace() }

// Key returns a service account with the permissions; without arguments it has all of them.
func Key(permissions ...tenants.Permission) *tenants.Principal {
	if permissions == nil {
		permissions = tenants.AllPermissions()
	}
	return &tenants.Principal{
		Kind: tenants.ServiceAccount, KeyID: "k", KeyKind: tenants.ServerFull, Permissions: permissions,
	}
}

// Do makes a call and returns its answer.
func (b *Bench) Do(t testing.TB, r Request) Answer {
	t.Helper()
	i := slices.IndexFunc(b.Rows, func(o operation.Row) bool { return o.Name == r.Operation })
	if i < 0 {
		t.Fatalf("no operation %s", r.Operation)
	}
	row := &b.Rows[i]
	c := operation.NewCall(row, func(name string) string { return r.Path[name] })
	c.Tenant, c.Principal, c.Strict = b.Tenant, r.Principal, c.Strict || r.Strict
	if c.Principal == nil {
		c.Principal = Key()
	}
	ctx, cancel := context.WithTimeout(t.Context(), row.Deadline())
	defer cancel()
	if r.Of != nil {
		ctx = request.With(ctx, r.Of)
	}
	in := operation.Input{Query: r.Query, Origin: r.Origin}
	if r.Body != "" {
		in.Body = func(context.Context) (operation.Body, error) { return row.ReadBody(strings.NewReader(r.Body)) }
	}
	result, err := operation.Run(ctx, c, in)
	answer := Answer{Code: 200, Status: operation.StatusOK, Message: result.Message, Ignored: c.Ignored()}
	data := result.Data
	if err != nil {
		p := operation.ProblemOf(err)
		if row.Failure != nil {
			p = row.Failure(p)
		}
		answer.Code, answer.Status, answer.Message, data = p.Code, operation.StatusFailed, p.Message, p.Envelope().Data
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
