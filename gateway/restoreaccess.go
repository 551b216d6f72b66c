package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tenantry/backends/store"
	"tenantry/gateway/control"
	"tenantry/internal/texts"
	"tenantry/reports"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/keys"
)

// access is what differs between a backup and now in who may do what.
type access struct {
	now     time.Time
	revived []control.Revival
	stopped []control.Revival
	// ended are the public identifiers of reports whose share tokens work no more now, until they are voided.
	ended, voided []string
	// strict are the reports, by identifier, that are less open now.
	strict map[string]reports.Report
}

// compareAccess lists what would work again, and no more, if keys, people and shares became those of the backup; now is
// nil if there is no organization.
func (r *orgRestore) compareAccess(ctx context.Context, now *tenants.Tenant) (*access, error) {
	a := &access{now: r.s.now(), strict: map[string]reports.Report{}}
	for _, compare := range []func(context.Context, *orgRestore, *tenants.Tenant) error{
		a.compareKeys, a.comparePeople, a.compareAccounts, a.compareRoles, a.compareShares, a.compareReports,
	} {
		if err := compare(ctx, r, now); err != nil {
			return nil, err
		}
	}
	for _, list := range [][]control.Revival{a.revived, a.stopped} {
		slices.SortStableFunc(list, func(x, y control.Revival) int {
			return cmp.Or(strings.Compare(x.Kind, y.Kind), strings.Compare(x.Name, y.Name))
		})
	}
	return a, nil
}

func (a *access) add(kind, name, since string) {
	a.revived = append(a.revived, control.Revival{Kind: kind, Name: texts.Clip(name), Since: since})
}

func (a *access) stop(kind, name, since string) {
	a.stopped = append(a.stopped, control.Revival{Kind: kind, Name: texts.Clip(name), Since: since})
}

// both reads the records of a kind in the backup, and those that there are now by their identifier. in returns the
// collection of an organization's records; it gets the services that the organization belongs to.
func both[T any](
	ctx context.Context, r *orgRestore, now *tenants.Tenant,
	in func(*Services, *tenants.Tenant) store.Collection[T], id func(*T) string,
) (was []T, is map[string]*T, err error) {
	err = in(r.then, r.was).Each(ctx, store.Filter{}, store.Live, func(rec *T) error {
		was = append(was, *rec)
		return nil
	})
	is = map[string]*T{}
	if err != nil || now == nil {
		return was, is, err
	}
	err = in(r.s, now).Each(ctx, store.Filter{}, store.Live, func(rec *T) error {
		one := *rec
		is[id(rec)] = &one
		return nil
	})
	return was, is, err
}

// Reasons for which something does not work now.
const (
	sinceDeleted = "deleted since"
	sinceErased  = "the organization was erased"
)

// gone returns why a record is missing now.
func gone(now *tenants.Tenant) string {
	if now == nil {
		return sinceErased
	}
	return sinceDeleted
}

// way is a kind of records by which somebody comes in.
type way[T any] struct {
	kind     string
	in       func(*Services, *tenants.Tenant) store.Collection[T]
	id, name func(*T) string
	works    func(*T) bool
	shut     func(now *T) string // why it does not work now
	// changed says of one that works at both times why what worked then does not now, and the other way round; empty: it does.
	changed func(then, now *T) (former, latter string)
}

// compareWay notes which records of a kind work in the backup and not now, and the other way round.
func compareWay[T any](ctx context.Context, a *access, r *orgRestore, now *tenants.Tenant, w way[T]) error {
	was, is, err := both(ctx, r, now, w.in, w.id)
	then := make(map[string]*T, len(was))
	for i := range was {
		one := &was[i]
		then[w.id(one)] = one
		if !w.works(one) {
			continue
		}
		switch n := is[w.id(one)]; {
		case n == nil:
			a.add(w.kind, w.name(one), gone(now))
		case !w.works(n):
			a.add(w.kind, w.name(one), w.shut(n))
		default:
			former, latter := w.changed(one, n)
			if former != "" {
				a.add(w.kind, w.name(one), former)
			}
			if latter != "" {
				a.stop(w.kind, w.name(n), latter)
			}
		}
	}
	for id, n := range is {
		switch one := then[id]; {
		case !w.works(n):
		case one == nil:
			a.stop(w.kind, w.name(n), "added since")
		case !w.works(one):
			a.stop(w.kind, w.name(n), "did not work then")
		}
	}
	return err
}

func (a *access) compareKeys(ctx context.Context, r *orgRestore, now *tenants.Tenant) error {
	return compareWay(ctx, a, r, now, way[keys.Key]{
		kind: "key",
		in: func(s *Services, t *tenants.Tenant) store.Collection[keys.Key] {
			return s.kinds.keys.Keys.In(t.People())
		},
		id: func(k *keys.Key) string { return k.ID }, name: func(k *keys.Key) string { return k.Name },
		works: func(k *keys.Key) bool {
			return k.RevokedAt == 0 && (k.ExpiresAt == 0 || k.ExpiresAt > a.now.UnixMilli())
		},
		shut: func(k *keys.Key) string {
			if k.RevokedAt != 0 {
				return "revoked since"
			}
			return "ended since"
		},
		changed: func(then, now *keys.Key) (former, latter string) {
			switch {
			case then.Hash != now.Hash:
				return "rotated since: the former token", "rotated since: the token of now"
			case then.ExpiresAt != now.ExpiresAt || !slices.Equal(then.Permissions, now.Permissions) ||
				!slices.Equal(then.Teams, now.Teams) || !slices.Equal(then.AllowIPs, now.AllowIPs) || !slices.Equal(then.Origins, now.Origins):
				return "with the rights and the end that it had", ""
			}
			return "", ""
		},
	})
}

func suspended[T any](*T) string { return "suspended since" }

func (a *access) comparePeople(ctx context.Context, r *orgRestore, now *tenants.Tenant) error {
	return compareWay(ctx, a, r, now, way[identity.User]{
		kind: "user",
		in: func(s *Services, t *tenants.Tenant) store.Collection[identity.User] {
			return s.kinds.people.Users.In(t.People())
		},
		id: func(u *identity.User) string { return u.ID }, name: func(u *identity.User) string { return u.Email },
		works: func(u *identity.User) bool { return u.Active }, shut: suspended[identity.User],
		changed: func(then, now *identity.User) (former, latter string) {
			switch {
			case then.PasswordHash == "" && now.PasswordHash != "":
				return "", "had no password then; tenantry user update USER --org SLUG --link makes a link to choose one"
			case then.PasswordChangedAt != now.PasswordChangedAt:
				return "the password was changed since: the former one", "the password was changed since: the one of now"
			case then.EmailKey != now.EmailKey:
				return "the address was changed since: the former one", "the address was changed since: the one of now"
			case !slices.Equal(then.Roles, now.Roles) || !slices.Equal(then.Permissions, now.Permissions) || !slices.Equal(then.Teams, now.Teams):
				return "with the rights of then", ""
			}
			return "", ""
		},
	})
}

func (a *access) compareAccounts(ctx context.Context, r *orgRestore, now *tenants.Tenant) error {
	return compareWay(ctx, a, r, now, way[identity.Account]{
		kind: "service account",
		in: func(s *Services, t *tenants.Tenant) store.Collection[identity.Account] {
			return s.kinds.people.Accounts.In(t.People())
		},
		id: func(c *identity.Account) string { return c.ID }, name: func(c *identity.Account) string { return c.Name },
		works: func(c *identity.Account) bool { return c.Active }, shut: suspended[identity.Account],
		changed: func(then, now *identity.Account) (former, latter string) {
			if slices.Equal(then.Permissions, now.Permissions) && slices.Equal(then.Teams, now.Teams) {
				return "", ""
			}
			return "with the rights of then", ""
		},
	})
}

func (a *access) compareRoles(ctx context.Context, r *orgRestore, now *tenants.Tenant) error {
	return compareWay(ctx, a, r, now, way[identity.Role]{
		kind: "role",
		in: func(s *Services, t *tenants.Tenant) store.Collection[identity.Role] {
			return s.kinds.people.Roles.In(t.People())
		},
		id: func(o *identity.Role) string { return o.ID }, name: func(o *identity.Role) string { return o.Name },
		works: func(*identity.Role) bool { return true },
		changed: func(then, now *identity.Role) (former, latter string) {
			if slices.Equal(then.Permissions, now.Permissions) {
				return "", ""
			}
			return "with the permissions of then", ""
		},
	})
}

// validShares returns the share tokens of an organization that work, by their identifier.
func validShares(ctx context.Context, s *Services, t *tenants.Tenant, at int64) (map[string]*reports.Issued, error) {
	revoked, newest := map[string]bool{}, map[string]int64{}
	err := s.reports.Revocations.In(t.Workspace()).Each(ctx, store.Filter{}, store.Live, func(v *reports.Revocation) error {
		revoked[v.TokenID] = v.TokenID != ""
		newest[v.PID] = max(newest[v.PID], v.Generation)
		return nil
	})
	valid := map[string]*reports.Issued{}
	if err != nil {
		return nil, err
	}
	return valid, s.reports.Issued.In(t.Workspace()).Each(ctx, store.Filter{}, store.Live, func(s *reports.Issued) error {
		if s.Expires > at && !revoked[s.TokenID] && s.Generation >= newest[s.PID] {
			one := *s
			valid[s.TokenID] = &one
		}
		return nil
	})
}

func (a *access) compareShares(ctx context.Context, r *orgRestore, now *tenants.Tenant) error {
	was, err := validShares(ctx, r.then, r.was, a.now.Unix())
	is := map[string]*reports.Issued{}
	if err == nil && now != nil {
		is, err = validShares(ctx, r.s, now, a.now.Unix())
	}
	for _, id := range slices.Sorted(maps.Keys(was)) {
		if is[id] == nil {
			why := "ended since"
			if now == nil {
				why = sinceErased
			}
			a.add("share", "of report "+was[id].PID+", until "+time.Unix(was[id].Expires, 0).UTC().Format(time.RFC3339), why)
		}
	}
	return err
}

// errStricter: the fill must begin again with the reports as they are.
var errStricter = errors.New("reports were closed or deleted while the organization was restored; repeat the command")

// stillStrict returns errStricter if reports have become less open since access was compared.
func (a *access) stillStrict(ctx context.Context, r *orgRestore, now *tenants.Tenant) error {
	if r.found.Access == control.AccessThen {
		return nil
	}
	again := &access{now: a.now, strict: map[string]reports.Report{}}
	if err := again.compareReports(ctx, r, now); err != nil {
		return err
	}
	for _, pid := range again.ended {
		if !slices.Contains(a.voided, pid) {
			return errStricter
		}
	}
	for id, is := range again.strict {
		if was, known := a.strict[id]; !known || was.CanShare() && !is.CanShare() || is.Secure && !was.Secure {
			return errStricter
		}
	}
	return nil
}

// compareReports finds reports that are read by fewer now.
func (a *access) compareReports(ctx context.Context, r *orgRestore, now *tenants.Tenant) error {
	was, is, err := both(ctx, r, now, func(s *Services, t *tenants.Tenant) store.Collection[reports.Report] {
		return s.reports.Reports.In(t.Workspace())
	}, func(p *reports.Report) string { return p.ID })
	for i := range was {
		p := &was[i]
		if p.Deleted || !p.CanShare() {
			continue
		}
		one := is[p.ID]
		switch {
		case now == nil:
		case one == nil || one.Deleted:
			a.ended = append(a.ended, p.PID)
			a.strict[p.ID] = reports.Report{Secure: true} // what was open to anyone needs a new link
			a.add("report", p.Title, "deleted since: its share links")
		case !one.CanShare():
			a.strict[p.ID] = *one
			a.add("report", p.Title, "not shared any more")
		case one.Secure && !p.Secure:
			a.strict[p.ID] = *one
			a.add("report", p.Title, "needs a link since")
		}
	}
	return err
}

// alterReport keeps a report as closed as it is now.
func (a *access) alterReport(kind, id string, body []byte) ([]byte, error) {
	now, is := a.strict[id]
	if !is || kind != "custom_reports" {
		return body, nil
	}
	return altered(body, func(fields map[string]any) {
		if !now.CanShare() {
			fields["shareable"] = false
		}
		if now.Secure {
			fields["secure"] = true
		}
	})
}

// alterPart keeps sessions and links of people from coming back with them: a session of the backup, or one that was
// ended since, is void, and so is a link that sets a password.
func (a *access) alterPart(kind string, then, _ []byte) ([]byte, error) {
	if kind != "users" {
		return then, nil
	}
	return altered(then, func(fields map[string]any) {
		fields["sessions_from"] = a.now.UnixMilli()
		for _, name := range []string{"invite_hash", "invite_expires_at", "signed_out"} {
			delete(fields, name)
		}
		fields["invite_held"] = nil
	})
}

// altered returns a document's body with changed fields.
func altered(body []byte, change func(fields map[string]any)) ([]byte, error) {
	fields := map[string]any{}
	decoder := json.NewDecoder(strings.NewReader(string(body)))
	decoder.UseNumber() // so that no number loses digits
	if err := decoder.Decode(&fields); err != nil {
		return nil, fmt.Errorf("a record of the backup: %w", err)
	}
	change(fields)
	return json.Marshal(fields)
}

// maxShown bounds the records that a dry run names of each sort.
const maxShown = 20

// note counts a difference, and names the first ones.
func (r *orgRestore) note(d store.Difference) error {
	by := r.found.Kinds[d.Kind]
	list, body := &r.found.Removed, d.Was
	switch {
	case d.Was == nil:
		by.Returned++
		r.found.Records.Returned++
		list, body = &r.found.Returned, d.Becomes
	case d.Becomes == nil:
		by.Removed++
		r.found.Records.Removed++
	default:
		by.Changed++
		r.found.Records.Changed++
		list = &r.found.Changed
	}
	if r.found.Kinds == nil {
		r.found.Kinds = map[string]control.RestoredCounts{}
	}
	r.found.Kinds[d.Kind] = by
	if len(*list) < maxShown {
		*list = append(*list, strings.TrimSpace(strings.ReplaceAll(d.Kind, "_", " ")+" "+d.ID+" "+shownName(body)))
	}
	return nil
}

// shownName returns the name of a document for people; empty if it has none.
func shownName(body []byte) string {
	fields := map[string]any{}
	if json.Unmarshal(body, &fields) != nil {
		return ""
	}
	for _, names := range [][2]string{
		{"label"}, {"title"}, {"filename"}, {"name"}, {"first_name", "last_name"}, {"email"}, {"external_id"},
	} {
		first, _ := fields[names[0]].(string)
		last, _ := fields[names[1]].(string)
		if name := strings.TrimSpace(first + " " + last); name != "" {
			return texts.Clip(name)
		}
	}
	return ""
}
