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

// Unreadable identifies a record that exists but cannot be read, because another program changed the stored data.
type Unreadable struct {
	Backend string
	Org     int64 // 0: the control workspace
	Kind    string
	ID      string // empty if the identifier cannot be read either
	Reason  string // contains no values of the record
}

// UnreadableError says that a record cannot be read.
type UnreadableError struct {
	Kind   string
	ID     string
	Reason string
}

func (e *UnreadableError) Error() string {
	return strings.TrimSuffix("store: "+e.Kind+" "+e.ID, " ") + " cannot be read: " + e.Reason
}

const (
	// maxUnreadable bounds the records that are listed.
	maxUnreadable = 100
	// recheckTimeout bounds the check whether a record can be read again.
	recheckTimeout = 2 * time.Second
)

// unreadables lists the records that are known to be unreadable.
type unreadables struct {
	mu     sync.Mutex
	all    map[Unreadable]func(context.Context) bool // the function reports whether the record is still unreadable
	report func(context.Context, Unreadable)         // may be nil
}

// unreadable returns the error for a document that could not be decoded. It lists the record, and reports it the first
// time.
func (w *Workspace) unreadable(ctx context.Context, s *Spec, doc *driver.Document, err error) error {
	e := &UnreadableError{Kind: s.Name, ID: doc.ID, Reason: reason(err)}
	u := Unreadable{w.backend(), w.Org(), e.Kind, e.ID, e.Reason}
	id := w.part(s).qualify(doc.ID)
	again := func(ctx context.Context) bool {
		ctx, cancel := context.WithTimeout(ctx, recheckTimeout)
		defer cancel()
		drv, err := w.reader(ctx)
		if err != nil || doc.ID == "" {
			return !errors.Is(err, errRemoved)
		}
		still := false
		err = each(ctx, drv, s.collection, []string{id}, func(docs []driver.Document) error {
			still = undecodable(s, docs[0])
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
	if !known && k.report != nil {
		k.report(ctx, u)
	}
	return e
}

// countOmitted adds to the number of records that the request's answers omit.
func countOmitted(ctx context.Context, n int) {
	if r := request.From(ctx); r != nil && n > 0 {
		r.LeftOut.Add(int64(n))
	}
}

// reason returns why a document cannot be decoded, without values of the document.
func reason(err error) string {
	var value *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	var engine *damage
	switch {
	case errors.As(err, &engine):
		return engine.Error()
	case errors.As(err, &value):
		is, _, _ := strings.Cut(value.Value, " ")
		return fmt.Sprintf("field %s has the wrong type, %s", value.Field, is)
	case errors.As(err, &syntax):
		return "it is not valid JSON"
	}
	return "it cannot be decoded"
}

// damage wraps the reason for which an engine could not read a document.
type damage struct{ error }

// Unreadable returns the records of a backend that are known to be unreadable, at most a hundred, in a stable order.
// With look each is read again, and dropped from the list if it can be read now, or no longer exists.
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
		return cmp.Or(cmp.Compare(a.Org, b.Org), strings.Compare(a.Kind, b.Kind),
			strings.Compare(a.ID, b.ID), strings.Compare(a.Reason, b.Reason))
	})
	return found
}

// CheckIdentifiers returns an error if the workspace has documents of the kind whose identifiers this program did not
// make. Queries for records do not find them, so work that must cover all records would lose them. Errors:
// *UnreadableError, ErrUnavailable.
func (w *Workspace) CheckIdentifiers(ctx context.Context, s *Spec) error {
	if s.Partition {
		return nil // such documents of a shared workspace belong to no organization
	}
	drv, err := w.reader(ctx)
	if err == nil {
		err = checkEnds(ctx, drv, s)
	}
	return translate(s, err)
}

// checkEnds checks both ends of the order of identifiers, where the identifiers of other programs sort.
func checkEnds(ctx context.Context, ws driver.Workspace, s *Spec) error {
	for _, last := range []bool{false, true} {
		docs, err := ws.Find(ctx, driver.Query{
			Collection: s.collection, Sort: []driver.Order{{Ref: idRef(), Desc: last}}, Limit: 1,
		})
		if err == nil {
			err = checkReadable(s, docs)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// undecodable reports whether the document cannot be decoded.
func undecodable(s *Spec, doc driver.Document) bool {
	_, err := s.values(doc)
	return err != nil
}

// checkReadable returns an *UnreadableError if the engine could not read one of the documents.
func checkReadable(s *Spec, docs []driver.Document) error {
	for i := range docs {
		if docs[i].Damage != nil {
			return &UnreadableError{Kind: s.Name, ID: docs[i].ID, Reason: docs[i].Damage.Error()}
		}
	}
	return nil
}
