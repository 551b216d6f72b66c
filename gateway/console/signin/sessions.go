package signin

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"tenantry/backends/store"
	"tenantry/crypto/passwords"
	"tenantry/crypto/secret"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/operation"
	"tenantry/tenants"
)

// Link is the answer to the check of a single-use link.
type Link struct {
	ExpiresAt string `json:"expires_at" doc:"RFC 3339, UTC, milliseconds."`
}

type linkToken struct {
	Token string `json:"token" rule:"required min=1 max=200" use:"secret" example:"inv_3q2-7w"`
}

func (m *Module) checkLink(ctx context.Context, c *operation.Call, in linkToken) (Link, error) {
	ends, err := m.Sessions.CheckInvite(ctx, c.Tenant, in.Token, c.Remote)
	if errors.Is(err, tenants.ErrDenied) {
		return Link{}, operation.Forbidden(linkUsedMessage)
	}
	if err != nil {
		return Link{}, throttled(err)
	}
	return Link{texts.Time(ends.UnixMilli())}, nil
}

// Session is one of a person's own browser sessions.
type Session struct {
	ID         string `json:"id" doc:"Names the session among the person's own."`
	Name       string `json:"name" doc:"Browser and system in words; empty: not known."`
	Browser    string `json:"browser" doc:"What the browser called itself when the session began; empty: it did not say."`
	Address    string `json:"address" doc:"Network address from which the session began; empty: not known."`
	StartedAt  string `json:"started_at" doc:"RFC 3339, UTC, milliseconds."`
	LastUsedAt string `json:"last_used_at" doc:"RFC 3339, UTC, milliseconds."`
	ExpiresAt  string `json:"expires_at" doc:"When the session ends in any case; it ends sooner where it is not used."`
	Current    bool   `json:"current" doc:"Whether the call was made in this session."`
}

// SessionPage is a page of a person's sessions. Of more than 200 sessions, it lists those that expire last.
type SessionPage operation.Page[Session]

func exampleSession() Session {
	return Session{
		ID: "9c2f5a81d0e34b7796ab01cd", Name: "Firefox on Linux",
		Browser: "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", Address: "127.0.0.1",
		StartedAt: "2024-06-04T13:52:42.000Z", LastUsedAt: "2024-06-04T14:10:02.000Z",
		ExpiresAt: "2024-06-05T01:52:42.000Z", Current: true,
	}
}

// ownSessions returns the rows with which people list and end their own sessions and change their password.
func (m *Module) ownSessions() []operation.Row {
	own := operation.Row{Policy: operation.Policy{Credentials: operation.Session, Rule: operation.AnyCaller()}, Docs: operation.Docs{Tag: "Sessions"}}
	list, get, end, endAll, password := own, own, own, own, own
	list.Title, get.Title = "Your own sessions", "One of your own sessions"
	end.Verb, endAll.Verb, password.Verb = "End", "Sign out everywhere else", "Change"
	missing := operation.Failure{Code: http.StatusNotFound, Message: noSession, When: "the person has no such session, or it has ended"}
	list.Name, list.Method, list.Path, list.Summary, list.Message = "sessions.list", http.MethodGet, "/api/me/sessions", "List your own sessions", "Sessions found"
	list.Action, list.Example = operation.ListAction, SessionPage{1, 1, 1, []Session{exampleSession()}}
	get.Name, get.Method, get.Path, get.Summary, get.Message = "sessions.get", http.MethodGet, "/api/me/sessions/{id}", "Get one of your own sessions", "Session found"
	get.Example, get.Failures = exampleSession(), []operation.Failure{missing}
	end.Name, end.Method, end.Path, end.Summary, end.Message = "sessions.end", http.MethodDelete, "/api/me/sessions/{id}", "End one of your own sessions", "Session ended"
	end.Example, end.Audit, end.Failures = struct{}{}, operation.AuditAlways, []operation.Failure{missing}
	endAll.Name, endAll.Method, endAll.Path, endAll.Summary, endAll.Message = "sessions.end_others", http.MethodPost, "/api/me/sign-out-elsewhere", "End all other sessions of yours", "Sessions ended"
	endAll.Ask = "Every other browser has to sign in again."
	endAll.Description = "Every browser but this one has to sign in again. This session goes on under a new identifier."
	endAll.Example, endAll.Audit, endAll.Once = struct{}{}, operation.AuditAlways, true // a cookie
	password.Name, password.Method, password.Path, password.Summary, password.Message = "passwords.change", http.MethodPost, "/api/me/password", "Change your own password", "Password changed"
	password.Ask = endAll.Ask
	password.Description = "Every browser but this one has to sign in again. Wrong attempts count as those to sign in."
	password.Example, password.Audit, password.Once, password.BodyLimit = struct{}{}, operation.AuditAlways, true, 8<<10
	password.Failures = []operation.Failure{
		{Code: http.StatusUnprocessableEntity, Message: "Validation failed: the present password is wrong", When: "the present password is wrong, or the new one is not acceptable"},
	}
	changed := operation.Typed(password, m.changePassword)
	changed.SetMinLength("password", passwords.MinCharacters)
	return []operation.Row{
		operation.Typed(list, m.listSessions), operation.Typed(get, m.getSession), operation.Typed(end, m.endSession),
		operation.Typed(endAll, m.endOthers), changed,
	}
}

const noSession = "Session not found"

// sessionsOf returns the caller's own sessions.
func (m *Module) sessionsOf(ctx context.Context, c *operation.Call) ([]Session, error) {
	all, err := m.Sessions.List(ctx, c.Tenant, c.Principal.UserID)
	if err != nil {
		return nil, err
	}
	this, err := m.Sessions.Info(ctx, c.Tenant, c.SessionToken)
	if err != nil {
		return nil, err
	}
	shown := make([]Session, len(all))
	for i, s := range all {
		moment := func(t time.Time) string { return texts.Time(t.UnixMilli()) }
		shown[i] = Session{
			ID: s.ID, Name: browserName(s.Browser), Browser: s.Browser, Current: s.ID == this.ID,
			StartedAt: moment(s.StartedAt), LastUsedAt: moment(s.UsedAt), ExpiresAt: moment(s.ExpiresAt),
		}
		if s.Address.IsValid() {
			shown[i].Address = s.Address.String()
		}
	}
	return shown, nil
}

// browserName returns a readable form of a User-Agent header, such as "Firefox on Linux". Browsers include the names of
// other browsers, so the order of the checks matters.
func browserName(agent string) string {
	first := func(names ...[2]string) string {
		for _, n := range names {
			if strings.Contains(agent, n[0]) {
				return n[1]
			}
		}
		return ""
	}
	browser := first(
		[2]string{"Firefox/", "Firefox"}, [2]string{"FxiOS/", "Firefox"}, [2]string{"Edg", "Edge"},
		[2]string{"OPR/", "Opera"}, [2]string{"SamsungBrowser/", "Samsung Internet"},
		[2]string{"Chrome/", "Chrome"}, [2]string{"CriOS/", "Chrome"}, [2]string{"Safari/", "Safari"},
		[2]string{"curl/", "curl"})
	system := first(
		[2]string{"Android", "Android"}, [2]string{"iPhone", "iPhone"}, [2]string{"iPad", "iPad"},
		[2]string{"Windows", "Windows"}, [2]string{"Mac OS X", "macOS"}, [2]string{"CrOS", "ChromeOS"},
		[2]string{"Linux", "Linux"})
	return strings.Join(slices.DeleteFunc([]string{browser, system}, func(s string) bool { return s == "" }), " on ")
}

func (m *Module) listSessions(ctx context.Context, c *operation.Call, in operation.Paging) (SessionPage, error) {
	all, err := m.sessionsOf(ctx, c)
	from := min(in.Offset(), len(all))
	return SessionPage(operation.PageOf(in, int64(len(all)), all[from:min(from+in.Limit(), len(all))])), err
}

type sessionID struct {
	ID string `json:"id" doc:"The session." example:"9c2f5a81d0e34b7796ab01cd"`
}

func (m *Module) getSession(ctx context.Context, c *operation.Call, in sessionID) (Session, error) {
	all, err := m.sessionsOf(ctx, c)
	for _, s := range all {
		if s.ID == in.ID {
			return s, err
		}
	}
	if err == nil {
		err = operation.NotFound(noSession)
	}
	return Session{}, err
}

func (m *Module) endSession(ctx context.Context, c *operation.Call, in sessionID) (none struct{}, err error) {
	err = m.Sessions.EndListed(ctx, c.Tenant, c.Principal.UserID, in.ID)
	if errors.Is(err, store.ErrNotFound) {
		return none, operation.NotFound(noSession)
	}
	return none, err
}

func (m *Module) endOthers(ctx context.Context, c *operation.Call, _ struct{}) (none struct{}, err error) {
	if err := m.Sessions.EndAll(ctx, c.Tenant, c.Principal.UserID); err != nil {
		return none, err
	}
	user, err := m.People.FindUser(ctx, c.Tenant, c.Principal.UserID)
	if err != nil {
		return none, err
	}
	_, err = m.beginAfterChange(ctx, c, user)
	return none, err
}

type newPassword struct {
	Present  string `json:"present_password" rule:"required min=1 max=1024" use:"secret" doc:"The password until now." ask:"Password until now" example:"correct horse battery staple"`
	Password string `json:"password" rule:"required min=1 max=1024" use:"secret" doc:"The new one." ask:"New password" example:"battery horse staple correct"`
}

func (m *Module) changePassword(ctx context.Context, c *operation.Call, in newPassword) (none struct{}, err error) {
	user, err := m.Sessions.ChangePassword(ctx, c.Tenant, c.Principal.UserID,
		secret.New(in.Present), secret.New(in.Password), c.Remote)
	if errors.Is(err, tenants.ErrDenied) {
		return none, fault.One("present_password", fault.Forbidden, "the present password is wrong")
	}
	if err != nil {
		return none, throttled(err)
	}
	_, err = m.beginAfterChange(ctx, c, user)
	return none, err
}
