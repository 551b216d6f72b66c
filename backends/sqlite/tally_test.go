package sqlite

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"tenantry/backends/driver"
)

// TestUsageIsKept: what was counted is there when the file is opened again, and is not counted anew; what was stored
// before there were counters is counted once.
func TestUsageIsKept(t *testing.T) { inBoth(t, testUsageIsKept) }

func testUsageIsKept(t *testing.T, shared bool) {
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
	if err := w.Write(t.Context(), []driver.Write{person(c, 1), person(c, 2)}); err != nil { // as an older program did
		t.Fatal(err)
	}
	err := w.WriteWithin(t.Context(), []driver.Write{person(c, 3)}, driver.Quota{Documents: 2})
	if quota := new(driver.QuotaError); !errors.As(err, &quota) || quota.Used != 2 {
		t.Errorf("a third of two: %v", err)
	}
	if err := w.WriteWithin(t.Context(), []driver.Write{person(c, 3)}, driver.Quota{Documents: 3}); err != nil {
		t.Fatal(err)
	}
	want, err := w.Used(t.Context())
	if err != nil || want.Documents != 3 || want.Bytes == 0 {
		t.Fatalf("got %+v, %v, want no error and want.Documents = 3 and want.Bytes > 0", want, err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e, w = open()
	if err := w.Write(t.Context(), []driver.Write{person(c, 4)}); err != nil { // which a count would find
		t.Fatal(err)
	}
	if got, err := w.Used(t.Context()); err != nil || got != want {
		t.Errorf("opened again: %+v, %v, want %+v", got, err, want)
	}
	if got, err := w.Recount(t.Context()); err != nil || got.Documents != 4 {
		t.Errorf("recounted: %+v, %v", got, err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestTallyOfSharedTransactions: jobs that share a transaction are counted as far as they are stored, also where one of
// them failed after it had changed something, and where the transaction was not committed; and held to the quota
// together.
func TestTallyOfSharedTransactions(t *testing.T) { inBoth(t, testTallyOfSharedTransactions) }

func testTallyOfSharedTransactions(t *testing.T, shared bool) {
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
	if _, err := w.Used(t.Context()); err != nil { // so that the quota holds
		t.Fatal(err)
	}
	db.writerLock <- struct{}{} // so that they share
	const all, most = 20, 10
	waits := func(n int) {
		for waiting := -1; waiting != n; {
			db.queue.mu.Lock()
			waiting = len(db.queue.jobs)
			db.queue.mu.Unlock()
		}
	}
	errs := make(chan error, all)
	gone, cancel := context.WithCancel(t.Context())
	left, times := make(chan error), 0
	go func() { // goes away once it is done for the second time, with savepoints, since others fail
		left <- db.transact(gone, gone, load{documents: 1, rows: 1}, map[partition]bool{}, func(c *conn) error {
			c.tally[w.space.id] = c.tally[w.space.id].Plus(driver.Usage{Documents: 1})
			if times++; times == 2 {
				cancel()
			}
			return nil
		})
	}()
	waits(1)
	for i := range all {
		writes := []driver.Write{person(c, i)}
		if i%4 == 0 { // fails after its first document
			writes = append(writes, person(c, i))
		}
		go func() {
			errs <- w.WriteWithin(context.WithoutCancel(t.Context()), writes, driver.Quota{Documents: most})
		}()
	}
	waits(all + 1)
	<-db.writerLock
	if err := <-left; err == nil || times != 2 {
		t.Errorf("who went away: %v, done %d times", err, times)
	}
	stored := int64(0)
	for range all {
		if err := <-errs; err == nil {
			stored++
		}
	}
	told, _, err := func() (u driver.Usage, n int64, err error) {
		err = w.snapshot(t.Context(), "measure", func(c *conn) (err error) {
			u, n, err = w.usage(c)
			return err
		})
		return u, n, err
	}()
	n, err2 := w.Count(t.Context(), c, driver.Predicate{})
	if err != nil || err2 != nil || stored != most || n != stored || told.Documents != stored {
		t.Errorf("%d were stored, %d are there, %+v are told of (%v, %v)", stored, n, told, err, err2)
	}

	if err := w.Write(t.Context(), []driver.Write{person(c, 100), person(c, 101)}); err != nil { // which nobody has counted
		t.Fatal(err)
	}
	db.writerLock <- struct{}{} // so that both have counted before either corrects
	for range 2 {
		go func() {
			_, err := w.Recount(context.WithoutCancel(t.Context()))
			errs <- err
		}()
	}
	waits(2)
	<-db.writerLock
	if err := errors.Join(<-errs, <-errs); err != nil {
		t.Error(err)
	}
	if told, err := w.Used(t.Context()); err != nil || told.Documents != most+2 {
		t.Errorf("counted by two at once: %+v, %v, want %d", told, err, most+2)
	}
}

// TestRecountTakesTurns: to count everything is a long question.
func TestRecountTakesTurns(t *testing.T) { inBoth(t, testRecountTakesTurns) }

func testRecountTakesTurns(t *testing.T, shared bool) {
	e := openEngine(t, Options{Shared: shared})
	c := people()
	ws := openWorkspace(t, e, "org-1", c)
	fill(t, ws, c, 3)
	give := e.takeProcessors(t)
	counted := make(chan error, 1)
	go func() {
		used, err := ws.Recount(t.Context())
		if err == nil && used.Documents != 3 {
			err = fmt.Errorf("there are %d documents", used.Documents)
		}
		counted <- err
	}()
	waitFor(t, "it waits for a processor", func() bool { return e.waitingTurns() == 1 })
	give()
	if err := <-counted; err != nil {
		t.Error(err)
	}
}
