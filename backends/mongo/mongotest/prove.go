package mongotest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tenantry/backends/driver"
	engine "tenantry/backends/mongo"
	"tenantry/crypto/secret"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Question is a query of a collection: for values of fields, in a declared order or none.
type Question struct {
	Where driver.Predicate
	Sort  []driver.Order
}

// CustomKey is the key of the custom value in the documents of a proof, which is "0" to "9".
const CustomKey = "plan"

// proofSize is the number of documents in each of two workspaces, in addition to one without values.
const proofSize = 300

// Prove fills a collection, asks the questions, and uses the server's explain to find the indexes that serve each of
// them. An index serves a question if the server reads only the matching documents, at most one entry more, and nothing
// of another workspace, in the declared order if there is one.
//
// Prove returns the questions that no index serves, the non-unique indexes without which all questions are served
// equally well, and the number of indexes including that on the key. It skips the test if the server has no explain.
func Prove(t testing.TB, c *driver.Collection, questions []Question) (unserved, unneeded []string, indexes int) {
	t.Helper()
	if IsStandIn(t) {
		t.Skip("mongo-java-server has no explain command")
	}
	p := &proof{TB: t, c: c, wanted: map[string]any{}}
	for _, q := range questions {
		p.want(q.Where)
	}
	ws := p.fill()
	all := p.indexes()
	alone := make([]bool, len(all))
	for _, q := range questions {
		docs, err := ws.Find(t.Context(), driver.Query{Collection: c, Where: q.Where, Sort: q.Sort, Limit: 10 * proofSize})
		if err != nil || len(docs) == 0 {
			t.Fatalf("%s %+v: %d documents, %v", c.Name, q, len(docs), err)
		}
		asked := p.last()
		best, served := 0, make([]int, len(all))
		for i := range all {
			served[i] = p.serves(&all[i], asked, len(docs), len(q.Sort) > 0)
			best = max(best, served[i])
		}
		if best == 0 || !p.found(asked, len(q.Sort) > 0) {
			unserved = append(unserved, fmt.Sprintf("%s %v", asked.Lookup("filter"), asked.Lookup("sort")))
			continue
		}
		if i := slices.Index(served, best); !slices.Contains(served[i+1:], best) {
			alone[i] = true
		}
	}
	for i, x := range all {
		if !alone[i] && !x.Unique {
			unneeded = append(unneeded, x.Name)
		}
	}
	return unserved, unneeded, len(all) + 1
}

// proof is the state of one Prove.
type proof struct {
	testing.TB
	c      *driver.Collection
	wanted map[string]any // the values that questions name, by field
	db     *mongo.Database

	mu    sync.Mutex
	asked bson.Raw
}

// want notes the values that a predicate names.
func (p *proof) want(where driver.Predicate) {
	for _, kid := range where.Kids {
		p.want(kid)
	}
	if len(where.Values) > 0 {
		p.wanted[where.Ref.Name] = where.Values[0]
	}
}

// last returns the last find command.
func (p *proof) last() bson.Raw {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// fill creates two workspaces with documents, and returns org-1. Indexes are built before documents are written.
func (p *proof) fill() driver.Workspace {
	p.Helper()
	name := Database(p)
	p.db = Client(p).Database(name)
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName == "find" && e.Command.Lookup("find").StringValue() == p.c.Name {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.asked = slices.Clone(e.Command)
		}
	}}
	e, err := engine.Open(p.Context(), engine.Options{URI: secret.New(URI(p)), Database: name, Monitor: monitor})
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = e.Close() })
	var first driver.Workspace
	for _, workspace := range []string{"org-2", "org-1"} {
		opening := driver.Opening{Workspace: workspace, Collections: []*driver.Collection{p.c}}
		if first, err = e.Open(p.Context(), opening); err != nil {
			p.Fatal(err)
		}
		for { // on some servers a transaction during an index build may wait for ever
			all, err := e.Indexes(p.Context())
			if err != nil {
				p.Fatal(err)
			}
			building := func(x driver.IndexStatus) bool { return x.State == driver.IndexBuilding }
			if !slices.ContainsFunc(all, building) {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if err := first.Write(p.Context(), p.documents()); err != nil {
			p.Fatal(err)
		}
	}
	return first
}

// documents returns writes of documents: the first has all values that questions name, others have some of them, and
// the last has no values.
func (p *proof) documents() []driver.Write {
	random := rand.New(rand.NewPCG(1, 2)) // the same each time
	distinct := map[string]bool{}
	for _, x := range p.c.Indexes {
		distinct[x.Fields[len(x.Fields)-1]] = distinct[x.Fields[len(x.Fields)-1]] || x.Unique
	}
	var writes []driver.Write
	for i := range proofSize + 1 {
		d := driver.Document{ID: fmt.Sprintf("%024x", i), Body: []byte("{}"), Values: make([]any, len(p.c.Fields))}
		for at, f := range p.c.Fields {
			wanted, is := p.wanted[f.Name]
			switch same := i == 0 || random.IntN(4) == 0 && !distinct[f.Name]; {
			case i == proofSize:
			case is && same && f.Type == driver.Strings:
				d.Values[at] = []string{wanted.(string), "another"} //nolint:forcetypeassert // of a list
			case is && same:
				d.Values[at] = wanted
			default:
				d.Values[at] = map[driver.Type]any{
					driver.Bool: true, driver.Strings: []string{fmt.Sprint("other ", i)}, driver.Int: int64(i + 10),
					driver.Float: float64(i), driver.Time: int64(i + 10),
				}[f.Type]
				if d.Values[at] == nil {
					d.Values[at] = fmt.Sprint("other ", random.IntN(1e9), i)
				}
			}
		}
		if p.c.Custom && i < proofSize {
			d.Custom = fmt.Appendf(nil, `{%q:"%d"}`, CustomKey, i%10)
		}
		writes = append(writes, driver.Write{Collection: p.c, Doc: d})
	}
	return writes
}

type index struct {
	Name   string
	Key    bson.D
	Unique bool
}

// indexes returns the indexes of the collection without that on the key.
func (p *proof) indexes() (all []index) {
	cursor, err := p.db.Collection(p.c.Name).Indexes().List(p.Context())
	if err == nil {
		err = cursor.All(p.Context(), &all)
	}
	if err != nil {
		p.Fatal(err)
	}
	return slices.DeleteFunc(all, func(x index) bool { return x.Name == "_id_" })
}

// explain returns the server's plan for the command with its execution statistics, using the index hint if that is set.
// It returns nothing if the server cannot use that index.
func (p *proof) explain(asked bson.Raw, hint string) bson.Raw {
	find := bson.D{}
	for _, part := range []string{"find", "filter", "sort"} {
		if v, err := asked.LookupErr(part); err == nil {
			find = append(find, bson.E{Key: part, Value: v})
		}
	}
	if hint != "" {
		find = append(find, bson.E{Key: "hint", Value: hint})
	}
	explain := bson.D{{Key: "explain", Value: find}, {Key: "verbosity", Value: "executionStats"}}
	plan, err := p.db.RunCommand(p.Context(), explain).Raw()
	if err != nil && hint == "" {
		p.Fatal(err)
	}
	return plan
}

// serves returns how well the index serves a question with n answers: 0 for not at all, 1 for the conditions only, 2 if
// it also provides the order. A declared order must be provided.
func (p *proof) serves(x *index, asked bson.Raw, n int, ordered bool) int {
	plan := p.explain(asked, x.Name)
	number := func(name string) int { v, _ := plan.Lookup("executionStats", name).AsInt64OK(); return int(v) }
	filter, _ := asked.Lookup("filter").DocumentOK()
	pinned := conditions(filter)
	covers := func(key bson.E) bool {
		group, wild := strings.CutSuffix(key.Key, "$**")
		return slices.ContainsFunc(pinned, func(e bson.E) bool {
			return e.Key == key.Key || wild && strings.HasPrefix(e.Key, group)
		})
	}
	last := x.Key[len(x.Key)-1]
	switch {
	case strings.HasSuffix(last.Key, "$**") && !covers(last):
		return 0
	case len(pinned) > len(x.Key) ||
		slices.ContainsFunc(x.Key[:len(pinned)], func(key bson.E) bool { return !covers(key) }):
		return 0 // the server reads and discards the rest, which some servers do not count
	case number("nReturned") != n || number("totalKeysExamined") > n+1 || number("totalDocsExamined") > n+1:
		return 0
	case !strings.Contains(plan.Lookup("queryPlanner", "winningPlan").String(), "IXSCAN"):
		return 0
	case gives(x.Key, pinned, asked):
		return 2
	case ordered:
		return 0
	}
	return 1
}

// found reports whether the server's planner chooses an index without a hint. Planners of other servers than MongoDB,
// which return no bounds, do so only for values without operators and without an order, so those are checked instead.
func (p *proof) found(asked bson.Raw, ordered bool) bool {
	winning := p.explain(asked, "").Lookup("queryPlanner", "winningPlan").String()
	if strings.Contains(winning, "indexBounds") {
		return !strings.Contains(winning, "COLLSCAN") && !(ordered && strings.Contains(winning, `"SORT"`))
	}
	if _, err := asked.LookupErr("sort"); err == nil {
		return true
	}
	filter, _ := asked.Lookup("filter").DocumentOK()
	bare, err := bson.Marshal(bson.D{{Key: "filter", Value: conditions(filter)}, {Key: "find", Value: p.c.Name}})
	if err != nil {
		p.Fatal(err)
	}
	return strings.Contains(p.explain(bare, "").Lookup("queryPlanner", "winningPlan").String(), "IXSCAN")
}

// conditions returns the values that a filter requires by field, null for a condition that is not an equality.
func conditions(filter bson.Raw) (all bson.D) {
	elements, _ := filter.Elements()
	for _, e := range elements {
		if list, ok := e.Value().ArrayOK(); ok {
			values, _ := list.Values()
			for _, v := range values {
				if d, ok := v.DocumentOK(); ok {
					all = append(all, conditions(d)...)
				}
			}
			all = slices.CompactFunc(all, func(a, b bson.E) bool { return a.Key == b.Key })
			continue
		}
		if v, _ := e.Value().DocumentOK(); !has(all, e.Key()) {
			all = append(all, bson.E{Key: e.Key(), Value: v.Lookup("$eq")})
		}
	}
	return all
}

// gives reports whether the index has the matching entries in the order of the question.
func gives(keys, pinned bson.D, asked bson.Raw) bool {
	order, _ := asked.Lookup("sort").DocumentOK()
	steps, _ := order.Elements()
	for _, key := range keys {
		switch {
		case len(steps) > 0 && steps[0].Key() == key.Key:
			steps = steps[1:]
		case len(steps) == 0 || !has(pinned, key.Key):
			return len(steps) == 0
		}
	}
	return len(steps) == 0
}

func has(d bson.D, field string) bool {
	return slices.ContainsFunc(d, func(e bson.E) bool { return e.Key == field })
}
