package gateway

import (
	"net/http"

	"zombiezen.com/go/sqlite" //nolint:depguard // its version alone, for commands

	"tenantry/gateway/control"
	"tenantry/gateway/transfer"
)

// Control returns the handler of the commands, see package control.
func (s *Services) Control() http.Handler {
	k := s.kinds
	return control.NewHandler(control.Backend{
		Directory: s.directory, People: s.people, Keys: s.keys, Keyring: s.keyring, Audit: s.audit,
		Transfer: transfer.New(transfer.Deps{
			Directory: s.directory, People: k.people, Contacts: k.contacts, ContactsModule: s.modules.contacts,
			Files: k.files, Objects: k.objects, Forms: k.forms, Campaigns: k.campaigns, Compliance: k.compliance,
			Reports: k.reports, ReportsModule: s.modules.reports,
		}),
		BaseURL: s.baseURL, TempDir: s.cfg.Data, Log: s.log, Now: s.now,
	})
}

// SQLiteVersion returns the version of the embedded engine.
func SQLiteVersion() string { return sqlite.Version }
