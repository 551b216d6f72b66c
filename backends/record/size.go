package record

import (
	"strings"

	"tenantry/backends/record/field"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
)

// MaxRecord is the largest size of a record in bytes, whether it comes from a call, an import or a command: its fields
// as JSON, and its sealed values as they are stored. It is twice the largest body, so a body always fits, even after
// its values are sealed.
const MaxRecord = 512 << 10

// maxValues is how many values a record may have. A line of a bundle, which has a few more, can then be read again. No
// body that creates a single record has more.
const maxValues = 1 << 16

// Measure is the size of a record: its bytes as JSON, and the number of its values. Values is 0 if Bytes is too small
// for more than maxValues.
type Measure struct{ Bytes, Values int }

// Measure returns the size of a stored record, for Fits.
func (r *Resource) Measure(rec any) Measure {
	size, _ := r.Size(rec)
	return Measure{size, r.countValues(rec, size)}
}

// Size returns the size of the record as JSON in bytes, and the name of its largest field. It does not count local
// fields, nor the identifier, which a new record may not have yet.
func (r *Resource) Size(rec any) (size int, largest string) {
	most := 0
	count := func(name string, n int) {
		if size += n; n > most {
			largest, most = name, n
		}
	}
	for i := range r.Fields {
		if f := &r.Fields[i]; r.Stored(f.Name) != "id" && (f.Name != r.valuesName || f.Name == "") {
			count(f.Name, f.Size(rec))
		}
	}
	if r.values != nil {
		for name, value := range *r.Values(rec) {
			count(r.valuesName+"."+texts.Clip(name), len(name)+field.SizeOf(value))
		}
	}
	if r.secrets != nil {
		for name, sealed := range *r.Secrets(rec) {
			count(r.valuesName+"."+texts.Clip(name), len(name)+len(sealed))
		}
	}
	return size, largest
}

// Fits notes a fault if a record that is about to be stored is larger than MaxRecord, or has too many values. A record
// that exceeded a limit before may be stored if it does not grow in that respect; before is its former size, zero for a
// new record. Sealed is the size in bytes of sealed values that are not in the record yet.
func (r *Resource) Fits(rec any, before Measure, sealed int, errs *fault.List) {
	size, largest := r.Size(rec)
	if n := r.countValues(rec, size); n > max(maxValues, before.Values) {
		errs.Add(largest, fault.Length, "the %s has %d values, most of them %s: a record has at most %d",
			strings.ReplaceAll(r.Name, "_", " "), n, largest, maxValues)
		return
	}
	if size += sealed; size <= max(MaxRecord, before.Bytes) {
		return
	}
	errs.Add(largest, fault.Length, "the %s takes %d bytes, most of them %s: a record takes at most %d",
		strings.ReplaceAll(r.Name, "_", " "), size, largest, MaxRecord)
}

// countValues returns the number of values of the record as JSON, 0 if its size is too small for more than maxValues.
func (r *Resource) countValues(rec any, size int) (n int) {
	if size < 2*maxValues { // each takes two bytes at least
		return 0
	}
	for i := range r.Fields {
		n += r.Fields[i].Values(rec)
	}
	return n
}
