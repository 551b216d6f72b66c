package mail

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"tenantry/crypto/fields"
	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/secrets"
)

// subscription is what a token to unsubscribe holds, encrypted, so that the address is not in links.
type subscription struct {
	Form    string `json:"f,omitempty"`
	Report  string `json:"r,omitempty"` // identifier of its schedule, instead of a form
	Address string `json:"a"`
}

const (
	unsubscribeRecord = "unsubscribe" // in place of the record for which a token is encrypted
	notSubscribed     = "The link is not valid"
	unsubscribeRow    = "mails.unsubscribe"
)

// UnsubscribeToken returns the token with which a recipient of a form's alerts ends them. Errors: those of data keys.
func (m *Module) UnsubscribeToken(ctx context.Context, t *tenants.Tenant, form, address string) (string, error) {
	return m.unsubscribeToken(ctx, t, subscription{Form: form, Address: address})
}

func (m *Module) unsubscribeToken(ctx context.Context, t *tenants.Tenant, of subscription) (string, error) {
	text, err := json.Marshal(of)
	if err != nil {
		return "", err
	}
	return m.vault(t).Seal(ctx, secrets.Place{Collection: collection, Record: unsubscribeRecord}, sealedField, string(text))
}

// unsubscribeURL returns the address of the page that ends mails.
func (m *Module) unsubscribeURL(ctx context.Context, t *tenants.Tenant, of subscription) (string, error) {
	token, err := m.unsubscribeToken(ctx, t, of)
	return m.BaseURL(t.Org.Slug) + "/unsubscribe?token=" + url.QueryEscape(token), err
}

// Unsubscribed is the answer to unsubscribing.
type Unsubscribed struct {
	Form   string `json:"form" doc:"Label of the form; empty if it is gone, and for a report."`
	Report string `json:"report" doc:"Name of the schedule of a report; empty if it is gone, and for a form."`
}

type unsubscribeInput struct {
	Token string `json:"token" rule:"required max=2000" use:"secret" example:"enc.v1.1.Zm9ybQ"`
}

func (m *Module) unsubscribeOperation() operation.Row {
	return operation.Typed(operation.Row{
		Name: unsubscribeRow, Method: http.MethodPost, Path: "/auth/unsubscribe",
		Policy: operation.Policy{
			Credentials: operation.Open, Rule: operation.AnyCaller(), Audit: operation.AuditAlways, AnyHost: true,
		},
		Request: operation.Request{BodyLimit: 8 << 10},
		Response: operation.Response{
			Message: "Unsubscribed", Example: Unsubscribed{Form: "Application"},
			Failures: []operation.Failure{{Code: http.StatusForbidden, Message: notSubscribed, When: "the token is none of this organization"}},
		},
		Docs: operation.Docs{
			Tag: "Mails", Summary: "Receive no more alerts of a form, or no more reports",
			Description: "Takes the token in the link at the end of an alert or a report, and removes its address from the recipients of " +
				"the form, or of the schedule. If it is none of them any more, nothing changes.",
		},
	}, m.unsubscribe)
}

func (m *Module) unsubscribe(ctx context.Context, c *operation.Call, in unsubscribeInput) (Unsubscribed, error) {
	in.Token = strings.TrimSpace(in.Token)
	if _, err := fields.KeyVersion(in.Token); err != nil { // nothing is looked up for it
		return Unsubscribed{}, operation.Forbidden(notSubscribed)
	}
	if c.Tenant.Workspace() == nil {
		if err := c.Tenant.Absent(ctx); err != nil {
			return Unsubscribed{}, err
		}
		return Unsubscribed{}, operation.Forbidden(notSubscribed)
	}
	var of subscription
	text, err := m.vault(c.Tenant).Open(ctx, secrets.Place{Collection: collection, Record: unsubscribeRecord}, sealedField, in.Token)
	if err == nil {
		err = json.Unmarshal([]byte(text.Reveal()), &of)
	}
	if err != nil {
		return Unsubscribed{}, operation.Forbidden(notSubscribed)
	}
	if of.Report != "" {
		c.Note("report_schedule", of.Report)
		name, err := m.LeaveReport(ctx, c.Tenant, of.Report, of.Address)
		return Unsubscribed{Report: name}, err
	}
	c.Note("form_collection", of.Form)
	label, err := m.Leave(ctx, c.Tenant, of.Form, of.Address)
	return Unsubscribed{Form: label}, err
}
