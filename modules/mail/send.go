package mail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"tenantry/backends/store"
	"tenantry/crypto/fields"
	"tenantry/tenants"
	"tenantry/tenants/identity"
)

const (
	turnMails = 50              // of an organization in one turn
	claimFor  = 2 * time.Minute // after this a mail that a process was sending is free for others
	noteTime  = 5 * time.Second // for noting what became of a mail
	perHour   = time.Hour       // of the limits
	laterBy   = 10 * time.Minute

	mostRefused = 8                // mails that a server refuses on one connection
	afterHangUp = 10 * time.Second // before a mail is tried again after which the server hung up because of others

	firstPause = time.Minute // before the second try; the pause doubles
	mostPause  = 6 * time.Hour
)

// patience returns how long after its creation a mail is worth sending.
func patience(topic string) time.Duration {
	switch topic {
	case Password:
		return time.Hour
	case SignIn:
		return 24 * time.Hour
	}
	return 72 * time.Hour
}

// mostPasswords is how many mails with a link for a forgotten password an address gets in an hour: strangers ask for them.
const mostPasswords = 3

// Reasons of mails that wait or have failed.
const (
	reasonLate    = "It could not be sent in time."
	reasonRefused = "The mail server refused it."
	reasonNotYet  = "The mail server did not take it yet."
	reasonMany    = "The address got as many mails as it may within an hour."
	reasonBroken  = "It cannot be read any more."
)

// nextDue returns when the first mail that waits is due; zero: none waits.
func (m *Module) nextDue(ctx context.Context, t *tenants.Tenant) (time.Time, error) {
	first, err := m.Mails.In(t.Workspace()).First(ctx, store.Query{
		Filter: store.Eq("state", Waiting), Sort: []store.Order{store.Asc("due")},
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, err
	}
	return time.UnixMilli(first.Due), nil
}

// turn is one turn of an organization.
type turn struct {
	*Module
	t     *tenants.Tenant
	mails store.Collection[Mail]
	conn  *conn
}

// Turn sends mails of the organization that are due, at most turnMails, and returns when it should be called again; zero:
// no mail waits. Several replicas may take turns at once: each mail is claimed by a write over the revision at which it
// was read. Errors: store.ErrUnavailable.
func (m *Module) Turn(ctx context.Context, t *tenants.Tenant) (next time.Time, err error) {
	now := m.Now()
	if until := m.away.paused(now); !until.IsZero() {
		return until, nil
	}
	t = t.Through((*store.Workspace).BeyondQuota)
	w := &turn{Module: m, t: t, mails: m.Mails.In(t.Workspace())}
	due, err := w.urgent(ctx, now)
	if err != nil {
		return time.Time{}, err
	}
	urgent := len(due)
	others, err := w.mails.Find(ctx, store.Query{
		Filter: store.All(store.Eq("state", Waiting), store.Where(store.F("due"), store.OpLte, now.UnixMilli())),
		Sort:   []store.Order{store.Asc("due")}, Limit: turnMails,
	})
	if err != nil {
		return time.Time{}, err
	}
	for i := range others {
		if !slices.ContainsFunc(due[:urgent], func(m Mail) bool { return m.ID == others[i].ID }) {
			due = append(due, others[i])
		}
	}
	if len(due) == 0 {
		return m.nextDue(ctx, t)
	}
	room, free, err := w.room(ctx, now)
	if err != nil {
		return time.Time{}, err
	}
	defer func() {
		if w.conn != nil {
			w.conn.close()
		}
	}()
	for i := range due {
		if room <= 0 && i >= urgent || room <= -w.reserve() {
			return free, nil
		}
		sent, err := w.one(ctx, &due[i])
		if err != nil && !errors.Is(err, store.ErrConflict) { // on a conflict another replica has it
			return time.Time{}, err
		}
		if until := m.away.paused(m.Now()); !until.IsZero() {
			return until, nil
		}
		if sent {
			room--
		}
	}
	return m.nextDue(ctx, t)
}

// urgentTopics are those that somebody waits for. They are sent before others, also when the organization has sent as many
// of others as it may within an hour, and are still stored when too many others wait.
func urgentTopics() []string { return []string{Password, Invitation, SignIn} }

// reserve is how many urgent mails an organization may send in an hour besides others.
func (m *Module) reserve() int { return max(m.PerOrganization/10, 1) }

// urgent returns mails of urgent topics that are due.
func (w *turn) urgent(ctx context.Context, now time.Time) (all []Mail, err error) {
	for _, topic := range urgentTopics() {
		found, err := w.mails.Find(ctx, store.Query{
			Filter: store.All(
				store.Eq("topic", topic), store.Where(store.F("created_at"), store.OpGt, now.Add(-patience(topic)).UnixMilli()),
				store.Eq("state", Waiting), store.Where(store.F("due"), store.OpLte, now.UnixMilli()),
			),
			Sort: []store.Order{store.Asc("created_at")}, Limit: turnMails,
		})
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// room returns how many mails the organization may send now and, if none, when it may again.
func (w *turn) room(ctx context.Context, now time.Time) (room int, free time.Time, err error) {
	hour := store.All(store.Eq("state", Sent), store.Where(store.F("due"), store.OpGt, now.Add(-perHour).UnixMilli()))
	sent, err := w.mails.Count(ctx, hour)
	if room = w.PerOrganization - int(sent); err != nil || room > 0 {
		return room, free, err // room is negative once some of the reserve was used
	}
	first, err := w.mails.First(ctx, store.Query{Filter: hour, Sort: []store.Order{store.Asc("due")}})
	if err != nil {
		return room, now.Add(time.Minute), nil //nolint:nilerr // it is asked again then
	}
	return room, time.UnixMilli(first.Due).Add(perHour), nil
}

// one sends a mail, or decides what else becomes of it. Errors: store.ErrConflict, store.ErrUnavailable.
func (w *turn) one(ctx context.Context, rec *Mail) (sent bool, err error) {
	now := w.Now()
	if now.Sub(time.UnixMilli(rec.CreatedAt)) > patience(rec.Topic) {
		return false, w.fail(ctx, rec, reasonLate, rec.Code)
	}
	in, err := w.opened(ctx, w.t, rec)
	if errors.Is(err, fields.ErrCorrupt) {
		return false, w.fail(ctx, rec, reasonBroken, 0)
	}
	if err != nil {
		return false, err
	}
	if in.To == "" {
		return false, w.spread(ctx, rec, in)
	}
	if full, err := w.full(ctx, rec, now); full || err != nil {
		return false, err
	}
	if err := w.connect(ctx); err != nil {
		return false, nil //nolint:nilerr // connect has noted it
	}
	rec.Tries++
	rec.Due, rec.Code, rec.Reason = now.Add(claimFor).UnixMilli(), 0, ""
	if err := w.mails.Replace(ctx, rec); err != nil {
		return false, err
	}
	content, err := w.compose(ctx, w.t, rec, &in)
	if err != nil {
		return false, err
	}
	if content == nil { // what it was about is gone
		return false, w.mails.Delete(ctx, rec)
	}
	content.Organization, content.Color = w.t.Org.Name, w.t.Org.Color
	msg, err := w.Server.message(rec.ID, w.t.Org.Name, in.To, content, now)
	if err != nil {
		return false, err
	}
	out := w.conn.send(msg)
	if err := w.settle(ctx, rec, out); err != nil || w.conn == nil || w.conn.refused < mostRefused {
		return out.sent, err
	}
	w.conn.close() // before the server hangs up
	w.conn = nil
	return out.sent, nil
}

// settle stores what became of a mail that was offered to the server. It goes on when ctx has ended.
func (w *turn) settle(outer context.Context, rec *Mail, out outcome) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(outer), noteTime)
	defer cancel()
	now := w.Now()
	switch {
	case out.sent:
		if w.away.works() {
			w.Log.InfoContext(ctx, "the mail server works again", "server", w.Server.Address())
		}
		rec.State, rec.Due, rec.Message, rec.Code, rec.Reason = Sent, now.UnixMilli(), "", 0, ""
		w.ended[Sent].Add(1)
		return w.mails.Replace(ctx, rec)
	case out.permanent:
		return w.fail(ctx, rec, reasonRefused, out.code)
	}
	if outer.Err() != nil { // the process stops, and another one goes on
		rec.Due = now.UnixMilli()
		return w.mails.Replace(ctx, rec)
	}
	if out.away && w.conn.refused > 0 { // some servers hang up after refusals, which are about single mails
		w.conn.close()
		w.conn = nil
		rec.Due, rec.Code, rec.Reason = now.Add(afterHangUp).UnixMilli(), out.code, reasonNotYet
		w.ended[later].Add(1)
		return w.mails.Replace(ctx, rec)
	}
	if out.away {
		w.noteAway(ctx, fmt.Sprintf("mail server %s: fails while it takes a mail (reply %d)", w.Server.Address(), out.code))
		w.conn.close()
		w.conn = nil
	}
	w.ended[later].Add(1)
	pause := min(mostPause, firstPause<<min(rec.Tries-1, 12))
	rec.Due, rec.Code, rec.Reason = now.Add(pause).UnixMilli(), out.code, reasonNotYet
	return w.mails.Replace(ctx, rec)
}

// fail stores that a mail will not be sent.
func (w *turn) fail(ctx context.Context, rec *Mail, reason string, code int) error {
	rec.State, rec.Due, rec.Message, rec.Reason, rec.Code = Failed, w.Now().UnixMilli(), "", reason, code
	err := w.mails.Replace(ctx, rec)
	if err == nil {
		w.ended[Failed].Add(1)
		w.Log.WarnContext(ctx, "a mail could not be sent", "org", w.t.Org.OrgID, "mail", rec.ID, "topic", rec.Topic,
			"reason", reason, "code", code)
	}
	return err
}

// full postpones a mail whose address got as many as it may within an hour, and reports whether it did.
func (w *turn) full(ctx context.Context, rec *Mail, now time.Time) (bool, error) {
	filter := []store.Filter{
		store.Eq("address", rec.Address), store.Where(store.F("due"), store.OpGt, now.Add(-perHour).UnixMilli()),
		store.Eq("state", Sent),
	}
	most := w.PerAddress
	if rec.Topic == Password {
		filter, most = append(filter, store.Eq("topic", Password)), min(most, mostPasswords)
	}
	n, err := w.mails.Count(ctx, store.All(filter...))
	if err != nil || n < int64(most) {
		return false, err
	}
	if rec.Topic == Password {
		return true, w.fail(ctx, rec, reasonMany, 0)
	}
	rec.Due, rec.Reason = now.Add(laterBy).UnixMilli(), reasonMany
	return true, w.mails.Replace(ctx, rec)
}

// connect connects to the server unless that was done in this turn.
func (w *turn) connect(ctx context.Context) (err error) {
	if w.conn != nil {
		return nil
	}
	if w.conn, err = w.Server.dial(ctx); err != nil && ctx.Err() == nil {
		w.noteAway(ctx, err.Error())
	}
	return err
}

func (w *turn) noteAway(ctx context.Context, why string) {
	if until, first := w.away.failed(w.Now()); first {
		w.Log.WarnContext(ctx, "mail cannot be sent and waits", "error", why, "until", until.UTC().Format(time.RFC3339),
			"advice", "start the mail server, or correct mail.url; tenantry doctor tries it")
	}
}

// spread replaces a mail to the recipients of a form by one to each. The identifiers follow from its own, so that it can
// be repeated where batches are not atomic.
func (w *turn) spread(ctx context.Context, rec *Mail, in message) error {
	var about formData
	if err := json.Unmarshal(in.Data, &about); err != nil {
		return w.fail(ctx, rec, reasonBroken, 0)
	}
	form, err := w.Form(ctx, w.t, about.Form, "")
	if err != nil {
		return err
	}
	waiting, err := w.mails.Count(ctx, store.Eq("state", Waiting))
	if err != nil {
		return err
	}
	if form != nil && int(waiting)-1+len(form.Recipients) > mostWaiting(rec.Topic) { // all but this one
		w.Log.WarnContext(ctx, "nobody is told of a submission, because too many mails of the organization wait",
			"org", w.t.Org.OrgID, "form", about.Form)
		form = nil
	}
	b := w.t.Workspace().Batch()
	if form != nil {
		var all []*Mail
		var ids []string
		seen := map[string]bool{}
		for _, to := range form.Recipients {
			if key := identity.EmailKey(to); seen[key] {
				continue
			} else {
				seen[key] = true
			}
			id, err := w.keyed(ctx, w.t, countPurpose, rec.ID, identity.EmailKey(to))
			if err != nil {
				return err
			}
			one, err := w.made(ctx, w.t, post{id: id, topic: rec.Topic, to: to, data: about}, time.UnixMilli(rec.CreatedAt))
			if err != nil {
				return err
			}
			all, ids = append(all, one), append(ids, id)
		}
		stored := map[string]bool{}
		if len(ids) > 0 {
			found, err := w.mails.Find(ctx, store.Query{Filter: store.In("id", ids...)})
			if err != nil {
				return err
			}
			for i := range found {
				stored[found[i].ID] = true
			}
		}
		for _, one := range all {
			if stored[one.ID] {
				continue
			}
			if err := w.mails.StageInsert(b, one); err != nil {
				return err
			}
		}
	}
	if err := w.mails.StageDelete(ctx, b, rec); err != nil {
		b.Discard()
		return err
	}
	return b.Commit(ctx)
}

// Kept for how long mails and places of sign-ins are.
const (
	keptFor   = 7 * 24 * time.Hour
	placeFor  = 180 * 24 * time.Hour
	forgetMax = 5_000 // records of one call
)

// Forget removes mails of more than seven days ago, and places from which nobody has signed in for long. It reports
// whether more of them are left.
func (m *Module) Forget(ctx context.Context, t *tenants.Tenant) (left bool, err error) {
	ws := t.Workspace()
	now := m.Now()
	removed, err := clearBefore(ctx, m.Mails.In(ws), "created_at", now.Add(-keptFor))
	if err == nil {
		var places int
		places, err = clearBefore(ctx, m.Places.In(ws), "used", now.Add(-placeFor))
		removed = max(removed, places)
	}
	return removed >= forgetMax, err
}

// clearBefore deletes records whose field is before the time, at most forgetMax, and returns their number.
func clearBefore[T any](ctx context.Context, in store.Collection[T], field string, before time.Time) (n int, err error) {
	for n < forgetMax {
		old, err := in.Find(ctx, store.Query{
			Filter: store.Where(store.F(field), store.OpLt, before.UnixMilli()),
			Sort:   []store.Order{store.Asc(field)}, Limit: store.MaxLimit, LeaveOut: true,
		})
		if err != nil || len(old) == 0 {
			return n, err
		}
		all := make([]*T, len(old))
		for i := range old {
			all[i] = &old[i]
		}
		for len(all) > 0 {
			some := in.Portion(all)
			if err := in.Delete(ctx, all[:some]...); err != nil {
				return n, err
			}
			n, all = n+some, all[some:]
		}
	}
	return n, nil
}
