package audit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tenantry/backends/driver"
	"tenantry/backends/enginetest"
	"tenantry/backends/store"
	"tenantry/modules/audit"
)

func open(t *testing.T) (*audit.Log, *store.Store, driver.Engine) {
	t.Helper()
	log := audit.New()
	engine := enginetest.Open(t)
	return log, store.New(store.Options{Engine: engine, Tenant: []*store.Spec{log.Spec()}}), engine
}

func workspace(t *testing.T, s *store.Store, org int64) *store.Workspace {
	t.Helper()
	ws, err := s.At(t.Context(), org, store.Placement{})
	if err != nil {
		t.Fatal(err)
	}
	return ws
}

func TestRecordsComeBackNewestFirst(t *testing.T) {
	t.Parallel()
	log, s, _ := open(t)
	ws := workspace(t, s, 1)
	var want []audit.Record
	for i := range 5 {
		rec := audit.Record{
			Operation: fmt.Sprintf("contacts.reveal%d", i), Subject: "key:k1", Outcome: audit.Denied, Code: 403, RequestID: "r1",
			Facts: map[string]string{"field": "iban"},
		}
		if err := log.Write(t.Context(), ws, rec); err != nil {
			t.Fatal(err)
		}
		want = append([]audit.Record{rec}, want...)
	}
	got, err := log.Recent(t.Context(), ws, 3, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 {
		t.Fatalf("%d records", len(got))
	}
	all, err := log.Recent(t.Context(), ws, 100, 0)
	if err != nil {
		t.Fatal(err)
	}
	byName := cmpopts.SortSlices(func(a, b audit.Record) bool { return a.Operation < b.Operation })
	if diff := cmp.Diff(want, all, cmpopts.IgnoreFields(audit.Record{}, "Meta"), byName); diff != "" {
		t.Errorf("mismatch (-want +got):\n%s", diff)
	}
	for i := 1; i < len(all); i++ {
		if all[i].CreatedAt > all[i-1].CreatedAt {
			t.Errorf("record %d is newer than the one before it", i)
		}
	}
	if others, err := log.Recent(t.Context(), workspace(t, s, 2), 100, 0); err != nil || len(others) != 0 {
		t.Errorf("another organization reads %v %v", others, err)
	}
}

// TestWriteOutlivesItsCaller: what was done is recorded, though nobody waits for the answer.
func TestWriteOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	log, s, _ := open(t)
	ws := workspace(t, s, 1)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := log.Write(gone, ws, audit.Record{Operation: "a.b"}); err != nil {
		t.Fatal(err)
	}
	if got, err := log.Recent(t.Context(), ws, 10, 0); err != nil || len(got) != 1 {
		t.Errorf("got %v %v, want no error and len(got) = 1", got, err)
	}
}

// writeTimeout is how long a write may take that nothing holds.
const writeTimeout = 3 * time.Second

// TestWriteOutlivesAHold: a change that came before the moment in which a move takes no writes
// is recorded after it.
func TestWriteOutlivesAHold(t *testing.T) {
	t.Parallel()
	log := audit.New()
	leases := store.DefaultLeases()
	leases.Hold = writeTimeout + time.Second
	s := store.New(store.Options{Engine: enginetest.Open(t), Tenant: []*store.Spec{log.Spec()}, Leases: leases})
	workspace(t, s, 1)
	held := time.Now().Add(writeTimeout + time.Second/2)
	where := func(context.Context, int64) (store.Placement, error) {
		p := store.Placement{Phase: store.Held, Rev: 2, ReadAt: time.Now()}
		if time.Now().After(held) {
			p.Phase, p.Rev = store.Settled, 3
		}
		return p, nil
	}
	s.SetLocator(where)
	p, _ := where(t.Context(), 1)
	ws, err := s.At(t.Context(), 1, p)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Write(t.Context(), ws, audit.Record{Operation: "a.b"}); err != nil || time.Now().Before(held) {
		t.Errorf("%v before the hold's end: %v", time.Until(held), err)
	}
}

func TestParallelWritesAreAllThere(t *testing.T) {
	t.Parallel()
	log, s, _ := open(t)
	ws := workspace(t, s, 1)
	var running sync.WaitGroup
	for i := range 16 {
		running.Go(func() {
			if err := log.Write(t.Context(), ws, audit.Record{Operation: fmt.Sprintf("a.b%d", i)}); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	if got, err := log.Recent(t.Context(), ws, 100, 0); err != nil || len(got) != 16 {
		t.Errorf("%d records, %v", len(got), err)
	}
}

func TestWriteSaysThatTheStoreIsDown(t *testing.T) {
	t.Parallel()
	log, s, engine := open(t)
	ws := workspace(t, s, 1)
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	err := log.Write(t.Context(), ws, audit.Record{Operation: "a.b", Facts: map[string]string{"field": "FACT"}})
	if !errors.Is(err, store.ErrUnavailable) || strings.Contains(err.Error(), "FACT") {
		t.Errorf(`got %v, want the error store.ErrUnavailable and nothing containing "FACT"`, err)
	}
}
