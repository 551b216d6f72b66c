package middleware_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"tenantry/backends/driver"
	"tenantry/backends/enginetest"
	"tenantry/backends/store"
	"tenantry/crypto/keyring"
	"tenantry/gateway/middleware"
	"tenantry/internal/rate"
	"tenantry/modules/audit"
	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/sessions"
)

const internalError = `{"status":"failed","message":"Internal error","data":[]}`

// world is a pipeline over a real store with one organization, acme.
type world struct {
	*middleware.Pipeline
	engine   driver.Engine
	tenant   *tenants.Tenant
	audit    *audit.Log
	registry *prometheus.Registry
	log      *logBuffer
}

type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

type fakeKeys map[string]*tenants.Principal

func (k fakeKeys) Authenticate(_ context.Context, _ *tenants.Tenant, token string, _ netip.Addr) (*tenants.Principal, error) {
	if token == "down" {
		return nil, fmt.Errorf("redis and store: %w", tenants.ErrUnavailable)
	}
	if p := k[token]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("unknown key: %w", tenants.ErrDenied)
}

type fakeSessions map[string]*tenants.Principal

func (s fakeSessions) Holder(context.Context, *tenants.Tenant, string) (sessions.Holder, error) {
	return sessions.Holder{}, tenants.ErrUnavailable // no test begins a job
}

func (s fakeSessions) Rights(context.Context, *tenants.Tenant, sessions.Holder) (*tenants.Principal, error) {
	return nil, tenants.ErrUnavailable
}

func (s fakeSessions) Lookup(_ context.Context, _ *tenants.Tenant, token string) (*tenants.Principal, error) {
	if p := s[token]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("unknown session: %w", tenants.ErrDenied)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	log := audit.New()
	kinds := tenants.NewKinds()
	engine := enginetest.Open(t)
	ring, err := keyring.Create(filepath.Join(t.TempDir(), "keyring.json"))
	if err != nil {
		t.Fatal(err)
	}
	s := store.New(store.Options{Engine: engine, Control: kinds.Specs(), Tenant: []*store.Spec{log.Spec()}})
	directory, err := tenants.NewDirectory(t.Context(), tenants.DirectoryOptions{Store: s, Kinds: kinds, Keyring: ring})
	if err != nil {
		t.Fatal(err)
	}
	tenant, err := directory.Create(t.Context(), tenants.NewOrganization{Slug: "acme", Name: "Acme", Features: map[string]bool{tenants.FeatureTeams: true}})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{engine: engine, tenant: tenant, audit: log, registry: prometheus.NewRegistry(), log: &logBuffer{}}
	w.Pipeline = middleware.New(middleware.Options{
		Tenants: directory, Audit: log, Log: slog.New(slog.NewJSONHandler(w.log, nil)), Metrics: middleware.NewMetrics(w.registry), Requests: slog.NewJSONHandler(w.log, nil),
		Keys: fakeKeys{
			"full":    {Kind: tenants.ServiceAccount, KeyID: "k1", KeyKind: tenants.ServerFull, Permissions: []tenants.Permission{tenants.Contacts}},
			"limited": {Kind: tenants.ServiceAccount, KeyID: "k9", KeyKind: tenants.ServerFull, Limits: rate.Pair{Rate: rate.PerSecond(3)}},
			"read":    {Kind: tenants.ServiceAccount, KeyID: "k2", KeyKind: tenants.ServerRead},
			"browser": {Kind: tenants.ServiceAccount, KeyID: "k3", KeyKind: tenants.Browser, Origins: []string{"https://shop.example"}},
		},
		Sessions: fakeSessions{"ada": {Kind: tenants.Person, UserID: 7}},
		Cookie:   "session", BaseURL: func(slug string) string { return "http://" + slug + ".localhost" },
	})
	return w
}

func row(change func(*operation.Row)) *operation.Row {
	o := &operation.Row{
		Name: "things.get", Method: http.MethodGet,
		Policy: operation.Policy{
			Credentials: operation.Key | operation.Session, Kinds: operation.ServerKeys,
			Rule: operation.AnyCaller(),
		},
		Request:  operation.Request{Contract: true},
		Response: operation.Response{Message: "Thing found"},
		Handler: func(context.Context, *operation.Call) (operation.Result, error) {
			return operation.Result{Data: map[string]int{"n": 1}}, nil
		},
	}
	if change != nil {
		change(o)
	}
	return o
}

func (w *world) serve(t *testing.T, o *operation.Row, change func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), o.Method, "/api/things", nil)
	r.Host = "acme.localhost"
	r.Header.Set(middleware.KeyHeader, "full")
	if change != nil {
		change(r)
	}
	rec := httptest.NewRecorder()
	w.Serve(o, rec, r, func(string) string { return "" })
	return rec
}

// envelope returns status and message. It fails the test if the answer does not have exactly the three members.
func envelope(t *testing.T, rec *httptest.ResponseRecorder) (status, message string) {
	t.Helper()
	var e map[string]any
	if err := json.Unmarshal(rec.Body.Bytes(), &e); err != nil || len(e) != 3 || e["data"] == nil {
		t.Fatalf("no envelope: %v %s", err, rec.Body)
	}
	status, _ = e["status"].(string)
	message, _ = e["message"].(string)
	return status, message
}
