package transfer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"tenantry/backends/schema"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/internal/texts"
	"tenantry/tenants"
	"tenantry/tenants/limits"
	"tenantry/tenants/people"
)

// peopleKinds returns the kinds of the control workspace, in the order in which an export
// writes them and definitions are stored.
func peopleKinds(d *Deps) []handler {
	return []handler{organizationKind(d), teamKind(d), roleKind(d), userKind(d), accountKind(d)}
}

// loadPeople reads who the organization's people are.
func (s *session) loadPeople(ctx context.Context) error {
	ws, v := s.tenant.People(), s.view
	err := s.deps.People.Teams.In(ws).Each(ctx, store.Filter{}, store.Either, func(t *people.Team) error {
		v.teams[t.ID] = true
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading teams: %w", err)
	}
	err = s.deps.People.Roles.In(ws).Each(ctx, store.Filter{}, store.Either, func(r *people.Role) error {
		v.roles[r.Name] = true
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading roles: %w", err)
	}
	err = s.deps.People.Users.In(ws).Each(ctx, store.Filter{}, store.Either, func(u *people.User) error {
		v.users[u.UID] = true
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading users: %w", err)
	}
	return nil
}

func (v *view) learnPerson(e *entry) {
	switch rec := e.rec.(type) {
	case *people.Team:
		if e.id != "" {
			v.teams[e.id] = true
		}
	case *people.Role:
		v.roles[rec.Name] = true
	case *people.User:
		if rec.UID != 0 {
			v.users[rec.UID] = true
		}
	}
}

// note takes over faults as the problems of a line.
func note(e *entry, faults fault.List) {
	e.errs = append(e.errs, faults...)
}

func teamKind(d *Deps) handler {
	type T = people.Team
	k := &kind[T]{
		label: kindTeam, records: d.People.Teams, defines: true, control: true, meta: (*T).StoreMeta,
		fields: documentFields((*T).StoreMeta, textField("name", short, func(r *T) *string { return &r.Name }).must()),
		check: func(_ context.Context, _ *view, r *T, e *entry) {
			if len(e.errs) == 0 {
				schema.CheckLabel(&e.errs, "name", r.Name)
			}
		},
	}
	return k.ready()
}

func roleKind(d *Deps) handler {
	type T = people.Role
	k := &kind[T]{
		label: kindRole, records: d.People.Roles, defines: true, control: true, meta: (*T).StoreMeta,
		uniques: []unique[T]{{field: "name", value: func(r *T) string { return r.Name }, identity: always}},
		fields: []field[T]{
			textField("name", 64, func(r *T) *string { return &r.Name }).must(),
			textField("label", short, func(r *T) *string { return &r.Label }),
			textsField("permissions", 64, func(r *T) *[]tenants.Permission { return &r.Permissions }),
		},
		check: func(_ context.Context, _ *view, r *T, e *entry) {
			if len(e.errs) > 0 {
				return
			}
			var faults fault.List
			given := len(r.Permissions)
			r.Permissions = people.CheckPermissions(&faults, r.Permissions)
			note(e, faults)
			if r.Name == people.AdminRole { // built in: taken as it is or not at all
				if given > 0 && len(r.Permissions) < len(tenants.AllPermissions()) {
					e.errs.Add("name", "forbidden", "the role %s is built in and cannot be changed", people.AdminRole)
				}
				e.change = keep
				return
			}
			if !people.ValidRole(r.Name) {
				e.errs.Add("name", "format", "the name of a role is 1 to 64 of a-z, 0-9, _ and -, and starts with a letter")
			}
			if r.Label == "" {
				r.Label = r.Name
			}
			schema.CheckLabel(&e.errs, "label", r.Label)
		},
	}
	return &rights[T]{k.ready()}
}

func userKind(d *Deps) handler {
	type T = people.User
	id := numberField("id", func(r *T) *int64 { return &r.UID })
	read := id.read
	id.read = func(r *T, v strictjson.Value, errs *fault.List) {
		before := len(*errs)
		if read(r, v, errs); len(*errs) == before && (r.UID == 0 || r.UID > people.MaxUID) {
			errs.Add("id", "range", "id must be a whole number from 1 to %d", int64(people.MaxUID))
		}
	}
	k := &kind[T]{
		label: kindUser, records: d.People.Users, defines: true, control: true, meta: (*T).StoreMeta,
		uniques: []unique[T]{
			{field: "uid", number: true, identity: always, value: func(r *T) string {
				if r.UID == 0 {
					return ""
				}
				return strconv.FormatInt(r.UID, 10)
			}},
			{field: "email_key", value: func(r *T) string { return r.EmailKey }, identity: withoutID},
		},
		fields: []field[T]{
			id,
			textField("name", short, func(r *T) *string { return &r.Name }).must(),
			emailField(),
			listField("roles", 64, people.MaxRoles, func(r *T) *[]string { return &r.Roles }),
			textsField("permissions", 64, func(r *T) *[]tenants.Permission { return &r.Permissions }),
			teamsField(func(r *T) *[]string { return &r.Teams }),
			flagField("active", func(r *T) *bool { return &r.Active }),
			timeField("created_at", func(r *T) *int64 { return &r.CreatedAt }),
		},
		before: numberUsers,
		refs:   func(r *T, visit visitor) { visitTeams(r.Teams, visit) },
	}
	active := uint64(0)
	k.check = func(_ context.Context, v *view, r *T, e *entry) {
		e.named = r.UID != 0
		if e.given&active == 0 {
			r.Active = true
		}
		if len(e.errs) == 0 {
			checkPerson(v, r, e)
		}
	}
	k.ready()
	active = 1 << k.index["active"]
	return &persons{rights[T]{k}, d}
}

// persons is the kind of users: a line does not take the last administrator away.
type persons struct {
	rights[people.User]
	deps *Deps
}

func (k *persons) decode(ctx context.Context, v *view, val strictjson.Value, line int) *entry {
	e := k.rights.decode(ctx, v, val, line)
	e.kind = k
	return e
}

func (k *persons) replace(ctx context.Context, s *session, e *entry) error {
	write := func() error { return k.rights.replace(ctx, s, e) }
	if u := e.old.(*people.User); !u.Active || !u.IsAdmin() {
		return people.KeepAdmin(ctx, k.deps.Directory, k.deps.People, s.tenant, u.UID, time.Now(), write)
	}
	return write()
}

// accountKind is that of service accounts. Their keys do not travel.
func accountKind(d *Deps) handler {
	type T = people.Account
	k := &kind[T]{
		label: kindAccount, records: d.People.Accounts, defines: true, control: true, meta: (*T).StoreMeta,
		uniques: []unique[T]{{field: "name", value: func(r *T) string { return r.Name }, identity: always}},
		refs:    func(r *T, visit visitor) { visitTeams(r.Teams, visit) },
		fields: documentFields((*T).StoreMeta,
			textField("name", short, func(r *T) *string { return &r.Name }).must(),
			textsField("permissions", 64, func(r *T) *[]tenants.Permission { return &r.Permissions }),
			teamsField(func(r *T) *[]string { return &r.Teams }),
			flagField("active", func(r *T) *bool { return &r.Active }),
		),
	}
	active := uint64(0)
	k.check = func(_ context.Context, v *view, r *T, e *entry) {
		if e.given&active == 0 {
			r.Active = true
		}
		if len(e.errs) > 0 {
			return
		}
		schema.CheckLabel(&e.errs, "name", r.Name)
		var faults fault.List
		r.Permissions = people.CheckPermissions(&faults, r.Permissions)
		note(e, faults)
		checkTeams(v, e, r.Teams)
	}
	k.ready()
	active = 1 << k.index["active"]
	return &rights[T]{k}
}

// emailField keeps the form in which addresses are compared beside the address.
func emailField() field[people.User] {
	f := textField("email", 254, func(r *people.User) *string { return &r.Email }).must()
	read := f.read
	f.read = func(r *people.User, v strictjson.Value, errs *fault.List) {
		read(r, v, errs)
		r.EmailKey = people.EmailKey(r.Email)
	}
	f.copy = func(to, from *people.User) { to.Email, to.EmailKey = from.Email, from.EmailKey }
	return f
}

func checkPerson(v *view, r *people.User, e *entry) {
	schema.CheckLabel(&e.errs, "name", r.Name)
	if !schema.ValidEmail(r.Email) {
		e.errs.Add("email", "format", "email must be an e-mail address")
	}
	var faults fault.List
	r.Permissions = people.CheckPermissions(&faults, r.Permissions)
	note(e, faults)
	for _, name := range r.Roles {
		if !v.roles[name] {
			noteAbsent(&e.errs, "roles", kindRole)
			break
		}
	}
	checkTeams(v, e, r.Teams)
}

// numberUsers gives new users their numbers and keeps the counter above those given.
func numberUsers(ctx context.Context, s *session, recs []*people.User) error {
	most, missing := int64(0), int64(0)
	for _, r := range recs {
		if most = max(most, r.UID); r.UID == 0 {
			missing++
		}
	}
	last, err := s.tenant.People().Counter(ctx, "users", missing, most)
	if err != nil {
		return err
	}
	for _, r := range recs {
		if r.UID == 0 {
			missing--
			r.UID = last - missing
		}
	}
	return nil
}

// rights is a kind whose changes alter what people may do: identities that are cached
// anywhere become void.
type rights[T any] struct{ *kind[T] }

func (k *rights[T]) decode(ctx context.Context, v *view, val strictjson.Value, line int) *entry {
	e := k.kind.decode(ctx, v, val, line)
	e.kind = k
	return e
}

func (k *rights[T]) insert(ctx context.Context, s *session, batch []*entry) error {
	s.rightsChanged = true
	return k.kind.insert(ctx, s, batch)
}

func (k *rights[T]) replace(ctx context.Context, s *session, e *entry) error {
	s.rightsChanged = true
	return k.kind.replace(ctx, s, e)
}

// organization is the handler of the one line about the organization itself.
type organization struct {
	*kind[tenants.Organization]
	directory *tenants.Directory
}

func organizationKind(d *Deps) handler {
	type T = tenants.Organization
	k := &kind[T]{
		label: kindOrganization, defines: true, control: true, meta: (*T).StoreMeta,
		uniques: []unique[T]{{field: "kind", value: func(*T) string { return kindOrganization }, identity: always}},
		fields: []field[T]{
			textField("name", short, func(r *T) *string { return &r.Name }),
			mapField("features", "true or false", readFlag, func(r *T) *map[string]bool { return &r.Features }),
			mapField("settings", "true or false", readFlag, func(r *T) *map[string]bool { return &r.Settings }),
			mapField("limits", "a whole number from 1 to 10000", readLimit, func(r *T) *map[string]int64 { return &r.Limits }),
			requestLimitsField(),
			textsField("providers", 64, func(r *T) *[]string { return &r.Providers }),
		},
	}
	k.ready()
	k.check = func(_ context.Context, _ *view, r *T, e *entry) {
		if e.given&1 != 0 && len(e.errs) == 0 {
			schema.CheckLabel(&e.errs, "name", r.Name)
		}
		if len(r.Providers) > tenants.MaxProviders || slices.ContainsFunc(r.Providers, func(name string) bool { return !store.ValidKey(name) }) {
			e.errs.Add("providers", "format", "providers must be at most %d names of 1 to 64 letters, digits, _ and -", tenants.MaxProviders)
		}
		checkKnown(e, "features", slices.Sorted(maps.Keys(r.Features)), tenants.AllFeatures())
		checkKnown(e, "settings", slices.Sorted(maps.Keys(r.Settings)), tenants.AllSettings())
		checkKnown(e, "limits", slices.Sorted(maps.Keys(r.Limits)), tenants.AllLimits())
	}
	return &organization{k, d.Directory}
}

func requestLimitsField() field[tenants.Organization] {
	return jsonField("request_limits", func(r *tenants.Organization, v strictjson.Value, errs *fault.List) {
		dec := json.NewDecoder(bytes.NewReader(v.Raw()))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&r.RequestLimits); v.Is != strictjson.Object || err != nil {
			errs.Add("request_limits", "format", `request_limits must be like {"organization": {"rate": "100/s", "quota": "100000/d"}, "key": {"rate": "off"}}`)
		}
	}, func(r *tenants.Organization) any {
		if r.RequestLimits == (limits.Set{}) {
			return nil
		}
		return r.RequestLimits
	}, func(to, from *tenants.Organization) { to.RequestLimits = from.RequestLimits.Or(to.RequestLimits) })
}

func readFlag(v strictjson.Value) (bool, bool) {
	return v.Is == strictjson.True, v.Is == strictjson.True || v.Is == strictjson.False
}

func readLimit(v strictjson.Value) (int64, bool) {
	n, err := strconv.ParseInt(v.Text, 10, 64)
	return n, v.Is == strictjson.Number && err == nil && n >= 1 && n <= 10_000
}

func checkKnown(e *entry, field string, given, known []string) {
	for _, name := range given {
		if !slices.Contains(known, name) {
			path := field + "." + texts.Clip(name)
			e.errs.Add(path, "unknown", "%s is not known; there are: %v", path, known)
		}
	}
}

func (o *organization) decode(ctx context.Context, v *view, val strictjson.Value, line int) *entry {
	e := o.kind.decode(ctx, v, val, line)
	e.kind = o
	return e
}

func (o *organization) compare(ctx context.Context, s *session, batch []*entry) error {
	for _, e := range batch {
		org := s.tenant.Org
		e.old = &org
		if err := o.merge(ctx, s, e); err != nil {
			return err
		}
	}
	return nil
}

// insert is never called: the organization is there.
func (o *organization) insert(context.Context, *session, []*entry) error { return nil }

func (o *organization) replace(ctx context.Context, s *session, e *entry) error {
	_, err := o.directory.Update(ctx, s.tenant.Org.Slug, func(org *tenants.Organization) error {
		for i := range o.fields {
			if e.given&(1<<i) != 0 {
				o.fields[i].copy(org, e.rec.(*tenants.Organization))
			}
		}
		return nil
	})
	return err
}

func (o *organization) present(context.Context, *session, []string) (map[string]bool, error) {
	return map[string]bool{}, nil
}

func (o *organization) empty(context.Context, *session) (bool, error) { return false, nil }

func (o *organization) export(ctx context.Context, s *session, emit func([]byte) error) error {
	org := s.tenant.Org
	line := o.write(nil, &org)
	if !o.accepted(ctx, s, line) {
		s.asIs++
		line = o.writeStored(&org, nil)
	}
	return emit(line)
}
