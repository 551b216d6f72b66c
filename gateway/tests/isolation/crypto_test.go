package isolation

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/internal/texts"
	"tenantry/modules/imports/bundle"
)

// sealed returns the stored encrypted value of a contact's field.
func sealed(t testing.TB, p *fixture.Party, contact, field string) string {
	t.Helper()
	return p.Stored(t, `SELECT json_extract(body, '$.secrets.`+field+`') FROM "c:contacts" WHERE id = ?1`, contact)
}

// storeSecret stores an encrypted value in a contact's field, bypassing the gateway.
func storeSecret(t testing.TB, p *fixture.Party, contact, field, sealed string) {
	t.Helper()
	p.Exec(t, `UPDATE "c:contacts" SET body = json_set(body, '$.secrets.`+field+`', ?1) WHERE id = ?2`, sealed, contact)
}

func TestMovedCiphertextDoesNotOpen(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, gatewaytest.OwnFiles) // the test changes the file
	w := &fixture.World{Gateway: g}
	// Both have the same identifiers, so that only the organization differs.
	w.A = fixture.NewParty(t, g, "acme", "5a5a5a5a5a5a5a5a", 7000)
	w.B = fixture.NewParty(t, g, "birch", "5a5a5a5a5a5a5a5a", 7000)
	p := w.A
	p.Import(t, `{"kind":"contact_field","key":"tax","title":"Tax","type":"Encrypted"}`, `{"kind":"contact","id":"`+p.ID(30)+`","fields":{"tax":"taxplain"}}`)
	one, two := p.ID(30), p.ID(31)
	plain := p.FirstSecret
	ssn, tax := sealed(t, p, one, fixture.SecretField), sealed(t, p, one, "tax")
	good := func(what string) {
		t.Helper()
		if a := p.Reveal(t, one, fixture.SecretField, ""); a.Field("field_value") != plain {
			t.Fatalf(`%s: got %d %s, want a.Field("field_value") = %v`, what, a.Code, a.Body, plain)
		}
	}
	good("before")
	refused := func(what string, p *fixture.Party, contact, field string) {
		t.Helper()
		a := p.Reveal(t, contact, field, "")
		if a.Status != "failed" || a.Code != http.StatusInternalServerError || strings.Contains(a.Text(), plain) || strings.Contains(a.Text(), "taxplain") || strings.Contains(a.Text(), "field_value") {
			t.Errorf(`%s: got %d %.300s, want a.Status = "failed" and %v and nothing containing "taxplain" and nothing containing "field_value"`,
				what, a.Code, a.Body, http.StatusInternalServerError)
		}
		fixture.WantPlain(t, what, a)
	}
	storeSecret(t, p, two, fixture.SecretField, ssn)
	refused("moved to another contact", p, two, fixture.SecretField)
	storeSecret(t, p, one, fixture.SecretField, tax)
	refused("moved to another field", p, one, fixture.SecretField)
	storeSecret(t, p, one, "tax", ssn)
	refused("moved to the other field", p, one, "tax")
	storeSecret(t, w.B, one, fixture.SecretField, ssn)
	refused("moved to another organization", w.B, one, fixture.SecretField)
	storeSecret(t, p, one, fixture.SecretField, ssn)
	good("back in its place")
	body := strings.SplitN(ssn, ".", 4)
	for name, altered := range map[string]string{
		"first byte": body[0] + "." + body[1] + "." + body[2] + "." + fixture.FlipCharacter(body[3], 0), "last byte": body[0] + "." + body[1] + "." + body[2] + "." + fixture.FlipCharacter(body[3], len(body[3])-3),
		"another version": body[0] + "." + body[1] + ".2." + body[3], "version 0": body[0] + "." + body[1] + ".0." + body[3], "version 01": body[0] + "." + body[1] + ".0" + body[2] + "." + body[3],
		"cut": ssn[:len(ssn)-4], "empty": "", "in clear": plain, "another scheme": "enc.v0." + body[2] + "." + body[3], "padded": ssn + "=",
	} {
		storeSecret(t, p, one, fixture.SecretField, altered)
		refused(name, p, one, fixture.SecretField)
	}
	storeSecret(t, p, one, fixture.SecretField, ssn)
	good("at the end")
	// The same through an import, which accepts encrypted values.
	line := func(contact, field, enc string) string {
		return `{"kind":"contact","id":"` + contact + `","fields":{"` + field + `":{"enc":"` + enc + `"}}}`
	}
	for name, c := range map[string]struct {
		p    *fixture.Party
		line string
	}{"another contact": {p, line(two, fixture.SecretField, ssn)}, "another field": {p, line(one, "tax", ssn)}, "another organization": {w.B, line(one, fixture.SecretField, ssn)}} {
		if _, err := g.App.Transfer().Import(t.Context(), c.p.Tenant(t), gatewaytest.Source([]byte(c.line+"\n")), bundle.ImportOptions{}); err == nil {
			t.Errorf("an import takes the value for %s, want an error", name)
		}
	}
	p.Import(t, line(one, fixture.SecretField, ssn))
}

func TestEncryptedFieldsCannotBeQueried(t *testing.T) {
	t.Parallel()
	w := fixture.NewQuietWorld(t, gatewaytest.OwnFiles, fixture.ReadAnew) // the test looks into the file
	p := w.A
	var asked []string
	for _, name := range []string{fixture.SecretField, "SSN", "Ssn", "sSn", "fields." + fixture.SecretField, "secrets." + fixture.SecretField, "secrets", "fields", "custom", "body", "Secrets." + fixture.SecretField, "fields[" + fixture.SecretField, "$." + fixture.SecretField, fixture.SecretField + " ", " " + fixture.SecretField, fixture.SecretField + "\u200b", "ſsn"} {
		for _, op := range []string{"", "[eq]", "[ne]", "[gt]", "[gte]", "[lt]", "[lte]", "[in][]", "[nin][]", "[contains]", "[starts_with]", "[exists]", "[]"} {
			for _, v := range []string{p.FirstSecret, "true", "q"} {
				asked = append(asked, "filters["+name+"]"+op+"="+v, "filters[country]=DE&filters[or][0]["+name+"]"+op+"="+v+"&filters[or][1][country]=FR")
			}
		}
	}
	for _, query := range asked {
		name, v, _ := strings.Cut(query, "=")
		escaped := "/api/campaigns/count?" + url.PathEscape(name) + "=" + v
		if strings.Contains(query, "&") {
			escaped = "/api/campaigns/count?" + strings.NewReplacer(" ", "%20", "\u200b", "%E2%80%8B", "ſ", "%C5%BF").Replace(query)
		}
		first, second := p.Get(t, p.FullKey, escaped), w.B.Get(t, w.B.FullKey, escaped)
		fixture.WantRefused(t, query, first)
		if a, b := fixture.Canonical(first, "", nil), fixture.Canonical(second, "", nil); a != b {
			t.Errorf("%s: the answers depend on the plaintext: got\n%s\nwant\n%s", query, a, b)
		}
		if strings.Contains(first.Text(), `"count"`) {
			t.Errorf("%s counts: got %s, want it without %q", query, first.Body, `"count"`)
		}
	}
	// Campaigns that name an encrypted field are refused. Reports may name one, because fields can be defined later;
	// then they show nothing.
	n := 0
	for name, line := range map[string]string{
		"campaign":         `{"kind":"campaign","name":"x","filter":{"ssn":"1"}}`,
		"campaign, or":     `{"kind":"campaign","name":"x","filter":{"or":[{"country":"DE"},{"ssn":{"starts_with":"1"}}]}}`,
		"report, filter":   `{"kind":"custom_report","title":"x","class":"Contacts","query":{"filter":{"ssn":"1"}}}`,
		"report, or":       `{"kind":"custom_report","title":"x","class":"Contacts","query":{"filter":{"or":[{"ssn":{"gt":"1"}}]}}}`,
		"report, input":    `{"kind":"custom_report","title":"x","class":"Contacts","query":{"filter":{"ssn":{"input":"i"}}},"input":{"i":{"rule":"editable","value":""}}}`,
		"report, column":   `{"kind":"custom_report","title":"x","class":"Contacts","query":{"fields":["ssn"]}}`,
		"report, sort":     `{"kind":"custom_report","title":"x","class":"Contacts","query":{"fields":["id"],"sort":["ssn"]}}`,
		"report, group":    `{"kind":"custom_report","title":"x","class":"Contacts","query":{"group_by":[{"field":"ssn"}],"measures":[{"op":"count"}]}}`,
		"report, measure":  `{"kind":"custom_report","title":"x","class":"Contacts","query":{"measures":[{"op":"min","field":"ssn"}]}}`,
		"report, distinct": `{"kind":"custom_report","title":"x","class":"Contacts","query":{"measures":[{"op":"distinct","field":"ssn"}]}}`,
		"report, record":   `{"kind":"custom_report","title":"x","class":"Records","source":"` + p.IDs[fixture.RefObjectName] + `","query":{"fields":["pin"]}}`,
		"report, case":     `{"kind":"custom_report","title":"x","class":"Contacts","query":{"fields":["SSN"]}}`,
		"report, path":     `{"kind":"custom_report","title":"x","class":"Contacts","query":{"fields":["secrets.ssn"]}}`,
	} {
		n++
		pid := fmt.Sprintf("report-with-secret-%d", n)
		line = strings.Replace(line, `"title":"x"`, `"title":"x","secure":false,"pid":"`+pid+`"`, 1)
		if report, err := w.App.Transfer().Import(t.Context(), p.Tenant(t), gatewaytest.Source([]byte(line+"\n")), bundle.ImportOptions{}); err != nil {
			continue
		} else if strings.HasPrefix(name, "campaign") {
			t.Errorf("%s: got %+v, want a refusal", name, report)
		}
		for _, more := range []string{"", "?data=1", "?data=1&params[i]=" + p.FirstSecret} {
			a := p.Get(t, "", "/api/reports/shared/"+pid+more)
			if a.Status != "failed" || strings.Contains(a.Text(), `"rows"`) || strings.Contains(a.Text(), `"fields"`) {
				t.Errorf(`%s%s: got %d %.300s, want a.Status = "failed" and nothing containing "\"rows\"" and nothing containing "\"fields\""`,
					name, more, a.Code, a.Body)
			}
		}
	}
	// A report made when the field was plain shows nothing once the field is encrypted.
	p.Import(t, `{"kind":"contact_field","key":"later","title":"Later","type":"Text"}`, `{"kind":"contact","id":"`+p.ID(30)+`","fields":{"later":"laterplain"}}`,
		`{"kind":"custom_report","id":"`+p.ID(310)+`","pid":"report-that-is-later","secure":false,"title":"x","class":"Contacts","query":{"fields":["id","later"],"sort":["later"]}}`,
		`{"kind":"campaign","id":"`+p.ID(311)+`","name":"later","filter":{"later":"laterplain"}}`)
	if a := p.Get(t, "", "/api/reports/shared/report-that-is-later?data=1"); !strings.Contains(a.Text(), "laterplain") {
		t.Fatalf(`got %d %s, want containing "laterplain"`, a.Code, a.Body)
	}
	p.Exec(t, `UPDATE "c:contact_fields" SET body = json_set(body, '$.type', 'Encrypted') WHERE f_key = ?1`, "later")
	if a := p.Get(t, "", "/api/reports/shared/report-that-is-later?data=1"); a.Status != "failed" || strings.Contains(a.Text(), "laterplain") {
		t.Errorf("a report on a field that is encrypted by now: got %d %.300s, want the status failed and without laterplain",
			a.Code, a.Body)
	}
	fixture.WantRefused(t, "a campaign on a field that is encrypted by now", p.Get(t, p.FullKey, "/api/campaigns/count/"+p.ID(311)))
}

func TestRevealFailsAlikeForOtherFields(t *testing.T) {
	t.Parallel()
	w := fixture.NewQuietWorld(t)
	p := w.A
	for _, field := range []string{
		"nosuchfield", "password", "_id", "id", "a.b", "plan", "email", "secrets", "secrets." + fixture.SecretField, "fields." + fixture.SecretField, "SSN", fixture.SecretField + ".", "." + fixture.SecretField, fixture.SecretField + " ", "teams", "__proto__", "constructor", "hash", "created_at", "pin", "ſsn",
		strings.Repeat("a", 64), strings.Repeat("a", 10_000), "💥", "' OR 1=1--", "$where", "*", "../ssn", "ssn/../plan", "ssn\n", "0", "null",
	} {
		reference := p.Reveal(t, p.IDs[fixture.RefContact], field, "")
		says := fmt.Sprintf("Validation failed: field: %q is not an encrypted field", texts.Clip(field)) // for every field
		if reference.Code != http.StatusUnprocessableEntity || reference.Message != says {
			t.Errorf("got %d %s, want %d with %s", reference.Code, reference.Body, http.StatusUnprocessableEntity, says)
		}
		for name, contact := range map[string]string{
			"no contact":                     fixture.RandomLike(p.IDs[fixture.RefContact]),
			"another organization's contact": w.B.IDs[fixture.RefContact], "garbage": "x",
		} {
			a := p.Reveal(t, contact, field, "")
			if got := fixture.Canonical(a, "", nil); got != fixture.Canonical(reference, "", nil) {
				t.Errorf("field %.60q of %s:\n%s\nwant:\n%s", field, name, got, fixture.Canonical(reference, "", nil))
			}
		}
	}
	for _, query := range []string{"", "?field=", "?Field=" + fixture.SecretField, "?field[]=" + fixture.SecretField, "?field[a]=" + fixture.SecretField, "?field=" + fixture.SecretField + "&field=plan", "?field=" + fixture.SecretField + "%00", "?field=%ff"} {
		fixture.WantRefused(t, query, p.Get(t, p.FullKey, "/api/contacts/"+p.IDs[fixture.RefContact]+"/reveal-secret"+query))
	}
}

func TestBadPublicKeysAreRefused(t *testing.T) {
	t.Parallel()
	w := fixture.NewQuietWorld(t)
	p := w.A
	modulus := func(bits int) *big.Int {
		b := make([]byte, bits/8)
		_, _ = rand.Read(b)
		b[0] |= 0x80
		b[len(b)-1] |= 1
		return new(big.Int).SetBytes(b)
	}
	spki := func(n *big.Int, e int) []byte {
		der, err := x509.MarshalPKIXPublicKey(&rsa.PublicKey{N: n, E: e})
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	good := spki(modulus(2048), 65537)
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ec, err := x509.MarshalPKIXPublicKey(&curve.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	even := modulus(2048)
	even.SetBit(even, 0, 0)
	low := make([]byte, 32)
	low[0] = 1
	block := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	bad := map[string][]byte{
		"empty": {}, "RSA of 512 bits": spki(modulus(512), 65537), "RSA of 1024 bits": spki(modulus(1024), 65537), "RSA of 2040 bits": spki(modulus(2040), 65537), "RSA of 4104 bits": spki(modulus(4104), 65537), "RSA of 8192 bits": spki(modulus(8192), 65537), "RSA of 16384 bits": spki(modulus(16384), 65537),
		"even exponent": spki(modulus(2048), 65536), "exponent 1": spki(modulus(2048), 1), "exponent 2": spki(modulus(2048), 2), "even modulus": spki(even, 65537),
		"zero X25519": make([]byte, 32), "X25519 of low order": low, "31 bytes": make([]byte, 31), "33 bytes": make([]byte, 33), "EC": ec,
		"private key": pkcs8, "PKCS#1 private key": x509.MarshalPKCS1PrivateKey(private), "PEM private key": block("PRIVATE KEY", pkcs8), "PEM RSA private key": block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(private)), "PKCS#1 public key": x509.MarshalPKCS1PublicKey(&private.PublicKey),
		"trailing bytes": append(append([]byte{}, good...), 0), "twice": append(append([]byte{}, good...), good...), "cut": good[:len(good)-1], "two PEM blocks": append(block("PUBLIC KEY", good), block("PUBLIC KEY", good)...), "text after PEM": append(block("PUBLIC KEY", good), "x"...), "PEM of another kind": block("CERTIFICATE", good),
	}
	texts := map[string]string{"no base64": "%%%", "both alphabets": "+-" + strings.Repeat("A", 41), "too long": strings.Repeat("A", 9_000), "a name": "key.pem", "an address": "http://127.0.0.1:1/key", "half padded": base64.RawStdEncoding.EncodeToString(make([]byte, 31)) + "==="}
	for name, raw := range bad {
		texts[name] = base64.StdEncoding.EncodeToString(raw)
	}
	var slowest time.Duration
	for name, text := range texts {
		started := time.Now()
		a := p.Reveal(t, p.IDs[fixture.RefContact], fixture.SecretField, "&public_key="+url.QueryEscape(text))
		slowest = max(slowest, time.Since(started))
		fixture.WantRefused(t, name, a)
		if strings.Contains(a.Text(), p.FirstSecret) || a.Header.Get("X-Encryption-Algorithm") != "" {
			t.Errorf(`%s: got %s %v, want a.Header.Get("X-Encryption-Algorithm") = ""`, name, a.Body, a.Header)
		}
	}
	t.Logf("slowest refusal: %s", slowest)
	key := url.QueryEscape(base64.StdEncoding.EncodeToString(good))
	fixture.WantRefused(t, "two parameters", p.Reveal(t, p.IDs[fixture.RefContact], fixture.SecretField, "&public_key="+key+"&public_key="+key))
	fixture.WantRefused(t, "a list", p.Reveal(t, p.IDs[fixture.RefContact], fixture.SecretField, "&public_key[]="+key))
	if a := p.Reveal(t, p.IDs[fixture.RefContact], fixture.SecretField, "&public_key="+key); a.Code != http.StatusOK || strings.Contains(a.Text(), p.FirstSecret) || a.Header.Get("X-Encryption-Algorithm") == "" {
		t.Errorf("a good key: got %d %.200s, want 200, without %q and a header X-Encryption-Algorithm",
			a.Code, a.Body, p.FirstSecret)
	}
	// With a required public key, neither its absence nor another spelling of the parameter reveals the value in clear
	// text.
	required := control.OrganizationChange{Slug: p.Slug, OrganizationFields: control.OrganizationFields{Settings: map[string]bool{"require_public_encryption_key": true}}}
	if _, err := control.Call[control.Organization](t.Context(), w.Commands, "org.update", required); err != nil {
		t.Fatal(err)
	}
	for _, more := range []string{"", "&public_key=", "&Public_Key=" + key, "&publicKey=" + key, "&public_key[a]=" + key} {
		a := p.Reveal(t, p.IDs[fixture.RefContact], fixture.SecretField, more)
		fixture.WantRefused(t, fmt.Sprintf("required, with %.20q", more), a)
	}
}

func TestNothingIsRevealedUnaudited(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t, gatewaytest.OwnFiles) // the test damages the file
	p := w.A
	if a := p.Reveal(t, p.IDs[fixture.RefContact], fixture.SecretField, ""); a.Field("field_value") != p.FirstSecret {
		t.Fatalf(`got %d %s, want a.Field("field_value") = %v`, a.Code, a.Body, p.FirstSecret)
	}
	if n := p.Stored(t, `SELECT count(*) FROM "c:audit_log" WHERE f_operation = 'contacts.reveal' AND f_outcome = 'ok'`); n != "1" {
		t.Fatalf("%s audit records of a reveal, want 1", n)
	}
	p.Exec(t, `DROP TABLE "c:audit_log"`)
	for _, more := range []string{"", "&public_key=CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="} {
		a := p.Reveal(t, p.IDs[fixture.RefContact], fixture.SecretField, more)
		if a.Code != http.StatusServiceUnavailable || a.Status != "failed" || strings.Contains(a.Text(), "field_value") || strings.Contains(a.Text(), p.FirstSecret) || a.Header.Get("Retry-After") == "" {
			t.Errorf("without an audit log: got %d %.300s, want 503, the status failed, without field_value, without %q and a header Retry-After",
				a.Code, a.Body, p.FirstSecret)
		}
		fixture.WantPlain(t, "without an audit log", a)
	}
	// No token is issued either.
	a := p.Do(t, http.MethodPost, "/api/custom-reports/"+p.IDs[fixture.RefReport]+"/share", gatewaytest.WithKey(p.FullKey), gatewaytest.JSON(map[string]any{}))
	if a.Code != http.StatusServiceUnavailable || strings.Contains(a.Text(), "token") {
		t.Errorf("sharing without an audit log: got %d %.300s, want 503 and without token", a.Code, a.Body)
	}
	a = p.Do(t, http.MethodPost, "/auth/sign-in", gatewaytest.JSON(map[string]string{"email": p.IDs[fixture.RefEmail], "password": gatewaytest.Password}))
	if a.Code != http.StatusServiceUnavailable || a.Header.Get("Set-Cookie") != "" {
		t.Errorf("signing in without an audit log: got %d %.300s %v, want 503 and no header Set-Cookie",
			a.Code, a.Body, a.Header)
	}
	if strings.Contains(w.Log.String(), p.FirstSecret) {
		t.Error("got the value in the log, want it nowhere")
	}
	if a := p.Get(t, p.FullKey, "/api/campaigns/count"); a.Code != http.StatusOK {
		t.Errorf("what is not audited: got %d %.200s, want 200", a.Code, a.Body)
	}
}
