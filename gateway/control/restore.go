package control

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"tenantry/backends/store"
	"tenantry/modules/imports/bundle"
	"tenantry/operation"
	"tenantry/tenants"
)

// Whose keys, people and shares an organization has after a restoration.
const (
	AccessNow  = "now"  // those that it has now
	AccessThen = "then" // those of the backup
)

// OrganizationRestore asks for an organization as it was in a backup.
type OrganizationRestore struct {
	Slug   string `json:"slug" arg:"the organization's slug, as it is in the backup"`
	From   string `json:"from" doc:"the <place> of backups: a folder, or s3://bucket/prefix on the server of backup.s3"`
	Backup string `json:"backup,omitempty" doc:"the <backup> in it, by its name (default: the newest)"`
	At     string `json:"at,omitempty" doc:"the <second> of the state, such as 2026-11-27T15:45:07Z: the backup is completed from the log of changes"`
	As     string `json:"as,omitempty" doc:"make a new organization with this <slug> of it, beside the living one"`
	Access string `json:"access,omitempty" rule:"enum=now|then" without:"as" doc:"<whose> keys, people and share links it has afterwards: now, those of now (default), or then, those of the backup (default, and all there is, if it was erased)"`
	DryRun bool   `json:"dry_run,omitempty" without:"as" doc:"only say what would be changed, and which keys, people and links would work again"`
	Yes    bool   `json:"yes,omitempty" without:"as" doc:"confirm that what was added since is removed for good, and what was changed is changed back"`
}

// RestoredCounts are numbers of records.
type RestoredCounts struct {
	Returned int `json:"returned"` // that are missing now
	Changed  int `json:"changed"`  // back
	Removed  int `json:"removed"`  // that the backup lacks
}

// Revival is something that works either now or with the access of the backup.
type Revival struct {
	Kind  string `json:"kind"` // key, user, service account, role, share, report
	Name  string `json:"name"`
	Since string `json:"since"` // why it does not work now, or not then
}

// OrganizationRestored says what was restored, or would be.
type OrganizationRestored struct {
	Slug       string    `json:"slug"`
	Backup     string    `json:"backup"`
	BackedUpAt time.Time `json:"backed_up_at"`
	// At is the second of the state, if it is later than the backup.
	At    *time.Time `json:"at,omitempty"`
	Files bool       `json:"files"` // the backup has the bytes of files
	// Erased: there was no such organization any more.
	Erased bool   `json:"erased,omitempty"`
	Access string `json:"access,omitempty"`
	// Revived works again with the access of then. It is left out when an organization was restored with that of now.
	Revived []Revival `json:"revived,omitempty"`
	// Stopped works now, and not with the access of then. It is left out as Revived is.
	Stopped []Revival `json:"stopped,omitempty"`
	// Records and Kinds count what was found when it began. DocumentsBefore is how many documents there were when they
	// were replaced.
	Records RestoredCounts            `json:"records"`
	Kinds   map[string]RestoredCounts `json:"kinds,omitempty"`

	DocumentsBefore int `json:"documents_before,omitempty"`
	// The first records of each sort, by kind, identifier and name.
	Returned []string `json:"returned,omitempty"`
	Changed  []string `json:"changed,omitempty"`
	Removed  []string `json:"removed,omitempty"`
	// FilesWithout is the number of contents of files that the backup lacks.
	FilesWithout int `json:"files_without,omitempty"`
	// Sums describe the documents that were copied from the backup.
	Sums        []store.Sum `json:"sums,omitempty"`
	HeldSeconds float64     `json:"held_seconds,omitempty"` // how long writes waited
	// Report is that of the import that made a new organization.
	Report *bundle.Report `json:"report,omitempty"`
}

func (s *Server) orgRestore() Command {
	return command(Command{
		Line: "org restore SLUG --from PLACE", Short: "Restore one organization from a backup while everybody is served",
		Audit: operation.AuditAlways,
		Long: "Restore one organization from a backup of this installation, while it and all others are served. Its records are copied\n" +
			"beside those of now and replace them in one step: changed ones are changed back, purged ones return with the bytes of\n" +
			"their files, and those created since are removed for good. So it shows first what would be changed and asks for --yes.\n" +
			"Keys, passwords, people and share links stay as they are now, unless --access then makes them those of the backup;\n" +
			"--dry-run lists which of them would work again. The audit log goes on. An organization that was erased comes back with\n" +
			"all of these, and with its audit log. Nobody stays signed in by a session of then.\n" +
			"With --as the backup becomes a new organization beside the living one, to look and compare; it has no keys, passwords,\n" +
			"share links or history. Nothing of the living one is changed, so --yes and --dry-run do not go with it.\n" +
			"With --at it is the state of any second that the log of changes has (the setting backup.log).\n" +
			"After an interruption the organization is what it was, or restored: repeat the command to go on, or undo what was begun\n" +
			"with tenantry org move SLUG --rollback. With --as, use another slug: tenantry org delete SLUG --yes --now removes what\n" +
			"there is of the first one.",
		Example: "  tenantry org restore acme --from /backup/tenantry --at 2026-11-27T15:45:07Z --dry-run\n" +
			"  tenantry org restore acme --from /backup/tenantry --dry-run\n" +
			"  tenantry org restore acme --from /backup/tenantry --backup 20261127T154500Z --yes\n" +
			"  tenantry org restore acme --from /backup/tenantry --access then --yes\n" +
			"  tenantry org restore acme --from /backup/tenantry --as acme-then",
		Hint: "repeat the command to go on; with --as, remove what there is (tenantry org delete SLUG --yes --now) and name another slug",
	}, s.restoreOrganization)
}

func (s *Server) restoreOrganization(ctx context.Context, c *call, in OrganizationRestore) (*OrganizationRestored, error) {
	if err := checkPlace("--from", in.From); err != nil {
		return nil, err
	}
	unconfirmed := in.As == "" && !in.Yes && !in.DryRun
	in.DryRun = in.DryRun || unconfirmed
	found, err := s.RestoreOrganization(ctx, in, c.Progress)
	if found == nil || found.Backup == "" {
		return nil, err
	}
	r := &found.Records
	c.Note("organization", found.Slug)
	c.Note("backup", found.Backup)
	if in.DryRun {
		c.Note("dry_run", "true")
	}
	then := found.BackedUpAt
	if found.At != nil {
		then = *found.At
		c.Note("at", then.Format(time.RFC3339))
	}
	if in.As != "" {
		c.Note("from", in.Slug)
	}
	if found.Access != "" {
		c.Note("access", found.Access)
	}
	for name, n := range map[string]int{
		"returned": r.Returned, "changed": r.Changed, "removed": r.Removed, "documents_before": found.DocumentsBefore,
	} {
		if !in.DryRun {
			c.Note(name, strconv.Itoa(n))
		}
	}
	s.Log.InfoContext(ctx, "a restoration of an organization ended",
		"organization", in.Slug, "into", found.Slug, "backup", found.Backup, "dry_run", in.DryRun, "ok", err == nil)
	if err == nil && !found.Files {
		c.addNote("Note: the backup has no bytes of files; those that are not here any more stay missing.")
	}
	if err == nil && unconfirmed && r.Returned+r.Changed+r.Removed == 0 && len(found.Revived)+len(found.Stopped) == 0 {
		c.addNote("No record of " + found.Slug + " has changed since " + then.Format(time.RFC3339) + "; nothing to restore.")
		return found, s.setTenant(ctx, c, found.Slug)
	}
	if err == nil && unconfirmed {
		err = fail(CodeInvalid, "nothing was changed yet: %d records would return, %d would be changed back, and %d would be "+
			"removed for good; confirm with --yes%s", r.Returned, r.Changed, r.Removed, found.access(". With --access then ", "would "))
	}
	if err == nil && in.DryRun {
		c.addNote(fmt.Sprintf("Nothing was changed. This compares %s with what it was at %s, in the backup %s.",
			found.Slug, then.Format(time.RFC3339), found.Backup))
	}
	switch {
	case err != nil:
	case in.As != "":
		c.addNote(fmt.Sprintf("%s is what %s was at %s. Its people choose passwords by the links of "+
			"tenantry user update USER --org %[1]s --link", found.Slug, in.Slug, then.Format(time.RFC3339)))
	case in.DryRun && found.Access == AccessNow:
		c.addNote(found.access("Access stays as it is now. With --access then ", "would "))
	case in.DryRun:
		c.addNote(found.access("With the access of the backup ", "would "))
	case found.Access == AccessThen:
		c.addNote(found.access("With the access of the backup ", ""))
	}
	if err == nil && (!in.DryRun || !found.Erased) {
		if err = s.setTenant(ctx, c, found.Slug); err == nil && c.Tenant.Org.State != tenants.Active {
			c.addNote(fmt.Sprintf("%s is %s, and stays so.", found.Slug, c.Tenant.Org.State))
		}
	}
	return found, err
}

// maxNamed bounds the names in a message.
const maxNamed = 10

// access says what works again and no more with the access of the backup, behind a beginning; empty if nothing does.
func (r *OrganizationRestored) access(begins, would string) string {
	var says []string
	for _, part := range []struct {
		list  []Revival
		verbs string
	}{{r.Revived, would + "work again"}, {r.Stopped, would + "stop working"}} {
		if len(part.list) == 0 {
			continue
		}
		names := make([]string, 0, maxNamed)
		for i := range part.list[:min(len(part.list), maxNamed)] {
			one := &part.list[i]
			names = append(names, fmt.Sprintf("%s %s (%s)", one.Kind, one.Name, one.Since))
		}
		if more := len(part.list) - len(names); more > 0 {
			names = append(names, fmt.Sprintf("and %d more", more))
		}
		says = append(says, fmt.Sprintf("these %s: %s", part.verbs, strings.Join(names, ", ")))
	}
	if len(says) == 0 {
		return ""
	}
	return begins + strings.Join(says, "; ") + "."
}
