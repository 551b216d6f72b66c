package bundle

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"tenantry/backends/store"
	"tenantry/tenants"
)

// TestImport_Quota: an import of more records than there is room for stores nothing, and says so; one that takes more
// bytes ends where these are used up, and tells what it stored.
func TestImport_Quota(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	limit := func(name string, n int64) {
		t.Helper()
		var err error
		acme, err = w.deps.Directory.Update(t.Context(), "acme", func(o *tenants.Organization) error {
			o.Limits = map[string]int64{name: n}
			return nil
		})
		check(t, err)
	}
	contact := func(n int) string {
		return fmt.Sprintf(`{"kind":"contact","external_id":"c%d","email":"c%d@example.com","first_name":"%s"}`, n, n, strings.Repeat("x", 100))
	}
	holds := func(want int64) {
		t.Helper()
		used, err := acme.Workspace().Used(t.Context())
		if n, err2 := acme.Workspace().Documents(t.Context()); n != want || used.Documents != want || errors.Join(err, err2) != nil {
			t.Errorf("%d are there, %+v are told of, want %d (%v, %v)", n, used, want, err, err2)
		}
	}
	w.mustLoad(acme, contact(1)+"\n"+contact(2))
	limit(tenants.LimitDocuments, 3)
	for _, dry := range []bool{true, false} {
		r, err := w.load(acme, contact(2)+"\n"+contact(3)+"\n"+contact(4), ImportOptions{DryRun: dry})
		var noRoom *NoRoomError
		if !errors.As(err, &noRoom) || noRoom.New != 2 || *noRoom.Err != (store.QuotaError{Limit: "documents", Used: 2, Allowed: 3}) || !dry && r.Created != 0 {
			t.Errorf("dry %v: %+v, %v", dry, r, err)
		}
	}
	holds(2)
	if r, err := w.load(acme, contact(1)+"\n"+contact(3)+"\n"+`{"kind":"team","name":"Red"}`+"\n"+`{"kind":"team","name":"Blue"}`, ImportOptions{}); err != nil || r.Created != 3 {
		t.Errorf("as many as there is room for, and what does not count: %+v, %v", r, err)
	}
	holds(3)
	used, err := acme.Workspace().Used(t.Context())
	check(t, err)
	limit(tenants.LimitBytes, used.Bytes+used.Bytes/2)
	var lines []string
	for n := range 20 {
		lines = append(lines, contact(10+n))
	}
	r, err := w.load(acme, contact(1)+"\n"+strings.Join(lines, "\n"), ImportOptions{})
	var cut *InterruptedError
	var full *store.QuotaError
	if !errors.As(err, &cut) || !errors.As(err, &full) || full.Limit != "bytes" || cut.Stored != 1 || r.Unchanged != 1 {
		t.Errorf("more bytes than there is room for: %+v, %v", r, err)
	}
	holds(3)

	// A mirror has the room of what it removes.
	limit(tenants.LimitDocuments, 3)
	bundle := `{"kind":"organization","name":"Acme","limits":{"documents":3}}` + "\n" + strings.Join(lines[:3], "\n") + "\n"
	var noRoom *NoRoomError
	if r, err := w.load(acme, bundle+contact(9), ImportOptions{Mirror: true}); !errors.As(err, &noRoom) || r.Created+r.Removed != 0 {
		t.Errorf("a mirror of one too many: %+v, %v", r, err)
	}
	holds(3)
	if r, err := w.load(acme, bundle, ImportOptions{Mirror: true}); err != nil || r.Created != 3 || r.Kinds[kindContact].Removed != 3 {
		t.Errorf("a mirror of as many: %+v, %v", r, err)
	}
	holds(3)
}
