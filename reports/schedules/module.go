package schedules

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"tenantry/backends/record"
	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/modules/mail"
	"tenantry/operation"
	"tenantry/operation/crud"
	"tenantry/reports"
	"tenantry/tenants"
	"tenantry/tenants/identity"
)

// Deps are the dependencies of the module. All are required.
type Deps struct {
	Reports  *reports.Module
	Mails    *mail.Module
	Accounts operation.Accounts
	// NoteDue notes when a schedule that is about to be stored is due.
	NoteDue func(ctx context.Context, t *tenants.Tenant, at time.Time) error
	// Draw returns the picture and the table of a report.
	Draw func(ctx context.Context, s *reports.Sent) mail.Report
	Now  func() time.Time
	Log  *slog.Logger
}

// Module serves schedules and makes their runs. It is immutable and safe for concurrent use.
type Module struct {
	Kinds
	Deps
}

// New returns the module.
func New(deps Deps) *Module { return &Module{newKinds(), deps} }

// Answer is a schedule as callers see it.
type Answer struct {
	ID         string   `json:"id" doc:"Identifier of the schedule."`
	Name       string   `json:"name" doc:"Name of the schedule."`
	Report     string   `json:"report" doc:"Identifier of the custom report."`
	Account    string   `json:"account" doc:"Identifier of the service account on whose behalf it is sent."`
	Recipients []string `json:"recipients" doc:"Addresses to which it is mailed; masked for callers who lack rights of the account."`
	On         string   `json:"on" doc:"The days."`
	At         string   `json:"at" doc:"The time of day in the time zone."`
	Zone       string   `json:"time_zone" doc:"IANA time zone."`
	CSV        bool     `json:"csv" doc:"Whether the rows are attached as a file."`
	LinkDays   int64    `json:"link_days" doc:"Days for which the link in a mail opens the report."`
	State      string   `json:"state" enum:"active,failing,paused" doc:"failing: the last run failed, see its runs."`
	Paused     bool     `json:"paused" doc:"Whether it is not run."`
	Reason     string   `json:"paused_reason" doc:"Why it is paused; empty: it is not."`
	NextRun    *string  `json:"next_run" doc:"When it is run next; null: never."`
	LastRun    *string  `json:"last_run" doc:"When it was last due; null: never."`
	CreatedAt  string   `json:"created_at" doc:"RFC 3339, UTC, milliseconds."`
	UpdatedAt  string   `json:"updated_at" doc:"RFC 3339, UTC, milliseconds."`
}

func exampleAnswer() Answer {
	next := "2026-11-30T07:00:00.000Z"
	return Answer{
		ID: "665f1c2ab4d3e2f1a0b9c8c1", Name: "Weekly figures", Report: "66f0a1b2c3d4e5f601234567", Account: "665f1c2ab4d3e2f1a0b9c8d7",
		Recipients: []string{"ada@example.com"}, On: "monday", At: "08:00", Zone: "Europe/Berlin", CSV: true, LinkDays: 30, State: "active",
		NextRun: &next, CreatedAt: "2026-11-28T10:00:00.000Z", UpdatedAt: "2026-11-28T10:00:00.000Z",
	}
}

// show returns schedules as callers see them.
func (m *Module) show(ctx context.Context, c *operation.Call, all []*Schedule) ([]Answer, error) {
	ids, accounts := make([]string, len(all)), make([]string, len(all))
	for i, s := range all {
		ids[i], accounts[i] = s.ID, s.Account
	}
	borrows, err := operation.Borrows(ctx, c, m.Accounts, accounts)
	if err != nil {
		return nil, err
	}
	found, err := m.Progress.In(c.Workspace).Find(ctx, store.Query{Filter: store.In("id", ids...), Limit: max(len(ids), 1)})
	if err != nil {
		return nil, err
	}
	by := map[string]Progress{}
	for i := range found {
		by[found[i].ID] = found[i]
	}
	out := make([]Answer, len(all))
	for i, s := range all {
		if out[i] = m.answer(s, by[s.ID]); !borrows[s.Account] {
			for j, to := range out[i].Recipients {
				out[i].Recipients[j] = mail.Masked(to)
			}
		}
	}
	return out, nil
}

func (m *Module) answer(s *Schedule, p Progress) Answer {
	a := Answer{
		ID: s.ID, Name: s.Name, Report: s.Report, Account: s.Account, Recipients: slices.Clone(s.Recipients), On: s.On, At: s.At,
		Zone: s.Zone, CSV: s.CSV, LinkDays: s.LinkDays, State: "active", LastRun: texts.TimeOrNull(p.Last),
		CreatedAt: texts.Time(s.CreatedAt), UpdatedAt: texts.Time(s.UpdatedAt),
	}
	if a.Recipients == nil {
		a.Recipients = []string{}
	}
	when, wrong := s.timing()
	switch a.Reason, a.Paused = s.idle(); {
	case a.Paused:
		a.State = "paused"
	case wrong == nil:
		next := when.next(time.UnixMilli(max(p.Last, s.Since))).UnixMilli()
		a.NextRun = texts.TimeOrNull(max(next, p.NextTry))
	}
	if p.Failed && !a.Paused {
		a.State = "failing"
	}
	return a
}

func (m *Module) options() crud.Options {
	may := operation.Needs(tenants.ManageReports)
	return crud.Options{
		Path: "/api/report-schedules", Things: "Report Schedules", Tag: "Reports", Read: may, Write: may, Search: []string{"name"},
		Few:  []string{"name"},
		Show: crud.Show(m.show), Example: exampleAnswer(), Check: crud.Check(m.check), Before: crud.Before(m.admit),
		Create: crud.Action{
			Docs: operation.Docs{Description: "The report is mailed at the next time that the schedule names, and then each time. A mail " +
				"shows its picture and its first rows, and has a link that opens the report as shared, with its own values of locked " +
				"inputs. The caller must hold the rights of the service account."},
			Response: operation.Response{Failures: []operation.Failure{bound()}},
			Around:   m.orNobody,
		},
		Update: crud.Action{Response: operation.Response{Failures: []operation.Failure{lacks(), bound()}}},
		Delete: crud.Action{
			Docs:     operation.Docs{Description: "Nothing more is mailed. Links in earlier mails work until they expire or are revoked."},
			Response: operation.Response{Failures: []operation.Failure{lacks()}},
		},
		List: crud.Action{Target: operation.Target{Concerns: m.concerns}},
	}
}

// orNobody makes an answer say if nobody is mailed.
func (m *Module) orNobody(next operation.Handler) operation.Handler {
	return func(ctx context.Context, c *operation.Call) (operation.Result, error) {
		if !m.Mails.On() {
			c.Warn(mail.Nobody)
		}
		return next(ctx, c)
	}
}

// concerns returns the schedules whose last run failed.
func (m *Module) concerns(ctx context.Context, c *operation.Call, most int) (all operation.Concerns, err error) {
	found, err := m.Schedules.In(c.Workspace).Find(ctx, store.Query{Sort: []store.Order{store.Asc("id")}, Limit: mostSchedules})
	if err != nil || len(found) == 0 {
		return all, err
	}
	some := make([]*Schedule, len(found))
	for i := range found {
		some[i] = &found[i]
	}
	shown, err := m.show(ctx, c, some)
	for i := range shown {
		if shown[i].State != "failing" {
			continue
		}
		if all.Count++; len(all.First) < most {
			all.First = append(all.First, operation.Concern{ID: shown[i].ID, Name: shown[i].Name, Cause: operation.Failing})
		}
	}
	return all, err
}

// Operations returns the rows.
func (m *Module) Operations() []operation.Row {
	return slices.Concat(m.actions(), crud.Rows(m.Schedules.Resource, m.options()))
}

func lacks() operation.Failure {
	return operation.Failure{
		Code: http.StatusForbidden, Message: "The caller lacks contacts, which the service account holds",
		When: "the service account holds more than the caller",
	}
}

func bound() operation.Failure {
	return operation.Failure{
		Code: http.StatusForbidden, Message: operation.BoundLoan, When: "the calling key has expires_in or allowed_ips",
	}
}

// check notes faults of the timing and the addresses, and what the account may not share.
func (m *Module) check(ctx context.Context, c *operation.Call, s, was *Schedule, errs *fault.List) error {
	_, wrong := s.timing()
	*errs = append(*errs, wrong...)
	for i, to := range s.Recipients {
		if s.Recipients[i] = strings.TrimSpace(to); !schema.ValidEmail(s.Recipients[i]) {
			errs.Add("recipients", fault.Format, "recipients: %q is not an e-mail address", texts.Clip(to))
			break
		}
	}
	same := was != nil && was.Account == s.Account && was.Report == s.Report && was.CSV == s.CSV
	if c.Principal.Kind == tenants.System || s.Account == "" || s.Report == "" || same {
		return nil
	}
	if was == nil || was.Account != s.Account {
		if err := m.Accounts.Lend(ctx, c, s.Account, "account", false); err != nil {
			return add(errs, err)
		}
	}
	who, err := m.Accounts.AccountPrincipal(ctx, c.Tenant, s.Account)
	if errors.Is(err, tenants.ErrDenied) { // rule ref has told of one that is missing
		return nil
	}
	if err != nil {
		return err
	}
	r, err := m.Reports.Sendable(ctx, c.Tenant, who, s.Report)
	switch {
	case errors.Is(err, store.ErrNotFound):
		errs.Add("report", fault.Forbidden, "the service account does not see the report")
	case err != nil:
		return add(errs, err)
	case s.CSV && !r.Exportable:
		errs.Add("csv", fault.Forbidden, "the report is set not to be exportable")
	}
	return nil
}

// add notes the faults of an error, and returns an error of another kind.
func add(errs *fault.List, err error) error {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok {
		return err
	}
	for _, f := range e.Faults {
		errs.Add(f.Field, f.Code, "%s", f.Message)
	}
	return nil
}

// admit refuses callers who lack what the schedule would send, and begins a new schedule, or one whose times change.
func (m *Module) admit(ctx context.Context, c *operation.Call, _ *store.Preconditions, s, was *Schedule) error {
	if c.Principal.Kind == tenants.System {
		return nil
	}
	if was != nil {
		if err := m.Accounts.Lend(ctx, c, was.Account, "", s != nil); err != nil || s == nil {
			return err
		}
	} else if err := m.Accounts.Lend(ctx, c, s.Account, "", true); err != nil {
		return err
	}
	if was != nil && (was.Since == 0 && s.Since == 0 || was.Since > 0 && was.On == s.On && was.At == s.At && was.Zone == s.Zone && was.Paused == s.Paused) {
		return nil
	}
	return m.begin(ctx, c, s)
}

// begin has runs of a schedule be due from now on.
func (m *Module) begin(ctx context.Context, c *operation.Call, s *Schedule) error {
	when, wrong := s.timing()
	if wrong != nil {
		return nil // check tells it
	}
	now := m.Now()
	s.Since = now.UnixMilli()
	return m.NoteDue(ctx, c.Tenant, when.next(now))
}

// without returns addresses without one, however it is written.
func without(all []string, address string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(to string) bool { return identity.EmailKey(to) == identity.EmailKey(address) })
}

// resource returns the resource that paths of actions name.
func (m *Module) resource() *record.Resource { return m.Schedules.Resource }
