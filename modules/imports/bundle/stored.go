package bundle

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/internal/texts"
	"tenantry/tenants"
	"tenantry/tenants/identity"
)

// Members of a line that holds a record as stored. Definitions change after records were stored: fields are dropped, get
// another type or become required, and targets of references are removed. Such a record is exported with "as_is": true
// and imported unchanged; what does not fit is reported as a warning. Its plain values are under their own names and its
// encrypted ones under secrets, whatever the current types of their fields are.
const (
	asIsName    = "as_is"
	secretsName = "secrets"
)

// decodeStored reads a line that an export wrote as stored. Problems of reading and checking it become warnings.
func (k *kind) decodeStored(ctx context.Context, v *view, val strictjson.Value, rec any, e *entry) {
	doubtful := strictjson.Value{Is: strictjson.Object}
	for i := range val.Members {
		name, given := val.Members[i].Name, val.Members[i].Value
		if name == asIsName || name == secretsName && k.HasSecrets() {
			continue
		}
		doubtful.Members = append(doubtful.Members, val.Members[i])
		n, ok := k.Index(name)
		if !ok {
			if name != "kind" {
				e.errs.Add(texts.Clip(name), "unknown", "a %s has no field %q", k.Name, texts.Clip(name))
			}
			continue
		}
		e.given |= 1 << n
		switch f := &k.Fields[n]; {
		case given.Is != strictjson.Null || f.Rule.Required:
			f.ReadStored(given, rec, &e.errs)
		case f.Type.Kind() != reflect.Bool: // a boolean has no empty value: null means the default, which a new record has
			f.Clear(rec)
		}
	}
	k.readNulls(val, e)
	for _, name := range e.emptied {
		delete(*k.Values(rec), name)
	}
	k.Derive(rec)
	e.id = k.Meta(rec).ID
	doubt := &entry{line: e.line, kind: e.kind}
	k.decodeGiven(ctx, v, doubtful, k.Bare(), doubt)
	e.named, e.change, e.warnings = doubt.named, doubt.change, doubt.errs
	for _, wrong := range doubt.errs {
		if field, _, _ := strings.Cut(wrong.Field, "."); slices.Contains(doubt.never, field) || k.grants(field) {
			e.errs = append(e.errs, wrong)
		}
	}
	if k.HasSecrets() {
		k.readSecrets(ctx, v, val.Get(secretsName), rec, e)
	}
	if len(e.errs) == 0 && !e.named && !k.identified(rec) {
		e.errs.Add("id", "required", "a line with %s must give the id", asIsName)
	}
}

// grants reports whether rights follow from the field. Such fields are checked even in a line as stored. Of the
// organization these are all fields. Teams are not among them, because they only narrow rights.
func (k *kind) grants(name string) bool {
	n, ok := k.Index(name)
	switch {
	case k.Name == kindOrganization:
		return true
	case !k.Rights || !ok:
		return false
	}
	f := &k.Fields[n]
	return f.Name == k.KeyField().Name || f.Rule.Ref == identity.RoleResource || f.Type == reflect.TypeFor[[]tenants.Permission]()
}

// withoutUnknown removes permissions and roles that do not exist, and so have no effect, from a record. It reports
// whether it removed any.
func (k *kind) withoutUnknown(v *view, rec any) (changed bool) {
	all := tenants.AllPermissions()
	for i := range k.Fields {
		f := &k.Fields[i]
		if !k.grants(f.Name) {
			continue
		}
		held := reflect.ValueOf(rec).Elem().FieldByIndex(f.Index)
		switch list := held.Interface().(type) {
		case []tenants.Permission:
			unknown := func(p tenants.Permission) bool { return !slices.Contains(all, p) }
			held.Set(reflect.ValueOf(slices.DeleteFunc(slices.Clone(list), unknown)))
			changed = changed || held.Len() < len(list)
		case []string:
			if f.Rule.Ref == identity.RoleResource {
				unknown := func(name string) bool { return !v.Has(f.Rule.Ref, name) }
				held.Set(reflect.ValueOf(slices.DeleteFunc(slices.Clone(list), unknown)))
				changed = changed || held.Len() < len(list)
			}
		}
	}
	return changed
}

// readSecrets reads the encrypted values of a line as stored.
func (k *kind) readSecrets(ctx context.Context, v *view, given strictjson.Value, rec any, e *entry) {
	for name := range *k.Values(rec) {
		if !store.ValidKey(name) {
			e.errs.Add("values", "format", "%q is not a valid field name", texts.Clip(name))
		}
	}
	if given.Is != strictjson.Object {
		if given.Is != strictjson.Null {
			e.errs.Add(secretsName, fault.Type, "%s must be an object", secretsName)
		}
		return
	}
	table := given.Table()
	for name := range table {
		if !store.ValidKey(name) {
			e.errs.Add(secretsName, "format", "%q is not a valid field name", texts.Clip(name))
			delete(table, name)
		}
	}
	e.secrets = v.vault.Take(ctx, k.place(e.id), secretsName, table, func(string) bool { return true }, &e.errs)
}

// supersede removes the values that those of the line replace: a plain value that was stored before its field became
// encrypted, or the reverse.
func (k *kind) supersede(rec, old any, e *entry) (changed bool) {
	for name := range e.secrets {
		if _, there := (*k.Values(old))[name]; there {
			delete(*k.Values(old), name)
			changed = true
		}
	}
	for name := range *k.Values(rec) {
		if _, there := (*k.Secrets(old))[name]; there {
			delete(*k.Secrets(old), name)
			changed = true
		}
	}
	return changed
}

// exportPage bounds how many records are handled together, within store.BatchBytes, so that one query finds their
// dangling references.
const exportPage = 500

// outgoing is a record to be exported. refs are its references to documents.
type outgoing struct {
	line []byte
	asIs func() ([]byte, error) // the line of the record as stored; nil if line already is
	refs []reference
}

type reference struct{ target, id string }

func (k *kind) export(ctx context.Context, s *session, emit func([]byte) error) error {
	if spec := k.Records.Spec(); spec != nil {
		if err := s.workspace(k.Resource).CheckIdentifiers(ctx, spec); err != nil {
			return err // missing records would not be noticed in the bundle
		}
	}
	var page []outgoing
	size := 0
	err := k.inOrder(ctx, s, func(rec any) error {
		out, err := k.outgoing(ctx, s, rec)
		if err != nil {
			return err
		}
		s.hashes.note(rec)
		size += len(out.line)
		if page = append(page, out); len(page) >= exportPage || size >= store.BatchBytes {
			err = s.send(ctx, page, emit)
			clear(page)
			page, size = page[:0], 0
		}
		return err
	})
	if err != nil {
		return err
	}
	return s.send(ctx, page, emit)
}

// inOrder visits all records in the order of their identifiers or, if lines do not give these, of their keys. The
// order is the same wherever the records were imported.
func (k *kind) inOrder(ctx context.Context, s *session, visit func(rec any) error) error {
	ws := s.workspace(k.Resource)
	if k.travels() || k.Single {
		return k.Records.Each(ctx, ws, store.Filter{}, visit)
	}
	key := k.KeyField()
	by := store.F(k.Stored(key.Name))
	for q := (store.Query{Sort: []store.Order{{Field: by}}, State: store.Either, Limit: keyedPage}); ; {
		found, err := k.Records.Find(ctx, ws, q)
		if err != nil {
			return err
		}
		for _, rec := range found {
			q.Filter = store.Where(by, store.OpGt, key.Value(rec))
			if err := visit(rec); err != nil {
				return err
			}
		}
		if len(found) < q.Limit {
			return nil
		}
	}
}

// keyedPage is how many records are read together if their identifiers are not exported. Such records are small.
const keyedPage = 100

// travels reports whether lines give the identifiers of records.
func (k *kind) travels() bool {
	n, ok := k.Index("id")
	return ok && k.Stored(k.Fields[n].Name) == "id"
}

func (k *kind) outgoing(ctx context.Context, s *session, rec any) (out outgoing, err error) {
	fits := true
	var secrets map[string]any
	plain := map[string]any(nil)
	if k.HasSecrets() {
		maps.DeleteFunc(*k.Values(rec), func(_ string, value any) bool { return value == nil }) // null means that there is no value
		plain = maps.Clone(*k.Values(rec))
		if secrets, err = s.vault.Show(ctx, k.place(k.Meta(rec).ID), *k.Secrets(rec)); err != nil {
			return out, err
		}
		fits = k.separable(s.view, rec, plain, secrets)
		if fits && len(secrets) > 0 {
			if *k.Values(rec) == nil {
				*k.Values(rec) = map[string]any{}
			}
			maps.Copy(*k.Values(rec), secrets)
		}
	}
	out.asIs = func() ([]byte, error) {
		if k.HasSecrets() {
			*k.Values(rec) = plain
		}
		s.asIs++
		line := k.write(s, rec, true, secrets)
		return line, k.learn(ctx, s, line)
	}
	if fits {
		out.line = k.write(s, rec, false, nil)
		if fits = k.accepted(ctx, s, out.line); !fits && k.withoutUnknown(s.view, rec) {
			s.unknown++
			out.line = k.write(s, rec, false, nil)
			fits = k.accepted(ctx, s, out.line)
		}
	}
	if !fits {
		out.line, err = out.asIs()
		out.asIs = nil
	}
	k.Refers(rec, func(_, target string, id *string) {
		if *id != "" && !s.named[target].Definition {
			out.refs = append(out.refs, reference{target, *id})
		}
	})
	return out, err
}

// separable reports whether all secret values belong to encrypted fields and all plain ones to others, so that they
// can be written together.
func (k *kind) separable(v *view, rec any, plain, secrets map[string]any) bool {
	secret := k.SecretIn(&v.Known, rec)
	for name := range secrets {
		if !secret(name) {
			return false
		}
	}
	for name := range plain {
		if secret(name) {
			return false
		}
	}
	return true
}

// accepted reports whether an import accepts the line and makes the same record of it. It adds a definition to the
// view, for checking later lines.
func (k *kind) accepted(ctx context.Context, s *session, line []byte) bool {
	val, err := s.reader.Parse(string(bytes.TrimSuffix(line, []byte("\n"))))
	if err != nil {
		return false
	}
	e := k.decode(ctx, s.view, val, 0)
	if len(e.errs) > 0 {
		return false
	}
	s.view.learn(e)
	rec := e.rec
	if len(e.secrets) > 0 {
		if *k.Values(rec) == nil {
			*k.Values(rec) = map[string]any{}
		}
		for name, secret := range e.secrets {
			(*k.Values(rec))[name] = secret.Given
		}
	}
	again := k.write(s, rec, false, nil)
	if bytes.Equal(line, again) {
		return true
	}
	same, err := s.reader.Parse(string(bytes.TrimSuffix(again, []byte("\n"))))
	return err == nil && bytes.Equal(val.AppendCanonical(nil, nil), same.AppendCanonical(nil, nil))
}

// learn adds a definition that is exported as stored to the view.
func (k *kind) learn(ctx context.Context, s *session, line []byte) error {
	val, err := s.reader.Parse(string(bytes.TrimSuffix(line, []byte("\n"))))
	if err != nil {
		return fmt.Errorf("read a line that was written: %w", err)
	}
	e := k.decode(ctx, s.view, val, 0)
	if len(e.errs) > 0 {
		s.tally.problem(0, k.Name, e.errs)
		return nil
	}
	s.view.learn(e)
	return nil
}

// send writes lines. A line with a dangling reference is written as stored.
func (s *session) send(ctx context.Context, page []outgoing, emit func([]byte) error) error {
	missing := map[reference]bool{}
	for _, out := range page {
		for _, r := range out.refs {
			missing[r] = true
		}
	}
	if err := s.dangling(ctx, missing); err != nil {
		return err
	}
	for _, out := range page {
		dangles := slices.ContainsFunc(out.refs, func(r reference) bool { return missing[r] })
		if dangles && out.asIs != nil {
			line, err := out.asIs()
			if err != nil {
				return err
			}
			out.line = line
		}
		if len(out.line) > MaxLine {
			var errs fault.List
			errs.Add("line", "length", "the line of a record has %d bytes, more than an import accepts", len(out.line))
			s.tally.problem(0, sniff(string(out.line)), errs)
		}
		if err := emit(out.line); err != nil {
			return err
		}
	}
	return nil
}
