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

// byID returns records by their identifier.
func byID[T any](list []T, id func(*T) string) map[string]*T {
	all := make(map[string]*T, len(list))
	for i := range list {
		all[id(&list[i])] = &list[i]
	}
	return all
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

func keyID(k *keys.Key) string             { return k.ID }
func userID(u *identity.User) string       { return u.ID }
func accountID(c *identity.Account) string { return c.ID }

func (a *access) compareKeys(ctx context.Context, r *orgRestore, now *tenants.Tenant) error {
	was, is, err := both(ctx, r, now, func(s *Services, t *tenants.Tenant) store.Collection[keys.Key] {
		return s.kinds.keys.Keys.In(t.People())
	}, keyID)
	works := func(k *keys.Key) bool {
		return k.RevokedAt == 0 && (k.ExpiresAt == 0 || k.ExpiresAt > a.now.UnixMilli())
	}
	then := byID(was, keyID)
	for _, k := range is {
		one := then[k.ID]
		switch {
		case !works(k):
		case one == nil:
			a.stop("key", k.Name, "made since")
		case !works(one):
			a.stop("key", k.Name, "did not work then")
		case one.Hash != k.Hash:
			a.stop("key", k.Name, "rotated since: the token of now")
		}
	}
	for i := range was {
		k := &was[i]
		if !works(k) {
			continue
		}
		one := is[k.ID]
		switch {
		case one == nil:
			a.add("key", k.Name, gone(now))
		case one.RevokedAt != 0:
			a.add("key", k.Name, "revoked since")
		case one.Hash != k.Hash:
			a.add("key", k.Name, "rotated since: the former token")
		case one.ExpiresAt != k.ExpiresAt || !slices.Equal(one.Permissions, k.Permissions) || !slices.Equal(one.Teams, k.Teams) ||
			!slices.Equal(one.AllowIPs, k.AllowIPs) || !slices.Equal(one.Origins, k.Origins):
			a.add("key", k.Name, "with the rights and the end that it had")
		}
	}
	return err
}

func (a *access) comparePeople(ctx context.Context, r *orgRestore, now *tenants.Tenant) error {
	was, is, err := both(ctx, r, now, func(s *Services, t *tenants.Tenant) store.Collection[identity.User] {
		return s.kinds.people.Users.In(t.People())
	}, userID)
	then := byID(was, userID)
	for _, u := range is {
		one := then[u.ID]
		switch {
		case !u.Active:
		case one == nil:
			a.stop("user", u.Email, "added since")
		case !one.Active:
			a.stop("user", u.Email, "suspended then")
		case one.PasswordHash == "" && u.PasswordHash != "":
			a.stop("user", u.Email, "had no password then; tenantry user update USER --org SLUG --link makes a link to choose one")
		case one.PasswordChangedAt != u.PasswordChangedAt:
			a.stop("user", u.Email, "the password was changed since: the one of now")
		case one.EmailKey != u.EmailKey:
			a.stop("user", u.Email, "the address was changed since: the one of now")
		}
	}
	for i := range was {
		u := &was[i]
		if !u.Active {
			continue
		}
		one := is[u.ID]
		switch {
		case one == nil:
			a.add("user", u.Email, gone(now))
		case !one.Active:
			a.add("user", u.Email, "suspended since")
		case one.PasswordChangedAt != u.PasswordChangedAt && u.PasswordHash != "":
			a.add("user", u.Email, "the password was changed since: the former one")
		case one.EmailKey != u.EmailKey:
			a.add("user", u.Email, "the address was changed since")
		case !slices.Equal(one.Roles, u.Roles) || !slices.Equal(one.Permissions, u.Permissions) || !slices.Equal(one.Teams, u.Teams):
			a.add("user", u.Email, "with the rights of then")
		}
	}
	return err
}

func (a *access) compareAccounts(ctx context.Context, r *orgRestore, now *tenants.Tenant) error {
	was, is, err := both(ctx, r, now, func(s *Services, t *tenants.Tenant) store.Collection[identity.Account] {
		return s.kinds.people.Accounts.In(t.People())
	}, accountID)
	then := byID(was, accountID)
	for _, c := range is {
		one := then[c.ID]
		switch {
		case !c.Active:
		case one == nil:
			a.stop("service account", c.Name, "made since")
		case !one.Active:
			a.stop("service account", c.Name, "suspended then")
		}
	}
	for i := range was {
		c := &was[i]
		one := is[c.ID]
		switch {
		case !c.Active:
		case one == nil:
			a.add("service account", c.Name, gone(now))
		case !one.Active:
			a.add("service account", c.Name, "suspended since")
		case !slices.Equal(one.Permissions, c.Permissions) || !slices.Equal(one.Teams, c.Teams):
			a.add("service account", c.Name, "with the rights of then")
		}
	}
	return err
}

func (a *access) compareRoles(ctx context.Context, r *orgRestore, now *tenants.Tenant) error {
	was, is, err := both(ctx, r, now, func(s *Services, t *tenants.Tenant) store.Collection[identity.Role] {
		return s.kinds.people.Roles.In(t.People())
	}, func(o *identity.Role) string { return o.ID })
	for i := range was {
		o := &was[i]
		if one := is[o.ID]; one == nil {
			a.add("role", o.Name, gone(now))
		} else if !slices.Equal(one.Permissions, o.Permissions) {
			a.add("role", o.Name, "with the permissions of then")
		}
	}
	return err
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
