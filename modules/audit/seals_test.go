package audit_test

import (
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"testing"
	"time"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/modules/audit"
	"tenantry/tenants"
	"tenantry/tenants/tenantstest"
)

// sealedWorld is a store with logs that are sealed.
type sealedWorld struct {
	*tenantstest.World
	log   *audit.Log
	seals *audit.Seals
	heads *audit.Heads

	earlier string // a head
}

func newSealedWorld(t *testing.T) *sealedWorld {
	t.Helper()
	log := audit.New()
	w := &sealedWorld{World: tenantstest.New(t, tenantstest.Options{Control: log.Specs()}), log: log}
	w.seals = audit.NewSeals(w.log, w.Directory, w.Clock.Now)
	w.heads = audit.NewHeads(w.log, w.Directory, w.Clock.Now)
	w.Store.Keep(record.Specs(append(w.heads.Kept(), w.log, w.seals))...)
	return w
}

// wrote writes records that are a day old, each some time after the one before.
func (w *sealedWorld) wrote(t *testing.T, of *tenants.Tenant, n int, apart time.Duration) {
	t.Helper()
	begin := w.Clock.Now().Add(-24 * time.Hour).UnixMilli()
	var all []*audit.Record
	for i := range n {
		rec := &audit.Record{
			Operation: "contacts.reveal", Subject: "key:" + strconv.Itoa(i), Account: "a", Remote: "192.0.2.7", Outcome: audit.OK, Code: 200,
			RequestID: "r", Records: []string{"one", "two"}, Facts: map[string]string{"field": "iban", "reason": "asked"},
		}
		rec.CreatedAt = begin + int64(i)*apart.Milliseconds()
		all = append(all, rec)
	}
	for len(all) > 0 {
		size := min(1000, len(all))
		if err := w.log.Records(of.Workspace()).Insert(t.Context(), all[:size]...); err != nil {
			t.Fatal(err)
		}
		all = all[size:]
	}
}

func (w *sealedWorld) seal(t *testing.T, of *tenants.Tenant) {
	t.Helper()
	if err := w.seals.Seal(t.Context(), of); err != nil {
		t.Fatal(err)
	}
}

func (w *sealedWorld) verify(t *testing.T, of *tenants.Tenant, after int64) audit.Verification {
	t.Helper()
	v, err := w.seals.Verify(t.Context(), of, after)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (w *sealedWorld) first(t *testing.T, of *tenants.Tenant) *audit.Record {
	t.Helper()
	rec, err := w.log.Records(of.Workspace()).First(t.Context(), store.Query{Sort: []store.Order{store.Asc("created_at")}})
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// TestSeals_WhatTheyTell: whatever is done to the log or to the seals past the gateway shows, and what is written
// afterwards is sealed in its turn.
func TestSeals_WhatTheyTell(t *testing.T) {
	t.Parallel()
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	change := func(fn func(*audit.StoredSeal)) func(*testing.T, *sealedWorld, *tenants.Tenant) {
		return func(t *testing.T, w *sealedWorld, of *tenants.Tenant) {
			one, err := w.seals.Stored(of.Workspace()).First(t.Context(), store.Query{Sort: []store.Order{store.Asc("number")}})
			must(t, err)
			fn(one)
			must(t, w.seals.Stored(of.Workspace()).Replace(t.Context(), one))
		}
	}
	for name, one := range map[string]struct {
		do   func(t *testing.T, w *sealedWorld, of *tenants.Tenant)
		want []string // of the seals, "number what"
	}{
		"nothing": {do: func(*testing.T, *sealedWorld, *tenants.Tenant) {}},
		"a record is changed": {func(t *testing.T, w *sealedWorld, of *tenants.Tenant) {
			_, err := w.log.Records(of.Workspace()).Update(t.Context(), w.first(t, of).ID, func(r *audit.Record) error {
				r.Outcome = audit.Denied
				return nil
			})
			must(t, err)
		}, []string{"1 changed"}},
		"a record is removed": {func(t *testing.T, w *sealedWorld, of *tenants.Tenant) {
			must(t, w.log.Records(of.Workspace()).Delete(t.Context(), w.first(t, of)))
		}, []string{"1 removed"}},
		"a record is added": {func(t *testing.T, w *sealedWorld, of *tenants.Tenant) {
			rec := *w.first(t, of)
			rec.Meta = store.Meta{CreatedAt: rec.CreatedAt}
			must(t, w.log.Records(of.Workspace()).Insert(t.Context(), &rec))
		}, []string{"1 added"}},
		"one is put for another": {func(t *testing.T, w *sealedWorld, of *tenants.Tenant) {
			rec := w.first(t, of)
			must(t, w.log.Records(of.Workspace()).Delete(t.Context(), rec))
			rec.Meta = store.Meta{CreatedAt: rec.CreatedAt}
			must(t, w.log.Records(of.Workspace()).Insert(t.Context(), rec))
		}, []string{"1 changed"}},
		"a record and the number of its seal": {func(t *testing.T, w *sealedWorld, of *tenants.Tenant) {
			must(t, w.log.Records(of.Workspace()).Delete(t.Context(), w.first(t, of)))
			change(func(s *audit.StoredSeal) { s.Records-- })(t, w, of)
		}, []string{"1 changed"}},
		"how far a seal goes": {change(func(s *audit.StoredSeal) { s.Until++ }), []string{"1 changed", "2 seal"}},
		"a mark":              {change(func(s *audit.StoredSeal) { s.Mark = s.Mark[:len(s.Mark)-4] + "AAAA" }), []string{"1 seal", "2 seal"}},
		"the first seal is gone": {func(t *testing.T, w *sealedWorld, of *tenants.Tenant) {
			one, err := w.seals.Stored(of.Workspace()).First(t.Context(), store.Query{Sort: []store.Order{store.Asc("number")}})
			must(t, err)
			must(t, w.seals.Stored(of.Workspace()).Delete(t.Context(), one))
		}, []string{"2 missing"}},
		"a seal of another organization": {func(t *testing.T, w *sealedWorld, of *tenants.Tenant) {
			other := w.Tenant(t, "other")
			w.wrote(t, other, 20, time.Second)
			w.seal(t, other)
			theirs, err := w.seals.Stored(other.Workspace()).First(t.Context(), store.Query{})
			must(t, err)
			change(func(s *audit.StoredSeal) { s.Mark = theirs.Mark })(t, w, of)
		}, []string{"1 seal", "2 seal"}},
	} {
		told := func(t *testing.T, whose func(*sealedWorld, *testing.T) *tenants.Tenant) {
			t.Parallel()
			w := newSealedWorld(t)
			of := whose(w, t)
			w.wrote(t, of, 20, time.Second)
			w.seal(t, of)
			late := &audit.Record{Operation: "late", Subject: "system", Outcome: audit.OK}
			late.CreatedAt = time.Now().Add(-14 * time.Minute).UnixMilli() // not old enough
			must(t, w.log.Records(of.Workspace()).Insert(t.Context(), late))
			if v := w.verify(t, of, 0); !v.Intact || v.Records != 20 || v.Until == nil || v.Unsealed != 1 {
				t.Fatalf("after the first seal: %+v", v)
			}
			w.Clock.Advance(2 * time.Minute)
			w.seal(t, of)
			must(t, w.log.Write(t.Context(), of.Workspace(), audit.Record{Operation: "now", Subject: "system", Outcome: audit.OK}))
			w.seal(t, of) // nothing is old enough
			one.do(t, w, of)
			v := w.verify(t, of, 0)
			var got []string
			for _, f := range v.Faults {
				got = append(got, fmt.Sprint(f.Seal, " ", f.What))
			}
			if !reflect.DeepEqual(got, one.want) || v.Intact != (one.want == nil) || v.Unsealed != 1 || v.Next != nil {
				t.Errorf("%v of %+v, want %v", got, v, one.want)
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

// TestSeals_EveryFieldCounts: a change of any field of a record shows, whichever fields there will be.
func TestSeals_EveryFieldCounts(t *testing.T) {
	t.Parallel()
	w := newSealedWorld(t)
	of := w.Tenant(t, "acme")
	w.wrote(t, of, 5, time.Second)
	w.seal(t, of)
	was := *w.first(t, of)
	fields := reflect.TypeFor[audit.Record]()
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		if name == "Meta" {
			continue
		}
		set := func(change bool) {
			_, err := w.log.Records(of.Workspace()).Update(t.Context(), was.ID, func(r *audit.Record) error {
				*r = audit.Record{Meta: r.Meta}
				reflect.ValueOf(r).Elem().Set(reflect.ValueOf(was))
				switch f := reflect.ValueOf(r).Elem().Field(i); {
				case !change:
				case f.Kind() == reflect.String:
					f.SetString(f.String() + "x")
				case f.CanInt():
					f.SetInt(f.Int() + 1)
				case f.Kind() == reflect.Slice:
					r.Records = []string{"onetwo", ""} // as many bytes
				default:
					facts := maps.Clone(was.Facts)
					facts["reason"] = "other"
					f.Set(reflect.ValueOf(facts))
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if name == "Outcome" {
			continue // TestSeals_WhatTheyTell: of three words
		}
		set(true)
		if v := w.verify(t, of, 0); len(v.Faults) != 1 || v.Faults[0].What != "changed" {
			t.Errorf(`%s: got %+v, want len(v.Faults) = 1 and v.Faults[0].What = "changed"`, name, v)
		}
		set(false)
		if v := w.verify(t, of, 0); !v.Intact {
			t.Errorf("%s, put back: %+v", name, v)
		}
	}
}

// TestSeals_OfMany: a seal holds a bounded number of records, however many have the same time, and who verifies more
// than a call compares goes on.
func TestSeals_OfMany(t *testing.T) {
	t.Parallel()
	w := newSealedWorld(t)
	for name, apart := range map[string]time.Duration{"each": time.Millisecond, "same": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of := w.Tenant(t, name)
			n := audit.SealRecords + 2500
			w.wrote(t, of, n, apart)
			w.seal(t, of)
			seals, err := w.seals.Stored(of.Workspace()).Count(t.Context(), store.Filter{})
			if err != nil {
				t.Fatal(err)
			}
			if want := map[string]int64{"each": 2, "same": 1}[name]; seals != want {
				t.Errorf("%d seals, want %d", seals, want)
			}
			v := w.verify(t, of, 0)
			if !v.Intact || v.Records != n || v.Unsealed != 0 {
				t.Errorf("got %+v, want v.Intact and v.Records = %v and v.Unsealed = 0", v, n)
			}
			if v = w.verify(t, of, 1); !v.Intact || seals == 2 && v.Records != 2500 {
				t.Errorf("after the first: %+v", v)
			}
		})
	}
}

// TestSeals_ACallGoesOn where the one before ended, so that all is compared once.
func TestSeals_ACallGoesOn(t *testing.T) {
	t.Parallel()
	w := newSealedWorld(t)
	of := w.Tenant(t, "acme")
	w.seals.Compare(15)
	for range 3 {
		w.wrote(t, of, 10, time.Millisecond)
		w.seal(t, of)
		w.Clock.Advance(48 * time.Hour)
	}
	first := w.verify(t, of, 0)
	if first.Next == nil || !first.Intact || first.Records != 20 || first.Unsealed != 0 {
		t.Fatalf("got %+v, want first.Next other than nil and first.Intact and first.Records = 20 and first.Unsealed = 0",
			first)
	}
	if then := w.verify(t, of, *first.Next); then.Next != nil || !then.Intact || then.Records != 10 || *then.From != *first.Until {
		t.Errorf("%+v, then %+v", first, then)
	}
}
