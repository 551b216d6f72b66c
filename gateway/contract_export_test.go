package gateway

import (
	"tenantry/backends/files"
	"tenantry/gateway/audit"
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
