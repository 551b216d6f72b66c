package mongo

import (
	"bytes"
	"context"
	"time"

	"tenantry/backends/driver"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// validator returns the JSON Schema by which the server checks documents of the collection, whichever program writes
// them. It covers what this package reads and what queries rely on. Undeclared fields may have any value.
func (s *shape) validator() bson.D {
	typed := func(name string, types ...string) bson.E {
		return bson.E{Key: name, Value: bson.D{{Key: "bsonType", Value: types}}}
	}
	properties := bson.D{
		typed(fieldID, "string"), typed(fieldOrg, "string"), typed(fieldRev, "long", "int"),
		typed(fieldCustom, "object"), typed(fieldJSON, "object"),
	}
	for _, f := range s.fields {
		switch {
		case f.Type == driver.Strings:
			properties = append(properties, bson.E{Key: column(f.Name), Value: bson.D{
				{Key: "bsonType", Value: []string{"array", "null"}},
				{Key: "items", Value: bson.D{{Key: "bsonType", Value: "string"}}},
			}})
		case numeric(f.Type):
			properties = append(properties, typed(column(f.Name), "long", "int", "double", "null"))
		case f.Type != driver.Any:
			properties = append(properties, typed(column(f.Name), bsonType(f.Type), "null"))
		}
	}
	return bson.D{{Key: "$jsonSchema", Value: bson.D{
		{Key: "bsonType", Value: "object"}, {Key: "required", Value: []string{fieldID, fieldOrg, fieldRev}},
		{Key: "properties", Value: properties},
	}}}
}

// guard sets the validator of the collection, at the level moderate: existing documents that violate it can still be
// changed. If the server does not support validators, Inspect reports it. An error means that another try may succeed.
func (b *builder) guard(t *task) error {
	b.mu.Lock()
	cannot := b.unguarded != ""
	b.mu.Unlock()
	if cannot {
		return nil
	}
	want, err := bson.Marshal(t.kind.validator())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(b.ctx, maxBuild)
	defer cancel()
	t.space.indexing.Add(1)
	defer t.space.indexing.Add(-1)
	if t.space.dropped.Load() {
		return nil
	}
	there, err := t.space.db.ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: t.kind.name}})
	if err == nil && len(there) == 1 {
		if v, ok := there[0].Options.Lookup("validator").DocumentOK(); ok && bytes.Equal(v, want) {
			return nil
		}
	}
	if err == nil {
		err = t.space.db.RunCommand(ctx, bson.D{
			{Key: "collMod", Value: t.kind.name}, {Key: "validator", Value: bson.Raw(want)},
			{Key: "validationLevel", Value: "moderate"}, {Key: "validationAction", Value: "error"},
		}).Err()
	}
	if err == nil {
		return nil
	}
	v, judged := b.engine.judge(ctx, true, time.Now(), err)
	if v != answered {
		return judged
	}
	b.mu.Lock()
	b.unguarded = judged.Error()
	b.mu.Unlock()
	b.engine.opts.Log.Info("MongoDB does not check documents",
		"database", t.space.db.Name(), "collection", t.kind.name, "reason", judged)
	return nil
}

// unguarded returns a finding if the server does not check documents.
func (e *Engine) unguarded() []driver.Finding {
	e.builder.mu.Lock()
	unguarded := e.builder.unguarded
	e.builder.mu.Unlock()
	if unguarded == "" {
		return nil
	}
	return []driver.Finding{{
		Subject: "documents", Verdict: driver.FindingWarning,
		Says:   "are not checked by the server when they are written: " + unguarded,
		Advice: "no action is needed if no other program writes to them; MongoDB itself checks them",
	}}
}
