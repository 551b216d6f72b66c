package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tenantry/backends/store"
	"tenantry/internal/rate"
	"tenantry/operation"
	"tenantry/tenants"
)

// Organization is an organization as commands show it.
type Organization struct {
	ID            int64            `json:"id" from:"OrgID"`
	Slug          string           `json:"slug"`
	Name          string           `json:"name"`
	State         string           `json:"state"`
	Features      map[string]bool  `json:"features"`
	Settings      map[string]bool  `json:"settings"`
	Limits        map[string]int64 `json:"limits"`
	Lowered       map[string]int64 `json:"lowered,omitempty"` // limits that its administrators have lowered
	Used          *Used            `json:"used,omitempty"`    // documents, bytes and file_bytes, as their limits count them
	Providers     []string         `json:"providers"`
	RequestLimits rate.Set         `json:"request_limits,omitzero"` // its own; the others are defaults
	Backend       string           `json:"backend"`                 // that stores its documents
	OldCopy       string           `json:"old_copy,omitempty" from:"Former"`
	Move          *Moving          `json:"move,omitempty"`
	URL           string           `json:"url"`
	CreatedAt     time.Time        `json:"created_at"`
	UpdatedAt     time.Time        `json:"updated_at"`
}

// Moving is the move of an organization that is in progress.
type Moving struct {
	To    string    `json:"to"`
	Phase string    `json:"phase"`
	Began time.Time `json:"began"`
}

func (m *Moving) String() string {
	return fmt.Sprintf("%s (%s, since %s)", m.To, m.Phase, m.Began.Format(time.RFC3339))
}

// OrganizationFields are the fields of an organization that commands set.
type OrganizationFields struct {
	Name      string           `json:"name,omitempty" doc:"the <name> people read"`
	Providers []string         `json:"providers,omitzero" flag:"provider" doc:"a report provider that shared reports may use"`
	Features  map[string]bool  `json:"features,omitempty" bare:"true" write:"NAME, or NAME=false" flag:"feature" doc:"a feature to switch on, or off with <NAME=false>: teams"`
	Settings  map[string]bool  `json:"settings,omitempty" write:"NAME=true or NAME=false" flag:"setting" doc:"a setting, <NAME=true or false>: {settings}"`
	Limits    map[string]int64 `json:"limits,omitempty" write:"NAME=NUMBER" flag:"limit" doc:"a limit, <NAME=NUMBER>: {limits}; documents, bytes and file_bytes bound what it may store; 0: as in the settings"`
}

// NewOrganization is an organization to be made.
type NewOrganization struct {
	Slug    string `json:"slug" doc:"the first <label> of its host name; it cannot be changed, or used again after a deletion"`
	Backend string `json:"backend,omitempty" doc:"the <name> of the backend for its documents (default the setting store)"`
	OrganizationFields
}

// OrganizationChange changes an organization; absent fields stay as they are.
type OrganizationChange struct {
	Slug string `json:"slug" rule:"ref=organization" arg:"the organization's slug"`
	OrganizationFields
}

// Slug names an organization.
type Slug struct {
	Slug string `json:"slug" rule:"ref=organization" arg:"the organization's slug"`
}

// Deletion names an organization to delete. It may be half erased.
type Deletion struct {
	Slug string `json:"slug" arg:"the organization's slug"`
	Now  bool   `json:"now,omitempty" doc:"erase it at once, for good"`
}

// Ended names an organization that is deleted or erased.
type Ended struct {
	Slug string `json:"slug" arg:"the organization's slug"`
}

// OrganizationPage asks for the organizations after a slug.
type OrganizationPage struct {
	After string `json:"after,omitempty" doc:"begin after this <slug>"`
	Limit int    `json:"limit,omitempty" default:"100" doc:"at most <n>"`
}

// Used is what the quotas of an organization apply to.
type Used struct {
	store.Usage

	FileBytes int64 `json:"file_bytes"`
}

// Certificate says what was erased of an organization, or when it will be erased.
type Certificate struct {
	Slug         string        `json:"slug"`
	Number       int64         `json:"number"`
	State        tenants.State `json:"state"`
	Installation string        `json:"installation"`              // that erased it
	DeletedAt    *time.Time    `json:"deleted_at" from:"Deleted"` // null: an earlier version erased it
	DueAt        *time.Time    `json:"due_at" from:"Due"`         // when it will be erased; null: only by command, or erasing has begun
	BeganAt      *time.Time    `json:"began_at" from:"Began"`
	ErasedAt     *time.Time    `json:"erased_at" from:"Erased"` // null: not completely erased
	Documents    *int64        `json:"documents"`               // that it had; null: not erased yet, or not counted
	Bytes        *int64        `json:"bytes"`
	People       int64         `json:"people"`    // records of people, roles, teams, service accounts and keys
	DataKeys     int64         `json:"data_keys"` // destroyed with it
	// Places are the backends that had its documents. Overwritten are those whose files and logs contain nothing of it
	// any more.
	Places      []string `json:"places"`
	Overwritten []string `json:"overwritten"`
	Says        []string `json:"says" from:"-"`
}

func (s *Server) organizations() Group {
	const table = "id, slug, name, state, features, settings, limits, lowered=lowered?, used=used?, providers, " +
		"backend, moving to=move?, old copy on=old_copy?, url, created=created_at"
	return Group{Name: "org", Short: "Create and update organizations", Own: true, Commands: []Command{
		command(Command{
			Line: "org create --slug SLUG --name NAME", Short: "Create an organization",
			Audit: operation.AuditAlways, Begins: true, Table: table,
			Long: "Create an organization, or with --from one for each line of a file: a JSON object with slug, name and the other fields that flags set.\n" +
				"Each line follows the same rules as a command of its own. Lines that are refused, such as for a slug that is taken, are reported with\n" +
				"their numbers, and the others are created. So the same file can be given again.",
			Example: "  tenantry org create --slug acme --name \"Acme Ltd\" --feature teams --limit folder_children=2000\n" +
				"  echo '{\"slug\":\"other\",\"name\":\"Other Ltd\",\"features\":{\"teams\":true},\"limits\":{\"folder_children\":2000}}' > new.ndjson\n" +
				"  tenantry org create --from new.ndjson --dry-run",
		}, s.createOrganization),
		s.orgCreateFrom(),
		command(Command{Line: "org list", Short: "List organizations, by slug", Table: "id, slug, name, state, features, url"}, s.listOrganizations),
		command(Command{Line: "org show SLUG", Short: "Show an organization", Table: table}, s.showOrganization),
		command(Command{
			Line: "org update SLUG", Short: "Update an organization; fields without a flag stay as they are",
			Audit: operation.AuditAlways, Table: table,
			Nothing: "say what to change, with --name, --feature, --setting, --limit or --provider",
		}, s.updateOrganization),
		s.orgLimits(),
		command(Command{
			Line: "org suspend SLUG", Short: "Suspend an organization: requests to it are no longer answered, its data stays",
			Audit: operation.AuditAlways, Table: table,
		}, s.changeHandler(s.Directory.Suspend)),
		command(Command{
			Line: "org resume SLUG", Short: "Resume a suspended organization",
			Audit: operation.AuditAlways, Table: table,
		}, s.changeHandler(s.Directory.Resume)),
		s.orgRestore(),
		s.orgMove(),
		command(Command{
			Line: "org move finish", Flag: "finish", Short: "remove the copy that the move left on the old backend",
			Audit: operation.AuditAlways, Table: table,
		}, s.finishMove),
		command(Command{
			Line: "org move rollback", Flag: "rollback", Short: "undo a move that has not switched yet",
			Audit: operation.AuditAlways, Table: table,
		}, s.rollBackMove),
		command(Command{
			Line: "org delete SLUG --yes", Short: "Delete an organization; it can be restored until it is erased",
			Audit: operation.AuditAlways,
			Long: "Delete an organization: requests to it are no longer answered. For as long as trash.organizations says, by default 30 days,\n" +
				"tenantry org undelete restores it with everything it had. Then it is erased with its people, keys and documents; --now erases it at once.\n" +
				"Its data keys are destroyed first, so that encrypted values cannot be read any more, not even in backups. Then its records are removed,\n" +
				"and overwritten in files and their logs. tenantry org certificate says what was erased and when. Its slug is never used again.",
			Confirm: "%s will stop answering everybody who uses it; confirm with --yes",
			Table:   "slug, state, erased on=due_at?, erased=erased_at?",
			Example: "  tenantry org delete acme --yes\n  tenantry org undelete acme\n  tenantry org delete acme --yes --now\n  tenantry org certificate acme",
		}, s.deleteOrganization),
		command(Command{
			Line: "org undelete SLUG", Short: "Undelete an organization that has not been erased yet",
			Audit: operation.AuditAlways, Table: table,
		}, s.changeHandler(s.Directory.Undelete)),
		command(Command{
			Line: "org certificate SLUG", Short: "Show what was erased of a deleted organization, where and when",
			Table: "slug, number, state, deleted=deleted_at?, erased on=due_at?, began=began_at?, erased=erased_at?, " +
				"documents=documents?, bytes=bytes?, people=people?, data keys=data_keys?, places, overwritten, says",
		}, s.certificate),
	}}
}

func (s *Server) organization(o *tenants.Organization) Organization {
	out := viewOf[Organization](o)
	out.Backend, out.URL = o.Home(), s.BaseURL(o.Slug)
	if m := o.Move; m != nil {
		out.Move = &Moving{To: m.To, Phase: string(m.Phase), Began: timeOf(m.Began)}
	}
	return out
}

// organizationResult returns the view of the organization of the call, unless err is set.
func (s *Server) organizationResult(c *call, err error) (Organization, error) {
	if err != nil {
		return Organization{}, err
	}
	return s.organization(&c.Tenant.Org), nil
}

func (s *Server) showOrganization(ctx context.Context, c *call, _ Slug) (Organization, error) {
	out := s.organization(&c.Tenant.Org)
	used, err := c.Tenant.Workspace().Used(ctx)
	if err != nil {
		return out, err
	}
	bytes, err := s.FileBytes(ctx, c.Tenant)
	out.Used = &Used{used, bytes}
	return out, err
}

func (s *Server) createOrganization(ctx context.Context, c *call, in NewOrganization) (Organization, error) {
	var n tenants.NewOrganization
	apply(c, &n, &in)
	t, err := s.Directory.Create(ctx, n)
	if err == nil {
		c.Tenant = t
	}
	return s.organizationResult(c, slugTaken(err, in.Slug))
}

// slugTaken replaces the message of a duplicate slug.
func slugTaken(err error, slug string) error {
	return withMessage(err, CodeDuplicate,
		"the slug %q belongs or belonged to an organization, and slugs are never used twice; choose another", slug)
}

func (s *Server) listOrganizations(ctx context.Context, c *call, in OrganizationPage) ([]Organization, error) {
	limit := pageLimit(in.Limit)
	found, err := s.Directory.List(ctx, in.After, limit+1)
	out := []Organization{}
	for i := range found[:min(len(found), limit)] {
		out = append(out, s.organization(&found[i]))
	}
	if len(found) > limit {
		c.addNote("There are more; go on with --after " + found[limit-1].Slug)
	}
	return out, err
}

func (s *Server) updateOrganization(ctx context.Context, c *call, in OrganizationChange) (Organization, error) {
	var changed []string
	t, err := s.Directory.Update(ctx, in.Slug, func(o *tenants.Organization) error {
		changed = apply(c, o, &in)
		return nil
	})
	if err == nil {
		c.Tenant = t
		c.Note("changed", strings.Join(changed, ","))
	}
	return s.organizationResult(c, err)
}

// changeHandler returns the handler of a change that needs only the slug of the organization.
func (s *Server) changeHandler(
	change func(context.Context, string) error,
) func(context.Context, *call, Slug) (Organization, error) {
	return func(ctx context.Context, c *call, in Slug) (Organization, error) {
		err := change(ctx, in.Slug)
		if err == nil {
			err = s.setTenant(ctx, c, in.Slug)
		}
		return s.organizationResult(c, err)
	}
}

// deleteOrganization deletes an organization, or erases it. Its input does not refer to an organization, because an
// erasure that failed midway is repeated after the organization is no longer found.
func (s *Server) deleteOrganization(ctx context.Context, c *call, in Deletion) (Certificate, error) {
	err := s.Directory.Delete(ctx, in.Slug, s.KeepDeleted())
	if err == nil && !in.Now {
		err = s.setTenant(ctx, c, in.Slug) // for a record in its own audit log
		if err != nil {
			return Certificate{}, err
		}
		return s.certificate(ctx, c, Ended{in.Slug})
	}
	if err == nil || errors.Is(err, tenants.ErrUnknownTenant) { // also finishes an erasure that was interrupted
		var org *tenants.Organization
		var finished bool
		if org, finished, err = s.Directory.Remove(ctx, in.Slug); finished {
			err = s.Audit.Erased(ctx, s.Directory.Own(), org, c.Principal.Subject())
		}
	}
	if !errors.Is(err, tenants.ErrUnknownTenant) {
		c.Note("organization", in.Slug) // an erasure that failed is recorded too
	}
	if err != nil {
		return Certificate{}, withMessage(err, CodeNotFound, noOrganization, in.Slug)
	}
	return s.certificate(ctx, c, Ended{in.Slug})
}

// certificate returns the certificate of a deleted organization.
func (s *Server) certificate(ctx context.Context, _ *call, in Ended) (Certificate, error) {
	o, err := s.Directory.Ended(ctx, in.Slug)
	switch {
	case errors.Is(err, tenants.ErrNotDeleted):
		return Certificate{}, fail(CodeConflict, "organization %s has not been deleted, so it has no certificate; if it was erased and "+
			"came back from a backup, the certificate is in the installation's audit log, as org.erased", in.Slug)
	case err != nil:
		return Certificate{}, withMessage(err, CodeNotFound,
			"there is no deleted organization %q; tenantry org list shows all organizations", in.Slug)
	}
	e := o.Ending
	if e == nil {
		e = &tenants.Ending{Documents: -1}
	}
	out := viewOf[Certificate](e)
	out.Slug, out.Number, out.State, out.Installation = o.Slug, o.OrgID, o.State, s.Directory.Installation()
	if out.BeganAt != nil {
		out.DueAt = nil
	}
	if e.Documents >= 0 && e.Began != 0 {
		out.Documents, out.Bytes = &e.Documents, &e.Bytes
	}
	switch {
	case o.Ending == nil:
		out.Says = []string{"It was erased by an earlier version, which kept no record of when, or of what."}
	case o.State == tenants.Deleted && e.Due == 0:
		out.Says = []string{fmt.Sprintf("Nothing has been erased yet. "+
			"tenantry org delete %[1]s --yes --now erases it; tenantry org undelete %[1]s brings it back.", o.Slug)}
	case o.State == tenants.Deleted:
		out.Says = []string{fmt.Sprintf("Nothing has been erased yet. "+
			"Until it is due, tenantry org undelete %s brings it back.", o.Slug)}
	case e.Erased == 0:
		out.Says = []string{fmt.Sprintf("It is being erased. The rest is erased within the hour, "+
			"or by tenantry org delete %s --yes.", o.Slug)}
	default:
		out.Says = []string{
			"What remains: its slug, its number, this certificate, and the installation's audit log. " +
				"tenantry audit --verify shows whether the log was changed.",
			"The bytes of its files were removed from where the installation keeps files.",
			"Backups made before keep what they hold. " +
				"Encrypted values in them cannot be read without a backup of the control data and the keyring.",
		}
		for _, place := range e.Places {
			if !slices.Contains(e.Overwritten, place) {
				out.Says = append(out.Says, fmt.Sprintf("Traces may remain on backend %s: "+
					"a database server overwrites deleted data when it needs the room, "+
					"and a file that was missing may turn up again.", place))
			}
		}
	}
	return out, nil
}
