package webhooks

import (
	"context"
	"net/http"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/internal/texts"
	"tenantry/operation"
	"tenantry/operation/crud"
	"tenantry/tenants"
)

// DeliveryAnswer is a Delivery as callers see it.
type DeliveryAnswer struct {
	ID      string `json:"id" doc:"Identifier of the delivery."`
	Event   Event  `json:"event" doc:"What was sent."`
	State   string `json:"state" enum:"delivered,failed" doc:"failed: the receiver did not accept the last try. It is tried again unless the webhook was paused."`
	Tries   int    `json:"tries" doc:"How often it was tried."`
	Status  int    `json:"status" doc:"HTTP status of the last answer; 0: there was none."`
	Answer  string `json:"answer" doc:"The beginning of the last answer."`
	Error   string `json:"error" doc:"Why the last try failed; empty: it did not."`
	FirstAt string `json:"first_at" doc:"When it was first tried: RFC 3339, UTC, milliseconds."`
	LastAt  string `json:"last_at" doc:"When it was last tried: RFC 3339, UTC, milliseconds."`
	TookMS  int64  `json:"took_ms" doc:"How long the last try took, in milliseconds."`
}

func exampleDelivery() DeliveryAnswer {
	return DeliveryAnswer{
		ID: "665f1c2ab4d3e2f1a0b9c8f0", State: delivered, Tries: 1, Status: http.StatusNoContent, TookMS: 41,
		Event: Event{
			ID: "k3f4x2m7qa-1043", Kind: "contact.created", Record: "665f1c2ab4d3e2f1a0b9c8e1", Revision: 1, Actor: "user:7",
			At: "2026-11-22T10:00:00.000Z",
		},
		FirstAt: "2026-11-22T10:00:00.120Z", LastAt: "2026-11-22T10:00:00.120Z",
	}
}

func (m *Module) deliveryAnswer(d *Delivery) DeliveryAnswer {
	return DeliveryAnswer{
		ID: d.ID, Event: d.Event, State: d.State, Tries: d.Tries, Status: d.Status, Answer: d.Answer, Error: d.Error,
		FirstAt: texts.Time(d.CreatedAt), LastAt: texts.Time(d.LastAt), TookMS: d.TookMS,
	}
}

// note notes a try.
func (d *Delivery) note(o *outcome) {
	d.State = delivered
	if !o.accepted() {
		d.State = failed
	}
	if d.Tries++; d.CreatedAt == 0 {
		d.CreatedAt = o.at.UnixMilli() // before it was stored
	}
	d.Status, d.Answer, d.Error, d.TookMS, d.LastAt = o.status, o.answer, o.err, o.took.Milliseconds(), o.at.UnixMilli()
}

// DeliveryPage is a page of the deliveries of a webhook.
type DeliveryPage operation.Part[DeliveryAnswer]

type deliveriesInput struct {
	operation.ByTime
	ID string `json:"id" doc:"Identifier of the webhook." example:"665f1c2ab4d3e2f1a0b9c8e1"`
}

// deliveryRows returns the row that lists deliveries.
func (m *Module) deliveryRows() []operation.Row {
	row := operation.On(operation.Row{
		Name: "webhooks.deliveries", Method: http.MethodGet, Path: "/api/webhooks/{id}/deliveries",
		Policy: operation.Policy{
			Credentials: operation.Key | operation.Session, Kinds: operation.ServerKeys,
			Rule: operation.Needs(tenants.ManageWebhooks),
		},
		Response: operation.Response{
			Message: "Deliveries found", Example: DeliveryPage(operation.OnePage(exampleDelivery())),
			Failures: []operation.Failure{
				{Code: http.StatusNotFound, Message: "Webhook not found", When: "no such webhook in this organization"}, lacks(),
			},
		},
		Docs: operation.Docs{
			Tag: "Webhooks", Summary: "List the deliveries of a webhook", Title: "Deliveries",
			Description: "Answers what was sent in the last seven days, and what came of it. The caller must hold the rights of the " +
				"service account. If the caller may not read the record of an event, only its identifier and what came of the " +
				"delivery are shown.",
		},
	}, m.usable, m.list)
	crud.Resolve(&row, "id", func() *record.Resource { return m.Hooks.Resource })
	return []operation.Row{row}
}

func (m *Module) list(ctx context.Context, c *operation.Call, h *Hook, in deliveriesInput) (out DeliveryPage, err error) {
	of := store.Eq("webhook", h.ID)
	q, follows, err := in.Query(c, of)
	if err != nil {
		return out, err
	}
	page, count, err := m.Deliveries.In(c.Workspace).Page(ctx, q, of)
	if err != nil {
		return out, err
	}
	found := page.Records
	shown := make([]DeliveryAnswer, len(found))
	sent := make([]Event, len(found))
	for i := range found {
		sent[i] = found[i].Event
	}
	may, err := m.Events.Shown(ctx, c, sent)
	if err != nil {
		return out, err
	}
	for i := range found {
		if shown[i] = m.deliveryAnswer(&found[i]); !may[i] && found[i].Event.Kind != TestKind {
			shown[i].Event, shown[i].Answer = Event{ID: found[i].Event.ID}, "" // the rights of the account were others then
		}
	}
	part, err := operation.PartOf(c, in.Following, follows, count, shown, page.Left, page.Cut, func(last int) string {
		return in.Position(&found[last].Meta)
	})
	return DeliveryPage(part), err
}
