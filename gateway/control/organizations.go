package control

import (
	"cmp"
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
	Lowered       map[string]int64 `json:"lowered,omitempty"` // limits as its administrators have lowered them
	Used          *store.Usage     `json:"used,omitempty"`    // what the limits documents and bytes count
	Providers     []string         `json:"providers"`
	RequestLimits rate.Set         `json:"request_limits,omitzero"` // those that are its own
	Backend       string           `json:"backend"`                 // where its documents are
	OldCopy       string           `json:"old_copy,omitempty" from:"Former"`
	Move          *Moving          `json:"move,omitempty"`
	URL           string           `json:"url"`
	CreatedAt     time.Time        `json:"created_at"`
	UpdatedAt     time.Time        `json:"updated_at"`
}

// Moving is an organization's move to another backend while it goes on.
type Moving struct {
	To    string    `json:"to"`
	Phase string    `json:"phase"`
	Began time.Time `json:"began"`
}

func (m *Moving) String() string {
	return fmt.Sprintf("%s (%s, since %s)", m.To, m.Phase, m.Began.Format(time.RFC3339))
}

// OrganizationFields say what an organization shall be.
type OrganizationFields struct {
	Name      string           `json:"name,omitempty" doc:"the <name> people read"`
	Providers []string         `json:"providers,omitzero" flag:"provider" doc:"a report provider that shared reports may be asked from"`
	Features  map[string]bool  `json:"features,omitempty" bare:"true" write:"NAME, or NAME=false" flag:"feature" doc:"a feature to switch on, or off with <NAME=false>: teams"`
	Settings  map[string]bool  `json:"settings,omitempty" write:"NAME=true or NAME=false" flag:"setting" doc:"a setting, <NAME=true or false>: {settings}"`
	Limits    map[string]int64 `json:"limits,omitempty" write:"NAME=NUMBER" flag:"limit" doc:"a limit, <NAME=NUMBER>: {limits}; documents and bytes are what it may store, 0 what the settings say"`
}

// NewOrganization is an organization to be made.
type NewOrganization struct {
	Slug    string `json:"slug" doc:"the first <label> of its host name; it can never be changed or used again"`
	Backend string `json:"backend,omitempty" doc:"the <name> of the backend for its documents (default the setting store)"`
	OrganizationFields
}

// OrganizationChange changes an organization; what is absent stays as it is.
type OrganizationChange struct {
	Slug string `json:"slug" rule:"ref=organization" arg:"the organization's slug"`
	OrganizationFields
}

// Slug names an organization.
type Slug struct {
	Slug string `json:"slug" rule:"ref=organization" arg:"the organization's slug"`
}

// Deletion names an organization, one that is half erased too.
type Deletion struct {
	Slug string `json:"slug" arg:"the organization's slug"`
	Now  bool   `json:"now,omitempty" doc:"erase it at once, for good"`
}

// Ended names one that is deleted or erased.
type Ended struct {
	Slug string `json:"slug" arg:"the organization's slug"`
}

// OrganizationPage asks for organizations after a slug.
type OrganizationPage struct {
	After string `json:"after,omitempty" doc:"begin after this <slug>"`
	Limit int    `json:"limit,omitempty" default:"100" doc:"at most <n>"`
}

// Certificate says what was erased of an organization, or when that is due.
type Certificate struct {
	Slug         string        `json:"slug"`
	Number       int64         `json:"number"`
	State        tenants.State `json:"state"`
	Installation string        `json:"installation"`              // which erased it
	DeletedAt    *time.Time    `json:"deleted_at" from:"Deleted"` // null: an earlier version erased it
	DueAt        *time.Time    `json:"due_at" from:"Due"`         // when it will be erased; null: by command, or it has begun
	BeganAt      *time.Time    `json:"began_at" from:"Began"`
	ErasedAt     *time.Time    `json:"erased_at" from:"Erased"` // null: not all is erased
	Documents    *int64        `json:"documents"`               // that it had; null: not erased, or they could not be counted
	Bytes        *int64        `json:"bytes"`
	People       int64         `json:"people"`    // records of people, roles, teams, service accounts and keys
	DataKeys     int64         `json:"data_keys"` // destroyed with it
	// Places are where its documents were, Overwritten the places of whose files nothing of it is left, nor in their
	// logs.
	Places      []string `json:"places"`
	Overwritten []string `json:"overwritten"`
	Says        []string `json:"says" from:"-"`
}

func (s *Server) organizations() Group {
	const table = "id, slug, name, state, features, settings, limits, lowered=lowered?, used=used?, providers, backend, moving to=move?, old copy on=old_copy?, url, created=created_at"
	return Group{Name: "org", Short: "Make and change organizations", Own: true, Commands: []Command{
		command(Command{
			Line: "org create --slug SLUG --name NAME", Short: "Make an organization", Audit: operation.AuditAlways, Begins: true, Table: table,
			Long: "Make an organization, or with --from many: a file has one on each line, a JSON object with slug, name and the other fields that flags name.\n" +
				"Each line is held to the same rules as a command of its own. Those that are refused, for a slug that is taken too, are told with\n" +
				"their numbers and the others are made, so that the same file can be given again.",
			Example: "  tenantry org create --slug acme --name \"Acme Ltd\" --feature teams --limit folder_children=2000\n" +
				"  echo '{\"slug\":\"other\",\"name\":\"Other Ltd\",\"features\":{\"teams\":true},\"limits\":{\"folder_children\":2000}}' > new.ndjson\n" +
				"  tenantry org create --from new.ndjson --dry-run",
		}, s.createOrganization),
		s.orgCreateFrom(),
		command(Command{Line: "org list", Short: "List organizations, by slug", Table: "id, slug, name, state, features, url"}, s.listOrganizations),
		command(Command{Line: "org show SLUG", Short: "Show an organization", Table: table}, s.showOrganization),
		command(Command{
			Line: "org update SLUG", Short: "Change an organization; what no flag names stays as it is", Audit: operation.AuditAlways, Table: table,
			Nothing: "say what to change, with --name, --feature, --setting, --limit or --provider",
		}, s.updateOrganization),
		s.orgLimits(),
		command(Command{Line: "org suspend SLUG", Short: "Make an organization answer nobody; its data stays", Audit: operation.AuditAlways, Table: table},
			s.changed(s.Directory.Suspend)),
		command(Command{Line: "org resume SLUG", Short: "End the suspension of an organization", Audit: operation.AuditAlways, Table: table},
			s.changed(s.Directory.Resume)),
		s.orgMove(),
		command(Command{Line: "org move finish", Flag: "finish", Short: "remove the copy that the move left on the old backend", Audit: operation.AuditAlways, Table: table},
			s.changed(s.Directory.FinishMove)),
		command(Command{Line: "org move rollback", Flag: "rollback", Short: "undo a move that has not switched yet", Audit: operation.AuditAlways, Table: table},
			s.changed(s.Directory.RollBackMove)),
		command(Command{
			Line: "org delete SLUG --yes", Short: "Delete an organization; it can be restored until it is erased", Audit: operation.AuditAlways,
			Long: "Delete an organization: it answers nobody from now on. For trash.organizations, 30 days unless it is set, tenantry org undelete brings\n" +
				"it back with everything it had. Then it is erased, with its people, keys and documents, or at once with --now: its data keys go first, so that what is\n" +
				"encrypted opens nowhere any more, in backups neither; then its records, which are overwritten in files, and what the logs of these have.\n" +
				"tenantry org certificate says what was erased and when. Its slug is never used again.",
			Confirm: "%s will stop answering everybody who uses it; confirm with --yes", Table: "slug, state, erased on=due_at?, erased=erased_at?",
			Example: "  tenantry org delete acme --yes\n  tenantry org undelete acme\n  tenantry org delete acme --yes --now\n  tenantry org certificate acme",
		}, s.deleteOrganization),
		command(Command{Line: "org undelete SLUG", Short: "Restore a deleted organization that has not been erased yet", Audit: operation.AuditAlways, Table: table},
			s.changed(s.Directory.Undelete)),
		command(Command{
			Line: "org certificate SLUG", Short: "Show what was erased of a deleted organization, where and when",
			Table: "slug, number, state, deleted=deleted_at?, erased on=due_at?, began=began_at?, erased=erased_at?, documents=documents?, bytes=bytes?, people=people?, data keys=data_keys?, places, overwritten, says",
		}, s.certificate),
	}}
}

func (s *Server) organization(o *tenants.Organization) Organization {
	out := as[Organization](o)
	out.Backend, out.URL = cmp.Or(o.Backend, store.DefaultBackend), s.BaseURL(o.Slug)
	if m := o.Move; m != nil {
		out.Move = &Moving{To: m.To, Phase: string(m.Phase), Began: when(m.Began)}
	}
	return out
}

// told shows the organization of a call that went well.
func (s *Server) told(c *call, err error) (Organization, error) {
	if err != nil {
		return Organization{}, err
	}
	return s.organization(&c.Tenant.Org), nil
}

func (s *Server) showOrganization(ctx context.Context, c *call, _ Slug) (Organization, error) {
	out := s.organization(&c.Tenant.Org)
	used, err := c.Tenant.Workspace().Used(ctx)
	out.Used = &used
	return out, err
}

func (s *Server) createOrganization(ctx context.Context, c *call, in NewOrganization) (Organization, error) {
	var n tenants.NewOrganization
	set(c, &n, &in)
	t, err := s.Directory.Create(ctx, n)
	if err == nil {
		c.Tenant = t
	}
	return s.told(c, taken(err, in.Slug))
}

// taken says of a slug that it is a duplicate.
func taken(err error, slug string) error {
	return reworded(err, CodeDuplicate, "the slug %q is or was an organization's, and slugs are never handed out twice; choose another", slug)
}

func (s *Server) listOrganizations(ctx context.Context, c *call, in OrganizationPage) ([]Organization, error) {
	limit := pageLimit(in.Limit)
	found, err := s.Directory.List(ctx, in.After, limit+1)
	out := []Organization{}
	for i := range found[:min(len(found), limit)] {
		out = append(out, s.organization(&found[i]))
	}
	if len(found) > limit {
		c.say("There are more; go on with --after " + found[limit-1].Slug)
	}
	return out, err
}

func (s *Server) updateOrganization(ctx context.Context, c *call, in OrganizationChange) (Organization, error) {
	var changed []string
	t, err := s.Directory.Update(ctx, in.Slug, func(o *tenants.Organization) error {
		changed = set(c, o, &in)
		return nil
	})
	if err == nil {
		c.Tenant = t
		c.Note("changed", strings.Join(changed, ","))
	}
	return s.told(c, err)
}

// changed returns the handler of a change that needs no more than the organization's name.
func (s *Server) changed(change func(context.Context, string) error) func(context.Context, *call, Slug) (Organization, error) {
	return func(ctx context.Context, c *call, in Slug) (Organization, error) {
		err := change(ctx, in.Slug)
		if err == nil {
			err = s.enter(ctx, c, in.Slug)
		}
		return s.told(c, err)
	}
}

// deleteOrganization is not asked for the organization first: an erasure that failed midway is repeated,
// and by then it is no longer found.
func (s *Server) deleteOrganization(ctx context.Context, c *call, in Deletion) (Certificate, error) {
	err := s.Directory.Delete(ctx, in.Slug, s.KeepDeleted)
	if err == nil && !in.Now {
		err = s.enter(ctx, c, in.Slug) // its own log has it too
		if err != nil {
			return Certificate{}, err
		}
		return s.certificate(ctx, c, Ended{in.Slug})
	}
	if err == nil || errors.Is(err, tenants.ErrUnknownTenant) { // what is half erased is finished
		var org *tenants.Organization
		var finished bool
		if org, finished, err = s.Directory.Remove(ctx, in.Slug); finished {
			err = s.Audit.Erased(ctx, s.Directory.Own(), org, c.Principal.Subject())
		}
	}
	if !errors.Is(err, tenants.ErrUnknownTenant) {
		c.Note("organization", in.Slug) // what failed had begun, and is recorded
	}
	if err != nil {
		return Certificate{}, reworded(err, CodeNotFound, noOrganization, in.Slug)
	}
	return s.certificate(ctx, c, Ended{in.Slug})
}

// certificate says what became of a deleted organization.
func (s *Server) certificate(ctx context.Context, _ *call, in Ended) (Certificate, error) {
	o, err := s.Directory.Ended(ctx, in.Slug)
	switch {
	case errors.Is(err, tenants.ErrNotDeleted):
		return Certificate{}, fail(CodeConflict, "organization %s has not been deleted, so nothing of it was erased", in.Slug)
	case err != nil:
		return Certificate{}, reworded(err, CodeNotFound, "no deleted organization %q; tenantry org list shows all organizations", in.Slug)
	}
	e := o.Ending
	if e == nil {
		e = &tenants.Ending{Documents: -1}
	}
	out := as[Certificate](e)
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
		out.Says = []string{fmt.Sprintf("Nothing has been erased yet. tenantry org delete %[1]s --yes --now erases it; tenantry org undelete %[1]s brings it back.", o.Slug)}
	case o.State == tenants.Deleted:
		out.Says = []string{fmt.Sprintf("Nothing has been erased yet. Until it is due, tenantry org undelete %s brings it back.", o.Slug)}
	case e.Erased == 0:
		out.Says = []string{fmt.Sprintf("It is being erased. What is left is erased within the hour, or by tenantry org delete %s --yes.", o.Slug)}
	default:
		out.Says = []string{
			"What remains: its slug, its number, this certificate, and the installation's audit log. tenantry audit --verify shows whether the log was changed.",
			"Backups made before keep what they hold. Encrypted values in them cannot be read without a backup of the control data and the keyring.",
		}
		for _, place := range e.Places {
			if !slices.Contains(e.Overwritten, place) {
				out.Says = append(out.Says, fmt.Sprintf("Traces may remain on backend %s: a database server overwrites deleted data when it needs the room, "+
					"and a file that was missing may turn up again.", place))
			}
		}
	}
	return out, nil
}
