// Package schedules mails reports to people at times that an organization sets. A service account decides what they
// show: it must be able to share the report at that time.
//
// A run is stored with its mails in one batch, so that a process that is killed loses none and sends none twice; see
// Module.Turn.
package schedules

import (
	"time"
	_ "time/tzdata" // time zones, also on machines that have none

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/modules/mail"
)

// Schedule says when a report is mailed, and to whom.
type Schedule struct {
	store.Meta
	Name       string   `json:"name" rule:"required max=200 format=label unique" use:"filter named" doc:"Name of the schedule." example:"Weekly figures"`
	Report     string   `json:"report" rule:"required format=id ref=custom_report" use:"filter" doc:"Identifier of the custom report. It must be shareable." ask:"Report" example:"66f0a1b2c3d4e5f601234567"`
	Account    string   `json:"account" rule:"required format=id ref=service_account" doc:"Identifier of the service account on whose behalf the report is sent. It must hold manage_reports and see all that the report shows." ask:"Service account" example:"665f1c2ab4d3e2f1a0b9c8d7"`
	Recipients []string `json:"recipients" rule:"required max=50 each=254" doc:"Addresses to which it is mailed, at most 50." ask:"Recipients|Their e-mail addresses." example:"[\"ada@example.com\"]"`
	On         string   `json:"on" rule:"enum=every_day|working_days|monday|tuesday|wednesday|thursday|friday|saturday|sunday|first_of_month" doc:"The days. working_days are Monday to Friday. Default: every_day." ask:"On" example:"monday"`
	At         string   `json:"at" rule:"max=5 format=line" doc:"The time of day in the time zone, from 00:00 to 23:59. One that a change of the clocks leaves out is later by that change. Default: 08:00." ask:"At|Such as 08:00." example:"08:00"`
	Zone       string   `json:"time_zone" rule:"max=64 format=line" doc:"IANA time zone. Default: UTC." ask:"Time zone|Such as Europe/Berlin." example:"Europe/Berlin"`
	CSV        bool     `json:"csv" doc:"Whether the rows are attached as a CSV file of up to 1 MiB. The report must be exportable." ask:"Attach the rows as a file"`
	LinkDays   int64    `json:"link_days" rule:"min=1 max=365" doc:"Days for which the link in a mail opens the report. Default: 30." ask:"Days for which the link works" example:"30"`
	Paused     bool     `json:"paused,omitempty" use:"computed filter"`
	// Since is the time after which runs are due, in Unix milliseconds. An imported schedule has none, and is not run until
	// it is resumed.
	Since int64 `json:"since,omitempty" use:"computed hidden local"`
}

// idle reports whether no run is due, and why.
func (s *Schedule) idle() (reason string, idle bool) {
	switch {
	case s.Since == 0:
		return imported, true
	case s.Paused:
		return byCaller, true
	}
	return "", false
}

const (
	imported = "It was imported: resume it to begin."
	byCaller = "Somebody paused it."
)

// Progress says how far the runs of the schedule with the same identifier have come. Times are Unix milliseconds.
type Progress struct {
	store.Meta
	Last    int64 `json:"last"`               // the time of the last run that was due
	Tries   int   `json:"tries,omitempty"`    // how often the next one was tried
	NextTry int64 `json:"next_try,omitempty"` // when it is tried again
	Failed  bool  `json:"failed,omitempty"`   // the last run failed
}

// Run is a note of one run.
type Run struct {
	store.Meta        // CreatedAt is when it ran
	Schedule   string `json:"schedule"`
	Due        int64  `json:"due"`   // when it was due, in Unix milliseconds; 0: somebody asked for it
	State      string `json:"state"` // mailed or failed
	Reason     string `json:"reason,omitempty"`
	Rows       int    `json:"rows,omitempty"`
	Recipients int    `json:"recipients,omitempty"`
	Share      string `json:"share,omitempty"` // identifier of the share token in the mails
}

// The states of a Run.
const (
	mailed = "mailed"
	failed = "failed"
)

// Content is what the mails of the run with the same identifier show.
type Content struct {
	store.Meta
	Schedule string      `json:"schedule"`
	Report   string      `json:"report"`
	Mail     mail.Report `json:"mail"`
}

// Kinds are the records of this package.
type Kinds struct {
	Schedules *record.Of[Schedule]
	Progress  *store.Kind[Progress]
	Runs      *store.Kind[Run]
	Contents  *store.Kind[Content]
}

// mostSchedules is how many schedules an organization may have.
const mostSchedules = 100

func newKinds() Kinds {
	return Kinds{
		Schedules: record.Must(record.Options[Schedule]{
			Traits: record.Traits{Name: "report_schedule", Called: "name", Most: mostSchedules},
			Spec: store.Spec{
				Name: "report_schedules", Indexes: []store.Index{{Fields: []string{"created_at"}}},
				Access: []store.Access{{Where: []string{"created_at"}}},
			},
			Preset: func(s *Schedule) { s.On, s.At, s.Zone, s.LinkDays = everyDay, "08:00", "UTC", 30 },
		}),
		Progress: store.Must[Progress](store.Spec{Name: "report_schedule_progress", Uncounted: true}),
		Runs: store.Must[Run](store.Spec{
			Name: "report_runs", Uncounted: true, Fields: []string{"schedule"},
			Indexes: []store.Index{{Fields: []string{"schedule", "created_at"}}, {Fields: []string{"created_at"}}},
			Access: []store.Access{
				{Where: []string{"schedule"}, Sort: []string{"created_at"}}, {Where: []string{"created_at"}, Sort: []string{"created_at"}},
			},
		}),
		Contents: store.Must[Content](store.Spec{
			Name: "report_contents", Indexes: []store.Index{{Fields: []string{"created_at"}}},
			Access: []store.Access{{Where: []string{"created_at"}, Sort: []string{"created_at"}}},
		}),
	}
}

// Kept returns the kinds of the package.
func (k Kinds) Kept() []record.Kept {
	return []record.Kept{k.Schedules, k.Progress, k.Runs, k.Contents}
}

// Notes returns the kinds that say what was sent, which no export and no restoration changes.
func (k Kinds) Notes() []record.Kept { return []record.Kept{k.Progress, k.Runs, k.Contents} }

const (
	everyDay     = "every_day"
	workingDays  = "working_days"
	firstOfMonth = "first_of_month"
)

// timing is when a schedule is due.
type timing struct {
	on           string
	hour, minute int
	zone         *time.Location
}

// timing returns when the schedule is due. Its errors are faults of at and time_zone.
func (s *Schedule) timing() (timing, fault.List) {
	var errs fault.List
	at, err := time.Parse("15:04", s.At)
	if err != nil || len(s.At) != len("15:04") {
		errs.Add("at", fault.Format, "at must be a time of day such as 08:00")
	}
	zone, err := time.LoadLocation(s.Zone)
	if err != nil || s.Zone == "" || s.Zone == "Local" {
		errs.Add("time_zone", fault.Unknown, "time_zone must be the name of a time zone such as Europe/Berlin")
	}
	return timing{s.On, at.Hour(), at.Minute(), zone}, errs
}

// next returns the first time after another at which the schedule is due.
func (w timing) next(after time.Time) time.Time {
	year, month, day := after.In(w.zone).Date()
	for day--; ; day++ { // the time of the day before may be later than midnight, see moment
		asked := time.Date(year, month, day, w.hour, w.minute, 0, 0, time.UTC)
		if at := w.moment(asked); at.After(after) && w.includes(asked) {
			return at
		}
	}
}

// mostAhead is more than the clock of any zone is ahead of UTC.
const mostAhead = 24 * time.Hour

// moment returns when the clock of the zone shows the day and time that asked shows in UTC: the first time, if a change
// of the clock makes two of it. One that a change leaves out is read from the clock as it was before.
func (w timing) moment(asked time.Time) time.Time {
	former, at := asked, asked.Add(-mostAhead).In(w.zone)
	for {
		_, offset := at.Zone()
		begin, end := at.ZoneBounds() // of the clock as it is at that time
		found := asked.Add(-time.Duration(offset) * time.Second)
		switch {
		case !end.IsZero() && !found.Before(end):
			former, at = found, end
		case found.Before(begin):
			return former
		default:
			return found
		}
	}
}

// latest returns the last time at which the schedule was due, after one time and not after another; zero: there is none.
func (w timing) latest(after, now time.Time) (last time.Time) {
	if oldest := now.AddDate(0, -2, 0); after.Before(oldest) { // at least one of every kind is later
		after = oldest
	}
	for at := w.next(after); !at.After(now); at = w.next(at) {
		last = at
	}
	return last
}

// includes reports whether the schedule is due on a day of the calendar, in UTC.
func (w timing) includes(day time.Time) bool {
	switch w.on {
	case everyDay:
		return true
	case workingDays:
		return day.Weekday() != time.Saturday && day.Weekday() != time.Sunday
	case firstOfMonth:
		return day.Day() == 1
	}
	return day.Weekday() == weekdays()[w.on]
}

func weekdays() map[string]time.Weekday {
	return map[string]time.Weekday{
		"monday": time.Monday, "tuesday": time.Tuesday, "wednesday": time.Wednesday, "thursday": time.Thursday,
		"friday": time.Friday, "saturday": time.Saturday, "sunday": time.Sunday,
	}
}
