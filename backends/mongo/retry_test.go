package mongo

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/driver"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func inserts(c *driver.Collection, ids ...string) []driver.Write {
	writes := make([]driver.Write, len(ids))
	for i, id := range ids {
		values := make([]any, len(c.Fields))
		values[0] = "name of " + id
		writes[i] = driver.Write{Collection: c, Doc: driver.Document{ID: id, Body: []byte(`{"name":"name of ` + id + `"}`), Values: values}}
	}
	return writes
}

func done(n int32) bson.D { return bson.D{{Key: "ok", Value: 1.0}, {Key: "n", Value: n}} }

func writeError(index, code int32, more ...bson.E) bson.D {
	e := append(bson.D{{Key: "index", Value: index}, {Key: "code", Value: code}, {Key: "errmsg", Value: "E11000 index: id"}}, more...)
	return append(done(index), bson.E{Key: "writeErrors", Value: bson.A{e}})
}

// script answers the commands of each name with its answers in turn, and repeats the last one.
type script struct {
	mu      sync.Mutex
	answers map[string][]bson.D
}

func (s *script) answer(name string, _ bson.Raw) bson.D {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.answers[name]
	if len(all) == 0 {
		return bson.D{{Key: "ok", Value: 1.0}}
	}
	if len(all) > 1 {
		s.answers[name] = all[1:]
	}
	return all[0]
}

func cursor(docs ...any) bson.D {
	return bson.D{{Key: "ok", Value: 1.0}, {Key: "cursor", Value: bson.D{{Key: "id", Value: int64(0)}, {Key: "ns", Value: "d.things"}, {Key: "firstBatch", Value: append(bson.A{}, docs...)}}}}
}

// TestLockConflictsAreRetried: lock conflicts are retried, and do not count as an outage.
func TestLockConflictsAreRetried(t *testing.T) {
	t.Parallel()
	c := things()
	for name, about := range map[string]struct {
		answers []bson.D
		want    error
		sent    int
	}{
		"a command":      {[]bson.D{refusal(112, "WriteConflict"), refusal(24, "LockTimeout"), refusal(46, "LockBusy"), done(3)}, nil, 4},
		"within a batch": {[]bson.D{writeError(2, 112), done(1)}, nil, 2},
		"always":         {[]bson.D{refusal(112, "WriteConflict")}, driver.ErrUnavailable, 7},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &script{answers: map[string][]bson.D{"insert": about.answers}}
			f := fake(t, &fakeServer{answer: s.answer}, nil).member("rs0")
			e, w, _ := onFake(t, f)
			for range breakAfter {
				if err := w.Write(t.Context(), inserts(c, "a", "b", "c")); !errors.Is(err, about.want) {
					t.Fatalf("Write: %v, want %v", err, about.want)
				}
				if about.want == nil {
					break
				}
			}
			if e.Refusing() {
				t.Error("lock conflicts made the engine refuse calls")
			}
			if n := f.took("insert"); about.want == nil && n != about.sent || about.want != nil && n != breakAfter*about.sent {
				t.Errorf("%d inserts were sent, want %d for each write", n, about.sent)
			}
		})
	}
}

// TestOwnWritesAreNoDuplicates: if the answer to a write is lost, the library sends it again, and a server that does
// not recognize the retry refuses it because of the first try. That is not a duplicate.
func TestOwnWritesAreNoDuplicates(t *testing.T) {
	t.Parallel()
	c := things()
	for name, about := range map[string]struct {
		ids    []string
		theirs int // index of the stored document that another writer has stored; -1: none
		found  int // number of stored documents
		answer []bson.D
		want   error
	}{
		"one":                    {[]string{"a"}, -1, 1, []bson.D{nil, writeError(0, 11000)}, nil},
		"all of a batch":         {[]string{"a", "b", "c"}, -1, 3, []bson.D{nil, writeError(0, 11000)}, nil},
		"the first of a batch":   {[]string{"a", "b", "c"}, -1, 2, []bson.D{nil, writeError(0, 11000), done(1)}, nil},
		"somebody else's":        {[]string{"a"}, 0, 1, []bson.D{nil, writeError(0, 11000)}, &driver.DuplicateError{Collection: "things", Index: "id"}},
		"the second one's":       {[]string{"a", "b"}, 1, 2, []bson.D{nil, writeError(0, 11000)}, &driver.DuplicateError{Collection: "things", Index: "id", Position: 1}},
		"no second try was made": {[]string{"a"}, -1, 1, []bson.D{writeError(0, 11000)}, &driver.DuplicateError{Collection: "things", Index: "id"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &script{}
			f := fake(t, &fakeServer{answer: s.answer}, nil).member("rs0")
			_, w, k := onFake(t, f)
			var there []any
			for i, wr := range inserts(c, about.ids...)[:about.found] {
				if i == about.theirs {
					wr.Doc.Body = []byte(`{"name":"another"}`)
				}
				doc, err := k.document(w.name, &wr.Doc, 1)
				if err != nil {
					t.Fatal(err)
				}
				there = append(there, doc)
			}
			inserted := about.answer
			if about.theirs == 1 { // the rest of the batch is sent once more
				inserted = append(inserted, writeError(0, 11000))
			}
			// The first find is for the sent documents; the next ones are for the index: the name, then the id.
			found := []bson.D{cursor(there...), cursor(), cursor(there...)}
			if about.answer[0] != nil {
				found = found[1:]
			}
			s.answers = map[string][]bson.D{"insert": inserted, "find": found}
			err := w.Write(within(t, 5*time.Second), inserts(c, about.ids...))
			var got, want *driver.DuplicateError
			if errors.As(about.want, &want) != errors.As(err, &got) || want != nil && *got != *want || want == nil && err != nil {
				t.Errorf("Write: %v, want %v (sent: %v)", err, about.want, f.names)
			}
		})
	}
}

// TestDuplicatesNameTheirIndex: the index follows from the fields that the server names, otherwise from the stored
// documents. The server's message is not used, and not repeated, because it contains values.
func TestDuplicatesNameTheirIndex(t *testing.T) {
	t.Parallel()
	c := things()
	_, k := offline(t)
	pattern := func(keys bson.D) bson.E { return bson.E{Key: "keyPattern", Value: keys} }
	other := cursor(bson.D{{Key: "_id", Value: "org-1/x"}})
	for name, about := range map[string]struct {
		refused bson.D
		finds   []bson.D // answers to the searches for the stored documents
		want    error
	}{
		"pattern":           {writeError(1, 11000, pattern(k.uniques()[0].keys)), nil, &driver.DuplicateError{Collection: "things", Index: "name", Position: 1}},
		"pattern of the id": {writeError(1, 11000, pattern(bson.D{{Key: "_id", Value: 1}})), nil, &driver.DuplicateError{Collection: "things", Index: "id", Position: 1}},
		"a value is there":  {writeError(1, 11000), []bson.D{other}, &driver.DuplicateError{Collection: "things", Index: "name", Position: 1}},
		"the id is there":   {writeError(1, 11000), []bson.D{cursor(), other}, &driver.DuplicateError{Collection: "things", Index: "id", Position: 1}},
		"it is gone by now": {writeError(1, 11000), []bson.D{cursor()}, driver.ErrUnavailable},
		"another refusal":   {writeError(1, 121), nil, errors.New("code 121")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &script{answers: map[string][]bson.D{"insert": {about.refused}, "find": about.finds}}
			f := fake(t, &fakeServer{answer: s.answer}, nil).member("rs0")
			_, w, _ := onFake(t, f)
			err := w.Write(t.Context(), inserts(c, "a", "b"))
			var got, want *driver.DuplicateError
			switch errors.As(about.want, &want) {
			case true:
				if !errors.As(err, &got) || *got != *want {
					t.Errorf("Write: %v, want %v", err, want)
				}
			case false:
				if errors.As(err, &got) || err == nil || errors.Is(about.want, driver.ErrUnavailable) != errors.Is(err, driver.ErrUnavailable) {
					t.Errorf("Write: %v, want %v", err, about.want)
				}
			}
			if n := f.took("find"); n > 2 || len(about.finds) == 0 && n > 0 {
				t.Errorf("%d searches for stored documents, want at most 2, and none if the server names the fields", n)
			}
			if n := f.took("delete"); n != 1 {
				t.Errorf("the write before the refused one was undone %d times, want once", n)
			}
			if err != nil && bytes.Contains(fmt.Append(nil, err), []byte("E11000")) {
				t.Errorf("the error repeats the server's message: %v", err)
			}
		})
	}
}

// TestUndoingEndsWithTheWrite: undoing a refused batch keeps to the caller's deadline, because the organization may
// live on another backend afterwards. If undoing fails, the error does not say that nothing of the batch remains.
func TestUndoingEndsWithTheWrite(t *testing.T) {
	t.Parallel()
	c := things()
	for name, about := range map[string]struct {
		undone bson.D
		want   error
	}{
		"in time": {done(1), &driver.DuplicateError{}},
		"refused": {refusal(8000, "Other"), driver.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &script{answers: map[string][]bson.D{
				"insert": {writeError(1, 11000, bson.E{Key: "keyPattern", Value: bson.D{{Key: "_id", Value: 1}}})}, "delete": {about.undone},
			}}
			var limit atomic.Int64
			f := fake(t, &fakeServer{answer: func(name string, command bson.Raw) bson.D {
				if name == "delete" {
					limit.Store(command.Lookup("maxTimeMS").AsInt64())
				}
				return s.answer(name, command)
			}}, nil).member("rs0")
			_, w, _ := onFake(t, f)
			const most = 5 * time.Second // less than the timeout of a call
			err := w.Write(within(t, most), inserts(c, "a", "b"))
			var duplicate, wanted *driver.DuplicateError
			if is := errors.As(err, &duplicate); is != errors.As(about.want, &wanted) || !is && !errors.Is(err, about.want) {
				t.Errorf("Write: %v, want %v", err, about.want)
			}
			if n := f.took("delete"); n != 1 || limit.Load() <= 0 || limit.Load() > most.Milliseconds() {
				t.Errorf("undone %d times with a limit of %d ms, want once within %d ms", n, limit.Load(), most.Milliseconds())
			}
		})
	}
}

// TestCounterUpsertRace: an upsert that is answered without a document has lost a race. It is retried, and does not
// count as an outage.
func TestCounterUpsertRace(t *testing.T) {
	t.Parallel()
	nothing := append(done(0), bson.E{Key: "value", Value: nil})
	counted := append(done(1), bson.E{Key: "value", Value: bson.D{{Key: "value", Value: int64(7)}}})
	for name, about := range map[string]struct {
		answers []bson.D
		want    string
		sent    int
	}{
		"once":   {[]bson.D{nothing, counted}, "", 2},
		"always": {[]bson.D{nothing}, "no document", breakAfter * (maxRaces + 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &script{answers: map[string][]bson.D{"findAndModify": about.answers}}
			f := fake(t, &fakeServer{answer: s.answer}, nil).member("rs0")
			e, w, k := onFake(t, f)
			w.space = &space{db: k.coll.Database()}
			for range breakAfter {
				n, err := w.Counter(t.Context(), "forms", 1, 0)
				if err == nil && (about.want != "" || n != 7) || err != nil && (about.want == "" || !strings.Contains(err.Error(), about.want) || errors.Is(err, driver.ErrUnavailable)) {
					t.Fatalf("Counter = %d, %v; want 7 or an error with %q", n, err, about.want)
				}
				if about.want == "" {
					break
				}
			}
			if n := f.took("findAndModify"); e.Refusing() || n != about.sent {
				t.Errorf("refusing %v after %d commands, want false after %d", e.Refusing(), n, about.sent)
			}
		})
	}
}
