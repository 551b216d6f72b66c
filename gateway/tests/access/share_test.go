package access

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/reports"
	"tenantry/tenants"
)

type claims = map[string]any

// forge returns a token with these headers, claims and key, as far as they can be encoded.
func forge(header, payload claims, newHash func() hash.Hash, key []byte) string {
	part := func(v any) string {
		raw, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	text := part(header) + "." + part(payload)
	if newHash == nil {
		return text + "."
	}
	mac := hmac.New(newHash, key)
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// signer returns the organization's key for share tokens and the key's identifier.
func signer(t testing.TB, p *fixture.Party) (key []byte, kid string) {
	t.Helper()
	keys, err := p.App.Directory().DataKeys(t.Context(), p.Tenant(t), reports.KeyPurpose)
	if err != nil {
		t.Fatal(err)
	}
	return keys.Current().Bytes(), strconv.Itoa(keys.Current().Version())
}

// goodClaims returns the header and claims of a valid token for the secure report.
func goodClaims(p *fixture.Party, kid string) (header, payload claims) {
	now := time.Now().Unix()
	return claims{"alg": "HS256", "typ": "JWT", "kid": kid}, claims{
		"iss": "tenantry", "aud": p.Slug, "sub": p.IDs[fixture.RefSecurePID], "iat": now, "exp": now + 60, "jti": "0-forged", "params": claims{"region": "DE"},
	}
}

func with(m claims, changes ...any) claims {
	c := maps.Clone(m)
	for i := 0; i < len(changes); i += 2 {
		name, _ := changes[i].(string)
		if c[name] = changes[i+1]; changes[i+1] == nil {
			delete(c, name)
		}
	}
	return c
}

// openShared reads the secure report with a token.
func openShared(t testing.TB, p *fixture.Party, token, more string) *gatewaytest.Answer {
	t.Helper()
	return p.Get(t, "", "/api/reports/shared/"+p.IDs[fixture.RefSecurePID]+"?data=1&token="+url.QueryEscape(token)+more)
}

func TestShareTokenSecretsAreStrong(t *testing.T) {
	t.Parallel()
	w := fixture.NewQuietWorld(t)
	_, kid := signer(t, w.A)
	header, payload := goodClaims(w.A, kid)
	for name, key := range map[string][]byte{
		"no key": nil, "empty": {}, "zeros": make([]byte, 32), "secret": []byte("secret"), "slug": []byte(w.A.Slug), "pid": []byte(w.A.IDs[fixture.RefSecurePID]), "kid": []byte(kid),
	} {
		fixture.WantDenied(t, "signed with "+name, openShared(t, w.A, forge(header, payload, sha256.New, key), ""))
	}
	fixture.WantDenied(t, "without a token", w.A.Get(t, "", "/api/reports/shared/"+w.A.IDs[fixture.RefSecurePID]))
	fixture.WantDenied(t, "with an empty token", openShared(t, w.A, "", ""))

	// The signing keys depend on the keyring: the gateway does not start with a key that is too short.
	g := gatewaytest.Start(t)
	g.Stop(t)
	raw, err := os.ReadFile(g.Config.KeyringPath())
	if err != nil {
		t.Fatal(err)
	}
	material := regexp.MustCompile(`"[A-Za-z0-9+/_-]{43}=?"`)
	if len(material.FindAll(raw, -1)) != 1 {
		t.Fatalf("the keyring holds %d keys of 32 bytes, want 1", len(material.FindAll(raw, -1)))
	}
	for name, weak := range map[string]string{"empty": "", "short": base64.StdEncoding.EncodeToString([]byte("short")), "one byte less": base64.StdEncoding.EncodeToString(make([]byte, 31))} {
		cfg := g.Config
		if err := os.WriteFile(cfg.KeyringPath(), material.ReplaceAll(raw, []byte(`"`+weak+`"`)), 0o600); err != nil {
			t.Fatal(err)
		}
		app, err := gatewaytest.New(t.Context(), cfg, gateway.Options{})
		if err == nil {
			t.Errorf("%s key in the keyring: the gateway starts, want an error", name)
			_ = app.Close()
		} else if !strings.Contains(err.Error(), "its key must be 32 bytes") {
			t.Errorf("%s key in the keyring: got %v, want it with %q", name, err, "its key must be 32 bytes")
		}
	}
}

func TestForgedShareTokensAreRefusedAlike(t *testing.T) {
	t.Parallel()
	w := fixture.NewQuietWorld(t)
	p := w.A
	key, kid := signer(t, p)
	header, payload := goodClaims(p, kid)
	good := forge(header, payload, sha256.New, key)
	if a := openShared(t, p, good, ""); a.Code != http.StatusOK || a.Status != "ok" {
		t.Fatalf("a good token: got %d %s, want 200 and the status ok", a.Code, a.Body)
	}
	now := time.Now().Unix()
	sign := func(h, c claims) string { return forge(h, c, sha256.New, key) }
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	rs := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims(payload))
	rs.Header["kid"] = kid
	rs256, err := rs.SignedString(private)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(good, ".")
	strangerKey, strangerKid := signer(t, w.B)
	jwk := claims{"kty": "oct", "k": base64.RawURLEncoding.EncodeToString([]byte("attacker"))}
	// The last character of 32 bytes in base64 has two unused bits.
	alphabet := "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, good[len(good)-1])
	bad := map[string]string{
		"garbage": "x", "two segments": parts[0] + "." + parts[1], "four": good + ".x", "five": good + "." + parts[0] + "." + parts[1], "empty segments": "..", "no signature": parts[0] + "." + parts[1] + ".",
		"alg none": forge(with(header, "alg", "none"), payload, nil, nil), "alg nOnE": forge(with(header, "alg", "nOnE"), payload, nil, nil), "alg none, signed": sign(with(header, "alg", "none"), payload),
		"no alg": sign(with(header, "alg", nil), payload), "empty alg": sign(with(header, "alg", ""), payload), "alg number": sign(with(header, "alg", 256), payload), "alg hs256": sign(with(header, "alg", "hs256"), payload),
		"HS384": forge(with(header, "alg", "HS384"), payload, sha512.New384, key), "HS512": forge(with(header, "alg", "HS512"), payload, sha512.New, key), "HS384 in the name only": sign(with(header, "alg", "HS384"), payload),
		"RS256": rs256, "RS256 in the name": sign(with(header, "alg", "RS256"), payload), "ES256": sign(with(header, "alg", "ES256"), payload),
		"jwk": forge(with(header, "jwk", jwk), payload, sha256.New, []byte("attacker")), "jwk, well signed": sign(with(header, "jwk", jwk), payload),
		"jku": sign(with(header, "jku", "http://127.0.0.1:1/keys"), payload), "x5u": sign(with(header, "x5u", "http://127.0.0.1:1/cert"), payload), "x5c": sign(with(header, "x5c", []string{"MII="}), payload),
		"crit": sign(with(header, "crit", []string{"exp"}), payload), "b64": sign(with(header, "b64", false, "crit", []string{"b64"}), payload), "zip": sign(with(header, "zip", "DEF"), payload), "cty": sign(with(header, "cty", "JWT"), payload), "no typ": sign(with(header, "typ", nil), payload),
		"no kid": sign(with(header, "kid", nil), payload), "empty kid": sign(with(header, "kid", ""), payload), "kid number": sign(with(header, "kid", 1), payload), "kid list": sign(with(header, "kid", []string{kid}), payload),
		"kid traversal": sign(with(header, "kid", "../../../../dev/null"), payload), "kid null device": forge(with(header, "kid", "/dev/null"), payload, sha256.New, nil), "kid sql": sign(with(header, "kid", "1' OR '1'='1"), payload), "kid 0": sign(with(header, "kid", "0"), payload), "kid +1": sign(with(header, "kid", "+"+kid), payload), "kid 01": sign(with(header, "kid", "0"+kid), payload), "kid 999": sign(with(header, "kid", "999"), payload),
		"no exp": sign(header, with(payload, "exp", nil)), "exp null": `` + sign(header, with(payload, "exp", json.RawMessage("null"))), "exp text": sign(header, with(payload, "exp", strconv.FormatInt(now+60, 10))), "exp fraction": sign(header, with(payload, "exp", json.RawMessage(fmt.Sprintf("%d.5", now+60)))), "exp exponent": sign(header, with(payload, "exp", json.RawMessage("9e9"))),
		"exp now": sign(header, with(payload, "exp", now)), "expired": sign(header, with(payload, "iat", now-120, "exp", now-60)), "exp zero": sign(header, with(payload, "exp", 0)), "exp negative": sign(header, with(payload, "exp", -1)), "far exp": sign(header, with(payload, "exp", now+10*366*86400)), "huge exp": sign(header, with(payload, "exp", json.RawMessage("99999999999999999999"))),
		"future nbf": sign(header, with(payload, "nbf", now+600)), "future iat": sign(header, with(payload, "iat", now+30)), "no iat": sign(header, with(payload, "iat", nil)),
		"no aud": sign(header, with(payload, "aud", nil)), "wrong aud": sign(header, with(payload, "aud", w.B.Slug)), "aud list": sign(header, with(payload, "aud", []string{p.Slug})), "aud both": sign(header, with(payload, "aud", []string{w.B.Slug, p.Slug})), "empty aud": sign(header, with(payload, "aud", "")), "aud case": sign(header, with(payload, "aud", strings.ToUpper(p.Slug))),
		"no sub": sign(header, with(payload, "sub", nil)), "wrong sub": sign(header, with(payload, "sub", p.IDs[fixture.RefPID])), "empty sub": sign(header, with(payload, "sub", "")), "wrong iss": sign(header, with(payload, "iss", "else")), "no iss": sign(header, with(payload, "iss", nil)), "no jti": sign(header, with(payload, "jti", nil)), "odd jti": sign(header, with(payload, "jti", "../x")), "jti without generation": sign(header, with(payload, "jti", "forged")),
		"unknown claim": sign(header, with(payload, "admin", true)), "params text": sign(header, with(payload, "params", "DE")), "no params": sign(header, with(payload, "params", nil)),
		"altered last character": good[:len(good)-1] + string(alphabet[last^1]), "altered first of the signature": parts[0] + "." + parts[1] + "." + fixture.FlipCharacter(parts[2], 0), "altered claims": parts[0] + "." + fixture.FlipCharacter(parts[1], 20) + "." + parts[2],
		"padded": good + "=", "standard base64": strings.NewReplacer("-", "+", "_", "/").Replace(good) + "=", "line end": good + "\n", "line end inside": parts[0] + ".\n" + parts[1] + "." + parts[2], "blank": " " + good, "bearer": "Bearer " + good,
		"another organization's": w.B.IDs[fixture.RefSecureShare], "another organization's key": forge(with(header, "kid", strangerKid), payload, sha256.New, strangerKey), "another report's": p.IDs[fixture.RefShare], "twice": good + good,
		"100 kB": sign(header, with(payload, "params", claims{"region": strings.Repeat("a", 70_000)})), "an API key": p.FullKey,
	}
	if strings.ContainsAny(good, "-_") == false {
		delete(bad, "standard base64") // it is the same
		bad["padding"] = good + "="
	}
	reference := fixture.Canonical(p.Get(t, "", "/api/reports/shared/"+p.IDs[fixture.RefSecurePID]), "", nil)
	for name, token := range bad {
		a := openShared(t, p, token, "")
		fixture.WantDenied(t, name, a)
		if got := fixture.Canonical(a, "", nil); got != reference {
			t.Errorf("%s: got\n%s\nwant as without a token:\n%s", name, got, reference)
		}
	}
	// A token that is too large for a request line is refused before it is read.
	code, body := w.Raw(t, "GET /api/reports/shared/"+p.IDs[fixture.RefSecurePID]+"?token="+strings.Repeat("a", 1<<20)+" HTTP/1.1\r\nHost: "+p.Host+"\r\nConnection: close\r\n\r\n")
	if code < 400 || code > 499 || strings.Contains(body, p.Mark) {
		t.Errorf("1 MiB: got %d %.200s, want at least 400, at most 499 and without %q", code, body, p.Mark)
	}
	// A report that needs no token also refuses a bad one.
	for _, name := range []string{"alg none", "garbage", "expired", "another organization's"} {
		fixture.WantDenied(t, "open report, "+name, p.Get(t, "", "/api/reports/shared/"+p.IDs[fixture.RefPID]+"?token="+url.QueryEscape(bad[name])))
	}
	fixture.WantDenied(t, "two tokens", openShared(t, p, bad["expired"], ""))
	if a := openShared(t, p, good, "&token="+good); a.Code != http.StatusBadRequest {
		t.Errorf("the token twice: got %d %.200s, want 400", a.Code, a.Body)
	}
}

func TestLockedInputsComeFromTheTokenAlone(t *testing.T) {
	t.Parallel()
	w := fixture.NewQuietWorld(t)
	p := w.A
	key, kid := signer(t, p)
	header, payload := goodClaims(p, kid)
	sign := func(params claims) string { return forge(header, with(payload, "params", params), sha256.New, key) }
	good := sign(claims{"region": "DE"})
	base := openShared(t, p, good, "")
	if base.Code != http.StatusOK || !strings.Contains(base.Text(), `"DE"`) || strings.Contains(base.Text(), `"FR"`) {
		t.Fatalf(`got %d %s, want %v and containing "\"DE\"" and nothing containing "\"FR\""`,
			base.Code, base.Body, http.StatusOK)
	}
	fixture.WantDenied(t, "the locked input is missing", openShared(t, p, sign(claims{}), ""))
	fixture.WantDenied(t, "an undeclared input in the token", openShared(t, p, sign(claims{"region": "DE", "other": "x"}), ""))
	fixture.WantDenied(t, "an editable input in the token", openShared(t, p, sign(claims{"region": "DE", "city": "x"}), ""))
	for name, v := range map[string]any{"list": []string{"DE", "FR"}, "object": claims{"$ne": "x"}, "null": nil} {
		fixture.WantDenied(t, "the locked value is a "+name, openShared(t, p, sign(claims{"region": v}), ""))
	}
	for _, more := range []string{
		"&params[region]=FR", "&params[region]=", "&params[region]=DE", "&params[undeclared]=x", "&params[Region]=FR", "&params[region][]=FR", "&params[region][ne]=DE", "&params[]=FR", "&params=FR", "&params[city]=a&params[city]=b", "&params[exp]=1", "&params[__proto__]=x",
	} {
		fixture.WantRefused(t, more, openShared(t, p, good, more))
	}
	for _, more := range []string{"&filters[country]=FR", "&locked[region]=FR"} {
		fixture.WantRefused(t, more, openShared(t, p, good, more))
	}
	for _, more := range []string{"&region=FR", "&country=FR"} {
		a := openShared(t, p, good, more)
		if fixture.Blanked(nil).ReplaceAllString(a.DataJSON(), "") != fixture.Blanked(nil).ReplaceAllString(base.DataJSON(), "") {
			t.Errorf("%s: got %d %.300s, want the answer unchanged", more, a.Code, a.Body)
		}
	}
	// A locked input that is named like a claim does not replace the claim.
	p.Import(t, `{"kind":"custom_report","id":"`+p.ID(300)+`","pid":"report-named-like-claims","title":"T","class":"Contacts","secure":true,"query":{"filter":{"country":{"input":"exp"},"city":{"input":"aud"}}},`+
		`"input":{"exp":{"rule":"locked","value":""},"aud":{"rule":"locked","value":""}}}`)
	token, _ := p.Share(t, p.ID(300), claims{"exp": "1", "aud": "x"})
	if a := p.Get(t, "", "/api/reports/shared/report-named-like-claims?token="+token); a.Status != "ok" {
		t.Errorf("locked inputs named like claims: got %d %.300s, want the status ok", a.Code, a.Body)
	}
	expired := forge(header, with(payload, "sub", "report-named-like-claims", "exp", time.Now().Unix()-1, "iat", time.Now().Unix()-60, "params", claims{"exp": "9999999999", "aud": "acme"}), sha256.New, key)
	fixture.WantDenied(t, "a parameter exp against the claim exp", p.Get(t, "", "/api/reports/shared/report-named-like-claims?token="+expired))
	missing := forge(header, with(payload, "sub", "report-named-like-claims", "exp", nil, "params", claims{"exp": "9999999999", "aud": "acme"}), sha256.New, key)
	fixture.WantDenied(t, "a parameter exp instead of the claim exp", p.Get(t, "", "/api/reports/shared/report-named-like-claims?token="+missing))
	// Only locked inputs can be fixed when a token is issued.
	for _, params := range []claims{{}, {"region": nil}, {"region": []string{"DE"}}, {"region": claims{"$ne": 1}}, {"region": "DE", "city": "x"}, {"region": "DE", "undeclared": "x"}} {
		a := p.Do(t, http.MethodPost, "/api/custom-reports/"+p.IDs[fixture.RefSecure]+"/share", gatewaytest.WithKey(p.FullKey), gatewaytest.JSON(claims{"params": params}))
		if a.Code != http.StatusUnprocessableEntity {
			t.Errorf("sharing with %v: got %d %.200s, want 422", params, a.Code, a.Body)
		}
	}
}

func TestSecureReportsNeedTheirOwnToken(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t)
	p := w.A
	secure := "/api/reports/shared/" + p.IDs[fixture.RefSecurePID]
	token := p.IDs[fixture.RefSecureShare]
	fixture.WantDenied(t, "no token", p.Get(t, "", secure))
	fixture.WantDenied(t, "no token, rows", p.Get(t, "", secure+"?data=1"))
	fixture.WantDenied(t, "no token, by a key", p.Get(t, p.FullKey, secure+"?data=1"))
	fixture.WantDenied(t, "no token, by an administrator", p.Do(t, http.MethodGet, secure, gatewaytest.Cookie(p.AdminCookie)))
	fixture.WantDenied(t, "token in a header", p.Do(t, http.MethodGet, secure, gatewaytest.Header("Authorization", "Bearer "+token)))
	for _, provider := range []string{"store", "other", "http://127.0.0.1:1/", "", "null"} {
		a := p.Get(t, "", secure+"?token="+token+"&provider="+url.QueryEscape(provider))
		if provider == "" {
			if a.Code != http.StatusOK {
				t.Errorf("an empty provider: got %d %.200s, want 200", a.Code, a.Body)
			}
			continue
		}
		fixture.WantRefused(t, "secure report with provider "+provider, a)
	}
	for name, id := range map[string]string{
		"another bundle's report": p.IDs[fixture.RefChild], "another secure report": p.IDs[fixture.RefReport], "another organization's": w.B.IDs[fixture.RefReport], "nothing": fixture.RandomLike(p.IDs[fixture.RefReport]), "garbage": "x", "pid": p.IDs[fixture.RefPID],
	} {
		a := p.Get(t, "", secure+"/"+id+"?token="+token)
		if a.Code != http.StatusOK || a.Status != "failed" || a.Message != "Shared Report not found" || a.DataJSON() != "[]" {
			t.Errorf("report_id of %s: got %d %.200s, want 200, the status failed, the message %q and the data %q",
				name, a.Code, a.Body, "Shared Report not found", "[]")
		}
	}
	if a := p.Get(t, "", "/api/reports/shared/"+p.IDs[fixture.RefPID]+"/"+p.IDs[fixture.RefSecure]); a.Status != "failed" || strings.Contains(a.Text(), p.Mark) {
		t.Errorf("a secure report through an open bundle that does not hold it: got %d %.200s, want the status failed and without %q",
			a.Code, a.Body, p.Mark)
	}
	// A secure child of an open bundle needs a token of that bundle.
	p.Import(t, `{"kind":"custom_report","id":"`+p.ID(301)+`","pid":"an-open-bundle-0001","secure":false,"title":"T","class":"Campaigns","query":{},"child_reports":["`+p.ID(302)+`"]}`,
		`{"kind":"custom_report","id":"`+p.ID(302)+`","pid":"a-secure-child-0001","title":"T","class":"Campaigns","query":{},"secure":true}`)
	child := "/api/reports/shared/an-open-bundle-0001/" + p.ID(302)
	fixture.WantDenied(t, "a secure child without a token", p.Get(t, "", child))
	fixture.WantDenied(t, "a secure child with another report's token", p.Get(t, "", child+"?token="+token))
	own, _ := p.Share(t, p.ID(301), claims{})
	if a := p.Get(t, "", child+"?token="+own); a.Status != "ok" {
		t.Errorf("a secure child with its bundle's token: got %d %.200s, want the status ok", a.Code, a.Body)
	}
	if a := p.Get(t, "", child+"?provider=store&token="+own); a.Code != http.StatusUnprocessableEntity {
		t.Errorf("a secure child with a provider: got %d %.200s, want 422", a.Code, a.Body)
	}
}

func TestSharedAnswersHoldNothingInternal(t *testing.T) {
	t.Parallel()
	w := fixture.NewQuietWorld(t)
	p := w.A
	org := p.Tenant(t).Org
	for name, path := range map[string]string{
		"open":      "/api/reports/shared/" + p.IDs[fixture.RefPID] + "?data=1",
		"with more": "/api/reports/shared/" + p.IDs[fixture.RefPID] + "?data=1&debug=1&actions=1&fields=all&schema=full&teams[]=" + p.IDs[fixture.RefTeam],
		"child":     "/api/reports/shared/" + p.IDs[fixture.RefPID] + "/" + p.IDs[fixture.RefChild] + "?data=1",
		"files":     "/api/reports/shared/" + p.IDs[fixture.RefPID] + "/" + p.ID(83) + "?data=1",
		"secure":    "/api/reports/shared/" + p.IDs[fixture.RefSecurePID] + "?data=1&token=" + p.IDs[fixture.RefSecureShare],
	} {
		a := p.Get(t, "", path)
		if a.Status != "ok" || !strings.Contains(a.DataJSON(), `"rows":[[`) {
			t.Fatalf(`%s: got %d %.300s, want a.Status = "ok" and containing "\"rows\":[["`, name, a.Code, a.Body)
		}
		data := a.DataJSON()
		for what, pattern := range map[string]string{
			"actions": `"actions":\{[^}]`, "debug": `"debug":\{[^}]`, "locked inputs": `"rule":"locked"|"region"`, "teams": `"teams?(_id)?"|` + p.IDs[fixture.RefTeam] + `|` + p.IDs[fixture.RefOtherTeam],
			"organization": `"org(_id|anization)?"|"slug"|` + regexp.QuoteMeta(org.ID), "secrets": `"secrets"|"hash"|enc\.v1\.|"pin"|"` + fixture.SecretField + `"`, "query": `"query"|"filter"`, "pid": `"pid"`,
		} {
			if found := regexp.MustCompile(pattern).FindString(data); found != "" {
				t.Errorf("%s: the answer holds %s: %s in %.1500s, want none", name, what, found, data)
			}
		}
	}
}

func TestRevokedAndRotatedTokensAreRefused(t *testing.T) {
	t.Parallel()
	w := fixture.NewQuietWorld(t)
	p := w.A
	region := claims{"region": "DE"}
	opens := func(token string) bool {
		a := openShared(t, p, token, "")
		if a.Status != "ok" {
			fixture.WantDenied(t, "a dead token", a)
		}
		return a.Status == "ok"
	}
	first, id := p.Share(t, p.IDs[fixture.RefSecure], region)
	second, _ := p.Share(t, p.IDs[fixture.RefSecure], region)
	path := "/api/custom-reports/" + p.IDs[fixture.RefSecure] + "/shares"
	if a := p.Do(t, http.MethodDelete, path+"/"+id, gatewaytest.WithKey(p.FullKey)); a.Code != http.StatusOK {
		t.Fatalf("got %d %s, want %v", a.Code, a.Body, http.StatusOK)
	}
	if opens(first) || !opens(second) {
		t.Errorf("after revoking the first token: opens = %t and %t, want false and true", opens(first), opens(second))
	}
	// Calls of another organization, or for another report, revoke nothing here.
	_, live := p.Share(t, p.IDs[fixture.RefSecure], region)
	w.B.Do(t, http.MethodDelete, path+"/"+live, gatewaytest.WithKey(w.B.FullKey))
	w.B.Do(t, http.MethodDelete, "/api/custom-reports/"+w.B.IDs[fixture.RefSecure]+"/shares", gatewaytest.WithKey(w.B.FullKey))
	p.Do(t, http.MethodDelete, "/api/custom-reports/"+p.IDs[fixture.RefScratch]+"/shares", gatewaytest.WithKey(p.FullKey))
	if !opens(second) {
		t.Error("got a token revoked from another place, want it valid")
	}
	if a := p.Do(t, http.MethodDelete, path, gatewaytest.WithKey(p.FullKey)); a.Code != http.StatusOK {
		t.Fatalf("got %d %s, want %v", a.Code, a.Body, http.StatusOK)
	}
	third, _ := p.Share(t, p.IDs[fixture.RefSecure], region)
	if opens(second) || !opens(third) {
		t.Errorf("after revoking all tokens: opens(old) = %t, opens(new) = %t, want false and true",
			opens(second), opens(third))
	}
	if _, err := w.App.Directory().NextDataKey(t.Context(), p.Tenant(t), reports.KeyPurpose); err != nil {
		t.Fatal(err)
	}
	if opens(third) {
		t.Error("got a valid token of the former key, want it refused")
	}
	fourth, _ := p.Share(t, p.IDs[fixture.RefSecure], region)
	if !opens(fourth) {
		t.Error("got a refused token of the new key, want it valid")
	}
	if _, err := control.Call[control.Organization](t.Context(), w.Commands, "org.suspend", control.Slug{Slug: p.Slug}); err != nil {
		t.Fatal(err)
	}
	if a := openShared(t, p, fourth, ""); a.Status == "ok" {
		t.Errorf("a token of a suspended organization: got %d %.200s, want a failure", a.Code, a.Body)
	}
}

func TestSharedAnswersAreNotCachedOrLogged(t *testing.T) {
	t.Parallel()
	w := fixture.NewQuietWorld(t)
	p := w.A
	token := p.IDs[fixture.RefSecureShare]
	wrong := fixture.FlipCharacter(token, len(token)-20)
	for _, path := range []string{
		"/api/reports/shared/" + p.IDs[fixture.RefSecurePID] + "?token=" + token, "/api/reports/shared/" + p.IDs[fixture.RefSecurePID] + "?token=" + wrong, "/api/reports/shared/" + p.IDs[fixture.RefSecurePID],
		"/api/reports/shared/nothing?token=" + token, "/api/reports/shared/" + p.IDs[fixture.RefSecurePID] + "/x?token=" + token,
		"/shared/reports/" + p.IDs[fixture.RefSecurePID] + "?token=" + token, "/shared/reports/" + p.IDs[fixture.RefSecurePID] + "?token=" + wrong, "/shared/reports/nothing?token=" + token,
	} {
		a := p.Do(t, http.MethodGet, path)
		h := a.Header
		if !strings.Contains(h.Get("Cache-Control"), "no-store") || h.Get("Referrer-Policy") != "no-referrer" || h.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(h.Get("X-Robots-Tag"), "noindex") {
			t.Errorf(`%.60s: got %v, want containing "no-store" and h.Get("Referrer-Policy") = "no-referrer" and h.Get("X-Content-Type-Options") = "nosniff" and containing "noindex"`,
				path, h)
		}
		if h.Get("Access-Control-Allow-Origin") != "" || h.Get("Set-Cookie") != "" {
			t.Errorf(`%.60s: got %v, want h.Get("Access-Control-Allow-Origin") = "" and h.Get("Set-Cookie") = ""`, path, h)
		}
		if text := a.Text(); strings.HasPrefix(path, "/api/") && (strings.Contains(text, token) || strings.Contains(text, wrong)) {
			t.Errorf("%.60s repeats the token, want it nowhere", path)
		}
	}
	p.Do(t, http.MethodGet, "/api/no/such/route?token="+token)
	p.Do(t, http.MethodPost, "/api/reports/shared/"+p.IDs[fixture.RefSecurePID]+"?token="+token)
	p.Do(t, http.MethodGet, "/api/reports/shared/"+p.IDs[fixture.RefSecurePID]+"?token="+token+"&x=%zz")
	log := w.Log.String()
	if !strings.Contains(log, "reports.shared") {
		t.Fatal("got no log line of reports.shared, want one")
	}
	for _, secret := range []string{token, wrong, token[len(token)-30:], wrong[:40], p.FullKey, "token="} {
		if strings.Contains(log, secret) {
			t.Errorf("the log holds %.40s..., want it nowhere", secret)
		}
	}
}

// TestSharingShowsNoMoreThanTheSharerSees checks that a caller limited to teams can share only reports of these teams,
// because a token is read with the report's teams.
func TestSharingShowsNoMoreThanTheSharerSees(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme", "teams")
	const a, b = "0000000000000000000000a1", "0000000000000000000000b1"
	report := func(id, pid, teams string) string {
		return `{"kind":"custom_report","id":"` + id + `","pid":"` + pid + `","title":"t","class":"Contacts","secure":true,"query":{"fields":["email"]},"teams":` + teams + `}`
	}
	acme.Import(t,
		`{"kind":"team","id":"`+a+`","name":"A"}`, `{"kind":"team","id":"`+b+`","name":"B"}`,
		`{"kind":"contact","email":"of-a@example.com","teams":["`+a+`"]}`, `{"kind":"contact","email":"of-b@example.com","teams":["`+b+`"]}`,
		report("0000000000000000000000e1", "report-for-all-teams-0001", `[]`),
		report("0000000000000000000000e2", "report-for-team-a-000001", `["`+a+`"]`),
		report("0000000000000000000000e3", "report-for-both-teams-01", `["`+a+`","`+b+`"]`))
	limited := acme.KeyWith(t, func(k *control.NewKey) {
		k.Permissions, k.Teams = []string{string(tenants.ManageReports)}, []string{a}
	}).Token
	free := acme.Key(t, tenants.ManageReports)
	share := func(key, id string) *gatewaytest.Answer {
		return acme.Do(t, http.MethodPost, "/api/custom-reports/"+id+"/share", gatewaytest.WithKey(key), gatewaytest.JSON(map[string]any{}))
	}
	for _, id := range []string{"0000000000000000000000e1", "0000000000000000000000e3"} {
		if answer := share(limited, id); answer.Status != "failed" || answer.Field("token") != nil {
			t.Errorf("%s was shared: got %s, want the status failed and no token", id, answer.Text())
		}
		if answer := share(free, id); answer.Status != "ok" {
			t.Errorf(`%s: got %s, want answer.Status = "ok"`, id, answer.Text())
		}
	}
	answer := share(limited, "0000000000000000000000e2")
	token, _ := answer.Field("token").(string)
	read := acme.Get(t, "", "/api/reports/shared/report-for-team-a-000001?data=1&token="+token)
	if !strings.Contains(read.Text(), "of-a@example.com") || strings.Contains(read.Text(), "of-b@example.com") {
		t.Errorf("the reader sees %s, want it with of-a@example.com and without of-b@example.com", read.Text())
	}
}

// TestSharedReportsInPages checks that only pages from the origins of a browser key may read a shared report, and that
// an unsuitable key changes nothing else.
func TestSharedReportsInPages(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme, other := g.Org(t, "acme"), g.Org(t, "other")
	acme.Import(t, fixture.ReportLines()...)
	path := fixture.SharedPath + "ManyManyManyRows"
	browser := func(o *gatewaytest.Org) string {
		return o.KeyWith(t, func(k *control.NewKey) {
			k.Kind, k.Permissions, k.Origins = string(tenants.Browser), []string{"create_form_submissions"}, []string{fixture.PageOrigin}
		}).Token
	}
	plain := acme.Do(t, http.MethodGet, path)
	untimed := regexp.MustCompile(`"retrieved_at":[0-9]+`)
	for _, tt := range []struct {
		key, origin string
		open        bool
	}{
		{browser(acme), fixture.PageOrigin, true}, {browser(acme), "https://other.example", false}, {browser(acme), "", false}, {"", fixture.PageOrigin, false},
		{browser(other), fixture.PageOrigin, false}, {acme.Key(t, tenants.AllPermissions()...), fixture.PageOrigin, false}, {"x", fixture.PageOrigin, false},
	} {
		var with []gatewaytest.Request
		if tt.key != "" {
			with = append(with, gatewaytest.WithKey(tt.key))
		}
		if tt.origin != "" {
			with = append(with, gatewaytest.Header("Origin", tt.origin))
		}
		a := acme.Do(t, http.MethodGet, path, with...)
		if got := a.Header.Get("Access-Control-Allow-Origin"); a.Code != plain.Code || untimed.ReplaceAllString(a.Text(), "") != untimed.ReplaceAllString(plain.Text(), "") || (got == fixture.PageOrigin) != tt.open || (got != "") != tt.open {
			t.Errorf("a page of %[1]q: got %[2]d, open to %[3]q: %[4]s, want the same answer and open = %[5]t",
				tt.origin, a.Code, got, a.Body, tt.open)
		}
	}
	asked := g.Page(t, http.MethodOptions, acme.Host, path, gatewaytest.Header("Origin", fixture.PageOrigin), gatewaytest.Header("Access-Control-Request-Method", "GET"))
	if asked.Code != http.StatusNoContent || asked.Header.Get("Access-Control-Allow-Methods") != "GET" || !strings.Contains(asked.Header.Get("Access-Control-Allow-Headers"), "traceparent") {
		t.Errorf("preflight: got %d %v, want 204, the header Access-Control-Allow-Methods GET and the header Access-Control-Allow-Headers with traceparent",
			asked.Code, asked.Header)
	}
}
