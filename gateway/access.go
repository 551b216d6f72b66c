package gateway

import (
	"context"
	"time"

	"tenantry/backends/store"
	"tenantry/gateway/control"
	"tenantry/modules/audit"
	"tenantry/modules/files/contents"
	"tenantry/modules/imports/bundle"
	"tenantry/modules/mail"
	"tenantry/modules/usage"
	"tenantry/modules/webhooks"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/keys"
)

// Directory returns the directory of organizations, for programs that embed the gateway.
func (s *Services) Directory() *tenants.Directory { return s.directory }

// People returns the service for users, roles, teams and service accounts.
func (s *Services) People() *identity.Service { return s.people }

// Keys returns the service for API keys.
func (s *Services) Keys() *keys.Service { return s.keys }

// Store returns the store of all organizations. It is not scoped: its callers can read and write the documents of every
// organization.
func (s *Services) Store() *store.Store { return s.store }

// Transfer returns the service for imports and exports.
func (s *Services) Transfer() *bundle.Service { return s.transfer }

// AuditLog returns the audit log of all organizations.
func (s *Services) AuditLog() *audit.Log { return s.audit }

// Contents returns the keeper of the bytes of all organizations' files.
func (s *Services) Contents() *contents.Keeper { return s.contents }

// Commands returns a client that runs commands within this process. The caller closes it.
func (s *Services) Commands() *control.Client { return control.InProcess(s.Control()) }

// PutUsage stores days of usage for the organization, as if they had been counted. Error: store.ErrNotFound if there is
// no such organization.
func (s *Services) PutUsage(ctx context.Context, slug string, days []*usage.Day) error {
	t, err := s.directory.BySlug(ctx, slug)
	if err != nil {
		return err
	}
	return s.usage.Put(ctx, t, days)
}

// FlushUsage stores the usage counted so far. The gateway does so once a minute.
func (s *Services) FlushUsage(ctx context.Context) { s.usage.Flush(ctx) }

// SignInLink returns a link under baseURL with which the person signs in once within lifetime. Errors: those of
// identity.Service.SignInLink; store.ErrNotFound if there is no such organization or person.
func (s *Services) SignInLink(
	ctx context.Context, slug, email, baseURL string, lifetime time.Duration,
) (string, error) {
	t, err := s.directory.BySlug(ctx, slug)
	if err != nil {
		return "", err
	}
	u, err := s.people.FindUserByEmail(ctx, t, email)
	if err != nil {
		return "", err
	}
	token, err := s.people.SignInLink(ctx, t, u.UID, s.now().Add(lifetime))
	return baseURL + "/enter#" + token.Reveal(), err
}

// Webhooks returns the module that sends events.
func (s *Services) Webhooks() *webhooks.Module { return s.webhooks }

// Mails returns the module that sends mail.
func (s *Services) Mails() *mail.Module { return s.mails }
