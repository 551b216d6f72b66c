package mongo

import (
	"context"
	"errors"
	"sync"
	"time"

	"tenantry/backends/store/driver"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	// usageName names the counter of what a workspace holds: {documents, bytes, counted}. Counted is there once everything
	// has been counted; until then the others tell only what changed since they began.
	usageName = "usage"
	// usageAge is for how long a process admits by what the database told it last. What other processes add in that time is
	// how far a workspace can get beyond a quota.
	usageAge = time.Second
	// countPatience is how long a write waits for the first count. A quota begins to hold once that has been taken, by
	// this or by whoever measures the workspace.
	countPatience = time.Second
	countPage     = 500
)

// tally is what this process knows of how much a workspace holds. There are no transactions, so that the counter is added to
// beside the writes, by one command for all that were done meanwhile: no write waits for it. What a process adds to nothing
// any more, because it was killed, and writes whose outcome it does not know, are missing until the next Recount.
type tally struct {
	turn chan struct{} // held by who changes or reads the counter

	mu      sync.Mutex   // guards what follows
	known   driver.Usage // as the database told it last
	counted bool         // everything has been counted
	asked   time.Time    // when that was; zero: never
	pending driver.Usage // what was written and is not yet in the counter
	adding  driver.Usage // what is on its way there
	held    driver.Usage // what writes under way will add
	flying  bool         // somebody adds until nothing is pending
}

func newTally() tally { return tally{turn: make(chan struct{}, 1)} }

// growth returns what the writes add. Of a Put it is not known.
func growth(writes []driver.Write) (by driver.Usage) {
	for i := range writes {
		w := &writes[i]
		if w.Collection == nil || w.Collection.Uncounted {
			continue
		}
		switch w.Op {
		case driver.Insert:
			by = by.Plus(driver.Usage{Documents: 1, Bytes: w.Doc.Size()})
		case driver.Replace:
			if w.Doc.Was > 0 {
				by.Bytes += w.Doc.Size() - w.Doc.Was
			}
		case driver.Delete:
			by = by.Minus(driver.Usage{Documents: 1, Bytes: w.Doc.Was})
		case driver.Put, driver.Hold:
		}
	}
	return by
}

// WriteWithin implements driver.Meter.
func (w *workspace) WriteWithin(ctx context.Context, writes []driver.Write, q driver.Quota) error {
	by, t := growth(writes), &w.lease.tally
	limited := q != (driver.Quota{}) && (by.Documents > 0 || by.Bytes > 0)
	if limited {
		if err := w.admit(ctx, q, by); err != nil {
			return err
		}
	}
	err := w.Write(ctx, writes)
	t.mu.Lock()
	defer t.mu.Unlock()
	if limited {
		t.held = t.held.Minus(by)
	}
	if err == nil && by != (driver.Usage{}) {
		t.pending = t.pending.Plus(by)
		if !t.flying {
			t.flying = true
			w.engine.adding.Add(1)
			go w.addPending()
		}
	}
	return err
}

// admit holds room for what a write adds, until that is pending.
func (w *workspace) admit(ctx context.Context, q driver.Quota, by driver.Usage) error {
	t := &w.lease.tally
	t.mu.Lock()
	fresh := t.counted && time.Since(t.asked) < usageAge
	t.mu.Unlock()
	if !fresh {
		first, cancel := context.WithTimeout(ctx, countPatience)
		_, err := w.Used(first)
		cancel()
		switch {
		case err == nil:
		case ctx.Err() != nil || errors.Is(err, driver.ErrUnavailable):
			return err
		default: // it takes too long to count for the first time
			q = driver.Quota{}
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	err := q.Admit(t.known.Plus(t.adding).Plus(t.pending).Plus(t.held), by)
	if err == nil {
		t.held = t.held.Plus(by)
	}
	return err
}

// addPending adds what is pending until nothing is. After a failure that is left to the next write.
func (w *workspace) addPending() {
	defer w.engine.adding.Add(-1)
	t := &w.lease.tally
	for {
		err := w.add(context.Background(), driver.Usage{}, false)
		t.mu.Lock()
		if err != nil || t.pending == (driver.Usage{}) {
			t.flying = false
			t.mu.Unlock()
			return
		}
		t.mu.Unlock()
	}
}

// add adds to the counter what is pending and a correction, says there where everything has been counted, and notes what it
// tells then.
func (w *workspace) add(ctx context.Context, correction driver.Usage, counted bool) error {
	t := &w.lease.tally
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	t.mu.Lock()
	by := t.pending
	t.pending, t.adding = driver.Usage{}, by
	t.mu.Unlock()
	began := time.Now()
	var told struct {
		Documents, Bytes int64
		Counted          bool
	}
	err := w.call(ctx, "count what was written", func(ctx context.Context) error {
		at, counters := w.at(w.name+"/"+usageName), w.space.db.Collection(counterCollection)
		change := by.Plus(correction)
		if change == (driver.Usage{}) && !counted {
			err := counters.FindOne(ctx, at).Decode(&told)
			if errors.Is(err, mongo.ErrNoDocuments) {
				err = nil
			}
			return err
		}
		update := bson.D{{Key: "$inc", Value: bson.D{{Key: "documents", Value: change.Documents}, {Key: "bytes", Value: change.Bytes}}}}
		if counted {
			update = append(update, bson.E{Key: "$set", Value: bson.D{{Key: "counted", Value: true}}})
		}
		return again(func() error {
			return counters.FindOneAndUpdate(ctx, at, update, options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Decode(&told)
		})
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.adding = driver.Usage{}
	if err != nil {
		t.pending = t.pending.Plus(by)
		return err
	}
	t.known, t.counted, t.asked = driver.Usage{Documents: told.Documents, Bytes: told.Bytes}, told.Counted, began
	return nil
}

// Used implements driver.Meter.
func (w *workspace) Used(ctx context.Context) (driver.Usage, error) {
	if err := w.add(ctx, driver.Usage{}, false); err != nil {
		return driver.Usage{}, err
	}
	used, counted := w.told()
	if !counted {
		return w.Recount(ctx)
	}
	return used, nil
}

func (w *workspace) told() (used driver.Usage, counted bool) {
	t := &w.lease.tally
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known, t.counted
}

// Recount implements driver.Meter. What is written while it counts may be counted twice or not at all, until the next time.
func (w *workspace) Recount(ctx context.Context) (driver.Usage, error) {
	if err := w.add(ctx, driver.Usage{}, false); err != nil {
		return driver.Usage{}, err
	}
	told, _ := w.told()
	var found driver.Usage
	for _, c := range w.collections {
		if c.Uncounted {
			continue
		}
		n, err := w.countAll(ctx, c)
		if err != nil {
			return driver.Usage{}, err
		}
		found = found.Plus(n)
	}
	if err := w.add(ctx, found.Minus(told), true); err != nil {
		return driver.Usage{}, err
	}
	used, _ := w.told()
	return used, nil
}

// countAll reads all documents of a collection, since only that tells how long they are as JSON.
func (w *workspace) countAll(ctx context.Context, c *driver.Collection) (found driver.Usage, err error) {
	id := driver.Ref{Name: "id", Type: driver.String}
	for after := ""; ; {
		docs, err := w.Find(ctx, driver.Query{Collection: c, Sort: []driver.Order{{Ref: id}}, Limit: countPage,
			Where: driver.Predicate{Op: driver.Gt, Ref: id, Values: []any{after}}})
		if err != nil {
			return found, err
		}
		for i := range docs {
			found = found.Plus(driver.Usage{Documents: 1, Bytes: docs[i].Size()})
		}
		if len(docs) < countPage {
			return found, nil
		}
		after = docs[len(docs)-1].ID
	}
}
