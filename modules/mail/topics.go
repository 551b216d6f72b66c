package mail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/identity"
)

// RecoverFor is how long a link for a forgotten password is valid.
const RecoverFor = 30 * time.Minute

// The data of topics, as mails hold them.
type (
	invitationData struct {
		Name    string `json:"name"`
		Link    string `json:"link"`
		Expires int64  `json:"expires"` // Unix milliseconds
	}
	passwordData struct{}
	signInData   struct {
		Name    string `json:"name"`
		Browser string `json:"browser"`
		Address string `json:"address"`
		At      int64  `json:"at"` // Unix milliseconds
	}
	formData struct {
		Form       string `json:"form"`
		Submission string `json:"submission"`
	}
	keyData struct {
		Key     string `json:"key"`
		ID      string `json:"id"`
		Expires int64  `json:"expires"` // Unix milliseconds
	}
	webhookData struct {
		Name  string `json:"name"`
		ID    string `json:"id"`
		Since int64  `json:"since"` // Unix milliseconds
		Why   string `json:"why"`
	}
)

// Form is a form with a submission, for an alert.
type Form struct {
	Label      string
	Subject    string // empty: one is made of the label
	Recipients []string
	ReplyTo    string // address that a field of the submission holds; empty: none
	Path       string // of the page of the submission
	Values     []Fact // those that the form marks
}

// moment returns a time for readers, whose time zone is unknown.
func moment(ms int64) string { return time.UnixMilli(ms).UTC().Format("2 January 2006, 15:04 UTC") }

// read reads the data of a topic.
func read[T any](in message) (out T, err error) {
	err = json.Unmarshal(in.Data, &out)
	return out, err
}

// compose returns what a mail says, nil if what it was about is gone. Errors: store.ErrUnavailable.
func (m *Module) compose(ctx context.Context, t *tenants.Tenant, rec *Mail, in *message) (*Content, error) {
	switch rec.Topic {
	case Invitation:
		return m.composeInvitation(t, *in)
	case Password:
		return m.composePassword(ctx, t, in)
	case SignIn:
		return m.composeSignIn(t, *in)
	case FormAlert:
		return m.composeAlert(ctx, t, *in)
	case KeyExpires:
		return m.composeKey(t, *in)
	case WebhookPaused:
		return m.composeWebhook(t, *in)
	case ReportTopic:
		return m.composeReport(ctx, t, *in)
	}
	return nil, nil // of a later version
}

func greeting(name string) string { return "Hello " + line(name) + "," }

func (m *Module) composeInvitation(t *tenants.Tenant, in message) (*Content, error) {
	d, err := read[invitationData](in)
	if err != nil || m.Now().UnixMilli() >= d.Expires {
		return nil, err
	}
	org := line(t.Org.Name)
	return &Content{
		Subject: "Invitation to " + org, Title: "You are invited to " + org,
		Paragraphs: []string{greeting(d.Name), "Choose a password to sign in. The link works once, until " + moment(d.Expires) + "."},
		Action:     Link{"Choose a password", d.Link},
		Footer:     "You get this mail because somebody invited you to " + org + ". If you do not expect that, ignore it.",
	}, nil
}

// composePassword makes a link. The mail goes to the address as it is stored, which may be written otherwise than the one
// that was asked for: upper and lower case may be different mailboxes.
func (m *Module) composePassword(ctx context.Context, t *tenants.Tenant, in *message) (*Content, error) {
	u, err := m.People.Recover(ctx, t, in.To, RecoverFor)
	if errors.Is(err, store.ErrNotFound) { // nobody has the address: nothing is sent, and nothing is kept
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	in.To = u.Email
	org := line(t.Org.Name)
	return &Content{
		Subject: "Your password for " + org, Title: "Choose a new password",
		Paragraphs: []string{
			greeting(u.Name), "Somebody, probably you, asked for a new password. The link works once, until " +
				moment(u.Invitation.ExpiresAt.UnixMilli()) + ". Your password stays as it is until you choose another one.",
		},
		Action: Link{"Choose a new password", u.Invitation.Link(m.BaseURL(t.Org.Slug))},
		Footer: "You get this mail because your address was entered at " + org + ". If that was not you, ignore it.",
	}, nil
}

func (m *Module) composeSignIn(t *tenants.Tenant, in message) (*Content, error) {
	d, err := read[signInData](in)
	if err != nil {
		return nil, err
	}
	org := line(t.Org.Name)
	c := &Content{
		Subject: "New sign-in to " + org, Title: "New sign-in",
		Paragraphs: []string{greeting(d.Name), "Somebody signed in as you from a browser or a network that you have not used before."},
		Facts:      []Fact{{"When", moment(d.At)}},
		After:      []string{"If that was you, you need not do anything. If not, change your password and end the session:"},
		Footer:     "You get this mail because you have an account at " + org + ".",
	}
	if d.Browser != "" {
		c.Facts = append(c.Facts, Fact{"Browser", d.Browser})
	}
	if d.Address != "" {
		c.Facts = append(c.Facts, Fact{"Network address", d.Address})
	}
	c.Action = Link{"Your sessions", m.BaseURL(t.Org.Slug) + "/me/sessions"}
	c.Paragraphs = append(c.Paragraphs, c.After...)
	c.After = nil
	return c, nil
}

func (m *Module) composeAlert(ctx context.Context, t *tenants.Tenant, in message) (*Content, error) {
	d, err := read[formData](in)
	if err != nil {
		return nil, err
	}
	f, err := m.Form(ctx, t, d.Form, d.Submission)
	if f == nil || err != nil {
		return nil, err
	}
	c := &Content{
		Subject: f.Subject, Title: "New submission: " + line(f.Label), Facts: f.Values, ReplyTo: f.ReplyTo,
		Action: Link{"Open the submission", m.BaseURL(t.Org.Slug) + f.Path},
		Footer: "You get this mail because your address is among the recipients of the form " + line(f.Label) + ".",
	}
	if c.Subject == "" {
		c.Subject = c.Title
	}
	c.Unsubscribe, err = m.unsubscribeURL(ctx, t, subscription{Form: d.Form, Address: in.To})
	return c, err
}

func (m *Module) composeKey(t *tenants.Tenant, in message) (*Content, error) {
	d, err := read[keyData](in)
	if err != nil || m.Now().UnixMilli() >= d.Expires {
		return nil, err
	}
	return &Content{
		Subject: "An API key expires soon", Title: "The API key " + line(d.Key) + " expires soon",
		Paragraphs: []string{"It stops working on " + moment(d.Expires) + ". Create another one, and replace it in the programs that use it."},
		Action:     Link{"Open the key", m.BaseURL(t.Org.Slug) + "/keys/" + d.ID},
		Footer:     "You get this mail because you are an administrator of " + line(t.Org.Name) + ".",
	}, nil
}

func (m *Module) composeWebhook(t *tenants.Tenant, in message) (*Content, error) {
	d, err := read[webhookData](in)
	if err != nil {
		return nil, err
	}
	return &Content{
		Subject: "A webhook was paused", Title: "The webhook " + line(d.Name) + " was paused",
		Paragraphs: []string{"No more events are sent to it until somebody resumes it."},
		Facts:      []Fact{{"Reason", d.Why}},
		Action:     Link{"Open the webhook", m.BaseURL(t.Org.Slug) + "/webhooks/" + d.ID},
		Footer:     "You get this mail because you are an administrator of " + line(t.Org.Name) + ".",
	}, nil
}

// Invite mails the link of an invitation to the person, if the installation sends mail and there is a link, and reports
// whether it did. takeBack removes a mail that has not been sent. What fails is logged, because the caller has the link.
func (m *Module) Invite(
	ctx context.Context, t *tenants.Tenant, u *identity.User, baseURL string,
) (mailed bool, takeBack func(context.Context) error) {
	link := ""
	if u.Invitation != nil {
		link = u.Invitation.Link(baseURL)
	}
	if !m.On() || link == "" {
		return false, nil
	}
	p := post{
		id: t.Workspace().NewID(), topic: Invitation, to: u.Email,
		data: invitationData{u.Name, link, u.Invitation.ExpiresAt.UnixMilli()},
	}
	if err := m.store(ctx, t, p); err != nil {
		m.Log.WarnContext(ctx, "an invitation was not mailed", "org", t.Org.OrgID, "user", u.UID, "error", err)
		return false, nil
	}
	return true, func(ctx context.Context) error {
		mails := m.Mails.In(t.Workspace())
		rec, err := mails.Get(ctx, p.id)
		if err == nil && rec.State == Waiting {
			err = mails.Delete(ctx, rec)
		}
		if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrConflict) {
			err = nil
		}
		return err
	}
}

// Forgotten stores that somebody asked for a new password for an address. Whether a person has it is looked up when the
// mail is sent, so that the caller cannot find out. It stores nothing for a text that is no address, and for an
// organization that does not exist. Errors: ErrFull, store.ErrUnavailable.
func (m *Module) Forgotten(ctx context.Context, t *tenants.Tenant, address string) error {
	if t.Workspace() == nil {
		return t.Absent(ctx)
	}
	if address = strings.TrimSpace(address); !schema.ValidEmail(address) {
		return nil
	}
	return m.store(ctx, t, post{topic: Password, to: address, data: passwordData{}})
}

// StageAlert adds the alert about a new submission of a form to the batch that stores it. The caller calls Wake when the
// batch is committed. If too many mails wait, there is no alert. Error: store.ErrUnavailable.
func (m *Module) StageAlert(ctx context.Context, t *tenants.Tenant, b *store.Batch, form, submission string) error {
	if !m.On() {
		return nil
	}
	err := m.stage(ctx, t, b, post{topic: FormAlert, data: formData{form, submission}})
	if errors.Is(err, ErrFull) {
		m.Log.WarnContext(ctx, "no alert about a submission, because too many mails of the organization wait",
			"org", t.Org.OrgID, "form", form)
		return nil
	}
	return err
}

// keyNotice is how long before its end administrators are told that a key expires.
const keyNotice = 7 * 24 * time.Hour

// maxAdmins bounds the administrators who are mailed.
const maxAdmins = 50

// TellExpiring mails the administrators of an organization the keys that expire within seven days, once. Errors: ErrFull,
// store.ErrUnavailable.
func (m *Module) TellExpiring(ctx context.Context, t *tenants.Tenant) error {
	if !m.On() {
		return nil
	}
	now := m.Now()
	expiring, err := m.APIKeys.Expiring(ctx, t, now, now.Add(keyNotice))
	if err != nil || len(expiring) == 0 {
		return err
	}
	for i := range expiring {
		k := &expiring[i]
		data := keyData{k.Name, k.ID, k.ExpiresAt}
		if err := m.tellAdmins(ctx, t, KeyExpires, data, k.ID, strconv.FormatInt(k.ExpiresAt, 10)); err != nil {
			return err
		}
	}
	return nil
}

// TellWebhookPaused mails the administrators that a webhook was paused, once for the time since when it has failed.
// Errors: ErrFull, store.ErrUnavailable.
func (m *Module) TellWebhookPaused(ctx context.Context, t *tenants.Tenant, id, name string, since time.Time, why string) error {
	if !m.On() {
		return nil
	}
	data := webhookData{name, id, since.UnixMilli(), why}
	return m.tellAdmins(ctx, t, WebhookPaused, data, id, strconv.FormatInt(data.Since, 10))
}

// tellAdmins mails the active administrators. A mail with the same identity is not stored again while the first is kept.
func (m *Module) tellAdmins(ctx context.Context, t *tenants.Tenant, topic string, data any, identity ...string) error {
	admins, err := m.People.Admins(ctx, t, maxAdmins)
	if err != nil {
		return err
	}
	for i := range admins {
		id, err := m.keyed(ctx, t, countPurpose, append([]string{topic, strconv.FormatInt(admins[i].UID, 10)}, identity...)...)
		if err == nil {
			err = m.store(ctx, t, post{id: id, topic: topic, to: admins[i].Email, data: data})
		}
		if _, told := errors.AsType[*store.DuplicateError](err); err != nil && !told {
			return fmt.Errorf("telling administrators: %w", err)
		}
	}
	return nil
}

// placePurpose is the purpose of the data keys for the identifiers of places.
const placePurpose = "sign-in-places"

// NoteSignIn notes from where a person has signed in, and mails the person if that is new and not the first time. What
// fails is logged, because the sign-in has succeeded. network is the part of the address that is compared, browser the
// name of the browser.
func (m *Module) NoteSignIn(ctx context.Context, c *operation.Call, u *identity.User, network, browser string) {
	if !m.On() || c.Tenant.Workspace() == nil {
		return
	}
	err := m.noteSignIn(ctx, c, u, network, browser)
	if _, known := errors.AsType[*store.DuplicateError](err); err != nil && !known {
		m.Log.WarnContext(ctx, "the person was not told of a sign-in", "org", c.Tenant.Org.OrgID, "user", u.UID, "error", err)
	}
}

func (m *Module) noteSignIn(ctx context.Context, c *operation.Call, u *identity.User, network, browser string) error {
	t := c.Tenant
	id, err := m.keyed(ctx, t, placePurpose, strconv.FormatInt(u.UID, 10), network, browser)
	if err != nil {
		return err
	}
	now := m.Now().UnixMilli()
	places := m.Places.In(t.Workspace())
	known, err := places.Get(ctx, id)
	switch {
	case err == nil && now-known.Used < (24*time.Hour).Milliseconds():
		return nil
	case err == nil:
		known.Used = now
		if err = places.Replace(ctx, known); errors.Is(err, store.ErrConflict) {
			err = nil
		}
		return err
	case !errors.Is(err, store.ErrNotFound):
		return err
	}
	_, err = places.First(ctx, store.Query{Filter: store.Eq("user", u.UID)})
	first := errors.Is(err, store.ErrNotFound)
	if err != nil && !first {
		return err
	}
	b := t.Workspace().Batch()
	place := &Place{User: u.UID, Used: now}
	place.ID = id
	if err = places.StageInsert(b, place); err == nil && !first {
		data := signInData{Name: u.Name, Browser: browser, At: now}
		if c.Remote.IsValid() {
			data.Address = c.Remote.String()
		}
		err = m.stage(ctx, t, b, post{topic: SignIn, to: u.Email, data: data})
	}
	if err != nil {
		b.Discard()
		return err
	}
	if err = b.Commit(ctx); err == nil {
		m.Wake(t)
	}
	return err
}
