package isolation

import (
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
)

// leaks returns a mark or identifier of the stranger that the answer contains and the request did not.
func leaks(stranger *fixture.Party, q fixture.Call, a *gatewaytest.Answer) string {
	var head strings.Builder
	_ = a.Header.Write(&head)
	answer, asked := strings.ToLower(head.String()+a.Text()), strings.ToLower(q.Text)
	if unescaped, err := url.QueryUnescape(asked); err == nil {
		asked += unescaped
	}
	for _, mark := range []string{stranger.Mark, stranger.Prefix, stranger.Host} {
		for rest := answer; ; {
			at := strings.Index(rest, mark)
			if at < 0 {
				break
			}
			found := rest[at:min(len(rest), at+len(mark)+8)]
			if end := strings.IndexFunc(found, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '.' }); end > 0 {
				found = found[:end]
			}
			if !strings.Contains(asked, found) {
				return found
			}
			rest = rest[at+len(mark):]
		}
	}
	return ""
}

func TestNoAnswerHoldsAnotherOrganizationsData(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t)
	// The scan must be able to fail: each organization's own answers are full of its marks.
	own := w.A.Get(t, w.A.FullKey, "/api/files/folders/"+w.A.IDs[fixture.RefFolder])
	if leaks(w.A, fixture.Call{}, own) == "" || leaks(w.B, fixture.Call{}, own) != "" {
		t.Fatalf("the scan finds no mark, or that of another organization, in %s, want its own", own.Body)
	}
	total, seed := 4000, uint64(20240517)
	if os.Getenv("TENANTRY_TEST_LONG") != "" {
		total, seed = 100_000, rand.Uint64()
	}
	t.Logf("seed %d", seed)
	asked := map[*fixture.Party]*gatewaytest.Buffer{w.A: {}, w.B: {}}
	const workers = 4
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			r := &roamer{World: w, Rand: rand.New(rand.NewPCG(seed, uint64(worker))), rows: w.App.Operations(), asked: asked}
			for range total / workers {
				if t.Failed() {
					return
				}
				r.step(t)
			}
		})
	}
	wg.Wait()
}

// roamer makes random calls.
type roamer struct {
	*fixture.World
	*rand.Rand
	rows  []operation.Row
	asked map[*fixture.Party]*gatewaytest.Buffer // what all roamers asked
}

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }

func (r *roamer) step(t *testing.T) {
	parties := []*fixture.Party{r.A, r.B}
	host, stranger := r.A, r.B
	if r.IntN(2) == 0 {
		host, stranger = r.B, r.A
	}
	op := pick(r.Rand, r.rows)
	s := fixture.SampleFor(&op)
	if s.Slow && r.IntN(20) > 0 {
		return
	}
	foreign := r.IntN(3) == 0 // else a call of the organization's own, which is answered
	q := r.Build(&op, pick(r.Rand, op.Paths()), s, func(at fixture.Slot) (string, bool) {
		if strings.Contains(at.Name, " teams") && r.IntN(6) > 0 {
			return "", false
		}
		owner := host
		if foreign && op.Name != "forms.publish" { // whose public identifier is a text of the caller's own
			owner = pick(r.Rand, parties)
		}
		id := owner.IDs[at.Ref]
		if fixture.IsID(id) && r.IntN(4) == 0 {
			id = owner.ID(r.IntN(90))
		}
		if r.IntN(12) == 0 {
			id = fixture.RandomLike(id)
		}
		return id, true
	}, func(name string) bool { return name == "field" || r.IntN(3) == 0 })
	who := host
	if r.IntN(6) == 0 {
		who = stranger
	}
	shown := pick(r.Rand, []func() []gatewaytest.Request{
		func() []gatewaytest.Request { return []gatewaytest.Request{gatewaytest.WithKey(who.FullKey)} },
		func() []gatewaytest.Request { return []gatewaytest.Request{gatewaytest.WithKey(who.FullKey)} },
		func() []gatewaytest.Request { return []gatewaytest.Request{gatewaytest.WithKey(who.ReadKey)} },
		func() []gatewaytest.Request { return []gatewaytest.Request{gatewaytest.Cookie(who.AdminCookie)} },
		func() []gatewaytest.Request { return []gatewaytest.Request{gatewaytest.Cookie(who.MemberCookie)} },
		func() []gatewaytest.Request { return nil },
	})()
	if op.Name == "sessions.delete" {
		shown = nil // the sessions are needed again
	}
	if r.IntN(10) == 0 {
		shown = append(shown, gatewaytest.Header("X-Forwarded-Host", stranger.Host), gatewaytest.Header("Prefer", "handling=strict"))
	}
	_, _ = r.asked[host].Write([]byte(q.Text + "\n")) // to memory
	a := host.Do(t, q.Method, q.Target, append(q.Changes, shown...)...)
	if op.Resource == "audit_record" { // it tells what was asked before
		q.Text = r.asked[host].String()
	}
	fixture.WantPlain(t, q.Method+" "+q.Target, a)
	if a.Code >= http.StatusInternalServerError {
		t.Errorf("%s %s on %s: got %d %.300s, want a code below 500", q.Method, q.Text, host.Slug, a.Code, a.Body)
	}
	if found := leaks(stranger, q, a); found != "" {
		t.Errorf("%s %s on %s shows %q of %s, want it nowhere:\n%d %.2000s",
			q.Method, q.Text, host.Slug, found, stranger.Slug, a.Code, a.Body)
	}
}

func TestSameIdentifierOnTwoHostsAtOnce(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	w := &fixture.World{Gateway: g}
	w.A = fixture.NewParty(t, g, "acme", "5a5a5a5a5a5a5a5a", 7000)
	w.B = fixture.NewParty(t, g, "birch", "5a5a5a5a5a5a5a5a", 7000)
	w.A.AddPeople(t)
	w.B.AddPeople(t)
	// Differences are removed where possible.
	for _, p := range []*fixture.Party{w.A, w.B} {
		p.Import(t, `{"kind":"custom_report","id":"5a5a5a5a5a5a5a5a000000a1","pid":"the-same-on-both-hosts","secure":false,"title":"`+p.NewText()+`","class":"Contacts","query":{"fields":["email"]}}`,
			`{"kind":"custom_object","id":"5a5a5a5a5a5a5a5a000000a2","name":"same","label":"`+p.NewText()+`","label_plural":"`+p.NewText()+`","schema":{"x":{"title":"`+p.NewText()+`","type":"Text"}}}`)
	}
	paths := []string{
		"/api/files/folders/" + w.A.ID(11), "/api/custom-reports/" + w.A.ID(80), "/api/users/7001",
		"/api/contacts/" + w.A.ID(30) + "/reveal-secret?field=" + fixture.SecretField, "/api/reports/shared/the-same-on-both-hosts?data=1",
		"/api/form/collections/schema?id=" + w.A.ID(70), "/api/custom/objects/schema?name=same",
	}
	rounds := 200
	if os.Getenv("TENANTRY_TEST_LONG") != "" {
		rounds = 2000
	}
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			p, other := w.A, w.B
			if worker%2 == 1 {
				p, other = w.B, w.A
			}
			for i := range rounds {
				path := paths[(i+worker/2)%len(paths)]
				show := gatewaytest.WithKey(p.FullKey)
				if i%5 == 0 && !strings.Contains(path, "/contacts/") {
					show = gatewaytest.Cookie(p.AdminCookie)
				}
				a := p.Do(t, http.MethodGet, path, show)
				if a.Code != http.StatusOK || !strings.Contains(a.Text(), p.Mark) || strings.Contains(a.Text(), other.Mark) {
					t.Errorf("%s on %s: got %d %.400s, want 200, with %q and without %q",
						path, p.Slug, a.Code, a.Body, p.Mark, other.Mark)
					return
				}
			}
		})
	}
	wg.Wait()
}
