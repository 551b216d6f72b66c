package site

import (
	"strings"

	"tenantry/operation"
)

// FormOperation returns the operation that the form at a path calls, or nil.
func (s *Site) FormOperation(path string) *operation.Row {
	name, found := strings.CutPrefix(path, "/do/")
	if rest, docs := strings.CutPrefix(path, "/docs/"); docs {
		name, found = strings.CutSuffix(rest, "/try")
	}
	if !found {
		return nil
	}
	return s.Rows[name]
}
