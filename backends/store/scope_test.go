package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tenantry/backends/store"

	"pgregory.net/rapid"
)

// view returns the items that a workspace shows, and checks that all queries agree.
func view(t testing.TB, f *fixture, w *store.Workspace, filter store.Filter, state store.State) string {
	t.Helper()
	ctx := context.Background()
	c, table := f.items.In(w), f.items.Table(w)
	want := names(t, c, store.Query{Filter: filter, State: state})
	n := int64(len(strings.Fields(want)))
	var each []item
	if err := c.Each(ctx, filter, state, func(r *item) error { each = append(each, *r); return nil }); err != nil {
		t.Fatal(err)
	}
	if got := nameList(each); got != want {
		t.Errorf("Each shows %q, Find %q", got, want)
	}
	if got, err := c.CountIn(ctx, filter, state); got != n || err != nil {
		t.Errorf("CountIn is %d (%v), Find shows %q", got, err, want)
	}
	rows, _, err := table.Select(ctx, []store.Field{store.F("name")}, store.Query{Filter: filter, State: state})
	if err != nil {
		t.Fatal(err)
	}
	selected := make([]item, len(rows))
	for i, row := range rows {
		selected[i].Name, _ = row[0].(string)
	}
	if got := nameList(selected); got != want {
		t.Errorf("Select shows %q, Find %q", got, want)
	}
	if state != store.Live {
		return want
	}
	if got, err := c.Count(ctx, filter); got != n || err != nil {
		t.Errorf("Count is %d (%v), Find shows %q", got, err, want)
	}
	if got, err := table.Count(ctx, filter); got != n || err != nil {
		t.Errorf("Table.Count is %d (%v), Find shows %q", got, err, want)
	}
	rows, _, err = table.Aggregate(ctx, store.Aggregation{Filter: filter, Groups: []store.Group{{Field: store.F("name")}}, Measures: []store.Measure{{Op: store.MeasureCount}}})
	if err != nil {
		t.Fatal(err)
	}
	grouped := []string{}
	for _, row := range rows {
		grouped = append(grouped, fmt.Sprint(row[0]))
	}
	slices.Sort(grouped)
	if got := strings.Join(grouped, " "); got != want {
		t.Errorf("Aggregate shows %q, Find %q", got, want)
	}
	return want
}

func TestSoftDeletedRecordsAreSeenOnRequestOnly(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		c := f.items.In(f.ws)
		gone := &item{Name: "gone"}
		insert(t, c, &item{Name: "live"}, gone, &item{Name: "gone2", Title: "x", Deleted: true})
		if _, err := c.Update(t.Context(), gone.ID, func(r *item) error { r.Deleted = true; return nil }); err != nil {
			t.Fatal(err)
		}
		for state, want := range map[store.State]string{store.Live: "live", store.Deleted: "gone gone2", store.Either: "gone gone2 live", 7: "live", -1: "live"} {
			if got := view(t, f, f.ws, store.Filter{}, state); got != want {
				t.Errorf("state %d shows %q, want %q", state, got, want)
			}
		}
		// A condition on the state narrows, it does not replace the state.
		wide := store.AnyOf(store.Eq("deleted", true), store.Has("name", true))
		if got := view(t, f, f.ws, wide, store.Live); got != "live" {
			t.Errorf("a condition on deleted shows %q", got)
		}
		_, err := c.Get(t.Context(), gone.ID)
		wantErr(t, "Get", err, store.ErrNotFound)
		_, err = c.First(t.Context(), store.Query{Filter: store.Eq("id", gone.ID)})
		wantErr(t, "First", err, store.ErrNotFound)
		_, err = c.Update(t.Context(), gone.ID, func(r *item) error { r.Deleted = false; return nil })
		wantErr(t, "Update", err, store.ErrNotFound)
		// A query for deleted records finds it, and Replace restores it.
		back, err := c.First(t.Context(), store.Query{Filter: store.Eq("id", gone.ID), State: store.Deleted})
		if err != nil {
			t.Fatal(err)
		}
		back.Deleted = false
		if err := c.Replace(t.Context(), back); err != nil {
			t.Fatal(err)
		}
		if got := view(t, f, f.ws, store.Filter{}, store.Live); got != "gone live" {
			t.Errorf("after the restoration %q are live, want gone and live", got)
		}
	})
}

func teamItems(t *testing.T, f *fixture) map[string][]string {
	t.Helper()
	all := map[string][]string{
		"none": nil, "empty": {}, "a": {"a"}, "b": {"b"}, "c": {"c"}, "ab": {"a", "b"}, "bc": {"b", "c"}, "abc": {"a", "b", "c"}, "A": {"A"}, "aa": {"aa"},
	}
	for name, teams := range all {
		insert(t, f.items.In(f.ws), &item{Name: name, Title: "t", Code: name, Teams: teams})
	}
	return all
}

func TestScopes(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		teamItems(t, f)
		const all = "A a aa ab abc b bc c empty none"
		for _, tt := range []struct {
			scope store.Scope
			want  string
		}{
			{store.Scope{All: true}, all},
			{store.Scope{All: true, Teams: []string{"a"}}, all},
			{store.Scope{}, "empty none"},
			{store.Scope{Teams: []string{}}, "empty none"},
			{store.Scope{Teams: []string{"a"}}, "a ab abc empty none"},
			{store.Scope{Teams: []string{"c", "c", "A"}}, "A abc bc c empty none"},
			{store.Scope{Teams: []string{"x", "", "a%", "a\x00", `a","b`, "aa"}}, "aa empty none"},
		} {
			w := f.ws.Scoped(tt.scope)
			if got := view(t, f, w, store.Filter{}, store.Live); got != tt.want {
				t.Errorf("%+v shows %q, want %q", tt.scope, got, tt.want)
			}
			if hidden := view(t, f, f.ws, tt.scope.Hidden(), store.Either); !tt.scope.All {
				both := append(strings.Fields(hidden), strings.Fields(tt.want)...)
				if slices.Sort(both); strings.Join(both, " ") != all {
					t.Errorf("%+v hides %q and shows %q, want all records once", tt.scope, hidden, tt.want)
				}
			}
			// No condition reaches past the scope.
			wide := store.AnyOf(store.Has("teams", true), store.Has("teams", false), store.In("teams", "a", "b", "c"))
			if got := view(t, f, w, wide, store.Either); got != tt.want {
				t.Errorf("%+v with a wide filter shows %q, want %q", tt.scope, got, tt.want)
			}
		}
		if got := view(t, f, f.ws, store.Filter{}, store.Live); got != all {
			t.Errorf("the unscoped workspace shows %q", got)
		}
		// Kinds without teams are in every scope.
		insert(t, f.plains.In(f.ws), &plain{Name: "p"})
		if n, err := f.plains.In(f.ws.Scoped(store.Scope{})).Count(t.Context(), store.Filter{}); n != 1 || err != nil {
			t.Errorf("%d plain records, %v", n, err)
		}
	})
}

// A sequence of scopes shows exactly the records that each of them shows.
func TestScopedOnlyNarrows(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		all := teamItems(t, f)
		scopes := rapid.Custom(func(t *rapid.T) store.Scope {
			return store.Scope{
				All:   rapid.Bool().Draw(t, "all"),
				Teams: rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "A", "aa", "x"}), 0, 4).Draw(t, "teams"),
			}
		})
		rapid.Check(t, func(t *rapid.T) {
			w := f.ws
			visible := map[string]bool{}
			for name := range all {
				visible[name] = true
			}
			var teams []string // what all limited scopes so far have in common
			limited := false
			for _, scope := range rapid.SliceOfN(scopes, 1, 4).Draw(t, "scopes") {
				w = w.Scoped(scope)
				switch {
				case scope.All:
				case !limited:
					limited, teams = true, scope.Teams
				default:
					teams = slices.DeleteFunc(slices.Clone(teams), func(s string) bool { return !slices.Contains(scope.Teams, s) })
				}
				var want []string
				for name, own := range all {
					shown := !limited || len(own) == 0 || slices.ContainsFunc(own, func(s string) bool { return slices.Contains(teams, s) })
					if shown && !visible[name] {
						t.Fatalf("the model of the test widened at %s", name)
					}
					if visible[name] = shown; shown {
						want = append(want, name)
					}
				}
				slices.Sort(want)
				if got := names(t, f.items.In(w), store.Query{}); got != strings.Join(want, " ") {
					t.Fatalf("after %+v: %q is shown, want %q", scope, got, want)
				}
			}
		})
	})
}

func TestScopeKeepsItsOwnTeams(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		teamItems(t, f)
		teams := []string{"a"}
		w := f.ws.Scoped(store.Scope{Teams: teams})
		teams[0] = "c"
		if got := names(t, f.items.In(w), store.Query{}); got != "a ab abc empty none" {
			t.Errorf("after a change to the caller's list %q is shown", got)
		}
	})
}

// A record that a scope does not show is missing in it, even if the caller knows its id and revision.
func TestScopedWrites(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		whole, scoped := f.items.In(f.ws), f.items.In(f.ws.Scoped(store.Scope{Teams: []string{"a"}}))
		foreign, own, free := &item{Name: "foreign", Teams: []string{"b"}}, &item{Name: "own", Teams: []string{"a", "b"}}, &item{Name: "free"}
		insert(t, whole, foreign, own, free)

		_, err := scoped.Get(t.Context(), foreign.ID)
		wantErr(t, "Get", err, store.ErrNotFound)
		_, err = scoped.Update(t.Context(), foreign.ID, func(*item) error { t.Error("was changed"); return nil })
		wantErr(t, "Update", err, store.ErrNotFound)
		for what, teams := range map[string][]string{"as it was": {"b"}, "with the scope's team": {"a"}, "without teams": nil} {
			forged := *foreign
			forged.Name, forged.Teams = "forged", teams
			wantErr(t, "Replace "+what, scoped.Replace(t.Context(), &forged), store.ErrConflict)
			wantErr(t, "Delete "+what, scoped.Delete(t.Context(), &forged), store.ErrConflict)
		}
		if got, err := whole.Get(t.Context(), foreign.ID); err != nil || got.Name != "foreign" || got.Rev != 1 {
			t.Errorf("the foreign record became %+v, %v", got, err)
		}
		for _, rec := range []*item{own, free} {
			rec.Title = "changed"
			if err := scoped.Replace(t.Context(), rec); err != nil {
				t.Errorf("Replace %s: %v", rec.Name, err)
			}
			if _, err := scoped.Update(t.Context(), rec.ID, func(r *item) error { r.N++; return nil }); err != nil {
				t.Errorf("Update %s: %v", rec.Name, err)
			}
			wantErr(t, "Delete of a stale record", scoped.Delete(t.Context(), rec), store.ErrConflict)
			rec.Rev++
			if err := scoped.Delete(t.Context(), rec); err != nil {
				t.Errorf("Delete %s: %v", rec.Name, err)
			}
		}
		// After a change to another team the scope no longer shows the record.
		given := &item{Name: "given", Teams: []string{"a"}}
		insert(t, scoped, given)
		given.Teams = []string{"b"}
		if err := scoped.Replace(t.Context(), given); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "Replace of a record given away", scoped.Replace(t.Context(), given), store.ErrConflict)
		// Soft-deleted records of the scope can be changed.
		trash := &item{Name: "trash", Teams: []string{"a"}, Deleted: true}
		insert(t, scoped, trash)
		trash.Deleted = false
		if err := scoped.Replace(t.Context(), trash); err != nil {
			t.Errorf("restore: %v", err)
		}
	})
}

func TestPartitionsAreApart(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		one, two := f.control.Partition(1), f.control.Partition(2)
		in := func(w *store.Workspace) store.Collection[member] { return f.members.In(w) }
		a := &member{Email: "a@example.com"}
		b := &member{Email: "b@example.com", OrgID: 1} // the partition overrules the field
		insert(t, in(one), a)
		insert(t, in(two), b)
		if a.OrgID != 1 || b.OrgID != 2 || one.Org() != 1 || two.Org() != 2 || f.control.Org() != 0 {
			t.Errorf("org_id %d and %d, organizations %d, %d and %d",
				a.OrgID, b.OrgID, one.Org(), two.Org(), f.control.Org())
		}
		for w, want := range map[*store.Workspace]string{one: a.ID, two: b.ID, f.control.Partition(3): "", f.control.Partition(-1): ""} {
			for _, filter := range []store.Filter{{}, store.AnyOf(store.Eq("org_id", 1), store.Eq("org_id", 2)), store.In("id", a.ID, b.ID)} {
				found, err := in(w).Find(t.Context(), store.Query{Filter: filter})
				got := ""
				for _, m := range found {
					got += m.ID
				}
				if err != nil || got != want {
					t.Errorf("partition %d shows %q (%v), want %q", w.Org(), got, err, want)
				}
			}
		}
		rows, _, err := f.members.Table(two).Aggregate(t.Context(), store.Aggregation{Groups: []store.Group{{Field: store.F("email")}}})
		if err != nil || len(rows) != 1 || rows[0][0] != b.Email {
			t.Errorf("partition 2 groups %v, %v", rows, err)
		}
		_, err = in(two).Get(t.Context(), a.ID)
		wantErr(t, "Get across", err, store.ErrNotFound)
		_, err = in(two).Update(t.Context(), a.ID, func(*member) error { t.Error("was changed"); return nil })
		wantErr(t, "Update across", err, store.ErrNotFound)
		stolen := *a
		wantErr(t, "Replace across", in(two).Replace(t.Context(), &stolen), store.ErrConflict)
		stolen = *a
		wantErr(t, "Delete across", in(two).Delete(t.Context(), &stolen), store.ErrConflict)
		if got, err := in(one).Get(t.Context(), a.ID); err != nil || *got != *a {
			t.Errorf("partition 1 has %+v, %v; want %+v", got, err, a)
		}
		// Within the partition all writes work, and org_id cannot be changed.
		a.OrgID, a.Email = 2, "c@example.com"
		if err := in(one).Replace(t.Context(), a); err != nil || a.OrgID != 1 {
			t.Errorf("Replace: %v, %+v", err, a)
		}
		if got, err := in(one).Update(t.Context(), a.ID, func(m *member) error { m.OrgID = 2; return nil }); err != nil || got.OrgID != 1 {
			t.Errorf("Update: %v, %+v", err, got)
		}
		a.Rev++
		if err := in(one).Delete(t.Context(), a); err != nil {
			t.Errorf("Delete: %v", err)
		}
	})
}

// Every partition has its own identifiers, and callers never see the prefix that separates them.
func TestIdentifiersOfAPartition(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		ctx := t.Context()
		id := strings.Repeat("0a", 12)
		for _, org := range []int64{1, 11, 111} {
			insert(t, f.members.In(f.control.Partition(org)), &member{Meta: store.Meta{ID: id}, Email: fmt.Sprint(org)})
		}
		w := f.control.Partition(11)
		c, table := f.members.In(w), f.members.Table(w)
		got, err := c.Update(ctx, id, func(m *member) error { m.Email = "eleven"; return nil })
		if err != nil || got.ID != id || got.OrgID != 11 || got.Rev != 2 {
			t.Fatalf("updated %+v, %v", got, err)
		}
		for _, org := range []int64{1, 111} {
			if m, err := f.members.In(f.control.Partition(org)).Get(ctx, id); err != nil || m.Email != fmt.Sprint(org) || m.ID != id || m.Rev != 1 {
				t.Errorf("organization %d has %+v, %v", org, m, err)
			}
		}
		for _, filter := range []store.Filter{
			store.Eq("id", id), store.In("id", "x", id), store.Where(store.F("id"), store.OpGte, id), store.Where(store.F("id"), store.OpLt, "1"), store.Where(store.F("id"), store.OpGt, "0"),
			store.Where(store.F("id"), store.OpStartsWith, "0a0"), store.Where(store.F("id"), store.OpNe, ""), store.Has("id", true), store.Where(store.F("id"), store.OpNin, "11."+id),
			store.Where(store.F("id"), store.OpContains, ""), store.Where(store.F("id"), store.OpContains, "a0a"), store.Where(store.F("id"), store.OpContains, id), store.Where(store.F("id"), store.OpContains, "0"),
		} {
			if found, err := c.Find(ctx, store.Query{Filter: filter, Sort: []store.Order{store.Desc("id")}}); err != nil || len(found) != 1 || found[0].ID != id {
				t.Errorf("%+v finds %+v, %v", filter, found, err)
			}
		}
		for _, filter := range []store.Filter{
			store.Eq("id", ""), store.Eq("id", "11."+id), store.Eq("id", "."+id), store.Where(store.F("id"), store.OpStartsWith, "11"), store.Where(store.F("id"), store.OpGt, id), store.Where(store.F("id"), store.OpLt, "0"), store.Has("id", false),
			store.Where(store.F("id"), store.OpContains, "1"), store.Where(store.F("id"), store.OpContains, "11"), store.Where(store.F("id"), store.OpContains, "11.0"), store.Where(store.F("id"), store.OpContains, "0A"), store.Where(store.F("id"), store.OpContains, id+"0"),
		} {
			if n, err := c.Count(ctx, filter); err != nil || n != 0 {
				t.Errorf("%+v counts %d, %v", filter, n, err)
			}
		}
		second := &member{Meta: store.Meta{ID: strings.Repeat("0a", 10) + "2111"}, Email: "other"}
		insert(t, c, second)
		for part, want := range map[string]int64{"1": 1, "11": 1, "111": 1, "1111": 0, "2": 1, "21": 1, "0a": 2, "a2": 1} {
			if n, err := c.Count(ctx, store.Where(store.F("id"), store.OpContains, part)); err != nil || n != want {
				t.Errorf("%d identifiers contain %s (%v), want %d", n, part, err, want)
			}
		}
		if err := c.Delete(ctx, second); err != nil {
			t.Error(err)
		}
		rows, _, err := table.Select(ctx, []store.Field{store.F("id")}, store.Query{})
		if err != nil || len(rows) != 1 || rows[0][0] != id {
			t.Errorf("Select gives %v, %v", rows, err)
		}
		rows, _, err = table.Aggregate(ctx, store.Aggregation{
			Groups:   []store.Group{{Field: store.F("org_id")}, {Field: store.F("id")}},
			Measures: []store.Measure{{Op: store.MeasureCount}, {Op: store.MeasureMin, Field: store.F("id")}, {Op: store.MeasureMax, Field: store.F("id")}},
		})
		if want := []any{int64(11), id, int64(1), id, id}; err != nil || len(rows) != 1 || !slices.Equal(rows[0], want) {
			t.Errorf("Aggregate gives %v, %v; want %v", rows, err, want)
		}
		more := make([]*member, 600)
		for i := range more {
			more[i] = &member{}
		}
		insert(t, c, more...)
		seen := 0
		if err := c.Each(ctx, store.Filter{}, store.Live, func(m *member) error {
			if seen++; !store.ValidID(m.ID) {
				return fmt.Errorf("identifier %q", m.ID)
			}
			return nil
		}); err != nil || seen != 601 {
			t.Errorf("Each shows %d, %v", seen, err)
		}
	})
}

func TestPartitionedKindsNeedThePartition(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		ctx := t.Context()
		m, o := &member{Email: "a@example.com"}, &org{Slug: "acme"}
		insert(t, f.members.In(f.control.Partition(1)), m)
		insert(t, f.orgs.In(f.control), o)
		for _, w := range []*store.Workspace{f.control, f.control.Partition(0)} {
			for what, err := range everyRead(ctx, f.members, w, store.Filter{}) {
				wantErr(t, what+" without partition", err, store.ErrQuery)
			}
			c := f.members.In(w)
			wantErr(t, "Insert without partition", c.Insert(ctx, &member{OrgID: 1}), store.ErrQuery)
			wantErr(t, "Replace without partition", c.Replace(ctx, ptr(*m)), store.ErrQuery)
			wantErr(t, "Delete without partition", c.Delete(ctx, m), store.ErrQuery)
		}
		for what, err := range everyRead(ctx, f.orgs, f.control.Partition(1), store.Filter{}) {
			wantErr(t, what+" of a kind without partitions", err, store.ErrQuery)
		}
		c := f.orgs.In(f.control.Partition(1))
		wantErr(t, "Insert in a partition", c.Insert(ctx, &org{}), store.ErrQuery)
		wantErr(t, "Replace in a partition", c.Replace(ctx, ptr(*o)), store.ErrQuery)
		wantErr(t, "Delete in a partition", c.Delete(ctx, o), store.ErrQuery)
		if _, err := f.members.In(f.control.Partition(1)).Get(ctx, m.ID); err != nil {
			t.Errorf("the member is gone: %v", err)
		}
		if _, err := f.orgs.In(f.control).Get(ctx, o.ID); err != nil {
			t.Errorf("the organization is gone: %v", err)
		}
	})
}

func TestKindsOfAnotherWorkspaceAreRefused(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		ctx := t.Context()
		// A kind with the same name is a different kind.
		twin := define[plain](t, store.Spec{Name: "plains", Fields: []string{"name", "count"}})
		rec := &plain{Name: "x"}
		insert(t, f.plains.In(f.ws), rec)
		for what, w := range map[string]*store.Workspace{"control": f.control, "partition": f.control.Partition(1)} {
			for read, err := range everyRead(ctx, f.plains, w, store.Filter{}) {
				wantErr(t, read+" in "+what, err, store.ErrQuery)
			}
			wantErr(t, "Insert in "+what, f.plains.In(w).Insert(ctx, &plain{}), store.ErrQuery)
			wantErr(t, "Replace in "+what, f.plains.In(w).Replace(ctx, ptr(*rec)), store.ErrQuery)
			wantErr(t, "Delete in "+what, f.plains.In(w).Delete(ctx, rec), store.ErrQuery)
		}
		for read, err := range everyRead(ctx, twin, f.ws, store.Filter{}) {
			wantErr(t, read+" of a twin", err, store.ErrQuery)
		}
		wantErr(t, "Insert of a twin", twin.In(f.ws).Insert(ctx, &plain{}), store.ErrQuery)
		wantErr(t, "Replace of a twin", twin.In(f.ws).Replace(ctx, ptr(*rec)), store.ErrQuery)
		wantErr(t, "Delete of a twin", twin.In(f.ws).Delete(ctx, rec), store.ErrQuery)
		if n, err := f.plains.In(f.ws).Count(ctx, store.Filter{}); n != 1 || err != nil {
			t.Errorf("%d records, %v", n, err)
		}
	})
}

func TestCounters(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		ctx := t.Context()
		next := func(w *store.Workspace, name string, add, atLeast, want int64) {
			t.Helper()
			if got, err := w.Counter(ctx, name, add, atLeast); got != want || err != nil {
				t.Errorf("%s of %d: %d, %v; want %d", name, w.Org(), got, err, want)
			}
		}
		one, two := f.control.Partition(1), f.control.Partition(2)
		next(one, "uid", 1, 0, 1)
		next(one, "uid", 1, 0, 2)
		next(two, "uid", 1, 0, 1)
		next(f.control, "uid", 1, 10, 11)
		next(one, "uid", 1, 100, 101)
		next(one, "uid", 0, 0, 101)
		next(two, "uid", 5, 0, 6)
		next(one.Scoped(store.Scope{}), "uid", 1, 0, 102) // scopes share the counters
		_, err := f.ws.Counter(ctx, "uid", 1, 0)          // a counter would not move with the organization
		wantErr(t, "Counter of an organization", err, store.ErrQuery)
	})
}

// A caller cannot change the organization to which a workspace is bound.
func TestOrgIsThatOfTheWorkspace(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		if got := f.ws.Scoped(store.Scope{}).Partition(7).Org(); got != 1 {
			t.Errorf("a partition of organization 1's workspace says it is %d's", got)
		}
		for what, err := range everyRead(t.Context(), f.items, f.ws.Partition(7), store.Filter{}) {
			wantErr(t, what, err, store.ErrQuery)
		}
	})
}
