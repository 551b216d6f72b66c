package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"tenantry/backends/driver"
)

// metered is a bench whose writes are measured, with a collection that is not counted.
type metered struct {
	*bench
	driver.Meter
	notes *driver.Collection
	sizes map[string]int64 // sizes of the documents in things, by id
}

func newMetered(t testing.TB, e driver.Engine) *metered {
	t.Helper()
	b := newBench(t, e)
	notes := &driver.Collection{Name: "notes", Fields: fields(), Uncounted: true}
	m := &metered{bench: b, notes: notes, sizes: map[string]int64{}}
	var err error
	opening := driver.Opening{Workspace: b.name, Collections: []*driver.Collection{b.things, b.plain, notes}}
	if b.ws, err = e.Open(b.ctx, opening); err != nil {
		t.Fatalf("Open: %v", err)
	}
	m.Meter = meterOf(t, b.ws)
	return m
}

// meterOf returns the workspace as a Meter. It skips the test if the engine lacks that ability.
func meterOf(t testing.TB, ws driver.Workspace) driver.Meter {
	t.Helper()
	m, ok := ws.(driver.Meter)
	if !ok {
		t.Skip("the engine does not measure workspaces")
	}
	return m
}

// change writes one document of things under the quota, as package store does.
func (m *metered) change(op driver.WriteOp, r record, q driver.Quota) error {
	m.t.Helper()
	doc := r.document(m.t, m.things)
	doc.Was = m.sizes[r.id]
	err := m.WriteWithin(m.ctx, []driver.Write{{Collection: m.things, Op: op, Doc: doc}}, q)
	switch {
	case err != nil:
	case op == driver.Delete:
		delete(m.sizes, r.id)
	default:
		m.sizes[r.id] = doc.Size()
	}
	return err
}

// checkUsage compares the usage of the workspace with the stored documents.
func (m *metered) checkUsage(when string) {
	m.t.Helper()
	want := driver.Usage{}
	for _, size := range m.sizes {
		want = want.Plus(driver.Usage{Documents: 1, Bytes: size})
	}
	if got, err := m.Used(m.ctx); err != nil || got != want {
		m.t.Errorf("%s: Used = %+v, %v; want %+v", when, got, err, want)
	}
	if n := m.count(m.things, driver.Predicate{}); n != want.Documents {
		m.t.Errorf("%s: %d documents are stored, want %d", when, n, want.Documents)
	}
}

// refusedBy reports whether err is the quota error for this limit.
func refusedBy(err error, limit string, used, allowed int64) bool {
	var quota *driver.QuotaError
	return errors.As(err, &quota) && *quota == driver.QuotaError{Limit: limit, Used: used, Allowed: allowed}
}

func thing(id string, rev int64, text string) record {
	return record{id: id, rev: rev, values: map[string]any{"name": text}, custom: `{"k":"` + text + `"}`}
}

// testUsage changes documents at random and checks the usage after each change.
func testUsage(t *testing.T, e driver.Engine) {
	m := newMetered(t, e)
	m.checkUsage("at first")
	revs := map[string]int64{}
	random := rand.New(rand.NewPCG(1, 2))
	for step := range 60 {
		id := strconv.Itoa(random.IntN(12))
		op, text := driver.Insert, fmt.Sprintf("%0*d", 1+random.IntN(200), step)
		if rev := revs[id]; rev > 0 {
			op = []driver.WriteOp{driver.Replace, driver.Replace, driver.Delete}[random.IntN(3)]
		}
		if err := m.change(op, thing(id, revs[id], text), driver.Quota{}); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		if revs[id]++; op == driver.Delete {
			delete(revs, id)
		}
		if err := m.change(driver.Replace, thing(id, 99, text), driver.Quota{}); err == nil { // not counted
			t.Fatalf("step %d: a write with a wrong revision was accepted", step)
		}
		note := driver.Document{ID: strconv.Itoa(step), Body: []byte(`{}`), Values: make([]any, len(fields()))}
		uncounted := []driver.Write{{Collection: m.notes, Doc: note}}
		if err := m.WriteWithin(m.ctx, uncounted, driver.Quota{Documents: 1}); err != nil {
			t.Fatalf("step %d: a write that is not counted was refused: %v", step, err)
		}
		m.checkUsage("step " + strconv.Itoa(step))
	}
	for i, op := range []driver.WriteOp{driver.Insert, driver.Put, driver.Put} { // without the meter
		r := thing("x"+strconv.Itoa(i/2), int64(i), "apart")
		if err := m.write(op, m.things, r); err != nil {
			t.Fatal(err)
		}
		doc := r.document(t, m.things)
		m.sizes[r.id] = doc.Size()
	}
	want := driver.Usage{}
	for _, size := range m.sizes {
		want = want.Plus(driver.Usage{Documents: 1, Bytes: size})
	}
	parallel(4, func(int) {
		if got, err := m.Recount(m.ctx); err != nil || got != want {
			t.Errorf("Recount = %+v, %v; want %+v", got, err, want)
		}
	})
	m.checkUsage("after Recount")
}

// testQuotas fills a workspace up to its quota and beyond.
func testQuotas(t *testing.T, e driver.Engine) {
	m := newMetered(t, e)
	three := driver.Quota{Documents: 3}
	for i := range 3 {
		if err := m.change(driver.Insert, thing(strconv.Itoa(i), 0, "abc"), three); err != nil {
			t.Fatalf("document %d: %v", i+1, err)
		}
	}
	if err := m.change(driver.Insert, thing("3", 0, "abc"), three); !refusedBy(err, "documents", 3, 3) {
		t.Errorf("a fourth document with a quota of three: %v", err)
	}
	fourth, note := thing("3", 0, "abc"), record{id: "with it", values: map[string]any{}}
	batch := []driver.Write{{Collection: m.notes, Doc: note.document(t, m.notes)}, {Collection: m.things, Doc: fourth.document(t, m.things)}}
	if err := m.WriteWithin(m.ctx, batch, three); !refusedBy(err, "documents", 3, 3) {
		t.Errorf("a batch beyond the quota: %v", err)
	}
	if n := m.count(m.notes, driver.Predicate{}); n != 0 {
		t.Errorf("%d documents of a refused batch are stored, want 0", n)
	}
	m.checkUsage("full")
	if err := m.change(driver.Replace, thing("0", 1, "a longer one"), three); err != nil {
		t.Errorf("a change of a full workspace: %v", err)
	}

	used, err := m.Used(m.ctx)
	if err != nil {
		t.Fatal(err)
	}
	tight := driver.Quota{Bytes: used.Bytes}
	for what, c := range map[string]struct {
		op driver.WriteOp
		r  record
	}{
		"a new document":        {driver.Insert, thing("3", 0, "")},
		"a document that grows": {driver.Replace, thing("1", 1, strings.Repeat("a", 8<<10))},
	} {
		if err := m.change(c.op, c.r, tight); !refusedBy(err, "bytes", used.Bytes, used.Bytes) {
			t.Errorf("%s beyond the quota of bytes: %v", what, err)
		}
	}
	if err := m.change(driver.Replace, thing("1", 1, "abcd"), tight); err != nil {
		t.Errorf("a small change of a full workspace: %v", err)
	}
	m.checkUsage("at the quota of bytes")

	beyond := driver.Quota{Documents: 1, Bytes: 10} // lowered below the usage
	if err := m.change(driver.Replace, thing("0", 2, "abc"), beyond); err != nil {
		t.Errorf("a document that shrinks: %v", err)
	}
	if err := m.change(driver.Replace, thing("0", 3, "xyz"), beyond); err != nil {
		t.Errorf("a document that keeps its size: %v", err)
	}
	if err := m.change(driver.Delete, thing("0", 4, ""), beyond); err != nil {
		t.Errorf("a deletion: %v", err)
	}
	if err := m.change(driver.Insert, thing("0", 0, "abc"), beyond); !refusedBy(err, "documents", 2, 1) {
		t.Errorf("a new document beyond the quota: %v", err)
	}
	m.checkUsage("at the end")
}

// testQuotaRace inserts concurrently until the quota is reached.
func testQuotaRace(t *testing.T, e driver.Engine) {
	m := newMetered(t, e)
	const most = 7
	var stored, refused atomic.Int64
	parallel(32, func(i int) {
		r := thing(strconv.Itoa(i), 0, "abc")
		err := m.WriteWithin(m.ctx, []driver.Write{{Collection: m.things, Doc: r.document(t, m.things)}}, driver.Quota{Documents: most})
		var quota *driver.QuotaError
		switch {
		case err == nil:
			stored.Add(1)
		case errors.As(err, &quota):
			refused.Add(1)
		default:
			t.Errorf("%d: %v", i, err)
		}
	})
	used, err := m.Used(m.ctx)
	if n := m.count(m.things, driver.Predicate{}); err != nil || n != most || used.Documents != most || stored.Load() != most || refused.Load() != 32-most {
		t.Errorf("of 32 inserts with a quota of %d, %d were accepted and %d refused; %d are stored, Used = %d, %v",
			most, stored.Load(), refused.Load(), n, used.Documents, err)
	}
}

// testRecounts recounts while documents are inserted and deleted: each is counted exactly once.
func testRecounts(t *testing.T, e driver.Engine) {
	m := newMetered(t, e)
	const many = 1200 // several pages
	made := func(id string) driver.Write {
		r := thing(id, 0, "abc")
		return driver.Write{Collection: m.things, Doc: r.document(t, m.things)}
	}
	var all []driver.Write
	for i := range many {
		all = append(all, made(fmt.Sprintf("%05d", i)))
	}
	for some := range slices.Chunk(all, 100) {
		if err := m.WriteWithin(m.ctx, some, driver.Quota{}); err != nil {
			t.Fatal(err)
		}
	}
	var ended atomic.Bool
	var changing sync.WaitGroup
	for n := range 4 {
		changing.Go(func() {
			for i := n; i < many && !ended.Load(); i += 4 {
				gone := driver.Write{
					Collection: m.things, Op: driver.Delete,
					Doc: driver.Document{ID: all[i].Doc.ID, Rev: 1, Was: all[i].Doc.Size()},
				}
				for _, w := range []driver.Write{made(fmt.Sprintf("%05d-new", (i*7)%many)), gone} {
					if err := m.WriteWithin(m.ctx, []driver.Write{w}, driver.Quota{}); err != nil {
						t.Errorf("%s: %v", w.Doc.ID, err)
					}
				}
			}
		})
	}
	for range 3 {
		if _, err := m.Recount(m.ctx); err != nil {
			t.Error(err)
		}
	}
	ended.Store(true)
	changing.Wait()
	used, err1 := m.Used(m.ctx)
	counted, err2 := m.Recount(m.ctx)
	if err := errors.Join(err1, err2); err != nil || used != counted || used.Documents != m.count(m.things, driver.Predicate{}) {
		t.Errorf("Used after concurrent recounts = %+v, want %+v as recounted: %v", used, counted, err)
	}
}
