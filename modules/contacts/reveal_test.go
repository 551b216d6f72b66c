package contacts_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/nacl/box"

	"tenantry/internal/texts"
	"tenantry/modules/contacts"
	"tenantry/tenants"
)

const plaintext = "S3CRET-0042"

func revealed(t *testing.T, data any) string {
	t.Helper()
	r, ok := data.(contacts.Revealed)
	if !ok {
		t.Fatalf("data is %T", data)
	}
	return r.FieldValue
}

func TestRevealInClear(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.add(t, f.tenant, contacts.Contact{Fields: map[string]any{"ssn": plaintext}})
	c, res, p := f.call(t, f.tenant, serverKey(), ann.ID, "field=ssn")
	if p != nil {
		t.Fatalf("got %v, want p = nil", p)
	}
	if got := revealed(t, res.Data); got != plaintext {
		t.Errorf("got %q, want %v", got, plaintext)
	}
	raw, _ := json.Marshal(res.Data)
	if string(raw) != `{"field_value":"`+plaintext+`"}` {
		t.Errorf("data is %s", raw)
	}
	if c.Header.Get("Cache-Control") != "no-store" || c.Header.Get("X-Encryption-Algorithm") != "" {
		t.Errorf("headers %v", c.Header)
	}
	if c.AuditNote["contact"] != ann.ID || c.AuditNote["field"] != "ssn" {
		t.Errorf("audit note %v", c.AuditNote)
	}
}

func TestRevealToX25519(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.add(t, f.tenant, contacts.Contact{Fields: map[string]any{"ssn": plaintext}})
	public, private, err := box.GenerateKey(rand.Reader)
	must(t, err)
	sum := sha256.Sum256(public[:])
	for name, text := range map[string]string{
		"standard": base64.StdEncoding.EncodeToString(public[:]), "URL-safe": base64.RawURLEncoding.EncodeToString(public[:]),
		"blank for plus": strings.ReplaceAll(base64.StdEncoding.EncodeToString(public[:]), "+", " "),
	} {
		c, res, p := f.call(t, f.tenant, serverKey(), ann.ID, "field=ssn&public_key="+url.QueryEscape(text))
		if p != nil {
			t.Fatalf("%s: got %v, want p = nil", name, p)
		}
		sealed, err := base64.StdEncoding.DecodeString(revealed(t, res.Data))
		must(t, err)
		if got, ok := box.OpenAnonymous(nil, sealed, public, private); !ok || string(got) != plaintext {
			t.Errorf("%s: opens to %q, %v", name, got, ok)
		}
		if c.Header.Get("X-Encryption-Algorithm") != "X25519-sealed-box" || c.Header.Get("X-Encryption-Key-Id") != hex.EncodeToString(sum[:]) {
			t.Errorf("%s: headers %v", name, c.Header)
		}
		if c.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: may be cached", name)
		}
		noted, _ := json.Marshal(c.AuditNote)
		if strings.Contains(string(noted), plaintext) || strings.Contains(string(noted), revealed(t, res.Data)) {
			t.Errorf("%s: the audit note holds the value", name)
		}
	}
}

func TestRevealToRSA(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	der, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	must(t, err)
	key := url.QueryEscape(base64.StdEncoding.EncodeToString(der))
	fits, tooLong := strings.Repeat("a", 190), strings.Repeat("b", 191)
	ann := f.add(t, f.tenant, contacts.Contact{Fields: map[string]any{"ssn": fits, "iban": tooLong}})

	c, res, p := f.call(t, f.tenant, serverKey(), ann.ID, "field=ssn&public_key="+key)
	if p != nil {
		t.Fatalf("got %v, want p = nil", p)
	}
	sealed, err := base64.StdEncoding.DecodeString(revealed(t, res.Data))
	must(t, err)
	got, err := rsa.DecryptOAEP(sha256.New(), nil, private, sealed, nil)
	if err != nil || string(got) != fits || c.Header.Get("X-Encryption-Algorithm") != "RSA-OAEP-256" {
		t.Errorf("opens to %q, %v, headers %v", got, err, c.Header)
	}

	c, _, p = f.call(t, f.tenant, serverKey(), ann.ID, "field=iban&public_key="+key)
	if p == nil || p.Code != 422 || !strings.Contains(p.Message, "public_key") {
		t.Fatalf("too long: %v", p)
	}
	if text := body(t, p); strings.Contains(text, "bbbb") || strings.Contains(text, "191") {
		t.Errorf("the refusal tells about the value: %s", text)
	}
	if c.Header.Get("Cache-Control") != "no-store" || c.Header.Get("X-Encryption-Algorithm") != "" {
		t.Errorf("headers %v", c.Header)
	}
}

func TestOnlyDeclaredEncryptedFieldsAreRevealed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.add(t, f.tenant, contacts.Contact{Email: "a@example.com", Fields: map[string]any{"ssn": plaintext, "age": json.Number("42")}})
	for _, name := range []string{"password", "_id", "a.b", "email", "age", "SSN", "ssn ", "secrets", "secrets.ssn", "fields.ssn", "__proto__", "$where",
		"x\r\ny", strings.Repeat("x", 10_000), "🎈"} {
		want, says := "", fmt.Sprintf("Validation failed: field: %q is not an encrypted field", texts.Clip(name))
		for who, id := range map[string]string{"present": ann.ID, "absent": f.tenant.Workspace().NewID()} {
			c, _, p := f.call(t, f.tenant, serverKey(), id, "field="+url.QueryEscape(name))
			got := body(t, p)
			if want == "" {
				want = got
			}
			if p.Code != 422 || got != want || p.Message != says {
				t.Errorf("%.20q of a contact that is %s: %d %s, want %s", name, who, p.Code, got, want)
			}
			if c.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%.20q: may be cached", name)
			}
			if noted := c.AuditNote["field"]; noted != "" && noted != "age" {
				t.Errorf("undeclared %.20q was noted as %q", name, noted)
			}
		}
	}
	for _, query := range []string{"", "field=", "Field=ssn", "public_key="} {
		if _, _, p := f.call(t, f.tenant, serverKey(), ann.ID, query); p == nil || p.Code != 422 || !strings.Contains(p.Message, "field is required") {
			t.Errorf(`%q: got %v, want p other than nil and 422 and containing "field is required"`, query, p)
		}
	}
	for _, query := range []string{"field=ssn&field=ssn", "field[]=ssn", "field[$ne]=x", "field=ssn;", "field=ssn&public_key=a&public_key=b"} {
		if _, _, p := f.call(t, f.tenant, serverKey(), ann.ID, query); p == nil || p.Code != 400 {
			t.Errorf("%q: %v, want a 400", query, p)
		}
	}
}

func TestRevealMissing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	inB := f.add(t, f.tenant, contacts.Contact{Teams: []string{teamB}, Fields: map[string]any{"ssn": plaintext}})
	plain := f.add(t, f.tenant, contacts.Contact{FirstName: "No value"})
	other := f.organization(t, "other", nil)
	foreign := f.add(t, other, contacts.Contact{Fields: map[string]any{"ssn": plaintext}})

	const want = `{"status":"failed","message":"Contact not found","data":[]}`
	for name, tc := range map[string]struct {
		id, query string
		caller    *tenants.Principal
	}{
		"random":              {f.tenant.Workspace().NewID(), "field=ssn", serverKey()},
		"malformed":           {"../x", "field=ssn", serverKey()},
		"upper case":          {strings.ToUpper(inB.ID), "field=ssn", serverKey()},
		"empty":               {"", "field=ssn", serverKey()},
		"another tenant":      {foreign.ID, "field=ssn", serverKey()},
		"the key's teams":     {inB.ID, "field=ssn", serverKey(teamA)},
		"the request's teams": {inB.ID, "field=ssn&teams[]=" + teamA, serverKey()},
		"both teams":          {inB.ID, "field=ssn&teams[]=" + teamB, serverKey(teamA)},
	} {
		_, _, p := f.call(t, f.tenant, tc.caller, tc.id, tc.query)
		if got := body(t, p); p.Code != 200 || got != want {
			t.Errorf("%s: got %d %s, want 200 and %v", name, p.Code, got, want)
		}
	}
	if _, res, p := f.call(t, f.tenant, serverKey(teamB), inB.ID, "field=ssn"); p != nil || revealed(t, res.Data) != plaintext {
		t.Errorf("within its team: %v", p)
	}
	if _, _, p := f.call(t, f.tenant, serverKey(), plain.ID, "field=ssn"); body(t, p) != `{"status":"failed","message":"Contact has no value for this field","data":[]}` || p.Code != 200 {
		t.Errorf("without a value: %v", p)
	}
}

func TestRevealPolicy(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.add(t, f.tenant, contacts.Contact{Fields: map[string]any{"ssn": plaintext}})
	for _, kind := range []tenants.KeyKind{tenants.ServerRead, tenants.Browser, ""} {
		p := serverKey()
		p.KeyKind = kind
		if _, _, problem := f.call(t, f.tenant, p, ann.ID, "field=ssn"); problem == nil || problem.Code != 403 || len(problem.Envelope().Data.([]any)) != 0 {
			t.Errorf("kind %q: %v", kind, problem)
		}
	}
	p := serverKey()
	p.Permissions = []tenants.Permission{tenants.ManageForms}
	_, _, problem := f.call(t, f.tenant, p, ann.ID, "field=ssn")
	if body(t, problem) != `{"status":"failed","message":"Lacking necessary permission contacts","data":{"permission":"contacts"}}` || problem.Code != 403 {
		t.Errorf("without the permission: %v", problem)
	}
}

func TestPublicKeyRequired(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	strict := f.organization(t, "strict", map[string]bool{tenants.SettingRequirePublicEncryptionKey: true})
	ann := f.add(t, strict, contacts.Contact{Fields: map[string]any{"ssn": plaintext}})
	for _, query := range []string{"field=ssn", "field=ssn&public_key="} {
		_, _, p := f.call(t, strict, serverKey(), ann.ID, query)
		if p == nil || p.Code != 422 || !strings.Contains(body(t, p), `"field":"public_key"`) {
			t.Errorf(`%q: got %v, want p other than nil and 422 and containing "\"field\":\"public_key\""`, query, p)
		}
	}
	// Both problems at once.
	if _, _, p := f.call(t, strict, serverKey(), ann.ID, "field=nope"); p == nil || strings.Count(body(t, p), `"code"`) != 2 {
		t.Errorf("two problems: %v", p)
	}
	public, _, err := box.GenerateKey(rand.Reader)
	must(t, err)
	_, res, p := f.call(t, strict, serverKey(), ann.ID, "field=ssn&public_key="+base64.RawURLEncoding.EncodeToString(public[:]))
	if p != nil || strings.Contains(revealed(t, res.Data), plaintext) {
		t.Errorf("with a key: %v", p)
	}
}

func TestBadPublicKeyNeverRevealsPlaintext(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.add(t, f.tenant, contacts.Contact{Fields: map[string]any{"ssn": plaintext}})
	weak, err := base64.StdEncoding.DecodeString("MFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBAKj34GkxFhD90vcNLYLInFEX6Ppy1tPf9Cnzj4p4WGeKLs1Pt8QuKUpRKfFLfRYC9AIKjbJTWit+CqvjWYzvQwECAwEAAQ==")
	must(t, err)
	for name, key := range map[string]string{
		"empty": "", "not base64": "!!!", "31 bytes": base64.StdEncoding.EncodeToString(make([]byte, 31)),
		"all zero": base64.StdEncoding.EncodeToString(make([]byte, 32)), "512 bits": base64.StdEncoding.EncodeToString(weak), "huge": strings.Repeat("A", 60_000),
	} {
		start := time.Now()
		c, res, p := f.call(t, f.tenant, serverKey(), ann.ID, "field=ssn&public_key="+url.QueryEscape(key))
		if p == nil || p.Code != 422 || res.Data != nil || !strings.Contains(p.Message, "public_key") || strings.Contains(body(t, p), plaintext) {
			t.Errorf(`%s: got %v, %v, want p other than nil and 422 and res.Data = nil and containing "public_key"`,
				name, p, res.Data)
		}
		if c.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: may be cached", name)
		}
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("%s took %v", name, took)
		}
	}
}

func TestMovedContactCiphertextDoesNotOpen(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := testContext(t)
	other := f.organization(t, "other", nil)
	ann := f.add(t, f.tenant, contacts.Contact{Fields: map[string]any{"ssn": plaintext}})
	sealed := ann.Secrets["ssn"]
	for name, tc := range map[string]struct {
		tenant *tenants.Tenant
		id     string
		field  string
		sealed string
	}{
		"another contact":      {f.tenant, f.tenant.Workspace().NewID(), "ssn", sealed},
		"another field":        {f.tenant, ann.ID, "iban", sealed},
		"another organization": {other, ann.ID, "ssn", sealed},
		"altered":              {f.tenant, f.tenant.Workspace().NewID(), "ssn", sealed[:len(sealed)-2] + "AA"},
		"of no version":        {f.tenant, f.tenant.Workspace().NewID(), "ssn", strings.Replace(sealed, "enc.v1.1.", "enc.v1.9.", 1)},
		"clear text":           {f.tenant, f.tenant.Workspace().NewID(), "ssn", plaintext},
	} {
		col := f.kinds.Contacts.In(tc.tenant.Workspace())
		if tc.id == ann.ID && tc.tenant == f.tenant {
			_, err := col.Update(ctx, ann.ID, func(c *contacts.Contact) error { c.Secrets[tc.field] = tc.sealed; return nil })
			must(t, err)
		} else {
			c := contacts.Contact{Secrets: map[string]string{tc.field: tc.sealed}}
			c.ID = tc.id
			must(t, col.Insert(ctx, &c))
		}
		_, res, p := f.call(t, tc.tenant, serverKey(), tc.id, "field="+tc.field)
		if p == nil || p.Code != 500 || res.Data != nil {
			t.Errorf("%s: got %v, %v, want p other than nil and 500 and res.Data = nil", name, p, res.Data)
			continue
		}
		if text := body(t, p); text != `{"status":"failed","message":"Internal error","data":[]}` || strings.Contains(p.Error()+p.Err.Error(), plaintext) {
			t.Errorf(`%s: got %s, %v, want text = "{\"status\":\"failed\",\"message\":\"Internal error\",\"data\":[]}"`,
				name, text, p.Err)
		}
	}
	if _, res, p := f.call(t, f.tenant, serverKey(), ann.ID, "field=ssn"); p != nil || revealed(t, res.Data) != plaintext {
		t.Errorf("in its own place: %v", p)
	}
}

func TestOldKeyVersionsStayReadable(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	before := f.add(t, f.tenant, contacts.Contact{Fields: map[string]any{"ssn": plaintext}})
	_, err := f.dir.NextDataKey(testContext(t), f.tenant, f.kinds.Contacts.Spec().Name)
	must(t, err)
	after := f.add(t, f.tenant, contacts.Contact{Fields: map[string]any{"ssn": plaintext}})
	if !strings.HasPrefix(before.Secrets["ssn"], "enc.v1.1.") || !strings.HasPrefix(after.Secrets["ssn"], "enc.v1.2.") {
		t.Fatalf("sealed as %.12s and %.12s", before.Secrets["ssn"], after.Secrets["ssn"])
	}
	for _, id := range []string{before.ID, after.ID} {
		if _, res, p := f.call(t, f.tenant, serverKey(), id, "field=ssn"); p != nil || revealed(t, res.Data) != plaintext {
			t.Errorf("%s: got %v, want p = nil and revealed(t, res.Data) = %v", id, p, plaintext)
		}
	}
}
