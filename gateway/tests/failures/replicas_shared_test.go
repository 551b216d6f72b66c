package failures

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/mongo/mongotest"
	"tenantry/config"
	"tenantry/crypto/keyring"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
	"tenantry/tenants/redistest"
)

// TestReplicasShareLimits sends three replicas more requests than a limit admits. Together they admit what it says, and
// at most one more window; without Redis each replica admits that by itself.
func TestReplicasShareLimits(t *testing.T) {
	t.Parallel()
	r := fixture.StartTrio(t)
	const rate = 10
	text := fmt.Sprintf("%d/s", rate)
	whole, keyed := r.Replicas[0].Org(t, "whole"), r.Replicas[0].Org(t, "keyed")
	if _, err := control.Call[control.RequestLimits](t.Context(), r.Replicas[0].Commands, "org.limits", control.LimitsChange{Org: whole.Slug, Rate: &text}); err != nil {
		t.Fatal(err)
	}
	offers := []*offer{
		{what: "organization", o: whole, keys: []string{whole.Key(t, tenants.ManageForms), whole.Key(t, tenants.ManageForms), whole.Key(t, tenants.ManageForms)}},
		{what: "key", o: keyed, keys: []string{keyed.KeyWith(t, func(k *control.NewKey) { k.Permissions, k.Rate = []string{string(tenants.ManageForms)}, text }).Token}},
	}
	load := func(t *testing.T, lasts time.Duration) time.Duration {
		t.Helper()
		began := time.Now()
		var senders sync.WaitGroup
		for _, o := range offers {
			o.accepted, o.refused = [fixture.ReplicaCount]atomic.Int64{}, [fixture.ReplicaCount]atomic.Int64{}
			for i := range 4 * fixture.ReplicaCount {
				senders.Go(func() {
					// However slow the machine is, more requests are sent than admitted.
					enough := func() bool {
						return o.accepted[i%fixture.ReplicaCount].Load() >= rate && o.refused[i%fixture.ReplicaCount].Load() > 0
					}
					for n := 0; time.Since(began) < lasts || !enough() && time.Since(began) < time.Minute; n++ {
						o.send(t, r, i%fixture.ReplicaCount, n)
						time.Sleep(5 * time.Millisecond)
					}
				})
			}
		}
		senders.Wait()
		return time.Since(began)
	}
	// Every replica knows the limit first.
	for _, o := range offers {
		for i := range r.Replicas {
			r.Agree(t, "limit", i, o.o, func(at *gatewaytest.Org) bool {
				return at.Get(t, o.keys[0], cheapPath).Header.Get("RateLimit-Limit") == fmt.Sprint(rate)
			})
		}
	}
	alone := func() (n int) { // requests that a replica counted by itself, because Redis answered too late
		for _, replica := range r.Replicas {
			n += fixture.Metric(t, replica, "tenantry_limits_local_total")
		}
		return n
	}
	before := alone()
	took := load(t, 3*time.Second)
	late := alone() - before
	for _, o := range offers {
		most := int64(rate*(took.Seconds()+1)) + int64(late)
		accepted, refused := o.sums()
		t.Logf("%s: %d accepted and %d refused in %s; at most %d", o.what, accepted, refused, round(took), most)
		if accepted > most || accepted < rate || refused == 0 {
			t.Errorf("%s: %d accepted, %d refused, want at most %d accepted in %s and some refused",
				o.what, accepted, refused, most, took)
		}
	}
	r.Redis.Kill()
	took = load(t, 2*time.Second)
	for _, o := range offers {
		most := int64(rate * (took.Seconds() + 1))
		for i := range o.accepted {
			if accepted, refused := o.accepted[i].Load(), o.refused[i].Load(); accepted > most || accepted < rate || refused == 0 {
				t.Errorf("%s without Redis: replica %d accepted %d and refused %d, want at most %d accepted in %s and some refused",
					o.what, i, accepted, refused, most, took)
			}
		}
		accepted, refused := o.sums()
		t.Logf("%s without Redis: %d accepted and %d refused in %s, at most %d by each replica", o.what, accepted, refused, round(took), most)
	}
	withoutAnnouncements(t, r, whole, offers[0].keys[0])
}

// withoutAnnouncements changes an organization while replicas receive no announcements.
func withoutAnnouncements(t *testing.T, r *fixture.Trio, o *gatewaytest.Org, key string) {
	t.Helper()
	rate := "100000/s"
	steps := []struct {
		what  string
		do    func(c *control.Client) error
		shown func(a *gatewaytest.Answer) bool
	}{
		{"a suspension", func(c *control.Client) error {
			_, err := control.Call[control.Organization](t.Context(), c, "org.suspend", control.Slug{Slug: o.Slug})
			return err
		}, func(a *gatewaytest.Answer) bool { return a.Code == http.StatusForbidden }},
		{"its end", func(c *control.Client) error {
			_, err := control.Call[control.Organization](t.Context(), c, "org.resume", control.Slug{Slug: o.Slug})
			return err
		}, func(a *gatewaytest.Answer) bool { return a.Code != http.StatusForbidden }},
		{"a limit", func(c *control.Client) error {
			_, err := control.Call[control.RequestLimits](t.Context(), c, "org.limits", control.LimitsChange{Org: o.Slug, KeyRate: &rate, Rate: &rate})
			return err
		}, func(a *gatewaytest.Answer) bool { return a.Header.Get("RateLimit-Limit") == "100000" }},
	}
	for by, step := range steps {
		if err := step.do(r.Replicas[by].Commands); err != nil {
			t.Fatalf("%s: got %v, want no error", step.what, err)
		}
		took := r.Agree(t, step.what+" without Redis", by, o, func(at *gatewaytest.Org) bool { return step.shown(at.Get(t, key, cheapPath)) })
		t.Logf("%s without Redis: known everywhere after %s", step.what, round(took))
	}
}

// offer is the load on one limit.
type offer struct {
	what     string
	o        *gatewaytest.Org
	keys     []string
	accepted [fixture.ReplicaCount]atomic.Int64
	refused  [fixture.ReplicaCount]atomic.Int64
}

func (o *offer) send(t *testing.T, r *fixture.Trio, i, n int) {
	switch code := r.Ask(t, i, o.o.Host, cheapPath, o.keys[n%len(o.keys)]); code {
	case http.StatusOK:
		o.accepted[i].Add(1)
	case http.StatusTooManyRequests:
		o.refused[i].Add(1)
	default:
		t.Errorf("%s: replica %d answers %d, want 200 or 429", o.what, i, code)
	}
}

func (o *offer) sums() (accepted, refused int64) {
	for i := range o.accepted {
		accepted += o.accepted[i].Load()
		refused += o.refused[i].Load()
	}
	return accepted, refused
}

// TestReplicasShareKeyring checks that replicas follow a change of the keyring by one of them, and that encrypted
// values stay readable on all of them.
func TestReplicasShareKeyring(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64 // of the clocks
	r := fixture.StartTrio(t, func(_ *config.Config, o *gateway.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	// A replica may use an opened key for a minute.
	aMinute := func() { ahead.Add(int64(time.Minute + time.Second)) }
	var secrets []*secretHolder
	hold := func(slug string, by int) {
		t.Helper()
		o := r.Replicas[by].Org(t, slug)
		o.Import(t, `{"kind":"contact_field","key":"ssn","title":"SSN","type":"Encrypted"}`,
			`{"kind":"contact","id":"`+fixture.DocID(1)+`","email":"a@example.com","fields":{"ssn":"secret of `+slug+`"}}`)
		secrets = append(secrets, &secretHolder{o: o, key: o.Key(t, tenants.Contacts), want: "secret of " + slug})
	}
	readable := func(what string) {
		t.Helper()
		for _, s := range secrets {
			for i := range r.Replicas {
				s.check(t, what, r.On(i, s.o))
			}
		}
	}
	hold("before", 0)
	readable("before")

	var readers sync.WaitGroup
	var stop atomic.Bool
	defer readers.Wait()
	defer stop.Store(true)
	first := secrets[0]
	for i := range r.Replicas {
		for range 3 { // at once, when what they have opened is too old
			readers.Go(func() {
				for !stop.Load() {
					first.check(t, "all the time", r.On(i, first.o))
					time.Sleep(5 * time.Millisecond)
				}
			})
		}
	}
	for n := range 3 { // one after the other, each on another replica
		made, err := control.Call[control.Rotation](t.Context(), r.Replicas[n].Commands, "keyring.rotate", struct{}{})
		if err != nil || made.Version != n+2 || made.Rewrapped == 0 {
			t.Fatalf("rotation %d: got %+v, %v, want no error, Version %v and at least 1 made.Rewrapped",
				n, made, err, n+2)
		}
		readable("just rotated")
		aMinute()
		readable("a minute after the rotation")
	}
	// The version is retired through another replica than the one that made the new one, while the third has not read
	// the file since.
	if made, err := control.Call[control.Rotation](t.Context(), r.Replicas[0].Commands, "keyring.rotate", struct{}{}); err != nil || made.Version != 5 {
		t.Fatalf("got %+v, %v, want no error and made.Version = 5", made, err)
	}
	for version := 1; version <= 4; version++ {
		if _, err := control.Call[control.Retired](t.Context(), r.Replicas[1].Commands, "keyring.retire", control.Version{Version: version}); err != nil {
			t.Fatalf("retiring version %d: got %v, want no error", version, err)
		}
	}
	hold("after", 2) // and makes a first data key now
	readable("just retired")
	aMinute()
	readable("a minute after the retirement")
	for i := range r.Replicas {
		list, err := control.Call[[]control.EncryptionKey](t.Context(), r.Replicas[i].Commands, "keyring.list", struct{}{})
		if err != nil {
			t.Fatal(err)
		}
		states := ""
		for _, k := range list {
			states += k.State + " "
		}
		if states != "retired retired retired retired primary " {
			t.Errorf("replica %d lists %s, want four retired versions and a primary one", i, states)
		}
	}
	outdated, err := os.ReadFile(r.Replicas[0].Config.KeyringPath())
	if err != nil {
		t.Fatal(err)
	}
	if made, err := control.Call[control.Rotation](t.Context(), r.Replicas[1].Commands, "keyring.rotate", struct{}{}); err != nil || made.Version != 6 || made.Rewrapped < 2 {
		t.Errorf("rotating again: got %+v, %v, want no error, Version 6 and Rewrapped at least 2", made, err)
	}
	aMinute()
	readable("a minute after rotating again")
	stop.Store(true)
	readers.Wait()
	replicaOfAnotherKeyring(t, r, outdated)
	late := gatewaytest.Start(t, r.Join)
	for _, s := range secrets {
		s.check(t, "on a fourth replica", &gatewaytest.Org{Gateway: late, Slug: s.o.Slug, Host: s.o.Host})
	}
}

// TestReplicasStartTogether starts three replicas concurrently on an empty installation, as a first "docker compose up"
// does.
func TestReplicasStartTogether(t *testing.T) {
	t.Parallel()
	var store config.Config
	if err := gatewaytest.UseMongo(&store, mongotest.URI(t), mongotest.Database(t)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "keyring.json")
	redis := redistest.Start(t)
	apps := make([]gatewaytest.App, fixture.ReplicaCount)
	folders := make([]string, fixture.ReplicaCount)
	for i := range folders {
		folders[i] = t.TempDir()
	}
	started := fixture.Concurrently(fixture.ReplicaCount, func(i int) string {
		cfg := config.Default()
		cfg.Data, cfg.Listen, cfg.AdminListen, cfg.Keyring = folders[i], "127.0.0.1:0", "", path
		cfg.Backends, cfg.Store, cfg.Control = store.Backends, store.Store, store.Control
		cfg.Redis.Addrs = []string{redis.Addr}
		var err error
		apps[i], err = gatewaytest.New(t.Context(), cfg, gateway.Options{Init: true})
		return outcome(err)
	})
	for _, app := range apps {
		if app != nil {
			defer func() {
				if err := app.Close(); err != nil {
					t.Error(err)
				}
			}()
		}
	}
	if started[madeIt] != fixture.ReplicaCount {
		t.Errorf("three replicas at once: got %s, want all started", fixture.Tally(started))
	}
}

// replicaOfAnotherKeyring tries to start a fourth replica with a keyring of its own, with none, and with one without
// the newest version.
func replicaOfAnotherKeyring(t *testing.T, r *fixture.Trio, outdated []byte) {
	t.Helper()
	try := func(path string) error {
		t.Helper()
		cfg := r.Replicas[1].Config
		cfg.Data, cfg.Keyring = t.TempDir(), path
		app, err := gatewaytest.New(t.Context(), cfg, gateway.Options{})
		if err == nil {
			err = errors.Join(errors.New("it started"), app.Close())
		}
		return err
	}
	dir := t.TempDir()
	if _, err := keyring.Create(filepath.Join(dir, "other.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "outdated.json"), outdated, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"other.json", "outdated.json"} {
		if err := try(filepath.Join(dir, name)); !errors.Is(err, tenants.ErrForeignKeyring) {
			t.Errorf("with %s: got %v, want the error %v", name, err, tenants.ErrForeignKeyring)
		}
	}
	if err := try(filepath.Join(dir, "none.json")); err == nil || !strings.Contains(err.Error(), "copy it from another replica") {
		t.Errorf("without a keyring: got %v, want an error with %q", err, "copy it from another replica")
	}
	if _, err := os.Stat(filepath.Join(dir, "none.json")); err == nil {
		t.Error("got a keyring made by a replica without one, want none")
	}
}

// secretHolder is an organization with an encrypted value.
type secretHolder struct {
	o         *gatewaytest.Org
	key, want string
}

func (s *secretHolder) check(t *testing.T, what string, at *gatewaytest.Org) {
	t.Helper()
	a := at.Get(t, s.key, "/api/contacts/"+fixture.DocID(1)+"/reveal-secret?field=ssn")
	if a.Code != http.StatusOK || a.Field("field_value") != s.want {
		t.Errorf("%s, %s by %s: got %d %s, want 200 and field_value %v",
			what, s.o.Slug, at.App.Addr(), a.Code, a.Body, s.want)
	}
}

// TestReplicasWorkDuringAMove moves an organization through one replica while all three write and read: nothing fails,
// no acknowledged write is lost, and nobody waits longer than a hold.
func TestReplicasWorkDuringAMove(t *testing.T) {
	t.Parallel()
	uri := mongotest.URI(t)
	var own config.Config // one database an organization
	if err := gatewaytest.UseMongo(&own, uri, mongotest.Database(t)); err != nil {
		t.Fatal(err)
	}
	r := fixture.StartTrio(t, func(c *config.Config, _ *gateway.Options) {
		other := own.Backends["mongo"]
		other.Isolation = config.IsolationDatabase
		c.Backends["other"] = other
	})
	acme := r.Replicas[0].Org(t, "acme")
	lines := fixture.ContactsBundle(300)
	for i := range r.Replicas {
		lines = append(lines, fmt.Sprintf(`{"kind":"form_collection","id":"%s","name":"form_%d","label":"label 0 of %d","label_plural":"Forms %d"}`, fixture.DocID(10+i), i, i, i))
	}
	acme.Import(t, lines...)
	m := &moveWriters{Trio: r, o: acme, key: acme.Key(t, tenants.ManageCustomObjects, tenants.ManageForms)}
	m.start(t)
	defer m.end()
	// The first replica is interrupted, and another continues.
	ctx, cut := context.WithCancel(t.Context())
	if _, err := gatewaytest.Move(ctx, r.Replicas[2].Commands, control.MoveRequest{Slug: acme.Slug, To: "other"}, func(p control.Progress) {
		if p.Step == "checking" {
			cut()
		}
	}); err == nil {
		t.Error("got no interruption of the move, want one")
	}
	cut()
	for n, to := range []string{"other", "mongo"} {
		began := time.Now()
		report, err := gatewaytest.Move(t.Context(), r.Replicas[n].Commands, control.MoveRequest{Slug: acme.Slug, To: to}, nil)
		if err != nil {
			t.Fatalf("move to %s: got %v, want no error", to, err)
		}
		t.Logf("to %s through replica %d: %s, writes held %.1f s", to, n, round(time.Since(began)), report.HeldSeconds)
		for i := range r.Replicas {
			if o, err := control.Call[control.Organization](t.Context(), r.Replicas[i].Commands, "org.show", control.Slug{Slug: acme.Slug}); err != nil || o.Backend != to {
				t.Errorf("replica %d: got %+v, %v, want no error and Backend %v", i, o, err, to)
			}
		}
		m.pass(t) // every one goes on there
		if _, err := control.Call[control.Organization](t.Context(), r.Replicas[(n+1)%fixture.ReplicaCount].Commands, "org.move.finish", control.Slug{Slug: acme.Slug}); err != nil {
			t.Errorf("finishing on another replica: got %v, want no error", err)
		}
		m.pass(t)
	}
	m.end()
	t.Logf("%d objects and %d changes acknowledged by three replicas, the longest write %s", len(m.created), m.changes.Load(), round(time.Duration(m.longest.Load())))
	if longest := time.Duration(m.longest.Load()); longest > 6*time.Second {
		t.Errorf("a write waited %s, want at most 6 s", longest)
	}
	for i := range r.Replicas {
		text := fixture.Export(t, r.On(i, acme))
		for _, name := range m.created {
			if !strings.Contains(text, `"`+name+`"`) {
				t.Errorf("%s was acknowledged, and replica %d lacks it, want it with %q", name, i, `"`+name+`"`)
			}
		}
		for w := range r.Replicas {
			if want := fmt.Sprintf(`"label":"label %d of %d"`, m.labels[w].Load(), w); !strings.Contains(text, want) {
				t.Errorf("replica %d lacks the last change, %s", i, want)
			}
		}
		if n := strings.Count(text, `"kind":"contact"`); n != 300 {
			t.Errorf("replica %d has %d contacts, want 300", i, n)
		}
	}
}

// moveWriters write and read through every replica.
type moveWriters struct {
	*fixture.Trio
	o       *gatewaytest.Org
	key     string
	wg      sync.WaitGroup
	stop    atomic.Bool
	rounds  [fixture.ReplicaCount]atomic.Int64
	changes atomic.Int64
	longest atomic.Int64 // of a write, nanoseconds
	labels  [fixture.ReplicaCount]atomic.Int64
	mu      sync.Mutex
	created []string
}

func (m *moveWriters) start(t *testing.T) {
	for i := range m.Replicas {
		at := m.On(i, m.o)
		m.wg.Go(func() {
			for n := int64(1); !m.stop.Load(); n++ {
				name := fmt.Sprintf("thing_%d_%d", i, n)
				if m.write(t, at, http.MethodPost, "/api/custom/objects", map[string]string{"name": name, "label": name, "label_plural": name}) {
					m.mu.Lock()
					m.created = append(m.created, name)
					m.mu.Unlock()
				}
				if m.write(t, at, http.MethodPut, "/api/form/collections/"+fixture.DocID(10+i), map[string]string{"label": fmt.Sprintf("label %d of %d", n, i)}) {
					m.labels[i].Store(n)
					m.changes.Add(1)
				}
				m.rounds[i].Add(1)
				time.Sleep(100 * time.Millisecond)
			}
		})
		m.wg.Go(func() {
			for !m.stop.Load() {
				if a := at.Get(t, m.key, "/api/campaigns/count?filters[country]=DE"); a.Code != http.StatusOK || !strings.Contains(a.Text(), "150") {
					t.Errorf("count on replica %d: got %d %s, want 200 with 150", i, a.Code, a.Body)
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
}

func (m *moveWriters) write(t *testing.T, at *gatewaytest.Org, method, path string, body map[string]string) bool {
	began := time.Now()
	a := at.Do(t, method, path, gatewaytest.WithKey(m.key), gatewaytest.JSON(body))
	fixture.StoreMax(&m.longest, int64(time.Since(began)))
	if a.Code != http.StatusOK {
		t.Errorf("got %s %v: %d %s, want %v", method, body, a.Code, a.Body, http.StatusOK)
	}
	return a.Code == http.StatusOK
}

// pass waits until every replica has written two more times.
func (m *moveWriters) pass(t *testing.T) {
	t.Helper()
	var seen [fixture.ReplicaCount]int64
	for i := range seen {
		seen[i] = m.rounds[i].Load() + 2
	}
	deadline := time.Now().Add(30 * time.Second)
	for i := range seen {
		for m.rounds[i].Load() < seen[i] {
			if time.Now().After(deadline) {
				t.Fatalf("replica %d writes no more, want it to go on", i)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

func (m *moveWriters) end() {
	m.stop.Store(true)
	m.wg.Wait()
}
