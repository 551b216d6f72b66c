package store

import "testing"

// TestTrail_Happened decides by the entries that follow, and by the record, whether the write of an entry was stored.
func TestTrail_Happened(t *testing.T) {
	t.Parallel()
	created, updated := Event{What: WasCreated, Revision: 1}, Event{What: WasUpdated, Revision: 2}
	purged := Event{What: WasPurged, Revision: 3, Gone: true}
	const absent = -1
	for name, test := range map[string]struct {
		entries         []Event // the first is asked about
		rev             int64
		young           bool
		happened, twice bool
	}{
		"stored":                         {[]Event{updated}, 2, true, true, false},
		"changed since":                  {[]Event{updated}, 5, true, true, false},
		"under way":                      {[]Event{updated}, 1, true, false, false},
		"refused":                        {[]Event{updated}, 1, false, false, false},
		"one of two is being refused":    {[]Event{updated, updated}, 2, true, true, true},
		"a later one had read it":        {[]Event{created, updated}, 0, true, true, false},
		"deleted since":                  {[]Event{updated, purged}, absent, true, true, false},
		"absent, under way":              {[]Event{created}, absent, true, false, false},
		"absent, long ago":               {[]Event{created}, absent, false, true, false},
		"purged":                         {[]Event{purged}, absent, true, true, false},
		"purge under way":                {[]Event{purged}, 2, true, false, false},
		"purged and stored again":        {[]Event{purged, created}, 1, true, true, false},
		"updated, purged, stored again":  {[]Event{updated, purged, created}, 1, false, true, false},
		"created again after the purge":  {[]Event{created, purged, created}, 1, true, true, false},
		"others of the revision, purged": {[]Event{purged, created, updated}, 2, true, true, false},
	} {
		told := trail{}
		for i := range test.entries {
			e := &test.entries[i]
			e.ID, e.Kind, e.Record = positionID(int64(i+1)), "contact", "a"
		}
		told.add(test.entries)
		happened, twice := told.happened(&test.entries[0], max(test.rev, 0), test.rev != absent, test.young)
		if happened != test.happened || twice != test.twice {
			t.Errorf("%s: got %t, twice %t, want %t, %t", name, happened, twice, test.happened, test.twice)
		}
	}
}
