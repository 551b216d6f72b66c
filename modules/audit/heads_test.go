package audit_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"tenantry/backends/store"
	"tenantry/modules/audit"
	"tenantry/tenants"
)

func (w *sealedWorld) advance(t *testing.T, of *tenants.Tenant) {
	t.Helper()
	if err := w.heads.Advance(t.Context(), of); err != nil {
		t.Fatal(err)
	}
}

func (w *sealedWorld) head(t *testing.T, of *tenants.Tenant) audit.Head {
	t.Helper()
	head, err := w.heads.Head(t.Context(), of)
	if err != nil {
		t.Fatal(err)
	}
	return head
}

// compare returns what Compare and Extends find of a log and an earlier head.
func (w *sealedWorld) compare(t *testing.T, of *tenants.Tenant, earlier string) (audit.Comparison, audit.Extension) {
	t.Helper()
	all, err := w.heads.Compare(t.Context(), of, earlier, func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	extension, err := w.heads.Extends(t.Context(), of, earlier)
	if err != nil {
		t.Fatal(err)
	}
	return all, extension
}

// all returns the records of the log in their order.
func (w *sealedWorld) all(t *testing.T, of *tenants.Tenant) []audit.Record {
	t.Helper()
	found, err := w.log.Records(of.Workspace()).Find(t.Context(), store.Query{
		Sort: []store.Order{store.Asc("created_at"), store.Asc("id")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// dropTree removes the stored tree and its head.
func (w *sealedWorld) dropTree(t *testing.T, of *tenants.Tenant) {
	t.Helper()
	ws := of.Workspace()
	_, err := w.heads.StoredLeaves(ws).Purge(t.Context())
	_, err2 := w.heads.StoredTiles(ws).Purge(t.Context())
	_, err3 := w.heads.StoredHeads(ws).Purge(t.Context())
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
}

// TestHeads_WhatTheyTell: whoever keeps a head learns of everything that was done to the log past the gateway, and of
// nothing that the gateway did.
func TestHeads_WhatTheyTell(t *testing.T) {
	t.Parallel()
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		do      func(t *testing.T, w *sealedWorld, of *tenants.Tenant)
		extends string // Extension.What
		tree    string // part of Comparison.What
		faults  []string
		stuck   bool // no further head is signed
	}{
		"nothing": {do: func(*testing.T, *sealedWorld, *tenants.Tenant) {}},
		"more records": {do: func(t *testing.T, w *sealedWorld, of *tenants.Tenant) {
			w.Clock.Advance(time.Hour)
			w.wrote(t, of, 300, time.Second)
			w.advance(t, of)
		}},
		"another key": {do: func(t *testing.T, w *sealedWorld, of *tenants.Tenant) {
			must(t, w.heads.Rotate(t.Context()))
			w.advance(t, of)
		}},
		"the end is cut off, with its leaves": {func(t *testing.T, w *sealedWorld, of *tenants.Tenant) {
			records := w.all(t, of)
			for i := range records[290:] {
				must(t, w.log.Records(of.Workspace()).Delete(t.Context(), &records[290+i]))
			}
			w.dropTree(t, of)
			w.advance(t, of)
		}, "shrunk", "those after record", nil, false},
		"the end is cut off, with its leaves, and a record is changed": {func(t *testing.T, w *sealedWorld, of *tenants.Tenant) {
			records := w.all(t, of)
			for i := range records[290:] {
				must(t, w.log.Records(of.Workspace()).Delete(t.Context(), &records[290+i]))
			}
			w.dropTree(t, of)
			w.advance(t, of)
			_, err := w.log.Records(of.Workspace()).Update(t.Context(), records[7].ID, func(r *audit.Record) error {
				r.Subject = "key:other"
				return nil
			})
			must(t, err)
		}, "shrunk", "those after record", []string{"7 changed"}, false},
		"the end is cut off, but not the head": {func(t *testing.T, w *sealedWorld, of *tenants.Tenant) {
			records := w.all(t, of)
			for i := range records[290:] {
				must(t, w.log.Records(of.Workspace()).Delete(t.Context(), &records[290+i]))
			}
			w.changeLeaf(t, of, 1, func(tile *audit.LeafTile) {
				tile.Records, tile.Hashes = tile.Records[:34], tile.Hashes[:34*32]
			})
		}, "forked", "leaves from 290 on are missing", nil, true},
		"all is gone": {func(t *testing.T, w *sealedWorld, of *tenants.Tenant) {
			_, err := w.log.Records(of.Workspace()).Purge(t.Context())
			must(t, err)
			w.dropTree(t, of)
		}, "shrunk", "there is no head now", nil, false},
		"the head is replaced by an earlier one": {func(t *testing.T, w *sealedWorld, of *tenants.Tenant) {
			head, err := w.heads.StoredHeads(of.Workspace()).First(t.Context(), store.Query{})
			must(t, err)
			head.Text = w.earlier
			must(t, w.heads.StoredHeads(of.Workspace()).Replace(t.Context(), head))
		}, "shrunk", "those after record", nil, false},
		"a record is changed": {func(t *testing.T, w *sealedWorld, of *tenants.Tenant) {
			_, err := w.log.Records(of.Workspace()).Update(t.Context(), w.all(t, of)[7].ID, func(r *audit.Record) error {
				r.Subject = "key:other"
				return nil
			})
			must(t, err)
		}, "", "", []string{"7 changed"}, false},
		"a record is removed": {func(t *testing.T, w *sealedWorld, of *tenants.Tenant) {
			must(t, w.log.Records(of.Workspace()).Delete(t.Context(), &w.all(t, of)[260]))
		}, "", "", []string{"260 removed"}, false},
		"a record is changed, and the tree made anew": {func(t *testing.T, w *sealedWorld, of *tenants.Tenant) {
			_, err := w.log.Records(of.Workspace()).Update(t.Context(), w.all(t, of)[7].ID, func(r *audit.Record) error {
				r.Subject = "key:other"
				return nil
			})
			must(t, err)
			w.dropTree(t, of)
			w.advance(t, of)
		}, "forked", "not those of the earlier head", nil, false},
		"records are exchanged for others, in a tree made anew": {func(t *testing.T, w *sealedWorld, of *tenants.Tenant) {
			must(t, w.log.Records(of.Workspace()).Delete(t.Context(), &w.all(t, of)[299]))
			w.wrote(t, of, 40, time.Millisecond)
			w.dropTree(t, of)
			w.advance(t, of)
		}, "forked", "not those of the earlier head", nil, false},
		"a record is inserted among older ones": {func(t *testing.T, w *sealedWorld, of *tenants.Tenant) {
			w.Clock.Advance(time.Hour)
			w.advance(t, of)
			forged := &audit.Record{Operation: "contacts.update", Subject: "key:other", Outcome: audit.OK}
			forged.CreatedAt = w.all(t, of)[7].CreatedAt
			must(t, w.log.Records(of.Workspace()).Insert(t.Context(), forged))
			w.advance(t, of)
		}, "", "", []string{"-1 inserted"}, false},
		"a leaf is changed": {func(t *testing.T, w *sealedWorld, of *tenants.Tenant) {
			w.changeLeaf(t, of, 0, func(tile *audit.LeafTile) { tile.Hashes[7*32] ^= 1 })
		}, "", "not those of the earlier head", []string{"7 changed"}, false}, // the tile above vouches for the hashes below
		"a leaf of the last tile is changed": {func(t *testing.T, w *sealedWorld, of *tenants.Tenant) {
			w.changeLeaf(t, of, 1, func(tile *audit.LeafTile) { tile.Hashes[7*32] ^= 1 })
		}, "forked", "not those of the earlier head", []string{"263 changed"}, true},
		"a tile is gone": {func(t *testing.T, w *sealedWorld, of *tenants.Tenant) {
			tile, err := w.heads.StoredLeaves(of.Workspace()).First(t.Context(), store.Query{
				Sort: []store.Order{store.Desc("number")},
			})
			must(t, err)
			must(t, w.heads.StoredLeaves(of.Workspace()).Delete(t.Context(), tile))
		}, "forked", "leaves from 256 on are missing", nil, false}, // until the next step makes it again
		"a tile above is changed": {func(t *testing.T, w *sealedWorld, of *tenants.Tenant) {
			tile, err := w.heads.StoredTiles(of.Workspace()).First(t.Context(), store.Query{})
			must(t, err)
			tile.Hashes[0] ^= 1
			must(t, w.heads.StoredTiles(of.Workspace()).Replace(t.Context(), tile))
		}, "forked", "", nil, true},
	} {
		told := func(t *testing.T, whose func(*sealedWorld, *testing.T) *tenants.Tenant) {
			t.Parallel()
			w := newSealedWorld(t)
			of := whose(w, t)
			w.wrote(t, of, 270, time.Second)
			w.advance(t, of)
			w.earlier = *w.head(t, of).Head
			w.Clock.Advance(10 * time.Minute)
			w.wrote(t, of, 30, time.Second)
			w.advance(t, of)
			kept := w.head(t, of)
			if kept.Size != 300 {
				t.Fatalf("the head has %d records, want 300", kept.Size)
			}
			for _, head := range []string{w.earlier, *kept.Head} {
				if all, one := w.compare(t, of, head); !all.Intact || all.Records != 300 || !one.Extends {
					t.Fatalf("before anything was done: %+v, %+v", all, one)
				}
			}
			tt.do(t, w, of)
			all, one := w.compare(t, of, *kept.Head)
			var faults []string
			for _, f := range all.Faults {
				faults = append(faults, strings.Join([]string{strconv.FormatInt(f.Index, 10), f.What}, " "))
			}
			if tt.faults != nil {
				slices.Sort(faults)
			}
			if one.What != tt.extends || one.Extends != (tt.extends == "") || !strings.Contains(all.What, tt.tree) ||
				!slices.Equal(faults, tt.faults) || all.Intact != (tt.tree == "" && tt.faults == nil) {
				t.Errorf("got %+v and %+v; want %q, %q and %v", all, one, tt.extends, tt.tree, tt.faults)
			}
			torn := tt.stuck || name == "a tile is gone"
			if want := tt.extends != "" && tt.faults == nil && !torn; all.Replaced() != want {
				t.Errorf("got %+v, want Replaced to be %t", all, want)
			}
			// Check reads the way to the root alone.
			if size, _, err := w.heads.Check(t.Context(), of); (err != nil) != torn {
				t.Errorf("Check: got %d, %v", size, err)
			}
			if !tt.stuck {
				return
			}
			w.Clock.Advance(time.Hour)
			w.wrote(t, of, 1, 0)
			if err := w.heads.Advance(t.Context(), of); err == nil {
				t.Errorf("a head was signed that does not continue the last one")
			}
			if err := w.heads.Restart(t.Context(), of); err != nil {
				t.Error(err)
			}
			if all, err := w.heads.Compare(t.Context(), of, "", func(int64) {}); err != nil || !all.Intact || all.Size < 291 {
				t.Errorf("after a restart: got %+v, %v", all, err)
			}
		}
		t.Run(name+", an organization's", func(t *testing.T) {
			told(t, func(w *sealedWorld, t *testing.T) *tenants.Tenant { return w.Tenant(t, "acme") })
		})
		t.Run(name+", the installation's", func(t *testing.T) {
			told(t, func(w *sealedWorld, _ *testing.T) *tenants.Tenant { return w.Directory.Own() })
		})
	}
}

// changeLeaf changes a tile of the lowest level.
func (w *sealedWorld) changeLeaf(t *testing.T, of *tenants.Tenant, number int64, change func(*audit.LeafTile)) {
	t.Helper()
	tile, err := w.heads.StoredLeaves(of.Workspace()).First(t.Context(), store.Query{Filter: store.Eq("number", number)})
	if err == nil {
		change(tile)
		err = w.heads.StoredLeaves(of.Workspace()).Replace(t.Context(), tile)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestHeads_ConsistentForgery: a record that was changed together with its leaf does not fit the last head, whether or
// not it was there when an earlier head was signed.
func TestHeads_ConsistentForgery(t *testing.T) {
	t.Parallel()
	w := newSealedWorld(t)
	of := w.Tenant(t, "acme")
	w.wrote(t, of, 10, time.Second)
	w.advance(t, of)
	first := *w.head(t, of).Head
	w.Clock.Advance(time.Hour)
	w.wrote(t, of, 10, time.Second)
	w.advance(t, of)
	forged, err := w.log.Records(of.Workspace()).Update(t.Context(), w.all(t, of)[15].ID, func(r *audit.Record) error {
		r.Subject = "key:other"
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	hash, err := forged.LeafHash()
	if err != nil {
		t.Fatal(err)
	}
	w.changeLeaf(t, of, 0, func(tile *audit.LeafTile) { copy(tile.Hashes[15*32:], hash[:]) })
	for _, earlier := range []string{"", first} {
		all, err := w.heads.Compare(t.Context(), of, earlier, func(int64) {})
		if err != nil || all.Intact || len(all.Faults) > 0 || !strings.Contains(all.What, "not that of its last head") {
			t.Errorf("got %+v, %v; want that the tree is not that of its head", all, err)
		}
	}
	if one, err := w.heads.Extends(t.Context(), of, first); err != nil || one.Extends || one.What != "forked" {
		t.Errorf("got %+v, %v; want a fork", one, err)
	}
}

// TestHeads_AfterAKill: whatever a step had stored when its process was killed, the next one completes it, to the same
// tree.
func TestHeads_AfterAKill(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, w *sealedWorld, of *tenants.Tenant, before *audit.SignedHead){
		"before the head": func(t *testing.T, w *sealedWorld, of *tenants.Tenant, before *audit.SignedHead) {
			w.putHead(t, of, before)
		},
		"before the tiles above": func(t *testing.T, w *sealedWorld, of *tenants.Tenant, before *audit.SignedHead) {
			w.putHead(t, of, before)
			tile, err := w.heads.StoredTiles(of.Workspace()).First(t.Context(), store.Query{})
			if err != nil {
				t.Fatal(err)
			}
			tile.Hashes = tile.Hashes[:32] // what was there before
			if err := w.heads.StoredTiles(of.Workspace()).Replace(t.Context(), tile); err != nil {
				t.Fatal(err)
			}
		},
		"within the leaves": func(t *testing.T, w *sealedWorld, of *tenants.Tenant, before *audit.SignedHead) {
			w.putHead(t, of, before)
			ws := of.Workspace()
			_, err := w.heads.StoredTiles(ws).Purge(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			leaves := w.heads.StoredLeaves(ws)
			for _, number := range []int64{2, 3} {
				tile, err := leaves.First(t.Context(), store.Query{Filter: store.Eq("number", number)})
				if err == nil {
					err = leaves.Delete(t.Context(), tile)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newSealedWorld(t)
			of := w.Tenant(t, "acme")
			w.wrote(t, of, 300, time.Second)
			w.advance(t, of)
			before, err := w.heads.StoredHeads(of.Workspace()).First(t.Context(), store.Query{})
			if err != nil {
				t.Fatal(err)
			}
			w.Clock.Advance(time.Hour)
			w.wrote(t, of, 700, time.Second)
			w.advance(t, of)
			whole := w.head(t, of)
			lose(t, w, of, before)
			records := w.all(t, of)
			if _, err := w.heads.Prove(t.Context(), of, records[999].ID); err == nil || !strings.Contains(err.Error(), "not in the tree") {
				t.Errorf("a record without a head: got %v, want that it is not in the tree", err)
			}
			w.advance(t, of)
			again := w.head(t, of)
			if *again.Root != *whole.Root || again.Size != 1000 {
				t.Errorf("the tree has %d leaves and the root %s, want 1000 and %s", again.Size, *again.Root, *whole.Root)
			}
			if all, one := w.compare(t, of, before.Text); !all.Intact || !one.Extends {
				t.Errorf("got %+v and %+v, want no difference", all, one)
			}
		})
	}
}

// putHead puts an earlier head in the place of the last one.
func (w *sealedWorld) putHead(t *testing.T, of *tenants.Tenant, earlier *audit.SignedHead) {
	t.Helper()
	head, err := w.heads.StoredHeads(of.Workspace()).First(t.Context(), store.Query{})
	if err == nil {
		head.Text = earlier.Text
		err = w.heads.StoredHeads(of.Workspace()).Replace(t.Context(), head)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestHeads_LateRecords: a record that is stored after others of its time enters the tree once, and once no such record
// can arrive any more.
func TestHeads_LateRecords(t *testing.T) {
	t.Parallel()
	w := newSealedWorld(t)
	of := w.Tenant(t, "acme")
	at := func(ago time.Duration, subject string) *audit.Record {
		rec := &audit.Record{Operation: "contacts.update", Subject: subject, Outcome: audit.OK}
		rec.CreatedAt = w.Clock.Now().Add(-ago).UnixMilli()
		if err := w.log.Records(of.Workspace()).Insert(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		return rec
	}
	at(time.Minute, "first")
	fresh := at(0, "fresh")
	w.advance(t, of)
	if size := w.head(t, of).Size; size != 1 {
		t.Fatalf("the tree has %d records, want 1: one is too new", size)
	}
	late, same := at(2*time.Minute, "late"), at(2*time.Minute, "later")
	w.advance(t, of)
	if size := w.head(t, of).Size; size != 1 {
		t.Fatalf("the tree has %d records, want 1: others may be late too", size)
	}
	w.Clock.Advance(audit.HeadGrace + time.Second)
	w.advance(t, of)
	if size := w.head(t, of).Size; size != 2 {
		t.Fatalf("the tree has %d records, want 2", size)
	}
	for range 3 {
		w.Clock.Advance(14 * time.Minute)
		w.advance(t, of)
	}
	kept := w.head(t, of)
	if kept.Size != 4 {
		t.Fatalf("the tree has %d records, want 4", kept.Size)
	}
	var leaves []int64
	for _, rec := range []*audit.Record{fresh, late, same} {
		proof, err := w.heads.Prove(t.Context(), of, rec.ID)
		if err != nil {
			t.Fatalf("%s: %v", rec.Subject, err)
		}
		leaves = append(leaves, proof.Index)
	}
	if slices.Sort(leaves); !slices.Equal(leaves, []int64{1, 2, 3}) {
		t.Errorf("the leaves are %v, want 1, 2 and 3", leaves)
	}
	if all, one := w.compare(t, of, *kept.Head); !all.Intact || all.Records != 4 || !one.Extends {
		t.Errorf("got %+v and %+v, want no difference", all, one)
	}
}

// TestHeads_SeveralReplicas: replicas that advance a tree at the same time make one tree.
func TestHeads_SeveralReplicas(t *testing.T) {
	t.Parallel()
	w := newSealedWorld(t)
	of := w.Tenant(t, "acme")
	for range 8 {
		w.wrote(t, of, 300, time.Millisecond)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if err := w.heads.Advance(t.Context(), of); err != nil && !errors.Is(err, store.ErrConflict) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		w.Clock.Advance(time.Hour)
	}
	w.advance(t, of)
	kept := w.head(t, of)
	if all, one := w.compare(t, of, *kept.Head); !all.Intact || all.Records != 2400 || !one.Extends {
		t.Errorf("got %+v and %+v, want 2400 records", all, one)
	}
}

// TestWritten: an organization is forgotten only if nothing was written to its log since.
func TestWritten(t *testing.T) {
	t.Parallel()
	w := newSealedWorld(t)
	of := w.Tenant(t, "acme")
	write := func(to *tenants.Tenant) {
		if err := w.log.Write(t.Context(), to.Workspace(), audit.Record{Operation: "now", Outcome: audit.OK}); err != nil {
			t.Fatal(err)
		}
	}
	write(of)
	write(w.Directory.Own())
	first := w.log.Written()
	if len(first) != 2 || first[of.Org.OrgID].IsZero() || first[0].IsZero() {
		t.Fatalf("got %v, want the organization and the installation", first)
	}
	write(of)
	w.log.Covered(of.Org.OrgID, first[of.Org.OrgID])
	w.log.Covered(0, first[0])
	then := w.log.Written()
	if len(then) != 1 || !then[of.Org.OrgID].After(first[of.Org.OrgID]) {
		t.Fatalf("got %v, want the organization, to whose log more was written", then)
	}
	w.log.Covered(of.Org.OrgID, then[of.Org.OrgID])
	if left := w.log.Written(); len(left) != 0 {
		t.Errorf("got %v, want none", left)
	}
}

// TestHeads_Proofs: every record of a tree has a proof that leads to the signed root, and no other has one.
func TestHeads_Proofs(t *testing.T) {
	t.Parallel()
	w := newSealedWorld(t)
	of := w.Tenant(t, "acme")
	w.wrote(t, of, 600, 0) // all of one millisecond
	w.advance(t, of)
	records := w.all(t, of)
	for _, i := range []int{0, 255, 256, 511, 512, 599} {
		proof, err := w.heads.Prove(t.Context(), of, records[i].ID)
		if err != nil || proof.Index != int64(i) || proof.Size != 600 {
			t.Errorf("record %d: got %+v, %v", i, proof, err)
		}
	}
	refused := func(id, want string) {
		t.Helper()
		if _, err := w.heads.Prove(t.Context(), of, id); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	refused("665f1c2ab4d3e2f1a0b9c8e1", "not found")
	forged := &audit.Record{Operation: "forged", Outcome: audit.OK}
	forged.CreatedAt = records[0].CreatedAt
	if err := w.log.Records(of.Workspace()).Insert(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
	refused(forged.ID, "not in the tree")
	_, err := w.log.Records(of.Workspace()).Update(t.Context(), records[3].ID, func(r *audit.Record) error {
		r.Outcome = audit.Denied
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	refused(records[3].ID, "not what it was")
}

// TestHeads_KeysChange: after a rotation heads have the signatures of both keys, those of before stay valid, and whoever
// knows only the former key can verify the next heads too.
func TestHeads_KeysChange(t *testing.T) {
	t.Parallel()
	w := newSealedWorld(t)
	of, other := w.Tenant(t, "acme"), w.Tenant(t, "globex")
	for _, tenant := range []*tenants.Tenant{of, other} {
		w.wrote(t, tenant, 3, time.Second)
		w.advance(t, tenant)
	}
	first := w.head(t, of)
	opens := func(head, key string) bool {
		verifier, err := note.NewVerifier(key)
		if err != nil {
			t.Fatal(err)
		}
		_, err = note.Open([]byte(head), note.VerifierList(verifier))
		return err == nil
	}
	if len(first.Keys) != 1 || !opens(*first.Head, first.Keys[0]) {
		t.Fatalf("got %+v, want a head that its key opens", first)
	}
	if err := w.heads.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.advance(t, of)
	second := w.head(t, of)
	if len(second.Keys) != 2 || !opens(*second.Head, second.Keys[0]) || !opens(*second.Head, first.Keys[0]) || second.Keys[1] != first.Keys[0] {
		t.Errorf("got %+v, want a head that both keys open", second)
	}
	if err := w.heads.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.advance(t, of)
	third := w.head(t, of)
	if len(third.Keys) != 3 || !opens(*third.Head, third.Keys[0]) || !opens(*third.Head, third.Keys[1]) || opens(*third.Head, third.Keys[2]) {
		t.Errorf("got %+v, want a head that the two newest keys open", third)
	}
	for _, earlier := range []audit.Head{first, second, third} {
		if all, one := w.compare(t, of, *earlier.Head); !all.Intact || !one.Extends {
			t.Errorf("got %+v and %+v, want no difference", all, one)
		}
	}
	theirs := *w.head(t, other).Head
	if _, err := w.heads.Extends(t.Context(), of, theirs); err == nil {
		t.Error("the head of another organization was compared")
	}
	if _, err := w.heads.Compare(t.Context(), of, theirs, func(int64) {}); !audit.IsForeignHead(err) {
		t.Errorf("got %v, want that it is the head of another organization", err)
	}
}
