package forms

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/internal/texts"
	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/identity"
)

// Alerter mails alerts about submissions. Implementations must be safe for concurrent use.
type Alerter interface {
	// Stage adds the alert about a new submission to the batch that stores it.
	Stage(ctx context.Context, c *operation.Call, b *store.Batch, form, submission string) error
	// Wake is called when such a batch was committed.
	Wake(t *tenants.Tenant)
	// Silent returns why nobody is mailed; empty: alerts are mailed.
	Silent() string
}

// Names of members of a configuration of alerts.
const (
	alertEnabled    = "enabled"
	alertRecipients = "recipients"
	alertSubject    = "subject"
	alertReplyTo    = "reply_to_field"
	alertFields     = "fields"
)

// on reports whether the alerts are sent to somebody.
func (a Alerts) on() bool {
	enabled, _ := a[alertEnabled].(bool)
	return enabled && len(a.texts(alertRecipients)) > 0
}

// warnAlerts adds a warning to the answer if the form is to send alerts, and they will reach nobody or lack what they name.
func (m *Module) warnAlerts(c *operation.Call, f *Form) {
	if enabled, _ := f.EmailAlerts[alertEnabled].(bool); !enabled {
		return
	}
	if !f.EmailAlerts.on() {
		c.Warn("email_alerts have no recipients, so nobody is mailed")
	}
	if f.AlertsBlind {
		c.Warn("email_alerts tell only that there is a submission, until somebody who may view submissions changes them")
	}
	f.warnNames(c, "email_alerts name", append(f.EmailAlerts.texts(alertFields), f.EmailAlerts.text(alertReplyTo)))
	if m.Alerts != nil && f.EmailAlerts.on() {
		c.Warn(m.Alerts.Silent())
	}
}

// blind notes whether alerts that a caller has changed may tell of submissions: if the caller may view these.
func (f *Form) blind(c *operation.Call, was Alerts) {
	if reflect.DeepEqual(f.EmailAlerts, was) {
		return // pages send them with every change of a form
	}
	may := c.Principal.Kind == tenants.System || c.Principal.May(tenants.ViewFormSubmissions)
	f.AlertsBlind = !may && f.EmailAlerts.on()
}

// warnNames adds a warning to the answer about names that are none of a field.
func (f *Form) warnNames(c *operation.Call, setting string, names []string) {
	fields := f.Fields()
	var unknown []string
	for _, name := range names {
		if _, is := fields[name]; !is && name != "" {
			unknown = append(unknown, strconv.Quote(texts.Clip(name)))
		}
	}
	if len(unknown) > 0 {
		c.Warn(setting + " " + listed(unknown) + ", and the form has no such field")
	}
}

// texts returns the texts of a member that is a list, without others.
func (a Alerts) texts(name string) (all []string) {
	list, _ := a[name].([]any)
	for _, v := range list {
		if s, ok := v.(string); ok {
			all = append(all, s)
		}
	}
	return all
}

func (a Alerts) text(name string) string {
	s, _ := a[name].(string)
	return s
}

// stage completes a new submission, and adds its alert to the batch.
func (m *Module) stage(ctx context.Context, c *operation.Call, b *store.Batch, rec, was *Submission) error {
	if err := m.redeem(ctx, c, b, rec, was); err != nil || was != nil || m.Alerts == nil {
		return err
	}
	form, known := c.Known.Record(m.Forms.Name, rec.Form).(*Form)
	if !known {
		var err error
		if form, err = m.Forms.In(c.Tenant.Workspace()).Get(ctx, rec.Form); err != nil {
			return err
		}
	}
	if !form.EmailAlerts.on() {
		return nil
	}
	return m.Alerts.Stage(ctx, c, b, rec.Form, rec.ID)
}

// wakeAfter makes the handler that creates submissions tell the Alerter when one was stored.
func (m *Module) wakeAfter(create operation.Handler) operation.Handler {
	return func(ctx context.Context, c *operation.Call) (operation.Result, error) {
		result, err := create(ctx, c)
		form, known := c.Known.Record(m.Forms.Name, c.Path("id")).(*Form)
		if err == nil && m.Alerts != nil && (!known || form.EmailAlerts.on()) {
			m.Alerts.Wake(c.Tenant)
		}
		return result, err
	}
}

// Alert is what is told about a submission.
type Alert struct {
	Label, Subject string
	Recipients     []string
	Submission     string // its identifier; empty: the recipients are told nothing of it
	ReplyTo        string // the address in the field that the form names; empty: none
	Values         []AlertValue
}

// AlertValue is a value that the form marks for alerts.
type AlertValue struct{ Title, Text string }

// Alert returns what is told about a submission, nil if the form or the submission is gone, or the form sends no alerts.
// Without a submission it returns only the recipients. Values of encrypted fields are not told. Error:
// store.ErrUnavailable.
func (m *Module) Alert(ctx context.Context, t *tenants.Tenant, form, submission string) (*Alert, error) {
	f, err := m.Forms.In(t.Workspace()).Get(ctx, form)
	if errors.Is(err, store.ErrNotFound) || err == nil && !f.EmailAlerts.on() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := &Alert{Label: f.Label, Subject: f.EmailAlerts.text(alertSubject), Recipients: f.EmailAlerts.texts(alertRecipients)}
	if submission == "" {
		return out, nil
	}
	s, err := m.Submissions.In(t.Workspace()).Get(ctx, submission)
	if errors.Is(err, store.ErrNotFound) || err == nil && s.Form != form {
		return nil, nil
	}
	if err != nil || f.AlertsBlind {
		return out, err
	}
	out.Submission = s.ID
	all := f.Fields()
	if reply, ok := s.Values[f.EmailAlerts.text(alertReplyTo)].(string); ok && schema.ValidEmail(reply) {
		out.ReplyTo = reply
	}
	for _, name := range f.EmailAlerts.texts(alertFields) {
		field, defined := all[name]
		if value := s.Values[name]; defined && value != nil { // those of encrypted fields are not among them
			out.Values = append(out.Values, AlertValue{field.Title, alertText(value)})
		}
	}
	return out, nil
}

// alertText returns a value for readers.
func alertText(value any) string {
	switch v := value.(type) {
	case bool:
		return map[bool]string{true: "yes", false: "no"}[v]
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = alertText(v[i])
		}
		return strings.Join(parts, ", ")
	}
	return fmt.Sprint(value)
}

// RemoveRecipient removes an address from the recipients of a form's alerts, and returns the label of the form; "" if it
// is gone. Errors: store.ErrConflict, store.ErrUnavailable.
func (m *Module) RemoveRecipient(ctx context.Context, t *tenants.Tenant, form, address string) (label string, err error) {
	key := identity.EmailKey(address)
	is := func(v any) bool {
		s, ok := v.(string)
		return ok && identity.EmailKey(s) == key
	}
	_, err = m.Forms.In(t.Workspace()).Update(ctx, form, func(f *Form) error {
		label = f.Label
		list, _ := f.EmailAlerts[alertRecipients].([]any)
		if !slices.ContainsFunc(list, is) {
			return errUnchanged
		}
		f.EmailAlerts = maps.Clone(f.EmailAlerts)
		f.EmailAlerts[alertRecipients] = slices.DeleteFunc(slices.Clone(list), is)
		return nil
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return "", nil
	case errors.Is(err, errUnchanged):
		return label, nil
	}
	return label, err
}

// errUnchanged ends an update that has nothing to write.
var errUnchanged = errors.New("nothing to change")
