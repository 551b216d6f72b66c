package gateway

import (
	"testing"

	"tenantry/modules/audit"
	"tenantry/modules/files"
)

// AuditLog returns the audit log, which tests read behind the API.
func (s *Services) AuditLog() *audit.Log { return s.audit }

// FileKinds returns the records of files, which tests change behind the API.
func (s *Services) FileKinds() (k files.Kinds) {
	for _, m := range s.modules {
		if f, ok := m.(*files.Module); ok {
			k = f.Kinds
		}
	}
	return k
}

// TrashTurn takes one turn of emptying the trash, and reports whether it was this one's.
func (a *App) TrashTurn(t testing.TB) bool {
	t.Helper()
	taken, err := a.takeTrashOut(t.Context())
	if err != nil {
		t.Errorf("emptying the trash: %v", err)
	}
	return taken
}

// EmptyTrash takes turns until nothing is left to do.
func (a *App) EmptyTrash(t testing.TB) {
	t.Helper()
	turns := 0
	for a.TrashTurn(t) {
		turns++
	}
	if turns == 0 {
		t.Error("another replica empties the trash, or its round is not due")
	}
}
