// Package webhooks sends the events of an organization to addresses that it names: those that a service account may
// read, signed as Standard Webhooks says, at least once, and in order for each record.
package webhooks

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"tenantry/backends/store"
	"tenantry/internal/fairqueue"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/operation"
	"tenantry/operation/crud"
	"tenantry/tenants"
)

// KeyPurpose is the purpose of the data keys from which secrets are derived.
const KeyPurpose = "webhooks"

// Part is a part of the event log.
type Part struct {
	Next   string // the cursor after it
	More   bool   // whether more can be read now
	Events []Event
}

// Events reads event logs. Implementations must be safe for concurrent use.
type Events interface {
	// Read returns what the principal may read after a cursor, at most limit events of these kinds; no kinds stand for
	// all. Without a cursor it returns the end of the log. Error: a *operation.Problem with the code 410 if the log no
	// longer goes back so far.
	Read(ctx context.Context, t *tenants.Tenant, p *tenants.Principal, kinds []string, cursor string, limit int) (Part, error)
	// At returns those of the events with the identifiers that the principal may read now, of these kinds, in the order of
	// the log; no kinds stand for all. gone are those that the log lacks.
	At(ctx context.Context, t *tenants.Tenant, p *tenants.Principal, kinds, ids []string) (found []Event, gone []string, err error)
	// Readable returns those of the kinds that the principal may read.
	Readable(p *tenants.Principal, t *tenants.Tenant, kinds []string) []string
	// Shown reports for each of the events, which were read earlier, whether the caller may read it now.
	Shown(ctx context.Context, c *operation.Call, events []Event) ([]bool, error)
	// CheckKinds returns a *fault.Error about the field if a name is unknown.
	CheckKinds(field string, kinds []string) error
	// ListenAll has call called after this process has logged events of an organization. call must not block.
	ListenAll(call func(org int64))
}

// Directory is what the module needs of tenants.Directory.
type Directory interface {
	BySlug(ctx context.Context, slug string) (*tenants.Tenant, error)
	NoteSending(ctx context.Context, t *tenants.Tenant) error
	Sending(ctx context.Context) ([]tenants.Organization, error)
	ForgetSending(ctx context.Context, org *tenants.Organization) error
	HoldChore(ctx context.Context, id string, hold time.Duration, do func(context.Context) error) (bool, error)
}

// Deps are the dependencies of the module.
type Deps struct {
	Events    Events
	Accounts  operation.Accounts
	Directory Directory
	Keys      func(ctx context.Context, t *tenants.Tenant) (KeySet, error)
	Now       func() time.Time
	Log       *slog.Logger
	// Allowed are networks to which may be sent although they are not of the internet.
	Allowed []netip.Prefix
	// Shared: other processes send, too.
	Shared bool
	// Sent, if set, is called after each try.
	Sent func(accepted bool)
	// Paused, if set, tells people that the gateway is pausing a webhook, and since when it has failed. It may be called
	// again for the same pause. An error puts the pause off.
	Paused func(ctx context.Context, t *tenants.Tenant, h *Hook, since time.Time, why string) error
}

// Module serves webhooks and sends to them. It is immutable once it serves, but for what is guarded by mu, and safe for
// concurrent use.
type Module struct {
	Kinds
	Deps
	guard  *guard
	client *http.Client

	pairs     fairqueue.Queue[pair]   // tries under way, by organization and receiver
	receivers fairqueue.Queue[string] // tries under way, by receiver
	turns     fairqueue.Queue[int64]  // tries under way, by organization
	working   fairqueue.Queue[int64]  // webhooks being worked on, by organization

	wake chan struct{}
	mu   sync.Mutex
	orgs map[int64]*sending // organizations that have webhooks
	read map[pair]passed    // by organization and webhook: events that are not sent
}

// Bounds of what is under way in one process.
const (
	perReceiver = 16 // tries at a receiver
	perPair     = 8  // tries of an organization at a receiver
	perOrg      = 64 // tries of an organization
	inAll       = 256
	hooksPerOrg = 16 // webhooks of an organization that are worked on
	hooksInAll  = 128
)

// New returns the module. Start begins to send.
func New(deps Deps) *Module {
	g := &guard{allowed: deps.Allowed}
	m := &Module{
		Kinds: newKinds(), Deps: deps, guard: g, client: newClient(g, perReceiver), wake: make(chan struct{}, 1),
		orgs: map[int64]*sending{}, read: map[pair]passed{},
	}
	m.pairs.Share, m.receivers.Share = perPair, perReceiver
	m.turns.Size, m.turns.Share = inAll, perOrg
	m.working.Size, m.working.Share = hooksInAll, hooksPerOrg
	return m
}

// Answer is a webhook as callers see it.
type Answer struct {
	ID           string   `json:"id" doc:"Identifier of the webhook."`
	Name         string   `json:"name" doc:"Name of the webhook."`
	URL          string   `json:"url" doc:"Where events are sent; without its path for callers who lack rights of the account."`
	Kinds        []string `json:"kinds" doc:"What is sent; empty: all that the account may read."`
	Account      string   `json:"account" doc:"Identifier of the service account whose rights decide what is sent."`
	State        string   `json:"state" enum:"active,failing,paused" doc:"failing: the receiver does not accept an event, which is tried again."`
	Paused       bool     `json:"paused" doc:"Whether nothing is sent."`
	PausedReason string   `json:"paused_reason" doc:"Why it is paused; empty: it is not."`
	FailingSince *string  `json:"failing_since" doc:"Since when the receiver does not accept an event; null: it accepts all."`
	NextTry      *string  `json:"next_try" doc:"When it is tried again; null: at once, or nothing waits."`
	OldUntil     *string  `json:"old_secret_until" doc:"When the secret from before the last rotation expires; null: it has expired."`
	CreatedAt    string   `json:"created_at" doc:"RFC 3339, UTC, milliseconds."`
	UpdatedAt    string   `json:"updated_at" doc:"RFC 3339, UTC, milliseconds."`
}

// Issued is a webhook with its secret.
type Issued struct {
	Answer
	Secret string `json:"secret" doc:"What signs deliveries, for a library of Standard Webhooks. It is shown only this once."`
}

const exampleSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func exampleAnswer() Answer {
	return Answer{
		ID: "665f1c2ab4d3e2f1a0b9c8e1", Name: "CRM", URL: "https://crm.example.com/tenantry", Kinds: []string{"contact.created"},
		Account: "665f1c2ab4d3e2f1a0b9c8d7", State: "active", CreatedAt: "2026-11-22T10:00:00.000Z", UpdatedAt: "2026-11-22T10:00:00.000Z",
	}
}

// show returns webhooks as callers see them.
func (m *Module) show(ctx context.Context, c *operation.Call, hooks []*Hook) ([]Answer, error) {
	ids, accounts := make([]string, len(hooks)), make([]string, len(hooks))
	for i, h := range hooks {
		ids[i], accounts[i] = h.ID, h.Account
	}
	borrows, err := operation.Borrows(ctx, c, m.Accounts, accounts)
	if err != nil {
		return nil, err
	}
	found, err := m.Progress.In(c.Workspace).Find(ctx, store.Query{Filter: store.In("id", ids...), Limit: max(len(ids), 1)})
	if err != nil {
		return nil, err
	}
	by := map[string]*Progress{}
	for i := range found {
		by[found[i].ID] = &found[i]
	}
	all := make([]Answer, len(hooks))
	for i, h := range hooks {
		if all[i] = m.answer(h, cmp.Or(by[h.ID], &Progress{})); !borrows[h.Account] {
			all[i].URL = receiver(h.URL) + "/…" // the rest may hold a secret
		}
	}
	return all, nil
}

func (m *Module) answer(h *Hook, p *Progress) Answer {
	a := Answer{
		ID: h.ID, Name: h.Name, URL: h.URL, Kinds: slices.Clone(h.Kinds), Account: h.Account, State: "active",
		CreatedAt: texts.Time(h.CreatedAt), UpdatedAt: texts.Time(h.UpdatedAt),
	}
	if a.Kinds == nil {
		a.Kinds = []string{}
	}
	if h.FormerUntil > m.Now().UnixMilli() {
		a.OldUntil = texts.TimeOrNull(h.FormerUntil)
	}
	a.PausedReason, a.Paused = h.idle()
	switch {
	case a.Paused:
		a.State = "paused"
	default:
		if since, next := p.failing(); since > 0 {
			a.State, a.FailingSince, a.NextTry = failing, texts.TimeOrNull(since), texts.TimeOrNull(next)
		}
	}
	return a
}

const failing = "failing"

func (m *Module) options() crud.Options {
	may := operation.Needs(tenants.ManageWebhooks)
	return crud.Options{
		Path: "/api/webhooks", Things: "Webhooks", Read: may, Write: may, Search: []string{"name"}, Few: []string{"name"},
		Show: crud.Show(m.show), Example: exampleAnswer(), Check: crud.Check(m.check), Before: crud.Before(m.admit),
		Create: crud.Action{
			Policy:   operation.Policy{Timeout: followTimeout},
			Response: operation.Response{Data: Issued{}, Example: Issued{exampleAnswer(), exampleSecret}, Once: true, Failures: []operation.Failure{bound()}},
			Docs: operation.Docs{
				Ask: "Its secret is shown only once.",
				Description: "What happens from now on is sent to the address, as far as the service account may read it when it is " +
					"sent. The caller must hold the rights of the account. Answers the secret that signs deliveries, which is shown only " +
					"this once.",
			},
			Around: m.issuing,
		},
		Update: crud.Action{Response: operation.Response{Failures: []operation.Failure{lacks(), bound()}}, Around: m.moving},
		Delete: crud.Action{
			Docs:     operation.Docs{Description: "Nothing more is sent. The notes of its deliveries are kept for a week."},
			Response: operation.Response{Failures: []operation.Failure{lacks()}},
		},
		List: crud.Action{Target: operation.Target{Concerns: m.concerns}},
	}
}

// concerns returns the webhooks that the gateway has paused.
func (m *Module) concerns(ctx context.Context, c *operation.Call, most int) (all operation.Concerns, err error) {
	found, err := m.Hooks.In(c.Workspace).Find(ctx, store.Query{Sort: []store.Order{store.Asc("id")}, Limit: mostHooks})
	for i := range found {
		h := &found[i]
		if !h.Paused || h.Reason == byCaller {
			continue
		}
		if all.Count++; len(all.First) < most {
			all.First = append(all.First, operation.Concern{ID: h.ID, Name: h.Name, Cause: operation.Halted})
		}
	}
	return all, err
}

// followTimeout allows for the beginning of an event log on a store that several processes use.
const followTimeout = 90 * time.Second

// Operations returns the rows.
func (m *Module) Operations() []operation.Row {
	return slices.Concat(m.actions(), m.deliveryRows(), crud.Rows(m.Hooks.Resource, m.options()))
}

func lacks() operation.Failure {
	return operation.Failure{
		Code: http.StatusForbidden, Message: "The caller lacks contacts, which the service account holds",
		When: "the service account holds more than the caller",
	}
}

func bound() operation.Failure {
	return operation.Failure{
		Code: http.StatusForbidden, Message: operation.BoundLoan,
		When: "the calling key has expires_in or allowed_ips",
	}
}

// check notes faults of the address and the kinds, and what the caller may not give.
func (m *Module) check(ctx context.Context, c *operation.Call, h, was *Hook, errs *fault.List) error {
	if was == nil || h.URL != was.URL {
		m.guard.check(h.URL, errs)
	}
	for i, kind := range h.Kinds {
		h.Kinds[i] = strings.TrimSpace(kind)
	}
	if len(h.Kinds) > 0 {
		if err := m.Events.CheckKinds("kinds", h.Kinds); err != nil {
			for _, f := range faultsOf(err) {
				errs.Add(f.Field, f.Code, "%s", f.Message)
			}
		}
	}
	if c.Principal.Kind == tenants.System || h.Account == "" || was != nil && was.Account == h.Account {
		return nil
	}
	err := m.Accounts.Lend(ctx, c, h.Account, "account", false)
	if err == nil {
		return m.warn(ctx, c, h)
	}
	for _, f := range faultsOf(err) {
		errs.Add(f.Field, f.Code, "%s", f.Message)
		err = nil
	}
	return err
}

// warn adds a warning to the answer if the account may not read records of a kind that the webhook names.
func (m *Module) warn(ctx context.Context, c *operation.Call, h *Hook) error {
	p, err := m.Accounts.AccountPrincipal(ctx, c.Tenant, h.Account)
	if errors.Is(err, tenants.ErrDenied) {
		return nil // it is not active, which pauses the webhook
	}
	may := m.Events.Readable(p, c.Tenant, h.Kinds)
	lacking := slices.DeleteFunc(slices.Clone(h.Kinds), func(kind string) bool { return slices.Contains(may, kind) })
	if err == nil && len(lacking) > 0 {
		c.Warn("nothing is sent of " + strings.Join(lacking, ", ") + " until the service account may read these records")
	}
	return err
}

// admit refuses callers who lack what the webhook would send them or others, and completes a new webhook.
func (m *Module) admit(ctx context.Context, c *operation.Call, _ *store.Preconditions, h, was *Hook) error {
	if c.Principal.Kind == tenants.System {
		return nil
	}
	if was != nil {
		return m.Accounts.Lend(ctx, c, was.Account, "", h != nil)
	}
	if err := m.Accounts.Lend(ctx, c, h.Account, "", true); err != nil {
		return err
	}
	keys, err := m.Keys(ctx, c.Tenant)
	if err != nil {
		return err
	}
	h.Signing = newSecret(keys)
	h.Begin, err = m.beginning(ctx, c.Tenant)
	return err
}

// beginning returns the cursor of what happens from now on, and notes that the organization has webhooks.
func (m *Module) beginning(ctx context.Context, t *tenants.Tenant) (string, error) {
	if err := m.Directory.NoteSending(ctx, t); err != nil {
		return "", err
	}
	part, err := m.Events.Read(ctx, t, &tenants.Principal{Kind: tenants.System}, nil, "", 1)
	return part.Next, err
}

// issuing adds the secret to the answer of the row that creates a webhook.
func (m *Module) issuing(next operation.Handler) operation.Handler {
	return func(ctx context.Context, c *operation.Call) (operation.Result, error) {
		result, err := next(ctx, c)
		if err != nil {
			return result, err
		}
		made, _ := result.Data.(Answer)
		h, err := m.Hooks.In(c.Workspace).Get(ctx, made.ID)
		if err != nil {
			return result, err
		}
		c.Undo = func(ctx context.Context) error { return m.Hooks.In(c.Tenant.Workspace()).Delete(ctx, h) }
		if result.Data, err = m.issued(ctx, c, made, h); err == nil {
			m.look(c.Tenant.Org.OrgID)
		}
		return result, err
	}
}

// issued returns a webhook with its secret.
func (m *Module) issued(ctx context.Context, c *operation.Call, shown Answer, h *Hook) (Issued, error) {
	keys, err := m.Keys(ctx, c.Tenant)
	if err != nil {
		return Issued{}, err
	}
	secret, err := secretOf(keys, h.ID, h.Signing)
	c.Header.Set("Cache-Control", "no-store")
	return Issued{shown, shownSecret(secret)}, err
}
