package mongo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tenantry/backends/driver"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// The former layout, format 1, kept record and custom values as JSON text, beside copies for questions:
//
//	{_id, org_id, rev, body: "<JSON>", custom: "<JSON>", f: {<field>: value}, c: {<custom key>: scalar}, l: {<custom key>: [strings]}}
//
// While some of its documents lie in a collection, questions first bring the values they ask for to one place,
// whatever the layout; what is written has the present layout, and unique values in f too, so that the
// unique indexes of both see them.

// former collects the values that a question brings to one place, under names that no field has.
type former struct{ needs bson.D }

// unify returns the operand's place in the question.
func (k *kind) unify(o operand, name string) operand {
	if k.old == nil {
		return o
	}
	key := encodeKey(name)
	place, then := "%d_"+key, any("$f."+key)
	switch {
	case o.custom && o.typ == driver.Strings:
		place, then = "%l_"+key, op("$ifNull", "$l."+key, "$c."+key)
	case o.custom:
		place, then = "%c_"+key, "$c."+key
	case o.typ == driver.Time:
		then = when(op("$gt", "$f."+key, nil), op("$toDate", "$f."+key))
	}
	if !slices.ContainsFunc(k.old.needs, func(e bson.E) bool { return e.Key == place }) {
		k.old.needs = append(k.old.needs, bson.E{Key: place, Value: op("$cond", op("$gt", "$"+fieldBody, nil), then, "$"+o.path)})
	}
	o.path = place
	return o
}

// matching returns the stages that find what the question is about. The filter begins with the workspace.
func (k *kind) matching(filter bson.D) bson.A {
	match := func(f bson.D) bson.D { return bson.D{{Key: "$match", Value: f}} }
	if k.old == nil || len(k.old.needs) == 0 {
		return bson.A{match(filter)}
	}
	return bson.A{match(filter[:1]), bson.D{{Key: "$addFields", Value: k.old.needs}}, match(filter)}
}

// find asks for documents, in one command with either layout.
func (k *kind) find(ctx context.Context, filter bson.D, p *page) (*mongo.Cursor, error) {
	if !k.staged(p) {
		return k.coll.Find(ctx, filter, p)
	}
	return k.coll.Aggregate(ctx, k.stages(filter, p), options.Aggregate().SetAllowDiskUse(true).SetBatchSize(p.batch))
}

// staged reports whether documents are found by stages: something that is asked for, or sorted by, has to be brought to a place first.
func (k *kind) staged(p *page) bool { return len(p.places) > 0 || k.old != nil && len(k.old.needs) > 0 }

// stages returns those that find documents.
func (k *kind) stages(filter bson.D, p *page) bson.A {
	stages := k.matching(filter)
	if len(p.places) > 0 {
		stages = append(stages, bson.D{{Key: "$addFields", Value: p.places}})
	}
	if p.order != nil {
		stages = append(stages, bson.D{{Key: "$sort", Value: p.order}})
	}
	if p.offset > 0 {
		stages = append(stages, bson.D{{Key: "$skip", Value: p.offset}})
	}
	made, without := slices.Clone(p.places), bson.D{}
	if k.old != nil {
		made = append(made, k.old.needs...)
	}
	for _, e := range made {
		without = append(without, bson.E{Key: e.Key, Value: int32(0)})
	}
	return append(stages, bson.D{{Key: "$limit", Value: p.limit}}, bson.D{{Key: "$project", Value: without}})
}

func (k *kind) count(ctx context.Context, filter bson.D) (int64, error) {
	if k.old == nil || len(k.old.needs) == 0 {
		return k.coll.CountDocuments(ctx, filter)
	}
	cursor, err := k.coll.Aggregate(ctx, append(k.matching(filter), bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: nil}, {Key: "n", Value: op("$sum", int32(1))}}}}))
	if err != nil {
		return 0, err
	}
	defer func() { _ = cursor.Close(ctx) }()
	if !cursor.Next(ctx) {
		return 0, cursor.Err()
	}
	return cursor.Current.Lookup("n").AsInt64(), nil
}

// former appends the unique values as the former layout has them.
func (k *kind) former(b []byte, values []any) []byte {
	unique := k.uniques()
	if len(unique) == 0 {
		return b
	}
	at, b := bsoncore.AppendDocumentElementStart(b, "f")
	for i, f := range k.fields {
		if values[i] == nil || !slices.ContainsFunc(unique, func(d definition) bool {
			return slices.ContainsFunc(d.keys, func(e bson.E) bool { return e.Key == column(f.Name) })
		}) {
			continue
		}
		if _, err := stored(f, values[i]); err == nil {
			b = appendStored(b, f.Name, values[i])
		}
	}
	b, _ = bsoncore.AppendDocumentEnd(b, at) // it was begun above
	return b
}

// isFormer reports whether the document has the former layout.
func isFormer(raw bson.Raw) bool { return raw.Lookup(fieldBody).Type == bson.TypeString }

// upgraded returns the document in the present layout, itself where it has that.
func (k *kind) upgraded(raw bson.Raw) (bson.Raw, error) {
	if !isFormer(raw) {
		return raw, nil
	}
	org, ok := raw.Lookup(fieldOrg).StringValueOK()
	if !ok {
		return nil, errors.New("it has no org_id")
	}
	d, err := (&workspace{name: org}).decode(k, raw)
	if err != nil {
		return nil, err
	}
	d.Values = make([]any, len(k.fields))
	copies, _ := raw.Lookup("f").DocumentOK()
	for i, f := range k.fields {
		if d.Values[i], err = formerValue(copies.Lookup(f.Name)); err != nil {
			return nil, fmt.Errorf("field %s: %w", f.Name, err)
		}
	}
	return k.document(org, &d, d.Rev)
}

// formerValue returns the copy of a declared value.
func formerValue(v bson.RawValue) (any, error) {
	if v.Type != bson.TypeArray {
		return portable(v)
	}
	values, err := v.Array().Values()
	if err != nil {
		return nil, errors.New("it is no BSON")
	}
	list := make([]string, 0, len(values))
	for _, e := range values {
		if s, ok := e.StringValueOK(); ok {
			list = append(list, s)
		}
	}
	return list, nil
}

const (
	// upgradePage is how many documents are read, and replaced, at a time, unless they take more than
	// upgradeBytes.
	upgradePage  = 500
	upgradeBytes = 8 << 20
)

// upgrade brings the documents of a collection to the present layout, in order of _id, each unless somebody changes
// it meanwhile, who does so himself. Then it takes back what the former layout needed. An error says that it is worth
// another try, which passes over what is done.
func (b *builder) upgrade(t *task) error {
	if !t.former {
		return nil
	}
	k := &kind{shape: t.kind.shape, coll: t.kind.coll, old: &former{}}
	b.mu.Lock()
	t.upgraded = 0
	b.mu.Unlock()
	for after := ""; ; {
		page, err := b.former(k, after)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return b.finished(k, t)
		}
		if err := b.replace(k, t, page); err != nil {
			return err
		}
		after, _ = page[len(page)-1].Lookup(fieldID).StringValueOK()
	}
}

// former reads the documents after an _id, of either layout.
func (b *builder) former(k *kind, after string) (page []bson.Raw, err error) {
	err = b.engine.call(b.ctx, "read documents of "+k.name+" to upgrade them", func(ctx context.Context) error {
		cursor, err := k.coll.Find(ctx, bson.D{{Key: fieldID, Value: bson.D{{Key: "$gt", Value: after}}}},
			options.Find().SetSort(bson.D{{Key: fieldID, Value: int32(1)}}).SetLimit(upgradePage).SetBatchSize(batch(upgradePage)))
		if err != nil {
			return err
		}
		defer func() { _ = cursor.Close(ctx) }()
		page = nil
		for size := 0; size < upgradeBytes && cursor.Next(ctx); size += len(cursor.Current) {
			page = append(page, slices.Clone(cursor.Current))
		}
		return cursor.Err()
	})
	return page, err
}

// replace brings those of the page to the present layout that have the former, but for those that cannot be read, or that the
// server refuses: they are told, and keep what questions about their declared values find.
func (b *builder) replace(k *kind, t *task, page []bson.Raw) error {
	var replacements []mongo.WriteModel
	var replaced, kept []bson.Raw
	at := func(raw bson.Raw) bson.D {
		return bson.D{
			{Key: fieldOrg, Value: bson.D{{Key: "$eq", Value: raw.Lookup(fieldOrg)}}}, {Key: fieldID, Value: bson.D{{Key: "$eq", Value: raw.Lookup(fieldID)}}},
			{Key: fieldRev, Value: bson.D{{Key: "$eq", Value: raw.Lookup(fieldRev)}}}, {Key: fieldBody, Value: bson.D{{Key: "$exists", Value: true}}},
		}
	}
	for _, raw := range page {
		doc, err := k.upgraded(raw)
		if err != nil {
			b.engine.note(k, raw, err)
		}
		switch {
		case !isFormer(raw):
		case err != nil:
			kept = append(kept, raw)
		default:
			replaced = append(replaced, raw)
			replacements = append(replacements, mongo.NewReplaceOneModel().SetReplacement(doc).SetFilter(at(raw)))
		}
	}
	if len(replacements) > 0 {
		var refused []bson.Raw
		if err := b.engine.call(b.ctx, "bring documents to the present layout", func(ctx context.Context) error {
			_, err := k.coll.BulkWrite(ctx, replacements, options.BulkWrite().SetOrdered(false))
			var bulk mongo.BulkWriteException
			if !errors.As(err, &bulk) || bulk.WriteConcernError != nil || passing(bulk) || locked(bulk) {
				return err
			}
			refused = nil
			for _, e := range bulk.WriteErrors {
				refused = append(refused, replaced[e.Index])
				b.engine.note(k, replaced[e.Index], fmt.Errorf("MongoDB refused it in the present layout (code %d)", e.Code))
			}
			return nil
		}); err != nil {
			return err
		}
		kept = append(kept, refused...)
		b.mu.Lock()
		t.upgraded += len(replacements) - len(refused)
		b.mu.Unlock()
	}
	for _, raw := range kept {
		copies := k.copies(raw)
		if len(copies) == 0 {
			continue
		}
		if err := b.engine.call(b.ctx, "keep the values of a document of the former layout", func(ctx context.Context) error {
			_, err := k.coll.UpdateOne(ctx, at(raw), bson.D{{Key: "$set", Value: copies}})
			if mongo.IsDuplicateKeyError(err) { // another has them
				return nil
			}
			return err
		}); errors.Is(err, driver.ErrUnavailable) {
			return err
		}
	}
	return nil
}

// copies returns the declared values of a document of the former layout as the present one has them, so that what is unique
// stays so.
func (k *kind) copies(raw bson.Raw) (all bson.D) {
	copies, _ := raw.Lookup("f").DocumentOK()
	for _, f := range k.fields {
		v, err := formerValue(copies.Lookup(f.Name))
		if err != nil || v == nil {
			continue
		}
		if v, err = stored(f, v); err == nil {
			all = append(all, bson.E{Key: column(f.Name), Value: v})
		}
	}
	return all
}

// finished takes away what only the former layout needed, and writes down that the collection has no document of it
// any more.
func (b *builder) finished(k *kind, t *task) error {
	ctx, cancel := context.WithTimeout(b.ctx, maxBuild)
	defer cancel()
	unset := func() error {
		_, err := k.coll.UpdateMany(ctx, bson.D{{Key: "f", Value: bson.D{{Key: "$exists", Value: true}}}, {Key: fieldBody, Value: bson.D{{Key: "$exists", Value: false}}}},
			bson.D{{Key: "$unset", Value: bson.D{{Key: "f", Value: ""}}}})
		return err
	}
	err := func() error {
		if err := unset(); err != nil {
			return err
		}
		if err := k.dropFormer(ctx); err != nil {
			return err
		}
		_, err := t.space.db.Collection(metaCollection).UpdateOne(ctx, bson.D{{Key: fieldID, Value: bson.D{{Key: "$eq", Value: "format"}}}},
			bson.D{{Key: "$pull", Value: bson.D{{Key: "upgrading", Value: k.name}}}})
		return err
	}()
	if err != nil {
		_, err = b.engine.judge(ctx, true, time.Now(), err)
		return err
	}
	t.space.upgraded.Store(k.name, true)
	t.former = false
	if err := unset(); err != nil { // what was written meanwhile; nothing reads it
		b.engine.opts.Log.Warn("documents keep values that only the former layout needed", "database", t.space.db.Name(), "collection", k.name, "error", err)
	}
	b.engine.opts.Log.Info("documents have the present layout", "database", t.space.db.Name(), "collection", k.name)
	return nil
}

// dropFormer drops the indexes of the former layout.
func (k *kind) dropFormer(ctx context.Context) error {
	all, err := k.list(ctx)
	if err != nil {
		return err
	}
	for _, x := range all {
		ours := len(x.Key) > 1 && x.Key[0].Key == fieldOrg && slices.ContainsFunc(x.Key, func(e bson.E) bool {
			return strings.HasPrefix(e.Key, "f.") || e.Key == "c.$**" || e.Key == "l.$**"
		})
		if !ours {
			continue
		}
		if err := k.coll.Indexes().DropOne(ctx, x.Name); err != nil {
			return err
		}
	}
	return nil
}

// has reports whether documents of the former layout may lie in the collection.
func (s *space) has(collection string) bool {
	if s == nil {
		return false
	}
	names := s.former.Load()
	if names == nil || !slices.Contains(*names, collection) {
		return false
	}
	_, upgraded := s.upgraded.Load(collection) // whoever reads the list may be late
	return !upgraded
}

// left returns the collections that has is true of.
func (s *space) left() []string {
	names := s.former.Load()
	if names == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(*names), func(name string) bool { return !s.has(name) })
}

// begin writes down which collections may have documents of the former layout: all that are there.
// found is the format of the database, 0 where it says none. It reports whether there are any.
func (s *space) begin(ctx context.Context, found int64) (bool, error) {
	names, err := s.collections(ctx)
	if err != nil {
		return false, err
	}
	names = slices.DeleteFunc(append([]string{}, names...), func(name string) bool { return name == counterCollection })
	if found == 0 {
		if some, err := s.filled(ctx, names); err != nil || !some {
			return false, err
		}
	}
	at := bson.D{{Key: fieldID, Value: bson.D{{Key: "$eq", Value: "format"}}}}
	if found == 0 {
		_, err = s.db.Collection(metaCollection).UpdateOne(ctx, at, bson.D{{Key: "$setOnInsert", Value: bson.D{{Key: "format", Value: int64(format)}, {Key: "upgrading", Value: names}}}},
			options.UpdateOne().SetUpsert(true))
		if mongo.IsDuplicateKeyError(err) { // another process wrote it
			err = nil
		}
		return true, err
	}
	_, err = s.db.Collection(metaCollection).UpdateOne(ctx, append(at, bson.E{Key: "format", Value: bson.D{{Key: "$lt", Value: int64(format)}}}),
		bson.D{{Key: "$set", Value: bson.D{{Key: "format", Value: int64(format)}, {Key: "upgrading", Value: names}}}})
	return true, err
}

// filled reports whether a document lies in one of the collections. Where none does, and no format is said, another process
// may be making a new database: it says the format once its collections are there, and writes after that.
func (s *space) filled(ctx context.Context, names []string) (bool, error) {
	for _, name := range names {
		var workspaces []bson.RawValue
		if err := s.db.Collection(name).Distinct(ctx, fieldOrg, bson.D{}).Decode(&workspaces); err != nil || len(workspaces) > 0 {
			return err == nil, err
		}
	}
	return false, nil
}

// maxOdd bounds the documents that are remembered for an operator.
const maxOdd = 100

// note remembers a document that cannot be read or brought to the present layout, and tells of it once.
func (e *Engine) note(k *kind, raw bson.Raw, reason error) {
	name := k.coll.Database().Name() + "." + k.name + " " + clip(raw.Lookup(fieldID).String())
	e.mu.Lock()
	_, known := e.odd[name]
	if known = known || len(e.odd) >= maxOdd; !known {
		e.odd[name] = reason.Error()
	}
	e.mu.Unlock()
	if !known {
		e.opts.Log.Warn("a document is left as it is", "document", name, "reason", reason)
	}
}

// documents tells of what lies in the databases that have been opened.
func (e *Engine) documents() (found []driver.Finding) {
	const subject = "documents"
	spaces := e.spaces.Values()
	e.builder.mu.Lock()
	var left []string
	for _, s := range spaces {
		for _, name := range s.left() {
			state := s.db.Name() + "." + name
			for _, t := range s.tasks {
				if t.kind.name == name {
					state += fmt.Sprintf(" (done: %d)", t.upgraded)
					if t.stopped != "" {
						state += " stopped: " + t.stopped
					}
				}
			}
			left = append(left, state)
		}
	}
	unguarded := e.builder.unguarded
	e.builder.mu.Unlock()
	if unguarded != "" {
		found = append(found, driver.Finding{Subject: subject, Verdict: driver.FindingWarning, Says: "are not checked by the server when they are written: " + unguarded,
			Advice: "nothing to do where nobody else writes to them; MongoDB checks them"})
	}
	if len(left) > 0 {
		slices.Sort(left)
		found = append(found, driver.Finding{Subject: subject, Verdict: driver.FindingWarning,
			Says:   "are being brought to the present layout: " + clip(strings.Join(left, ", ")),
			Advice: "questions about them read every document of the organization until then; see that no older version serves the same data"})
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(e.odd)) {
		found = append(found, driver.Finding{Subject: subject, Verdict: driver.FindingWarning,
			Says: name + ": " + e.odd[name], Advice: "restore, correct or remove it"})
	}
	return found
}
