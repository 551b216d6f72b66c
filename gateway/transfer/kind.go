package transfer

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/secrets"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/internal/texts"
)

// kind is the handler of lines that are records of one store kind.
type kind[T any] struct {
	label   string
	records *store.Kind[T]
	meta    func(*T) *store.Meta
	defines bool
	control bool // the records live in the organization's part of the control workspace
	fields  []field[T]
	uniques []unique[T]
	refs    func(rec *T, visit func(field, target string, id *string))
	// check holds the record against the definitions, once its fields could be read.
	check func(ctx context.Context, v *view, rec *T, e *entry)
	// preset gives a record what holds where its line does not say otherwise.
	preset func(rec *T)
	// fill completes a record that is stored for the first time.
	fill func(rec *T)
	// before is called with new records before they are stored.
	before func(ctx context.Context, s *session, recs []*T) error
	// secrets leads to the sealed values, values to the others; nil where there are none.
	secrets func(*T) *map[string]string
	values  func(*T) *map[string]any
	// secretNames returns which of a record's values are secret.
	secretNames func(v *view, rec *T) func(name string) bool

	index map[string]int
}

// identity says when a unique value tells which record is meant.
type identity byte

const (
	never     identity = iota
	withoutID          // where the line has no id
	always             // also where the line has another id
)

// unique is a value that no two records of a kind share.
type unique[T any] struct {
	field    string
	value    func(*T) string
	identity identity
	// group, where set, is the declared field within which the value is unique.
	group   string
	groupOf func(*T) string
	// number: the value is a whole number.
	number bool
}

// filter matches records that have one of the values.
func (u *unique[T]) filter(group string, values []string) store.Filter {
	f := store.In(u.field, values...)
	if u.number {
		numbers := make([]int64, len(values))
		for i, v := range values {
			numbers[i], _ = strconv.ParseInt(v, 10, 64) // written by value
		}
		f = store.In(u.field, numbers...)
	}
	if u.group != "" {
		f = store.All(store.Eq(u.group, group), f)
	}
	return f
}

// shown returns the name that lines have for the value.
func (u *unique[T]) shown() string {
	switch u.field {
	case "uid":
		return "id"
	case "email_key":
		return "email"
	}
	return u.field
}

func (u *unique[T]) groupIn(rec *T) string {
	if u.groupOf == nil {
		return ""
	}
	return u.groupOf(rec)
}

func (k *kind[T]) name() string     { return k.label }
func (k *kind[T]) definition() bool { return k.defines }

// ready completes the kind.
func (k *kind[T]) ready() *kind[T] {
	k.index = make(map[string]int, len(k.fields))
	for i := range k.fields {
		k.index[k.fields[i].name] = i
	}
	return k
}

func (k *kind[T]) workspace(s *session) *store.Workspace {
	if k.control {
		return s.tenant.People()
	}
	return s.tenant.Workspace()
}

func (k *kind[T]) decode(ctx context.Context, v *view, val strictjson.Value, line int) *entry {
	rec := new(T)
	if k.preset != nil {
		k.preset(rec)
	}
	e := &entry{line: line, kind: k, rec: rec, asIs: val.Get(asIsName).Is == strictjson.True}
	if e.asIs {
		k.decodeStored(ctx, v, val, rec, e)
		return e
	}
	k.decodeGiven(ctx, v, val, rec, e)
	if len(e.errs) == 0 && !e.named && !k.identified(rec) {
		e.digest = digestOf(k.label, val, k.leave(v, rec))
	}
	return e
}

// decodeGiven reads and checks a line that somebody wrote.
func (k *kind[T]) decodeGiven(ctx context.Context, v *view, val strictjson.Value, rec *T, e *entry) {
	for i := range val.Members {
		name := val.Members[i].Name
		if name == "kind" {
			continue
		}
		n, ok := k.index[name]
		if !ok {
			e.errs.Add(texts.Clip(name), "unknown", "a %s has no field %q", k.label, texts.Clip(name))
			continue
		}
		e.given |= 1 << n
		k.fields[n].read(rec, val.Members[i].Value, &e.errs)
	}
	for i := range k.fields {
		f := &k.fields[i]
		if !f.required {
			continue
		}
		if e.given&(1<<i) == 0 {
			e.errs.Add(f.name, "required", "%s is required", f.name)
		} else if len(e.errs) == 0 && blank(f.write(nil, rec)) {
			e.errs.Add(f.name, "required", "%s must not be empty", f.name)
		}
	}
	e.id = k.meta(rec).ID
	e.named = e.id != ""
	if k.check != nil {
		k.checkAll(ctx, v, rec, e)
	}
}

// checkAll checks what could be read even where something could not, so that a line's
// problems are all told at once. Of a field that could not be read that much is said.
func (k *kind[T]) checkAll(ctx context.Context, v *view, rec *T, e *entry) {
	unread := e.errs
	e.errs = nil
	k.check(ctx, v, rec, e)
	found := e.errs
	e.errs = unread
	for _, f := range found {
		told := slices.ContainsFunc(unread, func(u fault.Fault) bool {
			return u.Field == f.Field || strings.HasPrefix(f.Field, u.Field+".") || strings.HasPrefix(u.Field, f.Field+".")
		})
		if !told {
			e.errs.Add(f.Field, f.Code, "%s", f.Message)
		}
	}
}

func blank(written []byte) bool {
	return len(bytes.Trim(written, " \t\"")) == 0
}

func (k *kind[T]) leave(v *view, rec *T) func(string) bool {
	if k.secretNames == nil {
		return nil
	}
	return k.secretNames(v, rec)
}

// identified reports whether a unique value tells which record is meant.
func (k *kind[T]) identified(rec *T) bool {
	for i := range k.uniques {
		if u := &k.uniques[i]; u.identity != never && u.value(rec) != "" {
			return true
		}
	}
	return false
}

func (k *kind[T]) identify(e *entry) []claim {
	rec := e.rec.(*T)
	claims := make([]claim, 0, len(k.uniques)+1)
	for i := range k.uniques {
		u := &k.uniques[i]
		if v := u.value(rec); v != "" {
			identifies := u.identity == always || u.identity == withoutID && !e.named
			claims = append(claims, claim{u.shown(), claimOf(k.label, u.field, u.groupIn(rec), v), identifies})
		}
	}
	return claims
}

func (k *kind[T]) references(e *entry, visit func(field, target string, id *string)) {
	if k.refs == nil {
		return
	}
	k.refs(e.rec.(*T), visit)
	if e.old != nil {
		k.refs(e.old.(*T), visit)
	}
}

func (k *kind[T]) empty(ctx context.Context, s *session) (bool, error) {
	n, err := k.records.In(k.workspace(s)).CountIn(ctx, store.Filter{}, store.Either)
	return n == 0, err
}

func (k *kind[T]) present(ctx context.Context, s *session, ids []string) (map[string]bool, error) {
	found, err := k.records.In(k.workspace(s)).Find(ctx, store.Query{Filter: store.In("id", ids...), State: store.Either})
	if err != nil {
		return nil, err
	}
	there := make(map[string]bool, len(found))
	for i := range found {
		there[k.meta(&found[i]).ID] = true
	}
	return there, nil
}

// stored finds the records that the entries may be.
type stored[T any] struct {
	byID    map[string]*T
	byValue []map[string]*T // of each unique
}

func (k *kind[T]) find(ctx context.Context, s *session, batch []*entry) (stored[T], error) {
	out := stored[T]{byID: map[string]*T{}, byValue: make([]map[string]*T, len(k.uniques))}
	c := k.records.In(k.workspace(s))
	read := func(f store.Filter, note func(*T)) error {
		found, err := c.Find(ctx, store.Query{Filter: f, State: store.Either})
		for i := range found {
			note(&found[i])
		}
		return err
	}
	byID := func(rec *T) { out.byID[k.meta(rec).ID] = rec }
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
	for i := range k.uniques {
		u := &k.uniques[i]
		out.byValue[i] = map[string]*T{}
		groups := map[string][]string{}
		for _, e := range batch {
			rec := e.rec.(*T)
			if v := u.value(rec); v != "" {
				g := u.groupIn(rec)
				groups[g] = append(groups[g], v)
			}
		}
		for g, values := range groups {
			err := read(u.filter(g, values), func(rec *T) {
				if known := out.byID[k.meta(rec).ID]; known != nil {
					rec = known // one copy of each record
				} else {
					byID(rec)
				}
				out.byValue[i][u.groupIn(rec)+"\x00"+u.value(rec)] = rec
			})
			if err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

func (k *kind[T]) compare(ctx context.Context, s *session, batch []*entry) error {
	for _, e := range batch {
		k.relink(s, e)
	}
	if s.isEmpty[k.label] {
		for _, e := range batch {
			if e.change == undecided {
				e.change = create
			}
		}
		return nil
	}
	found, err := k.find(ctx, s, batch)
	if err != nil {
		return err
	}
	for _, e := range batch {
		if e.change != undecided {
			continue
		}
		if k.match(s, &found, e); len(e.errs) > 0 {
			continue
		}
		if err := k.merge(ctx, s, e); err != nil {
			return err
		}
	}
	return nil
}

// relink puts the organization's own identifiers in place of the bundle's.
func (k *kind[T]) relink(s *session, e *entry) {
	if k.refs == nil || len(s.alias) == 0 {
		return
	}
	k.refs(e.rec.(*T), func(_, _ string, id *string) {
		if own, ok := s.alias[*id]; ok {
			*id = own
		}
	})
}

// match finds the record that the entry is, and what it would collide with.
func (k *kind[T]) match(s *session, found *stored[T], e *entry) {
	rec := e.rec.(*T)
	var old *T
	if e.id != "" {
		old = found.byID[e.id]
	}
	for pass := range 2 { // identities first: they decide what a collision is
		for i := range k.uniques {
			u := &k.uniques[i]
			other := found.byValue[i][u.groupIn(rec)+"\x00"+u.value(rec)]
			if other == nil || other == old || u.value(rec) == "" {
				continue
			}
			identifies := u.identity == always || u.identity == withoutID && !e.named
			switch {
			case pass == 0 && identifies && old == nil:
				old = other
			case pass == 1:
				e.errs.Add(u.shown(), "duplicate", "another %s of the organization has the same %s", k.label, u.shown())
			}
		}
	}
	if old != nil {
		e.old = old
	}
}

// merge changes the stored record to what the line says and decides what is to be done.
func (k *kind[T]) merge(ctx context.Context, s *session, e *entry) error {
	if e.old == nil {
		e.change = create
		return nil
	}
	rec, old := e.rec.(*T), e.old.(*T)
	id := k.meta(old).ID
	if e.named && e.id != "" && e.id != id {
		s.alias[e.id] = id
	}
	e.id = id
	e.change = keep
	for i := range k.fields {
		f := &k.fields[i]
		if e.given&(1<<i) == 0 || f.name == "id" || f.silent {
			continue
		}
		before := f.write(nil, old)
		f.copy(old, rec)
		if !bytes.Equal(before, f.write(nil, old)) {
			e.change = update
		}
	}
	if k.secrets == nil {
		return nil
	}
	if !e.asIs && k.supersede(rec, old, e) {
		e.change = update
	}
	changed, err := s.vault.Put(ctx, k.place(id), k.secrets(old), e.secrets)
	if changed {
		e.change = update
	}
	return err
}

func (k *kind[T]) place(id string) secrets.Place {
	return secrets.Place{Collection: k.records.Spec().Name, Record: id}
}

func (k *kind[T]) insert(ctx context.Context, s *session, batch []*entry) error {
	recs := make([]*T, len(batch))
	for i, e := range batch {
		rec := e.rec.(*T)
		if e.id == "" {
			e.id = k.workspace(s).NewID()
		}
		k.meta(rec).ID = e.id
		if len(e.secrets) > 0 {
			if _, err := s.vault.Put(ctx, k.place(e.id), k.secrets(rec), e.secrets); err != nil {
				return err
			}
		}
		if k.fill != nil {
			k.fill(rec)
		}
		recs[i] = rec
	}
	if k.before != nil {
		if err := k.before(ctx, s, recs); err != nil {
			return err
		}
	}
	return k.records.In(k.workspace(s)).Insert(ctx, recs...)
}

func (k *kind[T]) replace(ctx context.Context, s *session, e *entry) error {
	return k.records.In(k.workspace(s)).Replace(ctx, e.old.(*T))
}

// write appends the record as a line.
func (k *kind[T]) write(dst []byte, rec *T) []byte {
	return append(k.writeFields(k.begin(dst), rec), "}\n"...)
}

func (k *kind[T]) begin(dst []byte) []byte {
	dst = append(dst, `{"kind":"`...)
	dst = append(dst, k.label...)
	return append(dst, '"')
}

func (k *kind[T]) writeFields(dst []byte, rec *T) []byte {
	for i := range k.fields {
		f := &k.fields[i]
		mark := len(dst)
		dst = append(dst, ',')
		dst = strictjson.AppendText(dst, f.name)
		dst = append(dst, ':')
		before := len(dst)
		if dst = f.write(dst, rec); len(dst) == before {
			dst = dst[:mark]
		}
	}
	return dst
}

// noteAbsent notes a reference to something the organization does not have.
func noteAbsent(errs *fault.List, field, what string) {
	errs.Add(field, "unknown", "%s names %s that neither the file nor the organization has", field, article(what))
}

func article(what string) string {
	if strings.ContainsRune("aeiou", rune(what[0])) && what != "user" {
		return "an " + what
	}
	return "a " + what
}
