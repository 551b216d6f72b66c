// Package signin has the operations for signing in and out, and for people's own sessions and passwords. Package
// console has the pages for them; programs can call the operations too.
package signin

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"tenantry/crypto/passwords"
	"tenantry/crypto/secret"
	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/sessions"
)

// SignedIn is the answer to signing in.
type SignedIn struct {
	ID   int64  `json:"id" doc:"The person's identifier."`
	Name string `json:"name"`
}

// Module serves signing in and out, and people's own sessions and passwords. Safe for concurrent use.
type Module struct {
	Sessions *sessions.Service
	People   *identity.Service
	Name     string // the name of the session cookie
	Secure   bool   // served over TLS
	// SignedIn, unless nil, is called after a person has signed in, with the name of the browser.
	SignedIn func(ctx context.Context, c *operation.Call, u *identity.User, browser string)
	// Forgotten mails a link for a new password to the address, if a person has it. Mails: the installation sends mail.
	Forgotten func(ctx context.Context, t *tenants.Tenant, address string) error
	Mails     bool
}

// Operations returns the rows.
func (m *Module) Operations() []operation.Row {
	// Callers of these operations are not signed in yet.
	begin := operation.Row{
		Method: http.MethodPost,
		Policy: operation.Policy{
			Credentials: operation.Open, Rule: operation.AnyCaller(), Audit: operation.AuditAlways,
			OwnLimits: true, AnyHost: true,
		},
		Request:  operation.Request{BodyLimit: 8 << 10},
		Response: operation.Response{Message: "Signed in", Example: SignedIn{ID: 7, Name: "Ada Example"}},
		Docs:     operation.Docs{Tag: "Sessions"},
	}
	create, redeem, check, choose := begin, begin, begin, begin
	create.Name, create.Path, create.Summary = "sessions.create", "/auth/sign-in", "Sign in"
	create.Description = "Starts a browser session, kept in a cookie that scripts cannot read. It ends after 30 " +
		"minutes without use and after 12 hours in any case."
	create.Failures = []operation.Failure{{Code: http.StatusForbidden, Message: wrongPassword, When: "the address or the password is wrong"}}
	redeem.Name, redeem.Path, redeem.Summary = "sessions.redeem", "/auth/link", "Sign in by a link"
	redeem.Description = "Uses up a single-use link that signs in without a password, such as the one that the demo prints."
	redeem.Failures = []operation.Failure{{Code: http.StatusForbidden, Message: linkUsedMessage, When: "the link was used, has ended, or is none"}}
	check.Name, check.Path, check.Summary = "passwords.check", "/auth/password/check", "Check a single-use link"
	check.Description = "Tells whether the link that a person was sent still lets choose a password. It uses nothing up."
	check.Reads, check.OwnLimits = true, false // counted as any call, since a good link is no attempt
	check.Message, check.Example, check.Failures = "Link found", Link{ExpiresAt: "2024-06-07T13:52:42.000Z"}, redeem.Failures
	choose.Name, choose.Path, choose.Summary, choose.Message = "passwords.create", "/auth/password", "Choose a password", "Password created"
	choose.Description = "Uses up the single-use link that a person was sent, sets the password and signs in."
	chosen := operation.Typed(choose, m.choosePassword)
	chosen.SetMinLength("password", passwords.MinCharacters)
	rows := []operation.Row{
		operation.Typed(create, m.signIn),
		operation.Typed(operation.Row{
			Name: "sessions.delete", Method: http.MethodPost, Path: "/auth/sign-out",
			Policy: operation.Policy{
				Credentials: operation.Session, Rule: operation.AnyCaller(), Audit: operation.AuditAlways,
			},
			Response: operation.Response{Message: "Signed out", Example: struct{}{}},
			Docs: operation.Docs{
				Tag:     "Sessions",
				Summary: "Sign out",
			},
		}, m.signOut),
		operation.Typed(redeem, m.redeem),
		operation.Typed(check, m.checkLink),
		chosen,
		m.forgotRow(begin),
	}
	return append(rows, m.ownSessions()...)
}

const wrongPassword = "E-mail address or password is wrong"

type credentials struct {
	Email    string `json:"email" rule:"required min=1 max=254" example:"ada@example.com"`
	Password string `json:"password" rule:"required min=1 max=1024" use:"secret" example:"correct horse battery staple"`
}

func (m *Module) signIn(ctx context.Context, c *operation.Call, in credentials) (SignedIn, error) {
	user, err := m.Sessions.SignIn(ctx, c.Tenant, in.Email, secret.New(in.Password), c.Remote)
	if user != nil { // also recorded when the sign-in is refused; the typed address is never recorded
		c.Note("user", strconv.FormatInt(user.UID, 10))
	}
	switch {
	case errors.Is(err, tenants.ErrDenied):
		p := operation.Forbidden(wrongPassword)
		p.Reason = "sign-in refused"
		return SignedIn{}, p
	case err != nil:
		return SignedIn{}, throttled(err)
	}
	return m.begin(ctx, c, user)
}

// throttled converts the errors of too many attempts, and of too many passwords being checked at once, into problems
// that ask the caller to try again. Other errors are returned unchanged.
func throttled(err error) error {
	var throttled *sessions.ThrottledError
	switch {
	case errors.As(err, &throttled):
		return &operation.Problem{
			Code: http.StatusTooManyRequests, Message: "Too many attempts to sign in, please wait",
			RetryAfter: throttled.RetryAfter, Reason: "sign-in throttled",
		}
	case errors.Is(err, passwords.ErrBusy):
		return operation.Unavailable(err)
	}
	return err
}

// begin starts a session and sets its cookie.
func (m *Module) begin(ctx context.Context, c *operation.Call, user *identity.User) (SignedIn, error) {
	browser, _ := c.RequestHeader("User-Agent") // empty if it is sent twice
	token, session, err := m.Sessions.Start(ctx, c.Tenant, user, sessions.From{Address: c.Remote, Browser: browser})
	if err != nil {
		return SignedIn{}, err
	}
	c.Undo = func(ctx context.Context) error {
		_ = m.Sessions.End(ctx, c.Tenant, token.Reveal()) // the token was not handed out, and the session expires anyway
		return nil
	}
	c.Note("user", strconv.FormatInt(user.UID, 10))
	if m.SignedIn != nil {
		m.SignedIn(ctx, c, user, browserName(browser))
	}
	cookie := m.cookie(token.Reveal())
	cookie.Expires = session.ExpiresAt
	c.Header.Add("Set-Cookie", cookie.String())
	return SignedIn{ID: user.UID, Name: user.Name}, nil
}

func (m *Module) signOut(ctx context.Context, c *operation.Call, _ struct{}) (none struct{}, err error) {
	if c.SessionToken != "" {
		if err := m.Sessions.End(ctx, c.Tenant, c.SessionToken); err != nil {
			return none, err
		}
	}
	cookie := m.cookie("")
	cookie.MaxAge = -1
	c.Header.Add("Set-Cookie", cookie.String())
	return none, nil
}

const linkUsedMessage = "The link was used already or has expired; ask for a new one"

type chosenPassword struct {
	Token    string `json:"token" rule:"required min=1 max=200" use:"secret" example:"inv_3q2-7w"`
	Password string `json:"password" rule:"required min=1 max=1024" use:"secret" example:"correct horse battery staple"`
}

func (m *Module) choosePassword(ctx context.Context, c *operation.Call, in chosenPassword) (SignedIn, error) {
	user, err := m.Sessions.AcceptInvite(ctx, c.Tenant, in.Token, secret.New(in.Password), c.Remote)
	return m.beginByLink(ctx, c, user, err)
}

func (m *Module) redeem(ctx context.Context, c *operation.Call, in linkToken) (SignedIn, error) {
	user, err := m.Sessions.UseLink(ctx, c.Tenant, in.Token, c.Remote)
	return m.beginByLink(ctx, c, user, err)
}

func (m *Module) beginByLink(ctx context.Context, c *operation.Call, user *identity.User, err error) (SignedIn, error) {
	if errors.Is(err, tenants.ErrDenied) {
		p := operation.Forbidden(linkUsedMessage)
		p.Reason = "link refused"
		return SignedIn{}, p
	}
	if err != nil {
		return SignedIn{}, throttled(err)
	}
	return m.beginAfterChange(ctx, c, user)
}

var errChangeStays = errors.New("the change of sessions, a password or a link cannot be undone")

// beginAfterChange starts a session after a change that cannot be undone. If the call is undone, the session ends and
// the error says that the change stays.
func (m *Module) beginAfterChange(ctx context.Context, c *operation.Call, user *identity.User) (SignedIn, error) {
	in, err := m.begin(ctx, c, user)
	if undo := c.Undo; undo != nil {
		c.Undo = func(ctx context.Context) error { return errors.Join(undo(ctx), errChangeStays) }
	}
	return in, err
}

// cookie returns the session cookie. Browsers send it to this host only, and not with requests from other sites.
func (m *Module) cookie(value string) *http.Cookie {
	return &http.Cookie{
		Name: m.Name, Value: value, Path: "/", HttpOnly: true, Secure: m.Secure, SameSite: http.SameSiteLaxMode,
	}
}
