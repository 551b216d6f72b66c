package schedules

import (
	"context"
	"net/http"
	"strings"

	"tenantry/backends/store"
	"tenantry/internal/texts"
	"tenantry/operation"
	"tenantry/operation/crud"
	"tenantry/tenants"
)

// RunAnswer is a Run as callers see it.
type RunAnswer struct {
	ID         string  `json:"id" doc:"Identifier of the run."`
	State      string  `json:"state" enum:"mailed,failed" doc:"mailed: its mails were stored; the list of mails says what became of them."`
	Reason     string  `json:"reason" doc:"Why it failed; empty: it did not."`
	Due        *string `json:"due" doc:"When it was due; null: somebody asked for it."`
	At         string  `json:"at" doc:"When it ran: RFC 3339, UTC, milliseconds."`
	Rows       int     `json:"rows" doc:"Rows of the report."`
	Recipients int     `json:"recipients" doc:"Addresses to which it was mailed."`
	Share      string  `json:"token_id" doc:"Identifier of the share token in its mails, for revoking it; empty: there is none."`
}

func exampleRun() RunAnswer {
	due := "2026-11-23T07:00:00.000Z"
	return RunAnswer{
		ID: "b4d3e2f1a0b90019ac8f0a00", State: mailed, Due: &due, At: "2026-11-23T07:00:04.120Z", Rows: 12, Recipients: 1,
		Share: "0-1N9lXo4VjYwq2bTt0cJ8sKfZgRm",
	}
}

func (r *Run) answer() RunAnswer {
	return RunAnswer{
		ID: r.ID, State: r.State, Reason: r.Reason, Due: texts.TimeOrNull(r.Due), At: texts.Time(r.CreatedAt), Rows: r.Rows,
		Recipients: r.Recipients, Share: r.Share,
	}
}

// RunPage is a page of the runs of a schedule.
type RunPage operation.Part[RunAnswer]

type runsInput struct {
	operation.ByTime
	ID string `json:"id" doc:"Identifier of the schedule." example:"665f1c2ab4d3e2f1a0b9c8c1"`
}

type runInput struct {
	ID string `json:"id" doc:"Identifier of the schedule." example:"665f1c2ab4d3e2f1a0b9c8c1"`
}

const missing = "Report Schedule not found"

// actions returns the rows that act on one schedule.
func (m *Module) actions() []operation.Row {
	row := operation.Row{
		Policy: operation.Policy{Credentials: operation.Key | operation.Session, Rule: operation.Needs(tenants.ManageReports)},
		Response: operation.Response{Failures: []operation.Failure{
			{Code: http.StatusNotFound, Message: missing, When: "no such schedule in this organization"}, lacks(),
		}},
	}
	now, runs := row, row
	now.Name, now.Method, now.Path = "report_schedules.run", http.MethodPost, "/api/report-schedules/{id}/run"
	now.Kinds, now.Audit, now.Weight, now.Timeout = operation.ServerFull, operation.AuditAlways, operation.Heavy, runTime+noteTime
	now.Message, now.Example = "Report Schedule run", exampleRun()
	now.Failures = append(now.Failures[:2:2], operation.Failure{
		Code: http.StatusServiceUnavailable, Message: notNow, When: "the report could not be run for now",
	})
	now.Docs = operation.Docs{
		Tag: "Reports", Summary: "Mail a scheduled report now", Verb: "Mail now",
		Description: "Runs the report and mails it to all recipients once, even if the schedule is paused, and answers what came of it.",
	}
	runs.Name, runs.Method, runs.Path = "report_schedules.runs", http.MethodGet, "/api/report-schedules/{id}/runs"
	runs.Kinds, runs.Message = operation.ServerKeys, "Runs found"
	runs.Example = RunPage(operation.OnePage(exampleRun()))
	runs.Docs = operation.Docs{
		Tag: "Reports", Summary: "List the runs of a schedule", Title: "Runs",
		Description: "Answers the runs of the last ninety days, and what came of them.",
	}
	rows := []operation.Row{operation.On(now, m.byID, m.runNow), operation.On(runs, m.byID, m.runs)}
	for i := range rows {
		crud.Resolve(&rows[i], "id", m.resource)
	}
	return append(rows, m.pausing()...)
}

// pausing returns the rows that pause and resume a schedule.
func (m *Module) pausing() []operation.Row {
	o := m.options()
	return []operation.Row{
		crud.Act(m.Schedules, o, "pause", http.MethodPost, "pause", crud.Action{
			Docs:     operation.Docs{Summary: "Pause a schedule", Verb: "Pause", Description: "Nothing is mailed until the schedule is resumed."},
			Response: operation.Response{Message: "Report Schedule paused", Failures: []operation.Failure{lacks(), bound()}},
			Target:   operation.Target{Action: operation.DeactivateAction},
		}, func(s *Schedule, _ struct{}) { s.Paused = true }),
		crud.Act(m.Schedules, o, "resume", http.MethodPost, "resume", crud.Action{
			Docs: operation.Docs{
				Summary: "Resume a schedule", Verb: "Resume",
				Description: "The report is mailed at the next time that the schedule names. What was due meanwhile is left out.",
			},
			Response: operation.Response{Message: "Report Schedule resumed", Failures: []operation.Failure{lacks(), bound()}},
			Target:   operation.Target{Action: operation.ReactivateAction},
		}, func(s *Schedule, _ struct{}) {
			if s.Paused = false; s.Since == 0 {
				s.Since = m.Now().UnixMilli() // admit begins it
			}
		}),
	}
}

// byID returns the schedule that the path names if the caller holds the rights of its account.
func (m *Module) byID(ctx context.Context, c *operation.Call) (*Schedule, error) {
	if !store.ValidID(c.Path("id")) {
		return nil, operation.NotFound(missing)
	}
	s, err := m.Schedules.In(c.Workspace).Get(ctx, c.Path("id"))
	if err != nil {
		return nil, operation.OrMissing(err, missing)
	}
	return s, m.Accounts.Lend(ctx, c, s.Account, "", false)
}

func (m *Module) runNow(ctx context.Context, c *operation.Call, s *Schedule, _ runInput) (RunAnswer, error) {
	c.Note("report_schedule", s.ID)
	run := &Run{Schedule: s.ID, State: mailed}
	run.ID = c.Tenant.Workspace().NewID()
	c.Note("report_run", run.ID)
	ready, err := m.prepare(ctx, c.Tenant, s)
	if err == nil {
		err = m.store(ctx, c.Tenant, ready, run, nil)
	}
	if err == nil {
		return run.answer(), nil
	}
	reason, lasting := explain(err)
	if !lasting {
		p := operation.Unavailable(err)
		p.Message = strings.TrimSuffix(notNow, ".")
		return RunAnswer{}, p
	}
	run.State, run.Reason = failed, reason
	err = m.note(ctx, c.Tenant, run, nil)
	return run.answer(), err
}

func (m *Module) runs(ctx context.Context, c *operation.Call, s *Schedule, in runsInput) (out RunPage, err error) {
	of := store.Eq("schedule", s.ID)
	q, follows, err := in.Query(c, of)
	if err != nil {
		return out, err
	}
	page, count, err := m.Runs.In(c.Workspace).Page(ctx, q, of)
	if err != nil {
		return out, err
	}
	found := page.Records
	shown := make([]RunAnswer, len(found))
	for i := range found {
		shown[i] = found[i].answer()
	}
	part, err := operation.PartOf(c, in.Following, follows, count, shown, page.Left, page.Cut, func(last int) string {
		return in.Position(&found[last].Meta)
	})
	return RunPage(part), err
}
