package gateway

import (
	"tenantry/backends/files"
	"tenantry/gateway/audit"
)

// AuditLog returns the audit log, which tests read behind the API.
func (s *Services) AuditLog() *audit.Log { return s.audit }

// FileKinds returns the records of files, which tests change behind the API.
func (s *Services) FileKinds() files.Kinds { return s.kinds.files }
