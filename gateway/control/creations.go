package control

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"tenantry/backends/api"
	"tenantry/gateway/transfer"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/internal/together"
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
		Audit: api.AuditAlways, Begins: true, // the records are those of org.create, one for each organization
		Hint: "repeat the command with the same file to go on",
	}, s.createOrganizations)
}

// creations makes the organizations of the lines of a file.
type creations struct {
	server  *Server
	create  *Command      // that makes one
	row     api.Operation // which takes what it takes, for at
	at      *creation
	dry     bool
	report  transfer.Report
	counts  transfer.Counts
	batch   []*creation
	waiting map[string]bool // slugs of the batch
	made    map[string]int  // lines by slug
}

// creation is one line. It is a call of the command that makes one.
type creation struct {
	call
	line int
	org  tenants.NewOrganization
}

// createOrganizations returns no report where nothing was begun.
func (s *Server) createOrganizations(ctx context.Context, c *call, in Creations) (*transfer.Report, error) {
	if c.Input == nil {
		return nil, fail(CodeInvalid, "there is no file of organizations")
	}
	src, remove, err := s.spool(ctx, io.LimitReader(c.Input, maxCreationsBytes+1))
	if err != nil {
		return nil, err
	}
	defer remove()
	total, err := 0, error(nil)
	if src.Size > maxCreationsBytes {
		err = fail(CodeInvalid, "the file has more than %d MiB; give it in parts", maxCreationsBytes>>20)
	} else {
		err = eachLine(ctx, src, func(int, []byte, error) error {
			if total++; total > maxCreations {
				return fail(CodeInvalid, "the file has more than %d lines; give it in parts", maxCreations)
			}
			return nil
		})
	}
	if err == nil && total == 0 {
		err = fail(CodeInvalid, "the file has no line; each is an organization: {\"slug\":\"acme\",\"name\":\"Acme Ltd\"}")
	}
	if err != nil {
		return nil, err
	}
	m := &creations{server: s, create: s.commands["org.create"], dry: in.DryRun, waiting: map[string]bool{}, made: map[string]int{}}
	m.row = api.Typed(m.create.row(), func(_ context.Context, _ *api.Call, in NewOrganization) (none struct{}, err error) {
		set(&m.at.call, &m.at.org, &in)
		return none, nil
	})
	flush := func() error {
		err := m.flush(ctx)
		c.tell(Progress{Step: "creating", Done: int64(m.counts.Lines), Total: int64(total)})
		return err
	}
	err = eachLine(ctx, src, func(number int, text []byte, wrong error) error {
		one := m.take(ctx, number, text, wrong)
		if one != nil && m.waiting[one.org.Slug] { // what becomes of that comes first
			if err := flush(); err != nil {
				return err
			}
		}
		if m.add(one); len(m.batch) < creationsAtOnce {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	s.Log.InfoContext(ctx, "organizations were made of a file", "lines", m.counts.Lines, "created", m.counts.Created, "failed", m.counts.Failed, "dry_run", m.dry, "ok", err == nil)
	return m.end(total, err)
}

// eachLine calls fn with the lines of a file that are not blank: with the number and the text, or why there is none.
func eachLine(ctx context.Context, src transfer.Source, fn func(number int, text []byte, wrong error) error) error {
	in, err := src.Open()
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	for lines := transfer.NewLineReader(in, maxCreation); ; {
		text, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, transfer.ErrLineTooLong) {
			return err
		}
		if err == nil && len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		if err := cmp.Or(ctx.Err(), fn(lines.Number(), text, err)); err != nil {
			return err
		}
	}
}

// take reads a line as the command that makes one reads its request; nil where it cannot be.
func (m *creations) take(ctx context.Context, number int, text []byte, wrong error) *creation {
	m.counts.Lines++
	one := &creation{line: number}
	if err := m.read(ctx, one, text, wrong); err != nil {
		m.refuse(one, err)
		return nil
	}
	return one
}

func (m *creations) read(ctx context.Context, one *creation, text []byte, wrong error) error {
	if wrong != nil {
		return fault.One("line", fault.Length, "the line has more than %d bytes", maxCreation)
	}
	var p strictjson.Parser
	v, err := p.Parse(string(text))
	if broken, is := errors.AsType[strictjson.Error](err); is {
		return fault.One("line", fault.Format, "the line %s", string(broken))
	}
	if v.Is != strictjson.Object {
		return fault.One("line", fault.Format, "the line must be a JSON object")
	}
	m.at, one.call = one, call{Call: operated(&m.row), command: m.create}
	_, err = api.Run(ctx, one.Call, api.Input{Body: func(context.Context) (api.Body, error) { return api.ParseBody(text) }})
	return err
}

// add puts an organization into the batch, unless a line before it has its slug.
func (m *creations) add(one *creation) {
	if one == nil {
		return
	}
	slug := one.org.Slug
	if before := m.made[slug]; before > 0 {
		m.refuse(one, fault.One("slug", fault.Duplicate, "the slug %q is that of line %d", slug, before))
		return
	}
	m.batch, m.waiting[slug] = append(m.batch, one), true
}

// flush makes the organizations that wait, and records each. What has begun is ended, though whoever gave the command
// is gone: no workspace shall be left without its organization. Error: that it is no use to go on.
func (m *creations) flush(ctx context.Context) error {
	if len(m.batch) == 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), creationsTime)
	defer cancel()
	batch, list := m.batch, make([]tenants.NewOrganization, len(m.batch))
	for i, one := range batch {
		list[i] = one.org
	}
	m.batch = nil
	clear(m.waiting)
	var errs []error
	if m.dry {
		errs = m.server.Directory.Refusals(ctx, list...)
	} else {
		errs = m.store(ctx, batch, list)
	}
	var down error
	before := m.counts.Created
	for i, one := range batch {
		if errs[i] == nil || one.Tenant.Workspace() != nil { // it is there, though perhaps not recorded
			m.counts.Created++
			m.made[one.org.Slug] = one.line
		}
		if errs[i] == nil {
			continue
		}
		m.refuse(one, taken(errs[i], one.org.Slug))
		if code := errorOf(errs[i]).Code; code != CodeInvalid && code != CodeDuplicate {
			down = errs[i]
		}
	}
	if m.counts.Created > before {
		return nil
	}
	return down
}

// store makes organizations, and writes for each the audit record of the command that makes one.
func (m *creations) store(ctx context.Context, batch []*creation, list []tenants.NewOrganization) []error {
	errs := make([]error, len(list))
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
	p := transfer.LineProblem{Line: one.line, Kind: "organization", Errors: e.Faults}
	if len(p.Errors) == 0 {
		p.Errors.Add(map[bool]string{true: "slug", false: "line"}[e.Code == CodeDuplicate], e.Code, "%s", e.Message)
	}
	if one.Call == nil || one.Tenant.Workspace() == nil {
		m.counts.Failed++
	}
	if len(m.report.Problems) < maxCreationFaults {
		m.report.Problems = append(m.report.Problems, p)
	} else {
		m.report.More++
	}
}

// end returns the report, with an error unless all lines are organizations now.
func (m *creations) end(total int, err error) (*transfer.Report, error) {
	r, c := &m.report, m.counts
	r.Counts, r.DryRun, r.Kinds = c, m.dry, map[string]transfer.Counts{"organization": c}
	slices.SortStableFunc(r.Problems, func(a, b transfer.LineProblem) int { return a.Line - b.Line })
	if r.Problems == nil {
		r.Problems = []transfer.LineProblem{}
	}
	switch {
	case err != nil:
		e := errorOf(err)
		e = fail(e.Code, "the command ended early: of %d lines %d are organizations now; repeat it with the same file to go on: %s", total, c.Created, e.Message)
		return r, e
	case c.Failed > 0:
		return r, fail(CodeInvalid, "%d of %d lines %s", c.Failed, total, map[bool]string{true: "would be refused", false: "were refused; the others are organizations now"}[m.dry])
	case len(r.Problems) > 0:
		return r, fail(CodeFailed, "all lines are organizations now, and %d could not be written to their audit logs", len(r.Problems)+r.More)
	}
	return r, nil
}
