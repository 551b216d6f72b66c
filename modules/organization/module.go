// Package organization lets administrators read and change their organization within the limits of the operator.
package organization

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/rate"
	"tenantry/internal/texts"
	"tenantry/internal/together"
	"tenantry/operation"
	"tenantry/tenants"
)

// Module serves the organization itself. It is immutable and safe for concurrent use.
type Module struct {
	Directory *tenants.Directory
	Defaults  func() rate.Set // returns the request limits of organizations without their own
	// FileBytes returns how many bytes of files the organization has stored.
	FileBytes func(context.Context, *tenants.Tenant) (int64, error)
}

// Used is what the organization has stored of what limits apply to.
type Used struct {
	store.Usage

	FileBytes int64 `json:"file_bytes" doc:"Bytes of files, with their versions; identical content is counted once."`
}

// Kept returns nothing, because package tenants stores organizations.
func (m *Module) Kept() []record.Kept { return nil }

// Answer is the organization as its administrators see it.
type Answer struct {
	ID            int64            `json:"id" doc:"Number of the organization."`
	Slug          string           `json:"slug" doc:"First label of its host name. It never changes."`
	Name          string           `json:"name" doc:"Display name."`
	Features      map[string]bool  `json:"features" doc:"Features, and whether they are on."`
	Settings      map[string]bool  `json:"settings" doc:"Settings, and whether they are on."`
	Limits        map[string]int64 `json:"limits" doc:"The limits in force; documents, bytes and file_bytes only if they are limited."`
	Allowed       map[string]int64 `json:"allowed_limits" doc:"The highest value that the operator allows for each limit; documents, bytes and file_bytes only if they are limited."`
	Used          Used             `json:"used" doc:"The usage that the limits documents, bytes and file_bytes apply to: the number of records, including the trash, their size in bytes, and that of files."`
	RequestLimits rate.Set         `json:"request_limits" doc:"The request limits in force, which the operator sets."`
	Providers     []string         `json:"providers" doc:"Providers that may request shared reports, set by the operator."`
	FrameOrigins  []string         `json:"frame_origins" doc:"Origins whose pages may show shared reports in a frame."`
	Color         string           `json:"color" doc:"Color of buttons in its mails; empty: the usual one."`
	URL           string           `json:"url" doc:"Address of the organization."`
	CreatedAt     string           `json:"created_at" doc:"RFC 3339, UTC, milliseconds."`
	UpdatedAt     string           `json:"updated_at" doc:"RFC 3339, UTC, milliseconds."`
}

// Change is what an administrator may change.
type Change struct {
	Name     string           `json:"name" rule:"min=1 max=200 format=label" doc:"Display name." example:"Acme Ltd"`
	Features map[string]bool  `json:"features" doc:"Features to switch on or off: teams. Others stay unchanged." ask:"Features" example:"{\"teams\":true}"`
	Settings map[string]bool  `json:"settings" doc:"Settings to switch on or off: require_public_encryption_key, sign_in_names_organization, public_files. Others stay unchanged." ask:"Settings" example:"{\"sign_in_names_organization\":false}"`
	Limits   map[string]int64 `json:"limits" doc:"Limits to lower, or to raise to at most the value that the operator allows: folder_children, documents, bytes, file_size, file_bytes. Others stay unchanged." ask:"Limits|At most what the operator of the installation allows." example:"{\"folder_children\":500}"`
	Frames   []string         `json:"frame_origins" rule:"each=300" doc:"Origins whose pages may show shared reports in a frame. The list replaces the current one; an empty list allows none." ask:"Sites that may show reports|Such as https://www.example.com; none if empty." example:"[\"https://www.example.com\"]"`
	Color    string           `json:"color" rule:"max=7 format=line" doc:"Color of buttons in mails, such as #1f5fbf; empty: the usual one." ask:"Color of its mails|Such as #1f5fbf." example:"#1f5fbf"`
}

// Check notes the faults of the changed organization.
func (in *Change) Check(c *operation.Call, errs *fault.List) {
	o := c.Tenant.Org
	*errs = in.apply(c, &o)
}

// apply changes the organization, and returns its faults.
func (in *Change) apply(c *operation.Call, o *tenants.Organization) (errs fault.List) {
	if c.Body.Has("name") {
		o.Name = in.Name
	}
	if c.Body.Has("color") {
		o.Color = strings.ToLower(in.Color)
	}
	if c.Body.Has("frame_origins") {
		o.FrameOrigins = origins(in.Frames)
	}
	o.Features, o.Settings = with(o.Features, in.Features), with(o.Settings, in.Settings)
	o.Lower(in.Limits, &errs)
	tenants.CheckOrganization(&errs, o)
	return errs
}

// Operations returns the rows.
func (m *Module) Operations() []operation.Row {
	usual := Module{Defaults: func() rate.Set {
		return rate.Set{
			Organization: rate.Pair{Rate: rate.PerSecond(1000), Quota: rate.Unlimited()},
			Key:          rate.Pair{Rate: rate.PerSecond(500), Quota: rate.Unlimited()},
			Visitor:      rate.Pair{Rate: rate.PerSecond(5), Quota: rate.PerHour(1000)},
		}
	}}
	example := usual.answer(&tenants.Tenant{Org: tenants.Organization{
		OrgID: 7, Slug: "acme", Name: "Acme Ltd", Features: map[string]bool{tenants.FeatureTeams: true}, Lowered: map[string]int64{tenants.LimitFolderChildren: 500},
	}}, "https://acme.example.com", Used{Usage: store.Usage{Documents: 1200, Bytes: 900_000}, FileBytes: 52_000_000})
	row := operation.Row{
		Name: "organization.get", Method: http.MethodGet, Path: "/api/organization",
		Policy: operation.Policy{
			Credentials: operation.Key | operation.Session, Kinds: operation.ServerKeys,
			Rule: operation.AdminOnly("Manage Organization"),
		},
		Response: operation.Response{Message: "Organization found", Example: example},
		Target:   operation.Target{Revised: true},
		Docs: operation.Docs{
			Tag: "Organization", Summary: "Get the organization", Title: "Organization",
			Description: "Answers its name, features, settings, limits and usage.",
		},
	}
	change := row
	change.Name, change.Method, change.Kinds, change.Audit, change.Message = "organization.update", http.MethodPut, operation.ServerFull, operation.AuditAlways, "Organization updated"
	change.Verb = "Save"
	change.Summary, change.Description = "Change the organization", "Members that are not given stay unchanged. The "+
		"change takes effect at once on every server. Answers the changed organization."
	change.Failures = []operation.Failure{{
		Code: http.StatusUnprocessableEntity, Message: "Validation failed: the limit folder_children is from 1 to 1000, " +
			"which the operator allows", When: "a name is unknown, or a limit exceeds what the operator allows",
	}}
	return []operation.Row{
		operation.Typed(row, func(ctx context.Context, c *operation.Call, _ struct{}) (Answer, error) {
			t, err := m.Directory.BySlug(ctx, c.Tenant.Org.Slug) // the current state
			return m.answerOf(ctx, c, t, err)
		}),
		operation.Typed(change, m.update),
	}
}

func (m *Module) update(ctx context.Context, c *operation.Call, in Change) (Answer, error) {
	var changed []string
	t, err := m.Directory.Update(ctx, c.Tenant.Org.Slug, func(o *tenants.Organization) error {
		if err := c.Current(o.EditedAt()); err != nil {
			return err
		}
		changed = slices.DeleteFunc([]string{
			"name", "features", "settings", "limits", "frame_origins", "color",
		}, func(name string) bool { return !c.Body.Has(name) })
		if err := in.apply(c, o).Err(); err != nil {
			return err
		}
		return c.Begin(ctx) // the organization is not written through the call's workspaces
	})
	if err == nil {
		c.Note("changed", strings.Join(changed, ","))
	}
	return m.answerOf(ctx, c, t, err)
}

// origins returns the origins without duplicates, in the form that browsers send.
func origins(given []string) (all []string) {
	for _, text := range given {
		if origin, ok := tenants.Origin(text); ok {
			text = origin
		}
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

func with(was, will map[string]bool) map[string]bool {
	all := maps.Clone(was)
	if all == nil {
		all = map[string]bool{}
	}
	maps.Copy(all, will)
	return all
}

// answerOf returns the answer for an organization that was read or changed without an error.
func (m *Module) answerOf(ctx context.Context, c *operation.Call, t *tenants.Tenant, err error) (Answer, error) {
	if err != nil {
		return Answer{}, err
	}
	var used Used
	ws := t.Workspace()
	err = together.Do(ws.Remote(), func() (err error) {
		used.Usage, err = ws.Used(ctx)
		return err
	}, func() (err error) {
		used.FileBytes, err = m.FileBytes(ctx, t)
		return err
	})
	if err != nil {
		return Answer{}, err
	}
	c.Revision = t.Org.EditedAt()
	return m.answer(t, c.BaseURL, used), nil
}

func (m *Module) answer(t *tenants.Tenant, url string, used Used) Answer {
	o := &t.Org
	a := Answer{
		ID: o.OrgID, Slug: o.Slug, Name: o.Name, Features: map[string]bool{}, Settings: map[string]bool{}, Limits: map[string]int64{}, Allowed: map[string]int64{}, Used: used,
		RequestLimits: o.RequestLimits.Or(m.Defaults()), Providers: append([]string{}, o.Providers...),
		FrameOrigins: append([]string{}, o.FrameOrigins...),
		Color:        o.Color, URL: url, CreatedAt: texts.Time(o.CreatedAt), UpdatedAt: texts.Time(o.EditedAt()),
	}
	for _, name := range tenants.AllFeatures() {
		a.Features[name] = o.Feature(name)
	}
	for _, name := range tenants.AllSettings() {
		a.Settings[name] = o.Setting(name)
	}
	for _, name := range tenants.AllLimits() {
		if n := o.Limit(name); n > 0 {
			a.Limits[name] = n
		}
		if n := o.Allowed(name); n > 0 {
			a.Allowed[name] = n
		}
	}
	return a
}
