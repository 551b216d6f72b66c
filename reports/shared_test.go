package reports_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"

	"tenantry/backends/store"
	"tenantry/crypto/keyring"
	"tenantry/crypto/secret"
	"tenantry/operation"
	"tenantry/reports"
	"tenantry/tenants"
)

const lockedReport = `{"class":"Contacts","secure":true,"title":"Region","teams":["` + teamA + `"],"actions":{"delete":"canary-action"},
	"input":{"region":{"rule":"locked","label":"canary-label"},"exp":{"rule":"locked","value":"active"},"age":{"rule":"editable","type":"number"}},
	"query":{"filter":{"country":{"input":"region"},"status":{"input":"exp"},"age":{"gte":{"input":"age"}}},"measures":[{"op":"count"}]}}`

// refused is what a token must be whatever is wrong with it.
func (w *world) refused(r *reports.Report, name, text string) {
	w.t.Helper()
	a := w.open(r, token(text))
	if a.code != 403 || a.Message != operation.DeniedMessage {
		w.t.Errorf("%s: answered %d %s", name, a.code, a.raw)
		return
	}
	a.denied(w.t)
}

// noKeys is an organization whose key is missing.
type noKeys struct{}

func (noKeys) Current() keyring.DataKey { return keyring.DataKey{} }

func TestWithoutAKeyNoTokenIsIssuedOrAccepted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, func(_ *world, d *reports.Deps) {
		d.Keys = func(context.Context, *tenants.Tenant) (reports.KeySet, error) { return noKeys{}, nil }
	})
	r := w.add(`{"class":"Contacts","secure":true}`)
	claims := jwt.MapClaims{
		"iss": "tenantry", "aud": "acme", "sub": r.PID, "jti": "0-x", "iat": w.now.Unix(), "exp": w.now.Unix() + 60, "params": map[string]any{},
	}
	forged := jwt.NewWithClaims(jwt.SigningMethodHS256, claims)
	forged.Header["kid"] = "0"
	w.refused(r, "signed with an empty key", must[string](t)(forged.SignedString([]byte{})))
	if text, _, _, err := w.module.Issue(t.Context(), w.tenant, r, "a test", nil, time.Hour); err == nil {
		t.Errorf("issued %q without a key", text)
	}
}

func TestKeysThatCannotBeReadAreNoDenial(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, func(_ *world, d *reports.Deps) {
		d.Keys = func(context.Context, *tenants.Tenant) (reports.KeySet, error) { return nil, store.ErrUnavailable }
	})
	if a := w.open(w.add(`{"class":"Contacts","secure":true}`), "token=x"); a.code != 503 {
		t.Errorf("answered %d %s", a.code, a.raw)
	}
}

func TestEveryBadTokenGetsTheSameDenial(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r := w.add(lockedReport)
	good := w.share(r, `{"params":{"region":"DE"}}`)
	if a := w.open(r, token(good)); a.Status != operation.StatusOK {
		t.Fatalf("a good token: %s", a.raw)
	}
	keys := must[*tenants.DataKeys](t)(w.directory.DataKeys(t.Context(), w.tenant, reports.KeyPurpose))
	sign := func(method jwt.SigningMethod, key any, kid string, change func(jwt.MapClaims)) string {
		claims := jwt.MapClaims{
			"iss": "tenantry", "aud": "acme", "sub": r.PID, "jti": "0-x", "iat": w.now.Unix(), "exp": w.now.Unix() + 60,
			"params": map[string]any{"region": "DE", "exp": "active"},
		}
		change(claims)
		token := jwt.NewWithClaims(method, claims)
		token.Header["kid"] = kid
		return must[string](t)(token.SignedString(key))
	}
	key := keys.Current().Bytes()
	same := func(jwt.MapClaims) {}
	if a := w.open(r, token(sign(jwt.SigningMethodHS256, key, "1", same))); a.Status != operation.StatusOK {
		t.Fatalf("the test's own token: %s", a.raw)
	}
	header, payload, _ := strings.Cut(good, ".")
	body, _, _ := strings.Cut(payload, ".")
	set := func(name string, value any) func(jwt.MapClaims) { return func(c jwt.MapClaims) { c[name] = value } }
	other := w.add(lockedReport)
	for name, text := range map[string]string{
		"not a token":    "x",
		"five segments":  good + ".a.b",
		"no signature":   header + "." + body + ".",
		"none":           base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT","kid":"1"}`)) + "." + body + ".",
		"HS384":          sign(jwt.SigningMethodHS384, key, "1", same),
		"empty key":      sign(jwt.SigningMethodHS256, []byte{}, "1", same),
		"another key":    sign(jwt.SigningMethodHS256, []byte(strings.Repeat("k", 32)), "1", same),
		"kid 2":          sign(jwt.SigningMethodHS256, key, "2", same),
		"kid 01":         sign(jwt.SigningMethodHS256, key, "01", same),
		"kid traversal":  sign(jwt.SigningMethodHS256, key, "../1", same),
		"no exp":         sign(jwt.SigningMethodHS256, key, "1", func(c jwt.MapClaims) { delete(c, "exp") }),
		"expired":        sign(jwt.SigningMethodHS256, key, "1", func(c jwt.MapClaims) { c["iat"], c["exp"] = w.now.Unix()-60, w.now.Unix() }),
		"far exp":        sign(jwt.SigningMethodHS256, key, "1", set("exp", w.now.Unix()+10*365*24*3600)),
		"future nbf":     sign(jwt.SigningMethodHS256, key, "1", set("nbf", w.now.Unix()+3600)),
		"wrong aud":      sign(jwt.SigningMethodHS256, key, "1", set("aud", "globex")),
		"wrong sub":      w.share(other, `{"params":{"region":"DE"}}`),
		"no generation":  sign(jwt.SigningMethodHS256, key, "1", set("jti", "x")),
		"locked outside": sign(jwt.SigningMethodHS256, key, "1", func(c jwt.MapClaims) { c["region"] = "DE"; c["params"] = map[string]any{} }),
		"lacks a value":  sign(jwt.SigningMethodHS256, key, "1", set("params", map[string]any{"region": "DE"})),
		"undeclared":     sign(jwt.SigningMethodHS256, key, "1", set("params", map[string]any{"region": "DE", "exp": "active", "foo": "1"})),
		"sets editable":  sign(jwt.SigningMethodHS256, key, "1", set("params", map[string]any{"region": "DE", "exp": "active", "age": "1"})),
		"an object":      sign(jwt.SigningMethodHS256, key, "1", set("params", map[string]any{"region": map[string]any{"ne": ""}, "exp": "active"})),
		"100 kB":         strings.Repeat("a", 100<<10),
	} {
		w.refused(r, name, text)
	}
	// A token is checked also where none is needed.
	plain := w.add(`{"class":"Contacts"}`)
	w.refused(plain, "garbage on a report that is not secure", "garbage")
}

func TestLockedReportInputsComeFromTheTokenAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.addPeople(crowd()...)
	r := w.add(lockedReport)
	good := token(w.share(r, `{"params":{"region":"DE"}}`))
	a := w.open(r, good+"&data=1")
	// DE is every fourth, of which every third is lapsed; the input named exp means status.
	if diff := cmp.Diff([][]any{{50.0}}, a.rows(t)); diff != "" {
		t.Errorf("difference:\n%s", diff)
	}
	for _, name := range []string{"region", "exp", "nothing", "Region", "iat"} {
		a := w.open(r, good+"&params["+name+"]=FR")
		a.failed(t, 422, "params["+name+"] is not an input that readers of this report may set")
	}
	unsecured := w.add(strings.Replace(lockedReport, `"secure":true`, `"secure":false`, 1))
	w.open(unsecured, "data=1").denied(t)
	if a := w.open(unsecured, token(w.share(unsecured, `{"params":{"region":"FR"}}`))+"&data=1"); a.rows(t)[0][0] != 50.0 {
		t.Errorf("got %v, want a.rows(t)[0][0] = 50.0", a.raw)
	}
}

func TestSharingNeedsEveryLockedValueAndNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r := w.add(lockedReport)
	for body, want := range map[string]string{
		`{}`:                                                        "params.region is a locked input without a value",
		`{"params":{"region":"DE","age":5}}`:                        "params.age is not a locked input",
		`{"params":{"region":"DE","foo":1}}`:                        "params.foo is not a locked input",
		`{"params":{"region":{"ne":"x"}}}`:                          "params.region must be a string, a number, true or false",
		`{"params":{"region":null}}`:                                "params.region must be a string, a number, true or false",
		`{"params":{"region":""}}`:                                  "params.region must not be empty",
		`{"params":[]}`:                                             "params must be an object",
		`{"params":{"region":"DE"},"expires_in":0}`:                 "expires_in must be",
		`{"params":{"region":"DE"},"expires_in":"60"}`:              "expires_in must be",
		`{"params":{"region":"DE"},"expires_in":31536001}`:          "expires_in must be",
		`{"params":{"region":"` + strings.Repeat("x", 1001) + `"}}`: "at most 1000 bytes",
		`{"params":{"region":"` + strings.Repeat("<", 900) + `"}}`:  "at most 4000 bytes together",
	} {
		w.call("reports.share", map[string]string{"id": r.ID}, "", body, keeper()).failed(t, 422, want)
	}
	both := w.call("reports.share", map[string]string{"id": r.ID}, "", `{"params":{"foo":1,"bar":1}}`, keeper())
	for _, name := range []string{"foo", "bar", "region"} {
		both.failed(t, 422, "params."+name)
	}
	a := w.call("reports.share", map[string]string{"id": r.ID}, "", `{"params":{"region":"DE"},"expires_in":31536000}`, keeper())
	s, ok := a.Data.(*reports.Share)
	if !ok || s.ExpiresAt != "2027-03-01T09:00:00.000Z" || s.URL != "https://acme.example.com/shared/reports/"+r.PID+"?token="+s.Token {
		t.Errorf("shared as %s", a.raw)
	}
	w.call("reports.share", map[string]string{"id": "0123456789abcdef01234567"}, "", `{}`, keeper()).failed(t, 404, "Custom Report not found")
	kept := w.add(`{"class":"Contacts","shareable":false}`)
	w.call("reports.share", map[string]string{"id": kept.ID}, "", `{}`, keeper()).failed(t, 422, "the report is set not to be shareable")
}

func TestSecureReportsNeedATokenAndTakeNoProvider(t *testing.T) {
	t.Parallel()
	called := false
	w := newWorld(t, nil, func(_ *world, d *reports.Deps) {
		d.Providers = map[string]reports.Provider{"warehouse": providerFunc(func(_ context.Context, r reports.RunRequest) (reports.Data, error) {
			called = true
			return reports.Data{Columns: r.Plan.Columns, Rows: [][]any{{r.Inputs["age"]}}, Total: 1}, nil
		}), "foreign": nil}
	})
	r := w.add(lockedReport)
	w.open(r, "").denied(t)
	w.open(r, "token=").denied(t)
	// Whether a child exists is nobody's business without a token either.
	w.call("reports.shared", map[string]string{"pid": r.PID, "report_id": "nothing"}, "", "", anyone()).denied(t)
	good := token(w.share(r, `{"params":{"region":"DE"}}`))
	for _, name := range []string{"store", "warehouse", "nothing"} {
		w.open(r, good+"&provider="+name).failed(t, 422, "provider cannot be chosen")
	}
	open := w.add(`{"class":"Contacts","input":{"age":{"rule":"editable","value":"7"}},"query":{"measures":[{"op":"count"}]}}`)
	for _, name := range []string{"nothing", "foreign", "unplugged", "https://evil.example/", "../store", "STORE"} {
		w.open(open, "data=1&provider="+name).failed(t, 422, "provider must be the name")
	}
	if a := w.open(open, "data=1&provider=store"); a.rows(t)[0][0] != 0.0 || called {
		t.Errorf("got %v, want a.rows(t)[0][0] = 0.0 and not called", a.raw)
	}
	if a := w.open(open, "data=1&provider=warehouse"); a.rows(t)[0][0] != "7" {
		t.Errorf(`got %v, want a.rows(t)[0][0] = "7"`, a.raw)
	}
}

type providerFunc func(context.Context, reports.RunRequest) (reports.Data, error)

func (f providerFunc) Data(ctx context.Context, r reports.RunRequest) (reports.Data, error) {
	return f(ctx, r)
}

func TestReportsOfAnotherBundleAreNotFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	child := w.add(`{"class":"Contacts","title":"Child","visual":"pie","input":{"region":{"rule":"editable"}},"query":{"filter":{"country":{"input":"region"}},"measures":[{"op":"count"}]}}`)
	secure := w.add(`{"class":"Contacts","title":"Secure child","secure":true}`)
	stranger := w.add(`{"class":"Contacts","title":"Stranger"}`)
	root := w.add(`{"class":"Contacts","child_reports":["` + child.ID + `","` + secure.ID + `","0123456789abcdef01234567"]}`)
	at := func(id, query string) answer {
		return w.call("reports.shared", map[string]string{"pid": root.PID, "report_id": id}, query, "", anyone())
	}
	for _, id := range []string{stranger.ID, child.PID, "0123456789abcdef01234567", "x", "../" + child.ID} {
		a := at(id, "")
		a.failed(t, 200, "Shared Report not found")
		if a.raw != `{"status":"failed","message":"Shared Report not found","data":[]}` {
			t.Errorf(`got %v, want "{\"status\":\"failed\",\"message\":\"Shared Report not found\",\"data\":[]}"`, a.raw)
		}
	}
	for _, pid := range []string{"", "nothing", root.ID, strings.Repeat("p", 1000)} {
		w.call("reports.shared", map[string]string{"pid": pid}, "", "", anyone()).failed(t, 200, "Shared Report not found")
	}
	for _, id := range []string{"", root.ID, child.ID} {
		if a := at(id, ""); a.Status != operation.StatusOK {
			t.Errorf("%q: got %s, want a.Status = %v", id, a.raw, operation.StatusOK)
		}
	}
	at(secure.ID, "").denied(t)
	if a := at(secure.ID, token(w.share(root, `{}`))); a.Status != operation.StatusOK {
		t.Errorf("with the bundle's token: %s", a.raw)
	}
	s, _ := at("", "").Data.(*reports.Shared)
	want := []reports.ChildReport{{ID: child.ID, Title: "Child", Visual: "pie"}, {ID: secure.ID, Title: "Secure child", Visual: "table"}}
	if diff := cmp.Diff(want, s.ChildReports); diff != "" {
		t.Errorf("mismatch (-want +got):\n%s", diff)
	}

	// What the root locks cannot be set by way of a child.
	locking := w.add(`{"class":"Contacts","input":{"region":{"rule":"locked"}},"child_reports":["` + child.ID + `"]}`)
	good := token(w.share(locking, `{"params":{"region":"DE"}}`))
	path := map[string]string{"pid": locking.PID, "report_id": child.ID}
	w.call("reports.shared", path, good+"&params[region]=FR", "", anyone()).failed(t, 422, "params[region] is not an input")
	w.call("reports.shared", path, "", "", anyone()).denied(t)
	w.addPeople(&person{Country: "DE"}, &person{Country: "FR"})
	if rows := w.call("reports.shared", path, good+"&data=1", "", anyone()).rows(t); rows[0][0] != 1.0 {
		t.Errorf("counted %v", rows)
	}
}

func TestSharedReportHidesInternals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]bool{tenants.FeatureTeams: true})
	w.addPeople(&person{Country: "DE", Status: "active", Teams: []string{teamA}})
	r := w.add(lockedReport)
	a := w.open(r, token(w.share(r, `{"params":{"region":"DE"}}`))+"&data=1")
	for _, canary := range []string{teamA, "canary", "region", "actions\":{\"", "debug\":{\"", "teams", "org_id", "acme", "locked"} {
		if strings.Contains(a.raw, canary) {
			t.Errorf("the answer holds %q: %s", canary, a.raw)
		}
	}
	var envelope struct{ Data map[string]json.RawMessage }
	if err := json.Unmarshal([]byte(a.raw), &envelope); err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range envelope.Data {
		names = append(names, name)
	}
	slices.Sort(names)
	want := []string{"actions", "child_reports", "controls", "data", "debug", "desc", "exportable", "fields", "folder", "id", "params", "parent",
		"retrieved_at", "row_key", "shareable", "title", "visual", "visual_props"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("mismatch (-want +got):\n%s", diff)
	}
	if string(envelope.Data["retrieved_at"]) != strconv.FormatInt(w.now.Unix(), 10) {
		t.Errorf("retrieved at %s", envelope.Data["retrieved_at"])
	}
}

func TestRevokedAndRotatedReportTokensAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r := w.add(lockedReport)
	issue := func() string { return w.share(r, `{"params":{"region":"DE"}}`) }
	lives := func(text string) bool { return w.open(r, token(text)).Status == operation.StatusOK }
	revoke := func(name, tokenID string) {
		t.Helper()
		a := w.call(name, map[string]string{"id": r.ID, "token_id": tokenID}, "", "", keeper())
		if a.Status != operation.StatusOK {
			t.Fatalf("got %v, want a.Status = %v", a.raw, operation.StatusOK)
		}
	}
	first, second := issue(), issue()
	claims := jwt.MapClaims{}
	if _, _, err := jwt.NewParser().ParseUnverified(first, claims); err != nil {
		t.Fatal(err)
	}
	id, _ := claims["jti"].(string)
	revoke("reports.revoke_share", id)
	revoke("reports.revoke_share", id)
	w.refused(r, "revoked", first)
	w.call("reports.revoke_share", map[string]string{"id": r.ID, "token_id": "0-another"}, "", "", keeper()).failed(t, 404, "Share not found")
	w.refused(r, "revoked", first)
	if !lives(second) {
		t.Error("another token died with it")
	}
	for range 3 { // all within one second
		revoke("reports.revoke_shares", "")
		w.refused(r, "revoked with all", second)
		if second = issue(); !lives(second) {
			t.Error("a token issued after the revocation is dead")
		}
	}
	w.refused(r, "revoked", first)
	other := w.add(`{"class":"Contacts"}`)
	if a := w.open(other, token(w.share(other, `{}`))); a.Status != operation.StatusOK {
		t.Errorf("another report's token: %s", a.raw)
	}

	must[*tenants.DataKeys](t)(w.directory.NextDataKey(t.Context(), w.tenant, reports.KeyPurpose))
	w.refused(r, "signed with the key before", second)
	third := issue()
	if !lives(third) {
		t.Error("a token signed with the new key is dead")
	}
	w.now = w.now.Add(3599 * time.Second)
	if !lives(third) {
		t.Error("a token died before its time")
	}
	w.now = w.now.Add(time.Second)
	w.refused(r, "expired", third)
	w.call("reports.revoke_share", map[string]string{"id": r.ID}, "", "", keeper()).failed(t, 404, "Share not found")

	revocations := func() int {
		return len(must[[]reports.Revocation](t)(w.kinds.Revocations.In(w.tenant.Workspace()).Find(t.Context(), store.Query{})))
	}
	if n := revocations(); n != 3 {
		t.Errorf("%d revocations are kept, want one token and the last two generations", n)
	}
	if _, _, err := jwt.NewParser().ParseUnverified(third, claims); err != nil {
		t.Fatal(err)
	}
	expired, _ := claims["jti"].(string)
	w.call("reports.revoke_share", map[string]string{"id": r.ID, "token_id": expired}, "", "", keeper()).failed(t, 404, "Share not found")
	w.now = w.now.AddDate(2, 0, 0)
	revoke("reports.revoke_shares", "")
	revoke("reports.revoke_shares", "")
	if n := revocations(); n != 2 {
		t.Errorf("%d revocations are kept after two years, want the last two generations", n)
	}
	if fourth := issue(); !lives(fourth) {
		t.Error("a token issued after it all is dead")
	}
}

// TestRevokedTokensAreRefusedUnderClockSkew covers a replica whose clock is ahead: it takes a revoked token for
// expired while it is valid by another's clock.
func TestRevokedTokensAreRefusedUnderClockSkew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r := w.add(`{"class":"Contacts"}`)
	revoke := func(token string) {
		t.Helper()
		claims := jwt.MapClaims{}
		if _, _, err := jwt.NewParser().ParseUnverified(token, claims); err != nil {
			t.Fatal(err)
		}
		id, _ := claims["jti"].(string)
		if a := w.call("reports.revoke_share", map[string]string{"id": r.ID, "token_id": id}, "", "", keeper()); a.Status != operation.StatusOK {
			t.Fatalf("got %v, want a.Status = %v", a.raw, operation.StatusOK)
		}
	}
	first, second := w.share(r, `{"expires_in":60}`), w.share(r, `{}`)
	revoke(first)
	w.now = w.now.Add(61 * time.Second)
	revoke(second)
	w.now = w.now.Add(-2 * time.Second)
	w.refused(r, "revoked", first)
}

func TestConcurrentRevocationsAllHold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r := w.add(`{"class":"Contacts","secure":true}`)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			text, _, _, err := w.module.Issue(t.Context(), w.tenant, r, "a test", nil, time.Hour)
			if err != nil {
				t.Error(err)
				return
			}
			if err := w.module.RevokeAll(t.Context(), w.tenant, r.PID); err != nil {
				t.Error(err)
			}
			_, err = w.module.Open(t.Context(), w.tenant, reports.SharedRequest{PID: r.PID, Token: secret.New(text)})
			if operation.ProblemOf(err).Code != 403 {
				t.Errorf("after its revocation the token gives %v", err)
			}
		})
	}
	group.Wait()
	if a := w.open(r, token(w.share(r, `{}`))); a.Status != operation.StatusOK {
		t.Errorf("got %v, want a.Status = %v", a.raw, operation.StatusOK)
	}
}

func TestHeadersKeepTheAnswerPrivate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for _, a := range []answer{w.open(w.add(`{"class":"Contacts"}`), ""), w.open(&reports.Report{PID: "nothing"}, "token=x")} {
		for name, want := range map[string]string{
			"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "X-Robots-Tag": "noindex",
		} {
			if got := a.header[name]; len(got) != 1 || got[0] != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
	}
	w2 := newWorld(t, nil)
	r := w2.add(`{"class":"Contacts"}`)
	a := w2.call("reports.share", map[string]string{"id": r.ID}, "", `{}`, keeper())
	s, _ := a.Data.(*reports.Share)
	for key, value := range a.call.AuditNote {
		if strings.Contains(value, s.Token) {
			t.Errorf("the audit note %s holds the token", key)
		}
	}
}

func TestSharedScopeIsTheReportsTeams(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]bool{tenants.FeatureTeams: true})
	w.addPeople(&person{Country: "A", Teams: []string{teamA}}, &person{Country: "B", Teams: []string{teamB}}, &person{Country: "none"})
	query := `"query":{"group_by":[{"field":"country"}]}`
	child := w.add(`{"class":"Contacts","teams":["` + teamB + `"],` + query + `}`)
	everyone := w.add(`{"class":"Contacts","child_reports":["` + child.ID + `"],` + query + `}`)
	ofA := w.add(`{"class":"Contacts","teams":["` + teamA + `"],"child_reports":["` + child.ID + `"],` + query + `}`)
	seen := func(r *reports.Report, id, query string) string {
		var found []string
		a := w.call("reports.shared", map[string]string{"pid": r.PID, "report_id": id}, "data=1&"+query, "", anyone())
		if a.Status != operation.StatusOK {
			return a.Message
		}
		for _, row := range a.rows(t) {
			found = append(found, row[0].(string))
		}
		return strings.Join(found, " ")
	}
	for _, test := range []struct {
		report    *reports.Report
		id, query string
		want      string
	}{
		{everyone, "", "", "A B none"},
		{everyone, "", "teams[]=" + teamA, "A none"},
		{everyone, "", "teams[]=garbage", "A B none"},
		{everyone, child.ID, "", "B none"},
		{everyone, child.ID, "teams[]=" + teamA, "Shared Report not found"},
		{ofA, "", "", "A none"},
		{ofA, "", "teams[]=" + teamA + "&teams[]=" + teamB, "A none"},
		{ofA, "", "teams[]=" + teamB, "Shared Report not found"},
		{ofA, child.ID, "", "Shared Report not found"},
	} {
		if got := seen(test.report, test.id, test.query); got != test.want {
			t.Errorf("%q with %q shows %q, want %q", test.id, test.query, got, test.want)
		}
	}

	off := newWorld(t, nil)
	off.addPeople(&person{Country: "A", Teams: []string{teamA}}, &person{Country: "B", Teams: []string{teamB}})
	r := off.add(`{"class":"Contacts","teams":["` + teamA + `"],"query":{"measures":[{"op":"count"}]}}`)
	if rows := off.open(r, "data=1&teams[]="+teamB).rows(t); rows[0][0] != 2.0 {
		t.Errorf("without the teams feature %v are counted", rows)
	}
}

func TestSharesOfAReportAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r := w.add(`{"class":"Contacts","secure":true}`)
	all := w.kinds.Issued.In(w.tenant.Workspace())
	fill := func(n int, generation int64) {
		recs := make([]*reports.Issued, n)
		for i := range recs {
			recs[i] = &reports.Issued{Report: r.ID, PID: r.PID, TokenID: strconv.Itoa(i), Key: 1, Generation: generation, Expires: w.now.Unix() + 60}
		}
		for part := range slices.Chunk(recs, 1000) {
			if err := all.Insert(t.Context(), part...); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill(9_999, 0)
	w.share(r, `{}`)
	w.call("reports.share", map[string]string{"id": r.ID}, "", `{}`, keeper()).failed(t, 422, "already has 10000 valid share tokens; revoke some")
	if a := w.call("reports.revoke_shares", map[string]string{"id": r.ID}, "", "", keeper()); a.Status != operation.StatusOK {
		t.Fatalf("got %v, want a.Status = %v", a.raw, operation.StatusOK)
	}
	revocations := make([]*reports.Revocation, 1000)
	for i := range revocations {
		revocations[i] = &reports.Revocation{PID: r.PID, TokenID: "former-" + strconv.Itoa(i), Expires: w.now.Unix() + 60}
	}
	if err := w.kinds.Revocations.In(w.tenant.Workspace()).Insert(t.Context(), revocations...); err != nil {
		t.Fatal(err)
	}
	text := w.share(r, `{}`)
	claims := jwt.MapClaims{}
	if _, _, err := jwt.NewParser().ParseUnverified(text, claims); err != nil {
		t.Fatal(err)
	}
	id, _ := claims["jti"].(string)
	w.call("reports.revoke_share", map[string]string{"id": r.ID, "token_id": id}, "", "", keeper()).failed(t, 422, "1000 tokens of this report are already revoked individually")
	before := must[int64](t)(all.Count(t.Context(), store.All()))
	w.share(r, `{}`)
	if after := must[int64](t)(all.Count(t.Context(), store.All())); after != before-19 {
		t.Errorf("%d records before another was issued, %d after", before, after)
	}
}
