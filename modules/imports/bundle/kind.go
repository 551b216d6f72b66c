package bundle

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"

	"tenantry/backends/record"
	"tenantry/backends/record/field"
	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/internal/declare"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/tenants/secrets"
)

// kind says how lines that are records of one resource are imported and exported.
type kind struct {
	*record.Resource
	// guard, if set, wraps every change of a stored record.
	guard func(ctx context.Context, s *session, old any, write func() error) error
	// watch, if set, is called with a stored record before it is changed; the function that it returns is called after
	// the change.
	watch func(old any) func()
	// leave, if set, wraps the removal of a record.
	leave func(ctx context.Context, s *session, rec any, remove func() error) error
	// whole: a record becomes exactly what its line says; fields that are not given become empty.
	whole bool
	// held are the names of fields that an import does not change.
	held []string
}

func (s *session) workspace(r *record.Resource) *store.Workspace {
	if r.Control {
		return s.tenant.People()
	}
	return s.tenant.Workspace()
}

// decode reads a line and checks everything that does not depend on other data lines. Safe for concurrent use while
// the view does not change.
func (k *kind) decode(ctx context.Context, v *view, val strictjson.Value, line int) *entry {
	rec := k.New()
	e := &entry{line: line, kind: k, rec: rec, asIs: val.Get(asIsName).Is == strictjson.True}
	if e.asIs {
		k.decodeStored(ctx, v, val, rec, e)
		return e
	}
	k.decodeGiven(ctx, v, val, rec, e)
	if len(e.errs) == 0 && !e.named && !k.identified(rec) {
		var secret func(string) bool // secret values are not part of the digest
		if k.HasSecrets() {
			secret = k.SecretIn(&v.Known, rec)
		}
		e.digest = digestOf(k.Name, val, secret)
	}
	return e
}

// decodeGiven reads and checks a line that was not written as is by an export.
func (k *kind) decodeGiven(ctx context.Context, v *view, val strictjson.Value, rec any, e *entry) {
	c := record.Checking{Errs: &e.errs, Known: &v.Known, Absent: absent, Clear: true, IgnoreNull: true}
	c.Take = func(values map[string]any, secret func(string) bool) map[string]bool {
		e.secrets = v.vault.Take(ctx, k.place(k.Meta(rec).ID), k.ValuesName(), values, secret, &e.errs)
		taken := make(map[string]bool, len(e.secrets))
		for name := range e.secrets {
			taken[name] = true
		}
		return taken
	}
	k.readNulls(val, e)
	e.given = k.Read(&c, val, rec, "kind")
	e.never = c.Never
	if c.Keep {
		e.change = keep
	}
	e.id = k.Meta(rec).ID
	n, ok := k.Index("id")
	e.named = ok && e.given&(1<<n) != 0
}

// readNulls notes the fields and values that a line sets to null.
func (k *kind) readNulls(val strictjson.Value, e *entry) {
	for i := range val.Members {
		if n, ok := k.Index(val.Members[i].Name); ok && val.Members[i].Value.Is == strictjson.Null { // Read refuses null for required fields
			e.nulls |= 1 << n
		}
	}
	if k.DefinedBy == "" {
		return
	}
	for _, m := range val.Get(k.ValuesName()).Members {
		if m.Value.Is == strictjson.Null {
			e.emptied = append(e.emptied, strings.Clone(m.Name))
		}
	}
}

// apply applies the line to a stored record, and reports whether that changes it.
func (k *kind) apply(old any, e *entry, skip func(f *field.Field) bool) (changed bool) {
	for i := range k.Fields {
		f := &k.Fields[i]
		given := e.given&(1<<i) != 0
		if skip(f) || !given && (!k.whole || k.alwaysSet(f) || f.Name == createdAt || f.Name == updatedAt) {
			continue
		}
		before := f.Append(nil, old)
		switch null := e.nulls&(1<<i) != 0; {
		case null && k.alwaysSet(f):
		case null && f.Type.Kind() == reflect.Bool: // a boolean cannot be empty, so it gets its default
			f.Set(old, e.rec)
		case null:
			f.Clear(old)
		case k.whole:
			f.Set(old, e.rec)
		default:
			f.Copy(old, e.rec)
		}
		changed = changed || !bytes.Equal(before, f.Append(nil, old))
	}
	if k.whole && k.HasSecrets() {
		for name, sealed := range *k.Secrets(old) {
			if given, stays := e.secrets[name]; !stays || given.Rewritten(k.Meta(old).ID, sealed) {
				delete(*k.Secrets(old), name)
				changed = true
			}
		}
	}
	for _, name := range e.emptied {
		_, plain := (*k.Values(old))[name]
		delete(*k.Values(old), name)
		changed = changed || plain
		if k.HasSecrets() {
			_, sealed := (*k.Secrets(old))[name]
			delete(*k.Secrets(old), name)
			changed = changed || sealed
		}
	}
	if n, ok := k.Index(k.ValuesName()); ok && e.nulls&(1<<n) != 0 && k.HasSecrets() && len(*k.Secrets(old)) > 0 {
		*k.Secrets(old), changed = nil, true
	}
	return changed
}

// Times of a record, which a line need not give.
const (
	createdAt = "created_at"
	updatedAt = "updated_at"
)

// alwaysSet reports whether every record has a value of the field, so that the field cannot be emptied: it is
// required, a time, or unique with a generated value.
func (k *kind) alwaysSet(f *field.Field) bool {
	return f.Rule.Required || k.Name == kindOrganization && f.Name == "name" || f.Name == createdAt || f.Name == updatedAt || f.Name == cmp.Or(
		k.Key, "id",
	) || f.Rule.Unique && !strings.Contains(
		f.Tag.Get("json"), ",omitempty",
	)
}

// absent ends the message about a dangling reference.
const absent = "that neither the file nor the organization has"

// identified reports whether the record has a unique value that identifies it.
func (k *kind) identified(rec any) bool {
	if k.Single {
		return true
	}
	for i := range k.Uniques {
		if u := &k.Uniques[i]; u.Identity != record.Never && u.Value(rec) != "" {
			return true
		}
	}
	return false
}

// identify returns the values that no other line of the bundle may have.
func (k *kind) identify(e *entry) []claim {
	if k.Single {
		return []claim{{"kind", claimOf(k.Name, "kind", "", ""), true}}
	}
	rec := e.rec
	claims := make([]claim, 0, len(k.Uniques)+1)
	for i := range k.Uniques {
		u := &k.Uniques[i]
		if v := u.Value(rec); v != "" {
			identifies := u.Identity == record.Always || u.Identity == record.Named && !e.named
			claims = append(claims, claim{u.Shown, claimOf(k.Name, u.Field, u.Group(rec), v), identifies})
		}
	}
	return claims
}

// references calls visit for every reference of the record.
func (k *kind) references(e *entry, visit record.Visitor) {
	k.Refers(e.rec, visit)
	if e.old != nil {
		k.Refers(e.old, visit)
	}
}

// known returns the records with those identifiers, including deleted ones.
func (k *kind) known(ctx context.Context, s *session, ids ...string) ([]any, error) {
	return k.Records.Find(ctx, s.workspace(k.Resource), store.Query{
		Filter: store.In("id", ids...), State: store.Either,
	})
}

// stored holds the stored records that entries may match.
type stored struct {
	byID    map[string]any
	byValue []map[string]any // for each of Uniques
	single  any              // the only record of a Single
}

func (k *kind) find(ctx context.Context, s *session, batch []*entry) (stored, error) {
	out := stored{byID: map[string]any{}, byValue: make([]map[string]any, len(k.Uniques))}
	read := func(f store.Filter, note func(any)) error {
		found, err := k.Records.Find(ctx, s.workspace(k.Resource), store.Query{Filter: f, State: store.Either})
		for _, rec := range found {
			note(rec)
		}
		return err
	}
	if k.Single {
		err := read(store.Filter{}, func(rec any) { out.single = rec })
		return out, err
	}
	byID := func(rec any) { out.byID[k.Meta(rec).ID] = rec }
	var ids []string
	for _, e := range batch {
		if e.id != "" {
			ids = append(ids, e.id)
		}
	}
	if len(ids) > 0 {
		if err := read(store.In("id", ids...), byID); err != nil {
			return out, err
		}
	}
	for i := range k.Uniques {
		u := &k.Uniques[i]
		out.byValue[i] = map[string]any{}
		groups := map[string][]string{}
		for _, e := range batch {
			rec := e.rec
			if v := u.Value(rec); v != "" {
				g := u.Group(rec)
				groups[g] = append(groups[g], v)
			}
		}
		for g, values := range groups {
			err := read(u.Filter(g, values, u.Number(batch[0].rec)), func(rec any) {
				if known := out.byID[k.Meta(rec).ID]; known != nil {
					rec = known // one copy of each record
				} else {
					byID(rec)
				}
				out.byValue[i][u.Group(rec)+"\x00"+u.Value(rec)] = rec
			})
			if err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

func (k *kind) compare(ctx context.Context, s *session, batch []*entry) error {
	for _, e := range batch {
		k.relink(s, e)
	}
	if s.isEmpty[k.Name] {
		if err := k.settle(ctx, s, batch); err != nil {
			return err
		}
		for _, e := range batch {
			if len(e.errs) > 0 {
				continue
			}
			if e.change == undecided {
				e.change, e.errs = create, append(e.errs, e.missing...)
				k.checkSize(e, record.Measure{})
			}
		}
		return nil
	}
	found, err := k.find(ctx, s, batch)
	if err != nil {
		return err
	}
	for _, e := range batch {
		if e.change == undecided {
			k.match(s, &found, e)
		}
	}
	if err := k.settle(ctx, s, batch); err != nil {
		return err
	}
	for _, e := range batch {
		if e.change != undecided || len(e.errs) > 0 {
			continue
		}
		if err := k.merge(ctx, s, e); err != nil {
			return err
		}
	}
	return nil
}

// checkSize refuses a line whose record would be too large. before is the measure of the stored record, zero for a new
// one.
func (k *kind) checkSize(e *entry, before record.Measure) {
	rec, sealed := e.rec, 0
	if e.old != nil {
		rec = e.old // the line and its secrets have been applied
	} else {
		for name, s := range e.secrets {
			sealed += len(name) + s.Size()
		}
	}
	k.Fits(rec, before, sealed, &e.errs)
}

// relink replaces identifiers of the bundle by those of the organization.
func (k *kind) relink(s *session, e *entry) {
	if len(s.alias) == 0 {
		return
	}
	k.Refers(e.rec, func(_, _ string, id *string) {
		if own, ok := s.alias[*id]; ok {
			*id = own
		}
	})
}

// match finds the record of the entry, and the records that it collides with.
func (k *kind) match(s *session, found *stored, e *entry) {
	rec := e.rec
	old := found.single
	if !k.Single && e.id != "" {
		old = found.byID[e.id]
	}
	for pass := range 2 { // identities first, because they decide what is a collision
		for i := range k.Uniques {
			u := &k.Uniques[i]
			other := found.byValue[i][u.Group(rec)+"\x00"+u.Value(rec)]
			if other == nil || other == old || u.Value(rec) == "" {
				continue
			}
			identifies := u.Identity == record.Always && (s.mirror == nil || e.id == "" || !e.named) || u.Identity == record.Named && !e.named
			switch {
			case pass == 0 && identifies && old == nil:
				old = other
			case pass == 1 && s.mirror.free(s, k, other, i):
			case pass == 1:
				e.errs.Add(u.Shown, "duplicate", "another %s of the organization has the same %s", k.Name, u.Shown)
			}
		}
	}
	rev := int64(0)
	if old != nil {
		e.old, rev = old, k.Meta(old).Rev
		k.checkDefinition(e)
	}
	if e.rev != nil && *e.rev != rev {
		e.errs.Add("line", "conflict", "the %s was changed while the file was imported; import it again", strings.ReplaceAll(k.Name, "_", " "))
	}
}

// checkDefinition refuses a line that would move the record to another definition, such as another custom object: its
// values would have no meaning there, and an import into one definition must not remove records from another.
func (k *kind) checkDefinition(e *entry) {
	n, ok := k.Index(k.DefinitionField)
	if !ok || e.given&(1<<n) == 0 || bytes.Equal(k.Fields[n].Append(nil, e.old), k.Fields[n].Append(nil, e.rec)) {
		return
	}
	e.errs.Add(k.DefinitionField, "conflict", "the %s %s belongs to another %s and cannot be moved; omit the id to create a new one",
		strings.ReplaceAll(k.Name, "_", " "), k.Meta(e.old).ID, strings.ReplaceAll(k.DefinedBy, "_", " "))
}

// merge applies the line to the stored record and decides what to do.
func (k *kind) merge(ctx context.Context, s *session, e *entry) error {
	if e.old == nil {
		e.change, e.errs = create, append(e.errs, e.missing...)
		k.checkSize(e, record.Measure{})
		return nil
	}
	rec, old := e.rec, e.old
	id := k.Meta(old).ID
	before := k.Measure(old)
	if e.size += 4 * int64(before.Bytes); e.named && e.id != "" && e.id != id { // the record is held until the line is stored
		s.alias[strings.Clone(e.id)] = id
		s.remembered += aliasMemory
	}
	e.id = id
	e.change = keep
	_, defined := k.Defines(old)
	defined = defined.Clone()
	follow := func() {}
	if k.watch != nil {
		follow = k.watch(old)
	}
	if k.apply(old, e, func(f *field.Field) bool {
		return f.Name == "id" || f.Use.Has(declare.Silent) || slices.Contains(k.held, f.Name)
	}) {
		e.change = update
	}
	if e.bytes != nil && e.bytes.Open != nil { // also if the record says the same already
		e.change = update
	}
	k.Derive(old)
	follow()
	if e.change == update && s.mirror == nil { // a mirror rewrites the values of all records
		if err := k.resealed(ctx, s, old, defined, &e.errs); err != nil {
			return err
		}
	}
	if !k.HasSecrets() {
		k.checkSize(e, before)
		return nil
	}
	if !e.asIs && k.supersede(rec, old, e) {
		e.change = update
	}
	changed, err := s.vault.Put(ctx, k.place(id), k.Secrets(old), e.secrets)
	if changed {
		e.change = update
	}
	k.checkSize(e, before)
	return err
}

// resealed refuses a definition that would leave stored values in clear under an encrypted field, or sealed under
// another type, as operations do.
func (k *kind) resealed(ctx context.Context, s *session, def any, before schema.Fields, errs *fault.List) error {
	for _, of := range s.kinds {
		if of.DefinedBy != k.Name {
			continue
		}
		name, after := k.Defines(def)
		if err := of.Resealed(ctx, s.workspace(of.Resource), name, before, after, errs); err != nil {
			return err
		}
	}
	return nil
}

func (k *kind) place(id string) secrets.Place {
	return secrets.Place{Collection: k.Records.Spec().Name, Record: id}
}

// write returns the record as a line. Empty fields are written as null, so that an import empties them, unless the
// line would be too long to be imported. In the line of the organization empty fields are left out, because an
// organization that imports it has switches and limits of its own.
func (k *kind) write(s *session, rec any, asIs bool, secrets map[string]any) []byte {
	line := k.writeLine(s.view, rec, asIs, secrets)
	if len(line) >= 2*strictjson.MaxValues { // a value takes at least two bytes, so a shorter line has fewer values
		if _, err := s.reader.Parse(string(bytes.TrimSuffix(line, []byte("\n")))); err != nil || len(line) > MaxLine {
			line = k.writeLine(nil, rec, asIs, secrets)
		}
	}
	return line
}

// writeLine returns the record as a line. With a view, which knows the definitions, empty fields are written as null.
func (k *kind) writeLine(v *view, rec any, asIs bool, secrets map[string]any) []byte {
	dst := append(append([]byte(`{"kind":"`), k.Name...), '"')
	if asIs {
		dst = append(dst, `,"`+asIsName+`":true`...)
	}
	for i := range k.Fields {
		f := &k.Fields[i]
		mark := len(dst)
		dst = append(strictjson.AppendText(append(dst, ','), f.Name), ':')
		before := len(dst)
		if v == nil || f.Name != k.ValuesName() {
			dst = f.Append(dst, rec)
		} else if values := k.allValues(v, rec, secrets); len(values) > 0 {
			dst = field.AppendJSON(dst, values)
		}
		switch {
		case len(dst) > before:
		case v == nil || k.Name == kindOrganization || f.OmitsFalse() || f.Use.Has(declare.Silent) || k.alwaysSet(f):
			dst = dst[:mark]
		default:
			dst = append(dst, "null"...)
		}
	}
	if len(secrets) > 0 {
		dst = field.AppendJSON(append(dst, `,"`+secretsName+`":`...), secrets)
	}
	return append(dst, "}\n"...)
}

// allValues returns the record's values, with null for each defined field that has neither a value nor a secret.
func (k *kind) allValues(v *view, rec any, secrets map[string]any) map[string]any {
	fields, _ := k.Defined(&v.Known, rec)
	values := *k.Values(rec)
	all := make(map[string]any, len(fields)+len(values))
	for name := range fields {
		if _, has := secrets[name]; !has {
			all[name] = nil
		}
	}
	maps.Copy(all, values)
	return all
}
