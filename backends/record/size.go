package record

import (
	"strings"

	"tenantry/backends/record/field"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
)

// MaxRecord is how many bytes a record may take, through every door: those of its fields as JSON, sealed
// values as they are kept. Twice the largest body holds whatever that brings, sealed values among it.
const MaxRecord = 512 << 10

// maxValues is how many values a record may have, so that its line, which has a few more, can be read again. No body
// that makes one record has more.
const maxValues = 1 << 16

// Measure is how large a record is: its bytes as JSON, and its values, 0 where the bytes tell that there are not too
// many.
type Measure struct{ Bytes, Values int }

// Measure returns how large a stored record is, for Fits.
func (r *Resource) Measure(rec any) Measure {
	size, _ := r.Size(rec)
	return Measure{size, r.countValues(rec, size)}
}

// Size returns how many bytes the record takes as JSON, and the field that takes most of them. Fields that
// never travel do not count, nor does the identifier, which a new record may have yet to be given.
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

// Fits notes of a record that is about to be stored that it is larger than MaxRecord, or has too many values. One that
// was so already may be stored as long as it does not grow in that: before is what it was, zero for a new one. Sealed
// bytes come besides, of values that are not among the record's yet.
func (r *Resource) Fits(rec any, before Measure, sealed int, errs *fault.List) {
	size, largest := r.Size(rec)
	if n := r.countValues(rec, size); n > max(maxValues, before.Values) {
		errs.Add(largest, fault.Length, "the %s has %d values, most of them %s: a record has at most %d", strings.ReplaceAll(r.Name, "_", " "), n, largest, maxValues)
		return
	}
	if size += sealed; size <= max(MaxRecord, before.Bytes) {
		return
	}
	errs.Add(largest, fault.Length, "the %s takes %d bytes, most of them %s: a record takes at most %d",
		strings.ReplaceAll(r.Name, "_", " "), size, largest, MaxRecord)
}

// countValues returns how many values the record has as JSON, 0 where its size tells that there are not too many.
func (r *Resource) countValues(rec any, size int) (n int) {
	if size < 2*maxValues { // each takes two bytes at least
		return 0
	}
	for i := range r.Fields {
		n += r.Fields[i].Values(rec)
	}
	return n
}
