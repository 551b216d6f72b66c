package store_test

import (
	"errors"
	"slices"
	"testing"

	"tenantry/backends/driver"
	"tenantry/backends/store"
)

// TestClaim: the first commit stores the claim, and the batch that concludes it stores the completed record. Errors have
// the index of the staged write.
func TestClaim(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		engine := open(t)
		f := setupOn(t, engine, nil)
		c := f.plains.In(f.ws)
		there, note := &plain{Name: "there"}, &plain{Name: "claimed"}
		insert(t, c, there, note)
		stale := *there
		if err := c.Replace(t.Context(), there); err != nil {
			t.Fatal(err)
		}
		note.Name = "begun"
		claim, err := c.Claim(note)
		if err != nil {
			t.Fatal(err)
		}
		ws := f.ws.Claimed(claim)
		in := f.plains.In(ws)
		names := func() (names []string) {
			t.Helper()
			all, err := c.Find(t.Context(), store.Query{Sort: []store.Order{store.Asc("name")}})
			if err != nil {
				t.Fatal(err)
			}
			for _, rec := range all {
				names = append(names, rec.Name)
			}
			return names
		}

		var dup *store.DuplicateError
		var conflict *store.ConflictError
		if err := in.Insert(t.Context(), &plain{Name: "none"}, &plain{Meta: store.Meta{ID: there.ID}}); !errors.As(err, &dup) || dup.Position != 1 {
			t.Errorf("an existing identifier: %v, want a duplicate at 1", err)
		}
		if err := in.Replace(t.Context(), ptr(*there), ptr(stale)); !errors.As(err, &conflict) || conflict.Position != 1 {
			t.Errorf("a stale record: %v, want a conflict at 1", err)
		}
		if atomic, is := engine.(driver.Atomic); claim.Begun() && is && atomic.Atomic() {
			t.Error("the claim has begun although nothing was stored")
		}
		insert(t, in, &plain{Name: "one"})
		if got, want := names(), []string{"begun", "one", "there"}; !claim.Begun() || claim.Concluded() || !slices.Equal(got, want) {
			t.Errorf("after the first commit: %q, begun %t, concluded %t; want %q",
				got, claim.Begun(), claim.Concluded(), want)
		}

		b, done, last := ws.Batch(), *note, &plain{Name: "two"}
		done.Name = "done"
		if err := errors.Join(in.StageInsert(b, last), c.Conclude(b, claim, &done)); err != nil {
			t.Fatal(err)
		}
		if last.Rev != 1 {
			t.Errorf("a staged record has revision %d, want 1", last.Rev)
		}
		if err := b.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := names(), []string{"done", "one", "there", "two"}; !claim.Concluded() || !slices.Equal(got, want) {
			t.Errorf("after the last commit: %q, concluded %t; want %q", got, claim.Concluded(), want)
		}
	})
}

// TestClaim_OneCommit: if the first commit concludes the claim, only the completed record is stored.
func TestClaim_OneCommit(t *testing.T) {
	t.Parallel()
	f := setup(t, openSQLite)
	c := f.plains.In(f.ws)
	note := &plain{Name: "claimed"}
	insert(t, c, note)
	claim, err := c.Claim(note)
	if err != nil {
		t.Fatal(err)
	}
	b, done := f.ws.Claimed(claim).Batch(), *note
	done.Name = "done"
	if err := errors.Join(c.StageInsert(b, &plain{Name: "only"}), c.Conclude(b, claim, &done), b.Commit(t.Context())); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Get(t.Context(), note.ID); err != nil || got.Name != "done" || got.Rev != 2 || !claim.Begun() || !claim.Concluded() {
		t.Errorf("%+v, %v, begun %t, concluded %t; want revision 2, done", got, err, claim.Begun(), claim.Concluded())
	}
}

// TestClaim_OtherOrganization: the claim is stored before a write of another organization, and no batch mixes
// organizations.
func TestClaim_OtherOrganization(t *testing.T) {
	t.Parallel()
	f := setup(t, openSQLite)
	other, err := f.At(t.Context(), 2, store.Placement{})
	if err != nil {
		t.Fatal(err)
	}
	own := f.plains.In(f.ws)
	note := &plain{Name: "claimed"}
	insert(t, own, note)
	note.Name = "begun"
	claim, err := own.Claim(note)
	if err != nil {
		t.Fatal(err)
	}
	foreign := f.plains.In(other.Claimed(claim))
	wantErr(t, "a batch of two organizations", own.StageInsert(other.Batch(), &plain{Name: "own"}), store.ErrQuery)
	insert(t, foreign, &plain{Name: "foreign"})
	if got, err := own.Get(t.Context(), note.ID); err != nil || got.Name != "begun" || !claim.Begun() {
		t.Errorf("%+v, %v, begun %t; want the claim to be stored", got, err, claim.Begun())
	}
}

// TestPreconditions: a batch commits only if the records it requires are unchanged, apart from those it changes itself.
// A failed commit restores the revisions of the staged records.
func TestPreconditions(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setupOn(t, open(t), nil)
		c := f.plains.In(f.ws)
		read, rec := &plain{Name: "read"}, &plain{Name: "rec"}
		insert(t, c, read)
		stale := *read
		commit := func(of *plain) error {
			b := f.ws.Batch()
			b.Require(c.Unchanged(of))
			if err := c.StageInsert(b, rec); err != nil {
				t.Fatal(err)
			}
			err := b.Commit(t.Context())
			if err != nil {
				wantErr(t, "a failed batch, committed again", b.Commit(t.Context()), store.ErrQuery)
			}
			return err
		}
		if err := c.Replace(t.Context(), read); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "a changed precondition", commit(&stale), store.ErrConflict)
		if rec.Rev != 0 {
			t.Errorf("a record that was not stored has revision %d, want 0", rec.Rev)
		}
		if err := commit(read); err != nil || rec.Rev != 1 {
			t.Errorf("an unchanged precondition: %v, revision %d, want 1", err, rec.Rev)
		}
		b := f.ws.Batch()
		b.Require(c.Unchanged(read))
		if err := errors.Join(c.StageReplace(t.Context(), b, read), b.Commit(t.Context())); err != nil {
			t.Errorf("a batch that changes the record it requires: %v", err)
		}
		again := func(of *plain) error { rec = &plain{Name: "again"}; return commit(of) }
		wantErr(t, "a deleted precondition", errors.Join(c.Delete(t.Context(), read), again(read)), store.ErrConflict)
	})
}
