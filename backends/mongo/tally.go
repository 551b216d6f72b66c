package mongo

import (
	"context"
	"errors"
	"sync"
	"time"

	"tenantry/backends/driver"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	// usageName names the counter of a workspace's usage: {documents, bytes, counted}. Counted is the number of full
	// counts; before the first, documents and bytes have only the changes since the counter was created.
	usageName = "usage"
	// usageAge is how long a process uses the usage that it last read. A workspace may exceed its quota by what other
	// processes write in that time.
	usageAge = time.Second
	// firstCountTimeout bounds how long a write waits for the first full count. If that takes longer, the quota is not
	// enforced until a count has succeeded; writes try again after countRetry.
	firstCountTimeout = 2 * time.Second
	countRetry        = time.Minute
	countPage         = 500     // documents
	countBytes        = 1 << 20 // bytes of a page
)

// tally tracks the usage of a workspace in this process. Because there are no transactions, the counter is updated
// beside the writes, with one command for all writes since the last, and no write waits for it. What a killed process
// had not added, and writes with an unknown outcome, are missing from the counter until the next Recount.
type tally struct {
	turn     chan struct{} // held while the counter is changed or read
	counting chan struct{} // held during the first full count
	scanning chan struct{} // held during a full count
	// still is read-locked by writes, and locked while a full count reads a page, so that each write is either before or
	// after the position of the scan.
	still sync.RWMutex
	scan  *scan // the running full count; guarded by still

	mu      sync.Mutex   // guards the following
	known   driver.Usage // as last read from the database
	counted int64        // number of full counts
	late    time.Time    // when the first count last timed out
	asked   time.Time    // when known was read; zero: never
	pending driver.Usage // written, but not in the counter yet
	adding  driver.Usage // being added to the counter
	held    driver.Usage // growth that running writes have reserved
	flying  bool         // addPending is running
}

func newTally() tally {
	return tally{turn: make(chan struct{}, 1), counting: make(chan struct{}, 1), scanning: make(chan struct{}, 1)}
}

// scan is a full count, which reads the collections in order, each by identifier.
type scan struct {
	place map[string]int // index of each collection, by name
	at    int            // the collection that is being read
	after string         // the last identifier that was read in it

	mu    sync.Mutex
	ahead driver.Usage // growth written after the position of the scan, which it will find
}

// wrote notes writes after the position of the scan, whose results it will read.
func (s *scan) wrote(writes []driver.Write) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range writes {
		if c := writes[i].Collection; c != nil {
			if at := s.place[c.Name]; at > s.at || at == s.at && writes[i].Doc.ID > s.after {
				s.ahead = s.ahead.Plus(growth(writes[i : i+1]))
			}
		}
	}
}

// growth returns by how much the writes change the usage. For a Put it is unknown, and counted as 0.
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
	t.still.RLock()
	defer t.still.RUnlock()
	err := w.Write(ctx, writes)
	if err == nil {
		t.scan.wrote(writes)
	}
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
			go w.addPending() //nolint:gosec // it continues after the request, with its own timeout; Close waits for it
		}
	}
	return err
}

// admit checks the growth of a write against the quota, and reserves it until it is pending.
func (w *workspace) admit(ctx context.Context, q driver.Quota, by driver.Usage) error {
	t := &w.lease.tally
	t.mu.Lock()
	fresh, late := t.counted > 0 && time.Since(t.asked) < usageAge, time.Since(t.late) < countRetry
	t.mu.Unlock()
	if !fresh && !late {
		first, cancel := context.WithTimeout(ctx, firstCountTimeout)
		_, err := w.Used(first)
		cancel()
		if err != nil && (ctx.Err() != nil || errors.Is(err, driver.ErrUnavailable)) {
			return err
		}
		late = err != nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if late {
		if t.counted == 0 {
			q = driver.Quota{}
		}
		if time.Since(t.late) >= countRetry {
			t.late = time.Now()
		}
	}
	err := q.Admit(t.known.Plus(t.adding).Plus(t.pending).Plus(t.held), by)
	if err == nil {
		t.held = t.held.Plus(by)
	}
	return err
}

// addPending adds pending growth to the counter until none is left. After a failure the next write tries again.
func (w *workspace) addPending() {
	defer w.engine.adding.Add(-1)
	t := &w.lease.tally
	for {
		err := w.add(context.Background(), nil)
		t.mu.Lock()
		if err != nil || t.pending == (driver.Usage{}) {
			t.flying = false
			t.mu.Unlock()
			return
		}
		t.mu.Unlock()
	}
}

// correction is the difference that a full count found.
type correction struct {
	by    driver.Usage
	times int64 // number of full counts before this one
}

// add adds pending growth to the counter, and the correction fix unless another full count was quicker. It then notes
// the value of the counter.
func (w *workspace) add(ctx context.Context, fix *correction) error {
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
	var counter struct{ Documents, Bytes, Counted int64 }
	err := w.call(ctx, "update the usage", func(ctx context.Context) error {
		at, counters := w.at(w.name+"/"+usageName), w.space.db.Collection(counterCollection)
		inc := func(at bson.D, by driver.Usage, more ...bson.E) error {
			change := append(bson.D{{Key: "documents", Value: by.Documents}, {Key: "bytes", Value: by.Bytes}}, more...)
			return retryUpsert(func() error {
				return counters.FindOneAndUpdate(ctx, at, bson.D{{Key: "$inc", Value: change}},
					options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Decode(&counter)
			})
		}
		if by != (driver.Usage{}) {
			if err := inc(at, by); err != nil {
				return err
			}
			t.mu.Lock()
			by, t.adding = driver.Usage{}, driver.Usage{}
			t.known = driver.Usage{Documents: counter.Documents, Bytes: counter.Bytes}
			t.mu.Unlock()
			if fix == nil {
				return nil
			}
		}
		if fix != nil {
			same := bson.D{{Key: "$eq", Value: fix.times}}
			if fix.times == 0 {
				same = bson.D{{Key: "$exists", Value: false}} // an upsert would store null, which $inc refuses
			}
			err := inc(append(at, bson.E{Key: "counted", Value: same}), fix.by, bson.E{Key: "counted", Value: int64(1)})
			if !mongo.IsDuplicateKeyError(err) { // it means that another full count was quicker
				return err
			}
		}
		err := counters.FindOne(ctx, at).Decode(&counter)
		if errors.Is(err, mongo.ErrNoDocuments) {
			err = nil
		}
		return err
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.adding = driver.Usage{}
	if err != nil {
		t.pending = t.pending.Plus(by)
		return err
	}
	t.known = driver.Usage{Documents: counter.Documents, Bytes: counter.Bytes}
	t.counted, t.asked = counter.Counted, began
	return nil
}

// Used implements driver.Meter.
func (w *workspace) Used(ctx context.Context) (driver.Usage, error) {
	for turn := false; ; turn = true {
		if err := w.add(ctx, nil); err != nil {
			return driver.Usage{}, err
		}
		used, times := w.lastKnown()
		if times > 0 {
			return used, nil
		}
		if turn {
			return w.Recount(ctx)
		}
		select { // only one caller makes the first count
		case w.lease.tally.counting <- struct{}{}:
			defer func() { <-w.lease.tally.counting }()
		case <-ctx.Done():
			return driver.Usage{}, ctx.Err()
		}
	}
}

// lastKnown returns the usage as last read, and the number of full counts.
func (w *workspace) lastKnown() (used driver.Usage, times int64) {
	t := &w.lease.tally
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known, t.counted
}

// Recount implements driver.Meter. Writes of other processes during the count may be counted twice or not at all, until
// the next one.
func (w *workspace) Recount(ctx context.Context) (driver.Usage, error) {
	t := &w.lease.tally
	select {
	case t.scanning <- struct{}{}:
		defer func() { <-t.scanning }()
	case <-ctx.Done():
		return driver.Usage{}, ctx.Err()
	}
	s := &scan{place: map[string]int{}}
	for i, c := range w.collections {
		s.place[c.Name] = i
	}
	t.still.Lock()
	t.scan = s
	err := w.add(ctx, nil) // the scan takes account of all later writes
	t.still.Unlock()
	before, times := w.lastKnown()
	var found driver.Usage
	for err == nil && s.at < len(w.collections) {
		err = w.countPage(ctx, s, &found)
	}
	t.still.Lock()
	t.scan = nil
	t.still.Unlock()
	if err != nil {
		return driver.Usage{}, err
	}
	if err := w.add(ctx, &correction{found.Minus(before).Minus(s.ahead), times}); err != nil {
		return driver.Usage{}, err
	}
	used, _ := w.lastKnown()
	return used, nil
}

// countPage reads the next documents, which is the only way to learn their size as JSON. Writes wait in the meantime.
func (w *workspace) countPage(ctx context.Context, s *scan, found *driver.Usage) error {
	t, c, id := &w.lease.tally, w.collections[s.at], driver.Ref{Name: "id", Type: driver.String}
	t.still.Lock()
	defer t.still.Unlock()
	var page driver.Usage
	last, full := s.after, false
	take := func(d *driver.Document) error {
		if d == nil {
			page = driver.Usage{}
			return nil
		}
		last, page = d.ID, page.Plus(driver.Usage{Documents: 1, Bytes: d.Size()})
		if full = page.Documents == countPage || page.Bytes >= countBytes; full {
			return errPage
		}
		return nil
	}
	if !c.Uncounted {
		_, err := w.Find(ctx, driver.Query{
			Collection: c, Where: driver.Predicate{Op: driver.Gt, Ref: id, Values: []any{s.after}},
			Sort: []driver.Order{{Ref: id}}, Limit: countPage, Take: take,
		})
		if err != nil && !full {
			return err
		}
	}
	*found = found.Plus(page)
	if s.after = last; !full {
		s.at, s.after = s.at+1, ""
	}
	return nil
}

var errPage = errors.New("the page is full")
