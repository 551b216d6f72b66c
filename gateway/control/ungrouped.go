package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"tenantry/backends/store"
	"tenantry/modules/audit"
	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/identity"
)

// AuditRecord is a record of an audit log as commands show it.
type AuditRecord struct {
	At        time.Time         `json:"at" from:"CreatedAt"`
	Operation string            `json:"operation"`
	Subject   string            `json:"subject"`
	Account   string            `json:"account,omitempty"`               // the service account of a key
	Address   string            `json:"address,omitempty" from:"Remote"` // of the caller; empty for a command
	Outcome   string            `json:"outcome"`                         // ok, failed or denied
	Code      int               `json:"code,omitempty"`
	RequestID string            `json:"request_id,omitempty"`
	Facts     map[string]string `json:"facts"`
}

// Installation identifies the installation that commands work on.
type Installation struct {
	Identity string `json:"identity"` // unique among installations
}

// Verdict is the result of a Finding.
type Verdict string

// Verdicts. Wrong: something does not work. Warning: something will not work later, or may not.
const (
	Good    Verdict = "ok"
	Warning Verdict = "warning"
	Wrong   Verdict = "wrong"
)

// Finding is the result of one check of doctor.
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

// Examined is the result of examining organizations one after another.
type Examined struct {
	Items         []Finding // of organizations with faults
	Organizations int
	Documents     int64
	Next          string // slug of the last one examined; empty: there are no more
}

// Examination says what doctor checks.
type Examination struct {
	Quick bool `json:"quick,omitempty" doc:"do not read the data of the organizations"`
}

// Log names an audit log.
type Log struct {
	Org string `json:"org,omitempty" doc:"the <slug> of the organization (default the installation itself)"`
}

// LogPage asks for a page of an audit log.
type LogPage struct {
	Log
	Limit  int `json:"limit,omitempty" default:"100" doc:"at most <n>"`
	Offset int `json:"offset,omitempty" doc:"leave out the first <n>"`
}

// setLogTenant sets the Tenant of the call to the organization whose log is asked for, or to the installation.
func (s *Server) setLogTenant(ctx context.Context, c *call, in Log) error {
	if in.Org != "" {
		return s.setTenant(ctx, c, in.Org)
	}
	c.Tenant = s.Directory.Own()
	return nil
}

func (s *Server) auditLog(ctx context.Context, c *call, in LogPage) ([]AuditRecord, error) {
	if err := s.setLogTenant(ctx, c, in.Log); err != nil {
		return nil, err
	}
	read := func(ctx context.Context, t *tenants.Tenant, p identity.Page) ([]audit.Record, int64, error) {
		found, err := s.Audit.Recent(ctx, t.Workspace(), p.Limit+1, p.Offset) // one more shows whether there are others
		return found[:min(p.Limit, len(found))], int64(p.Offset + len(found)), err
	}
	return list[AuditRecord](read)(ctx, c, Page{Limit: in.Limit, Offset: in.Offset})
}

// verifyAudit compares an audit log with its seals. If they differ, it returns both the findings and an error.
func (s *Server) verifyAudit(ctx context.Context, c *call, in Log) (all audit.Verification, err error) {
	if err := s.setLogTenant(ctx, c, in); err != nil {
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

// AuditHead is the head of an audit log as commands show it. All fields but Keys are empty until there is one.
type AuditHead struct {
	Size int64    `json:"size"`
	Root string   `json:"root"`
	At   string   `json:"at"`
	Keys []string `json:"keys"` // that verify it, the newest first
	Head string   `json:"head"` // a signed note
}

// headOf returns the head of a log.
func (s *Server) headOf(ctx context.Context, t *tenants.Tenant) (AuditHead, error) {
	head, err := s.Heads.Head(ctx, t)
	out := AuditHead{Size: head.Size, Keys: head.Keys}
	if head.Head != nil {
		out.Root, out.At, out.Head = *head.Root, *head.At, *head.Head
	}
	return out, err
}

// auditHead brings the head of a log up to date and returns it.
func (s *Server) auditHead(ctx context.Context, c *call, in Log) (AuditHead, error) {
	if err := s.setLogTenant(ctx, c, in); err != nil {
		return AuditHead{}, err
	}
	if err := s.Heads.Advance(ctx, c.Tenant); err != nil && !errors.Is(err, store.ErrConflict) {
		return AuditHead{}, err
	}
	head, err := s.headOf(ctx, c.Tenant)
	if err == nil && head.Head == "" {
		err = fail(CodeConflict, "this log has no head yet: its first records are signed %s after they were made; try again then",
			audit.HeadGrace)
	}
	return head, err
}

// HeadToCompare names an audit log and an earlier head of it.
type HeadToCompare struct {
	Log
	Against string `json:"against,omitempty" read:"text" doc:"an earlier head, in <file>: the head itself, or the JSON that has it"`
}

// compareAudit compares an audit log with its tree and an earlier head. If they differ, it returns both the findings and
// an error.
func (s *Server) compareAudit(ctx context.Context, c *call, in HeadToCompare) (audit.Comparison, error) {
	if err := s.setLogTenant(ctx, c, in.Log); err != nil {
		return audit.Comparison{}, err
	}
	head, err := headIn(in.Against)
	if err != nil {
		return audit.Comparison{}, err
	}
	out, err := s.Heads.Compare(ctx, c.Tenant, head, func(records int64) {
		c.Progress(Progress{Step: "comparing", Done: records})
	})
	switch {
	case audit.IsForeignHead(err):
		err = fail(CodeInvalid, "--against: this is not a head of this log: it belongs to another log, or was signed with keys that "+
			"this installation does not have (a restored backup lacks those that tenantry audit rotate-key made since)")
	case err == nil && out.Replaced():
		err = fail(CodeFailed, "the audit log does not continue the earlier head: %s. The log was cut off or replaced, or a "+
			"backup was restored (then tenantry audit shows restore, or org.restore of an organization that had been erased, and heads "+
			"from before that backup still fit)", out.What)
	case err == nil && out.What != "":
		err = fail(CodeFailed, "the audit log has been tampered with: %s", out.What)
	case err == nil && !out.Intact:
		first := out.Faults[0]
		if first.What == "inserted" {
			return out, fail(CodeFailed, "the audit log has been tampered with: %d records were inserted into it past the gateway, "+
				"among them %s", out.Inserted, first.Record)
		}
		err = fail(CodeFailed, "the audit log has been tampered with: record %s (leaf %d) was %s", first.Record, first.Index,
			first.What)
	}
	return out, err
}

// headIn returns the head in a text: the text itself, or the member head of the JSON of a command or an answer.
func headIn(text string) (string, error) {
	if !strings.HasPrefix(strings.TrimSpace(text), "{") {
		return text, nil
	}
	var kept struct {
		Head string `json:"head"`
		Data struct {
			Head string `json:"head"`
		} `json:"data"`
	}
	err := json.Unmarshal([]byte(text), &kept)
	head := cmp.Or(kept.Head, kept.Data.Head)
	if err != nil || head == "" {
		return "", fail(CodeInvalid, "--against: the file has no head")
	}
	return head, nil
}

// TreeRestart names an audit log, and says why its tree is made anew.
type TreeRestart struct {
	Log
	Reason string `json:"reason" rule:"required max=200" doc:"why, as <text> for the audit log"`
}

// restartTree makes the tree of a log anew and returns its head.
func (s *Server) restartTree(ctx context.Context, c *call, in TreeRestart) (AuditHead, error) {
	if err := s.setLogTenant(ctx, c, in.Log); err != nil {
		return AuditHead{}, err
	}
	if err := s.Heads.Restart(ctx, c.Tenant); err != nil {
		return AuditHead{}, err
	}
	c.Note("reason", in.Reason)
	return s.headOf(ctx, c.Tenant)
}

// HeadKeys are the keys that verify the heads of an audit log, the newest first.
type HeadKeys struct {
	Keys []string `json:"keys"`
}

// rotateHeadKey makes a new key for heads, and returns those that verify heads of the installation's own log.
func (s *Server) rotateHeadKey(ctx context.Context, _ *call, _ struct{}) (HeadKeys, error) {
	if err := s.Heads.Rotate(ctx); err != nil {
		return HeadKeys{}, err
	}
	head, err := s.Heads.Head(ctx, s.Directory.Own())
	return HeadKeys{head.Keys}, err
}

// ungrouped returns the commands without a group.
func (s *Server) ungrouped() Group {
	return Group{Commands: []Command{
		s.importCommand(), s.exportCommand(),
		command(Command{
			Line: "audit", Short: "Show the audit log of an organization or of the installation, latest first",
			Long: "Show the audit log of an organization, or without --org that of the installation, latest first: who did " +
				"what to which record, from which\n" +
				"address, and with which outcome. Subjects are key:ID, user:NUMBER, anonymous, or the command line. The log of the installation has changes\n" +
				"to whole organizations and to the keyring, with the operator who made them.",
			Example: "  tenantry audit --org acme\n  tenantry audit\n  tenantry audit --verify",
			Table:   "at, operation, subject, account, address, outcome, facts",
		}, s.auditLog),
		command(Command{
			Line: "audit head", Short: "Show the head of an audit log, to be kept outside the installation",
			Long: "Show the head of the audit log of an organization, or without --org that of the installation: the number of its records and the root of\n" +
				"the Merkle tree over them, signed. Keep heads where nobody who can change the data can change them: tenantry audit verify --against FILE\n" +
				"says whether the log still continues one. Records of the last seconds are not in it.",
			Example: "  tenantry audit head --org acme --output json > acme-head.json",
			Table:   "size, root?, at?, keys, head?",
		}, s.auditHead),
		command(Command{
			Line: "audit verify", Name: "audit.compare", Short: "Compare an audit log with its tree, and with a head kept outside",
			Long: "Compare every record of an audit log with its leaf, the leaves with the last head, and with --against the log with an earlier head, as\n" +
				"tenantry audit head or /api/audit/head answered it. It fails if something differs: records were changed, removed or inserted, the log was\n" +
				"cut off, its tree was made anew, or a backup was restored that is older than the head.",
			Example: "  tenantry audit verify --org acme --against acme-head.json",
			Table:   "intact, records, inserted?, size, earlier?, what?, faults=faults?",
		}, s.compareAudit),
		command(Command{
			Line: "audit restart --reason TEXT", Audit: operation.AuditAlways,
			Short: "Make the tree of an audit log anew, after it was damaged",
			Long: "Make the tree of an audit log anew, from the records that there are. It is for a tree that was damaged, or whose key is gone, so that no\n" +
				"further head is signed. Earlier heads fit the new tree only if the records are still those of then. Find out first why: the command hides what happened to the old one.",
			Example: "  tenantry audit restart --org acme --reason \"restored the control data of May\"",
			Table:   "size, root?, at?, keys",
		}, s.restartTree),
		command(Command{
			Line: "audit rotate-key", Name: "audit.rotate", Audit: operation.AuditAlways,
			Short: "Make a new key for the heads of all audit logs",
			Long: "Make a new key for the heads of all audit logs of the installation. Heads are signed with the new key and the one before it from then\n" +
				"on, so whoever verifies them outside has until the next rotation to take the new key from tenantry audit head.",
			Table: "keys",
		}, s.rotateHeadKey),
		command(Command{
			Line: "audit --verify", Name: "audit.verify", Flag: "verify", Short: "compare the log with its hourly seals",
			Table: "intact, records, from=from?, until=until?, unsealed, faults=faults?",
		}, s.verifyAudit),
		command(Command{
			Line: "init", Short: "Create an installation if there is none", Begins: true, Table: "installation=identity",
			Long: "Create an installation if there is none: its control data and its keyring. If there is one, nothing is changed, so the command can be\n" +
				"repeated, such as before each start of several gateways. A keyring without its control data, or control data without their keyring,\n" +
				"is an error: something was lost, or is not mounted.",
		}, func(context.Context, *call, struct{}) (Installation, error) {
			return Installation{s.Directory.Installation()}, nil
		}),
		command(Command{
			Line: "doctor", Short: "Check everything the gateway depends on, and say what to repair",
			Long: "Check the settings, the keyring, every backend with its indexes, Redis, organizations that are being moved, and\n" +
				"whether the data of each organization is whole: that reads all of it, and --quick leaves it out.\n" +
				"It changes nothing, and fails if something is wrong.",
			Example: "  tenantry doctor\n" +
				"  tenantry doctor --quick --config /etc/tenantry/settings.yaml",
			Table: "what, verdict, says",
		}, s.examine),
	}}
}

// examine runs all checks. If something is wrong, it returns both the findings and an error.
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
	return found, fmt.Errorf("doctor made %d checks; wrong: %d", len(found), wrong)
}

// examineEach checks the data of all organizations, a page at a time.
func (s *Server) examineEach(ctx context.Context, c *call) (found []Finding) {
	organizations, documents := 0, int64(0)
	for after := ""; ctx.Err() == nil; {
		page := s.ExamineEach(ctx, after)
		organizations, documents = organizations+page.Organizations, documents+page.Documents
		found = append(found, page.Items...)
		if after = page.Next; after == "" {
			break
		}
		c.Progress(Progress{Note: fmt.Sprintf("read organizations up to %s: %d, with faults: %d",
			after, organizations, len(found))})
	}
	if len(found) == 0 {
		says := fmt.Sprintf("every organization (%d) is whole and opens with the keyring; documents: %d",
			organizations, documents)
		found = []Finding{{What: "data", Verdict: Good, Says: says}}
	}
	return found
}
