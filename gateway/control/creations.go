package control

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"tenantry/internal/fault"
	"tenantry/internal/scan"
	"tenantry/internal/together"
	"tenantry/modules/imports/bundle"
	"tenantry/operation"
	"tenantry/tenants"
)

// Creations asks for the organizations of a file, each line of which is a NewOrganization.
type Creations struct {
	DryRun bool `json:"dry_run,omitempty" doc:"with --from: check only, and show what would be done"`
}

const (
	maxCreations      = 100_000
	maxCreation       = 64 << 10 // bytes of a line
	maxCreationsBytes = 256 << 20
	maxCreationFaults = 1000 // lines that a report names
	// creationsAtOnce is how many organizations share a write to the control workspace. A process that is
	// killed leaves no more workspaces than that without one, as strays.
	creationsAtOnce = 100
	creationsTime   = time.Minute // for those
	recording       = 32          // audit records that are written at a time
)

func (s *Server) orgCreateFrom() Command {
	return command(Command{
		Line: "org create from", Flag: "from", Reads: true, Short: "make the organizations of a <file>, which has one on each line (- for standard input)",
		Audit: operation.AuditNoted, Begins: true, // the records are those of org.create, one for each organization
		Hint: "repeat the command with the same file to go on",
	}, s.createOrganizations)
}

// creations makes the organizations of the lines of a file.
type creations struct {
	server   *Server
	create   *Command      // that makes one
	row      operation.Row // which takes what it takes, and answers the organization that is wanted
	dry      bool
	operator string // who gave the command
	total    int    // lines
	tell     func(Progress)
	report   bundle.Report
	batch    []*creation
	made     map[string]int // lines by slug
}

// creation is one line. It is a call of the command that makes one.
type creation struct {
	call
	line int
	org  tenants.NewOrganization
}

// createOrganizations returns no report where nothing was begun.
func (s *Server) createOrganizations(ctx context.Context, c *call, in Creations) (*bundle.Report, error) {
	if c.Input == nil {
		return nil, fail(CodeInvalid, "there is no file of organizations")
	}
	src, remove, err := s.spool(ctx, io.LimitReader(c.Input, maxCreationsBytes+1))
	if err != nil {
		return nil, err
	}
	defer remove()
	if src.Size > maxCreationsBytes {
		return nil, fail(CodeInvalid, "the file has more than %d MiB; give it in parts", maxCreationsBytes>>20)
	}
	m := &creations{server: s, operator: c.Operator, create: s.commands["org.create"], dry: in.DryRun, tell: c.Progress, made: map[string]int{}}
	err = eachLine(ctx, src, func(int, []byte, error) error {
		if m.total++; m.total > maxCreations {
			return fail(CodeInvalid, "the file has more than %d lines; give it in parts", maxCreations)
		}
		return nil
	})
	if err == nil && m.total == 0 {
		err = fail(CodeInvalid, "the file has no line; each is an organization: {\"slug\":\"acme\",\"name\":\"Acme Ltd\"}")
	}
	if err != nil {
		return nil, err
	}
	m.row = operation.Typed(m.create.row(), func(_ context.Context, c *operation.Call, in NewOrganization) (n tenants.NewOrganization, _ error) {
		set(&call{Call: c, command: m.create}, &n, &in)
		return n, nil
	})
	err = eachLine(ctx, src, func(number int, text []byte, wrong error) error { return m.take(ctx, number, text, wrong) })
	if err == nil {
		err = m.flush(ctx)
	}
	s.Log.InfoContext(ctx, "organizations were made of a file", "lines", m.report.Lines, "created", m.report.Created, "failed", m.report.Failed, "dry_run", m.dry, "ok", err == nil)
	return m.end(err)
}

// eachLine calls fn with the lines of a file that are not blank: with the number and the text, or why there is none.
func eachLine(ctx context.Context, src bundle.Source, fn func(number int, text []byte, wrong error) error) error {
	in, err := src.Open()
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	for all := scan.New(in, maxCreation); ; {
		text, err := all.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, scan.ErrTooLong) {
			return err
		}
		if err == nil && len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		if err := cmp.Or(ctx.Err(), fn(all.Number(), text, err)); err != nil {
			return err
		}
	}
}

// take reads a line as the command that makes one reads its request, and puts it into the batch, unless it cannot be
// read or a line before it has its slug. Errors: those of flush.
func (m *creations) take(ctx context.Context, number int, text []byte, wrong error) error {
	m.report.Lines++
	one := &creation{line: number, call: call{Call: operated(&m.row), command: m.create, Streams: Streams{Operator: m.operator}}}
	if err := one.read(ctx, text, wrong); err != nil {
		m.refuse(one, err)
		return nil
	}
	if slices.ContainsFunc(m.batch, func(other *creation) bool { return other.org.Slug == one.org.Slug }) { // what becomes of that comes first
		if err := m.flush(ctx); err != nil {
			return err
		}
	}
	if before := m.made[one.org.Slug]; before > 0 {
		m.refuse(one, fault.One("slug", fault.Duplicate, "the slug %q is that of line %d", one.org.Slug, before))
		return nil
	}
	if m.batch = append(m.batch, one); len(m.batch) < creationsAtOnce {
		return nil
	}
	return m.flush(ctx)
}

func (one *creation) read(ctx context.Context, text []byte, wrong error) error {
	if wrong != nil {
		return fault.One("line", fault.Length, "the line has more than %d bytes", maxCreation)
	}
	body, err := operation.ParseBody(text)
	if broken, is := errors.AsType[*operation.Problem](err); is {
		return fault.One("line", fault.Format, "%s", strings.Replace(broken.Message, "The body", "the line", 1))
	}
	result, err := operation.Run(ctx, one.Call, operation.Input{Body: func(context.Context) (operation.Body, error) { return body, nil }})
	one.org, _ = result.Data.(tenants.NewOrganization)
	return err
}

// flush makes the organizations of the batch, and records each. What has begun is ended, though whoever gave the
// command is gone: no workspace shall be left without its organization. Error: that it is no use to go on.
func (m *creations) flush(ctx context.Context) error {
	defer func() { m.tell(Progress{Step: "creating", Done: int64(m.report.Lines), Total: int64(m.total)}) }()
	if len(m.batch) == 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), creationsTime)
	defer cancel()
	batch, before := m.batch, m.report.Created
	m.batch = nil
	var down error
	for i, err := range m.store(ctx, batch) {
		one := batch[i]
		if err == nil || one.Tenant.Workspace() != nil { // it is there, though perhaps not recorded
			m.report.Created++
			m.made[one.org.Slug] = one.line
		}
		if err == nil {
			continue
		}
		m.refuse(one, taken(err, one.org.Slug))
		if code := errorOf(err).Code; code != CodeInvalid && code != CodeDuplicate {
			down = err
		}
	}
	if m.report.Created > before {
		return nil
	}
	return down
}

// store makes organizations, and writes for each the audit record of the command that makes one. It returns what
// became of each; of a dry run what would.
func (m *creations) store(ctx context.Context, batch []*creation) []error {
	list, errs := make([]tenants.NewOrganization, len(batch)), make([]error, len(batch))
	for i, one := range batch {
		list[i] = one.org
	}
	if m.dry {
		return m.server.Directory.Refusals(ctx, list...)
	}
	made := m.server.Directory.CreateAll(ctx, list...)
	_ = together.Each(recording, len(made), func(i int) error {
		if errs[i] = made[i].Err; errs[i] == nil {
			batch[i].Tenant = made[i].Tenant
			errs[i] = m.server.record(ctx, &batch[i].call, nil)
		}
		return nil
	})
	return errs
}

// refuse reports what is wrong with a line.
func (m *creations) refuse(one *creation, err error) {
	e := errorOf(err)
	p := bundle.LineProblem{Line: one.line, Kind: "organization", Errors: e.Faults}
	if len(p.Errors) == 0 {
		p.Errors.Add(map[bool]string{true: "slug", false: "line"}[e.Code == CodeDuplicate], e.Code, "%s", e.Message)
	}
	if one.Tenant.Workspace() == nil {
		m.report.Failed++
	}
	if len(m.report.Problems) < maxCreationFaults {
		m.report.Problems = append(m.report.Problems, p)
	} else {
		m.report.More++
	}
}

// end returns the report, with an error unless all lines are organizations now.
func (m *creations) end(err error) (*bundle.Report, error) {
	r := &m.report
	r.DryRun, r.Kinds, r.Problems = m.dry, map[string]bundle.Counts{"organization": r.Counts}, append([]bundle.LineProblem{}, r.Problems...)
	slices.SortStableFunc(r.Problems, func(a, b bundle.LineProblem) int { return a.Line - b.Line })
	switch {
	case err != nil:
		e := errorOf(err)
		return r, fail(e.Code, "the command ended early: of %d lines %d are organizations now; repeat it with the same file to go on: %s", m.total, r.Created, e.Message)
	case r.Failed > 0:
		says := "were refused; the others are organizations now"
		switch {
		case m.dry:
			says = "would be refused"
		case r.Failed == m.total:
			says = "were refused; nothing was made"
		}
		return r, fail(CodeInvalid, "%d of %d lines %s", r.Failed, m.total, says)
	case len(r.Problems) > 0:
		return r, fail(CodeFailed, "all lines are organizations now, and %d could not be written to their audit logs", len(r.Problems)+r.More)
	}
	return r, nil
}
