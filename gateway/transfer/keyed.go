package transfer

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	"tenantry/backends/contacts"
	"tenantry/backends/objects"
	"tenantry/backends/schema"
	"tenantry/backends/store"
	"tenantry/internal/strictjson"
	"tenantry/internal/texts"
)

// keyed is a stored record that has a row's value of the key.
type keyed struct {
	id   key
	many bool // others have it too
}

// keyBatch is how many values of the key are looked up at a time.
const keyBatch = 500

// findKeyed finds the stored records that rows may be. Fields that every record has are
// indexed and looked up in batches; those that the organization defined are not indexed by
// every engine, so that its records are read once. Memory holds a digest of each value in
// the file.
func (f *rowFeed) findKeyed(ctx context.Context) error {
	f.keyAt = slices.IndexFunc(f.targets, func(t target) bool { return t.field == f.key })
	if f.keyAt < 0 {
		return fmt.Errorf("%w: no column leads to the field %q, which is the key", ErrRowOptions, texts.Clip(f.key))
	}
	t := &f.targets[f.keyAt]
	if t.fresh {
		t.typ = t.guess.result()
	}
	if t.list || t.typ == schema.MultiSelect || t.typ == schema.Encrypted {
		return fmt.Errorf("%w: the field %q is a list or encrypted and cannot be the key", ErrRowOptions, f.key)
	}
	f.keyed = map[key]keyed{}
	if t.fresh {
		return nil // nobody has a value
	}
	values := map[key]bool{}
	var batch []string
	err := f.each(ctx, func(p *strictjson.Parser, l rawLine) error {
		row, _ := f.row(p, l)
		if row == nil {
			return nil // what is wrong is noted when rows are checked
		}
		v := row.valueOf(t)
		k, has := keyDigest(v)
		if !has || values[k] {
			return nil
		}
		values[k] = true
		if t.custom {
			return nil
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
	if t.custom {
		return f.readAll(ctx, values)
	}
	return f.lookUp(ctx, batch)
}

func (f *rowFeed) note(v strictjson.Value, id string) {
	k, has := keyDigest(v)
	if !has {
		return
	}
	known, there := f.keyed[k]
	f.keyed[k] = keyed{keyOf(id), known.many || there && known.id != keyOf(id)}
}

// lookUp finds records by a field that every record has. Where more share the values than
// one answer holds, the values are asked for in smaller parts.
func (f *rowFeed) lookUp(ctx context.Context, values []string) error {
	if len(values) == 0 {
		return nil
	}
	ws, d := f.session.tenant.Workspace(), f.session.deps
	query := store.Query{Filter: store.In(f.key, values...), State: store.Either, Limit: store.MaxLimit}
	found := 0
	if f.object == "" {
		recs, err := d.Contacts.Contacts.In(ws).Find(ctx, query)
		if err != nil {
			return fmt.Errorf("looking for the contacts that rows may be: %w", err)
		}
		for i := range recs {
			f.note(strictjson.Value{Is: strictjson.Text, Text: contactText(&recs[i], f.key)}, recs[i].ID)
		}
		found = len(recs)
	} else {
		query.Filter = store.All(store.Eq("object", f.object), query.Filter)
		recs, err := d.Objects.Records.In(ws).Find(ctx, query)
		if err != nil {
			return fmt.Errorf("looking for the records that rows may be: %w", err)
		}
		for i := range recs {
			f.note(strictjson.Value{Is: strictjson.Text, Text: recs[i].ExternalID}, recs[i].ID)
		}
		found = len(recs)
	}
	if found < store.MaxLimit || len(values) == 1 {
		return nil
	}
	half := len(values) / 2
	if err := f.lookUp(ctx, values[:half]); err != nil {
		return err
	}
	return f.lookUp(ctx, values[half:])
}

func contactText(c *contacts.Contact, field string) string {
	switch field {
	case "email":
		return c.Email
	case "first_name":
		return c.FirstName
	case "last_name":
		return c.LastName
	case "phone":
		return c.Phone
	case "country":
		return c.Country
	case "city":
		return c.City
	case "status":
		return c.Status
	}
	return c.ExternalID
}

// readAll finds records by a field that the organization defined.
func (f *rowFeed) readAll(ctx context.Context, values map[key]bool) error {
	ws, d := f.session.tenant.Workspace(), f.session.deps
	take := func(stored map[string]any, id string) error {
		v := stringOrNumber(stored[f.key])
		if k, has := keyDigest(v); has && values[k] {
			f.note(v, id)
		}
		return nil
	}
	if f.object == "" {
		return d.Contacts.Contacts.In(ws).Each(ctx, store.Filter{}, store.Either, func(c *contacts.Contact) error { return take(c.Fields, c.ID) })
	}
	return d.Objects.Records.In(ws).Each(ctx, store.Eq("object", f.object), store.Either, func(r *objects.Record) error { return take(r.Values, r.ID) })
}

func stringOrNumber(v any) strictjson.Value {
	switch x := v.(type) {
	case nil:
		return strictjson.Value{}
	case json.Number:
		return strictjson.Value{Is: strictjson.Number, Text: x.String()}
	}
	return valueOf(v)
}

// keyDigest stands for a value of the key, numbers by what they are and not by how they
// are written; false where there is none.
func keyDigest(v strictjson.Value) (key, bool) {
	switch v.Is {
	case strictjson.Text:
		return claimOf("key", "text", "", v.Text), v.Text != ""
	case strictjson.Number:
		return claimOf("key", "number", "", written(v.Text)), true
	case strictjson.True, strictjson.False:
		return claimOf("key", "boolean", "", strconv.FormatBool(v.Is == strictjson.True)), true
	case strictjson.Null, strictjson.Array, strictjson.Object:
	}
	return key{}, false
}

// written returns the one way to write a number that the store takes for the same: whole
// numbers of 64 bits are exact there, others are floats.
func written(number string) string {
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

// valueOf returns what the row has for a target; null where it has nothing.
func (r *rowLine) valueOf(t *target) strictjson.Value {
	members := r.own
	if t.custom {
		members = r.custom
	}
	return strictjson.Value{Is: strictjson.Object, Members: members}.Get(t.field)
}

// identify makes the row the record that has its value of the key.
func (f *rowFeed) identify(e *entry, row *rowLine) {
	k, has := keyDigest(row.valueOf(&f.targets[f.keyAt]))
	if !has {
		return
	}
	e.claims = append(e.claims, claim{field: f.key, key: k})
	e.digest = key{} // what it is has been said
	found, there := f.keyed[k]
	switch {
	case found.many:
		e.errs.Add(f.key, "duplicate", "several stored records have this %s", f.key)
	case there:
		e.id = found.id.id()
	}
}
