// Package gatewaytest starts the real gateway for tests: the App with its engines, on a free port and with its own data
// folder. It checks every answer of an operation against the OpenAPI document.
package gatewaytest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tenantry/backends/enginetest"
	"tenantry/backends/mongo/mongotest"
	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/openapi/openapitest"
	"tenantry/internal/rate"
	"tenantry/modules/audit"
	"tenantry/modules/files/contents"
	"tenantry/modules/imports/bundle"
	"tenantry/modules/mail"
	"tenantry/modules/usage"
	"tenantry/modules/webhooks"
	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/identity"
)

// App is what tests use of a gateway.App. It is an interface because the compiler loads a struct with the types of all
// its fields: a package that names gateway.App compiles all generic code of the program again, in 6.5 s of CPU time
// instead of 2.4.
type App interface {
	Addr() net.Addr
	AdminAddr() net.Addr
	Operations() []operation.Row
	Directory() *tenants.Directory
	People() *identity.Service
	Store() *store.Store
	Transfer() *bundle.Service
	AuditLog() *audit.Log
	Contents() *contents.Keeper
	SignInLink(ctx context.Context, slug, email, baseURL string, lifetime time.Duration) (string, error)
	EmptyTrash(ctx context.Context) (taken bool, err error)
	SignHeads(ctx context.Context)
	SendMail(ctx context.Context) error
	MailReports(ctx context.Context) error
	Mails() *mail.Module
	Webhooks() *webhooks.Module
	PutUsage(ctx context.Context, slug string, days []*usage.Day) error
	FlushUsage(ctx context.Context)
	Commands() *control.Client
	Run(ctx context.Context) error
	Close() error
}

// New is gateway.New. If it were inlined, its callers would name gateway.App.
//
//go:noinline
func New(ctx context.Context, cfg config.Config, o gateway.Options) (App, error) {
	app, err := gateway.New(ctx, cfg, o)
	if err != nil {
		return nil, err // and no App, which would be a pointer that is nil
	}
	return app, nil
}

// Gateway is a running gateway.
type Gateway struct {
	App      App
	Config   config.Config
	Commands *control.Client
	Log      *Buffer

	document *document
	client   *http.Client
	stop     func(testing.TB)
	renewed  sync.Map // session token to the token that replaced it
}

// documents shares the documents of gateways with the same rows in all tests of a process. Without it, each gateway
// serves, parses and compiles its own: 21 seconds of processor time instead of 16 for tests/isolation with -short.
var documents sync.Map //nolint:gochecknoglobals // a cache that only tests use

// document is an OpenAPI document, which is read when it is first needed.
type document struct {
	mu        sync.Mutex
	validator *openapitest.Validator
}

func (g *Gateway) validator(t testing.TB) *openapitest.Validator {
	t.Helper()
	g.document.mu.Lock()
	defer g.document.mu.Unlock()
	if g.document.validator == nil {
		text := g.raw(t, http.MethodGet, "any.localhost", "/api/openapi.json", nil, nil).Body
		g.document.validator = openapitest.NewValidator(t, text)
	}
	return g.document.validator
}

// patientTimeout is the timeout for a Redis that works and for reports. It is long because of busy machines: after a
// timeout of Redis, requests are counted locally and nobody can sign in.
const patientTimeout = time.Minute

// PatientRedis is an Option for tests that name a Redis of their own which either refuses or answers.
func PatientRedis(_ *config.Config, o *gateway.Options) { o.RedisTimeout = patientTimeout }

// Option changes the settings or options of a gateway before it starts.
type Option func(*config.Config, *gateway.Options)

// Start runs a gateway until the test ends. Environment variables choose its dependencies, unless an option such as
// Embedded does:
//
//	TENANTRY_TEST_REDIS_URL       a Redis server instead of the one in the process
//	TENANTRY_TEST_MONGODB_URI     a database of its own on a MongoDB server instead of SQLite
//	TENANTRY_TEST_ISOLATION=file  a file for each organization
func Start(t testing.TB, options ...Option) *Gateway {
	t.Helper()
	cfg := config.Default()
	cfg.Data, cfg.Listen, cfg.AdminListen = t.TempDir(), "127.0.0.1:0", "127.0.0.1:0"
	if text := os.Getenv("TENANTRY_TEST_REDIS_URL"); text != "" {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatalf("TENANTRY_TEST_REDIS_URL: %v", err)
		}
		cfg.Redis.Addrs = []string{u.Host}
	}
	if !enginetest.Shared() {
		isolate(&cfg, config.IsolationFile)
	}
	if uri := os.Getenv(mongotest.Variable); uri != "" {
		if err := UseMongo(&cfg, uri, mongotest.Database(t)); err != nil {
			t.Fatal(err)
		}
	}
	// Requests are counted, but few tests are about limits, so these are high.
	Limits("100000000/s", "off", "100000000/s", "off")(&cfg, &gateway.Options{})
	cfg.Limits.Address = rate.PerSecond(rate.MaxCount)
	cfg.Limits.Visitor, cfg.Limits.VisitorQuota = rate.PerSecond(rate.MaxCount), rate.Unlimited()
	log := &Buffer{}
	o := gateway.Options{
		Log: slog.New(slog.NewJSONHandler(log, nil)), Version: "test", Holder: "a test", Init: true,
		WaitForStore: time.Minute, PasswordMemory: 64, Leases: store.DefaultLeases(),
		TrashInterval: -1, // a test that has run for a minute empties it as any other does
	}
	// A write and a report may take that long on a busy machine.
	o.Leases.Settled, o.ReportTimeout = time.Minute, patientTimeout
	shared := cfg.Redis.Addrs
	for _, option := range options {
		option(&cfg, &o)
	}
	if info, err := os.Stat(cfg.Data); err == nil && info.Mode().Perm()&0o005 == 0o005 { // testing makes such folders
		if err := os.Chmod(cfg.Data, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if o.RedisTimeout == 0 && slices.Equal(cfg.Redis.Addrs, shared) {
		o.RedisTimeout = patientTimeout // the test does not break Redis
	}
	app, err := New(t.Context(), cfg, o)
	if err != nil {
		t.Fatalf("starting the gateway: %v", err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- app.Run(ctx) }()
	g := &Gateway{App: app, Config: cfg, Commands: app.Commands(), Log: log}
	g.client = &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true},
		Timeout:       30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	var stopped sync.Once
	g.stop = func(t testing.TB) {
		t.Helper()
		stopped.Do(func() {
			g.client.CloseIdleConnections()
			g.Commands.Close()
			stop()
			if err := <-ended; err != nil {
				t.Errorf("the gateway ended with: %v", err)
			}
			if err := app.Close(); err != nil {
				t.Errorf("closing the gateway: %v", err)
			}
		})
	}
	t.Cleanup(func() { g.stop(t) })
	g.document = &document{}
	if o.Modules == nil { // the rows are the same; the name of the cookie depends on TLS
		known, _ := documents.LoadOrStore(strings.HasPrefix(cfg.OrganizationURL("x", ""), "https:"), g.document)
		g.document, _ = known.(*document)
	}
	return g
}

// UseMongo makes a MongoDB database the only backend.
func UseMongo(cfg *config.Config, uri, database string) error {
	b := config.Backend{Engine: config.EngineMongo, Database: database, Isolation: config.IsolationShared}
	if err := b.URI.UnmarshalText([]byte(uri)); err != nil {
		return err
	}
	cfg.Backends = map[string]config.Backend{"mongo": b}
	cfg.Store, cfg.Control = "mongo", "mongo"
	return nil
}

// Embedded is an Option for tests that need SQLite and a Redis in the process.
func Embedded(cfg *config.Config, _ *gateway.Options) {
	d := config.Default()
	cfg.Backends, cfg.Store, cfg.Control, cfg.Redis = d.Backends, d.Store, d.Control, d.Redis
	if !enginetest.Shared() {
		isolate(cfg, config.IsolationFile)
	}
}

// OwnFiles is an Option for tests that need a SQLite file for each organization.
func OwnFiles(cfg *config.Config, o *gateway.Options) {
	Embedded(cfg, o)
	isolate(cfg, config.IsolationFile)
}

// SharedFiles is an Option for tests that need SQLite files that organizations share.
func SharedFiles(cfg *config.Config, o *gateway.Options) {
	Embedded(cfg, o)
	isolate(cfg, config.IsolationShared)
}

func isolate(cfg *config.Config, isolation string) {
	b := cfg.Backends[config.DefaultBackend]
	b.Isolation = isolation
	cfg.Backends[config.DefaultBackend] = b
}

// Limits is an Option that sets the default request limits: rate and quota of an organization, rate and quota of each
// key. It panics on a malformed limit. The timeout of Redis is that of PatientRedis.
func Limits(organization, organizationQuota, key, keyQuota string) Option {
	return func(cfg *config.Config, o *gateway.Options) {
		PatientRedis(cfg, o)
		l := &cfg.Limits
		for into, text := range map[*rate.Limit]string{
			&l.Organization: organization, &l.OrganizationQuota: organizationQuota, &l.Key: key, &l.KeyQuota: keyQuota,
		} {
			if err := into.UnmarshalText([]byte(text)); err != nil {
				panic(err)
			}
		}
	}
}

// Stop stops the gateway before the end of the test. Its folder can be opened again afterwards.
func (g *Gateway) Stop(t testing.TB) {
	t.Helper()
	g.stop(t)
}

// Idle closes idle connections.
func (g *Gateway) Idle() { g.client.CloseIdleConnections() }

// URL returns the address of a path. It does not name the organization: the caller sets the Host.
func (g *Gateway) URL(path string) string { return "http://" + g.App.Addr().String() + path }

// Org makes an organization with the features.
func (g *Gateway) Org(t testing.TB, slug string, features ...string) *Org {
	t.Helper()
	change := control.NewOrganization{Slug: slug, OrganizationFields: control.OrganizationFields{
		Name: "Organization " + slug, Features: map[string]bool{},
	}}
	for _, f := range features {
		change.Features[f] = true
	}
	if _, err := control.Call[control.Organization](t.Context(), g.Commands, "org.create", change); err != nil {
		t.Fatalf("creating organization %s: %v", slug, err)
	}
	return &Org{Gateway: g, Slug: slug, Host: slug + ".localhost"}
}

// Org is one organization of a running gateway.
type Org struct {
	*Gateway
	Slug string
	Host string
}

// Tenant returns the current state of the organization.
func (o *Org) Tenant(t testing.TB) *tenants.Tenant {
	t.Helper()
	tenant, err := o.App.Directory().BySlug(t.Context(), o.Slug)
	if err != nil {
		t.Fatalf("organization %s: %v", o.Slug, err)
	}
	return tenant
}

// Import imports the lines of a bundle, each a JSON object.
func (o *Org) Import(t testing.TB, lines ...string) {
	t.Helper()
	source := Source([]byte(strings.Join(lines, "\n") + "\n"))
	report, err := o.App.Transfer().Import(t.Context(), o.Tenant(t), source, bundle.ImportOptions{})
	if err != nil || report.Failed > 0 {
		t.Fatalf("importing into %s: %v %+v", o.Slug, err, report.Problems)
	}
}

// Source returns content in memory as the source of an import.
func Source(content []byte) bundle.Source {
	return bundle.Source{
		Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		Size: int64(len(content)),
	}
}

// empty matches members whose value is null.
var empty = regexp.MustCompile(`(?:,"[^"\\]*":null)+|(\{)"[^"\\]*":null(?:,"[^"\\]*":null)*,?`)

// Given returns a bundle without empty and null members.
func Given(bundle string) string {
	return strings.NewReplacer(`,"fields":{}`, "", `,"values":{}`, "").Replace(empty.ReplaceAllString(bundle, "$1"))
}

// Key issues a server_full key with the permissions and returns its token.
func (o *Org) Key(t testing.TB, permissions ...tenants.Permission) string {
	t.Helper()
	return o.KeyWith(t, func(k *control.NewKey) {
		for _, p := range permissions {
			k.Permissions = append(k.Permissions, string(p))
		}
	}).Token
}

// KeyWith issues a key that change configures. It begins as a server_full key without permissions.
func (o *Org) KeyWith(t testing.TB, change func(*control.NewKey)) control.IssuedKey {
	t.Helper()
	n := control.NewKey{Org: o.Slug, Name: "key " + o.App.Store().NewID(), Kind: string(tenants.ServerFull)}
	change(&n)
	issued, err := control.Call[control.IssuedKey](t.Context(), o.Commands, "key.create", n)
	if err != nil {
		t.Fatalf("creating a key of %s: %v", o.Slug, err)
	}
	return issued
}

// Move moves an organization. progress may be nil.
func Move(
	ctx context.Context, c *control.Client, r control.MoveRequest, progress func(control.Progress),
) (report *control.MoveReport, err error) {
	answer, err := c.Do(ctx, "org.move", r, control.Streams{Progress: progress})
	if err == nil {
		err = json.Unmarshal(answer.Data, &report)
	}
	return report, err
}

// Password is the password of people made by Person.
const Password = "correct horse battery staple"

// Person makes a user, signs in and returns the session cookie.
func (o *Org) Person(t testing.TB, email string, change func(*control.NewUser)) (control.User, *http.Cookie) {
	t.Helper()
	n := control.NewUser{Org: o.Slug, UserFields: control.UserFields{
		Name: "Person " + email, Email: email, Password: Password,
	}}
	if change != nil {
		change(&n)
	}
	user, err := control.Call[control.User](t.Context(), o.Commands, "user.create", n)
	if err != nil {
		t.Fatalf("creating user of %s: %v", o.Slug, err)
	}
	return user, o.SignIn(t, email)
}

// SignIn signs in a person made by Person and returns the session cookie.
func (o *Org) SignIn(t testing.TB, email string) *http.Cookie {
	t.Helper()
	var answer *Answer
	for range 10 { // on a busy machine a Redis server may be late, and the answer is a 503
		credentials := JSON(map[string]string{"email": email, "password": Password})
		answer = o.Do(t, http.MethodPost, "/auth/sign-in", credentials)
		if answer.Code != http.StatusServiceUnavailable {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	for _, line := range answer.Header.Values("Set-Cookie") {
		if cookie, err := http.ParseSetCookie(line); err == nil {
			return cookie
		}
	}
	t.Fatalf("signing in as %s: %d %s; the log says:\n%s", email, answer.Code, answer.Body, o.Log)
	return nil
}

// Buffer collects a log. Safe for concurrent use.
type Buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns what was logged so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
