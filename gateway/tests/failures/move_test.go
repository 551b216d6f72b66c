package failures

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/mongo/mongotest"
	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// twoBackends adds a second backend named other: SQLite with a file for each organization, or MongoDB if there is a
// server.
func twoBackends(t testing.TB) gatewaytest.Option {
	t.Helper()
	other := config.Backend{Engine: config.EngineSQLite, Isolation: config.IsolationFile}
	if uri := os.Getenv(mongotest.Variable); uri != "" {
		var cfg config.Config
		if err := gatewaytest.UseMongo(&cfg, uri, mongotest.Database(t)); err != nil {
			t.Fatal(err)
		}
		other = cfg.Backends["mongo"]
	}
	return func(c *config.Config, _ *gateway.Options) {
		d := config.Default()
		c.Store, c.Control = d.Store, d.Control
		c.Backends = map[string]config.Backend{"default": d.Backends["default"], "other": other}
	}
}

// pace is how long a mover waits after each request. A hold takes many times as long, and more requests would only take
// the processor from other tests.
const pace = 20 * time.Millisecond

// movers write and read while an organization is moved.
type movers struct {
	o                       *gatewaytest.Org
	key                     string
	running                 sync.WaitGroup
	stop                    atomic.Bool
	writes, reads           atomic.Int64
	longestWrite, worstRead atomic.Int64 // nanoseconds
	mu                      sync.Mutex
	acknowledged            []string // names of objects
	label                   string   // of the form, as acknowledged last
}

func (m *movers) start(t *testing.T) {
	for w := range 2 {
		m.running.Go(func() {
			for i := 0; !m.stop.Load(); i++ {
				name := fmt.Sprintf("thing_%d_%d", w, m.writes.Add(1))
				began := time.Now()
				a := m.o.Do(t, http.MethodPost, "/api/custom/objects", gatewaytest.WithKey(m.key),
					gatewaytest.JSON(map[string]string{"name": name, "label": name, "label_plural": name}))
				fixture.StoreMax(&m.longestWrite, int64(time.Since(began)))
				if a.Code != http.StatusOK {
					t.Errorf("create %s: got %d %s, want 200", name, a.Code, a.Body)
					continue
				}
				m.mu.Lock()
				m.acknowledged = append(m.acknowledged, name)
				m.mu.Unlock()
				time.Sleep(pace)
			}
		})
	}
	m.running.Go(func() { // one record is changed over and over
		for i := 0; !m.stop.Load(); i++ {
			label := fmt.Sprint("label ", i)
			a := m.o.Do(t, http.MethodPut, "/api/form/collections/"+fixture.DocID(1), gatewaytest.WithKey(m.key), gatewaytest.JSON(map[string]string{"label": label}))
			if a.Code != http.StatusOK {
				t.Errorf("update: got %d %s, want 200", a.Code, a.Body)
				continue
			}
			m.mu.Lock()
			m.label = label
			m.mu.Unlock()
			time.Sleep(pace)
		}
	})
	m.running.Go(func() {
		for !m.stop.Load() {
			began := time.Now()
			a := m.o.Get(t, m.key, "/api/campaigns/count?filters[country]=DE")
			fixture.StoreMax(&m.worstRead, int64(time.Since(began)))
			m.reads.Add(1)
			if a.Code != http.StatusOK {
				t.Errorf("count: got %d %s, want 200", a.Code, a.Body)
			}
			time.Sleep(pace / 2)
		}
	})
}

func (m *movers) end() {
	m.stop.Store(true)
	m.running.Wait()
}

const smallMove = 2000

// moveSize returns the number of contacts of the moved organization. TENANTRY_TEST_MOVE sets a realistic one.
func moveSize(t *testing.T) int {
	t.Helper()
	text := os.Getenv("TENANTRY_TEST_MOVE")
	if text == "" {
		return smallMove
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestMoveUnderLoad moves an organization there and back while others write and read: every acknowledged write is kept,
// no request fails, and none waits longer than a hold.
func TestMoveUnderLoad(t *testing.T) {
	t.Parallel()
	size := moveSize(t)
	leases := fixture.ShortLeases
	if size != smallMove {
		leases = func(_ *config.Config, o *gateway.Options) { o.Leases = store.DefaultLeases() }
	}
	g := gatewaytest.Start(t, twoBackends(t), leases)
	acme := g.Org(t, "acme")
	acme.Import(t, fixture.ContactsBundle(size)...)
	m := &movers{o: acme, key: acme.Key(t, tenants.ManageCustomObjects, tenants.ManageForms)}
	m.start(t)
	for _, to := range []string{"other", "default"} {
		var steps []string
		began := time.Now()
		report, err := gatewaytest.Move(t.Context(), g.Commands, control.MoveRequest{Slug: "acme", To: to}, func(p control.Progress) {
			if p.Note != "" {
				t.Logf("%s: %s", p.Step, p.Note)
			}
			if len(steps) == 0 || steps[len(steps)-1] != p.Step {
				steps = append(steps, p.Step)
			}
		})
		if err != nil {
			t.Fatalf("move to %s: got %v, want no error", to, err)
		}
		t.Logf("to %s: %s, writes held %.1f s, steps %v", to, time.Since(began).Round(time.Millisecond), report.HeldSeconds, steps)
		if report.To != to || report.HeldSeconds <= 0 || !strings.HasSuffix(strings.Join(steps, " "), "pausing writes done") {
			t.Errorf("report = %+v, steps %v, want one to the other backend with a hold", report, steps)
		}
		var contacts int64
		for _, s := range report.Sums {
			if s.Kind == "contacts" {
				contacts = s.Documents
			}
		}
		if contacts != int64(size) {
			t.Errorf("%d contacts were compared, want %d", contacts, size)
		}
		if o, err := control.Call[control.Organization](t.Context(), g.Commands, "org.show", control.Slug{Slug: "acme"}); err != nil || o.Backend != to || o.Move != nil || o.OldCopy == "" {
			t.Errorf("after the move: got %+v, %v, want no error, Backend %v, Move nil and OldCopy set", o, err, to)
		}
	}
	m.end()
	if t.Failed() {
		for line := range strings.Lines(g.Log.String()) {
			if !strings.Contains(line, `"level":"INFO"`) || strings.Contains(line, `"code":503`) {
				t.Log(line)
			}
		}
	}
	t.Logf("%d writes, the longest %s; %d reads, the longest %s", m.writes.Load(), time.Duration(m.longestWrite.Load()), m.reads.Load(), time.Duration(m.worstRead.Load()))
	text := fixture.Export(t, acme)
	for _, name := range m.acknowledged {
		if !strings.Contains(text, `"`+name+`"`) {
			t.Errorf("%s was acknowledged and is lost, want it with %q", name, `"`+name+`"`)
		}
	}
	if !strings.Contains(text, `"label":"`+m.label+`"`) {
		t.Errorf("the form's label is not the one acknowledged last, %s, want it with %q",
			m.label, `"label":"`+m.label+`"`)
	}
	if n := strings.Count(text, `"kind":"contact"`); n != size {
		t.Errorf("got %d contacts, want %d", n, size)
	}
	o, err := control.Call[control.Organization](t.Context(), g.Commands, "org.move.finish", control.Slug{Slug: "acme"})
	if err != nil || o.OldCopy != "" {
		t.Errorf("finish: got %+v, %v, want no error and no OldCopy", o, err)
	}
	if again := fixture.Export(t, acme); again != text {
		t.Error("got a changed organization after the old copy was removed, want it unchanged")
	}
}

var untimed = regexp.MustCompile(`"retrieved_at":\d+`)

// TestMoveKeepsEverythingValid: keys, share links, sessions, encrypted values and
// identifiers work as before.
func TestMoveKeepsEverythingValid(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t, twoBackends(t), fixture.ShortLeases)
	p := w.A
	before := fixture.Export(t, p.Org)
	share := p.Get(t, "", "/api/reports/shared/"+p.IDs[fixture.RefPID]+"?token="+p.IDs[fixture.RefShare])
	reveal := p.Reveal(t, p.IDs[fixture.RefContact], fixture.SecretField, "")
	if share.Code != http.StatusOK || reveal.Code != http.StatusOK {
		t.Fatalf("got %d %s, %d %s, want %v and %v",
			share.Code, share.Body, reveal.Code, reveal.Body, http.StatusOK, http.StatusOK)
	}
	if _, err := gatewaytest.Move(t.Context(), w.Commands, control.MoveRequest{Slug: p.Slug, To: "other"}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := control.Call[control.Organization](t.Context(), w.Commands, "org.move.finish", control.Slug{Slug: p.Slug}); err != nil {
		t.Fatal(err)
	}
	if after := fixture.Export(t, p.Org); after != before {
		t.Error("got another export after the move, want it unchanged")
	}
	if a := p.Get(t, "", "/api/reports/shared/"+p.IDs[fixture.RefPID]+"?token="+p.IDs[fixture.RefShare]); untimed.ReplaceAllString(a.Text(), "") != untimed.ReplaceAllString(share.Text(), "") {
		t.Errorf("the share link: got %d %s, want the answer from before", a.Code, a.Body)
	}
	if a := p.Reveal(t, p.IDs[fixture.RefContact], fixture.SecretField, ""); a.Text() != reveal.Text() {
		t.Errorf("the encrypted value: got %d %s, want the text %q", a.Code, a.Body, reveal.Text())
	}
	if a := p.Do(t, http.MethodGet, "/api/compliance/schema", gatewaytest.Cookie(p.AdminCookie)); a.Code != http.StatusOK {
		t.Errorf("the session: got %d %s, want 200", a.Code, a.Body)
	}
	if a := w.B.Get(t, w.B.FullKey, "/api/campaigns/count"); a.Code != http.StatusOK { // stayed where it was
		t.Errorf("the other organization: got %d %s, want 200", a.Code, a.Body)
	}
}

// TestMoveKeepsFiles checks that the bytes of files can be read before, during and after a move, and that uploads during
// it are kept.
func TestMoveKeepsFiles(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, twoBackends(t), fixture.ShortLeases)
	acme := g.Org(t, "acme")
	key := acme.Key(t, tenants.ManageFiles)
	upload := func(content string) string {
		t.Helper()
		a := acme.Do(t, http.MethodPost, "/api/files/upload?filename=a.txt", gatewaytest.WithKey(key), gatewaytest.Body("text/plain", content))
		files, _ := a.Field("results").([]any)
		if a.Code != http.StatusOK || len(files) != 1 {
			t.Fatalf("upload: got %d %s", a.Code, a.Body)
		}
		file, _ := files[0].(map[string]any)
		return fmt.Sprint(file["url"])
	}
	read := func(when, address, want string) {
		t.Helper()
		at, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if a := acme.Get(t, "", at.RequestURI()); a.Code != http.StatusOK || a.Text() != want {
			t.Errorf("%s: got %d %q, want %q", when, a.Code, a.Body, want)
		}
	}
	first := upload("before")
	read("before", first, "before")
	all := map[string]string{first: "before"}
	for _, to := range []string{"other", "default"} {
		steps := map[string]bool{}
		_, err := gatewaytest.Move(t.Context(), g.Commands, control.MoveRequest{Slug: "acme", To: to}, func(p control.Progress) {
			if p.Step == "" || steps[p.Step] {
				return
			}
			steps[p.Step] = true
			read("during "+p.Step, first, "before")
			during := "during " + p.Step + " to " + to
			all[upload(during)] = during
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(steps) == 0 {
			t.Error("the move told no step, so nothing was read during it")
		}
		if _, err := control.Call[control.Organization](t.Context(), g.Commands, "org.move.finish", control.Slug{Slug: "acme"}); err != nil {
			t.Fatal(err)
		}
		for address, want := range all {
			read("after the move to "+to, address, want)
		}
	}
	if says := fixture.FileFindings(t, g); says != "" {
		t.Errorf("doctor: got %s, want nothing", says)
	}
}

// TestMoveInterrupted checks that an interrupted move can be resumed or undone, by commands that say so.
func TestMoveInterrupted(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, twoBackends(t), fixture.ShortLeases)
	acme := g.Org(t, "acme")
	acme.Import(t, fixture.ContactsBundle(200)...)
	key := acme.Key(t, tenants.ManageCustomObjects)
	create := func(name string) {
		t.Helper()
		a := acme.Do(t, http.MethodPost, "/api/custom/objects", gatewaytest.WithKey(key), gatewaytest.JSON(map[string]string{"name": name, "label": name, "label_plural": name}))
		if a.Code != http.StatusOK {
			t.Fatalf("got %d %s, want %v", a.Code, a.Body, http.StatusOK)
		}
	}
	interrupt := func() {
		t.Helper()
		cut := errors.New("cut off")
		ctx, cancel := context.WithCancelCause(t.Context())
		_, err := gatewaytest.Move(ctx, g.Commands, control.MoveRequest{Slug: "acme", To: "other"}, func(p control.Progress) {
			if p.Step == "checking" {
				cancel(cut)
			}
		})
		if interrupted := new(control.InterruptedError); !errors.As(err, &interrupted) {
			t.Fatalf("an interrupted move: got %v, want a *control.InterruptedError", err)
		}
	}
	var refused *control.Error
	if _, err := gatewaytest.Move(t.Context(), g.Commands, control.MoveRequest{Slug: "acme", To: "nowhere"}, nil); !errors.As(err, &refused) || refused.Code != control.CodeInvalid || !strings.Contains(refused.Message, "default, other") {
		t.Errorf("to nowhere: got %v, want a refusal, the code invalid and with %q", err, "default, other")
	}
	if _, err := gatewaytest.Move(t.Context(), g.Commands, control.MoveRequest{Slug: "acme", To: "default"}, nil); !errors.As(err, &refused) || refused.Code != control.CodeInvalid {
		t.Errorf("to where it is: got %v, want a refusal and the code invalid", err)
	}
	if _, err := control.Call[control.Organization](t.Context(), g.Commands, "org.move.rollback", control.Slug{Slug: "acme"}); !errors.As(err, &refused) || refused.Code != control.CodeConflict {
		t.Errorf("rolling back nothing: got %v, want a refusal and the code conflict", err)
	}

	interrupt()
	create("during_the_first")
	if o, err := control.Call[control.Organization](t.Context(), g.Commands, "org.show", control.Slug{Slug: "acme"}); err != nil || o.Backend != "default" || o.Move == nil || o.Move.To != "other" {
		t.Fatalf(`got %+v, %v, want no error and o.Backend = "default" and o.Move other than nil and o.Move.To = "other"`,
			o, err)
	}
	if _, err := control.Call[control.Organization](t.Context(), g.Commands, "org.move.finish", control.Slug{Slug: "acme"}); !errors.As(err, &refused) || refused.Code != control.CodeConflict {
		t.Errorf("finishing what goes on: got %v, want a refusal and the code conflict", err)
	}
	o, err := control.Call[control.Organization](t.Context(), g.Commands, "org.move.rollback", control.Slug{Slug: "acme"})
	if err != nil || o.Move != nil || o.OldCopy != "" || o.Backend != "default" {
		t.Fatalf("rolled back: got %+v, %v, want no error, Move nil, no OldCopy and Backend default", o, err)
	}

	interrupt()
	create("during_the_second")
	if _, err := gatewaytest.Move(t.Context(), g.Commands, control.MoveRequest{Slug: "acme", To: "other"}, nil); err != nil {
		t.Fatalf("resumed: got %v, want no error", err)
	}
	text := fixture.Export(t, acme)
	for _, name := range []string{"during_the_first", "during_the_second"} {
		if !strings.Contains(text, name) {
			t.Errorf("%s is lost, want it there", name)
		}
	}
	if n := strings.Count(text, `"kind":"contact"`); n != 200 {
		t.Errorf("got %d contacts, want 200", n)
	}
	if _, err := control.Call[control.Certificate](t.Context(), g.Commands, "org.delete", control.Deletion{Slug: "acme", Now: true}); err != nil {
		t.Errorf("deleting it: got %v, want no error", err)
	}
}
