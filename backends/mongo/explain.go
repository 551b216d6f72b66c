package mongo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tenantry/backends/driver"

	"go.mongodb.org/mongo-driver/v2/bson"
)

const (
	// explainTimeout bounds the wait for a plan.
	explainTimeout = 2 * time.Second
	// maxPlan is the depth to which a plan is read.
	maxPlan = 64
)

// Explain returns the plan of MongoDB's planner for a query. It returns an error if the server does not return a plan.
func (w *workspace) Explain(ctx context.Context, q driver.Query) (driver.Plan, error) {
	k, err := w.kind(q.Collection)
	if err != nil {
		return driver.Plan{}, err
	}
	doing := "explain a query of " + k.name
	filter, t, err := w.filter(k, q.Where)
	page := page{limit: int64(q.Limit), offset: int64(q.Offset)}
	if err == nil && q.Limit > 0 && (len(q.Sort) > 0 || !k.one(q.Where)) {
		page.order, page.places, err = w.sort(k, q.Sort)
	}
	if err != nil {
		return driver.Plan{}, fmt.Errorf("%s: %w", doing, err)
	}
	found := driver.Plan{Fields: w.engine.builder.fields(w.space, k, indexableKeys(q.Where))}
	if t == never {
		return found, w.idle(ctx, doing)
	}
	command := bson.D{
		{Key: "find", Value: k.name}, {Key: "filter", Value: filter},
		{Key: "limit", Value: int64(q.Limit)}, {Key: "skip", Value: int64(q.Offset)},
	}
	if page.order != nil {
		command = append(command, bson.E{Key: "sort", Value: page.order})
	}
	if q.Limit == 0 || len(page.places) > 0 {
		stages := k.stages(filter, &page)
		if q.Limit == 0 {
			stages = append(matching(filter), bson.D{{Key: "$group", Value: bson.D{
				{Key: "_id", Value: int32(1)}, {Key: "n", Value: op("$sum", int32(1))},
			}}})
		}
		command = bson.D{
			{Key: "aggregate", Value: k.name}, {Key: "pipeline", Value: stages}, {Key: "cursor", Value: bson.D{}},
		}
	}
	err = w.call(ctx, doing, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, explainTimeout)
		defer cancel()
		explain := bson.D{{Key: "explain", Value: command}, {Key: "verbosity", Value: "queryPlanner"}}
		raw, err := k.coll.Database().RunCommand(ctx, explain).Raw()
		if err != nil {
			return err
		}
		p := planned{shape: k.shape}
		p.read(raw, false, 0)
		found.Index, found.Every = p.index, p.every
		if !p.seen {
			return fault{errors.New("the server returned no plan")}
		}
		return nil
	})
	return found, err
}

// indexableKeys returns the keys of conditions on custom values that an index could serve, sorted.
func indexableKeys(p driver.Predicate) (keys []string) {
	for _, kid := range p.Kids {
		keys = append(keys, indexableKeys(kid)...)
	}
	indexable := p.Op == driver.Eq || p.Op == driver.In || p.Op >= driver.Gt && p.Op <= driver.Lte ||
		p.Op == driver.StartsWith || p.Op == driver.StartsWithFold
	if indexable && p.Ref.Custom {
		keys = append(keys, p.Ref.Name)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// fields returns the states of the index on custom values, for each of the keys.
func (b *builder) fields(s *space, k *kind, keys []string) (all []driver.IndexStatus) {
	if s == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t := s.tasks[k.signature]
	for _, key := range keys {
		x := driver.IndexStatus{Database: s.db.Name(), Collection: k.name, Index: key}
		if t != nil {
			for _, d := range k.indexes {
				if reason, refused := t.refused[d.name]; d.wildcard && refused {
					x.State, x.Reason = driver.IndexRefused, reason
				} else if d.wildcard {
					x.State = map[bool]driver.IndexState{true: driver.IndexReady, false: driver.IndexBuilding}[t.done]
				}
			}
		}
		all = append(all, x)
	}
	return all
}

// planned collects what a plan says about finding documents.
type planned struct {
	*shape
	seen  bool   // the plan has a stage that reads the collection
	index string // index of the first such stage
	every bool   // some stage reads all documents or entries
}

// read walks through an answer of explain, which servers and routers of different versions nest differently. With any
// it descends into every member.
func (p *planned) read(raw []byte, any bool, depth int) {
	if depth > maxPlan {
		return
	}
	var stage, index string
	var keys, bounds bson.Raw
	_ = eachElement(raw, func(key []byte, v bson.RawValue) error { // malformed BSON ends the walk
		switch name := string(key); {
		case name == "stage":
			stage, _ = v.StringValueOK()
		case name == "indexName":
			index, _ = v.StringValueOK()
		case name == "keyPattern" && v.Type == bson.TypeEmbeddedDocument:
			keys = v.Value
		case name == "indexBounds" && v.Type == bson.TypeEmbeddedDocument:
			bounds = v.Value
		}
		return nil
	})
	p.note(stage, index, keys, bounds)
	_ = eachElement(raw, func(key []byte, v bson.RawValue) error {
		switch string(key) {
		case "queryPlanner", "winningPlan", "queryPlan", "inputStage", "inputStages", "outerStage", "innerStage",
			"thenStage", "elseStage", "shards", "stages", "$cursor":
		default:
			if !any {
				return nil
			}
		}
		switch v.Type {
		case bson.TypeEmbeddedDocument:
			p.read(v.Value, string(key) == "shards", depth+1) // the shards of an aggregation are members by name
		case bson.TypeArray:
			return eachElement(v.Value, func(_ []byte, v bson.RawValue) error {
				if v.Type == bson.TypeEmbeddedDocument {
					p.read(v.Value, false, depth+1)
				}
				return nil
			})
		}
		return nil
	})
}

// note records the index by which a stage reads the collection.
func (p *planned) note(stage, index string, keys, bounds bson.Raw) {
	every := false
	switch {
	case stage == "EOF": // the collection is missing or empty
		p.seen = true
		return
	case stage == "COLLSCAN":
		index, every = "", true
	case stage == "IDHACK" || strings.Contains(stage, "CLUSTERED_IXSCAN"):
		index = "id"
	case strings.HasSuffix(stage, "IXSCAN") || stage == "COUNT_SCAN" || stage == "DISTINCT_SCAN":
		every = unbounded(bounds)
		if index = p.declaredName(index, keys); index == "id" && every {
			index = ""
		}
	default:
		return
	}
	if !p.seen {
		p.index = index
	}
	p.seen, p.every = true, p.every || every
}

// declaredName returns the declared name of an index: "id" for the index on the identifier, and the key for an index
// on a custom value.
func (p *planned) declaredName(name string, keys bson.Raw) string {
	for _, d := range p.indexes {
		switch {
		case d.name != name:
		case d.wildcard:
			if all, err := keys.Elements(); err == nil && len(all) > 0 {
				if key, is := strings.CutPrefix(all[len(all)-1].Key(), fieldCustom+"."); is {
					return decodeKey(key)
				}
			}
			return fieldCustom
		case d.declared != "":
			return d.declared
		default:
			return "id"
		}
	}
	if name == "_id_" {
		return "id"
	}
	return name
}

// unbounded reports whether the bounds include every index entry of the organization.
func unbounded(bounds bson.Raw) bool {
	if start, ok := bounds.Lookup("startKey").DocumentOK(); ok { // the bounds of a count
		end, _ := bounds.Lookup("endKey").DocumentOK()
		all, _ := start.Elements()
		return len(all) > 0 && !slices.ContainsFunc(all, func(e bson.RawElement) bool {
			from, to := e.Value().Type, end.Lookup(e.Key()).Type
			return e.Key() != fieldOrg && !(from == bson.TypeMinKey && to == bson.TypeMaxKey ||
				from == bson.TypeMaxKey && to == bson.TypeMinKey)
		})
	}
	all, err := bounds.Elements()
	return err == nil && len(all) > 0 && !slices.ContainsFunc(all, func(e bson.RawElement) bool {
		if e.Key() == fieldOrg {
			return false
		}
		list, _ := e.Value().ArrayOK()
		ranges, err := list.Values()
		if err != nil || len(ranges) == 0 {
			return true
		}
		first, _ := ranges[0].StringValueOK()
		allPaths := e.Key() == "$_path" && strings.HasPrefix(first, "[MinKey")
		return first != "[MinKey, MaxKey]" && first != "[MaxKey, MinKey]" && !allPaths
	})
}
