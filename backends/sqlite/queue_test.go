package sqlite

import (
	"context"
	"fmt"
	"testing"

	"tenantry/backends/driver"
)

// rowsOf returns the rows of jobs by workspace.
func rowsOf(jobs []*job) map[int64]int {
	rows := map[int64]int{}
	for _, j := range jobs {
		rows[j.ws] += j.rows
	}
	return rows
}

func waitingJob(ws int64, rows int) *job {
	return &job{load: load{ws: ws, rows: rows}, partitions: map[partition]bool{}, done: make(chan struct{})}
}

// TestQueue_AlternatesBetweenWorkspaces: workspaces take turns by rows written, however many large jobs one of them
// has.
func TestQueue_AlternatesBetweenWorkspaces(t *testing.T) {
	t.Parallel()
	var l jobQueue
	for range 50 {
		l.add(waitingJob(1, 2000))
	}
	l.add(waitingJob(2, 1000))
	got := map[int64]int{}
	for turn := range 30 {
		jobs := l.take()
		rows := rowsOf(jobs)
		if all := rows[1] + rows[2]; all > maxGroupRows {
			t.Errorf("turn %d: %d rows in one transaction while others wait, want at most %d", turn, all, maxGroupRows)
		}
		for ws, n := range rows {
			got[ws] += n
		}
		if rows[2] > 0 { // the workspace writes again after each acknowledgement
			l.add(waitingJob(2, 1000))
		}
	}
	if got[2] < got[1]/3 || got[1] < got[2] {
		t.Errorf("rows by workspace = %v, want about as many of each", got)
	}
}

// TestQueue_SmallJobWaitsForAtMostOneLarge: a small job waits for at most one large one, even if its workspace has
// written much.
func TestQueue_SmallJobWaitsForAtMostOneLarge(t *testing.T) {
	t.Parallel()
	for ws := range int64(3) {
		var l jobQueue
		for range 20 {
			l.add(waitingJob(1, 2000))
			l.add(waitingJob(2, 2000))
		}
		for turn := range 8 {
			l.take()
			small := waitingJob(ws, 12)
			l.add(small)
			n := 0
			for served := false; !served; n++ {
				served = rowsOf(l.take())[ws] == small.rows
			}
			if n > 2 {
				t.Errorf("turn %d: a small job of workspace %d waited for %d transactions, want at most 1", turn, ws, n-1)
			}
		}
	}
}

// TestQueue_LargeJobIsNotStarved: a large job gets its turn while small jobs of ever new workspaces arrive.
func TestQueue_LargeJobIsNotStarved(t *testing.T) {
	t.Parallel()
	var l jobQueue
	l.add(waitingJob(1, 2000))
	l.take()
	l.add(waitingJob(1, 2000))
	for turn := int64(0); ; turn++ {
		l.add(waitingJob(100+turn, 12))
		if rowsOf(l.take())[1] > 0 {
			break
		}
		if turn > 2000 {
			t.Fatal("the large job never gets its turn")
		}
	}
}

// TestQueue_CancelledJobCostsNothing: a job that is removed from the queue costs its workspace no turn.
func TestQueue_CancelledJobCostsNothing(t *testing.T) {
	t.Parallel()
	var l jobQueue
	for range 3 {
		cancelled := waitingJob(1, 100_000)
		l.add(cancelled)
		if !l.remove(cancelled) {
			t.Error("remove = false, want true")
		}
	}
	l.add(waitingJob(1, 2000))
	l.add(waitingJob(2, 2000))
	l.add(waitingJob(2, 2000))
	if first := l.take(); rowsOf(first)[1] != 2000 {
		t.Errorf("first transaction has the rows %v, want those of workspace 1", rowsOf(first))
	}
}

// TestQueue_HistoryExpires: the rows that workspaces wrote are forgotten once they no longer affect the order.
func TestQueue_HistoryExpires(t *testing.T) {
	t.Parallel()
	var l jobQueue
	for ws := range int64(10_000) {
		l.add(waitingJob(ws, 12))
		l.take()
	}
	if n := l.turns.Known(); n > 1 {
		t.Errorf("%d flows are remembered, want at most 1", n)
	}
}

// TestQueue_CostIsRowsWritten: the cost of a job is the number of rows it writes, including those of indexes and lists.
func TestQueue_CostIsRowsWritten(t *testing.T) {
	t.Parallel()
	c := &driver.Collection{
		Name: "things",
		Fields: []driver.Field{
			{Name: "name", Type: driver.String}, {Name: "tags", Type: driver.Strings}, {Name: "teams", Type: driver.Strings},
		},
		Indexes: []driver.Index{{Name: "name", Fields: []string{"name", "teams"}}, {Name: "tags", Fields: []string{"tags"}}},
	}
	tags := make([]string, 200)
	for i := range tags {
		tags[i] = fmt.Sprint("t", i)
	}
	write := func(op driver.WriteOp, tags []string, body int) driver.Write {
		return driver.Write{Collection: c, Op: op, Doc: driver.Document{
			ID:     fmt.Sprintf("%024x", body),
			Rev:    1,
			Body:   fmt.Appendf(nil, `{"x":"%*d"}`, body, 1),
			Values: []any{"n", tags, tags},
		}}
	}
	deleted := write(driver.Delete, nil, 9)
	deleted.Doc.Values, deleted.Doc.Body = nil, nil
	for _, one := range []struct {
		write driver.Write
		want  int
	}{
		{write(driver.Insert, nil, 1), 2},
		{write(driver.Insert, tags, 2), 202},
		{write(driver.Replace, tags, 3), 404},
		{write(driver.Put, tags, 4), 404},
		{write(driver.Insert, tags[:1], 10<<10), 13},
		{deleted, 2},
		{write(driver.Hold, tags, 5), 1},
	} {
		if got := one.write.Rows(); got != one.want {
			t.Errorf("Rows of operation %v with %d bytes = %d, want %d", one.write.Op, len(one.write.Doc.Body), got, one.want)
		}
	}
	ws := openWorkspace(t, openEngine(t, Options{Dir: t.TempDir(), Shared: true}), "w", c)
	db, err := ws.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ws.file.release()
	db.writerLock <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- ws.Write(ctx, []driver.Write{write(driver.Insert, tags, 6), write(driver.Insert, tags, 7)})
	}()
	g := &jobGroup{t: t, db: db}
	g.awaitQueued(1)
	if j := g.waiting()[0]; j.rows != 404 || j.documents != 2 || j.ws != ws.space.id || j.ws == 0 {
		t.Errorf("load = %+v, want 404 rows and 2 documents of workspace %d", j.load, ws.space.id)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("a cancelled Write succeeded, want an error")
	}
	g.awaitQueued(0)
	<-db.writerLock
}
