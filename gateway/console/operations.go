// Package console is what people use in a browser: the pages of an organization for those who are signed in,
// signing in and out, choosing a password, shared reports. Its pages are made of the rows of operations
// and ask nothing but these, by the way of any other caller; they work without scripts.
package console

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"tenantry/crypto/passwords"
	"tenantry/crypto/secret"
	"tenantry/operation"
	"tenantry/reports"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/sessions"
)

// Deps are what the console works on.
type Deps struct {
	Sessions *sessions.Service
	People   *identity.Service
	Reports  *reports.Module
	// Visit leads to the organization of a request and to who asks, and counts it: nobody's organization, besides
	// tenants.ErrUnknownTenant, where the host leads to none. An *operation.Problem says that it is over a limit.
	Visit func(r *http.Request) (Visitor, error)
	// Resolve leads to the organization alone, for a small page that is the same for every host.
	Resolve func(r *http.Request) (*tenants.Tenant, error)
	// Static makes a handler of content that stays the same.
	Static  func(contentType string, content func() []byte) http.Handler
	BaseURL func(slug string) string
	Cookie  string // name of the session cookie
	Secure  bool   // served over TLS
	Now     func() time.Time
	Log     *slog.Logger
}

// Visitor is who asks for a page. Person is who is signed in; where that is nobody, Err is tenants.ErrDenied, or why it
// cannot be told.
type Visitor struct {
	Tenant *tenants.Tenant
	Person *tenants.Principal
	Err    error
	// Resolve returns the organization as it is now, nobody's where there is none any more. Error: store.ErrUnavailable.
	Resolve func(context.Context) (*tenants.Tenant, error)
	// Form reads the body of the request, a form of at most so many bytes. An *operation.Problem says that there is no room for it.
	Form func(r *http.Request, most int64) ([]byte, error)
	// Pause lets others work while a file arrives that is passed on.
	Pause func()
}

// Module is the console. Safe for concurrent use.
type Module struct {
	Deps
	common  common
	account account
	mux     *http.ServeMux
}

// New returns the console. An error is a fault of the program.
func New(d Deps) (*Module, error) {
	p, err := newRenderer(d.BaseURL, d.Log)
	if err != nil {
		return nil, err
	}
	m := &Module{Deps: d, mux: http.NewServeMux(), account: account{d.Sessions, d.People, d.Cookie, d.Secure}, common: common{
		client: &client{cookie: d.Cookie, baseURL: d.BaseURL}, pages: p, locales: newReaders(), sessions: d.Sessions, people: d.People,
		own: map[string]*operation.Row{}, cookie: d.Cookie, now: d.Now, log: d.Log,
	}}
	return m, m.routes()
}

// Serve makes the pages of the rows; handler serves them. It is called before the first request.
func (m *Module) Serve(rows []operation.Row, handler http.Handler) {
	m.common.site, m.common.client.api = newSite(rows), handler
}

// SignedIn is what signing in answers.
type SignedIn struct {
	ID   int64  `json:"id" doc:"The person's identifier."`
	Name string `json:"name"`
}

// Operations returns the rows of signing in and out, and of people's own sessions and passwords.
func (m *Module) Operations() []operation.Row {
	rows := m.account.rows()
	for i := range rows {
		m.common.own[rows[i].Name] = &rows[i]
	}
	return rows
}

// account is signing in and out, and people's own sessions and passwords. Safe for concurrent use.
type account struct {
	sessions *sessions.Service
	people   *identity.Service
	name     string // of the session cookie
	secure   bool   // served over TLS
}

func (m *account) rows() []operation.Row {
	// Those who call these are nobody yet.
	begin := operation.Row{
		Method: http.MethodPost, Tag: "Sessions", Credentials: operation.Open, Rule: operation.AnyCaller(), Audit: operation.AuditAlways,
		BodyLimit: 8 << 10, OwnLimits: true, AnyHost: true, Message: "Signed in", Example: SignedIn{ID: 7, Name: "Ada Example"},
	}
	create, redeem, check, choose := begin, begin, begin, begin
	create.Name, create.Path, create.Summary = "sessions.create", "/auth/sign-in", "Sign in"
	create.Description = "Starts a browser session, kept in a cookie that scripts cannot read. It ends after 30 minutes without use and after 12 hours in any case."
	create.Failures = []operation.Failure{{Code: http.StatusForbidden, Message: wrongPassword, When: "the address or the password is wrong"}}
	redeem.Name, redeem.Path, redeem.Summary = "sessions.redeem", "/auth/link", "Sign in by a link"
	redeem.Description = "Uses up a single-use link that signs in without a password, such as the one that the demo prints."
	redeem.Failures = []operation.Failure{{Code: http.StatusForbidden, Message: usedUp, When: "the link was used, has ended, or is none"}}
	check.Name, check.Path, check.Summary = "passwords.check", "/auth/password/check", "Check a single-use link"
	check.Description = "Tells whether the link that a person was sent still lets choose a password. It uses nothing up."
	check.Reads, check.OwnLimits = true, false // counted as any call, since a good link is no attempt
	check.Message, check.Example, check.Failures = "Link found", Link{ExpiresAt: "2024-06-07T13:52:42.000Z"}, redeem.Failures
	choose.Name, choose.Path, choose.Summary, choose.Message = "passwords.create", "/auth/password", "Choose a password", "Password created"
	choose.Description = "Uses up the single-use link that a person was sent, sets the password and signs in."
	rows := []operation.Row{
		operation.Typed(create, m.signIn),
		operation.Typed(operation.Row{
			Name: "sessions.delete", Method: http.MethodPost, Path: "/auth/sign-out", Tag: "Sessions",
			Summary: "Sign out", Credentials: operation.Session, Rule: operation.AnyCaller(), Audit: operation.AuditAlways,
			Message: "Signed out", Example: struct{}{},
		}, m.signOut),
		operation.Typed(redeem, m.redeem),
		operation.Typed(check, m.checkLink),
		operation.Typed(choose, m.choosePassword),
	}
	rows[4].Body[1].Bounds.MinLength = passwords.MinCharacters // which is checked where it is set
	return append(rows, m.ownSessions()...)
}

const wrongPassword = "E-mail address or password is wrong"

type credentials struct {
	Email    string `json:"email" rule:"required min=1 max=254" example:"ada@example.com"`
	Password string `json:"password" rule:"required min=1 max=1024" use:"secret" example:"correct horse battery staple"`
}

func (m *account) signIn(ctx context.Context, c *operation.Call, in credentials) (SignedIn, error) {
	user, err := m.sessions.SignIn(ctx, c.Tenant, in.Email, secret.New(in.Password), c.Remote)
	if user != nil { // who it was, also where it is refused; what was typed is recorded nowhere
		c.Note("user", strconv.FormatInt(user.UID, 10))
	}
	switch {
	case errors.Is(err, tenants.ErrDenied):
		p := operation.Forbidden(wrongPassword)
		p.Reason = "sign-in refused"
		return SignedIn{}, p
	case err != nil:
		return SignedIn{}, later(err)
	}
	return m.begin(ctx, c, user)
}

// later asks callers to come back who try too often, or while too many passwords are being
// checked.
func later(err error) error {
	var throttled *sessions.ThrottledError
	switch {
	case errors.As(err, &throttled):
		return &operation.Problem{
			Code: http.StatusTooManyRequests, Message: "Too many attempts to sign in, please wait", RetryAfter: throttled.RetryAfter,
			Reason: "sign-in throttled",
		}
	case errors.Is(err, passwords.ErrBusy):
		return operation.Unavailable(err)
	}
	return err
}

// begin starts a session under a new identifier and hands it to the browser.
func (m *account) begin(ctx context.Context, c *operation.Call, user *identity.User) (SignedIn, error) {
	browser, _ := c.RequestHeader("User-Agent") // two of them say nothing
	token, session, err := m.sessions.Start(ctx, c.Tenant, user, sessions.From{Address: c.Remote, Browser: browser})
	if err != nil {
		return SignedIn{}, err
	}
	c.Undo = func(ctx context.Context) error {
		_ = m.sessions.End(ctx, c.Tenant, token.Reveal()) // nobody has been given it; it ends by itself otherwise
		return nil
	}
	c.Note("user", strconv.FormatInt(user.UID, 10))
	cookie := m.cookie(token.Reveal())
	cookie.Expires = session.ExpiresAt
	c.Header.Add("Set-Cookie", cookie.String())
	return SignedIn{ID: user.UID, Name: user.Name}, nil
}

func (m *account) signOut(ctx context.Context, c *operation.Call, _ struct{}) (none struct{}, err error) {
	if c.SessionToken != "" {
		if err := m.sessions.End(ctx, c.Tenant, c.SessionToken); err != nil {
			return none, err
		}
	}
	cookie := m.cookie("")
	cookie.MaxAge = -1
	c.Header.Add("Set-Cookie", cookie.String())
	return none, nil
}

const usedUp = "The link was used already or has expired; ask for a new one"

type choice struct {
	Token    string `json:"token" rule:"required min=1 max=200" use:"secret" example:"inv_3q2-7w"`
	Password string `json:"password" rule:"required min=1 max=1024" use:"secret" example:"correct horse battery staple"`
}

func (m *account) choosePassword(ctx context.Context, c *operation.Call, in choice) (SignedIn, error) {
	user, err := m.sessions.AcceptInvite(ctx, c.Tenant, in.Token, secret.New(in.Password), c.Remote)
	return m.beginByLink(ctx, c, user, err)
}

func (m *account) redeem(ctx context.Context, c *operation.Call, in linkToken) (SignedIn, error) {
	user, err := m.sessions.UseLink(ctx, c.Tenant, in.Token, c.Remote)
	return m.beginByLink(ctx, c, user, err)
}

func (m *account) beginByLink(ctx context.Context, c *operation.Call, user *identity.User, err error) (SignedIn, error) {
	if errors.Is(err, tenants.ErrDenied) {
		p := operation.Forbidden(usedUp)
		p.Reason = "link refused"
		return SignedIn{}, p
	}
	if err != nil {
		return SignedIn{}, later(err)
	}
	return m.goOn(ctx, c, user)
}

var errStays = errors.New("sessions, a password or a link are what they were before no more")

// goOn begins a session after something that stays done, also where nobody can be told of the session.
func (m *account) goOn(ctx context.Context, c *operation.Call, user *identity.User) (SignedIn, error) {
	in, err := m.begin(ctx, c, user)
	if undo := c.Undo; undo != nil {
		c.Undo = func(ctx context.Context) error { return errors.Join(undo(ctx), errStays) }
	}
	return in, err
}

// cookie is sent to this host alone and to no other site's requests.
func (m *account) cookie(value string) *http.Cookie {
	return &http.Cookie{
		Name: m.name, Value: value, Path: "/", HttpOnly: true, Secure: m.secure, SameSite: http.SameSiteLaxMode,
	}
}
