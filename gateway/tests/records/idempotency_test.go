package records

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
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
	"tenantry/operation"
	"tenantry/tenants"
)

// replayed reports whether the answer was a kept one.
func replayed(a *gatewaytest.Answer) bool { return a.Header.Get("Idempotency-Replayed") == "true" }

func object(name string) gatewaytest.Request {
	return fixture.JSONText(fmt.Sprintf(`{"name":%q,"label":%[1]q,"label_plural":%[1]q,"schema":{}}`, name))
}

// TestRequestCutAfterCommitIsReplayed checks that a request repeated with its Idempotency-Key is carried out once,
// whatever happened to the first answer.
func TestRequestCutAfterCommitIsReplayed(t *testing.T) {
	t.Parallel()
	var c fixture.Clock
	var cut fixture.StoreHook
	acme := gatewaytest.Start(t, c.Option, cut.Option).Org(t, "acme")
	key := gatewaytest.WithKey(acme.Key(t, tenants.ManageCustomObjects))
	send := func(name, repeat string) *gatewaytest.Answer {
		return acme.Do(t, http.MethodPost, fixture.ObjectsPath, key, object(name), fixture.IdempotencyKey(repeat))
	}
	objects := func(name string) int {
		return strings.Count(exportOf(t, acme), fmt.Sprintf(`"name":%q`, name))
	}
	lost := func(want string, a *gatewaytest.Answer) {
		t.Helper()
		if a.Code != http.StatusConflict || !strings.Contains(a.Text(), `"field":"Idempotency-Key","code":"`+want+`"`) {
			t.Errorf("got %d %s, want a 409 %s", a.Code, a.Body, want)
		}
	}

	// The caller has hung up before the answer.
	ctx, gone := context.WithCancel(t.Context())
	cut.AfterWrite(true, gone)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, acme.URL(fixture.ObjectsPath), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = acme.Host
	for _, change := range []gatewaytest.Request{key, object("cut"), fixture.IdempotencyKey("k1")} {
		change(r)
	}
	if resp, err := http.DefaultClient.Do(r); err == nil {
		_ = resp.Body.Close()
	}
	var first *gatewaytest.Answer
	fixture.AwaitWithin(t, "an answer to a request that was cut", 10*time.Second, func() bool {
		first = send("cut", "k1")
		return first.Code != http.StatusConflict
	})
	second := send("cut", "k1")
	if first.Status != "ok" || !replayed(first) || second.Text() != first.Text() || objects("cut") != 1 {
		t.Errorf("got %d %s, then %d %s; %d objects, want the same answer twice and 1 object",
			first.Code, first.Body, second.Code, second.Body, objects("cut"))
	}

	// The process ends: nothing after the commit happens. Engines with transactions have stored the answer by then.
	cut.AfterWrite(true, func() { panic("killed") })
	if a := send("killed", "k2"); a.Code != http.StatusInternalServerError {
		t.Fatalf("got %d %s, want %v", a.Code, a.Body, http.StatusInternalServerError)
	}
	if os.Getenv(mongotest.Variable) == "" {
		if a := send("killed", "k2"); a.Status != "ok" || !replayed(a) {
			t.Errorf(`got %d %s, want a.Status = "ok"`, a.Code, a.Body)
		}
	} else {
		running := send("killed", "k2")
		lost("running", running)
		if running.Header.Get("Retry-After") == "" {
			t.Error("got no Retry-After, want one")
		}
		c.Advance(time.Minute)
		lost("lost", send("killed", "k2"))
	}
	if n := objects("killed"); n != 1 {
		t.Errorf("got %d objects, want 1", n)
	}

	// The process ends before the commit: the repetition carries the request out.
	cut.AfterWrite(false, func() { panic("killed") })
	if a := send("early", "k3"); a.Code != http.StatusInternalServerError {
		t.Fatalf("got %d %s, want %v", a.Code, a.Body, http.StatusInternalServerError)
	}
	c.Advance(time.Minute)
	if a := send("early", "k3"); a.Status != "ok" || replayed(a) || objects("early") != 1 {
		t.Errorf(`got %d %s, want a.Status = "ok" and objects("early") = 1`, a.Code, a.Body)
	}

	// While the request is in progress, a repetition does not wait, and gets a Retry-After.
	var meanwhile *gatewaytest.Answer
	cut.AfterWrite(false, func() { meanwhile = send("busy", "k5") })
	if a := send("busy", "k5"); a.Status != "ok" || replayed(a) || objects("busy") != 1 {
		t.Errorf(`got %d %s, want a.Status = "ok" and objects("busy") = 1`, a.Code, a.Body)
	}
	if lost("running", meanwhile); meanwhile.Header.Get("Retry-After") == "" {
		t.Error("got no Retry-After, want one")
	}

	// One of many concurrent requests is carried out.
	counts := fixture.Concurrently(20, func(int) string {
		a := send("crowd", "k4")
		if a.Code == http.StatusConflict {
			lost("running", a)
		}
		return a.Text()
	})
	if objects("crowd") != 1 || len(counts) > 2 {
		t.Errorf("got %d objects: %s, want 1 and at most two kinds of answers", objects("crowd"), fixture.Tally(counts))
	}
	if _, ok := acme.Do(t, http.MethodPost, fixture.ObjectsPath, key, object("crowd")).Data.(map[string]any); !ok {
		t.Error("without a key: got no conflict, want the name taken")
	}
}

func exportOf(t *testing.T, o *gatewaytest.Org) string { return (&fixture.Party{Org: o}).Export(t) }

// TestIdempotencyKeysAreScoped checks that a key belongs to the caller, the operation and the request of its first use.
func TestIdempotencyKeysAreScoped(t *testing.T) {
	t.Parallel()
	var c fixture.Clock
	g := gatewaytest.Start(t, c.Option)
	acme, birch := g.Org(t, "acme"), g.Org(t, "birch")
	issued := acme.KeyWith(t, func(k *control.NewKey) {
		k.Permissions = []string{string(tenants.ManageCustomObjects), string(tenants.ManageForms)}
	})
	second := acme.KeyWith(t, func(k *control.NewKey) { k.Account = issued.Account })
	own, sameAccount, other := gatewaytest.WithKey(issued.Token), gatewaytest.WithKey(second.Token), gatewaytest.WithKey(acme.Key(t, tenants.ManageCustomObjects))
	send := func(o *gatewaytest.Org, as gatewaytest.Request, path, name string, more ...gatewaytest.Request) *gatewaytest.Answer {
		return o.Do(t, http.MethodPost, path, append([]gatewaytest.Request{as, object(name), fixture.IdempotencyKey("one")}, more...)...)
	}
	first := send(acme, own, fixture.ObjectsPath, "tree")
	for what, a := range map[string]*gatewaytest.Answer{"the same": send(acme, own, fixture.ObjectsPath, "tree"), "another key of the account": send(acme, sameAccount, fixture.ObjectsPath, "tree")} {
		if !replayed(a) || a.Text() != first.Text() || a.Code != first.Code || a.Header.Get("ETag") != first.Header.Get("ETag") {
			t.Errorf("%s: got %d %s %v, want %v", what, a.Code, a.Body, a.Header, first.Code)
		}
	}
	for what, a := range map[string]*gatewaytest.Answer{"another body": send(acme, own, fixture.ObjectsPath, "bush"), "another query": send(acme, own, fixture.ObjectsPath+"?x=1", "tree")} {
		if replayed(a) {
			t.Errorf("%s: got the first answer, want a new one", what)
		}
		fixture.WantFaults(t, a, http.StatusUnprocessableEntity, "Idempotency-Key reused")
	}
	if a := send(acme, other, fixture.ObjectsPath, "bush"); a.Status != "ok" || replayed(a) {
		t.Errorf("another account: got %d %s, want a new answer", a.Code, a.Body)
	}
	if a := send(birch, gatewaytest.WithKey(birch.Key(t, tenants.ManageCustomObjects)), fixture.ObjectsPath, "tree"); a.Status != "ok" || replayed(a) {
		t.Errorf("another organization: got %d %s, want a new answer", a.Code, a.Body)
	}
	acme.Import(t, `{"kind":"form_collection","id":"0000000000000000000000f1","name":"visit","label":"Visit","label_plural":"Visits","schema":{}}`)
	form := func(label string, more ...gatewaytest.Request) *gatewaytest.Answer {
		return acme.Do(t, http.MethodPut, "/api/form/collections/0000000000000000000000f1", append([]gatewaytest.Request{own, fixture.JSONText(`{"label":"` + label + `"}`)}, more...)...)
	}
	if a := form("Another operation", fixture.IdempotencyKey("one")); a.Status != "ok" || replayed(a) {
		t.Errorf("another operation: got %d %s, want a new answer", a.Code, a.Body)
	}
	// A refusal is kept, but not one because of a concurrent change.
	bad, after := form("", fixture.IdempotencyKey("two")), form("", fixture.IdempotencyKey("two"))
	if bad.Code != http.StatusUnprocessableEntity || !replayed(after) || after.Text() != bad.Text() {
		t.Errorf("a refusal: got %s, then %s, want the same one replayed", bad.Body, after.Body)
	}
	wantStale(t, form("Stale", fixture.IdempotencyKey("three"), ifMatch(`"1"`)))
	if a := form("Stale", fixture.IdempotencyKey("three"), ifMatch("*")); a.Status != "ok" || replayed(a) {
		t.Errorf("after a 412: got %d %s, want a new answer", a.Code, a.Body)
	}
	for _, malformed := range [][]gatewaytest.Request{{fixture.IdempotencyKey("")}, {fixture.IdempotencyKey("a b")}, {fixture.IdempotencyKey(strings.Repeat("x", 256))}, {fixture.IdempotencyKey("é")}, {fixture.IdempotencyKey("a"), fixture.IdempotencyKey("a")}} {
		if a := form("Malformed", malformed...); a.Code != http.StatusBadRequest {
			t.Errorf("a malformed key: got %d %s, want 400", a.Code, a.Body)
		}
	}
	if a := form("Longest", fixture.IdempotencyKey(strings.Repeat("x", 255))); a.Status != "ok" {
		t.Errorf(`got %d %s, want a.Status = "ok"`, a.Code, a.Body)
	}
	c.Advance(25 * time.Hour)
	if a := send(acme, own, fixture.ObjectsPath, "tree"); replayed(a) || a.Code != http.StatusConflict {
		t.Errorf("a day later: got %d %s, want 409 and no replay", a.Code, a.Body)
	}
}

// TestEveryOperationIsIdempotentByKey checks that every changing operation below /api/ accepts a key and is carried out
// once.
func TestEveryOperationIsIdempotentByKey(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t, fixture.WithPlants, fixture.WithDemoFiles)
	tried := 0
	rows := w.Rows()
	last := func(o operation.Row) int { // what is deleted for good can be used no more
		if at := fixture.EndsSessions(o); at >= 0 {
			return 2 + at
		}
		back := strings.TrimSuffix(o.Name, ".delete") + ".restore"
		if o.Method != http.MethodDelete || slices.ContainsFunc(rows, func(r operation.Row) bool { return r.Name == back }) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(rows, func(a, b operation.Row) int { return last(a) - last(b) })
	for _, op := range rows {
		if !op.Repeatable() {
			if op.Method != http.MethodGet && strings.HasPrefix(op.Path, "/api/") && op.Upload == nil {
				t.Errorf("%s takes no key, want it to", op.Name)
			}
			continue
		}
		as := gatewaytest.WithKey(w.A.FullKey)
		if op.Credentials&operation.Key == 0 || op.Rule.IsAdminOnly() {
			as = gatewaytest.Cookie(w.A.AdminCookie)
		}
		q := w.Build(&op, op.Path, fixture.SampleFor(&op), w.A.Own, fixture.Every)
		changes := append(q.Changes, as, fixture.IdempotencyKey("every."+op.Name))
		first := w.A.Do(t, q.Method, q.Target, changes...)
		before := w.A.Export(t)
		second := w.A.Do(t, q.Method, q.Target, changes...)
		if (op.Once || strings.HasSuffix(op.Name, ".purge")) && first.Status == "ok" && second.Code == http.StatusConflict && w.A.Export(t) == before {
			tried++
			continue
		}
		text := func(a *gatewaytest.Answer) string {
			if volatile := fixture.SampleFor(&op).Volatile; op.Reads && volatile != nil {
				return fixture.Blanked(volatile).ReplaceAllString(a.Text(), "")
			}
			return a.Text()
		}
		if !fixture.Succeeded(&op, first) || replayed(first) || replayed(second) == op.Reads || second.Code != first.Code || text(second) != text(first) || second.Header.Get("ETag") != first.Header.Get("ETag") {
			t.Errorf("%s: got %d %s, then %d %s, want the first answer replayed",
				op.Name, first.Code, first.Body, second.Code, second.Body)
		}
		if w.A.Export(t) != before {
			t.Errorf("%s was carried out again, want it once", op.Name)
		}
		tried++
	}
	if tried < 10 && !testing.Short() {
		t.Errorf("got %d operations, want at least 10", tried)
	}
}

// TestKeptAnswersAreSealedAndSwept checks that kept answers cannot be read in the store, and are deleted after their
// day.
func TestKeptAnswersAreSealedAndSwept(t *testing.T) {
	t.Parallel()
	var c fixture.Clock
	acme := gatewaytest.Start(t, c.Option, gatewaytest.OwnFiles).Org(t, "acme")
	acme.Import(t, `{"kind":"custom_report","id":"0000000000000000000000a1","pid":"public-report-pid-0001","title":"Shared","class":"Contacts","shareable":true}`,
		`{"kind":"form_collection","id":"0000000000000000000000f1","name":"visit","label":"Visit","label_plural":"Visits","schema":{}}`)
	key := gatewaytest.WithKey(acme.Key(t, tenants.ManageReports, tenants.ManageForms))
	share := func() *gatewaytest.Answer {
		return acme.Do(t, http.MethodPost, "/api/custom-reports/0000000000000000000000a1/share", key, fixture.JSONText(`{}`), fixture.IdempotencyKey("k"))
	}
	form := func(repeat string) {
		a := acme.Do(t, http.MethodPut, "/api/form/collections/0000000000000000000000f1", key, fixture.JSONText(`{"label":"Confidential"}`), fixture.IdempotencyKey(repeat))
		if a.Status != "ok" {
			t.Fatalf(`got %d %s, want a.Status = "ok"`, a.Code, a.Body)
		}
	}
	form("k")
	p := &fixture.Party{Org: acme}
	if kept := p.Stored(t, `SELECT json(body) FROM "c:kept_answers"`); strings.Contains(kept, "Confidential") || strings.Contains(kept, "Collection updated") || !strings.Contains(kept, "enc.v1.") {
		t.Errorf("kept as %s, want it encrypted", kept)
	}
	// The request cannot be guessed either: its fingerprint includes the caller's key.
	form("k2")
	if n := p.Stored(t, `SELECT count(DISTINCT json_extract(body, '$.request')) FROM "c:kept_answers"`); n != "2" {
		t.Errorf("equal requests of two keys are kept as %s, want 2", n)
	}
	// A secret that is shown once is not kept, sealed or not, and is not shown again.
	first, second := share(), share()
	if first.Field("token") == nil || second.Code != http.StatusConflict || !strings.Contains(second.Text(), `"code":"lost"`) {
		t.Errorf("got %d %s, then %d %s, want a token, then 409 (lost)",
			first.Code, first.Body, second.Code, second.Body)
	}
	if n := p.Stored(t, `SELECT count(*) FROM "c:kept_answers" WHERE json_extract(body, '$.answer') IS NULL`); n != "1" {
		t.Errorf("%s records have no answer, want 1", n)
	}
	for i := range 40 {
		form(fmt.Sprint("old", i))
	}
	c.Advance(25 * time.Hour)
	// One in sixteen requests removes some expired answers.
	made, kept := 0, func() string { return p.Stored(t, `SELECT count(*) FROM "c:kept_answers"`) }
	for made < 1000 && (made == 0 || kept() != fmt.Sprint(made)) {
		made++
		form(fmt.Sprint("new", made))
	}
	if made == 1000 {
		t.Errorf("%s answers are kept, want some swept", kept())
	}
}

// TestRateLimitRefusalsAreNotReplayed checks that a refusal with Retry-After is not replayed to the retry.
func TestRateLimitRefusalsAreNotReplayed(t *testing.T) {
	t.Parallel()
	began, ahead := time.Now(), atomic.Int64{} // time does not pass by itself: the first waits are short
	acme := gatewaytest.Start(t, func(_ *config.Config, o *gateway.Options) {
		o.Now = func() time.Time { return began.Add(time.Duration(ahead.Load())) }
	}).Org(t, "acme")
	_, cookie := acme.Person(t, "ada@example.com", nil)
	change := func(present, repeat string) *gatewaytest.Answer {
		return acme.Do(t, http.MethodPost, "/api/me/password", gatewaytest.Cookie(cookie), fixture.JSONText(`{"present_password":"`+present+`","password":"battery horse staple correct"}`), fixture.IdempotencyKey(repeat))
	}
	var refused *gatewaytest.Answer
	for i := range 10 {
		if refused = change("wrong", fmt.Sprint("wrong", i)); refused.Code == http.StatusTooManyRequests {
			break
		}
	}
	if refused = change(gatewaytest.Password, "right"); refused.Code != http.StatusTooManyRequests || refused.Header.Get("Retry-After") == "" {
		t.Fatalf("got %d %s, want %v", refused.Code, refused.Body, http.StatusTooManyRequests)
	}
	ahead.Store(int64(20 * time.Minute))
	if a := change(gatewaytest.Password, "right"); a.Status != "ok" || replayed(a) {
		t.Errorf("after the wait: got %d %s, want a new answer", a.Code, a.Body)
	}
}

// TestKeptAnswersExpireUnasked checks that kept answers are deleted after their day even if no more keys are sent,
// whatever happens to the trash.
func TestKeptAnswersExpireUnasked(t *testing.T) {
	t.Parallel()
	clock := &fixture.Clock{}
	g := gatewaytest.Start(t, clock.Option, gatewaytest.OwnFiles, func(c *config.Config, _ *gateway.Options) { c.Trash.Keep = 0 })
	acme := g.Org(t, "acme")
	key := gatewaytest.WithKey(acme.Key(t, tenants.Contacts))
	send := func(n int) *gatewaytest.Answer {
		return acme.Do(t, http.MethodPost, "/api/contacts", key, fixture.JSONText(fmt.Sprintf(`{"email":"ada%d@example.com"}`, n)), fixture.IdempotencyKey(fmt.Sprint("k", n)))
	}
	deleted, _ := send(0).Field("id").(string)
	acme.Do(t, http.MethodDelete, "/api/contacts/"+deleted, key)
	const many = 150 // more than are removed at a time
	for n := 1; n < many; n++ {
		send(n)
	}
	clock.Advance(23 * time.Hour)
	fixture.EmptyTrash(t, g.App)
	if !replayed(send(1)) {
		t.Error("got no kept answer within its day, want it")
	}
	clock.Advance(2 * time.Hour)
	fixture.EmptyTrash(t, g.App)
	p := &fixture.Party{Org: acme}
	if n := p.Stored(t, `SELECT count(*) FROM "c:kept_answers"`); n != "0" {
		t.Errorf("%s of %d answers are kept, want 0", n, many)
	}
	if a := acme.Do(t, http.MethodPost, "/api/contacts/"+deleted+"/restore", key); a.Status != "ok" {
		t.Errorf("the trash of those who keep it was emptied: got %d %s, want the status ok", a.Code, a.Body)
	}
}

// TestErasedDataIsInNoKeptAnswer checks that purged data are in no kept answer of any request, and that a repetition of
// such a request is told so. Data that are only deleted can be restored, and so can the answer.
func TestErasedDataIsInNoKeptAnswer(t *testing.T) {
	t.Parallel()
	for name, layout := range map[string]gatewaytest.Option{"own files": gatewaytest.OwnFiles, "shared files": gatewaytest.SharedFiles} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := &fixture.Clock{}
			var asked atomic.Int64
			acme := gatewaytest.Start(t, layout, clock.Option, func(cfg *config.Config, o *gateway.Options) {
				cfg.Trash.Keep = time.Hour
				o.Observe = func(c store.Call) {
					if c.Operation == "find" && c.Collection == "kept_answers" {
						asked.Add(1)
					}
				}
			}).Org(t, "acme")
			key := gatewaytest.WithKey(acme.Key(t, tenants.Contacts, tenants.ManageFiles, tenants.ManageCustomObjects))
			do := func(method, path, body, repeat string) *gatewaytest.Answer {
				t.Helper()
				how := []gatewaytest.Request{key}
				if body != "" {
					how = append(how, fixture.JSONText(body))
				}
				if repeat != "" {
					how = append(how, fixture.IdempotencyKey(repeat))
				}
				return acme.Do(t, method, path, how...)
			}
			sent := map[string]func() *gatewaytest.Answer{}
			send := func(repeat, method, path, body string) string {
				t.Helper()
				sent[repeat] = func() *gatewaytest.Answer { return do(method, path, body, repeat) }
				a := sent[repeat]()
				if again := sent[repeat](); a.Status != "ok" || !replayed(again) || again.Text() != a.Text() {
					t.Fatalf("%s: got %d %s, then %d %s, want the same one replayed",
						repeat, a.Code, a.Body, again.Code, again.Body)
				}
				return fmt.Sprint(a.Field("id"))
			}
			ends := func(what, method, path string, lost ...string) {
				t.Helper()
				before := asked.Load()
				if a := do(method, path, "", ""); a.Status != "ok" {
					t.Fatalf(`%s: got %d %s, want a.Status = "ok"`, what, a.Code, a.Body)
				}
				if n := asked.Load() - before; (n > 0) != (len(lost) > 0) || n > 2 { // an object is one batch, its records another
					t.Errorf("%s: got %d queries for kept answers, want none or at most 2", what, n)
				}
				for repeat, send := range sent {
					a := send()
					gone := a.Code == http.StatusConflict && strings.Contains(a.Text(), `"code":"lost"`)
					if slices.Contains(lost, repeat) != gone || !gone && !replayed(a) {
						t.Errorf("after %s, %s: got %d %s, want it lost or replayed as listed",
							what, repeat, a.Code, a.Body)
					}
					if gone {
						delete(sent, repeat)
					}
				}
			}
			do(http.MethodPost, "/api/contacts/fields", `{"key":"plan","title":"Plan","type":"Text"}`, "")
			do(http.MethodPost, fixture.ObjectsPath, `{"name":"tree","label":"Tree","label_plural":"Trees","schema":{"kind":{"title":"Kind","type":"Text"}}}`, "")
			ada := send("ada", http.MethodPost, "/api/contacts", `{"email":"ada@example.com","fields":{"plan":"basic"}}`)
			bob := send("bob", http.MethodPost, "/api/contacts", `{"email":"bob@example.com"}`)
			cy := fmt.Sprint(do(http.MethodPost, "/api/contacts", `{"email":"cy@example.com"}`, "").Field("id"))
			send("change", http.MethodPut, "/api/contacts/"+ada, `{"first_name":"Ada"}`)
			send("file", http.MethodPost, fixture.FilesPath, `{"filename":"a.txt","mimetype":"text/plain","contact_id":"`+ada+`"}`)
			send("bulk", http.MethodPost, "/api/contacts/bulk", `{"records":[{"email":"eve@example.com"}]}`)
			send("record", http.MethodPost, fixture.ObjectsPath+"/tree/records", `{"values":{"kind":"oak"}}`)

			ends("a deletion", http.MethodDelete, "/api/contacts/"+ada)
			do(http.MethodPost, "/api/contacts/"+ada+"/restore", "", "")
			ends("a field", http.MethodDelete, "/api/contacts/fields/plan?purge=true&force=true", "ada", "change", "file")
			send("more", http.MethodPut, "/api/contacts/"+ada, `{"first_name":"Augusta"}`)
			ends("a contact", http.MethodDelete, "/api/contacts/"+ada+"?purge=true", "more")
			for n, want := range []string{`"status":"ok"`, `"code":"lost"`} {
				if a := do(http.MethodDelete, "/api/contacts/"+cy+"?purge=true", "", "purge"); !strings.Contains(a.Text(), want) {
					t.Errorf("purge number %d, which must not show again what it ended: got %d %s, want it with %q",
						n+1, a.Code, a.Body, want)
				}
			}
			ends("an object", http.MethodDelete, fixture.ObjectsPath+"/tree?purge=true&force=true", "record")
			ends("another deletion", http.MethodDelete, "/api/contacts/"+bob)
			clock.Advance(2 * time.Hour)
			fixture.EmptyTrash(t, acme.App)
			if a := sent["bob"](); !strings.Contains(a.Text(), `"code":"lost"`) {
				t.Errorf("of what the trash has ended: got %d %s, want it with %q", a.Code, a.Body, `"code":"lost"`)
			}
			if strings.HasPrefix(name, "own") {
				p := &fixture.Party{Org: acme}
				for _, id := range []string{ada, bob, cy} {
					if n := p.Stored(t, `SELECT count(*) FROM "c:kept_answers" WHERE instr(json(body), ?)`, id); n != "0" {
						t.Errorf("%s answers are about %s, want 0", n, id)
					}
				}
			}
		})
	}
}

// TestKeptAnswersAreScopedToTeams checks that an answer is kept for the teams of its caller. Another key of the same
// account that is limited to another team does not get it, nor does the same key after its account's teams changed.
func TestKeptAnswersAreScopedToTeams(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", tenants.FeatureTeams)
	teams := []string{fixture.DocID(0x7a), fixture.DocID(0x7b)}
	acme.Import(t, `{"kind":"team","id":"`+teams[0]+`","name":"A"}`, `{"kind":"team","id":"`+teams[1]+`","name":"B"}`)
	account := ""
	narrowed := func(team string) gatewaytest.Request {
		made := acme.KeyWith(t, func(n *control.NewKey) {
			n.Teams = []string{team}
			if n.Account = account; account == "" {
				n.Permissions = []string{string(tenants.Contacts)}
			}
		})
		account = made.Account
		return gatewaytest.WithKey(made.Token)
	}
	send := func(key gatewaytest.Request) *gatewaytest.Answer {
		return acme.Do(t, http.MethodPost, "/api/contacts", key, fixture.JSONText(`{"email":"a@example.com"}`), fixture.IdempotencyKey("scope"))
	}
	ofA := narrowed(teams[0])
	first := send(ofA)
	if first.Code != http.StatusOK {
		t.Fatalf("got %d %s, want %v", first.Code, first.Body, http.StatusOK)
	}
	if same := send(ofA); !replayed(same) || same.Text() != first.Text() {
		t.Errorf("the same scope: got %d %s, want the first answer replayed", same.Code, same.Body)
	}
	if other := send(narrowed(teams[1])); other.Code != http.StatusUnprocessableEntity || replayed(other) {
		t.Errorf("another scope: %d %s, want a 422", other.Code, other.Body)
	}
}

// TestKeptAnswersAreBounded checks that large kept answers, which do not count for an organization's quota, are bounded
// for each day. A request beyond the bound is carried out, and a repetition is told that its answer is lost.
func TestKeptAnswersAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes 140 answers of half a MB")
	}
	t.Parallel()
	g := gatewaytest.Start(t)
	acme, other := g.Org(t, "acme"), g.Org(t, "other")
	large := strings.Repeat("x", 480<<10)
	sends := map[*gatewaytest.Org]func(n int, record string) *gatewaytest.Answer{}
	for _, o := range []*gatewaytest.Org{acme, other} {
		o.Import(t, `{"kind":"contact_field","key":"large","title":"Large","type":"LongText"}`, `{"kind":"contact","external_id":"large","fields":{"large":"`+large+`"}}`,
			`{"kind":"contact","external_id":"small"}`)
		key := gatewaytest.WithKey(o.Key(t, tenants.Contacts))
		ids := map[string]string{}
		for _, name := range []string{"large", "small"} {
			a := o.Do(t, http.MethodGet, "/api/contacts?filters[external_id]="+name, key)
			ids[name], _ = a.Field("results").([]any)[0].(map[string]any)["id"].(string)
		}
		sends[o] = func(n int, record string) *gatewaytest.Answer {
			return o.Do(t, http.MethodPut, "/api/contacts/"+ids[record], key, fixture.IdempotencyKey(fmt.Sprint("n", n)), fixture.JSONText(fmt.Sprintf(`{"first_name":"n%d"}`, n)))
		}
	}
	const most = 64 << 20 / (480 << 10)
	for n := range most + 1 {
		if a := sends[acme](n, "large"); a.Code != http.StatusOK {
			t.Fatalf("change %d: got %d %.200s, want 200", n, a.Code, a.Body)
		}
	}
	if a := sends[acme](most-2, "large"); !replayed(a) {
		t.Errorf("a large answer that fits: got %d %.200s, want it replayed", a.Code, a.Body)
	}
	if a := sends[acme](most, "large"); a.Code != http.StatusConflict || !strings.Contains(a.Text(), `"code":"lost"`) {
		t.Errorf("one large answer too many: got %d %.200s, want 409 with %q", a.Code, a.Body, `"code":"lost"`)
	}
	sends[acme](1000, "small")
	if a := sends[acme](1000, "small"); !replayed(a) || !strings.Contains(a.Text(), "n1000") {
		t.Errorf("a small answer: got %d %.200s, want it replayed", a.Code, a.Body)
	}
	sends[other](0, "large")
	if a := sends[other](0, "large"); !replayed(a) {
		t.Errorf("another organization's large answer: got %d %.200s, want it replayed", a.Code, a.Body)
	}
}

// TestRepetition_OrganizationWhoseChangeWasCut: the organization is stored outside of its own documents. A process that
// ends right after has noted before that the request had begun, so a repetition is not carried out again.
func TestRepetition_OrganizationWhoseChangeWasCut(t *testing.T) {
	t.Parallel()
	var clock fixture.Clock
	var killed atomic.Bool
	kill := func(_ *config.Config, o *gateway.Options) {
		o.Observe = func(c store.Call) {
			if c.Operation == "write" && c.Collection == "organizations" && killed.CompareAndSwap(false, true) {
				panic("killed")
			}
		}
	}
	killed.Store(true) // not while the organization is created
	acme := gatewaytest.Start(t, kill, clock.Option).Org(t, "acme")
	_, cookie := acme.Person(t, "ada@example.com", func(n *control.NewUser) { n.Roles = []string{"admin"} })
	rename := func() *gatewaytest.Answer {
		return acme.Do(t, http.MethodPut, "/api/organization", gatewaytest.Cookie(cookie), fixture.IdempotencyKey("k"), fixture.JSONText(`{"name":"Other"}`))
	}

	killed.Store(false)
	if a := rename(); a.Code != http.StatusInternalServerError {
		t.Fatalf("the cut request answered %d %s, want 500", a.Code, a.Body)
	}
	clock.Advance(time.Minute)
	if a := rename(); a.Code != http.StatusConflict || !strings.Contains(a.Text(), `"code":"lost"`) {
		t.Errorf("the repetition answered %d %s, want 409 lost", a.Code, a.Body)
	}
}
