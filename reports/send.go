package reports

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tenantry/crypto/tokens"
	"tenantry/internal/fault"
	"tenantry/operation/export"
	"tenantry/tenants"
)

// Sent is a report as it is sent to people who may have no account: what a reader of its link sees, without choices.
type Sent struct {
	Shared
	// CSV has all rows; nil: it was not asked for, or Omitted says why it is missing.
	CSV     []byte
	Omitted string
}

// maxCSV bounds the file of a report that is sent, in bytes.
const maxCSV = 1 << 20

// Sendable returns a report that the principal may share. Errors: store.ErrNotFound if there is no such report in the
// teams of the principal; a *fault.Error about report or account; store.ErrUnavailable.
func (m *Module) Sendable(ctx context.Context, t *tenants.Tenant, p *tenants.Principal, id string) (*Report, error) {
	r, err := m.Reports.In(t.Workspace().Scoped(p.Scope(t, nil))).Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if !p.May(tenants.ManageReports) {
		return nil, fault.One("account", fault.Forbidden, "the service account lacks manage_reports, without which it may share no report")
	}
	entitled, err := m.entitled(ctx, t, p, r)
	switch {
	case err != nil:
		return nil, err
	case !entitled[0]:
		return nil, fault.One("report", fault.Forbidden, "the report, or a child of it, shows more than the teams of the service account")
	case !r.CanShare():
		return nil, fault.One("report", fault.Forbidden, notShareable)
	}
	return r, nil
}

// Send runs a report that Sendable returned, with its own values of locked inputs, and returns what readers of its link
// see; with csv, also the file of its rows. Errors: those of Open.
func (m *Module) Send(ctx context.Context, t *tenants.Tenant, r *Report, csv bool) (out Sent, err error) {
	b, err := m.bundle(ctx, t, SharedRequest{PID: r.PID})
	if err != nil {
		return out, err
	}
	values, err := tokenParams(r, slices.DeleteFunc(slices.Clone(b.children), func(child Report) bool { return !b.sees(&child) }), nil)
	if err != nil {
		return out, err
	}
	locked := make(map[string]string, len(values))
	for name, v := range values {
		if locked[name], err = scalarText(v); err != nil {
			return out, fmt.Errorf("input %s: %w", name, err)
		}
	}
	inputs, err := resolveInputs(b.root, b.root, locked, nil)
	if err != nil {
		return out, err
	}
	provider, err := m.chooseProvider(t, "", b.root.Secure)
	if err != nil {
		return out, err
	}
	f, err := m.run(ctx, t, b, b.root, inputs, provider, true)
	if err != nil {
		return out, err
	}
	out.Shared = m.describe(b, b.root, inputs, &f)
	if csv {
		out.CSV, out.Omitted, err = m.csv(ctx, t, b, inputs)
	}
	return out, err
}

// errTooLarge: the file of a report is larger than maxCSV.
var errTooLarge = errors.New("the file is too large")

// csv returns the file of all rows, or why there is none.
func (m *Module) csv(ctx context.Context, t *tenants.Tenant, b *bundle, inputs *inputValues) (file []byte, omitted string, err error) {
	if !b.root.Exportable {
		return nil, "The report is set not to be exportable.", nil
	}
	var plan Plan
	if err := m.timed(ctx, func(run context.Context) (err error) {
		plan, err = m.bind(run, t, b, b.root, inputs)
		return err
	}); err != nil {
		return nil, "", err
	}
	const large = "It has too many rows for a file in a mail; the page of the report has one."
	rows, err := m.whole(ctx, plan)
	if _, many := errors.AsType[*fault.Error](err); many {
		return nil, large, nil
	}
	if err != nil {
		return nil, "", err
	}
	to := &bounded{}
	names := namesOf(plan.Columns)
	err = export.WriteCSV(ctx, to, names, func(ctx context.Context, w *export.Writer) error { return rows.write(ctx, w, names) })
	if errors.Is(err, errTooLarge) {
		return nil, large, nil
	}
	return to.Bytes(), "", err
}

// bounded is a buffer of at most maxCSV bytes.
type bounded struct{ bytes.Buffer }

// Write implements io.Writer. Error: errTooLarge.
func (b *bounded) Write(part []byte) (int, error) {
	if b.Len()+len(part) > maxCSV {
		return 0, errTooLarge
	}
	return b.Buffer.Write(part)
}

// Revoked reports whether a share token of the report was revoked. Errors: store.ErrUnavailable.
func (m *Module) Revoked(ctx context.Context, t *tenants.Tenant, r *Report, token string) (bool, error) {
	return m.isRevoked(ctx, t, r.PID, tokens.Share{ID: token})
}

// Link issues a link to a report, which opens it for that long, and returns its path and query. by says who issued it in
// lists of share tokens. Errors: as Issue.
func (m *Module) Link(ctx context.Context, t *tenants.Tenant, r *Report, by string, lifetime time.Duration) (path, id string, err error) {
	token, id, _, err := m.Issue(ctx, t, r, by, nil, lifetime)
	return shareURL("", r.PID) + "?token=" + token, id, err
}
