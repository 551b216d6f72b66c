package control

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"tenantry/modules/imports/bundle"
	"tenantry/operation"
)

// OrganizationRestore asks for an organization as it was in a backup.
type OrganizationRestore struct {
	Slug   string `json:"slug" arg:"the organization's slug, as it is in the backup"`
	From   string `json:"from" doc:"the <place> of backups: a folder, or s3://bucket/prefix on the server of backup.s3"`
	Backup string `json:"backup,omitempty" doc:"the <name> of a backup in it (default: the newest)"`
	At     string `json:"at,omitempty" doc:"the <second> of the state, such as 2026-11-27T15:45:07Z: the backup is completed from the log of changes"`
	As     string `json:"as,omitempty" doc:"make a new organization with this <slug> of it, beside the living one"`
	DryRun bool   `json:"dry_run,omitempty" without:"as" doc:"only say what would be changed"`
	Yes    bool   `json:"yes,omitempty" without:"as" doc:"confirm that what was added since is removed for good, and what was changed is changed back"`
}

// OrganizationRestored says what was restored.
type OrganizationRestored struct {
	Slug       string        `json:"slug"`
	Backup     string        `json:"backup"`
	BackedUpAt time.Time     `json:"backed_up_at"`
	At         *time.Time    `json:"at,omitempty"` // the second of the state, if it is later than the backup
	Files      bool          `json:"files"`        // the backup has the bytes of files
	Report     bundle.Report `json:"report"`
}

func (s *Server) orgRestore() Command {
	return command(Command{
		Line: "org restore SLUG --from PLACE", Short: "Restore one organization from a backup while everybody is served",
		Audit: operation.AuditAlways,
		Long: "Restore one organization from a backup of this installation, while it and all others are served. Records that were changed\n" +
			"since are changed back, purged ones return with the bytes of their files, and those created since are removed for good, so\n" +
			"it shows first what would be changed and asks for --yes. Keys, passwords and the audit log stay as they are now; people who\n" +
			"were deactivated since are active again, and limits are those of the backup.\n" +
			"With --as the backup becomes a new organization beside the living one, to look and compare; it has no keys and passwords.\n" +
			"With --at it is the state of any second that the log of changes has (the setting backup.log).\n" +
			"After an interruption repeat the command, with --as under another slug: tenantry org delete SLUG --yes --now removes what\n" +
			"there is of the first one.",
		Example: "  tenantry org restore acme --from /backup/tenantry --at 2026-11-27T15:45:07Z --dry-run\n" +
			"  tenantry org restore acme --from /backup/tenantry --dry-run\n" +
			"  tenantry org restore acme --from /backup/tenantry --backup 20261127T154500Z --yes\n" +
			"  tenantry org restore acme --from /backup/tenantry --as acme-then",
		Hint: "repeat the command to go on",
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
	r := &found.Report
	c.Note("backup", found.Backup)
	then := found.BackedUpAt
	if found.At != nil {
		then = *found.At
		c.Note("at", then.Format(time.RFC3339))
	}
	if in.As != "" {
		c.Note("from", in.Slug)
	}
	for name, n := range map[string]int{"created": r.Created, "updated": r.Updated, "removed": r.Removed} {
		if !in.DryRun {
			c.Note(name, strconv.Itoa(n))
		}
	}
	s.Log.InfoContext(ctx, "a restoration of an organization ended",
		"organization", in.Slug, "into", found.Slug, "backup", found.Backup, "dry_run", in.DryRun, "ok", err == nil)
	if err == nil && !found.Files {
		c.addNote("Note: the backup has no bytes of files; those that are not here any more stay missing.")
	}
	if err == nil && unconfirmed && r.Created+r.Updated+r.Removed == 0 {
		c.addNote(found.Slug + " is what it was then: there is nothing to restore.")
		return found, s.setTenant(ctx, c, found.Slug)
	}
	if err == nil && unconfirmed {
		err = fail(CodeInvalid, "nothing was changed yet: %d records would return, %d would be changed back, and %d would be "+
			"removed for good; confirm with --yes", r.Created, r.Updated, r.Removed)
	}
	if err == nil && in.As != "" {
		c.addNote(fmt.Sprintf("%s is what %s was at %s. Its people choose passwords by the links of "+
			"tenantry user update USER --org %[1]s --link", found.Slug, in.Slug, then.Format(time.RFC3339)))
	}
	if err == nil {
		err = s.setTenant(ctx, c, found.Slug)
	}
	return found, err
}
