package control

import (
	"context"
	"fmt"
	"time"

	"tenantry/modules/audit"
	"tenantry/tenants"
	"tenantry/tenants/identity"
)

// AuditRecord is an entry of an organization's audit log.
type AuditRecord struct {
	At        time.Time         `json:"at" from:"CreatedAt"`
	Operation string            `json:"operation"`
	Subject   string            `json:"subject"`
	Account   string            `json:"account,omitempty"`               // the service account of a key
	Address   string            `json:"address,omitempty" from:"Remote"` // where the caller was; none of a command
	Outcome   string            `json:"outcome"`                         // ok, failed or denied
	Code      int               `json:"code,omitempty"`
	RequestID string            `json:"request_id,omitempty"`
	Facts     map[string]string `json:"facts"`
}

// Installation names the installation that the commands work on.
type Installation struct {
	Identity string `json:"identity"` // which no other installation has
}

// Verdict is what a Finding comes to.
type Verdict string

// The verdicts. What is Wrong keeps something from working, a Warning will, or may.
const (
	Good    Verdict = "ok"
	Warning Verdict = "warning"
	Wrong   Verdict = "wrong"
)

// Finding is one thing that was looked at.
type Finding struct {
	What    string  `json:"what"`
	Verdict Verdict `json:"verdict"`
	Says    string  `json:"says"`
	Advice  string  `json:"advice,omitempty"` // what to do about it
}

// Cells returns what a table shows of a field.
func (f Finding) Cells(field string, shown any) []any {
	if field == "says" && f.Advice != "" {
		return []any{f.Says + "; " + f.Advice}
	}
	return []any{shown}
}

// Examined is what came of opening organizations one after another.
type Examined struct {
	Items         []Finding // of those with something to mend
	Organizations int
	Documents     int64
	Next          string // the last one; empty: there is none left
}

// Examination says what is looked at.
type Examination struct {
	Quick bool `json:"quick,omitempty" doc:"do not read the data of the organizations"`
}

// Log names an audit log.
type Log struct {
	Org string `json:"org,omitempty" doc:"the <slug> of the organization (default the installation itself)"`
}

// LogPage asks for a part of one.
type LogPage struct {
	Log
	Limit  int `json:"limit,omitempty" default:"100" doc:"at most <n>"`
	Offset int `json:"offset,omitempty" doc:"leave out the first <n>"`
}

// enterLog makes the organization whose log is meant, or the installation, the call's.
func (s *Server) enterLog(ctx context.Context, c *call, in Log) error {
	if in.Org != "" {
		return s.enter(ctx, c, in.Org)
	}
	c.Tenant = s.Directory.Own()
	return nil
}

func (s *Server) auditLog(ctx context.Context, c *call, in LogPage) ([]AuditRecord, error) {
	if err := s.enterLog(ctx, c, in.Log); err != nil {
		return nil, err
	}
	read := func(ctx context.Context, t *tenants.Tenant, p identity.Page) ([]audit.Record, int64, error) {
		found, err := s.Audit.Recent(ctx, t.Workspace(), p.Limit+1, p.Offset) // one more tells whether there are others
		return found[:min(p.Limit, len(found))], int64(p.Offset + len(found)), err
	}
	return list[AuditRecord](read)(ctx, c, Page{Limit: in.Limit, Offset: in.Offset})
}

// verifyAudit compares all of a log with its seals. What differs is an error beside what was found.
func (s *Server) verifyAudit(ctx context.Context, c *call, in Log) (all audit.Verification, err error) {
	if err := s.enterLog(ctx, c, in); err != nil {
		return all, err
	}
	all.Faults = []audit.Fault{}
	for after := int64(0); ; {
		some, err := s.Seals.Verify(ctx, c.Tenant, after)
		if err != nil {
			return all, err
		}
		all.Add(some)
		if some.Next == nil {
			break
		}
		after = *some.Next
		c.Progress(Progress{Step: "comparing", Done: int64(all.Records)})
	}
	if !all.Intact {
		err = fail(CodeFailed, "the audit log has been tampered with: %d seals do not match", len(all.Faults))
	}
	return all, err
}

// others are the commands that are in no group.
func (s *Server) others() Group {
	return Group{Commands: []Command{
		s.importCommand(), s.exportCommand(),
		command(Command{
			Line: "audit", Short: "Show the audit log of an organization or of the installation, the latest first",
			Long: "Show the audit log of an organization, or without --org that of the installation, the latest first: who did what, to which record, from which\n" +
				"address, and how it ended. Subjects are key:ID, user:NUMBER, anonymous, or the command line. The installation's tells what was done to\n" +
				"organizations as a whole and to the keyring, by which operator.",
			Example: "  tenantry audit --org acme\n  tenantry audit\n  tenantry audit --verify",
			Table:   "at, operation, subject, account, address, outcome, facts",
		}, s.auditLog),
		command(Command{
			Line: "audit verify", Flag: "verify", Short: "compare the log with its hourly seals", Table: "intact, records, from=from?, until=until?, unsealed, faults=faults?",
		}, s.verifyAudit),
		command(Command{
			Line: "init", Short: "Make an installation where there is none", Begins: true, Table: "installation=identity",
			Long: "Make an installation where there is none: its control data and its keyring. Where there is one nothing is changed, so that the\n" +
				"command may be repeated, as before every start of several gateways. What has a keyring without its control data, or these without\n" +
				"it, is no new installation: something was lost, or is not mounted.",
		}, func(context.Context, *call, struct{}) (Installation, error) {
			return Installation{s.Directory.Installation()}, nil
		}),
		command(Command{
			Line: "doctor", Short: "Look at everything the gateway depends on, and say what to mend",
			Long: "Look at the settings, the keyring, every backend with its indexes, Redis, organizations that are being moved, and\n" +
				"whether the data of each organization is whole: that reads all of it, and --quick leaves it out.\n" +
				"It changes nothing, and fails where something is wrong.",
			Table: "what, verdict, says",
		}, s.examine),
	}}
}

// examine looks at everything. What is wrong is an error beside the findings.
func (s *Server) examine(ctx context.Context, c *call, in Examination) ([]Finding, error) {
	found := s.Examine(ctx)
	if !in.Quick {
		found = append(found, s.examineEach(ctx, c)...)
	}
	wrong := 0
	for _, f := range found {
		if f.Verdict == Wrong {
			wrong++
		}
	}
	if err := ctx.Err(); err != nil || wrong == 0 {
		return found, err
	}
	return found, fmt.Errorf("doctor looked at %d things; wrong: %d", len(found), wrong)
}

// examineEach opens organizations one after another, and looks whether their data is whole.
func (s *Server) examineEach(ctx context.Context, c *call) (found []Finding) {
	organizations, documents := 0, int64(0)
	for after := ""; ctx.Err() == nil; {
		some := s.ExamineEach(ctx, after)
		organizations, documents, found = organizations+some.Organizations, documents+some.Documents, append(found, some.Items...)
		if after = some.Next; after == "" {
			break
		}
		c.Progress(Progress{Note: fmt.Sprintf("read organizations up to %s: %d, with something to mend: %d", after, organizations, len(found))})
	}
	if len(found) == 0 {
		found = []Finding{{What: "data", Verdict: Good, Says: fmt.Sprintf("every organization (%d) is whole and opens with the keyring; documents: %d", organizations, documents)}}
	}
	return found
}
