// Package mail sends mail. A mail is first stored with the documents of its organization, in the batch of what it tells
// if that is among them, and then sent by any replica: see Module.Turn. So a process that is killed loses no mail, and
// may send one twice, with the same Message-ID.
//
// Addresses and contents are personal. They are stored sealed until the mail has been sent, and never logged.
package mail

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/keys"
	"tenantry/tenants/secrets"
)

// Mail is a mail to one address, or to those that its topic finds when it is sent.
type Mail struct {
	store.Meta
	Topic  string `json:"topic" rule:"enum=invitation|password|sign_in|form_alert|key_expires|webhook_paused|report" use:"filter" doc:"What it is about." example:"invitation"`
	To     string `json:"to" doc:"The address, with only its first character and its domain." example:"a***@example.com"`
	State  string `json:"state" rule:"enum=waiting|sent|failed" use:"filter" doc:"waiting: it will be sent, or tried again. sent: the mail server took it. failed: it will not be sent." example:"sent"`
	Tries  int    `json:"tries" doc:"How often the mail server was asked to take it." example:"1"`
	Code   int    `json:"code" doc:"The reply of the mail server when it last refused it, such as 550; 0: it did not." example:"0"`
	Reason string `json:"reason" doc:"Why it waits or failed; empty: nothing is wrong."`
	// Due is when a mail that waits is tried next, and when another one was sent or failed. In Unix milliseconds.
	Due int64 `json:"due" use:"hidden local"`
	// Address is a keyed hash of the address, by which mails to one address are counted.
	Address string `json:"address,omitempty" use:"hidden local"`
	// Message is the sealed message; empty once the mail has been sent or has failed.
	Message string `json:"message,omitempty" use:"hidden local"`
}

// The states of a mail.
const (
	Waiting = "waiting"
	Sent    = "sent"
	Failed  = "failed"
)

// Topics of mails.
const (
	Invitation    = "invitation"
	Password      = "password"
	SignIn        = "sign_in"
	FormAlert     = "form_alert"
	KeyExpires    = "key_expires"
	WebhookPaused = "webhook_paused"
	ReportTopic   = "report"
)

// message is what a mail holds sealed.
type message struct {
	To   string          `json:"to,omitempty"`
	Data json.RawMessage `json:"data,omitempty"` // of the topic
}

// Place is a browser and a network from which a person has signed in. Its identifier is a keyed hash of them.
type Place struct {
	store.Meta
	User int64 `json:"user"`
	Used int64 `json:"used"` // Unix milliseconds, to a day
}

// Kinds are the records of this module.
type Kinds struct {
	Mails  *record.Of[Mail]
	Places *store.Kind[Place]
}

// NewKinds declares the records.
func NewKinds() Kinds {
	return Kinds{
		Mails: record.Must(record.Options[Mail]{
			Traits: record.Traits{Name: "mail", Travels: "id created_at"},
			Spec: store.Spec{
				Name: "mails", Uncounted: true, Fields: []string{"due", "address"},
				Indexes: []store.Index{
					{Fields: []string{"created_at"}}, {Fields: []string{"state", "due"}}, {Fields: []string{"topic", "created_at"}},
					{Fields: []string{"address", "due"}, Sparse: true},
				},
				Access: []store.Access{
					{Where: []string{"created_at"}}, {Where: []string{"state"}, Sort: []string{"due"}},
					{Where: []string{"topic"}, Sort: []string{"created_at"}}, {Where: []string{"address", "due"}},
				},
			},
		}),
		Places: store.Must[Place](store.Spec{
			Name: "sign_in_places", Uncounted: true, Fields: []string{"user", "used"},
			Indexes: []store.Index{{Fields: []string{"user"}}, {Fields: []string{"used"}}},
			Access:  []store.Access{{Where: []string{"user"}}, {Where: []string{"used"}}},
		}),
	}
}

// Kept returns the kinds of the module. They are not part of exports, because they are the history of this organization.
func (k Kinds) Kept() []record.Kept { return []record.Kept{k.Mails.Kind, k.Places} }

// Options are the dependencies of a Module. Server may be nil; all others are required.
type Options struct {
	Server  *Server // nil: nobody is mailed
	Keys    secrets.Keys
	People  *identity.Service
	APIKeys *keys.Service
	// Form returns the form with what a submission says, nil if there is no alert any more. Only the recipients are
	// needed if submission is empty.
	Form func(ctx context.Context, t *tenants.Tenant, form, submission string) (*Form, error)
	// Leave removes an address from the recipients of a form, and returns its label; "" if it is gone. LeaveReport does
	// that for the schedule of a report, and returns its name.
	Leave, LeaveReport func(ctx context.Context, t *tenants.Tenant, id, address string) (label string, err error)
	// Report returns what the mail of the run of a schedule to an address shows, nil if it must not be sent any more.
	Report  func(ctx context.Context, t *tenants.Tenant, run, to string) (*Report, error)
	BaseURL func(slug string) string
	Now     func() time.Time
	Log     *slog.Logger
	// PerOrganization is how many mails an organization sends in an hour, PerAddress how many to one address.
	PerOrganization, PerAddress int
}

// Module stores, sends and lists mails. Safe for concurrent use.
type Module struct {
	Kinds
	Options
	queue queue
	away  away
	ended map[string]*atomic.Int64 // by what became of mails; immutable
}

// Ends are what becomes of a mail that was tried.
func Ends() []string { return []string{Sent, Failed, later} }

// later: the mail is tried again.
const later = "later"

// Ended returns how many mails of this process ended so; a mail that is tried again is counted each time.
func (m *Module) Ended(how string) int64 { return m.ended[how].Load() }

// New returns the module.
func New(o Options) *Module {
	m := &Module{
		Kinds: NewKinds(), Options: o, ended: map[string]*atomic.Int64{},
		queue: queue{due: map[int64]time.Time{}, busy: map[int64]bool{}, woken: make(chan struct{}, 1)},
	}
	for _, how := range Ends() {
		m.ended[how] = &atomic.Int64{}
	}
	return m
}

// On reports whether the installation sends mail.
func (m *Module) On() bool { return m.Server != nil }

// post is a mail that is to be stored.
type post struct {
	id    string // empty: a new one
	topic string
	to    string
	data  any
}

const (
	collection   = "mails"
	sealedField  = "message"
	countPurpose = "mail-addresses" // of the data keys for hashes
	// maxWaiting bounds the mails of an organization that wait. The last tenth is for urgent topics.
	maxWaiting = 10_000
	fullRetry  = time.Minute // after which a caller may try again
)

// ErrFull: too many mails of the organization wait. It comes with an operation.Problem for callers.
var ErrFull = errors.New("too many mails of the organization wait to be sent")

// mostWaiting returns how many mails of the organization may wait once one of the topic is stored.
func mostWaiting(topic string) int {
	if slices.Contains(urgentTopics(), topic) {
		return maxWaiting
	}
	return maxWaiting / 10 * 9
}

// full returns the ErrFull of a bound.
func full(most int) error {
	return &operation.Problem{
		Code: http.StatusServiceUnavailable, RetryAfter: fullRetry, Err: fmt.Errorf("%w: %d", ErrFull, most),
		Reason:  "too many mails wait",
		Message: "Too many mails wait to be sent, so no mail was taken. Please retry later, or ask an administrator of the organization",
	}
}

// stage adds mails of one topic to a batch of the organization's workspace. The caller calls Wake when the batch is
// committed. Errors: ErrFull, store.ErrUnavailable.
func (m *Module) stage(ctx context.Context, t *tenants.Tenant, b *store.Batch, posts ...post) error {
	if len(posts) == 0 {
		return nil
	}
	mails, most := m.Mails.In(t.Workspace()), mostWaiting(posts[0].topic)
	last, err := mails.Find(ctx, store.Query{
		Filter: store.Eq("state", Waiting), Sort: []store.Order{store.Asc("due")}, Offset: most - len(posts), Limit: 1,
	})
	if err == nil && len(last) > 0 {
		err = full(most)
	}
	for i := 0; i < len(posts) && err == nil; i++ {
		var made *Mail
		if made, err = m.made(ctx, t, posts[i], m.Now()); err == nil {
			err = mails.StageInsert(b, made)
		}
	}
	return err
}

// made returns the record of a mail, sealed.
func (m *Module) made(ctx context.Context, t *tenants.Tenant, p post, created time.Time) (*Mail, error) {
	out := &Mail{Topic: p.topic, To: Masked(p.to), State: Waiting, Due: m.Now().UnixMilli()}
	if out.ID = p.id; out.ID == "" {
		out.ID = t.Workspace().NewID()
	}
	out.CreatedAt = created.UnixMilli()
	data, err := json.Marshal(p.data)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(message{p.to, data})
	if err != nil {
		return nil, err
	}
	if p.to != "" {
		if out.Address, err = m.keyed(ctx, t, countPurpose, identity.EmailKey(p.to)); err != nil {
			return nil, err
		}
	}
	out.Message, err = m.vault(t).Seal(ctx, secrets.Place{Collection: collection, Record: out.ID}, sealedField, string(text))
	return out, err
}

// opened returns the message of a mail.
func (m *Module) opened(ctx context.Context, t *tenants.Tenant, rec *Mail) (in message, err error) {
	text, err := m.vault(t).Open(ctx, secrets.Place{Collection: collection, Record: rec.ID}, sealedField, rec.Message)
	if err == nil {
		err = json.Unmarshal([]byte(text.Reveal()), &in)
	}
	return in, err
}

func (m *Module) vault(t *tenants.Tenant) *secrets.Vault {
	return &secrets.Vault{Keys: m.Keys, Tenant: t}
}

// keyed returns a hash of the parts under a key of the organization, in the form of an identifier.
func (m *Module) keyed(ctx context.Context, t *tenants.Tenant, purpose string, parts ...string) (string, error) {
	keys, err := m.Keys.DataKeys(ctx, t, purpose)
	if err != nil {
		return "", err
	}
	first, _ := keys.Version(1) // hashes must not change with a new key
	if first.IsZero() {
		first = keys.Current()
	}
	mac := hmac.New(sha256.New, first.Bytes())
	for _, part := range parts {
		_, _ = fmt.Fprintf(mac, "%d:%s", len(part), part) // a hash never fails
	}
	return hex.EncodeToString(mac.Sum(nil)[:12]), nil
}

// store stores mails and wakes the sender. Errors: as stage, *store.DuplicateError if a mail with the identifier exists.
func (m *Module) store(ctx context.Context, t *tenants.Tenant, posts ...post) error {
	if !m.On() || len(posts) == 0 {
		return nil
	}
	b := t.Workspace().Batch()
	err := m.stage(ctx, t, b, posts...)
	if err == nil {
		err = b.Commit(ctx)
	} else {
		b.Discard()
	}
	if err == nil {
		m.Wake(t)
	}
	return err
}

// Masked returns an address with only its first character and its domain.
func Masked(address string) string {
	at := strings.LastIndexByte(address, '@')
	if at <= 0 {
		return ""
	}
	_, size := utf8.DecodeRuneInString(address)
	return address[:size] + "***" + address[at:]
}
