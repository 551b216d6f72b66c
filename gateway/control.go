package gateway

import (
	"os"
	"path/filepath"
	"time"

	"tenantry/gateway/control"
)

// importsFolder returns the folder, in the data folder, that holds the input of imports while they run.
func (s *Services) importsFolder() string { return filepath.Join(s.cfg.Data, "imports") }

// incomingFolder returns the folder, in the data folder, that holds uploaded files while they arrive.
func (s *Services) incomingFolder() string { return filepath.Join(s.cfg.Data, "incoming") }

// Control returns the server that runs commands, see package control. It removes the files that the imports of a killed
// process have left, so call it before an import can begin.
func (s *Services) Control() *control.Server {
	imports := s.importsFolder()
	if err := os.RemoveAll(imports); err != nil {
		s.log.Warn("files left by an import could not be removed", "error", err)
	}
	if err := os.RemoveAll(s.incomingFolder()); err != nil {
		s.log.Warn("files left by an upload could not be removed", "error", err)
	}
	return control.NewServer(control.Backend{
		Directory: s.directory, People: s.people, Keys: s.keys, Keyring: s.keyring, Audit: s.audit, Seals: s.seals, Heads: s.heads,
		KeepDeleted: func() time.Duration { return s.settings().Trash.Organizations },
		Transfer:    s.transfer, Limits: s.limiter.Defaults,
		Examine: s.examine, ExamineEach: s.examineEach, FileBytes: s.fileBytes,
		BackUp: s.backUp, RestoreOrganization: s.restoreOrganization, KeyringPath: absolute(s.cfg.KeyringPath()),
		BaseURL: s.baseURL, TempDir: imports, Reserve: s.cfg.Files.ReserveBytes(), Log: s.log, Now: s.now,
	})
}
