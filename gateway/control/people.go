package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenantry/backends/store"
	"tenantry/crypto/passwords"
	"tenantry/crypto/secret"
	"tenantry/internal/fault"
	"tenantry/tenants"
	"tenantry/tenants/people"
)

func userOf(u *people.User) User {
	return User{
		ID: u.UID, Name: u.Name, Email: u.Email, Roles: list(u.Roles), Permissions: words(u.Permissions),
		Teams: list(u.Teams), Active: u.Active, CreatedAt: when(u.CreatedAt),
	}
}

func words(given []tenants.Permission) []string {
	out := make([]string, len(given))
	for i, p := range given {
		out[i] = string(p)
	}
	return out
}

func permissions(given []string) []tenants.Permission {
	var out []tenants.Permission
	for _, p := range given {
		out = append(out, tenants.Permission(p))
	}
	return out
}

func (h *handler) createUser(ctx context.Context, r *NewUser) (Invited, error) {
	t, err := h.tenant(ctx, r.Org)
	if err != nil {
		return Invited{}, err
	}
	if err := checkPassword(r.Password); err != nil { // before there is a user
		return Invited{}, err
	}
	u, err := h.People.CreateUser(ctx, t, people.NewUser{
		Name: r.Name, Email: r.Email, Roles: r.Roles, Permissions: permissions(r.Permissions), Teams: r.Teams,
	})
	var duplicate *store.DuplicateError
	if errors.As(err, &duplicate) {
		return Invited{}, &Error{Code: CodeDuplicate, Message: fmt.Sprintf("organization %s has a user with the address %s already", r.Org, r.Email)}
	}
	if err != nil {
		return Invited{}, err
	}
	facts := map[string]string{"user": strconv.FormatInt(u.UID, 10), "roles": strings.Join(u.Roles, ",")}
	unrecorded := h.noteRecord(ctx, t, "user.create", facts)
	if r.Password == "" {
		out, err := h.invite(ctx, t, u)
		if err != nil {
			return Invited{}, fmt.Errorf("user %d was created, but without a link; make one with tenantry user update --link: %w", u.UID, err)
		}
		out.Notes = unrecorded
		return out, nil
	}
	if err := h.People.SetPassword(ctx, t, u.UID, secret.New(r.Password)); err != nil {
		return Invited{}, fmt.Errorf("user %d was created, but without a password; set one with tenantry user update: %w", u.UID, err)
	}
	return Invited{User: userOf(u), Notes: unrecorded}, nil
}

// checkPassword refuses a password that may not be set; none is fine.
func checkPassword(text string) error {
	if text == "" {
		return nil
	}
	err := passwords.CheckPolicy(secret.New(text))
	if err == nil {
		return nil
	}
	return &Error{Code: CodeInvalid, Message: err.Error(), Faults: fault.List{{Field: "password", Code: fault.Format, Message: err.Error()}}}
}

func (h *handler) invite(ctx context.Context, t *tenants.Tenant, u *people.User) (Invited, error) {
	token, expires, err := h.People.Invite(ctx, t, u.UID)
	if err != nil {
		return Invited{}, err
	}
	expires = expires.UTC().Truncate(time.Second)
	// After the # it reaches neither servers' logs nor other sites.
	return Invited{User: userOf(u), Link: h.BaseURL(t.Org.Slug) + "/welcome#" + token.Reveal(), LinkExpiresAt: &expires}, nil
}

func (h *handler) listUsers(ctx context.Context, r *Page) (List[User], error) {
	t, err := h.tenant(ctx, r.Org)
	if err != nil {
		return List[User]{}, err
	}
	limit := min(pageLimit(r.Limit), people.MaxLimit)
	found, total, err := h.People.Users(ctx, t, people.Page{Limit: limit, Offset: r.Offset})
	if err != nil {
		return List[User]{}, err
	}
	out := List[User]{Items: []User{}, More: total > int64(r.Offset)+int64(len(found))}
	for i := range found {
		out.Items = append(out.Items, userOf(&found[i]))
	}
	return out, nil
}

// user finds the person that a command names by number or address.
func (h *handler) user(ctx context.Context, r UserRef) (*tenants.Tenant, *people.User, error) {
	t, err := h.tenant(ctx, r.Org)
	if err != nil {
		return nil, nil, err
	}
	var u *people.User
	if id, numeric := strconv.ParseInt(r.User, 10, 64); numeric == nil {
		u, err = h.People.FindUser(ctx, t, id)
	} else {
		u, err = h.People.FindUserByEmail(ctx, t, r.User)
	}
	if errors.Is(err, store.ErrNotFound) {
		err = &Error{Code: CodeNotFound, Message: fmt.Sprintf("organization %s has no user %q; name one by number or e-mail address, tenantry user list --org %s shows them", r.Org, r.User, r.Org)}
	}
	return t, u, err
}

func (h *handler) showUser(ctx context.Context, r *UserRef) (User, error) {
	_, u, err := h.user(ctx, *r)
	if err != nil {
		return User{}, err
	}
	return userOf(u), nil
}

func (h *handler) updateUser(ctx context.Context, r *UserChange) (Invited, error) {
	t, u, err := h.user(ctx, r.UserRef)
	if err != nil {
		return Invited{}, err
	}
	if err := checkPassword(r.Password); err != nil {
		return Invited{}, err
	}
	var changed []string
	u, err = h.People.UpdateUser(ctx, t, u.UID, func(u *people.User) error {
		changed = r.apply(u)
		return nil
	})
	var duplicate *store.DuplicateError
	if errors.As(err, &duplicate) {
		return Invited{}, &Error{Code: CodeDuplicate, Message: fmt.Sprintf("organization %s has another user with the address %s", r.Org, *r.Email)}
	}
	if err != nil {
		return Invited{}, err
	}
	if r.Password != "" {
		if err := h.People.SetPassword(ctx, t, u.UID, secret.New(r.Password)); err != nil {
			return Invited{}, err
		}
		changed = append(changed, "password")
	}
	out := Invited{User: userOf(u)}
	if r.Invite {
		if out, err = h.invite(ctx, t, u); err != nil {
			return Invited{}, err
		}
		changed = append(changed, "link")
	}
	slices.Sort(changed)
	facts := map[string]string{"user": strconv.FormatInt(u.UID, 10), "changed": strings.Join(changed, ",")}
	out.Notes = h.noteRecord(ctx, t, "user.update", facts)
	return out, nil
}

func (h *handler) deactivateUser(ctx context.Context, r *UserRef) (User, error) {
	t, u, err := h.user(ctx, *r)
	if err != nil {
		return User{}, err
	}
	if u, err = h.People.Deactivate(ctx, t, u.UID); err != nil {
		return User{}, err
	}
	return userOf(u), h.record(ctx, t, "user.deactivate", map[string]string{"user": strconv.FormatInt(u.UID, 10)})
}

// apply changes the person and returns the names of the fields that were given.
func (r *UserChange) apply(u *people.User) []string {
	var changed []string
	given := func(name string, is bool) bool {
		if is {
			changed = append(changed, name)
		}
		return is
	}
	if given("name", r.Name != nil) {
		u.Name = *r.Name
	}
	if given("email", r.Email != nil) {
		u.Email = *r.Email
	}
	if given("roles", r.Roles != nil) {
		u.Roles = *r.Roles
	}
	if given("permissions", r.Permissions != nil) {
		u.Permissions = permissions(*r.Permissions)
	}
	if given("teams", r.Teams != nil) {
		u.Teams = *r.Teams
	}
	if given("active", r.Active != nil) {
		u.Active = *r.Active
	}
	return changed
}
