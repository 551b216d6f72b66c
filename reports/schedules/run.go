package schedules

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"tenantry/backends/store"
	"tenantry/internal/background"
	"tenantry/internal/fault"
	"tenantry/modules/mail"
	"tenantry/operation"
	"tenantry/reports"
	"tenantry/tenants"
)

// Bounds of runs.
const (
	turnRuns = 5                // of an organization in one turn
	runTime  = 30 * time.Second // for one run
	noteTime = 5 * time.Second  // for storing what came of it
	mostTry  = 5                // tries of a run that could not be made for now
	tryAgain = time.Minute      // before the second try; the pause doubles
)

// Why a run failed, besides what the report says.
const (
	accountGone = "The service account was deleted or is not active."
	reportGone  = "The report was deleted, or the service account does not see it."
	notNow      = "It could not be run in time: the store or the mail server's queue was not available."
)

// Turn makes the runs of an organization that are due, at most turnRuns, and returns when the next is; zero: there is
// none. Several processes may take turns at once: only one of them stores a run. Errors: store.ErrUnavailable.
func (m *Module) Turn(ctx context.Context, t *tenants.Tenant) (next time.Time, err error) {
	all, err := m.Schedules.In(t.Workspace()).Find(ctx, store.Query{Limit: mostSchedules + 1})
	if err != nil {
		return next, err
	}
	room := turnRuns
	for i := range all {
		s := &all[i]
		if _, idle := s.idle(); idle {
			continue
		}
		at, err := m.one(ctx, t, s, &room)
		if err != nil {
			return next, err
		}
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next, nil
}

// one makes the run of a schedule if it is due and there is room, and returns when the next is.
func (m *Module) one(ctx context.Context, t *tenants.Tenant, s *Schedule, room *int) (next time.Time, err error) {
	when, wrong := s.timing()
	if wrong != nil { // of a later version
		return next, nil
	}
	progress := m.Progress.In(t.Workspace().BeyondQuota())
	p, err := progress.Get(ctx, s.ID)
	if errors.Is(err, store.ErrNotFound) {
		p, err = &Progress{Meta: store.Meta{ID: s.ID}}, nil
	}
	if err != nil {
		return next, err
	}
	now := m.Now()
	last := time.UnixMilli(max(p.Last, s.Since))
	due := when.latest(last, now)
	if due.IsZero() {
		return when.next(last), nil
	}
	if at := time.UnixMilli(p.NextTry); at.After(now) {
		return at, nil
	}
	if *room <= 0 {
		return now, nil
	}
	*room--
	err = m.run(ctx, t, s, p, due)
	if errors.Is(err, store.ErrConflict) { // another process has made it, or somebody has changed it meanwhile
		return now.Add(tryAgain), nil
	}
	if at := time.UnixMilli(p.NextTry); err == nil && at.After(now) {
		return at, nil
	}
	return when.next(now), err
}

// run makes a run that is due, and stores what came of it. If it cannot be made for now, p says when it is tried again;
// p is unchanged if the run was made.
func (m *Module) run(ctx context.Context, t *tenants.Tenant, s *Schedule, p *Progress, due time.Time) error {
	ready, err := m.prepare(ctx, t, s)
	run := &Run{Schedule: s.ID, Due: due.UnixMilli(), State: mailed}
	run.ID = runID(s.ID, due)
	if err == nil {
		after := *p // it is due until the run is stored
		after.Last, after.Tries, after.NextTry, after.Failed = due.UnixMilli(), 0, 0, false
		if err = m.store(ctx, t, ready, run, &after); err == nil || errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	reason, lasting := explain(err)
	if !lasting {
		m.Log.WarnContext(ctx, "a report could not be mailed and will be tried again", "organization", t.Org.Slug, "schedule", s.ID,
			"error", err)
		if p.Tries++; p.Tries < mostTry {
			p.NextTry = m.Now().Add(tryAgain << (p.Tries - 1)).UnixMilli()
			return m.note(ctx, t, nil, p)
		}
	}
	p.Last, p.Tries, p.NextTry, p.Failed = due.UnixMilli(), 0, 0, true
	run.State, run.Reason = failed, reason
	return m.note(ctx, t, run, p)
}

// prepared is a run that is ready to be stored.
type prepared struct {
	schedule *Schedule
	report   *reports.Report
	content  mail.Report
	rows     int
}

// prepare runs the report as the service account may share it now. Errors: see explain.
func (m *Module) prepare(ctx context.Context, t *tenants.Tenant, s *Schedule) (ready *prepared, err error) {
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	if !m.Mails.On() {
		return nil, errNobody
	}
	if len(s.Recipients) == 0 {
		return nil, errLeft
	}
	who, err := m.Accounts.AccountPrincipal(ctx, t, s.Account)
	if err != nil {
		return nil, err
	}
	r, err := m.Reports.Sendable(ctx, t, who, s.Report)
	if err != nil {
		return nil, err
	}
	err = background.Try(func() error {
		sent, err := m.Reports.Send(ctx, t, r, s.CSV)
		if err != nil {
			return err
		}
		ready = &prepared{schedule: s, report: r, content: m.Draw(ctx, &sent), rows: len(sent.Data.Rows)}
		zone := time.UTC
		if when, wrong := s.timing(); wrong == nil {
			zone = when.zone
		}
		ready.content.Schedule, ready.content.Name = s.ID, s.Name
		ready.content.Moment = m.Now().In(zone).Format("Monday, 2 January 2006, 15:04 MST")
		return nil
	})
	return ready, err
}

var (
	errNobody = errors.New("nobody is mailed")
	errLeft   = errors.New("there are no recipients")
)

// explain returns for people why a run could not be made, and whether that lasts.
func explain(err error) (reason string, lasting bool) {
	wrong, isFault := errors.AsType[*fault.Error](err)
	_, isFull := errors.AsType[*store.QuotaError](err)
	problem, isProblem := errors.AsType[*operation.Problem](err)
	switch {
	case errors.Is(err, errNobody):
		return mail.Nobody + ".", true
	case errors.Is(err, errLeft):
		return "All recipients have left.", true
	case errors.Is(err, tenants.ErrDenied):
		return accountGone, true
	case errors.Is(err, store.ErrNotFound):
		return reportGone, true
	case isFull:
		return "The organization has no room left.", true
	case isFault:
		return wrong.Faults[0].Message + ".", true
	case isProblem && problem.Code < 500:
		return problem.Message + ".", true
	}
	return notNow, false
}

// runID returns the identifier of a run that is due: the same for every process. It is a hash, because identifiers of
// schedules that were made in different seconds may differ in their beginnings alone.
func runID(schedule string, due time.Time) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", schedule, due.UnixMilli()))
	return hex.EncodeToString(sum[:12])
}

// store issues the link, and stores the run, what its mails show, the mails, and the progress if it is given. It completes
// run unless it fails. Errors: store.ErrConflict if another process has done that; mail.ErrFull; store.ErrUnavailable.
func (m *Module) store(ctx context.Context, t *tenants.Tenant, ready *prepared, run *Run, p *Progress) error {
	s := ready.schedule
	path, share, err := m.Reports.Link(ctx, t, ready.report, "schedule:"+s.ID, time.Duration(s.LinkDays)*24*time.Hour)
	if err != nil {
		return err
	}
	made := *run
	made.Rows, made.Recipients, made.Share, made.CreatedAt = ready.rows, len(s.Recipients), share, m.Now().UnixMilli()
	content := &Content{Schedule: s.ID, Report: s.Report, Mail: ready.content}
	content.ID, content.CreatedAt = made.ID, made.CreatedAt
	ws := t.Workspace()
	b := ws.Batch()
	err = cmp.Or(m.Runs.In(ws).StageInsert(b, &made), m.Contents.In(ws).StageInsert(b, content))
	if err == nil {
		err = m.stageProgress(ctx, ws, b, p)
	}
	if err == nil {
		err = m.Mails.StageReport(ctx, t, b, mail.Reported{Run: run.ID, Link: path}, s.Recipients)
	}
	if err == nil {
		err = b.Commit(ctx)
	} else {
		b.Discard()
	}
	if _, taken := errors.AsType[*store.DuplicateError](err); taken {
		err = fmt.Errorf("%w: %w", store.ErrConflict, err)
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTime)
		defer cancel()
		switch found, unknown := m.Runs.In(ws).Get(ctx, made.ID); {
		case unknown == nil && found.Share == share: // it was stored, and the answer was lost
		case unknown == nil, errors.Is(unknown, store.ErrNotFound): // nobody has the token
			return errors.Join(err, m.Reports.RevokeToken(ctx, t, ready.report, share))
		default:
			return err // mails may have the token, which expires
		}
	}
	*run = made
	m.Mails.Wake(t)
	return nil
}

func (m *Module) stageProgress(ctx context.Context, ws *store.Workspace, b *store.Batch, p *Progress) error {
	switch {
	case p == nil:
		return nil
	case p.Rev == 0:
		return m.Progress.In(ws).StageInsert(b, p)
	}
	return m.Progress.In(ws).StageReplace(ctx, b, p)
}

// note stores a run that failed, if there is one, and the progress.
func (m *Module) note(ctx context.Context, t *tenants.Tenant, run *Run, p *Progress) (err error) {
	ws := t.Workspace().BeyondQuota()
	b := ws.Batch()
	if run != nil {
		run.CreatedAt = m.Now().UnixMilli()
		err = m.Runs.In(ws).StageInsert(b, run)
	}
	if err == nil {
		err = m.stageProgress(ctx, ws, b, p)
	}
	if err != nil {
		b.Discard()
		return err
	}
	err = b.Commit(ctx)
	if _, taken := errors.AsType[*store.DuplicateError](err); taken {
		err = fmt.Errorf("%w: %w", store.ErrConflict, err)
	}
	return err
}

// Content returns what the mail of a run to an address shows, if it may still be sent: the address is a recipient, the
// account may share the report, and the token of the link has not been revoked. Otherwise it returns nil. Errors:
// store.ErrUnavailable.
func (m *Module) Content(ctx context.Context, t *tenants.Tenant, run, to string) (*mail.Report, error) {
	found, err := m.current(ctx, t, run, to)
	if _, lasting := explain(err); err == nil || !lasting {
		return found, err
	}
	return nil, nil
}

func (m *Module) current(ctx context.Context, t *tenants.Tenant, run, to string) (*mail.Report, error) {
	ws := t.Workspace()
	found, err := m.Contents.In(ws).Get(ctx, run)
	if err != nil {
		return nil, err
	}
	note, err := m.Runs.In(ws).Get(ctx, run)
	if err != nil {
		return nil, err
	}
	s, err := m.Schedules.In(ws).Get(ctx, found.Schedule)
	if err != nil {
		return nil, err
	}
	if len(without(s.Recipients, to)) == len(s.Recipients) {
		return nil, errLeft
	}
	who, err := m.Accounts.AccountPrincipal(ctx, t, s.Account)
	if err != nil {
		return nil, err
	}
	r, err := m.Reports.Sendable(ctx, t, who, found.Report)
	if err != nil {
		return nil, err
	}
	if revoked, err := m.Reports.Revoked(ctx, t, r, note.Share); revoked || err != nil {
		return nil, cmp.Or(err, errLeft)
	}
	if !r.Exportable {
		found.Mail.File = nil
	}
	return &found.Mail, nil
}

// How long notes of runs, and what their mails show, are kept. Mails are sent within three days.
const (
	keepRuns     = 90 * 24 * time.Hour
	keepContents = 4 * 24 * time.Hour
	forgetting   = 500 // that are removed at once
)

// Trim removes what is older than it is kept, and the progress of schedules that were deleted, until ctx ends.
func (m *Module) Trim(ctx context.Context, t *tenants.Tenant) error {
	ws := t.Workspace().BeyondQuota()
	if err := trim(ctx, m.Runs.In(ws), m.Now().Add(-keepRuns)); err != nil {
		return err
	}
	if err := trim(ctx, m.Contents.In(ws), m.Now().Add(-keepContents)); err != nil {
		return err
	}
	return m.Progress.In(ws).Each(ctx, store.Filter{}, store.Either, func(p *Progress) error {
		if _, err := m.Schedules.In(ws).Get(ctx, p.ID); !errors.Is(err, store.ErrNotFound) {
			return err
		}
		return m.Progress.In(ws).Delete(ctx, p)
	})
}

func trim[T any](ctx context.Context, in store.Collection[T], before time.Time) error {
	for {
		found, err := in.Find(ctx, store.Query{
			Filter: store.Where(store.F("created_at"), store.OpLt, before.UnixMilli()), Sort: []store.Order{store.Asc("created_at")},
			Limit: forgetting, Bytes: store.BatchBytes,
		})
		if err != nil || len(found) == 0 {
			return err
		}
		gone := make([]*T, len(found))
		for i := range found {
			gone[i] = &found[i]
		}
		if err := in.Delete(ctx, gone...); err != nil {
			return err
		}
	}
}

// Leave removes an address from the recipients of a schedule, and returns its name; "" if it is gone. Errors:
// store.ErrUnavailable.
func (m *Module) Leave(ctx context.Context, t *tenants.Tenant, schedule, address string) (name string, err error) {
	s, err := m.Schedules.In(t.Workspace()).Update(ctx, schedule, func(s *Schedule) error {
		s.Recipients = without(s.Recipients, address)
		return nil
	})
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return s.Name, nil
}
