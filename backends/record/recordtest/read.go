// Package recordtest reads records in tests in the same way as imports and operations.
package recordtest

import (
	"testing"

	"tenantry/backends/record"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
)

// Read reads a record from JSON text, and returns it with all faults. It sets the Errs of c, and Known if that is nil.
func Read[T any](t testing.TB, of *record.Of[T], c record.Checking, text string) (*T, fault.List) {
	t.Helper()
	var p strictjson.Parser
	v, err := p.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	var errs fault.List
	c.Errs = &errs
	if c.Known == nil {
		c.Known = &record.Known{}
	}
	rec := of.New()
	of.Read(&c, v, rec)
	return rec.(*T), errs
}
