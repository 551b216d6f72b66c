package gateway_test

import (
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"tenantry/gateway/gatewaytest"
	"tenantry/operation"
)

// leaks returns a marker or identifier of the stranger that the answer holds though the
// request did not.
func leaks(stranger *party, q ask, a *gatewaytest.Answer) string {
	var head strings.Builder
	_ = a.Header.Write(&head)
	answer, asked := strings.ToLower(head.String()+a.Text()), strings.ToLower(q.text)
	if unescaped, err := url.QueryUnescape(asked); err == nil {
		asked += unescaped
	}
	for _, mark := range []string{stranger.mark, stranger.prefix, stranger.Host} {
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
	w := newWorld(t)
	// The scan must be able to fail: each organization's own answers are full of its marks.
	own := w.a.Get(t, w.a.key, "/api/files/folders/"+w.a.ids[refFolder])
	if leaks(w.a, ask{}, own) == "" || leaks(w.b, ask{}, own) != "" {
		t.Fatalf("the scan finds nothing in %s", own.Body)
	}
	total, seed := 4000, uint64(20240517)
	if os.Getenv("TENANTRY_TEST_LONG") != "" {
		total, seed = 100_000, rand.Uint64()
	}
	t.Logf("seed %d", seed)
	asked := map[*party]*gatewaytest.Buffer{w.a: {}, w.b: {}}
	const workers = 4
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			r := &roamer{world: w, Rand: rand.New(rand.NewPCG(seed, uint64(worker))), rows: w.App.Operations(), asked: asked}
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
	*world
	*rand.Rand
	rows  []operation.Row
	asked map[*party]*gatewaytest.Buffer // what all roamers asked
}

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }

func (r *roamer) step(t *testing.T) {
	parties := []*party{r.a, r.b}
	host, stranger := r.a, r.b
	if r.IntN(2) == 0 {
		host, stranger = r.b, r.a
	}
	op := pick(r.Rand, r.rows)
	s := sampleFor(&op)
	if s.slow && r.IntN(20) > 0 {
		return
	}
	foreign := r.IntN(3) == 0 // else a call of the organization's own, which is answered
	q := r.build(&op, pick(r.Rand, op.Paths()), s, func(at slot) (string, bool) {
		if strings.Contains(at.name, " teams") && r.IntN(6) > 0 {
			return "", false
		}
		owner := host
		if foreign {
			owner = pick(r.Rand, parties)
		}
		id := owner.ids[at.ref]
		if isID(id) && r.IntN(4) == 0 {
			id = owner.id(r.IntN(90))
		}
		if r.IntN(12) == 0 {
			id = randomLike(id)
		}
		return id, true
	}, func(name string) bool { return name == "field" || r.IntN(3) == 0 })
	who := host
	if r.IntN(6) == 0 {
		who = stranger
	}
	shown := pick(r.Rand, []func() []gatewaytest.Request{
		func() []gatewaytest.Request { return []gatewaytest.Request{gatewaytest.WithKey(who.key)} },
		func() []gatewaytest.Request { return []gatewaytest.Request{gatewaytest.WithKey(who.key)} },
		func() []gatewaytest.Request { return []gatewaytest.Request{gatewaytest.WithKey(who.readKey)} },
		func() []gatewaytest.Request { return []gatewaytest.Request{gatewaytest.Cookie(who.adminCookie)} },
		func() []gatewaytest.Request { return []gatewaytest.Request{gatewaytest.Cookie(who.cookie)} },
		func() []gatewaytest.Request { return nil },
	})()
	if op.Name == "sessions.delete" {
		shown = nil // the sessions are needed again
	}
	if r.IntN(10) == 0 {
		shown = append(shown, gatewaytest.Header("X-Forwarded-Host", stranger.Host), gatewaytest.Header("Prefer", "handling=strict"))
	}
	_, _ = r.asked[host].Write([]byte(q.text + "\n")) // to memory
	a := host.Do(t, q.method, q.target, append(q.changes, shown...)...)
	if op.Resource == "audit_record" { // it tells what was asked before
		q.text = r.asked[host].String()
	}
	wantPlain(t, q.method+" "+q.target, a)
	if a.Code >= http.StatusInternalServerError {
		t.Errorf("%s %s on %s: %d %.300s", q.method, q.text, host.Slug, a.Code, a.Body)
	}
	if found := leaks(stranger, q, a); found != "" {
		t.Errorf("%s %s on %s shows %q of %s:\n%d %.2000s", q.method, q.text, host.Slug, found, stranger.Slug, a.Code, a.Body)
	}
}

func TestSameIdentifierOnTwoHostsAtOnce(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	w := &world{Gateway: g}
	w.a = newParty(t, g, "acme", "5a5a5a5a5a5a5a5a", 7000)
	w.b = newParty(t, g, "birch", "5a5a5a5a5a5a5a5a", 7000)
	w.a.signIn(t)
	w.b.signIn(t)
	// What differs is made the same, where it can be.
	for _, p := range []*party{w.a, w.b} {
		p.Import(t, `{"kind":"custom_report","id":"5a5a5a5a5a5a5a5a000000a1","pid":"the-same-on-both-hosts","secure":false,"title":"`+p.text()+`","class":"Contacts","query":{"fields":["email"]}}`,
			`{"kind":"custom_object","id":"5a5a5a5a5a5a5a5a000000a2","name":"same","label":"`+p.text()+`","label_plural":"`+p.text()+`","schema":{"x":{"title":"`+p.text()+`","type":"Text"}}}`)
	}
	paths := []string{
		"/api/files/folders/" + w.a.id(11), "/api/custom-reports/" + w.a.id(80), "/api/users/7001",
		"/api/contacts/" + w.a.id(30) + "/reveal-secret?field=" + secretField, "/api/reports/shared/the-same-on-both-hosts?data=1",
		"/api/form/collections/schema?id=" + w.a.id(70), "/api/custom/objects/schema?name=same",
	}
	rounds := 200
	if os.Getenv("TENANTRY_TEST_LONG") != "" {
		rounds = 2000
	}
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			p, other := w.a, w.b
			if worker%2 == 1 {
				p, other = w.b, w.a
			}
			for i := range rounds {
				path := paths[(i+worker/2)%len(paths)]
				show := gatewaytest.WithKey(p.key)
				if i%5 == 0 && !strings.Contains(path, "/contacts/") {
					show = gatewaytest.Cookie(p.adminCookie)
				}
				a := p.Do(t, http.MethodGet, path, show)
				if a.Code != http.StatusOK || !strings.Contains(a.Text(), p.mark) || strings.Contains(a.Text(), other.mark) {
					t.Errorf("%s on %s: %d %.400s", path, p.Slug, a.Code, a.Body)
					return
				}
			}
		})
	}
	wg.Wait()
}
