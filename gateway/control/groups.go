package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/store"
	"tenantry/internal/texts"
	"tenantry/tenants"
	"tenantry/tenants/people"
)

// Account is a service account as commands show it.
type Account struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Permissions []string `json:"permissions"`
	Teams       []string `json:"teams"` // empty: not limited to teams
	Active      bool     `json:"active"`
}

// Role is a named set of permissions as commands show it.
type Role struct {
	Name        string   `json:"name"`
	Label       string   `json:"label"`
	Permissions []string `json:"permissions"`
}

// Team is a team as commands show it.
type Team struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// Ref names a service account, a role or a team, by identifier or name.
type Ref struct {
	Org string `json:"org"`
	Ref string `json:"ref"`
}

// GroupChange says what a service account, a role or a team shall be; what is absent stays
// as it is. What is made has no Ref. Label is a role's alone, Teams and Active are an account's.
type GroupChange struct {
	Ref
	Name        *string   `json:"name,omitempty"`
	Label       *string   `json:"label,omitempty"`
	Permissions *[]string `json:"permissions,omitempty"`
	Teams       *[]string `json:"teams,omitempty"`
	Active      *bool     `json:"active,omitempty"`
}

// Deleted tells what was deleted, and how many keys ended with it.
type Deleted struct {
	Deleted string `json:"deleted"`
	Keys    int    `json:"keys_revoked"`
}

func given[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func accountOf(a *people.Account) Account {
	return Account{ID: a.ID, Name: a.Name, Permissions: words(a.Permissions), Teams: list(a.Teams), Active: a.Active}
}

func roleOf(r *people.Role) Role {
	return Role{Name: r.Name, Label: r.Label, Permissions: words(r.Permissions)}
}

func teamOf(t *people.Team) Team { return Team{ID: t.ID, Name: t.Name} }

// missing says which one was not found, and where those there are can be seen.
func missing(err error, what string, r Ref) error {
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return &Error{Code: CodeNotFound, Message: fmt.Sprintf("organization %s has no %s %q; tenantry %s list --org %s shows those there are",
		r.Org, what, texts.Clip(r.Ref), what[strings.LastIndexByte(what, ' ')+1:], r.Org)}
}

// taken says that a name is somebody else's.
func taken(err error, what string, r *GroupChange) error {
	var duplicate *store.DuplicateError
	if !errors.As(err, &duplicate) {
		return err
	}
	return &Error{Code: CodeDuplicate, Message: fmt.Sprintf("organization %s has a %s named %q already", r.Org, what, texts.Clip(given(r.Name)))}
}

func (r *GroupChange) account(a *people.Account) {
	if r.Name != nil {
		a.Name = *r.Name
	}
	if r.Permissions != nil {
		a.Permissions = permissions(*r.Permissions)
	}
	if r.Teams != nil {
		a.Teams = *r.Teams
	}
	if r.Active != nil {
		a.Active = *r.Active
	}
}

func (r *GroupChange) facts(kind, id string) map[string]string {
	var changed []string
	for name, is := range map[string]bool{
		"name": r.Name != nil, "label": r.Label != nil, "permissions": r.Permissions != nil, "teams": r.Teams != nil, "active": r.Active != nil,
	} {
		if is {
			changed = append(changed, name)
		}
	}
	return map[string]string{kind: id, "changed": strings.Join(slices.Sorted(slices.Values(changed)), ",")}
}

func (h *handler) createAccount(ctx context.Context, r *GroupChange) (Account, error) {
	t, err := h.tenant(ctx, r.Org)
	if err != nil {
		return Account{}, err
	}
	var n people.Account
	r.account(&n)
	a, err := h.People.CreateAccount(ctx, t, n)
	if err != nil {
		return Account{}, taken(err, "service account", r)
	}
	return accountOf(a), h.record(ctx, t, "account.create", map[string]string{"account": a.ID})
}

func (h *handler) account(ctx context.Context, r Ref) (*tenants.Tenant, *people.Account, error) {
	t, err := h.tenant(ctx, r.Org)
	if err != nil {
		return nil, nil, err
	}
	a, err := h.People.FindAccount(ctx, t, r.Ref)
	return t, a, missing(err, "service account", r)
}

func (h *handler) showAccount(ctx context.Context, r *Ref) (Account, error) {
	_, a, err := h.account(ctx, *r)
	if err != nil {
		return Account{}, err
	}
	return accountOf(a), nil
}

func (h *handler) listAccounts(ctx context.Context, r *Page) (List[Account], error) {
	out := List[Account]{Items: []Account{}}
	t, err := h.tenant(ctx, r.Org)
	if err != nil {
		return out, err
	}
	found, total, err := h.People.Accounts(ctx, t, people.Page{Limit: min(pageLimit(r.Limit), people.MaxLimit), Offset: r.Offset})
	if err != nil {
		return out, err
	}
	for i := range found {
		out.Items = append(out.Items, accountOf(&found[i]))
	}
	out.More = total > int64(r.Offset)+int64(len(found))
	return out, nil
}

func (h *handler) updateAccount(ctx context.Context, r *GroupChange) (Account, error) {
	t, a, err := h.account(ctx, r.Ref)
	if err != nil {
		return Account{}, err
	}
	a, err = h.People.UpdateAccount(ctx, t, a.ID, func(a *people.Account) error {
		r.account(a)
		return nil
	})
	if err != nil {
		return Account{}, taken(err, "service account", r)
	}
	return accountOf(a), h.record(ctx, t, "account.update", r.facts("account", a.ID))
}

func (h *handler) deleteAccount(ctx context.Context, r *Ref) (Deleted, error) {
	t, a, err := h.account(ctx, *r)
	if err != nil {
		return Deleted{}, err
	}
	n, err := h.Keys.RevokeAccount(ctx, t, a.ID)
	if err == nil {
		err = h.People.DeleteAccount(ctx, t, a.ID)
	}
	if err != nil {
		return Deleted{}, err
	}
	return Deleted{a.Name, n}, h.record(ctx, t, "account.delete", map[string]string{"account": a.ID, "keys_revoked": strconv.Itoa(n)})
}

func (h *handler) createRole(ctx context.Context, r *GroupChange) (Role, error) {
	t, err := h.tenant(ctx, r.Org)
	if err != nil {
		return Role{}, err
	}
	role, err := h.People.CreateRole(ctx, t, people.Role{Name: given(r.Name), Label: given(r.Label), Permissions: permissions(given(r.Permissions))})
	if err != nil {
		return Role{}, taken(err, "role", r)
	}
	return roleOf(role), h.record(ctx, t, "role.create", map[string]string{"role": role.Name})
}

func (h *handler) role(ctx context.Context, r Ref) (*tenants.Tenant, *people.Role, error) {
	t, err := h.tenant(ctx, r.Org)
	if err != nil {
		return nil, nil, err
	}
	role, err := h.People.Role(ctx, t, r.Ref)
	return t, role, missing(err, "role", r)
}

func (h *handler) showRole(ctx context.Context, r *Ref) (Role, error) {
	_, role, err := h.role(ctx, *r)
	if err != nil {
		return Role{}, err
	}
	return roleOf(role), nil
}

func (h *handler) listRoles(ctx context.Context, r *Page) (List[Role], error) {
	out := List[Role]{Items: []Role{}}
	t, err := h.tenant(ctx, r.Org)
	if err != nil {
		return out, err
	}
	found, err := h.People.Roles(ctx, t)
	for i := range found {
		out.Items = append(out.Items, roleOf(&found[i]))
	}
	return paged(out, r), err
}

// paged cuts a whole list to the page asked for.
func paged[T any](all List[T], r *Page) List[T] {
	from := min(max(r.Offset, 0), len(all.Items))
	to := min(from+pageLimit(r.Limit), len(all.Items))
	return List[T]{Items: all.Items[from:to], More: to < len(all.Items)}
}

func (h *handler) updateRole(ctx context.Context, r *GroupChange) (Role, error) {
	t, role, err := h.role(ctx, r.Ref)
	if err != nil {
		return Role{}, err
	}
	if r.Label != nil {
		role.Label = *r.Label
	}
	if r.Permissions != nil {
		role.Permissions = permissions(*r.Permissions)
	}
	if role, err = h.People.PutRole(ctx, t, *role); err != nil {
		return Role{}, err
	}
	return roleOf(role), h.record(ctx, t, "role.update", r.facts("role", role.Name))
}

func (h *handler) deleteRole(ctx context.Context, r *Ref) (Deleted, error) {
	t, role, err := h.role(ctx, *r)
	if err != nil {
		return Deleted{}, err
	}
	if err := h.People.DeleteRole(ctx, t, role.Name); err != nil {
		return Deleted{}, err
	}
	return Deleted{Deleted: role.Name}, h.record(ctx, t, "role.delete", map[string]string{"role": role.Name})
}

func (h *handler) createTeam(ctx context.Context, r *GroupChange) (Team, error) {
	t, err := h.tenant(ctx, r.Org)
	if err != nil {
		return Team{}, err
	}
	team, err := h.People.PutTeam(ctx, t, people.Team{Name: given(r.Name)})
	if err != nil {
		return Team{}, err
	}
	return teamOf(team), h.record(ctx, t, "team.create", map[string]string{"team": team.ID})
}

func (h *handler) team(ctx context.Context, r Ref) (*tenants.Tenant, *people.Team, error) {
	t, err := h.tenant(ctx, r.Org)
	if err != nil {
		return nil, nil, err
	}
	team, err := h.People.Team(ctx, t, r.Ref)
	return t, team, missing(err, "team", r)
}

func (h *handler) showTeam(ctx context.Context, r *Ref) (Team, error) {
	_, team, err := h.team(ctx, *r)
	if err != nil {
		return Team{}, err
	}
	return teamOf(team), nil
}

func (h *handler) listTeams(ctx context.Context, r *Page) (List[Team], error) {
	out := List[Team]{Items: []Team{}}
	t, err := h.tenant(ctx, r.Org)
	if err != nil {
		return out, err
	}
	found, err := h.People.Teams(ctx, t)
	for i := range found {
		out.Items = append(out.Items, teamOf(&found[i]))
	}
	return paged(out, r), err
}

func (h *handler) updateTeam(ctx context.Context, r *GroupChange) (Team, error) {
	t, team, err := h.team(ctx, r.Ref)
	if err != nil {
		return Team{}, err
	}
	if r.Name != nil {
		team.Name = *r.Name
	}
	if team, err = h.People.PutTeam(ctx, t, *team); err != nil {
		return Team{}, err
	}
	return teamOf(team), h.record(ctx, t, "team.update", r.facts("team", team.ID))
}

func (h *handler) deleteTeam(ctx context.Context, r *Ref) (Deleted, error) {
	t, team, err := h.team(ctx, *r)
	if err != nil {
		return Deleted{}, err
	}
	if err := h.People.DeleteTeam(ctx, t, team.ID); err != nil {
		return Deleted{}, err
	}
	return Deleted{Deleted: team.Name}, h.record(ctx, t, "team.delete", map[string]string{"team": team.ID})
}

// ListGroups returns service accounts, roles or teams; kind is account, role or team.
func ListGroups[T Account | Role | Team](ctx context.Context, c *Client, kind string, p Page) (List[T], error) {
	return call[List[T]](ctx, c, kind+"/list", p)
}

// ShowGroup returns one of them.
func ShowGroup[T Account | Role | Team](ctx context.Context, c *Client, kind string, r Ref) (T, error) {
	return call[T](ctx, c, kind+"/show", r)
}

// ChangeGroup makes one of them (verb create) or changes one (verb update).
func ChangeGroup[T Account | Role | Team](ctx context.Context, c *Client, kind, verb string, r GroupChange) (T, error) {
	return call[T](ctx, c, kind+"/"+verb, r)
}

// DeleteGroup deletes one of them.
func (c *Client) DeleteGroup(ctx context.Context, kind string, r Ref) (Deleted, error) {
	return call[Deleted](ctx, c, kind+"/delete", r)
}
