package demo

import (
	"math/rand/v2"
	"time"

	"tenantry/modules/usage"
)

// busyDays is the number of days before the present one that have usage.
const busyDays = 14

// operations returns the operations that are used, with their number in five minutes of the busiest hour, and the time
// in microseconds and the bytes of each.
func operations() []struct {
	operation           string
	count, micros, sent int64
} {
	return []struct {
		operation           string
		count, micros, sent int64
	}{
		{"contacts.list", 9, 2400, 9200}, {"contacts.get", 14, 700, 640}, {"page", 6, 3100, 8400}, {"records.list", 8, 1900, 5200},
		{"reports.shared", 5, 4200, 2800}, {"submissions.create", 2, 1500, 410}, {"campaigns.count", 3, 900, 120}, {"folders.get", 3, 800, 1100},
	}
}

// Usage returns the usage of the organization up to now. It is highest on working days and around noon.
func Usage(now time.Time) []*usage.Day {
	random := rand.New(rand.NewPCG(3, 5)) //nolint:gosec // the data must be the same every time
	hours := [24]int64{1, 1, 0, 0, 0, 1, 3, 8, 14, 18, 20, 19, 15, 17, 20, 19, 16, 12, 8, 6, 5, 4, 3, 2}
	now = now.UTC()
	var days []*usage.Day
	for began := now.Truncate(24*time.Hour).AddDate(0, 0, -busyDays); !began.After(now); began = began.AddDate(0, 0, 1) {
		day := usage.NewDay(began)
		days = append(days, day)
		day.Documents, day.Bytes = int64(140+len(days)*2), int64(1_200_000+len(days)*9000)
		for at := began; at.Before(began.AddDate(0, 0, 1)) && !at.After(now); at = at.Add(5 * time.Minute) {
			busy := hours[at.Hour()]
			if day := began.Weekday(); day == time.Saturday || day == time.Sunday {
				busy /= 4
			}
			for _, o := range operations() {
				n := usage.Counts{Requests: (o.count*busy*(50+random.Int64N(100)) + 1000) / 2000}
				if n.Requests == 0 {
					continue
				}
				if random.IntN(12) == 0 { // for lack of a permission, or over a limit
					n.Refused = min(n.Requests, 1+random.Int64N(3))
				}
				n.Micros, n.Sent = n.Requests*o.micros, n.Requests*o.sent
				day.Count(at, o.operation, n)
			}
		}
	}
	return days
}
