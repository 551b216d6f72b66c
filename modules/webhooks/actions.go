package webhooks

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/operation"
	"tenantry/operation/crud"
	"tenantry/tenants"
)

// faultsOf returns the faults of an error; nil if it is of another kind.
func faultsOf(err error) fault.List {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return e.Faults
	}
	return nil
}

// actions returns the rows that act on one webhook.
func (m *Module) actions() []operation.Row {
	row := operation.Row{
		Method: http.MethodPost,
		Policy: operation.Policy{
			Credentials: operation.Key | operation.Session, Kinds: operation.ServerFull,
			Rule: operation.Needs(tenants.ManageWebhooks), Audit: operation.AuditAlways,
		},
		Response: operation.Response{Failures: []operation.Failure{
			{Code: http.StatusNotFound, Message: "Webhook not found", When: "no such webhook in this organization"}, lacks(),
		}},
		Docs: operation.Docs{Tag: "Webhooks"},
	}
	rotate, test, again, one := row, row, row, row
	rotate.Name, rotate.Path, rotate.Message = "webhooks.rotate", "/api/webhooks/{id}/rotate", "Webhook rotated"
	rotate.Timeout = followTimeout
	rotate.Once, rotate.Example = true, Issued{exampleAnswer(), exampleSecret}
	rotate.Failures = append(rotate.Failures[:2:2], bound())
	rotate.Docs = operation.Docs{
		Tag: "Webhooks", Summary: "Rotate the secret of a webhook", Verb: "Rotate", Ask: "The new secret is shown only once.",
		Description: "Answers a new secret, which is shown only this once. Deliveries bear the signatures of both secrets until the " +
			"overlap ends, so that receivers can change theirs meanwhile. A former secret that is still valid ends at once.",
	}
	test.Name, test.Path, test.Message = "webhooks.test", "/api/webhooks/{id}/test", "Test sent"
	test.Example, test.Timeout = exampleDelivery(), sendTimeout
	test.Docs = operation.Docs{
		Tag: "Webhooks", Summary: "Send a test event", Verb: "Send a test",
		Description: "Sends an event of the type " + TestKind + " now and once, even if the webhook is paused, and answers what came of it.",
	}
	again.Name, again.Path, again.Message = "webhooks.resend", "/api/webhooks/{id}/resend", "Deliveries begin anew"
	again.Example = Again{From: "k3f4x2m7qa-1043"}
	again.Docs = operation.Docs{
		Tag: "Webhooks", Summary: "Send all events since a moment again", Verb: "Send again",
		Description: "All events that were last tried at that moment or later are sent again, with their identifiers and those of one " +
			"record in their order, as far as the event log still has them and the service account may read them now. What waits or " +
			"happens meanwhile is sent after them.",
	}
	one.Name, one.Path, one.Message = "webhooks.resend_one", "/api/webhooks/{id}/deliveries/{delivery}/resend", "Delivery sent again"
	one.Example, one.Timeout = exampleDelivery(), sendTimeout
	one.Failures = append(one.Failures[:2:2], operation.Failure{
		Code: http.StatusNotFound, Message: deliveryMissing, When: "there is no such note, or the event log no longer has the event, or " +
			"the service account may not read it",
	})
	one.Docs = operation.Docs{
		Tag: "Webhooks", Summary: "Send a delivery again", Verb: "Send again", Page: "webhooks.deliveries",
		Description: "Sends the event now and once more, with its identifier, even if the webhook is paused, and answers what came of it.",
	}
	rows := []operation.Row{
		operation.On(rotate, m.changeable, m.rotate), operation.On(test, m.usable, m.test),
		operation.On(again, m.usable, m.resend), operation.On(one, m.usable, m.resendOne),
	}
	for i := range rows {
		crud.Resolve(&rows[i], "id", func() *record.Resource { return m.Hooks.Resource })
	}
	return append(rows, m.pausing()...)
}

// pausing returns the rows that pause and resume a webhook.
func (m *Module) pausing() []operation.Row {
	o := m.options()
	resuming := func(next operation.Handler) operation.Handler {
		return func(ctx context.Context, c *operation.Call) (operation.Result, error) {
			if err := m.Directory.NoteSending(ctx, c.Tenant); err != nil {
				return operation.Result{}, err
			}
			result, err := next(ctx, c)
			if err == nil {
				err = m.resume(ctx, c)
			}
			return result, err
		}
	}
	return []operation.Row{
		crud.Act(m.Hooks, o, "pause", http.MethodPost, "pause", crud.Action{
			Docs: operation.Docs{
				Summary: "Pause a webhook", Verb: "Pause",
				Description: "Nothing is sent until the webhook is resumed. What happens meanwhile is sent then, for as long as the event log " +
					"goes back.",
			},
			Response: operation.Response{Message: "Webhook paused", Failures: []operation.Failure{lacks(), bound()}},
			Target:   operation.Target{Action: operation.DeactivateAction},
		}, func(h *Hook, _ struct{}) {
			if !h.Paused {
				h.Paused, h.Reason = true, byCaller
			}
		}),
		crud.Act(m.Hooks, o, "resume", http.MethodPost, "resume", crud.Action{
			Docs: operation.Docs{
				Summary: "Resume a webhook", Verb: "Resume",
				Description: "Goes on where deliveries stopped. A delivery that waits for its next try is tried at once, so call this after " +
					"a receiver was repaired.",
			},
			Policy:   operation.Policy{Timeout: followTimeout},
			Response: operation.Response{Message: "Webhook resumed", Failures: []operation.Failure{lacks(), bound()}},
			Target:   operation.Target{Action: operation.ReactivateAction},
			Around:   resuming,
		}, func(h *Hook, _ struct{}) { h.Paused, h.Reason = false, "" }),
	}
}

var errAtOnce = errors.New("nothing waits for its time")

// resume has the next try of a webhook begin now. One that lost events goes on with what happens after the call.
func (m *Module) resume(ctx context.Context, c *operation.Call) error {
	p, err := m.Progress.In(c.Tenant.Workspace()).Get(ctx, c.Path("id"))
	if errors.Is(err, store.ErrNotFound) {
		m.look(c.Tenant.Org.OrgID)
		return nil
	}
	begin := ""
	if err == nil && p.Cursor == "" {
		begin, err = m.beginning(ctx, c.Tenant)
	}
	if err != nil {
		return err
	}
	return m.hurry(ctx, c, begin)
}

// hurry has the next try of a webhook begin now. One that has no cursor goes on after begin, if given.
func (m *Module) hurry(ctx context.Context, c *operation.Call, begin string) error {
	defer m.look(c.Tenant.Org.OrgID)
	_, err := m.Progress.In(c.Tenant.Workspace()).Update(ctx, c.Path("id"), func(p *Progress) error {
		if since, _ := p.failing(); (p.Cursor != "" || begin == "") && p.NextTry == 0 && since == 0 {
			return errAtOnce // a round that has begun meanwhile is not to be sent again
		}
		p.Cursor = cmp.Or(p.Cursor, begin)
		p.hurry()
		return nil
	})
	if errors.Is(err, errAtOnce) || errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// moving has a webhook try its new address at once.
func (m *Module) moving(next operation.Handler) operation.Handler {
	return func(ctx context.Context, c *operation.Call) (operation.Result, error) {
		hooks, id := m.Hooks.In(c.Workspace), c.Path("id")
		was, before := hooks.Get(ctx, id)
		result, err := next(ctx, c)
		if err != nil || before != nil {
			return result, err
		}
		is, err := hooks.Get(ctx, id)
		if err == nil && is.URL != was.URL {
			err = m.hurry(ctx, c, "")
		}
		return result, operation.OrMissing(err, "Webhook not found")
	}
}

// sendTimeout allows for one try, and for the turn of the receiver.
const sendTimeout = 2 * tryTimeout

// usable returns the webhook that the path names if the caller holds the rights of its account.
func (m *Module) usable(ctx context.Context, c *operation.Call) (*Hook, error) {
	return m.byID(ctx, c, false)
}

// changeable is usable for calls that give somebody what lasts.
func (m *Module) changeable(ctx context.Context, c *operation.Call) (*Hook, error) {
	return m.byID(ctx, c, true)
}

func (m *Module) byID(ctx context.Context, c *operation.Call, lasts bool) (*Hook, error) {
	if !store.ValidID(c.Path("id")) {
		return nil, operation.NotFound("Webhook not found")
	}
	h, err := m.Hooks.In(c.Workspace).Get(ctx, c.Path("id"))
	if err != nil {
		return nil, operation.OrMissing(err, "Webhook not found")
	}
	return h, m.Accounts.Lend(ctx, c, h.Account, "", lasts)
}

type rotateInput struct {
	ID      string `json:"id" doc:"Identifier of the webhook." example:"665f1c2ab4d3e2f1a0b9c8e1"`
	Overlap int64  `json:"overlap" rule:"max=2592000" default:"86400" doc:"Seconds for which deliveries bear both signatures, at most 2592000; default 86400." ask:"Both secrets are used for||span" example:"86400"`
}

func (m *Module) rotate(ctx context.Context, c *operation.Call, h *Hook, in rotateInput) (Issued, error) {
	keys, err := m.Keys(ctx, c.Tenant)
	if err != nil {
		return Issued{}, err
	}
	begin, err := m.beginning(ctx, c.Tenant) // an imported webhook has none
	if err != nil {
		return Issued{}, err
	}
	var was Hook
	name, hooks := newSecret(keys), m.Hooks.In(c.Tenant.Workspace())
	rotated, err := hooks.Update(ctx, h.ID, func(now *Hook) error {
		was = *now
		now.Former, now.FormerUntil = now.Signing, m.Now().Add(time.Duration(in.Overlap)*time.Second).UnixMilli()
		now.Signing, now.Begin = name, cmp.Or(now.Begin, begin)
		return nil
	})
	if err != nil {
		return Issued{}, operation.OrMissing(err, "Webhook not found")
	}
	c.Undo = func(ctx context.Context) error {
		_, err := hooks.Update(ctx, h.ID, func(now *Hook) error {
			if now.Signing == name {
				now.Signing, now.Former, now.FormerUntil = was.Signing, was.Former, was.FormerUntil
			}
			return nil
		})
		return err
	}
	c.Note("webhook", h.ID)
	shown, err := m.show(ctx, c, []*Hook{rotated})
	if err != nil {
		return Issued{}, err
	}
	m.look(c.Tenant.Org.OrgID)
	return m.issued(ctx, c, shown[0], rotated)
}

type testInput struct {
	ID string `json:"id" doc:"Identifier of the webhook." example:"665f1c2ab4d3e2f1a0b9c8e1"`
}

func (m *Module) test(ctx context.Context, c *operation.Call, h *Hook, _ testInput) (DeliveryAnswer, error) {
	c.Note("webhook", h.ID)
	e := &Event{
		ID: "test-" + strings.ToLower(rand.Text()), Kind: TestKind, Record: h.ID, Revision: h.Rev, Actor: c.Principal.Subject(),
		At: m.Now().UTC().Format(texts.TimeLayout),
	}
	return m.sendNow(ctx, c, h, &Delivery{Webhook: h.ID, Event: *e})
}

// sendNow sends the event of a note once, and stores the note.
func (m *Module) sendNow(ctx context.Context, c *operation.Call, h *Hook, note *Delivery) (DeliveryAnswer, error) {
	if h.Signing == "" {
		return DeliveryAnswer{}, fault.One("id", fault.Stale, "the webhook has no secret yet: rotate its secret first")
	}
	s, err := m.signerOf(ctx, c.Tenant, h)
	if err != nil {
		return DeliveryAnswer{}, err
	}
	leave, err := m.enter(ctx, c.Tenant.Org.OrgID, receiver(h.URL))
	if err != nil {
		return DeliveryAnswer{}, operation.Unavailable(err)
	}
	o := m.try(ctx, h, s, &note.Event)
	leave()
	m.count(&o)
	note.note(&o)
	notes := m.Deliveries.In(c.Tenant.Workspace())
	if note.Rev == 0 {
		err = notes.Insert(ctx, note)
		c.Note("delivery", note.ID)
	} else if err = notes.Replace(ctx, note); errors.Is(err, store.ErrConflict) {
		err = nil // another try was noted meanwhile
	}
	if err == nil && o.accepted() {
		err = m.delivered(ctx, c.Tenant, h, note.Event.ID)
	}
	return m.deliveryAnswer(note), err
}

var errNotWaiting = errors.New("the event does not wait")

// delivered has an event that was delivered by hand wait no longer, and the receiver be left alone no longer.
func (m *Module) delivered(ctx context.Context, t *tenants.Tenant, h *Hook, event string) error {
	_, err := m.Progress.In(t.Workspace()).Update(ctx, h.ID, func(p *Progress) error {
		if !p.remove(event) && p.AwaySince == 0 && p.NextTry <= m.Now().UnixMilli() {
			return errNotWaiting
		}
		p.answered()
		return nil
	})
	if errors.Is(err, errNotWaiting) || errors.Is(err, store.ErrNotFound) {
		return nil
	}
	m.look(t.Org.OrgID)
	return err
}

type resendInput struct {
	ID    string `json:"id" doc:"Identifier of the webhook." example:"665f1c2ab4d3e2f1a0b9c8e1"`
	Since string `json:"since" rule:"required max=40" doc:"The moment: RFC 3339." ask:"Since" example:"2026-11-22T10:00:00Z"`
}

// Check notes a fault of the moment.
func (in *resendInput) Check(_ *operation.Call, errs *fault.List) {
	if _, err := time.Parse(time.RFC3339Nano, in.Since); err != nil && in.Since != "" {
		errs.Add("since", fault.Format, "since must be a time such as 2026-11-22T10:00:00Z")
	}
}

// Again is the answer of webhooks.resend.
type Again struct {
	From string `json:"from" doc:"Of the events that are sent again, one of those that were sent first; empty: there is none, or it is found later."`
}

func (m *Module) resend(ctx context.Context, c *operation.Call, h *Hook, in resendInput) (out Again, err error) {
	c.Note("webhook", h.ID)
	since, _ := time.Parse(time.RFC3339Nano, in.Since) // Check has read it
	from := since.UnixMilli()
	notes, err := m.Deliveries.In(c.Workspace).FindPart(ctx, store.Query{
		Filter: store.All(store.Eq("webhook", h.ID), store.Where(store.F("last_at"), store.OpGte, from)),
		Sort:   []store.Order{store.Asc("last_at")}, Limit: roundEvents, Bytes: store.BatchBytes,
	})
	if err != nil {
		return out, err
	}
	more := notes.Cut || len(notes.Records) == roundEvents
	sent := slices.DeleteFunc(notes.Records, func(d Delivery) bool { return d.Event.Kind == TestKind })
	if len(sent) == 0 && !more {
		return out, nil
	}
	_, err = m.Progress.In(c.Tenant.Workspace()).Update(ctx, h.ID, func(p *Progress) error {
		n := slices.IndexFunc(sent, func(d Delivery) bool { return logOf(d.Event.ID) == logOf(p.Cursor) })
		switch {
		case n >= 0:
			out.From = sent[n].Event.ID
		case !more:
			return fault.One("since", fault.Stale, "the event log begins later: no event from before it can be sent again")
		}
		p.again(from)
		return nil
	})
	m.look(c.Tenant.Org.OrgID)
	return out, operation.OrMissing(err, "Webhook not found")
}

type resendOneInput struct {
	ID       string `json:"id" doc:"Identifier of the webhook." example:"665f1c2ab4d3e2f1a0b9c8e1"`
	Delivery string `json:"delivery" doc:"Identifier of the delivery." example:"665f1c2ab4d3e2f1a0b9c8f0"`
}

const deliveryMissing = "Delivery not found"

func (m *Module) resendOne(ctx context.Context, c *operation.Call, h *Hook, in resendOneInput) (out DeliveryAnswer, err error) {
	missing := operation.NotFound(deliveryMissing)
	if !store.ValidID(in.Delivery) {
		return out, missing
	}
	note, err := m.Deliveries.In(c.Workspace).Get(ctx, in.Delivery)
	if err != nil {
		return out, operation.OrMissing(err, deliveryMissing)
	}
	if note.Webhook != h.ID {
		return out, missing
	}
	c.Note("webhook", h.ID)
	c.Note("event", note.Event.ID)
	if note.Event.Kind != TestKind {
		p, err := m.Accounts.AccountPrincipal(ctx, c.Tenant, h.Account)
		if errors.Is(err, tenants.ErrDenied) || err == nil && len(m.Events.Readable(p, c.Tenant, []string{note.Event.Kind})) == 0 {
			return out, missing
		}
		if err != nil {
			return out, err
		}
		found, _, err := m.Events.At(ctx, c.Tenant, p, []string{note.Event.Kind}, []string{note.Event.ID})
		if err == nil && len(found) == 0 {
			return out, missing
		}
		if err != nil {
			return out, err
		}
	}
	return m.sendNow(ctx, c, h, note)
}

// isGone reports whether the event log no longer goes back to a cursor.
func isGone(err error) bool {
	p, ok := errors.AsType[*operation.Problem](err)
	return ok && p.Code == http.StatusGone
}
