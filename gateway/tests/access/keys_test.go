package access

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/identity"
)

func TestKeyComesInOneHeaderAlone(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t)
	p, key := w.A, w.A.FullKey
	path := "/api/custom-reports/" + p.IDs[fixture.RefReport]
	if a := p.Get(t, key, path); a.Code != http.StatusOK {
		t.Fatalf("got %d %s, want %v", a.Code, a.Body, http.StatusOK)
	}
	h := gatewaytest.Header
	for name, changes := range map[string][]gatewaytest.Request{
		"nothing":         nil,
		"twice the same":  {h(fixture.KeyHeader, key), h(fixture.KeyHeader, key)},
		"good, then bad":  {h(fixture.KeyHeader, key), h(fixture.KeyHeader, fixture.RandomKey(t, tenants.ServerFull))},
		"bad, then good":  {h(fixture.KeyHeader, fixture.RandomKey(t, tenants.ServerFull)), h(fixture.KeyHeader, key)},
		"good, then none": {h(fixture.KeyHeader, key), h(fixture.KeyHeader, "")},
		"none, then good": {h(fixture.KeyHeader, ""), h(fixture.KeyHeader, key)},
		"empty":           {h(fixture.KeyHeader, "")},
		"comma":           {h(fixture.KeyHeader, key+","+key)}, "comma and blank": {h(fixture.KeyHeader, key+", "+key)}, "trailing comma": {h(fixture.KeyHeader, key+",")},
		"quoted": {h(fixture.KeyHeader, `"`+key+`"`)}, "bearer in it": {h(fixture.KeyHeader, "Bearer "+key)}, "upper case": {h(fixture.KeyHeader, strings.ToUpper(key))},
		"authorization": {h("Authorization", "Bearer "+key)}, "authorization, bare": {h("Authorization", key)}, "basic": {h("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(key+":")))},
		"other header": {h("X-Api-Key", key)}, "underscores": {h("x_service_token", key)}, "cookie": {h("Cookie", fixture.KeyHeader+"="+key)}, "session cookie": {gatewaytest.Cookie(&http.Cookie{Name: fixture.CookieName, Value: key})},
		"password": {func(r *http.Request) { r.SetBasicAuth(key, key) }},
	} {
		fixture.WantDenied(t, name, p.Do(t, http.MethodGet, path, changes...))
	}
	for _, query := range []string{"?x-service-token=", "?x_service_token=", "?token=", "?api_key=", "?key=", "?access_token="} {
		fixture.WantDenied(t, query, p.Do(t, http.MethodGet, path+query+url.QueryEscape(key)))
	}
	for _, body := range []string{`{"x-service-token":"` + key + `","token":"` + key + `","name":"n","label":"l","label_plural":"p"}`} {
		fixture.WantDenied(t, body, p.Do(t, http.MethodPost, "/api/custom/objects", gatewaytest.Body("application/json", body)))
	}
	// A session does not make up for a bad key, nor a first key for a bad second one.
	fixture.WantDenied(t, "bad key and good session", p.Do(t, http.MethodGet, path, h(fixture.KeyHeader, fixture.RandomKey(t, tenants.ServerFull)), gatewaytest.Cookie(p.AdminCookie)))
	// Folded header lines, and a name with a blank, are not this header.
	for name, line := range map[string]string{
		"blank before the colon": fixture.KeyHeader + " : " + key, "folded": "X-Other: a\r\n " + fixture.KeyHeader + ": " + key, "in a trailer": "Trailer: " + fixture.KeyHeader,
	} {
		code, body := w.Raw(t, "GET "+path+" HTTP/1.1\r\nHost: "+p.Host+"\r\n"+line+"\r\nConnection: close\r\n\r\n")
		if code < 400 || code > 499 || strings.Contains(body, p.Mark) {
			t.Errorf("%s: got %d %.200s, want code >= 400 and code <= 499", name, code, body)
		}
	}
}

// spellings returns the encodings in which a text could be stored.
func spellings(text string) map[string]string {
	raw := []byte(text)
	out := map[string]string{"clear": text, "hex": hex.EncodeToString(raw), "HEX": strings.ToUpper(hex.EncodeToString(raw))}
	for shift := range 3 { // wherever it begins in what was encoded
		padded := append(make([]byte, shift), raw...)
		for name, enc := range map[string]*base64.Encoding{"base64": base64.RawStdEncoding, "base64url": base64.RawURLEncoding} {
			encoded := enc.EncodeToString(padded)
			from := (shift*8 + 5) / 6
			out[fmt.Sprintf("%s at %d", name, shift)] = encoded[from : len(padded)/3*4]
		}
	}
	return out
}

func TestNothingStoredIsAUsableSecret(t *testing.T) {
	t.Parallel()
	mini, option := fixture.OwnRedis(t)
	w := fixture.NewWorld(t, gatewaytest.Embedded, option) // the test reads the files
	p := w.A
	secrets := map[string]string{
		"server_full key": p.FullKey, "server_read key": p.ReadKey, "browser key": p.BrowserKey, "session": p.MemberCookie.Value, "administrator's session": p.AdminCookie.Value,
		"invitation": p.IDs[fixture.RefInvite], "link that signs in": p.IDs[fixture.RefSignIn], "share token": p.IDs[fixture.RefShare], "secure share token": p.IDs[fixture.RefSecureShare], "password": gatewaytest.Password,
		"random part of a key": strings.Split(p.FullKey, "_")[3], "encrypted contact field": p.FirstSecret,
	}
	// Use everything, so that every trace of use exists.
	path := "/api/custom-reports/" + p.IDs[fixture.RefReport]
	for _, key := range []string{p.FullKey, p.ReadKey} {
		if a := p.Get(t, key, path); a.Code != http.StatusOK {
			t.Fatalf("got %d %s, want %v", a.Code, a.Body, http.StatusOK)
		}
	}
	for _, c := range []*http.Cookie{p.MemberCookie, p.AdminCookie} {
		if a := p.Do(t, http.MethodGet, path, gatewaytest.Cookie(c)); a.Code != http.StatusOK {
			t.Fatalf("got %d %s, want %v", a.Code, a.Body, http.StatusOK)
		}
	}
	p.Do(t, http.MethodGet, "/api/form/collections/schema", gatewaytest.WithKey(p.BrowserKey), gatewaytest.Header("Origin", fixture.PageOrigin))
	if a := p.Get(t, p.FullKey, "/api/contacts/"+p.IDs[fixture.RefContact]+"/reveal-secret?field="+fixture.SecretField); a.Field("field_value") != p.FirstSecret {
		t.Fatalf(`got %d %s, want a.Field("field_value") = %v`, a.Code, a.Body, p.FirstSecret)
	}
	p.Get(t, "", "/api/reports/shared/"+p.IDs[fixture.RefSecurePID]+"?data=1&token="+p.IDs[fixture.RefSecureShare])
	p.Do(t, http.MethodGet, "/shared/reports/"+p.IDs[fixture.RefSecurePID]+"?token="+p.IDs[fixture.RefSecureShare])
	p.Do(t, http.MethodPost, "/auth/sign-in", gatewaytest.JSON(map[string]string{"email": p.IDs[fixture.RefEmail], "password": "wrong " + p.FullKey}))
	fixture.WantDenied(t, "a bad key", p.Get(t, p.FullKey+"x", path))
	old, err := control.Call[control.IssuedKey](t.Context(), w.Commands, "key.rotate", control.KeyRotation{KeyRef: control.KeyRef{Org: p.Slug, ID: p.KeyWith(t, func(*control.NewKey) {}).ID}, Overlap: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	secrets["rotated key"] = old.Token

	places := map[string]string{"the log": w.Log.String()}
	var redis strings.Builder
	for _, key := range mini.Keys() {
		redis.WriteString(key + "\n")
		kind := mini.DB(0).Type(key)
		if kind == "zset" {
			members, err := mini.DB(0).ZMembers(key)
			if err != nil {
				t.Fatal(err)
			}
			redis.WriteString(strings.Join(members, "\n") + "\n")
			continue
		}
		if kind != "string" {
			t.Errorf("Redis holds %s, a %s, which this test does not read, want kind string", key, kind)
			continue
		}
		text, err := mini.Get(key)
		if err != nil {
			t.Fatal(err)
		}
		redis.WriteString(text + "\n")
	}
	places["Redis"] = redis.String()
	err = filepath.WalkDir(w.Config.Data, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		places[path] = string(raw)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// The scan must be able to find secrets.
	stored := ""
	for name, content := range places {
		if strings.HasSuffix(name, ".db") || strings.HasSuffix(name, "-wal") {
			stored += content
		}
	}
	if !strings.Contains(stored, p.IDs[fixture.RefSecurePID]) || !strings.Contains(places["Redis"], ":session:") || !strings.Contains(places["Redis"], ":key:") || !strings.Contains(places["the log"], "reports.get") {
		t.Fatalf("the scan of %d places finds no secrets, want the known ones: %.300s", len(places), places["Redis"])
	}
	for name, secret := range secrets {
		if len(secret) < 12 {
			t.Fatalf("%s is %q, want at least 12", name, secret)
		}
		for how, spelt := range spellings(secret) {
			for where, content := range places {
				if strings.Contains(content, spelt) {
					t.Errorf("%s stands in %s, %s, want it without %q", name, where, how, spelt)
				}
			}
		}
	}
}

func TestBadKeyChecksumIsRefusedWithoutLookup(t *testing.T) {
	t.Parallel()
	mini, option := fixture.OwnRedis(t)
	g := gatewaytest.Start(t, option)
	o := g.Org(t, "acme")
	key := o.Key(t)
	path := "/api/campaigns/count"
	if a := o.Get(t, key, path); a.Code != http.StatusOK {
		t.Fatalf("got %d %s, want %v", a.Code, a.Body, http.StatusOK)
	}
	unknown := o.Get(t, fixture.RandomKey(t, tenants.ServerFull), path)
	var lookups atomic.Int64
	mini.Server().SetPreHook(func(_ *server.Peer, _ string, args ...string) bool { // besides, clients say now and then that they are there
		if slices.ContainsFunc(args, func(arg string) bool { return strings.Contains(arg, "key:") }) {
			lookups.Add(1)
		}
		return false
	})
	if o.Get(t, fixture.RandomKey(t, tenants.ServerFull), path); lookups.Load() == 0 {
		t.Fatal("got no look-up of an unknown key, want one, because otherwise the count proves nothing")
	}
	lookups.Store(0)
	last := key[len(key)-1]
	other := byte('A')
	if last == other {
		other = 'B'
	}
	for _, bad := range []string{
		key[:len(key)-1] + string(other), key[:len(key)-1], key + "x", "x" + key, strings.Replace(key, "server_full", "server_read", 1), strings.Replace(key, "server_full", "root", 1),
		strings.ToUpper(key), strings.Replace(key, "tnt_", "", 1), "tnt_server_full__", "tnt_server_full_" + strings.Repeat("a", 27) + "_000000", strings.Repeat("a", 20_000), "é", "tnt", "_",
	} {
		a := o.Get(t, bad, path)
		fixture.WantDenied(t, fmt.Sprintf("%.60q", bad), a)
		if fixture.Canonical(a, "", nil) != fixture.Canonical(unknown, "", nil) {
			t.Errorf("%.60q: got\n%s\nwant the answer to an unknown key", bad, fixture.Canonical(a, "", nil))
		}
	}
	if n := lookups.Load(); n != 0 {
		t.Errorf("got %d look-ups for malformed keys, want 0", n)
	}
}

// caller is one way to call, and the rows that accept it.
type caller struct {
	name  string
	shown []gatewaytest.Request
	takes func(op *operation.Row) bool
}

func callers(t testing.TB, p *fixture.Party) []caller {
	key, h := gatewaytest.WithKey, gatewaytest.Header
	byKey := func(kind operation.Kinds) func(*operation.Row) bool {
		return func(op *operation.Row) bool { return op.Credentials&operation.Key != 0 && op.Kinds&kind != 0 }
	}
	nobody := func(*operation.Row) bool { return false }
	bySession := func(op *operation.Row) bool { return op.Credentials&operation.Session != 0 }
	elsewhere := p.KeyWith(t, func(k *control.NewKey) {
		k.Kind, k.Permissions, k.Origins = string(tenants.Browser), fixture.PermissionNames(tenants.AllPermissions()), []string{"https://other.example.com"}
	}).Token
	expired := p.KeyWith(t, func(k *control.NewKey) {
		k.Permissions, k.Expires = fixture.PermissionNames(tenants.AllPermissions()), time.Millisecond
	}).Token
	revoked := p.KeyWith(t, func(k *control.NewKey) { k.Permissions = fixture.PermissionNames(tenants.AllPermissions()) })
	if _, err := control.Call[control.Key](t.Context(), p.Commands, "key.revoke", control.KeyRef{Org: p.Slug, ID: revoked.ID}); err != nil {
		t.Fatal(err)
	}
	faraway := p.KeyWith(t, func(k *control.NewKey) {
		k.Permissions, k.AllowIPs = fixture.PermissionNames(tenants.AllPermissions()), []string{"192.0.2.0/24"}
	}).Token
	time.Sleep(5 * time.Millisecond) // until the key has expired
	return []caller{
		{"nothing", nil, nobody},
		{"server_full", []gatewaytest.Request{key(p.FullKey)}, byKey(operation.ServerFull)},
		{"server_read", []gatewaytest.Request{key(p.ReadKey)}, func(op *operation.Row) bool { return byKey(operation.ServerRead)(op) && op.Method == http.MethodGet }},
		{"browser", []gatewaytest.Request{key(p.BrowserKey), h("Origin", fixture.PageOrigin)}, byKey(operation.Browser)},
		{"browser key without an origin", []gatewaytest.Request{key(p.BrowserKey)}, nobody},
		{"browser key from another origin", []gatewaytest.Request{key(p.BrowserKey), h("Origin", "https://evil.example.com")}, nobody},
		{"browser key from an origin that begins alike", []gatewaytest.Request{key(p.BrowserKey), h("Origin", fixture.PageOrigin+".evil.test")}, nobody},
		{"browser key of other origins", []gatewaytest.Request{key(elsewhere), h("Origin", fixture.PageOrigin)}, nobody},
		{"browser key from the null origin", []gatewaytest.Request{key(p.BrowserKey), h("Origin", "null")}, nobody},
		{"server_full from a browser", []gatewaytest.Request{key(p.FullKey), h("Origin", fixture.PageOrigin)}, nobody},
		{"server_read from a browser", []gatewaytest.Request{key(p.ReadKey), h("Origin", fixture.PageOrigin)}, nobody},
		{"expired key", []gatewaytest.Request{key(expired)}, nobody},
		{"revoked key", []gatewaytest.Request{key(revoked.Token)}, nobody},
		{"key from another address", []gatewaytest.Request{key(faraway)}, nobody},
		{"forged address", []gatewaytest.Request{key(faraway), h("X-Forwarded-For", "192.0.2.1"), h("X-Real-Ip", "192.0.2.1"), h("Forwarded", "for=192.0.2.1")}, nobody},
		{"administrator's session", []gatewaytest.Request{gatewaytest.Cookie(p.AdminCookie)}, bySession},
		{"session", []gatewaytest.Request{gatewaytest.Cookie(p.MemberCookie)}, bySession},
		{"forged session", []gatewaytest.Request{gatewaytest.Cookie(fixture.RandomCookie())}, nobody},
	}
}

func TestEveryKeyKindOnEveryOperation(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t)
	p := w.A
	callers := callers(t, p)
	// Signing out comes last, because it ends the session that the other calls need.
	rows := slices.Clone(w.Rows())
	slices.SortStableFunc(rows, func(a, b operation.Row) int { return cmp.Compare(fixture.EndsSessions(a), fixture.EndsSessions(b)) })
	for _, op := range rows {
		s := fixture.SampleFor(&op)
		for _, path := range op.Paths() {
			for _, c := range callers {
				q := w.Build(&op, path, s, func(at fixture.Slot) (string, bool) {
					if s.Once {
						return fixture.RandomLike(p.IDs[at.Ref]), true
					}
					if op.Name == "files.delete" && strings.HasPrefix(at.Name, "path") {
						return fixture.RandomLike(p.IDs[at.Ref]), true // the answer to a missing one shows as well that the caller was let in
					}
					return p.Own(at)
				}, fixture.Every)
				a := p.Do(t, q.Method, q.Target, append(q.Changes, c.shown...)...)
				what := fmt.Sprintf("%s %s by %s", op.Method, path, c.name)
				refused := a.Code == http.StatusForbidden && a.Text() == fixture.DeniedBody
				if want := op.Credentials != operation.Open && !c.takes(&op); refused != want {
					t.Errorf("%s: %d %.200s, refused should be %v", what, a.Code, a.Body, want)
				}
				fixture.WantPlain(t, what, a)
			}
		}
	}
}

func TestEveryPermissionOnEveryOperation(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t, fixture.WithDemoFiles)
	p := w.A
	withAll := func(but ...tenants.Permission) []string {
		return slices.DeleteFunc(fixture.PermissionNames(tenants.AllPermissions()), func(n string) bool { return slices.Contains(but, tenants.Permission(n)) })
	}
	issue := func(permissions []string) string {
		return p.KeyWith(t, func(k *control.NewKey) { k.Permissions = permissions }).Token
	}
	guarded := 0
	for _, op := range w.Rows() {
		needed := op.Rule.Permissions()
		if len(needed) == 0 || op.Credentials&operation.Key == 0 || op.Rule.ExemptsKeys() {
			if op.Rule.ExemptsKeys() { // see TestWhoMayDeleteFiles; what is deleted can be restored
				q := w.Build(&op, op.Path, fixture.SampleFor(&op), p.Own, fixture.Every)
				p.Do(t, q.Method, q.Target, append(q.Changes, gatewaytest.WithKey(p.FullKey))...)
			}
			continue
		}
		guarded++
		s := fixture.SampleFor(&op)
		call := func(key string) *gatewaytest.Answer {
			q := w.Build(&op, op.Path, s, p.Own, fixture.Every)
			return p.Do(t, q.Method, q.Target, append(q.Changes, gatewaytest.WithKey(key))...)
		}
		want := fmt.Sprintf(`{"status":"failed","message":"Lacking necessary permission %s","data":{"permission":"%s"}}`, needed[0], needed[0])
		for name, key := range map[string]string{"no permission": issue(nil), "every other permission": issue(withAll(needed...))} {
			if a := call(key); a.Code != http.StatusForbidden || a.Text() != want {
				t.Errorf("%s with %s: got %d %.300s, want 403 and the text %q", op.Name, name, a.Code, a.Body, want)
			}
		}
		for _, permission := range needed {
			a := call(issue([]string{string(permission)}))
			if strings.Contains(a.Message, "the caller lacks ") || strings.HasPrefix(a.Message, "The caller lacks ") {
				continue // what is given, or held, needs others: see TestCallersCannotGrantRightsTheyLack
			}
			if !fixture.Succeeded(&op, a) {
				t.Errorf("%s with %s alone: got %d %.300s, want a success",
					op.Name, permission, a.Code, a.Body)
			}
		}
	}
	if guarded < 5 {
		t.Errorf("%d operations need a permission, want at least 5", guarded)
	}
	// An account's permissions limit its keys.
	account := p.KeyWith(t, func(k *control.NewKey) { k.Name = "small"; k.Permissions = []string{"manage_forms"} })
	_, err := control.Call[control.IssuedKey](t.Context(), p.Commands, "key.create", control.NewKey{Org: p.Slug, Name: "wide", Kind: "server_full", Account: account.Account, Permissions: withAll()})
	if err == nil || !strings.Contains(err.Error(), `"small" lacks contacts`) || !strings.Contains(err.Error(), "it has manage_forms") {
		t.Errorf("a key wider than its account: got %v, want an error, with %q and with %q",
			err, `"small" lacks contacts`, "it has manage_forms")
	}
}

func TestComplianceSchemaAndDeactivatedAccounts(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t)
	p := w.A
	path := "/api/compliance/schema"
	refusal := `{"status":"failed","message":"Manage Compliance","data":{"permission":"Manage Compliance"}}`
	for name, changes := range map[string][]gatewaytest.Request{
		"strongest key":       {gatewaytest.WithKey(p.FullKey)},
		"reading key":         {gatewaytest.WithKey(p.ReadKey)},
		"browser key":         {gatewaytest.WithKey(p.BrowserKey), gatewaytest.Header("Origin", fixture.PageOrigin)},
		"person, no admin":    {gatewaytest.Cookie(p.MemberCookie)},
		"key and admin's own": {gatewaytest.WithKey(p.FullKey), gatewaytest.Cookie(p.AdminCookie)},
	} {
		if a := p.Do(t, http.MethodGet, path, changes...); a.Code != http.StatusForbidden || a.Text() != refusal {
			t.Errorf("%s: got %d %.200s, want %v and a.Text() = %v", name, a.Code, a.Body, http.StatusForbidden, refusal)
		}
	}
	if a := p.Do(t, http.MethodGet, path, gatewaytest.Cookie(p.AdminCookie)); a.Code != http.StatusOK {
		t.Errorf("an administrator: got %d %.200s, want 200", a.Code, a.Body)
	}
	// No key can have an administrator's rights.
	for _, change := range []func(*control.NewKey){
		func(k *control.NewKey) { k.Permissions = []string{"admin"} }, func(k *control.NewKey) { k.Permissions = []string{"Manage Compliance"} }, func(k *control.NewKey) { k.Kind = "admin" },
	} {
		n := control.NewKey{Org: p.Slug, Name: "x", Kind: "server_full"}
		change(&n)
		if _, err := control.Call[control.IssuedKey](t.Context(), w.Commands, "key.create", n); err == nil {
			t.Errorf("%+v was issued, want an error", n)
		}
	}
	// A deactivated account's keys stop working, including those that were just used.
	first := p.KeyWith(t, func(k *control.NewKey) {
		k.Name = "robot"
		k.Permissions = fixture.PermissionNames(tenants.AllPermissions())
	})
	second := p.KeyWith(t, func(k *control.NewKey) { k.Account = first.Account })
	call := func(key string) *gatewaytest.Answer { return p.Get(t, key, "/api/campaigns/count") }
	for _, k := range []control.IssuedKey{first, second} {
		if a := call(k.Token); a.Code != http.StatusOK {
			t.Fatalf("got %d %s, want %v", a.Code, a.Body, http.StatusOK)
		}
	}
	tenant := p.Tenant(t)
	account, err := w.App.People().AccountByName(t.Context(), tenant, first.Account)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.App.People().UpdateAccount(t.Context(), tenant, account, inactive); err != nil {
		t.Fatal(err)
	}
	for _, k := range []control.IssuedKey{first, second} {
		fixture.WantDenied(t, "a key of a deactivated account", call(k.Token))
	}
	if a := call(p.FullKey); a.Code != http.StatusOK {
		t.Errorf("a key of another account: got %d %.200s, want 200", a.Code, a.Body)
	}
}

func TestKeyExpiryIsCheckedOnACacheHit(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	g := gatewaytest.Start(t, func(_ *config.Config, o *gateway.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	o := g.Org(t, "acme")
	key := o.KeyWith(t, func(k *control.NewKey) { k.Expires = 20 * time.Second }).Token
	path := "/api/campaigns/count"
	for range 2 {
		if a := o.Get(t, key, path); a.Code != http.StatusOK {
			t.Fatalf("got %d %s, want %v", a.Code, a.Body, http.StatusOK)
		}
	}
	ahead.Store(int64(21 * time.Second)) // less than what a look-up stays fresh
	fixture.WantDenied(t, "an expired key that was just used", o.Get(t, key, path))
}

func inactive(a *identity.Account) error {
	a.Active = false
	return nil
}
