package schedules

import (
	"testing"
	"time"

	"tenantry/backends/store"
)

// TestNext: schedules are due at the time of day in their zone, also where the clocks change.
func TestNext(t *testing.T) {
	t.Parallel()
	for _, one := range []struct{ on, at, zone, after, want string }{
		{"every_day", "08:00", "UTC", "2026-11-28T07:59:59Z", "2026-11-28T08:00:00Z"},
		{"every_day", "08:00", "UTC", "2026-11-28T08:00:00Z", "2026-11-29T08:00:00Z"},
		{"monday", "08:00", "Europe/Berlin", "2026-11-28T08:00:00Z", "2026-11-30T07:00:00Z"},
		{"working_days", "17:30", "America/New_York", "2026-11-27T23:00:00Z", "2026-11-30T22:30:00Z"},
		{"first_of_month", "00:00", "Asia/Tokyo", "2026-11-28T00:00:00Z", "2026-11-30T15:00:00Z"},
		{"every_day", "02:30", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:30:00Z"}, // 02:30 is left out: 03:30
		{"every_day", "02:30", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"}, // the first of two
		{"every_day", "02:30", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"}, // not the second one
	} {
		after, err := time.Parse(time.RFC3339, one.after)
		if err != nil {
			t.Fatal(err)
		}
		when, wrong := (&Schedule{On: one.on, At: one.at, Zone: one.zone}).timing()
		if got := when.next(after).UTC().Format(time.RFC3339); wrong != nil || got != one.want {
			t.Errorf("%s %s %s after %s: got %s, want %s", one.on, one.at, one.zone, one.after, got, one.want)
		}
	}
}

// TestLatest: of the runs that were missed only the last one is due, however long ago the first was.
func TestLatest(t *testing.T) {
	t.Parallel()
	when, _ := (&Schedule{On: "every_day", At: "08:00", Zone: "UTC"}).timing()
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	for after, want := range map[time.Time]time.Time{
		now.Add(-time.Hour):      {},
		now.Add(-24 * time.Hour): time.Date(2026, 11, 28, 8, 0, 0, 0, time.UTC),
		now.AddDate(-20, 0, 0):   time.Date(2026, 11, 28, 8, 0, 0, 0, time.UTC),
		{}:                       time.Date(2026, 11, 28, 8, 0, 0, 0, time.UTC),
	} {
		if got := when.latest(after, now); !got.Equal(want) {
			t.Errorf("after %s: got %s, want %s", after, got, want)
		}
	}
}

// TestTimingRefuses lists texts that are no times of day and no time zones.
func TestTimingRefuses(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"", "8:00", "24:00", "08:60", "08.00", "aa:bb", "08:00:00"} {
		if _, wrong := (&Schedule{On: everyDay, At: at, Zone: "UTC"}).timing(); len(wrong) != 1 || wrong[0].Field != "at" {
			t.Errorf("%q: got %v, want a fault of at", at, wrong)
		}
	}
	for _, zone := range []string{"", "Local", "Mars/Base", "../../etc/passwd", "europe/../UTC"} {
		if _, wrong := (&Schedule{On: everyDay, At: "08:00", Zone: zone}).timing(); len(wrong) != 1 || wrong[0].Field != "time_zone" {
			t.Errorf("%q: got %v, want a fault of time_zone", zone, wrong)
		}
	}
}

// TestRunIDs: runs of different schedules, and of different times, have different identifiers, also if the identifiers of
// the schedules end alike.
func TestRunIDs(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for i := range 1000 {
		for _, schedule := range []string{"6b0ad9db1ca116d9ec7a2c2d", "6b0ad9dc1ca116d9ec7a2c2d", "6b0ad9db1ca116d9ec7a2c2e"} {
			id := runID(schedule, time.UnixMilli(int64(i)*60_000))
			if seen[id] || !store.ValidID(id) {
				t.Fatalf("%s is given twice, or is no identifier", id)
			}
			seen[id] = true
		}
	}
}
