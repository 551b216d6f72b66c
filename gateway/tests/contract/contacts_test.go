package contract

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/nacl/box"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/modules/audit"
	"tenantry/tenants"
)

const passport = "C01X00T47-canary"

func contactLines() []string {
	return append(fixture.TeamLines(),
		`{"kind":"contact_field","key":"passport","title":"Passport","type":"Encrypted"}`,
		`{"kind":"contact_field","key":"diary","title":"Diary","type":"Encrypted"}`,
		`{"kind":"contact_field","key":"age","title":"Age","type":"Number"}`,
		`{"kind":"contact","id":"`+fixture.DocID(1)+`","email":"ada@example.com","fields":{"passport":"`+passport+`","diary":"`+strings.Repeat("d", 300)+`","age":36}}`,
		`{"kind":"contact","id":"`+fixture.DocID(2)+`","email":"none@example.com"}`,
		`{"kind":"contact","id":"`+fixture.DocID(3)+`","email":"b@example.com","fields":{"passport":"B"},"teams":["`+fixture.TeamB+`"]}`)
}

func TestContract_Reveal(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme, other := g.Org(t, "acme", "teams"), g.Org(t, "other")
	acme.Import(t, contactLines()...)
	other.Import(t, `{"kind":"contact_field","key":"passport","title":"Passport","type":"Encrypted"}`)
	_, admin := acme.Person(t, "admin@example.com", fixture.WithRoles("admin"))
	kind := func(kind string) []gatewaytest.Request {
		return []gatewaytest.Request{gatewaytest.WithKey(acme.KeyWith(t, func(k *control.NewKey) {
			k.Kind, k.Permissions = kind, []string{"contacts"}
			if kind == "browser" {
				k.Origins = []string{"https://app.example.com"}
			}
		}).Token)}
	}
	key := acme.Key(t, tenants.Contacts)
	with := []gatewaytest.Request{gatewaytest.WithKey(key)}
	missing := envelopeFailed("Contact not found")
	at := func(id string) string { return "/api/contacts/" + id + "/reveal-secret?field=passport" }
	success := fixture.EnvelopeOK("success", `{"field_value":"`+passport+`"}`)
	rows := []exactRow{
		{name: "success", path: fixture.RevealPath("passport", ""), with: with, body: success},
		{name: "absent", path: at(fixture.AbsentID), with: with, body: missing},
		{name: "malformed", path: at("x"), with: with, body: missing},
		{name: "out of scope", path: at(fixture.DocID(3)) + "&teams[]=" + fixture.TeamA, with: with, body: missing},
		{name: "in scope", path: at(fixture.DocID(3)) + "&teams[]=" + fixture.TeamB, with: with, body: fixture.EnvelopeOK("success", `{"field_value":"B"}`)},
		{name: "no permission", path: fixture.RevealPath("passport", ""), with: []gatewaytest.Request{gatewaytest.WithKey(acme.Key(t, tenants.ManageForms))}, code: 403, body: fixture.EnvelopeLacking("contacts")},
		{name: "no permission, absent", path: at(fixture.AbsentID), with: []gatewaytest.Request{gatewaytest.WithKey(acme.Key(t))}, code: 403, body: fixture.EnvelopeLacking("contacts")},
		{name: "a reading key", path: fixture.RevealPath("passport", ""), with: kind("server_read"), code: 403, body: fixture.DeniedBody},
		{name: "a browser key", path: fixture.RevealPath("passport", ""), with: append(kind("browser"), gatewaytest.Header("Origin", "https://app.example.com")), code: 403, body: fixture.DeniedBody},
		{name: "an administrator's session", path: fixture.RevealPath("passport", ""), with: []gatewaytest.Request{gatewaytest.Cookie(admin)}, code: 403, body: fixture.DeniedBody},
		{name: "no credential", path: fixture.RevealPath("passport", ""), code: 403, body: fixture.DeniedBody},
	}
	checkRows(t, acme, rows)
	for _, row := range rows {
		if a := acme.Do(t, http.MethodGet, row.path, row.with...); !strings.Contains(a.Header.Get("Cache-Control"), "no-store") {
			t.Errorf("%s: Cache-Control is %q, want the header Cache-Control with no-store",
				row.name, a.Header.Get("Cache-Control"))
		}
	}
	checkRows(t, other, []exactRow{{name: "of another organization", path: fixture.RevealPath("passport", ""), with: []gatewaytest.Request{gatewaytest.WithKey(other.Key(t, tenants.Contacts))}, body: missing}})

	plain := acme.Get(t, key, fixture.RevealPath("passport", ""))
	if plain.Header.Get("X-Encryption-Algorithm") != "" || plain.Header.Get("X-Encryption-Key-Id") != "" {
		t.Errorf("a value in clear text bears the headers of an encrypted one: got %v, want no header X-Encryption-Algorithm and no header X-Encryption-Key-Id",
			plain.Header)
	}
	if a := acme.Get(t, key, at(fixture.DocID(2))); a.Code != http.StatusOK || a.Status != "failed" {
		t.Errorf("a contact without the value: got %d %s, want 200 and the status failed", a.Code, a.Text())
	}
	// Fields that are not encrypted are answered alike but for their names, without any content.
	fixture.WantFaults(t, acme.Get(t, key, "/api/contacts/"+fixture.DocID(1)+"/reveal-secret"), http.StatusUnprocessableEntity, "field required")
	unlike := acme.Get(t, key, fixture.RevealPath("nothing", ""))
	fixture.WantFailure(t, unlike, http.StatusUnprocessableEntity)
	for _, field := range []string{"email", "age", "password", "_id", "a.b", "fields.passport", "secrets", "Passport", "PASSPORT", "%24where"} {
		quoted := `\"` + strings.Replace(field, "%24", "$", 1) + `\"`
		a, want := acme.Get(t, key, fixture.RevealPath(field, "")), strings.ReplaceAll(unlike.Text(), `\"nothing\"`, quoted)
		if a.Code != unlike.Code || a.Text() != want {
			t.Errorf("field %q: %d %s\nwant %d %s", field, a.Code, a.Text(), unlike.Code, want)
		}
	}
}

func TestContract_RevealReencrypts(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme", "teams")
	acme.Import(t, contactLines()...)
	key := acme.Key(t, tenants.Contacts)
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	// A key whose base64 has a plus sign, which a query may turn into a blank.
	public, secret, err := box.GenerateKey(rand.Reader)
	for err == nil && !strings.Contains(base64.StdEncoding.EncodeToString(public[:]), "+") {
		public, secret, err = box.GenerateKey(rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	openRSA := func(sealed []byte) (string, error) {
		plain, err := rsa.DecryptOAEP(sha256.New(), nil, private, sealed, nil)
		return string(plain), err
	}
	openBox := func(sealed []byte) (string, error) {
		plain, ok := box.OpenAnonymous(nil, sealed, public, secret)
		if !ok {
			return "", fmt.Errorf("the sealed box does not open")
		}
		return string(plain), nil
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	standard, urlSafe := base64.StdEncoding.EncodeToString, base64.RawURLEncoding.EncodeToString
	algorithms := map[string]string{}
	for _, row := range []struct {
		name, family, key string
		raw               []byte
		open              func([]byte) (string, error)
	}{
		{"RSA, DER", "RSA", url.QueryEscape(standard(der)), der, openRSA},
		{"RSA, DER, URL-safe", "RSA", urlSafe(der), der, openRSA},
		{"RSA, PEM", "RSA", url.QueryEscape(standard(block)), der, openRSA},
		{"X25519", "X25519", url.QueryEscape(standard(public[:])), public[:], openBox},
		{"X25519, URL-safe", "X25519", base64.URLEncoding.EncodeToString(public[:]), public[:], openBox},
		{"X25519, blanks", "X25519", standard(public[:]), public[:], openBox},
	} {
		a := acme.Get(t, key, fixture.RevealPath("passport", "&public_key="+row.key))
		value, _ := a.Field("field_value").(string)
		sealed, err := base64.StdEncoding.DecodeString(value)
		if err != nil || a.Code != http.StatusOK || a.Message != "success" {
			t.Errorf(`%s: got %d %s: %v, want no error and %v and a.Message = "success"`,
				row.name, a.Code, a.Text(), err, http.StatusOK)
			continue
		}
		fixture.WantBody(t, a, http.StatusOK, fixture.EnvelopeOK("success", `{"field_value":"`+value+`"}`))
		if got, err := row.open(sealed); got != passport {
			t.Errorf("%s opens as %q: got %v, want %v", row.name, got, err, passport)
		}
		id := sha256.Sum256(row.raw)
		if got := a.Header.Get("X-Encryption-Key-Id"); got != hex.EncodeToString(id[:]) {
			t.Errorf("%s: X-Encryption-Key-Id is %q, want the SHA-256 %x", row.name, got, id)
		}
		algorithm := a.Header.Get("X-Encryption-Algorithm")
		if known, ok := algorithms[row.family]; algorithm == "" || ok && known != algorithm {
			t.Errorf("%s: X-Encryption-Algorithm = %q, want one name for each family of keys", row.name, algorithm)
		}
		algorithms[row.family] = algorithm
		if !strings.Contains(a.Header.Get("Cache-Control"), "no-store") {
			t.Errorf("%s: Cache-Control is %q, want the header Cache-Control with no-store",
				row.name, a.Header.Get("Cache-Control"))
		}
	}
	if algorithms["RSA"] == algorithms["X25519"] {
		t.Errorf("got the algorithms %q, want different names", algorithms)
	}

	weak := &rsa.PublicKey{N: new(big.Int).SetBit(new(big.Int).Lsh(big.NewInt(1), 1023), 0, 1), E: 65537}
	weakDER, err := x509.MarshalPKIXPublicKey(weak)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty": "", "garbage": "nonsense", "31 bytes": urlSafe(public[:31]), "33 bytes": urlSafe(append(public[:], 0)), "zeroes": urlSafe(make([]byte, 32)),
		"RSA of 1024 bits": urlSafe(weakDER), "trailing bytes": urlSafe(append(der[:len(der):len(der)], 0)), "cut": urlSafe(der[:len(der)-1]),
		"a private key": urlSafe(x509.MarshalPKCS1PrivateKey(private)),
	} {
		a := acme.Get(t, key, fixture.RevealPath("passport", "&public_key="+text))
		if fixture.WantFailure(t, a, http.StatusUnprocessableEntity); strings.Contains(a.Text(), passport) || !strings.Contains(a.Text(), `"field":"public_key"`) {
			t.Errorf(`%s: got %s, want containing "\"field\":\"public_key\""`, name, a.Text())
		}
	}
	long := acme.Get(t, key, fixture.RevealPath("diary", "&public_key="+urlSafe(der)))
	if fixture.WantFailure(t, long, http.StatusUnprocessableEntity); strings.Contains(long.Text(), "ddd") {
		t.Errorf("more than OAEP holds: got %s, want it without ddd", long.Text())
	}
	if a := acme.Get(t, key, fixture.RevealPath("diary", "&public_key="+urlSafe(public[:]))); a.Status != "ok" {
		t.Errorf("a sealed box holds any length: got %s, want the status ok", a.Text())
	}
	fixture.WantFailure(t, acme.Get(t, key, fixture.RevealPath("passport", "&public_key="+urlSafe(der)+"&public_key="+urlSafe(der))), http.StatusBadRequest)
}

func TestContract_RevealRequiresAKey(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme", "teams")
	acme.Import(t, contactLines()...)
	if _, err := control.Call[control.Organization](t.Context(), g.Commands, "org.update", control.OrganizationChange{Slug: "acme", OrganizationFields: control.OrganizationFields{Settings: map[string]bool{"require_public_encryption_key": true}}}); err != nil {
		t.Fatal(err)
	}
	key := acme.Key(t, tenants.Contacts)
	for _, query := range []string{"", "&public_key="} {
		a := acme.Get(t, key, fixture.RevealPath("passport", query))
		if fixture.WantFailure(t, a, http.StatusUnprocessableEntity); strings.Contains(a.Text(), passport) || !strings.Contains(a.Text(), `"field":"public_key"`) {
			t.Errorf(`%q: got %s, want containing "\"field\":\"public_key\""`, query, a.Text())
		}
	}
	public, _, err := box.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := acme.Get(t, key, fixture.RevealPath("passport", "&public_key="+base64.URLEncoding.EncodeToString(public[:])))
	if a.Code != http.StatusOK || a.Status != "ok" || strings.Contains(a.Text(), passport) {
		t.Errorf(`got %d %s, want %v and a.Status = "ok"`, a.Code, a.Text(), http.StatusOK)
	}
}

func TestContract_RevealIsAudited(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme", "teams")
	acme.Import(t, contactLines()...)
	key := acme.Key(t, tenants.Contacts)
	recent := func() []audit.Record {
		return fixture.AuditRecords(t, acme, 100)
	}
	for _, row := range []struct {
		name, key, path, outcome string
		code                     int
	}{
		{"success", key, fixture.RevealPath("passport", ""), audit.OK, 200},
		{"no such contact", key, "/api/contacts/" + fixture.AbsentID + "/reveal-secret?field=passport", audit.Failed, 200},
		{"no such field", key, fixture.RevealPath("nothing", ""), audit.Failed, 422},
		{"bad public key", key, fixture.RevealPath("passport", "&public_key=x"), audit.Failed, 422},
		{"no permission", acme.Key(t), fixture.RevealPath("passport", ""), audit.Denied, 403},
		{"a reading key", acme.KeyWith(t, func(k *control.NewKey) { k.Kind, k.Permissions = "server_read", []string{"contacts"} }).Token, fixture.RevealPath("passport", ""), audit.Denied, 403},
	} {
		before := map[string]bool{}
		for _, r := range recent() {
			before[r.ID] = true
		}
		a := acme.Get(t, row.key, row.path)
		records := slices.DeleteFunc(recent(), func(r audit.Record) bool { return before[r.ID] })
		if len(records) != 1 {
			t.Errorf("%s: %d new records, want 1", row.name, len(records))
			continue
		}
		r := records[0]
		if r.Operation != "contacts.reveal" || r.Outcome != row.outcome || r.Code != row.code || r.Code != a.Code || !strings.HasPrefix(r.Subject, "key:") {
			t.Errorf("%s: got the record %+v, want contacts.reveal with the outcome and code of the answer",
				row.name, r)
		}
		if strings.Contains(fmt.Sprintf("%+v", r), passport) {
			t.Errorf("%s: got the value in the record %+v, want it nowhere", row.name, r)
		}
	}
	if strings.Contains(g.Log.String(), passport) {
		t.Error("got the value in the log, want it nowhere")
	}
}

// TestContract_UsedContactFieldsNeedForce checks that a field that campaigns or reports use is removed only with
// force.
func TestContract_UsedContactFieldsNeedForce(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", tenants.FeatureTeams)
	acme.Import(t, fixture.TeamLines()...)
	c := fixture.WithToken(acme, acme.Key(t, tenants.AllPermissions()...))
	limited := fixture.WithToken(acme, acme.KeyWith(t, func(k *control.NewKey) { k.Permissions, k.Teams = []string{"contacts"}, []string{fixture.TeamA} }).Token)
	const fields, plan = "/api/contacts/fields", "/api/contacts/fields/plan"
	c.Want(t, 200, http.MethodPost, fields, `{"key":"plan","title":"Plan","type":"Text"}`)
	c.Want(t, 200, http.MethodPost, fields, `{"key":"free","title":"Free","type":"Text"}`)
	campaign := c.Want(t, 200, http.MethodPost, "/api/campaigns", `{"name":"x","filter":{"or":[{"plan":{"starts_with":"g"}},{"country":"DE"}]},"teams":["`+fixture.TeamB+`"]}`).Field("id").(string)
	report := c.Want(t, 200, http.MethodPost, "/api/custom-reports", `{"title":"r","class":"Contacts","query":{"fields":["plan"]}}`).Field("id").(string)
	for _, path := range []string{plan, plan + "?purge=true"} {
		c.Want(t, 422, http.MethodDelete, path, "", "1 campaigns ("+campaign+") could not be counted any more", "1 custom reports ("+report+") could not be run any more", `"field":"campaigns"`, `"field":"reports"`)
		limited.Want(t, 403, http.MethodDelete, path, "", fixture.NotTheirs, "!"+campaign)
	}
	c.Want(t, 422, http.MethodPut, plan, `{"type":"Number"}`, `"field":"campaigns"`, `!"field":"reports"`)
	c.Want(t, 200, http.MethodPut, plan, `{"title":"Tariff","type":"Select"}`) // is asked about as before
	c.Want(t, 200, http.MethodDelete, fields+"/free", "")
	c.Want(t, 200, http.MethodGet, "/api/campaigns/count/"+campaign, "")
	c.Want(t, 200, http.MethodDelete, plan+"?force=true", "")
	c.Want(t, 422, http.MethodGet, "/api/campaigns/count/"+campaign, "")
	c.Want(t, 200, http.MethodPost, plan+"/restore", "")
	c.Want(t, 200, http.MethodGet, "/api/campaigns/count/"+campaign, "")
	c.Want(t, 200, http.MethodDelete, "/api/campaigns/"+campaign, "")
	c.Want(t, 200, http.MethodDelete, "/api/custom-reports/"+report, "")
	c.Want(t, 200, http.MethodDelete, plan+"?purge=true", "")
}
