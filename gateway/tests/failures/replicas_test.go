package failures

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/redistest"
)

// TestRevokedOnOneReplica checks that the other replicas refuse in time, also after Redis is killed and restored to an
// earlier state, and while it is down.
func TestRevokedOnOneReplica(t *testing.T) {
	t.Parallel()
	const underLoad, overKills, hung, alone, good = 50, 20, 4, 6, 6
	r := fixture.StartTrio(t)
	acme := r.Replicas[0].Org(t, "acme")
	w := &watch{Trio: r, org: acme}
	for range underLoad + overKills + hung + alone + good {
		k := acme.KeyWith(t, func(k *control.NewKey) { k.Permissions = []string{string(tenants.ManageForms)} })
		w.keys = append(w.keys, &watchedKey{id: k.ID, token: k.Token})
	}
	w.focus.Store(w.keys[0])
	// A new record may be unknown to another replica that looked for it just before.
	for i := range r.Replicas {
		for _, k := range w.keys {
			if code := r.Ask(t, i, acme.Host, cheapPath, k.token); code != http.StatusOK {
				t.Fatalf("replica %d answers %d to a new key, want 200", i, code)
			}
		}
	}
	w.start(t)
	defer w.end(t)
	rest := w.keys
	next := func(n int) []*watchedKey {
		part := rest[:n]
		rest = rest[n:]
		return part
	}

	began, asked := time.Now(), w.asked.Load()
	part := next(underLoad)
	for i, k := range part {
		w.revoke(t, k, i%fixture.ReplicaCount)
		w.settle(t, k)
	}
	t.Logf("%.0f requests/s over three replicas", float64(w.asked.Load()-asked)/time.Since(began).Seconds())
	w.figures(t, "under load", part)

	part = next(overKills)
	admin := r.Redis.Open(t)
	for i, k := range part {
		// The restarted server has the key as it was when it was valid.
		redistest.Await(t, admin)
		if err := admin.Save(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			w.revoke(t, k, i%fixture.ReplicaCount)
			r.Redis.Kill()
		} else { // nobody can be told
			r.Redis.Kill()
			w.revoke(t, k, i%fixture.ReplicaCount)
		}
		r.Redis.Restart()
		w.settle(t, k)
	}
	w.figures(t, "Redis killed at each", part)

	part = next(hung)
	redistest.Await(t, admin)
	r.Redis.Signal(syscall.SIGSTOP)
	for i, k := range part {
		w.revoke(t, k, i%fixture.ReplicaCount)
		w.settle(t, k)
	}
	r.Redis.Signal(syscall.SIGCONT)
	w.figures(t, "Redis hanging", part)

	r.Redis.Kill()
	part = next(alone)
	for i, k := range part {
		w.revoke(t, k, i%fixture.ReplicaCount)
		w.settle(t, k)
	}
	w.figures(t, "without Redis", part)
	r.Redis.Restart()

	w.end(t)
	for _, k := range w.keys {
		want := http.StatusForbidden
		if k.revoked.IsZero() {
			want = http.StatusOK
		}
		for i := range r.Replicas {
			if code := r.Ask(t, i, acme.Host, cheapPath, k.token); code != want {
				t.Errorf("in the end replica %d answers %d, want %d", i, code, want)
			}
		}
	}
}

// TestReplicasAgree runs the tests that need three replicas and leave them unchanged.
func TestReplicasAgree(t *testing.T) {
	t.Parallel()
	r := fixture.StartTrio(t)
	t.Run("changes", func(t *testing.T) { replicasChanges(t, r) })
	t.Run("answers", func(t *testing.T) { replicasAnswers(t, r) })
	t.Run("creates", func(t *testing.T) { replicasCreates(t, r) })
	t.Run("repeats", func(t *testing.T) { replicasRepeats(t, r) })
	t.Run("updates", func(t *testing.T) { replicasUpdates(t, r) })
	t.Run("organizations", func(t *testing.T) { replicasOrganizations(t, r) })
	t.Run("rights", func(t *testing.T) { replicasRights(t, r) })
	t.Run("users", func(t *testing.T) { replicasUsers(t, r) })
}

// replicasChanges checks that suspension, limits, rights and the end of sessions take effect everywhere in time.
func replicasChanges(t *testing.T, r *fixture.Trio) {
	acme := r.Replicas[0].Org(t, "changes")
	key := acme.KeyWith(t, func(k *control.NewKey) { k.Permissions = []string{string(tenants.ManageForms)} })
	person := func(email string) (control.User, *http.Cookie) {
		t.Helper()
		return acme.Person(t, email, func(u *control.NewUser) { u.Permissions = []string{string(tenants.ManageForms)} })
	}
	changed, changedCookie := person("changed@example.com")
	gone, goneCookie := person("gone@example.com")
	renewed, renewedCookie := person("renewed@example.com")
	_, outCookie := person("out@example.com")

	code := func(with gatewaytest.Request, want int) func(*gatewaytest.Org) bool {
		return func(o *gatewaytest.Org) bool { return o.Do(t, http.MethodGet, cheapPath, with).Code == want }
	}
	limit := func(want string) func(*gatewaytest.Org) bool {
		return func(o *gatewaytest.Org) bool {
			return o.Get(t, key.Token, cheapPath).Header.Get("RateLimit-Limit") == want
		}
	}
	withKey := gatewaytest.WithKey(key.Token)
	served := http.StatusOK
	unknown := r.Replicas[0].Do(t, http.MethodGet, "nobody.localhost", cheapPath, withKey).Code
	text := func(s string) *string { return &s }
	steps := []struct {
		what  string
		do    func(by *gatewaytest.Org) error
		shown func(*gatewaytest.Org) bool
	}{
		{"suspended organization", func(by *gatewaytest.Org) error {
			_, err := control.Call[control.Organization](t.Context(), by.Commands, "org.suspend", control.Slug{Slug: by.Slug})
			return err
		}, code(withKey, unknown)},
		{"resumed organization", func(by *gatewaytest.Org) error {
			_, err := control.Call[control.Organization](t.Context(), by.Commands, "org.resume", control.Slug{Slug: by.Slug})
			return err
		}, code(withKey, served)},
		{"limit of the organization", func(by *gatewaytest.Org) error {
			_, err := control.Call[control.RequestLimits](t.Context(), by.Commands, "org.limits", control.LimitsChange{Org: by.Slug, Rate: text("7777/s")})
			return err
		}, limit("7777")},
		{"limit of the key", func(by *gatewaytest.Org) error {
			_, err := control.Call[control.RequestLimits](t.Context(), by.Commands, "key.limits", control.KeyLimitsChange{KeyRef: control.KeyRef{Org: by.Slug, ID: key.ID}, Rate: text("555/s")})
			return err
		}, limit("555")},
		{"permission taken", func(by *gatewaytest.Org) error {
			_, err := control.Call[control.User](t.Context(), by.Commands, "user.update", control.UserChange{UserRef: refOf(by, changed), UserFields: control.UserFields{Permissions: []string{"contacts"}}})
			return err
		}, code(gatewaytest.Cookie(changedCookie), http.StatusForbidden)},
		{"permission given", func(by *gatewaytest.Org) error {
			_, err := control.Call[control.User](t.Context(), by.Commands, "user.update", control.UserChange{UserRef: refOf(by, changed), UserFields: control.UserFields{Permissions: []string{string(tenants.ManageForms)}}})
			return err
		}, code(gatewaytest.Cookie(changedCookie), served)},
		{"deactivated person", func(by *gatewaytest.Org) error {
			_, err := control.Call[control.User](t.Context(), by.Commands, "user.deactivate", refOf(by, gone))
			return err
		}, code(gatewaytest.Cookie(goneCookie), http.StatusForbidden)},
		{"new password", func(by *gatewaytest.Org) error {
			_, err := control.Call[control.User](t.Context(), by.Commands, "user.update", control.UserChange{UserRef: refOf(by, renewed), UserFields: control.UserFields{Password: gatewaytest.Password + "!"}})
			return err
		}, code(gatewaytest.Cookie(renewedCookie), http.StatusForbidden)},
		{"sign-out", func(by *gatewaytest.Org) error {
			if a := by.Do(t, http.MethodPost, "/auth/sign-out", gatewaytest.Cookie(outCookie)); a.Code != http.StatusOK {
				return fmt.Errorf("%d %s", a.Code, a.Body)
			}
			return nil
		}, code(gatewaytest.Cookie(outCookie), http.StatusForbidden)},
		{"revoked key", func(by *gatewaytest.Org) error {
			_, err := control.Call[control.Key](t.Context(), by.Commands, "key.revoke", control.KeyRef{Org: by.Slug, ID: key.ID})
			return err
		}, code(withKey, http.StatusForbidden)},
	}
	for n, step := range steps {
		for i := range r.Replicas { // they have it in their caches as it was
			if step.shown(r.On(i, acme)) {
				t.Fatalf("%s: replica %d shows it before the change, want it afterwards", step.what, i)
			}
		}
		by := n % fixture.ReplicaCount
		if err := step.do(r.On(by, acme)); err != nil {
			t.Fatalf("%s: got %v, want no error", step.what, err)
		}
		t.Logf("%s: known everywhere after %s", step.what, round(r.Agree(t, step.what, by, acme, step.shown)))
	}
}

func refOf(o *gatewaytest.Org, u control.User) control.UserRef {
	return control.UserRef{Org: o.Slug, User: strconv.FormatInt(u.ID, 10)}
}

// replicasAnswers checks that a session works on all replicas, and that all answer every read of the contract with the
// same bytes.
func replicasAnswers(t *testing.T, r *fixture.Trio) {
	p := fixture.NewParty(t, r.Replicas[0], "answers", "ac0ffee5ac0ffee5", 7000)
	p.AddPeople(t)
	w := &fixture.World{Gateway: r.Replicas[0]}
	reads := 0
	for _, op := range r.Replicas[0].App.Operations() {
		if op.Method != http.MethodGet || !op.Contract {
			continue
		}
		s := fixture.SampleFor(&op)
		seen := func(a *gatewaytest.Answer) string {
			body := untimed.ReplaceAllString(a.Text(), "")
			if len(s.Volatile) > 0 { // sealed anew in every call
				body = fixture.Blanked(s.Volatile).ReplaceAllString(body, `"$1":"*"`)
			}
			return fmt.Sprint(a.Code, a.Header.Get("Content-Type"), body)
		}
		shows := []gatewaytest.Request{p.CredentialFor(&op)}
		if op.Credentials&operation.Session != 0 {
			shows = append(shows, gatewaytest.Cookie(p.AdminCookie))
		}
		for _, path := range op.Paths() {
			for _, full := range []bool{false, true} {
				q := w.Build(&op, path, s, p.Own, func(name string) bool { return full || name == "field" })
				var first string
				for i := range r.Replicas {
					for _, show := range shows {
						a := r.On(i, p.Org).Do(t, q.Method, q.Target, show)
						if a.Code != http.StatusOK {
							t.Errorf("%s on replica %d: got %d %.200s, want 200", q.Target, i, a.Code, a.Body)
						}
						reads++
						if text := seen(a); first == "" {
							first = text
						} else if text != first {
							t.Errorf("%s: replica %d answers\n%.500s\nwant\n%.500s", q.Target, i, text, first)
						}
					}
				}
			}
		}
	}
	if reads < 60 {
		t.Errorf("%d reads were compared, want at least 60", reads)
	}
	_, cookie := r.On(2, p.Org).Person(t, "late@example.com", func(u *control.NewUser) { u.Permissions = []string{string(tenants.ManageForms)} })
	for i := range r.Replicas {
		if a := r.On(i, p.Org).Do(t, http.MethodGet, cheapPath, gatewaytest.Cookie(cookie)); a.Code != http.StatusOK {
			t.Errorf("a session begun on replica 2, on replica %d: got %d %s, want 200", i, a.Code, a.Body)
		}
	}
}

// replicasCreates checks that of many concurrent creates of one name through different replicas one succeeds.
func replicasCreates(t *testing.T, r *fixture.Trio) {
	acme := r.Replicas[0].Org(t, "creates") // its collections are made by the first to write
	key := acme.Key(t, tenants.ManageCustomObjects)
	for n := range 3 {
		name := fmt.Sprintf("tree_%d", n)
		codes := fixture.Concurrently(32, func(i int) int {
			return r.On(i, acme).Do(t, http.MethodPost, "/api/custom/objects", gatewaytest.WithKey(key),
				gatewaytest.JSON(map[string]string{"name": name, "label": name, "label_plural": name})).Code
		})
		if codes[http.StatusOK] != 1 || codes[http.StatusConflict] != 31 {
			t.Errorf("32 creates of %s: got %s, want 1 with 200 and 31 with 409", name, fixture.Tally(codes))
		}
	}
	if n := strings.Count(fixture.Export(t, r.On(1, acme)), `"kind":"custom_object"`); n != 3 {
		t.Errorf("%d objects are stored, want 3", n)
	}
}

// replicasRepeats sends the same request with one Idempotency-Key to every replica concurrently. It is carried out and
// answered once.
func replicasRepeats(t *testing.T, r *fixture.Trio) {
	acme := r.Replicas[0].Org(t, "repeats")
	key := acme.Key(t, tenants.ManageReports)
	acme.Import(t, `{"kind":"custom_report","id":"`+fixture.DocID(1)+`","pid":"public-report-pid-0001","title":"Shared","class":"Contacts","shareable":true}`)
	for n := range 3 {
		send := func(i int) *gatewaytest.Answer {
			return r.On(i, acme).Do(t, http.MethodPost, "/api/custom-reports/"+fixture.DocID(1)+"/share", gatewaytest.WithKey(key), fixture.JSONText(`{}`), fixture.IdempotencyKey(fmt.Sprint("key", n)))
		}
		bodies := fixture.Concurrently(24, func(i int) string {
			return send(i).Status
		})
		if bodies["ok"] != 1 { // the others came too early, or too late for what is told once
			t.Errorf("carried out by several: got %s, want 1", fixture.Tally(bodies))
		}
	}
	shares, _ := acme.Get(t, key, "/api/custom-reports/"+fixture.DocID(1)+"/shares").Field("count").(json.Number)
	if shares != "3" {
		t.Errorf("%s shares were made, want 3", shares)
	}
}

// replicasUpdates has each of several writers change its own field of one form, through a different replica each time.
// Every answer shows all writes that were acknowledged before.
func replicasUpdates(t *testing.T, r *fixture.Trio) {
	const rounds = 15
	acme := r.Replicas[0].Org(t, "updates")
	acme.Import(t, `{"kind":"form_collection","id":"`+fixture.DocID(1)+`","name":"apply_0","label":"l 0","label_plural":"p 0","schema":{"why":{"title":"t 0","type":"Text"}},"email_alerts":{"enabled":true,"subject":"s 0"}}`)
	key := acme.Key(t, tenants.ManageForms)
	write := []func(n int) map[string]any{
		func(n int) map[string]any { return map[string]any{"name": fmt.Sprint("apply_", n)} },
		func(n int) map[string]any { return map[string]any{"label": fmt.Sprint("l ", n)} },
		func(n int) map[string]any { return map[string]any{"label_plural": fmt.Sprint("p ", n)} },
		func(n int) map[string]any {
			return map[string]any{"schema": map[string]any{"why": map[string]any{"title": fmt.Sprint("t ", n), "type": "Text"}}}
		},
		func(n int) map[string]any {
			return map[string]any{"email_alerts": map[string]any{"enabled": true, "subject": fmt.Sprint("s ", n)}}
		},
	}
	// read returns the latest write of each writer in an answer.
	read := func(a *gatewaytest.Answer) (shown [5]int64) {
		var e struct {
			Data struct {
				Name, Label string
				LabelPlural string `json:"label_plural"`
				Schema      map[string]struct{ Title string }
				EmailAlerts struct{ Subject string } `json:"email_alerts"`
			}
		}
		if err := json.Unmarshal(a.Body, &e); err != nil {
			t.Errorf("%s: got %v, want no error", a.Body, err)
		}
		d := e.Data
		for i, text := range []string{strings.ReplaceAll(d.Name, "_", " "), d.Label, d.LabelPlural, d.Schema["why"].Title, d.EmailAlerts.Subject} {
			_, number, _ := strings.Cut(text, " ")
			n, err := strconv.ParseInt(number, 10, 64)
			if err != nil {
				t.Errorf("field %d is %q, want no error", i, text)
			}
			shown[i] = n
		}
		return shown
	}
	var acknowledged [5]atomic.Int64
	var writers sync.WaitGroup
	for i := range write {
		writers.Go(func() {
			for n := 1; n <= rounds; n++ {
				var before [5]int64
				for j := range before {
					before[j] = acknowledged[j].Load()
				}
				a := r.On(i+n, acme).Do(t, http.MethodPut, "/api/form/collections/"+fixture.DocID(1), gatewaytest.WithKey(key), gatewaytest.JSON(write[i](n)))
				if a.Code != http.StatusOK || a.Status != "ok" {
					t.Errorf("writer %d, update %d: got %d %s, want 200 and the status ok", i, n, a.Code, a.Body)
					continue
				}
				shown := read(a)
				for j := range before {
					if shown[j] < before[j] || j == i && shown[j] != int64(n) {
						t.Errorf("writer %d, update %d: field %d shows %d, want at least %d",
							i, n, j, shown[j], before[j])
					}
				}
				acknowledged[i].Store(int64(n))
			}
		})
	}
	writers.Wait()
	for i := range r.Replicas {
		// An empty update returns the form.
		a := r.On(i, acme).Do(t, http.MethodPut, "/api/form/collections/"+fixture.DocID(1), gatewaytest.WithKey(key), gatewaytest.JSON(map[string]any{}))
		if shown := read(a); shown != [5]int64{rounds, rounds, rounds, rounds, rounds} {
			t.Errorf("at the end replica %d shows the writes %v, want all", i, shown)
		}
	}
}

// replicasOrganizations checks that all replicas serve a new organization, and that a slug has one owner.
func replicasOrganizations(t *testing.T, r *fixture.Trio) {
	for by := range r.Replicas {
		slug := fmt.Sprintf("fresh-%d", by)
		for i := range r.Replicas { // which then know that there is no such organization
			fixture.WantDenied(t, "before it is made", r.Replicas[i].Do(t, http.MethodGet, slug+".localhost", cheapPath))
		}
		o := r.Replicas[by].Org(t, slug)
		key := gatewaytest.WithKey(o.Key(t, tenants.ManageForms))
		took := r.Agree(t, slug, by, o, func(o *gatewaytest.Org) bool { return o.Do(t, http.MethodGet, cheapPath, key).Code == http.StatusOK })
		t.Logf("%s is served everywhere after %s", slug, round(took))
	}
	for n := range 3 {
		slug := fmt.Sprintf("wanted-%d", n)
		answers := fixture.Concurrently(32, func(i int) string {
			_, err := control.Call[control.Organization](t.Context(), r.Replicas[i%fixture.ReplicaCount].Commands, "org.create", control.NewOrganization{Slug: slug, OrganizationFields: control.OrganizationFields{Name: slug}})
			return outcome(err)
		})
		if answers[madeIt] != 1 || answers[control.CodeDuplicate] != 31 {
			t.Errorf("32 creates of %s: got %s, want 1 made and 31 duplicates", slug, fixture.Tally(answers))
		}
	}
	numbers := map[int64]string{}
	list, err := control.Call[[]control.Organization](t.Context(), r.Replicas[2].Commands, "org.list", control.OrganizationPage{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range list {
		if numbers[o.ID] != "" {
			t.Errorf("%s and %s have the number %d, want different numbers", o.Slug, numbers[o.ID], o.ID)
		}
		numbers[o.ID] = o.Slug
	}
}

const madeIt = "made"

// outcome names how a command ended.
func outcome(err error) string {
	var refused *control.Error
	switch {
	case err == nil:
		return madeIt
	case errors.As(err, &refused):
		return refused.Code
	}
	return err.Error()
}

// replicasRights checks that concurrent changes of rights through all replicas do not block each other.
func replicasRights(t *testing.T, r *fixture.Trio) {
	acme := r.Replicas[0].Org(t, "rights")
	keys := make([]control.IssuedKey, 32)
	made := fixture.Concurrently(len(keys), func(i int) string {
		issued, err := control.Call[control.IssuedKey](t.Context(), r.Replicas[i%fixture.ReplicaCount].Commands, "key.create", control.NewKey{
			Org: acme.Slug, Name: fmt.Sprint("key ", i), Kind: string(tenants.ServerFull), Permissions: []string{string(tenants.ManageForms)},
		})
		keys[i] = issued
		return outcome(err)
	})
	revoked := fixture.Concurrently(len(keys), func(i int) string {
		_, err := control.Call[control.Key](t.Context(), r.Replicas[(i+1)%fixture.ReplicaCount].Commands, "key.revoke", control.KeyRef{Org: acme.Slug, ID: keys[i].ID})
		return outcome(err)
	})
	if made[madeIt] != len(keys) || revoked[madeIt] != len(keys) {
		t.Errorf("%d keys: issuing gave %s revoking %s, want all to succeed",
			len(keys), fixture.Tally(made), fixture.Tally(revoked))
	}
	r.Agree(t, "revoked keys", len(keys)%fixture.ReplicaCount, acme, func(o *gatewaytest.Org) bool {
		return o.Get(t, keys[len(keys)-1].Token, cheapPath).Code == http.StatusForbidden
	})
	for _, k := range keys {
		for i := range r.Replicas {
			fixture.WantDenied(t, "a revoked key", r.On(i, acme).Get(t, k.Token, cheapPath))
		}
	}
}

// replicasUsers checks that numbers and addresses of people are unique.
func replicasUsers(t *testing.T, r *fixture.Trio) {
	acme := r.Replicas[0].Org(t, "users")
	numbers := fixture.Concurrently(32, func(i int) int64 {
		u, err := control.Call[control.User](t.Context(), r.Replicas[i%fixture.ReplicaCount].Commands, "user.create", control.NewUser{Org: acme.Slug, UserFields: control.UserFields{Name: "New", Email: fmt.Sprintf("new%d@example.com", i)}})
		if err != nil {
			t.Errorf("user %d: got %v, want no error", i, err)
			return -int64(i)
		}
		return u.ID
	})
	if len(numbers) != 32 {
		t.Errorf("32 users have these numbers: got %s, want 32", fixture.Tally(numbers))
	}
	answers := fixture.Concurrently(32, func(i int) string {
		_, err := control.Call[control.User](t.Context(), r.Replicas[i%fixture.ReplicaCount].Commands, "user.create", control.NewUser{Org: acme.Slug, UserFields: control.UserFields{Name: "Same", Email: "same@example.com"}})
		return outcome(err)
	})
	if answers[madeIt] != 1 || answers[control.CodeDuplicate] != 31 {
		t.Errorf("32 people with one address: got %s, want 1 made and 31 duplicates", fixture.Tally(answers))
	}
}
