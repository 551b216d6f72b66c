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

// Creations asks for an organization for each line of a file; a line is a NewOrganization.
type Creations struct {
	DryRun bool `json:"dry_run,omitempty" doc:"with --from: only check, and show what would be done"`
}

const (
	maxCreations      = 100_000
	maxCreation       = 64 << 10 // bytes of a line
	maxCreationsBytes = 256 << 20
	maxCreationFaults = 1000 // lines that a report names
	// creationsPerBatch is how many organizations share a write to the control workspace. A process that is killed
	// leaves at most that many workspaces without an organization, as strays.
	creationsPerBatch = 100
	batchTimeout      = time.Minute
	recordConcurrency = 32 // audit records that are written at the same time
)

func (s *Server) orgCreateFrom() Command {
	return command(Command{
		Line: "org create from", Flag: "from", Reads: true,
		Short: "create one organization for each line of a <file> (- for standard input)",
		Audit: operation.AuditNoted, Begins: true, // each organization has a record of org.create
		Hint: "repeat the command with the same file to go on",
	}, s.createOrganizations)
}

// batchCreator makes an organization for each line of a file.
type batchCreator struct {
	server   *Server
	create   *Command      // org.create
	row      operation.Row // has the input of create, and returns the tenants.NewOrganization
	dryRun   bool
	operator string // name of the operator
	total    int    // lines
	progress func(Progress)
	report   bundle.Report
	batch    []*creationLine
	lineOf   map[string]int // number of the line that made an organization, by slug
}

// creationLine is one line of the file, as a call of org.create.
type creationLine struct {
	call
	line int
	org  tenants.NewOrganization
}

// createOrganizations implements org create --from. It returns no report if nothing was begun.
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
	m := &batchCreator{
		server: s, operator: c.Operator, create: s.commands["org.create"], dryRun: in.DryRun, progress: c.Progress,
		lineOf: map[string]int{},
	}
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
	m.row = operation.Typed(m.create.row(), func(
		_ context.Context, c *operation.Call, in NewOrganization,
	) (n tenants.NewOrganization, _ error) {
		apply(&call{Call: c, command: m.create}, &n, &in)
		return n, nil
	})
	err = eachLine(ctx, src, func(number int, text []byte, lineErr error) error {
		return m.add(ctx, number, text, lineErr)
	})
	if err == nil {
		err = m.flush(ctx)
	}
	s.Log.InfoContext(ctx, "organizations were created from a file",
		"lines", m.report.Lines, "created", m.report.Created, "failed", m.report.Failed,
		"dry_run", m.dryRun, "ok", err == nil)
	return m.finish(err)
}

// eachLine calls fn for each line of a file that is not blank, with its number and text. lineErr is set if the line is
// too long.
func eachLine(ctx context.Context, src bundle.Source, fn func(number int, text []byte, lineErr error) error) error {
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

// add parses a line like a request of org.create and adds it to the batch. It rejects a line that is invalid or has the
// slug of an earlier line. Errors: those of flush.
func (m *batchCreator) add(ctx context.Context, number int, text []byte, lineErr error) error {
	m.report.Lines++
	one := &creationLine{line: number, call: call{
		Call: operatorCall(&m.row), command: m.create, Streams: Streams{Operator: m.operator},
	}}
	if err := one.parse(ctx, text, lineErr); err != nil {
		m.reject(one, err)
		return nil
	}
	// Whether an earlier line of the batch with this slug succeeds must be known first.
	if slices.ContainsFunc(m.batch, func(other *creationLine) bool { return other.org.Slug == one.org.Slug }) {
		if err := m.flush(ctx); err != nil {
			return err
		}
	}
	if before := m.lineOf[one.org.Slug]; before > 0 {
		m.reject(one, fault.One("slug", fault.Duplicate, "the slug %q is already used by line %d", one.org.Slug, before))
		return nil
	}
	if m.batch = append(m.batch, one); len(m.batch) < creationsPerBatch {
		return nil
	}
	return m.flush(ctx)
}

func (one *creationLine) parse(ctx context.Context, text []byte, lineErr error) error {
	if lineErr != nil {
		return fault.One("line", fault.Length, "the line has more than %d bytes", maxCreation)
	}
	body, err := operation.ParseBody(text)
	if broken, is := errors.AsType[*operation.Problem](err); is {
		return fault.One("line", fault.Format, "%s", strings.Replace(broken.Message, "The body", "the line", 1))
	}
	result, err := operation.Run(ctx, one.Call, operation.Input{
		Body: func(context.Context) (operation.Body, error) { return body, nil },
	})
	one.org, _ = result.Data.(tenants.NewOrganization)
	return err
}

// flush makes the organizations of the batch and records each in its audit log. It completes even if the operator has
// gone, because no workspace may be left without its organization. It returns an error if there is no point in going
// on.
func (m *batchCreator) flush(ctx context.Context) error {
	defer func() { m.progress(Progress{Step: "creating", Done: int64(m.report.Lines), Total: int64(m.total)}) }()
	if len(m.batch) == 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchTimeout)
	defer cancel()
	batch, before := m.batch, m.report.Created
	m.batch = nil
	var down error
	for i, err := range m.store(ctx, batch) {
		one := batch[i]
		if err == nil || one.Tenant.Workspace() != nil { // it exists, even if it could not be recorded
			m.report.Created++
			m.lineOf[one.org.Slug] = one.line
		}
		if err == nil {
			continue
		}
		m.reject(one, slugTaken(err, one.org.Slug))
		if code := errorOf(err).Code; code != CodeInvalid && code != CodeDuplicate {
			down = err
		}
	}
	if m.report.Created > before {
		return nil
	}
	return down
}

// store makes organizations, with an audit record of org.create for each. It returns an error or nil for each of them;
// in a dry run, the error that would occur.
func (m *batchCreator) store(ctx context.Context, batch []*creationLine) []error {
	list, errs := make([]tenants.NewOrganization, len(batch)), make([]error, len(batch))
	for i, one := range batch {
		list[i] = one.org
	}
	if m.dryRun {
		return m.server.Directory.Refusals(ctx, list...)
	}
	created := m.server.Directory.CreateAll(ctx, list...)
	_ = together.Each(recordConcurrency, len(created), func(i int) error {
		if errs[i] = created[i].Err; errs[i] == nil {
			batch[i].Tenant = created[i].Tenant
			errs[i] = m.server.record(ctx, &batch[i].call, nil)
		}
		return nil
	})
	return errs
}

// reject reports the error of a line.
func (m *batchCreator) reject(one *creationLine, err error) {
	e := errorOf(err)
	p := bundle.LineProblem{Line: one.line, Kind: "organization", Errors: e.Faults}
	if len(p.Errors) == 0 {
		field := map[bool]string{true: "slug", false: "line"}[e.Code == CodeDuplicate]
		p.Errors.Add(field, e.Code, "%s", e.Message)
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

// finish returns the report, and an error unless every line is an organization now.
func (m *batchCreator) finish(err error) (*bundle.Report, error) {
	r := &m.report
	r.DryRun, r.Kinds = m.dryRun, map[string]bundle.Counts{"organization": r.Counts}
	r.Problems = append([]bundle.LineProblem{}, r.Problems...) // [] rather than null in JSON
	slices.SortStableFunc(r.Problems, func(a, b bundle.LineProblem) int { return a.Line - b.Line })
	switch {
	case err != nil:
		e := errorOf(err)
		return r, fail(e.Code, "the command ended early: %[2]d of %[1]d lines are organizations now; "+
			"repeat it with the same file to go on: %[3]s", m.total, r.Created, e.Message)
	case r.Failed > 0:
		says := "were refused; the others are organizations now"
		switch {
		case m.dryRun:
			says = "would be refused"
		case r.Failed == m.total:
			says = "were refused; nothing was created"
		}
		return r, fail(CodeInvalid, "%d of %d lines %s", r.Failed, m.total, says)
	case len(r.Problems) > 0:
		return r, fail(CodeFailed, "all lines are organizations now, but %d could not be written to their audit logs",
			len(r.Problems)+r.More)
	}
	return r, nil
}
