package store_test

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tenantry/backends/store"
)

func TestNewID(t *testing.T) {
	t.Parallel()
	s := store.New(store.Options{Engine: failing{}})
	before := time.Now().Unix()
	last := ""
	for range 1000 {
		id := s.NewID()
		if !store.ValidID(id) || id <= last {
			t.Fatalf("%q follows %q", id, last)
		}
		last = id
	}
	if seconds := last[:8]; seconds < hex8(before) || seconds > hex8(time.Now().Unix()) {
		t.Errorf("%s does not start with the time", last)
	}
	if other := store.New(store.Options{Engine: failing{}}).NewID(); other[8:18] == last[8:18] {
		t.Errorf("two stores use the same 5 process bytes: %s and %s", last, other)
	}
}

func hex8(n int64) string {
	const digits = "0123456789abcdef"
	var b [8]byte
	for i := 7; i >= 0; i-- {
		b[i] = digits[n&15]
		n >>= 4
	}
	return string(b[:])
}

func TestNewIDIsUniqueAndAscends(t *testing.T) {
	t.Parallel()
	s := store.New(store.Options{Engine: failing{}})
	const workers, each = 8, 125_000
	all := make([]string, workers*each)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			mine := all[w*each : (w+1)*each]
			for i := range mine {
				mine[i] = s.NewID()
			}
			if !slices.IsSorted(mine) {
				t.Error("the identifiers of one goroutine do not ascend")
			}
		})
	}
	wg.Wait()
	slices.Sort(all)
	if n := len(slices.Compact(all)); n != workers*each {
		t.Errorf("%d distinct identifiers, want %d", n, workers*each)
	}
}

func TestValidID(t *testing.T) {
	t.Parallel()
	for _, id := range []string{strings.Repeat("0", 24), strings.Repeat("f", 24), "0123456789abcdef01234567"} {
		if !store.ValidID(id) {
			t.Errorf("%q is refused", id)
		}
	}
	for _, id := range malformedIDs() {
		if store.ValidID(id) {
			t.Errorf("%q is accepted", id)
		}
	}
}

func TestValidKey(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"a", "Z", "0", "_", "-", "__proto__", "form-Name_2", strings.Repeat("k", 64)} {
		if !store.ValidKey(key) {
			t.Errorf("%q is refused", key)
		}
	}
	for _, key := range []string{"", " ", "a b", "a.b", "$where", "a[0]", "a\n", "\x00", "ä", "a\"", "a'", "a/b", "Ａ", "\xff", strings.Repeat("k", 65)} {
		if store.ValidKey(key) {
			t.Errorf("%q is accepted", key)
		}
	}
}

func FuzzValidID(f *testing.F) {
	pattern := regexp.MustCompile(`\A[0-9a-f]{24}\z`)
	for _, id := range append(malformedIDs(), strings.Repeat("0a", 12)) {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got := store.ValidID(text); got != pattern.MatchString(text) {
			t.Errorf("%q: %t", text, got)
		}
	})
}

func FuzzValidKey(f *testing.F) {
	pattern := regexp.MustCompile(`\A[0-9A-Za-z_-]{1,64}\z`)
	for _, key := range []string{"", "a", "a-b_C9", "a.b", "ä", strings.Repeat("k", 64), strings.Repeat("k", 65)} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got := store.ValidKey(text); got != pattern.MatchString(text) {
			t.Errorf("%q: %t", text, got)
		}
	})
}
