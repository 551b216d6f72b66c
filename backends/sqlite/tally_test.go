package sqlite

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"tenantry/backends/driver"
)

// TestUsageIsStored: the usage is read from the file after a restart, without another count. Documents stored before
// there were counters are counted once.
func TestUsageIsStored(t *testing.T) { inBoth(t, testUsageIsStored) }

func testUsageIsStored(t *testing.T, shared bool) {
	opts := Options{Dir: t.TempDir(), Shared: shared}
	c := people()
	open := func() (*Engine, *workspace) {
		t.Helper()
		e, err := Open(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		ws, err := e.Open(t.Context(), driver.Opening{Workspace: "org-1", Collections: []*driver.Collection{c}})
		if err != nil {
			t.Fatal(err)
		}
		return e, ws.(*workspace)
	}
	e, w := open()
	if err := w.Write(t.Context(), []driver.Write{person(c, 1), person(c, 2)}); err != nil { // without a meter, as an older version did
		t.Fatal(err)
	}
	err := w.WriteWithin(t.Context(), []driver.Write{person(c, 3)}, driver.Quota{Documents: 2})
	if quota := new(driver.QuotaError); !errors.As(err, &quota) || quota.Used != 2 {
		t.Errorf("WriteWithin of a third document with a quota of two = %v, want a *driver.QuotaError with 2 used", err)
	}
	if err := w.WriteWithin(t.Context(), []driver.Write{person(c, 3)}, driver.Quota{Documents: 3}); err != nil {
		t.Fatal(err)
	}
	want, err := w.Used(t.Context())
	if err != nil || want.Documents != 3 || want.Bytes == 0 {
		t.Fatalf("Used = %+v, %v; want 3 documents and more than 0 bytes", want, err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e, w = open()
	if err := w.Write(t.Context(), []driver.Write{person(c, 4)}); err != nil { // only a count would find it
		t.Fatal(err)
	}
	if got, err := w.Used(t.Context()); err != nil || got != want {
		t.Errorf("Used after a restart = %+v, %v; want %+v", got, err, want)
	}
	if got, err := w.Recount(t.Context()); err != nil || got.Documents != 4 {
		t.Errorf("Recount = %+v, %v; want 4 documents", got, err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestUsageIsExactInSharedTransactions: of jobs that share a transaction, exactly those are counted that are stored,
// even if one fails after it has changed something, or the group starts over. The quota applies to all together.
func TestUsageIsExactInSharedTransactions(t *testing.T) {
	inBoth(t, testUsageIsExactInSharedTransactions)
}

func testUsageIsExactInSharedTransactions(t *testing.T, shared bool) {
	opts := Options{Dir: t.TempDir(), Shared: shared}
	c := people()
	e, err := Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	opened, err := e.Open(t.Context(), driver.Opening{Workspace: "org-1", Collections: []*driver.Collection{c}})
	if err != nil {
		t.Fatal(err)
	}
	w := opened.(*workspace)
	db, err := w.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer w.file.release()
	if _, err := w.Used(t.Context()); err != nil { // so that the quota is enforced
		t.Fatal(err)
	}
	db.writerLock <- struct{}{} // so that the jobs share a transaction
	const all, most = 20, 10
	awaitQueued := func(n int) {
		for waiting := -1; waiting != n; {
			db.queue.mu.Lock()
			waiting = len(db.queue.jobs)
			db.queue.mu.Unlock()
		}
	}
	errs := make(chan error, all)
	ctx, cancel := context.WithCancel(t.Context())
	cancelled, times := make(chan error), 0
	go func() { // is cancelled in its second run, which has savepoints, because others fail in the first
		cancelled <- db.transact(ctx, ctx, load{documents: 1, rows: 1}, map[partition]bool{}, func(c *conn) error {
			c.tally[w.space.id] = c.tally[w.space.id].Plus(driver.Usage{Documents: 1})
			if times++; times == 2 {
				cancel()
			}
			return nil
		})
	}()
	awaitQueued(1)
	for i := range all {
		writes := []driver.Write{person(c, i)}
		if i%4 == 0 { // fails after its first document
			writes = append(writes, person(c, i))
		}
		go func() {
			errs <- w.WriteWithin(context.WithoutCancel(t.Context()), writes, driver.Quota{Documents: most})
		}()
	}
	awaitQueued(all + 1)
	<-db.writerLock
	if err := <-cancelled; err == nil || times != 2 {
		t.Errorf("cancelled job = %v after %d runs, want an error after 2", err, times)
	}
	stored := int64(0)
	for range all {
		if err := <-errs; err == nil {
			stored++
		}
	}
	counted, _, err := func() (u driver.Usage, n int64, err error) {
		err = w.snapshot(t.Context(), "measure", func(c *conn) (err error) {
			u, n, err = w.usage(c)
			return err
		})
		return u, n, err
	}()
	n, err2 := w.Count(t.Context(), c, driver.Predicate{})
	if err != nil || err2 != nil || stored != most || n != stored || counted.Documents != stored {
		t.Errorf("%d acknowledged, Count = %d, %v, usage = %+v, %v; want %d of each", stored, n, err2, counted, err, most)
	}

	if err := w.Write(t.Context(), []driver.Write{person(c, 100), person(c, 101)}); err != nil { // without a meter
		t.Fatal(err)
	}
	db.writerLock <- struct{}{} // so that both have counted before either corrects
	for range 2 {
		go func() {
			_, err := w.Recount(context.WithoutCancel(t.Context()))
			errs <- err
		}()
	}
	awaitQueued(2)
	<-db.writerLock
	if err := errors.Join(<-errs, <-errs); err != nil {
		t.Error(err)
	}
	if used, err := w.Used(t.Context()); err != nil || used.Documents != most+2 {
		t.Errorf("Used after two concurrent recounts = %+v, %v; want %d documents", used, err, most+2)
	}
}

// TestRecountRunsAsLongQuery: a recount waits for a turn on a processor.
func TestRecountRunsAsLongQuery(t *testing.T) { inBoth(t, testRecountRunsAsLongQuery) }

func testRecountRunsAsLongQuery(t *testing.T, shared bool) {
	e := openEngine(t, Options{Shared: shared})
	c := people()
	ws := openWorkspace(t, e, "org-1", c)
	fill(t, ws, c, 3)
	give := e.takeProcessors(t)
	counted := make(chan error, 1)
	go func() {
		used, err := ws.Recount(t.Context())
		if err == nil && used.Documents != 3 {
			err = fmt.Errorf("Recount = %d documents, want 3", used.Documents)
		}
		counted <- err
	}()
	waitFor(t, "the recount waits for a processor", func() bool { return e.waitingTurns() == 1 })
	give()
	if err := <-counted; err != nil {
		t.Error(err)
	}
}
