package gateway

import (
	"net/http"

	"zombiezen.com/go/sqlite" //nolint:depguard // its version alone, for commands

	"tenantry/gateway/control"
)

// Control returns the handler of the commands, see package control.
func (s *Services) Control() http.Handler {
	return control.NewHandler(control.Backend{
		Directory: s.directory, People: s.people, Keys: s.keys, Keyring: s.keyring, Audit: s.audit,
		Transfer: s.transfer,
		BaseURL:  s.baseURL, TempDir: s.cfg.Data, Log: s.log, Now: s.now,
	})
}

// SQLiteVersion returns the version of the embedded engine.
func SQLiteVersion() string { return sqlite.Version }
