package gateway

import (
	"os"
	"path/filepath"

	"tenantry/gateway/control"
)

// importsFolder is where what is sent for imports is kept while they run, in the data folder.
func (s *Services) importsFolder() string { return filepath.Join(s.cfg.Data, "imports") }

// Control returns what carries out the commands, see package control. It removes what
// imports of a process that was killed have left, so it is called before any begins.
func (s *Services) Control() *control.Server {
	imports := s.importsFolder()
	if err := os.RemoveAll(imports); err != nil {
		s.log.Warn("what an import left could not be removed", "error", err)
	}
	return control.NewServer(control.Backend{
		Directory: s.directory, People: s.people, Keys: s.keys, Keyring: s.keyring, Audit: s.audit, Seals: s.seals, KeepDeleted: s.cfg.Trash.Organizations,
		Transfer: s.transfer, Limits: s.limiter.Defaults(), Examine: s.examine, ExamineEach: s.examineEach,
		BaseURL: s.baseURL, TempDir: imports, Log: s.log, Now: s.now,
	})
}
