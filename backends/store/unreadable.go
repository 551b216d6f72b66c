package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"tenantry/backends/driver"
	"tenantry/internal/request"
)

// Unreadable is a record that is there and cannot be read, because something else than this program changed what lies
// in the store.
type Unreadable struct {
	Backend string
	Org     int64 // 0: the control workspace
	Kind    string
	ID      string // empty where even that cannot be told
	Reason  string // holds no value of the record
}

// UnreadableError says that a record which is asked for, or is among those that must all be read, cannot be.
type UnreadableError struct {
	Kind   string
	ID     string
	Reason string
}

func (e *UnreadableError) Error() string {
	return strings.TrimSuffix("store: "+e.Kind+" "+e.ID, " ") + " cannot be read: " + e.Reason
}

const (
	// maxUnreadable bounds the records that are remembered.
	maxUnreadable = 100
	// lookFor bounds a look whether one can be read by now.
	lookFor = 2 * time.Second
)

// unreadables are the records that are known to be such.
type unreadables struct {
	mu   sync.Mutex
	all  map[Unreadable]func(context.Context) bool // reports whether it is one still
	tell func(context.Context, Unreadable)         // nil: nobody is told
}

// unreadable returns the error for a document that could not be decoded, which is noted, and told of the first time.
func (w *Workspace) unreadable(ctx context.Context, s *Spec, doc *driver.Document, err error) error {
	e := &UnreadableError{Kind: s.Name, ID: doc.ID, Reason: reason(err)}
	u := Unreadable{w.backend(), w.Org(), e.Kind, e.ID, e.Reason}
	id := w.part(s).stored(doc.ID)
	again := func(ctx context.Context) bool {
		ctx, cancel := context.WithTimeout(ctx, lookFor)
		defer cancel()
		drv, err := w.reader(ctx)
		if err != nil || doc.ID == "" {
			return !errors.Is(err, errRemoved)
		}
		still := false
		err = each(ctx, drv, s.collection, []string{id}, func(docs []driver.Document) error {
			still = unsound(s, docs[0])
			return nil
		})
		return err != nil || still
	}
	k := &w.store.unreadable
	k.mu.Lock()
	_, known := k.all[u]
	if known = known || len(k.all) >= maxUnreadable; !known {
		k.all[u] = again
	}
	k.mu.Unlock()
	if !known && k.tell != nil {
		k.tell(ctx, u)
	}
	return e
}

// leftOut counts records that a list does without.
func leftOut(ctx context.Context, n int) {
	if r := request.From(ctx); r != nil && n > 0 {
		r.LeftOut.Add(int64(n))
	}
}

// reason says why a document does not decode, without its values.
func reason(err error) string {
	var value *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	var engine *damage
	switch {
	case errors.As(err, &engine):
		return engine.Error()
	case errors.As(err, &value):
		is, _, _ := strings.Cut(value.Value, " ")
		return fmt.Sprintf("field %s: a %s is not what is stored there", value.Field, is)
	case errors.As(err, &syntax):
		return "it is no JSON"
	}
	return "it is not what is stored there"
}

// damage is an engine's word on a document.
type damage struct{ error }

// Unreadable returns the records of a backend that are known to be such, at most a hundred, in an order that stays.
// With look each is read again, and forgotten where it can be read by now, or is gone.
func (s *Store) Unreadable(ctx context.Context, backend string, look bool) []Unreadable {
	found := []Unreadable{}
	var looks []func(context.Context) bool
	s.unreadable.mu.Lock()
	for u, again := range s.unreadable.all {
		if u.Backend == BackendName(backend) {
			found, looks = append(found, u), append(looks, again)
		}
	}
	s.unreadable.mu.Unlock()
	if look {
		var still []Unreadable
		for i, u := range found {
			if ctx.Err() != nil || looks[i](ctx) {
				still = append(still, u)
				continue
			}
			s.unreadable.mu.Lock()
			delete(s.unreadable.all, u)
			s.unreadable.mu.Unlock()
		}
		found = still
	}
	slices.SortFunc(found, func(a, b Unreadable) int {
		return cmp.Or(cmp.Compare(a.Org, b.Org), strings.Compare(a.Kind, b.Kind), strings.Compare(a.ID, b.ID), strings.Compare(a.Reason, b.Reason))
	})
	return found
}

// Whole fails where documents of the kind lie in the workspace that no question of records finds, because their key is
// not this program's: what takes all records along would lose them. Errors: *UnreadableError, ErrUnavailable.
func (w *Workspace) Whole(ctx context.Context, s *Spec) error {
	if s.Partition {
		return nil // what is nobody's there is not this organization's either
	}
	drv, err := w.reader(ctx)
	if err == nil {
		err = whole(ctx, drv, s)
	}
	return translate(s, err)
}

// whole looks at both ends of the order of identifiers, where those of others are.
func whole(ctx context.Context, ws driver.Workspace, s *Spec) error {
	for _, last := range []bool{false, true} {
		docs, err := ws.Find(ctx, driver.Query{Collection: s.collection, Sort: []driver.Order{{Ref: driver.Ref{Name: "id", Type: driver.String}, Desc: last}}, Limit: 1})
		if err == nil {
			err = sound(s, docs)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unsound reports whether the document cannot be read.
func unsound(s *Spec, doc driver.Document) bool {
	_, err := s.values(doc)
	return err != nil
}

// sound returns an *UnreadableError where the engine could not read one of the documents.
func sound(s *Spec, docs []driver.Document) error {
	for i := range docs {
		if docs[i].Damage != nil {
			return &UnreadableError{Kind: s.Name, ID: docs[i].ID, Reason: docs[i].Damage.Error()}
		}
	}
	return nil
}
