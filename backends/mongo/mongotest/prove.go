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

// Question is one that is asked of a collection: for values of fields, and in a declared order, or none.
type Question struct {
	Where driver.Predicate
	Sort  []driver.Order
}

// CustomKey is that of the custom value that documents of a proof have: "0" to "9".
const CustomKey = "plan"

// proofSize is how many documents each of two workspaces has of a collection that is proven, besides one that has no
// values.
const proofSize = 300

// Prove asks the questions of a collection that it fills, and the server's explain which indexes serve each: by reading
// what was asked for, at most one entry more, and nothing of another workspace, in the order where one is declared. It
// returns the questions that none serves, the indexes without which every question is served as well as with them,
// unique ones apart, and how many there are, with that of the key. It skips the test where the server has no explain.
func Prove(t testing.TB, c *driver.Collection, questions []Question) (unserved, unneeded []string, indexes int) {
	t.Helper()
	if IsStandIn(t) {
		t.Skip("mongo-java-server knows no explain command")
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

type proof struct {
	testing.TB
	c      *driver.Collection
	wanted map[string]any // the values that questions ask for, by field
	db     *mongo.Database

	mu    sync.Mutex
	asked bson.Raw
}

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

// fill makes two workspaces with documents, and returns the first once its indexes are there.
func (p *proof) fill() driver.Workspace {
	p.Helper()
	name := Database(p)
	p.db = Client(p).Database(name)
	e, err := engine.Open(p.Context(), engine.Options{URI: secret.New(URI(p)), Database: name, Monitor: &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName == "find" && e.Command.Lookup("find").StringValue() == p.c.Name {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.asked = slices.Clone(e.Command)
		}
	}}})
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = e.Close() })
	var first driver.Workspace
	for _, workspace := range []string{"org-2", "org-1"} {
		if first, err = e.Open(p.Context(), driver.Opening{Workspace: workspace, Collections: []*driver.Collection{p.c}}); err != nil {
			p.Fatal(err)
		}
		for { // a transaction beside an index that is made may wait for ever on some servers
			all, err := e.Indexes(p.Context())
			if err != nil {
				p.Fatal(err)
			}
			if !slices.ContainsFunc(all, func(x driver.IndexStatus) bool { return x.State == driver.IndexBuilding }) {
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

// documents returns the first with all the values that questions ask for, some with some of them, and the last without
// any value.
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
				d.Values[at] = map[driver.Type]any{driver.Bool: true, driver.Strings: []string{fmt.Sprint("other ", i)}, driver.Int: int64(i + 10), driver.Float: float64(i), driver.Time: int64(i + 10)}[f.Type]
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

// indexes returns those besides that of the key.
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

// explain returns the server's plan for the command, and what came of it. What the server cannot do with that index has
// none.
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
	plan, err := p.db.RunCommand(p.Context(), bson.D{{Key: "explain", Value: find}, {Key: "verbosity", Value: "executionStats"}}).Raw()
	if err != nil && hint == "" {
		p.Fatal(err)
	}
	return plan
}

// serves reports how well the index serves a question that has n answers: 0 for not at all, 2 where it gives the order
// too. A declared order must be given.
func (p *proof) serves(x *index, asked bson.Raw, n int, ordered bool) int {
	plan := p.explain(asked, x.Name)
	number := func(name string) int { v, _ := plan.Lookup("executionStats", name).AsInt64OK(); return int(v) }
	filter, _ := asked.Lookup("filter").DocumentOK()
	pinned := conditions(filter)
	covers := func(key bson.E) bool {
		group, wild := strings.CutSuffix(key.Key, "$**")
		return slices.ContainsFunc(pinned, func(e bson.E) bool { return e.Key == key.Key || wild && strings.HasPrefix(e.Key, group) })
	}
	last := x.Key[len(x.Key)-1]
	switch {
	case strings.HasSuffix(last.Key, "$**") && !covers(last):
		return 0
	case len(pinned) > len(x.Key) || slices.ContainsFunc(x.Key[:len(pinned)], func(key bson.E) bool { return !covers(key) }):
		return 0 // the rest is read and thrown away; some servers do not count that
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

// found reports whether the server's planner comes to an index by itself. Others than MongoDB's, which tell no bounds,
// do so only where values are asked for without operators, and no order: as those of a unique index can be.
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

// conditions returns the values that a filter asks for, or null for another condition, by their fields.
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

// gives reports whether the index has the entries that the question asks for in its order.
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
