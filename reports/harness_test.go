package reports_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenantry/backends/driver"
	"tenantry/backends/enginetest"
	"tenantry/backends/record"
	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/crypto/keyring"
	"tenantry/internal/fault"
	"tenantry/operation"
	"tenantry/reports"
	"tenantry/tenants"
)

// person stands for the contacts, row for the records of custom objects.
type person struct {
	store.Meta
	Country string            `json:"country,omitempty" report:"Country"`
	Status  string            `json:"status,omitempty" report:"Status"`
	Tags    []string          `json:"tags,omitempty" report:"Tags"`
	Teams   []string          `json:"teams,omitempty"`
	Email   string            `json:"email,omitempty" report:"E-mail"`
	First   string            `json:"first_name,omitempty" report:"First name"`
	Last    string            `json:"last_name,omitempty" report:"Last name"`
	Phone   string            `json:"phone,omitempty" report:"Phone"`
	City    string            `json:"city,omitempty" report:"City"`
	Ext     string            `json:"external_id,omitempty" report:"External id"`
	Fields  map[string]any    `json:"fields,omitempty" store:"custom"`
	Secrets map[string]string `json:"secrets,omitempty"`
}

type row struct {
	store.Meta
	Object     string         `json:"object"`
	ExternalID string         `json:"external_id,omitempty" report:"External id"`
	Values     map[string]any `json:"values,omitempty" store:"custom"`
}

type world struct {
	t         testing.TB
	kinds     reports.Kinds
	people    *store.Kind[person]
	rows      *store.Kind[row]
	directory *tenants.Directory
	module    *reports.Module
	tenant    *tenants.Tenant
	now       time.Time
}

const (
	teamA = "aaaaaaaaaaaaaaaaaaaaaaaa"
	teamB = "bbbbbbbbbbbbbbbbbbbbbbbb"
)

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func newWorld(t testing.TB, features map[string]bool, change ...func(*world, *reports.Deps)) *world {
	t.Helper()
	return newWorldOn(t, enginetest.Open(t), features, change...)
}

func newWorldOn(t testing.TB, engine driver.Engine, features map[string]bool, change ...func(*world, *reports.Deps)) *world {
	t.Helper()
	ctx := t.Context()
	w := &world{t: t, now: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)}
	w.people = must[*store.Kind[person]](t)(store.Define[person](store.Spec{
		Name: "contacts", Custom: true, Teams: true,
		Fields: []string{"email", "first_name", "last_name", "phone", "country", "city", "status", "tags", "external_id"},
	}))
	w.rows = must[*store.Kind[row]](t)(store.Define[row](store.Spec{Name: "records", Custom: true, Fields: []string{"object", "external_id"}}))
	orgs := tenants.NewKinds()
	st := store.New(store.Options{
		Engine: engine, Control: orgs.Specs(),
		Tenant: []*store.Spec{w.people.Spec(), w.rows.Spec()},
	})
	ring := must[*keyring.Keyring](t)(keyring.Create(filepath.Join(t.TempDir(), "keyring.json")))
	w.directory = must[*tenants.Directory](t)(tenants.NewDirectory(ctx, tenants.DirectoryOptions{Store: st, Kinds: orgs, Keyring: ring}))
	deps := reports.Deps{
		Keys: func(ctx context.Context, t *tenants.Tenant) (reports.KeySet, error) {
			return w.directory.DataKeys(ctx, t, reports.KeyPurpose)
		},
		Classes: []reports.Class{
			reports.NewClass("Contacts", w.people, "", func(context.Context, *store.Workspace, string) (schema.Fields, error) {
				return schema.Fields{
					"age": {Title: "Age", Type: "Number"}, "joined": {Title: "Joined", Type: "Date"},
					"ssn": {Title: "Social security", Type: "Encrypted"}, "vip": {Title: "VIP", Type: "Boolean"},
				}, nil
			}),
			reports.NewClass("Records", w.rows, "object", func(_ context.Context, _ *store.Workspace, source string) (schema.Fields, error) {
				if source != "orders" {
					return nil, fmt.Errorf("object: %w", store.ErrNotFound)
				}
				return schema.Fields{"amount": {Title: "Amount", Type: "Number"}, "sku": {Type: "Text"}}, nil
			}),
		},
		Now: func() time.Time { return w.now },
	}
	for _, fn := range change {
		fn(w, &deps)
	}
	w.module = reports.New(deps)
	w.kinds = w.module.Kinds
	st.Keep(record.Specs(w.kinds.Kept())...)
	w.tenant = must[*tenants.Tenant](t)(w.directory.Create(ctx, tenants.NewOrganization{
		Slug: "acme", Name: "Acme", Features: features, Providers: []string{"warehouse", "unplugged"},
	}))
	return w
}

func (w *world) addPeople(people ...*person) {
	w.t.Helper()
	if err := w.people.In(w.tenant.Workspace()).Insert(w.t.Context(), people...); err != nil {
		w.t.Fatal(err)
	}
}

// add validates and stores a report. Its JSON is what a bundle holds.
func (w *world) add(text string) *reports.Report {
	w.t.Helper()
	r := &reports.Report{}
	var meta struct{ ID string }
	if err := json.Unmarshal([]byte(text), r); err != nil {
		w.t.Fatal(err)
	}
	_ = json.Unmarshal([]byte(text), &meta)
	if r.ID = meta.ID; r.PID == "" {
		r.PID = record.NewPID()
	}
	if r.Title == "" {
		r.Title = "A report"
	}
	var errs fault.List
	w.module.Validate(r, &errs)
	if err := errs.Err(); err != nil {
		w.t.Fatalf("the test's report is not valid: %v", err)
	}
	if err := w.kinds.Reports.In(w.tenant.Workspace()).Insert(w.t.Context(), r); err != nil {
		w.t.Fatal(err)
	}
	return r
}

type answer struct {
	operation.Envelope
	code   int
	header map[string][]string
	raw    string
	call   *operation.Call
}

// call does what stands between a request and a handler.
func (w *world) call(name string, path map[string]string, query, body string, principal *tenants.Principal) answer {
	w.t.Helper()
	var op *operation.Row
	for _, o := range w.module.Operations() {
		if o.Name == name {
			op = &o
		}
	}
	if op == nil {
		w.t.Fatalf("no operation %s", name)
	}
	c := operation.NewCall(op, func(p string) string { return path[p] })
	c.Tenant, c.Principal, c.BaseURL = w.tenant, principal, "https://acme.example.com"
	in := operation.Input{Query: query}
	if body != "" {
		in.Body = func(context.Context) (operation.Body, error) { return op.ReadBody(strings.NewReader(body)) }
	}
	res, err := operation.Run(w.t.Context(), c, in)
	a := answer{code: 200, header: c.Header, call: c}
	if err != nil {
		p := operation.ProblemOf(err)
		if op.Failure != nil {
			p = op.Failure(p)
		}
		if p.Code == 500 {
			w.t.Fatalf("%s: %v (%v)", name, err, p.Err)
		}
		if p.Code == http.StatusServiceUnavailable && p.RetryAfter <= 0 {
			w.t.Errorf("%s: a 503 does not say when to ask again", name)
		}
		a.code, a.Envelope = p.Code, p.Envelope()
	} else {
		a.Envelope = operation.Envelope{Status: operation.StatusOK, Message: op.Message, Data: res.Data}
	}
	raw, err := json.Marshal(a.Envelope)
	if err != nil {
		w.t.Fatal(err)
	}
	a.raw = string(raw)
	return a
}

func anyone() *tenants.Principal { return &tenants.Principal{} }

func keeper() *tenants.Principal {
	return &tenants.Principal{Kind: tenants.ServiceAccount, KeyKind: tenants.ServerFull, Permissions: []tenants.Permission{tenants.ManageReports}}
}

func (w *world) open(r *reports.Report, query string) answer {
	w.t.Helper()
	return w.call("reports.shared", map[string]string{"pid": r.PID}, query, "", anyone())
}

func (w *world) share(r *reports.Report, body string) string {
	w.t.Helper()
	a := w.call("reports.share", map[string]string{"id": r.ID}, "", body, keeper())
	s, ok := a.Data.(*reports.Share)
	if !ok {
		w.t.Fatalf("share: %d %s", a.code, a.raw)
	}
	return s.Token
}

// data returns columns by name and rows of a shared report, as JSON has them.
func (a answer) rows(t testing.TB) [][]any {
	t.Helper()
	s, ok := a.Data.(*reports.Shared)
	if !ok || s.Data == nil {
		t.Fatalf("no rows: %d %s", a.code, a.raw)
	}
	raw := must[[]byte](t)(json.Marshal(s.Data.Rows))
	var rows [][]any
	if err := json.Unmarshal(raw, &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

func (a answer) failed(t testing.TB, code int, message string) {
	t.Helper()
	if a.code != code || a.Status != operation.StatusFailed || !strings.Contains(a.Message, message) {
		t.Errorf("answered %d %s, want %d with %q", a.code, a.raw, code, message)
	}
}

func (a answer) denied(t testing.TB) {
	t.Helper()
	want := `{"status":"failed","message":"` + operation.DeniedMessage + `","data":[]}`
	if a.code != 403 || a.raw != want {
		t.Errorf("answered %d %s, want the one denial", a.code, a.raw)
	}
}

func token(text string) string { return "token=" + url.QueryEscape(text) }
