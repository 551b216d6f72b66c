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
	// explainFor bounds the wait for a plan, which the caller wants beside the answer.
	explainFor = 2 * time.Second
	// maxPlan is how deep a plan is read.
	maxPlan = 64
)

// Explain tells how MongoDB's planner would find what a question asks for. Errors: also where the server does not tell.
func (w *workspace) Explain(ctx context.Context, q driver.Query) (driver.Plan, error) {
	k, err := w.kind(q.Collection)
	if err != nil {
		return driver.Plan{}, err
	}
	doing := "explain a question about " + k.name
	filter, t, err := w.filter(k, q.Where)
	page := page{limit: int64(q.Limit), offset: int64(q.Offset)}
	if err == nil && q.Limit > 0 && (len(q.Sort) > 0 || !k.one(q.Where)) {
		page.order, page.places, err = w.sort(k, q.Sort)
	}
	if err != nil {
		return driver.Plan{}, fmt.Errorf("%s: %w", doing, err)
	}
	found := driver.Plan{Fields: w.engine.builder.fields(w.space, k, sought(q.Where))}
	if t == never {
		return found, w.idle(ctx, doing)
	}
	command := bson.D{{Key: "find", Value: k.name}, {Key: "filter", Value: filter}, {Key: "limit", Value: int64(q.Limit)}, {Key: "skip", Value: int64(q.Offset)}}
	if page.order != nil {
		command = append(command, bson.E{Key: "sort", Value: page.order})
	}
	if q.Limit == 0 || len(page.places) > 0 {
		stages := k.stages(filter, &page)
		if q.Limit == 0 {
			stages = append(matching(filter), bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: int32(1)}, {Key: "n", Value: op("$sum", int32(1))}}}})
		}
		command = bson.D{{Key: "aggregate", Value: k.name}, {Key: "pipeline", Value: stages}, {Key: "cursor", Value: bson.D{}}}
	}
	err = w.call(ctx, doing, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, explainFor)
		defer cancel()
		raw, err := k.coll.Database().RunCommand(ctx, bson.D{{Key: "explain", Value: command}, {Key: "verbosity", Value: "queryPlanner"}}).Raw()
		if err != nil {
			return err
		}
		p := planned{shape: k.shape}
		p.read(raw, false, 0)
		found.Index, found.Every = p.index, p.every
		if !p.told {
			return fault{errors.New("the server tells no plan")}
		}
		return nil
	})
	return found, err
}

// sought returns the keys of conditions on custom values that an index could serve, sorted.
func sought(p driver.Predicate) (keys []string) {
	for _, kid := range p.Kids {
		keys = append(keys, sought(kid)...)
	}
	if p.Op == driver.Eq || p.Op == driver.In || p.Op >= driver.Gt && p.Op <= driver.Lte || p.Op == driver.StartsWith || p.Op == driver.StartsWithFold {
		if p.Ref.Custom {
			keys = append(keys, p.Ref.Name)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// fields tells of the index on those custom values.
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

// planned is what a plan says of how documents are found.
type planned struct {
	*shape
	told  bool
	index string // of the way that comes first
	every bool   // some way looks at all
}

// read goes through an answer of explain, as servers and routers of several versions nest it. With any it goes into
// whatever is there.
func (p *planned) read(raw []byte, any bool, depth int) {
	if depth > maxPlan {
		return
	}
	var stage, index string
	var keys, bounds bson.Raw
	_ = eachElement(raw, func(key []byte, v bson.RawValue) error { // what is broken ends there
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
	p.way(stage, index, keys, bounds)
	_ = eachElement(raw, func(key []byte, v bson.RawValue) error {
		switch string(key) {
		case "queryPlanner", "winningPlan", "queryPlan", "inputStage", "inputStages", "outerStage", "innerStage", "thenStage", "elseStage", "shards", "stages", "$cursor":
		default:
			if !any {
				return nil
			}
		}
		switch v.Type {
		case bson.TypeEmbeddedDocument:
			p.read(v.Value, string(key) == "shards", depth+1) // those of an aggregation are by name
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

// way notes of a stage by which index it enters the collection.
func (p *planned) way(stage, index string, keys, bounds bson.Raw) {
	every := false
	switch {
	case stage == "EOF": // there is nothing
		p.told = true
		return
	case stage == "COLLSCAN":
		index, every = "", true
	case stage == "IDHACK" || strings.Contains(stage, "CLUSTERED_IXSCAN"):
		index = "id"
	case strings.HasSuffix(stage, "IXSCAN") || stage == "COUNT_SCAN" || stage == "DISTINCT_SCAN":
		every = whole(bounds)
		if index = p.called(index, keys); index == "id" && every {
			index = ""
		}
	default:
		return
	}
	if !p.told {
		p.index = index
	}
	p.told, p.every = true, p.every || every
}

// called returns the name of an index as it is declared: "id" for that of the key, of a custom value its key.
func (p *planned) called(name string, keys bson.Raw) string {
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

// whole reports whether the bounds admit every entry that the index has of the organization.
func whole(bounds bson.Raw) bool {
	if start, ok := bounds.Lookup("startKey").DocumentOK(); ok { // of a count
		end, _ := bounds.Lookup("endKey").DocumentOK()
		all, _ := start.Elements()
		return len(all) > 0 && !slices.ContainsFunc(all, func(e bson.RawElement) bool {
			from, to := e.Value().Type, end.Lookup(e.Key()).Type
			return e.Key() != fieldOrg && !(from == bson.TypeMinKey && to == bson.TypeMaxKey || from == bson.TypeMaxKey && to == bson.TypeMinKey)
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
		return first != "[MinKey, MaxKey]" && first != "[MaxKey, MinKey]" && !(e.Key() == "$_path" && strings.HasPrefix(first, "[MinKey")) // of all paths
	})
}
