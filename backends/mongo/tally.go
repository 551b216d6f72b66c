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
	// usageName names the counter of what a workspace holds: {documents, bytes, counted}. Counted is how often
	// everything has been counted; before the first time the others tell only what changed since they began.
	usageName = "usage"
	// usageAge is for how long a process admits by what the database told it last. What other processes add in that
	// time is how far a workspace can get beyond a quota.
	usageAge = time.Second
	// countPatience is how long a write waits for the first count, of what was stored before there was a counter. Where
	// that takes longer no quota holds until it has been taken, which writes try again after countAgain.
	countPatience = 2 * time.Second
	countAgain    = time.Minute
	countPage     = 500
	countBytes    = 1 << 20 // of such a page
)

// tally is what this process knows of how much a workspace holds. There are no transactions, so that the counter is
// added to beside the writes, by one command for all that were done meanwhile: no write waits for it. What a process
// adds to nothing any more, because it was killed, and writes whose outcome it does not know, are missing until the
// next Recount.
type tally struct {
	turn     chan struct{} // held by who changes or reads the counter
	counting chan struct{} // held by who counts everything for the first time
	scanning chan struct{} // held by who counts everything
	// still is read-locked by writes, and locked by who counts while it reads a page: so that each write is either
	// behind what it has read, or ahead.
	still sync.RWMutex
	scan  *scan // under way, guarded by still

	mu      sync.Mutex   // guards what follows
	known   driver.Usage // as the database told it last
	counted int64        // how often everything has been counted
	late    time.Time    // when the first count took too long
	asked   time.Time    // when that was; zero: never
	pending driver.Usage // what was written and is not yet in the counter
	adding  driver.Usage // what is on its way there
	held    driver.Usage // what writes under way will add
	flying  bool         // somebody adds until nothing is pending
}

func newTally() tally {
	return tally{turn: make(chan struct{}, 1), counting: make(chan struct{}, 1), scanning: make(chan struct{}, 1)}
}

// scan is a count of everything, by collection in their order and by identifier.
type scan struct {
	place map[string]int // of collections, by name
	at    int            // the collection that is read
	after string         // the identifier up to which that has been read

	mu    sync.Mutex
	ahead driver.Usage // what was written ahead, and is found there
}

// wrote notes writes of which the scan finds what they leave.
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
			go w.addPending() //nolint:gosec // it goes on after the request, within a time of its own; Close waits for it
		}
	}
	return err
}

// admit holds room for what a write adds, until that is pending.
func (w *workspace) admit(ctx context.Context, q driver.Quota, by driver.Usage) error {
	t := &w.lease.tally
	t.mu.Lock()
	fresh, late := t.counted > 0 && time.Since(t.asked) < usageAge, time.Since(t.late) < countAgain
	t.mu.Unlock()
	if !fresh && !late {
		first, cancel := context.WithTimeout(ctx, countPatience)
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
		if time.Since(t.late) >= countAgain {
			t.late = time.Now()
		}
	}
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

// correction is what a count of everything found missing in the counter, at which time.
type correction struct {
	by    driver.Usage
	times int64
}

// add adds what is pending to the counter, and a correction, unless another has been made since; and notes what it
// tells then.
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
	var told struct{ Documents, Bytes, Counted int64 }
	err := w.call(ctx, "count what was written", func(ctx context.Context) error {
		at, counters := w.at(w.name+"/"+usageName), w.space.db.Collection(counterCollection)
		inc := func(at bson.D, by driver.Usage, more ...bson.E) error {
			change := append(bson.D{{Key: "documents", Value: by.Documents}, {Key: "bytes", Value: by.Bytes}}, more...)
			return again(func() error {
				return counters.FindOneAndUpdate(ctx, at, bson.D{{Key: "$inc", Value: change}}, options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Decode(&told)
			})
		}
		if by != (driver.Usage{}) {
			if err := inc(at, by); err != nil {
				return err
			}
			t.mu.Lock()
			by, t.adding, t.known = driver.Usage{}, driver.Usage{}, driver.Usage{Documents: told.Documents, Bytes: told.Bytes}
			t.mu.Unlock()
			if fix == nil {
				return nil
			}
		}
		if fix != nil {
			same := bson.D{{Key: "$eq", Value: fix.times}}
			if fix.times == 0 {
				same = bson.D{{Key: "$exists", Value: false}} // not null, which an upsert would store, and then could not count up
			}
			err := inc(append(at, bson.E{Key: "counted", Value: same}), fix.by, bson.E{Key: "counted", Value: int64(1)})
			if !mongo.IsDuplicateKeyError(err) { // which tells that another count was quicker
				return err
			}
		}
		err := counters.FindOne(ctx, at).Decode(&told)
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
	t.known, t.counted, t.asked = driver.Usage{Documents: told.Documents, Bytes: told.Bytes}, told.Counted, began
	return nil
}

// Used implements driver.Meter.
func (w *workspace) Used(ctx context.Context) (driver.Usage, error) {
	for turn := false; ; turn = true {
		if err := w.add(ctx, nil); err != nil {
			return driver.Usage{}, err
		}
		used, times := w.told()
		if times > 0 {
			return used, nil
		}
		if turn {
			return w.Recount(ctx)
		}
		select { // one of them counts
		case w.lease.tally.counting <- struct{}{}:
			defer func() { <-w.lease.tally.counting }()
		case <-ctx.Done():
			return driver.Usage{}, ctx.Err()
		}
	}
}

func (w *workspace) told() (used driver.Usage, times int64) {
	t := &w.lease.tally
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known, t.counted
}

// Recount implements driver.Meter. What other processes write while it counts may be counted twice or not at all, until
// the next time.
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
	err := w.add(ctx, nil) // of what follows the scan knows
	t.still.Unlock()
	told, times := w.told()
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
	if err := w.add(ctx, &correction{found.Minus(told).Minus(s.ahead), times}); err != nil {
		return driver.Usage{}, err
	}
	used, _ := w.told()
	return used, nil
}

// countPage reads the next documents, since only that tells how long they are as JSON. Writes wait meanwhile.
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
		_, err := w.Find(ctx, driver.Query{Collection: c, Sort: []driver.Order{{Ref: id}}, Limit: countPage, Where: driver.Predicate{Op: driver.Gt, Ref: id, Values: []any{s.after}}, Take: take})
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
