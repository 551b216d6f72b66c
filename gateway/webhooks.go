package gateway

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tenantry/modules/events"
	"tenantry/modules/mail"
	"tenantry/modules/webhooks"
	"tenantry/operation"
	"tenantry/tenants"
)

// sendMetrics count what is sent to webhooks.
type sendMetrics struct {
	tries  *prometheus.CounterVec
	paused prometheus.Counter
}

func newSendMetrics() *sendMetrics {
	return &sendMetrics{
		tries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenantry_webhook_tries_total", Help: "Tries to deliver an event to a webhook, by whether the receiver accepted it.",
		}, []string{"accepted"}),
		paused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tenantry_webhook_paused_total", Help: "Webhooks that were paused because nothing could be delivered.",
		}),
	}
}

func (m *sendMetrics) sent(accepted bool) {
	m.tries.WithLabelValues(strconv.FormatBool(accepted)).Inc()
}

// measureWebhooks registers the metrics of webhooks.
func (s *Services) measureWebhooks(r *prometheus.Registry) {
	r.MustRegister(s.sends.tries, s.sends.paused)
}

// openWebhooks makes the module that sends events.
func (s *Services) openWebhooks() *webhooks.Module {
	s.sends = newSendMetrics()
	return webhooks.New(webhooks.Deps{
		Events: sentEvents{s.events}, Accounts: s.peopleModule, Directory: s.directory, Now: s.now, Log: s.log,
		Keys: func(ctx context.Context, t *tenants.Tenant) (webhooks.KeySet, error) {
			return s.directory.DataKeys(ctx, t, webhooks.KeyPurpose)
		},
		Allowed: s.cfg.Webhooks.Networks(), Shared: s.cfg.Shared(), Sent: s.sends.sent,
		Paused: func(ctx context.Context, t *tenants.Tenant, h *webhooks.Hook, since time.Time, why string) error {
			err := s.mails.TellWebhookPaused(ctx, t, h.ID, h.Name, since, why)
			if errors.Is(err, mail.ErrFull) {
				s.log.WarnContext(ctx, "administrators are not mailed that a webhook was paused", "organization", t.Org.Slug, "error", err)
				err = nil
			}
			if err == nil {
				s.sends.paused.Inc()
			}
			return err
		},
	})
}

// sentEvents are the event logs, as package webhooks reads them.
type sentEvents struct{ *events.Module }

// Read is events.Module.Read.
func (e sentEvents) Read(
	ctx context.Context, t *tenants.Tenant, p *tenants.Principal, kinds []string, cursor string, limit int,
) (webhooks.Part, error) {
	page, err := e.Module.Read(ctx, t, p, strings.Join(kinds, ","), cursor, limit)
	return webhooks.Part{Next: page.Next, More: page.More, Events: asSent(page.Results)}, err
}

// At is events.Module.At.
func (e sentEvents) At(
	ctx context.Context, t *tenants.Tenant, p *tenants.Principal, kinds, ids []string,
) ([]webhooks.Event, []string, error) {
	found, gone, err := e.Module.At(ctx, t, p, strings.Join(kinds, ","), ids)
	return asSent(found), gone, err
}

func asSent(found []events.Event) []webhooks.Event {
	all := make([]webhooks.Event, len(found))
	for i := range found {
		all[i] = webhooks.Event(found[i])
	}
	return all
}

// Shown is events.Module.Shown.
func (e sentEvents) Shown(ctx context.Context, c *operation.Call, sent []webhooks.Event) ([]bool, error) {
	all := make([]events.Event, len(sent))
	for i := range sent {
		all[i] = events.Event(sent[i])
	}
	return e.Module.Shown(ctx, c, all)
}

// CheckKinds returns the faults of names of kinds.
func (e sentEvents) CheckKinds(field string, kinds []string) error {
	_, err := e.Parse(field, kinds)
	return err
}
