package gateway

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"tenantry/gateway/console/locale"
	"tenantry/gateway/console/report"
	"tenantry/internal/background"
	"tenantry/internal/together"
	"tenantry/modules/mail"
	"tenantry/reports"
	"tenantry/reports/schedules"
	"tenantry/tenants"
)

// One replica at a time makes the runs of schedules that are due, of several organizations at once and a few of each
// before others have their turn.
const (
	scheduleChore = "000000000000000000000005"
	scheduleTick  = 15 * time.Second // between two looks
	scheduleHold  = time.Minute      // after this the turn of a replica that died is free for others
	scheduleTurn  = 3 * time.Minute  // timeout for one organization
	scheduleOrgs  = 4                // organizations at once
)

// openSchedules makes the module that mails reports on time.
func (s *Services) openSchedules() error {
	draw, err := report.NewMails(locale.New())
	s.schedules = schedules.New(schedules.Deps{
		Reports: s.reports, Mails: s.mails, Accounts: s.peopleModule, NoteDue: s.directory.NoteDue, Now: s.now, Log: s.log,
		Draw: func(_ context.Context, sent *reports.Sent) mail.Report { return draw.Draw(sent) },
	})
	s.mails.Report, s.mails.LeaveReport = s.schedules.Content, s.schedules.Leave
	return err
}

// mailReports mails reports on time in the background.
func (a *App) mailReports() {
	a.background.Every(scheduleTick, "mailing reports", func(ctx context.Context) {
		due, err := a.directory.Due(ctx, 1)
		if err == nil && len(due) > 0 { // otherwise nothing is written
			_, err = a.directory.HoldChore(ctx, scheduleChore, scheduleHold, a.MailReports)
		}
		if err != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "reports that are due could not be looked for and will be looked for again", "error", err)
		}
	})
}

// MailReports makes the runs of schedules that are due, and returns when no more are. Programs that embed the gateway need
// not call it. Error: store.ErrUnavailable.
func (a *App) MailReports(ctx context.Context) error {
	var mu sync.Mutex
	busy := map[int64]bool{}
	next := func() (*tenants.Organization, error) { // that has waited longest
		mu.Lock()
		defer mu.Unlock()
		due, err := a.directory.Due(ctx, len(busy)+1)
		for i := range due {
			if !busy[due[i].OrgID] {
				busy[due[i].OrgID] = true
				return &due[i], err
			}
		}
		return nil, err
	}
	work := func() error {
		for {
			org, err := next()
			if org == nil || err != nil {
				return err
			}
			err = a.mailReportsOf(ctx, org)
			mu.Lock()
			delete(busy, org.OrgID)
			mu.Unlock()
			if err != nil { // it stays due, until the next look
				return err
			}
		}
	}
	return together.Do(true, slices.Repeat([]func() error{work}, scheduleOrgs)...)
}

// mailReportsOf takes one turn of an organization.
func (a *App) mailReportsOf(ctx context.Context, org *tenants.Organization) error {
	turn, cancel := context.WithTimeout(ctx, scheduleTurn)
	defer cancel()
	t, err := a.directory.BySlug(turn, org.Slug)
	if errors.Is(err, tenants.ErrUnknownTenant) {
		return nil
	}
	var next time.Time
	if err == nil {
		err = background.Try(func() (err error) {
			next, err = a.schedules.Turn(turn, t)
			return err
		})
	}
	if err != nil && ctx.Err() == nil {
		a.log.WarnContext(ctx, "reports of an organization could not be mailed and will be retried", "organization", org.Slug, "error", err)
		next = a.now().Add(scheduleTick)
	}
	return a.directory.SetDue(ctx, org, next)
}
