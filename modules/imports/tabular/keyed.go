package tabular

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"

	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/internal/texts"
	"tenantry/modules/imports/bundle"
)

// digest is a hash of a value of the key field.
type digest [12]byte

// keyed is the stored record with a value of the key field.
type keyed struct {
	id   [12]byte
	many bool // several records have the value
}

// keyBatch is how many values are looked up at a time, because the records that have them may be large.
const keyBatch = 64

// keyMemory is the memory for a value of the key field in bytes: its digest and its record.
const keyMemory = 64

// findKeyed finds the stored records that rows may change. Values of an indexed field are looked up in batches;
// otherwise all records are read once, for example for fields that the organization defined, which not every engine
// indexes. Memory holds a digest of each value in the file.
func (f *feed) findKeyed(ctx context.Context) error {
	for i := range f.columns {
		for _, t := range f.columns[i].targets {
			if t.field == f.o.Key && (f.key == nil || f.key.custom) { // fields of every record take precedence
				f.key = t
			}
		}
	}
	t := f.key
	switch {
	case t == nil:
		return fmt.Errorf("%w: no column is mapped to the key field %q", ErrOptions, texts.Clip(f.o.Key))
	case slices.Contains([]string{schema.MultiSelect, schema.Encrypted, aValue}, t.typ):
		return fmt.Errorf("%w: the field %q is a list, an object or encrypted and cannot be the key", ErrOptions, f.o.Key)
	}
	f.keyed = map[digest]keyed{}
	if t.fresh || f.byID() {
		return nil // no record has a value, or the value is the identifier
	}
	indexed := f.indexed()
	values := map[digest]bool{}
	var batch []string
	err := f.into.Each(ctx, f, func(p *strictjson.Parser, r bundle.Raw) error {
		var faults fault.List
		row := f.row(p, r, &faults)
		if row == nil {
			return nil // its faults are noted when rows are checked
		}
		v := row.key()
		d, has := digestOf(v)
		if !has || values[d] {
			return nil
		}
		values[d] = true
		if err := f.into.Remember(keyMemory); err != nil || !indexed {
			return err
		}
		if batch = append(batch, v.Text); len(batch) < keyBatch {
			return nil
		}
		err := f.lookUp(ctx, batch)
		batch = batch[:0]
		return err
	})
	if err != nil {
		return err
	}
	if !indexed {
		return f.readAll(ctx, values)
	}
	return f.lookUp(ctx, batch)
}

// byID reports whether the key is the identifier of records.
func (f *feed) byID() bool { return f.key.field == idColumn && !f.key.custom && f.key.typ == aLine }

// indexed reports whether records can be looked up by the key.
func (f *feed) indexed() bool {
	return !f.key.custom && f.key.typ == aLine && slices.ContainsFunc(f.of.Records.Spec().Indexes, func(i store.Index) bool {
		key := f.of.Stored(f.o.Key)
		return i.Fields[0] == key || f.definition != "" && i.Fields[0] == f.of.Stored(f.of.DefinitionField) && len(i.Fields) > 1 && i.Fields[1] == key
	})
}

func (f *feed) note(v strictjson.Value, id string) {
	d, has := digestOf(v)
	if !has {
		return
	}
	now := keyed{}
	_, _ = hex.Decode(now.id[:], []byte(id)) // as the store makes them
	known, there := f.keyed[d]
	now.many = known.many || there && known.id != now.id
	f.keyed[d] = now
}

// lookUp finds records by an indexed field. If more records have the values than one answer holds, it looks up smaller
// parts.
func (f *feed) lookUp(ctx context.Context, values []string) error {
	if len(values) == 0 {
		return nil
	}
	found, err := f.of.Records.Find(ctx, f.into.Workspace(f.of), store.Query{
		Filter: store.All(f.stored(), store.In(f.of.Stored(f.o.Key), values...)), State: store.Either, Limit: store.MaxLimit,
	})
	if err != nil {
		return fmt.Errorf("look up the records of rows: %w", err)
	}
	for _, rec := range found {
		f.note(f.value(rec), f.of.Meta(rec).ID)
	}
	if len(found) < store.MaxLimit || len(values) == 1 {
		return nil
	}
	half := len(values) / 2
	if err := f.lookUp(ctx, values[:half]); err != nil {
		return err
	}
	return f.lookUp(ctx, values[half:])
}

// stored matches the records that rows may change.
func (f *feed) stored() store.Filter {
	if f.definition == "" {
		return store.Filter{}
	}
	return store.Eq(f.of.Stored(f.of.DefinitionField), f.definition)
}

// value returns the value of the key field in a stored record.
func (f *feed) value(rec any) strictjson.Value {
	n, _ := f.of.Index(f.o.Key)
	switch {
	case f.key.custom:
		return valueOf((*f.of.Values(rec))[f.o.Key])
	case f.key.typ == aLine:
		return text(f.of.Text(rec, f.o.Key))
	}
	return parsed(f.of.Fields[n].Append(nil, rec))
}

// readAll finds records by reading all of them.
func (f *feed) readAll(ctx context.Context, values map[digest]bool) error {
	return f.of.Records.Each(ctx, f.into.Workspace(f.of), f.stored(), func(rec any) error {
		v := f.value(rec)
		if d, has := digestOf(v); has && values[d] {
			f.note(v, f.of.Meta(rec).ID)
		}
		return nil
	})
}

// digestOf returns the digest of a value of the key field; numbers count by value, not by notation. has is false if
// there is no value.
func digestOf(v strictjson.Value) (d digest, has bool) {
	switch {
	case v.Is == strictjson.Number:
		v.Text = canonical(v.Text)
	case v.Is == strictjson.Null || v.Is == strictjson.Array || v.Is == strictjson.Object || v.Is == strictjson.Text && v.Text == "":
		return d, false
	}
	sum := sha256.Sum256(v.AppendCanonical(make([]byte, 0, 64), nil))
	return digest(sum[:len(d)]), true
}

// canonical returns the notation for all numbers that the store treats as equal: integers of 64 bits are exact, others
// are floats.
func canonical(number string) string {
	if n, err := strconv.ParseInt(number, 10, 64); err == nil {
		return strconv.FormatInt(n, 10)
	}
	n, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil:
		return number
	case n == math.Trunc(n) && math.Abs(n) < 1<<63:
		return strconv.FormatInt(int64(n), 10)
	}
	return strconv.FormatFloat(n, 'g', -1, 64)
}

// key returns the row's value of the key field; null if it has none.
func (r *row) key() strictjson.Value {
	t, members := r.feed.key, r.own
	if t.custom {
		members = r.custom
	}
	return strictjson.Value{Is: strictjson.Object, Members: members}.Get(t.field)
}

// keyOf returns the key of a row; nil if it has no value.
func (f *feed) keyOf(r *row) *bundle.Key {
	d, has := digestOf(r.key())
	if !has {
		return nil
	}
	key := &bundle.Key{Field: f.o.Key, Digest: d}
	if id := r.key().Text; f.byID() && store.ValidID(id) {
		key.ID = id
	} else if found, there := f.keyed[d]; there {
		if key.Many = found.many; !key.Many {
			key.ID = hex.EncodeToString(found.id[:])
		}
	}
	return key
}
