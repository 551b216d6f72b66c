// Package recordtest reads records in tests as imports and operations do.
package recordtest

import (
	"testing"

	"tenantry/backends/record"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
)

// Read reads a record of the text and returns it with every fault. c may have what is known and
// what is asked.
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
