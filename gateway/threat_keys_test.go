package gateway_test

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

	"github.com/alicebob/miniredis/v2"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/identity"
)

// ownRedis makes the gateway use a server that the test can look into.
func ownRedis(t testing.TB) (*miniredis.Miniredis, gatewaytest.Option) {
	t.Helper()
	mini := miniredis.RunT(t)
	return mini, func(c *config.Config, o *gateway.Options) {
		c.Redis.Addrs = []string{mini.Addr()}
		gatewaytest.PatientRedis(c, o)
	}
}

func TestKeyComesInOneHeaderAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, key := w.a, w.a.key
	path := "/api/custom-reports/" + p.ids[refReport]
	if a := p.Get(t, key, path); a.Code != http.StatusOK {
		t.Fatalf("%d %s", a.Code, a.Body)
	}
	h := gatewaytest.Header
	for name, changes := range map[string][]gatewaytest.Request{
		"nothing":         nil,
		"twice the same":  {h(keyHeader, key), h(keyHeader, key)},
		"good, then bad":  {h(keyHeader, key), h(keyHeader, randomKey(t, tenants.ServerFull))},
		"bad, then good":  {h(keyHeader, randomKey(t, tenants.ServerFull)), h(keyHeader, key)},
		"good, then none": {h(keyHeader, key), h(keyHeader, "")},
		"none, then good": {h(keyHeader, ""), h(keyHeader, key)},
		"empty":           {h(keyHeader, "")},
		"comma":           {h(keyHeader, key+","+key)}, "comma and blank": {h(keyHeader, key+", "+key)}, "trailing comma": {h(keyHeader, key+",")},
		"quoted": {h(keyHeader, `"`+key+`"`)}, "bearer in it": {h(keyHeader, "Bearer "+key)}, "upper case": {h(keyHeader, strings.ToUpper(key))},
		"authorization": {h("Authorization", "Bearer "+key)}, "authorization, bare": {h("Authorization", key)}, "basic": {h("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(key+":")))},
		"other header": {h("X-Api-Key", key)}, "underscores": {h("x_service_token", key)}, "cookie": {h("Cookie", keyHeader+"="+key)}, "session cookie": {gatewaytest.Cookie(&http.Cookie{Name: cookieName, Value: key})},
		"password": {func(r *http.Request) { r.SetBasicAuth(key, key) }},
	} {
		wantDenied(t, name, p.Do(t, http.MethodGet, path, changes...))
	}
	for _, query := range []string{"?x-service-token=", "?x_service_token=", "?token=", "?api_key=", "?key=", "?access_token="} {
		wantDenied(t, query, p.Do(t, http.MethodGet, path+query+url.QueryEscape(key)))
	}
	for _, body := range []string{`{"x-service-token":"` + key + `","token":"` + key + `","name":"n","label":"l","label_plural":"p"}`} {
		wantDenied(t, body, p.Do(t, http.MethodPost, "/api/custom/objects", gatewaytest.Body("application/json", body)))
	}
	// A bad key is not made good by a session, nor a second one by a first.
	wantDenied(t, "bad key and good session", p.Do(t, http.MethodGet, path, h(keyHeader, randomKey(t, tenants.ServerFull)), gatewaytest.Cookie(p.adminCookie)))
	// Folded header lines and a name with a blank are no header of that name.
	for name, line := range map[string]string{
		"blank before the colon": keyHeader + " : " + key, "folded": "X-Other: a\r\n " + keyHeader + ": " + key, "in a trailer": "Trailer: " + keyHeader,
	} {
		code, body := w.raw(t, "GET "+path+" HTTP/1.1\r\nHost: "+p.Host+"\r\n"+line+"\r\nConnection: close\r\n\r\n")
		if code < 400 || code > 499 || strings.Contains(body, p.mark) {
			t.Errorf("%s: %d %.200s", name, code, body)
		}
	}
}

// spellings are the ways in which a text could lie in a file.
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
	mini, option := ownRedis(t)
	w := newWorld(t, gatewaytest.Embedded, option) // the test reads the files
	p := w.a
	secrets := map[string]string{
		"server_full key": p.key, "server_read key": p.readKey, "browser key": p.pageKey, "session": p.cookie.Value, "administrator's session": p.adminCookie.Value,
		"invitation": p.ids[refInvite], "link that signs in": p.ids[refSignIn], "share token": p.ids[refShare], "secure share token": p.ids[refSecureShare], "password": gatewaytest.Password,
		"random part of a key": strings.Split(p.key, "_")[3], "encrypted contact field": p.strangersSecretOfFirst,
	}
	// Everything is used, so that whatever keeps a trace of use has one.
	path := "/api/custom-reports/" + p.ids[refReport]
	for _, key := range []string{p.key, p.readKey} {
		if a := p.Get(t, key, path); a.Code != http.StatusOK {
			t.Fatalf("%d %s", a.Code, a.Body)
		}
	}
	for _, c := range []*http.Cookie{p.cookie, p.adminCookie} {
		if a := p.Do(t, http.MethodGet, path, gatewaytest.Cookie(c)); a.Code != http.StatusOK {
			t.Fatalf("%d %s", a.Code, a.Body)
		}
	}
	p.Do(t, http.MethodGet, "/api/form/collections/schema", gatewaytest.WithKey(p.pageKey), gatewaytest.Header("Origin", pageOrigin))
	if a := p.Get(t, p.key, "/api/contacts/"+p.ids[refContact]+"/reveal-secret?field="+secretField); a.Field("field_value") != p.strangersSecretOfFirst {
		t.Fatalf("%d %s", a.Code, a.Body)
	}
	p.Get(t, "", "/api/reports/shared/"+p.ids[refSecurePID]+"?data=1&token="+p.ids[refSecureShare])
	p.Do(t, http.MethodGet, "/shared/reports/"+p.ids[refSecurePID]+"?token="+p.ids[refSecureShare])
	p.Do(t, http.MethodPost, "/auth/sign-in", gatewaytest.JSON(map[string]string{"email": p.ids[refEmail], "password": "wrong " + p.key}))
	wantDenied(t, "a bad key", p.Get(t, p.key+"x", path))
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
			t.Errorf("Redis holds %s, a %s, which this test does not read", key, kind)
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
	// The scan must be able to find something.
	stored := ""
	for name, content := range places {
		if strings.HasSuffix(name, ".db") || strings.HasSuffix(name, "-wal") {
			stored += content
		}
	}
	if !strings.Contains(stored, p.ids[refSecurePID]) || !strings.Contains(places["Redis"], ":session:") || !strings.Contains(places["Redis"], ":key:") || !strings.Contains(places["the log"], "reports.get") {
		t.Fatalf("the scan sees nothing of %d places: %.300s", len(places), places["Redis"])
	}
	for name, secret := range secrets {
		if len(secret) < 12 {
			t.Fatalf("%s is %q", name, secret)
		}
		for how, spelt := range spellings(secret) {
			for where, content := range places {
				if strings.Contains(content, spelt) {
					t.Errorf("%s stands in %s, %s", name, where, how)
				}
			}
		}
	}
}

func TestBadKeyChecksumIsRefusedWithoutLookup(t *testing.T) {
	t.Parallel()
	mini, option := ownRedis(t)
	g := gatewaytest.Start(t, option)
	o := g.Org(t, "acme")
	key := o.Key(t)
	path := "/api/campaigns/count"
	if a := o.Get(t, key, path); a.Code != http.StatusOK {
		t.Fatalf("%d %s", a.Code, a.Body)
	}
	unknown := o.Get(t, randomKey(t, tenants.ServerFull), path)
	before := mini.CommandCount()
	if o.Get(t, randomKey(t, tenants.ServerFull), path); mini.CommandCount() == before {
		t.Fatal("an unknown key is not looked up, so that the count tells nothing")
	}
	before = mini.CommandCount()
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
		wantDenied(t, fmt.Sprintf("%.60q", bad), a)
		if canonical(a, "", nil) != canonical(unknown, "", nil) {
			t.Errorf("%.60q is told from an unknown key:\n%s", bad, canonical(a, "", nil))
		}
	}
	if n := mini.CommandCount() - before; n != 0 {
		t.Errorf("%d look-ups for malformed keys", n)
	}
}

// caller is one way to call, and whether a row takes it.
type caller struct {
	name  string
	shown []gatewaytest.Request
	takes func(op *operation.Row) bool
}

func (p *party) callers(t testing.TB) []caller {
	key, h := gatewaytest.WithKey, gatewaytest.Header
	byKey := func(kind operation.Kinds) func(*operation.Row) bool {
		return func(op *operation.Row) bool { return op.Credentials&operation.Key != 0 && op.Kinds&kind != 0 }
	}
	nobody := func(*operation.Row) bool { return false }
	bySession := func(op *operation.Row) bool { return op.Credentials&operation.Session != 0 }
	elsewhere := p.KeyWith(t, func(k *control.NewKey) {
		k.Kind, k.Permissions, k.Origins = string(tenants.Browser), names(tenants.AllPermissions()), []string{"https://other.example.com"}
	}).Token
	expired := p.KeyWith(t, func(k *control.NewKey) { k.Permissions, k.Expires = names(tenants.AllPermissions()), time.Millisecond }).Token
	revoked := p.KeyWith(t, func(k *control.NewKey) { k.Permissions = names(tenants.AllPermissions()) })
	if _, err := control.Call[control.Key](t.Context(), p.Commands, "key.revoke", control.KeyRef{Org: p.Slug, ID: revoked.ID}); err != nil {
		t.Fatal(err)
	}
	faraway := p.KeyWith(t, func(k *control.NewKey) {
		k.Permissions, k.AllowIPs = names(tenants.AllPermissions()), []string{"192.0.2.0/24"}
	}).Token
	time.Sleep(5 * time.Millisecond) // until the key has expired
	return []caller{
		{"nothing", nil, nobody},
		{"server_full", []gatewaytest.Request{key(p.key)}, byKey(operation.ServerFull)},
		{"server_read", []gatewaytest.Request{key(p.readKey)}, func(op *operation.Row) bool { return byKey(operation.ServerRead)(op) && op.Method == http.MethodGet }},
		{"browser", []gatewaytest.Request{key(p.pageKey), h("Origin", pageOrigin)}, byKey(operation.Browser)},
		{"browser key without an origin", []gatewaytest.Request{key(p.pageKey)}, nobody},
		{"browser key from another origin", []gatewaytest.Request{key(p.pageKey), h("Origin", "https://evil.example.com")}, nobody},
		{"browser key from an origin that begins alike", []gatewaytest.Request{key(p.pageKey), h("Origin", pageOrigin+".evil.test")}, nobody},
		{"browser key of other origins", []gatewaytest.Request{key(elsewhere), h("Origin", pageOrigin)}, nobody},
		{"browser key from the null origin", []gatewaytest.Request{key(p.pageKey), h("Origin", "null")}, nobody},
		{"server_full from a browser", []gatewaytest.Request{key(p.key), h("Origin", pageOrigin)}, nobody},
		{"server_read from a browser", []gatewaytest.Request{key(p.readKey), h("Origin", pageOrigin)}, nobody},
		{"expired key", []gatewaytest.Request{key(expired)}, nobody},
		{"revoked key", []gatewaytest.Request{key(revoked.Token)}, nobody},
		{"key from another address", []gatewaytest.Request{key(faraway)}, nobody},
		{"forged address", []gatewaytest.Request{key(faraway), h("X-Forwarded-For", "192.0.2.1"), h("X-Real-Ip", "192.0.2.1"), h("Forwarded", "for=192.0.2.1")}, nobody},
		{"administrator's session", []gatewaytest.Request{gatewaytest.Cookie(p.adminCookie)}, bySession},
		{"session", []gatewaytest.Request{gatewaytest.Cookie(p.cookie)}, bySession},
		{"forged session", []gatewaytest.Request{gatewaytest.Cookie(randomCookie())}, nobody},
	}
}

// endsSessions orders rows so that those come last which end sessions that others need.
func endsSessions(op operation.Row) int {
	return slices.Index([]string{"sessions.end", "passwords.change", "sessions.end_others", "sessions.delete"}, op.Name)
}

func TestEveryKeyKindOnEveryOperation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.a
	callers := p.callers(t)
	// Signing out ends the session that the others need: it comes last.
	rows := slices.Clone(w.asked())
	slices.SortStableFunc(rows, func(a, b operation.Row) int { return cmp.Compare(endsSessions(a), endsSessions(b)) })
	for _, op := range rows {
		s := sampleFor(&op)
		for _, path := range op.Paths() {
			for _, c := range callers {
				q := w.build(&op, path, s, func(at slot) (string, bool) {
					if s.once {
						return randomLike(p.ids[at.ref]), true
					}
					if op.Name == "files.delete" && strings.HasPrefix(at.name, "path") {
						return randomLike(p.ids[at.ref]), true // the answer to a missing one shows as well that the caller was let in
					}
					return p.own(at)
				}, all)
				a := p.Do(t, q.method, q.target, append(q.changes, c.shown...)...)
				what := fmt.Sprintf("%s %s by %s", op.Method, path, c.name)
				refused := a.Code == http.StatusForbidden && a.Text() == deniedBody
				if want := op.Credentials != operation.Open && !c.takes(&op); refused != want {
					t.Errorf("%s: %d %.200s, refused should be %v", what, a.Code, a.Body, want)
				}
				wantPlain(t, what, a)
			}
		}
	}
}

func TestEveryPermissionOnEveryOperation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.a
	withAll := func(but ...tenants.Permission) []string {
		return slices.DeleteFunc(names(tenants.AllPermissions()), func(n string) bool { return slices.Contains(but, tenants.Permission(n)) })
	}
	issue := func(permissions []string) string {
		return p.KeyWith(t, func(k *control.NewKey) { k.Permissions = permissions }).Token
	}
	guarded := 0
	for _, op := range w.asked() {
		needed := op.Rule.Permissions()
		if len(needed) == 0 || op.Credentials&operation.Key == 0 || op.Rule.ExemptsKeys() {
			if op.Rule.ExemptsKeys() { // see TestFilesAreDeletedByWhoMay; what is deleted can be restored
				q := w.build(&op, op.Path, sampleFor(&op), p.own, all)
				p.Do(t, q.method, q.target, append(q.changes, gatewaytest.WithKey(p.key))...)
			}
			continue
		}
		guarded++
		s := sampleFor(&op)
		call := func(key string) *gatewaytest.Answer {
			q := w.build(&op, op.Path, s, p.own, all)
			return p.Do(t, q.method, q.target, append(q.changes, gatewaytest.WithKey(key))...)
		}
		want := fmt.Sprintf(`{"status":"failed","message":"Lacking necessary permission %s","data":{"permission":"%s"}}`, needed[0], needed[0])
		for name, key := range map[string]string{"no permission": issue(nil), "every other permission": issue(withAll(needed...))} {
			if a := call(key); a.Code != http.StatusForbidden || a.Text() != want {
				t.Errorf("%s with %s: %d %.300s", op.Name, name, a.Code, a.Body)
			}
		}
		for _, permission := range needed {
			a := call(issue([]string{string(permission)}))
			if strings.Contains(a.Message, "the caller lacks ") || strings.HasPrefix(a.Message, "The caller lacks ") {
				continue // what is given, or held, needs others: see TestNobodyGivesWhatTheyLack
			}
			if a.Code != http.StatusOK || a.Status != "ok" && op.Streams == nil {
				t.Errorf("%s with %s alone: %d %.300s", op.Name, permission, a.Code, a.Body)
			}
		}
	}
	if guarded < 5 {
		t.Errorf("%d operations need a permission", guarded)
	}
	// An account's permissions bound its keys.
	account := p.KeyWith(t, func(k *control.NewKey) { k.Name = "small"; k.Permissions = []string{"manage_forms"} })
	_, err := control.Call[control.IssuedKey](t.Context(), p.Commands, "key.create", control.NewKey{Org: p.Slug, Name: "wide", Kind: "server_full", Account: account.Account, Permissions: withAll()})
	if err == nil || !strings.Contains(err.Error(), `"small" lacks contacts`) || !strings.Contains(err.Error(), "it has manage_forms") {
		t.Errorf("a key wider than its account: %v", err)
	}
}

func TestComplianceSchemaAndDeactivatedAccounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.a
	path := "/api/compliance/schema"
	refusal := `{"status":"failed","message":"Manage Compliance","data":{"permission":"Manage Compliance"}}`
	for name, changes := range map[string][]gatewaytest.Request{
		"strongest key":       {gatewaytest.WithKey(p.key)},
		"reading key":         {gatewaytest.WithKey(p.readKey)},
		"browser key":         {gatewaytest.WithKey(p.pageKey), gatewaytest.Header("Origin", pageOrigin)},
		"person, no admin":    {gatewaytest.Cookie(p.cookie)},
		"key and admin's own": {gatewaytest.WithKey(p.key), gatewaytest.Cookie(p.adminCookie)},
	} {
		if a := p.Do(t, http.MethodGet, path, changes...); a.Code != http.StatusForbidden || a.Text() != refusal {
			t.Errorf("%s: %d %.200s", name, a.Code, a.Body)
		}
	}
	if a := p.Do(t, http.MethodGet, path, gatewaytest.Cookie(p.adminCookie)); a.Code != http.StatusOK {
		t.Errorf("an administrator: %d %.200s", a.Code, a.Body)
	}
	// No key can be made an administrator's.
	for _, change := range []func(*control.NewKey){
		func(k *control.NewKey) { k.Permissions = []string{"admin"} }, func(k *control.NewKey) { k.Permissions = []string{"Manage Compliance"} }, func(k *control.NewKey) { k.Kind = "admin" },
	} {
		n := control.NewKey{Org: p.Slug, Name: "x", Kind: "server_full"}
		change(&n)
		if _, err := control.Call[control.IssuedKey](t.Context(), w.Commands, "key.create", n); err == nil {
			t.Errorf("%+v was issued", n)
		}
	}
	// A deactivated account's keys die with it, also those that were just used.
	first := p.KeyWith(t, func(k *control.NewKey) { k.Name = "robot"; k.Permissions = names(tenants.AllPermissions()) })
	second := p.KeyWith(t, func(k *control.NewKey) { k.Account = first.Account })
	call := func(key string) *gatewaytest.Answer { return p.Get(t, key, "/api/campaigns/count") }
	for _, k := range []control.IssuedKey{first, second} {
		if a := call(k.Token); a.Code != http.StatusOK {
			t.Fatalf("%d %s", a.Code, a.Body)
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
		wantDenied(t, "a key of a deactivated account", call(k.Token))
	}
	if a := call(p.key); a.Code != http.StatusOK {
		t.Errorf("a key of another account: %d %.200s", a.Code, a.Body)
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
			t.Fatalf("%d %s", a.Code, a.Body)
		}
	}
	ahead.Store(int64(21 * time.Second)) // less than what a look-up stays fresh
	wantDenied(t, "an expired key that was just used", o.Get(t, key, path))
}

func inactive(a *identity.Account) error {
	a.Active = false
	return nil
}
