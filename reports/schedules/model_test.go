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
		// Times that are left out are an hour later, east and west of Greenwich and in both hemispheres.
		{"every_day", "02:30", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:30:00Z"},
		{"every_day", "01:30", "Europe/London", "2026-03-28T12:00:00Z", "2026-03-29T01:30:00Z"},
		{"every_day", "00:30", "Atlantic/Azores", "2026-03-28T12:00:00Z", "2026-03-29T01:30:00Z"},
		{"every_day", "02:30", "America/New_York", "2026-03-07T12:00:00Z", "2026-03-08T07:30:00Z"},
		{"every_day", "02:00", "America/New_York", "2026-03-07T12:00:00Z", "2026-03-08T07:00:00Z"},
		{"every_day", "03:00", "America/New_York", "2026-03-07T12:00:00Z", "2026-03-08T07:00:00Z"},
		{"every_day", "02:30", "Australia/Sydney", "2026-10-03T12:00:00Z", "2026-10-03T16:30:00Z"},
		{"every_day", "02:10", "Australia/Lord_Howe", "2026-10-03T12:00:00Z", "2026-10-03T15:40:00Z"}, // half an hour later
		// The day is that of the time that is left out.
		{"saturday", "00:00", "America/Santiago", "2026-09-04T12:00:00Z", "2026-09-05T04:00:00Z"},
		{"saturday", "00:00", "America/Santiago", "2026-09-05T04:00:00Z", "2026-09-12T03:00:00Z"},
		{"sunday", "00:00", "America/Santiago", "2026-09-04T12:00:00Z", "2026-09-06T04:00:00Z"}, // 01:00
		{"sunday", "00:00", "America/Santiago", "2026-09-06T04:00:00Z", "2026-09-13T03:00:00Z"},
		{"saturday", "23:30", "America/Nuuk", "2026-03-27T12:00:00Z", "2026-03-29T01:30:00Z"}, // 00:30 on Sunday
		{"saturday", "23:30", "America/Nuuk", "2026-03-29T01:10:00Z", "2026-03-29T01:30:00Z"},
		{"sunday", "23:30", "America/Nuuk", "2026-03-29T01:10:00Z", "2026-03-30T00:30:00Z"},
		{"first_of_month", "00:30", "America/Asuncion", "2017-09-15T12:00:00Z", "2017-10-01T04:30:00Z"}, // 01:30
		// Of two times the first counts.
		{"every_day", "02:30", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"},
		{"every_day", "02:30", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		{"every_day", "01:30", "America/New_York", "2026-10-31T12:00:00Z", "2026-11-01T05:30:00Z"},
		{"every_day", "01:30", "America/New_York", "2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"},
		{"every_day", "02:30", "Australia/Sydney", "2026-04-04T12:00:00Z", "2026-04-04T15:30:00Z"},
		{"every_day", "02:30", "Australia/Sydney", "2026-04-04T15:30:00Z", "2026-04-05T16:30:00Z"},
		{"every_day", "01:45", "Australia/Lord_Howe", "2026-04-04T12:00:00Z", "2026-04-04T14:45:00Z"},
		{"every_day", "01:45", "Australia/Lord_Howe", "2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"},
		{"saturday", "23:30", "America/Santiago", "2026-04-04T12:00:00Z", "2026-04-05T02:30:00Z"},
		{"every_day", "23:30", "America/Santiago", "2026-04-05T02:30:00Z", "2026-04-06T03:30:00Z"},
		// A day that a zone skips counts as the next one does.
		{"friday", "08:00", "Pacific/Apia", "2011-12-23T18:00:00Z", "2011-12-30T18:00:00Z"},
		{"every_day", "08:00", "Pacific/Apia", "2011-12-29T18:00:00Z", "2011-12-30T18:00:00Z"},
		{"every_day", "08:00", "Pacific/Apia", "2011-12-30T18:00:00Z", "2011-12-31T18:00:00Z"},
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

// TestDaysHaveOneRun: over years in which clocks change, every day that a schedule includes has exactly one run, which is
// at the time of day, or later if a change leaves that out.
func TestDaysHaveOneRun(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{
		"UTC", "Europe/Berlin", "Europe/London", "Atlantic/Azores", "Africa/Casablanca", "Asia/Tehran", "Asia/Kolkata",
		"Asia/Beirut", "Asia/Gaza", "Australia/Sydney", "Australia/Lord_Howe", "Pacific/Apia", "Pacific/Chatham",
		"America/New_York", "America/St_Johns", "America/Havana", "America/Santiago", "America/Asuncion",
		"America/Sao_Paulo", "America/Nuuk", "America/Caracas", "Antarctica/Troll",
	} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			for _, on := range []string{"every_day", "working_days", "sunday", "friday", "first_of_month"} {
				for _, at := range []string{"00:00", "00:30", "01:15", "02:00", "02:30", "03:00", "08:00", "23:00", "23:45"} {
					when, wrong := (&Schedule{On: on, At: at, Zone: zone}).timing()
					if wrong != nil {
						t.Fatal(wrong)
					}
					wantOneRunEach(t, when)
				}
			}
		})
	}
}

func wantOneRunEach(t *testing.T, when timing) {
	t.Helper()
	last := time.Date(2005, 12, 31, 23, 59, 0, 0, when.zone)
	for asked := time.Date(2006, 1, 1, when.hour, when.minute, 0, 0, time.UTC); asked.Year() < 2030; asked = asked.AddDate(0, 0, 1) {
		skipped := when.zone.String() == "Pacific/Apia" && asked.Format(time.DateOnly) == "2011-12-30"
		if !when.includes(asked) || skipped && when.on == everyDay { // its run is that of the day after
			continue
		}
		next := when.next(last)
		_, offset := next.In(when.zone).Zone()
		late := next.Add(time.Duration(offset) * time.Second).Sub(asked) // by the clock
		if !next.After(last) || late < 0 || late > 24*time.Hour || late > 0 && !leftOut(when.zone, asked) {
			t.Fatalf("%s for %s: got %s after %s", when.on, asked.Format("2006-01-02 15:04"), next.In(when.zone), last.In(when.zone))
		}
		last = next
	}
}

// leftOut reports whether the clock of a zone never shows what asked shows in UTC.
func leftOut(zone *time.Location, asked time.Time) bool {
	const layout = "2006-01-02 15:04"
	for quarter := -26 * time.Hour; quarter <= 26*time.Hour; quarter += 15 * time.Minute {
		if asked.Add(quarter).In(zone).Format(layout) == asked.Format(layout) {
			return false
		}
	}
	return true
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
