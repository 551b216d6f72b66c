package gateway_test

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
	"tenantry/modules/audit"
	"tenantry/tenants"
)

const passport = "C01X00T47-canary"

// revealPath is the address of one field of contact 1; the query continues it.
func revealPath(field, query string) string {
	return "/api/contacts/" + docID(1) + "/reveal-secret?field=" + field + query
}

func contactLines() []string {
	return append(bundleTeams(),
		`{"kind":"contact_field","key":"passport","title":"Passport","type":"Encrypted"}`,
		`{"kind":"contact_field","key":"diary","title":"Diary","type":"Encrypted"}`,
		`{"kind":"contact_field","key":"age","title":"Age","type":"Number"}`,
		`{"kind":"contact","id":"`+docID(1)+`","email":"ada@example.com","fields":{"passport":"`+passport+`","diary":"`+strings.Repeat("d", 300)+`","age":36}}`,
		`{"kind":"contact","id":"`+docID(2)+`","email":"none@example.com"}`,
		`{"kind":"contact","id":"`+docID(3)+`","email":"b@example.com","fields":{"passport":"B"},"teams":["`+teamB+`"]}`)
}

func TestContract_Reveal(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme, other := g.Org(t, "acme", "teams"), g.Org(t, "other")
	acme.Import(t, contactLines()...)
	other.Import(t, `{"kind":"contact_field","key":"passport","title":"Passport","type":"Encrypted"}`)
	_, admin := acme.Person(t, "admin@example.com", roles("admin"))
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
	success := envelopeOK("success", `{"field_value":"`+passport+`"}`)
	rows := []exactRow{
		{name: "success", path: revealPath("passport", ""), with: with, body: success},
		{name: "absent", path: at(absentID), with: with, body: missing},
		{name: "malformed", path: at("x"), with: with, body: missing},
		{name: "out of scope", path: at(docID(3)) + "&teams[]=" + teamA, with: with, body: missing},
		{name: "in scope", path: at(docID(3)) + "&teams[]=" + teamB, with: with, body: envelopeOK("success", `{"field_value":"B"}`)},
		{name: "no permission", path: revealPath("passport", ""), with: []gatewaytest.Request{gatewaytest.WithKey(acme.Key(t, tenants.ManageForms))}, code: 403, body: envelopeLacking("contacts")},
		{name: "no permission, absent", path: at(absentID), with: []gatewaytest.Request{gatewaytest.WithKey(acme.Key(t))}, code: 403, body: envelopeLacking("contacts")},
		{name: "a reading key", path: revealPath("passport", ""), with: kind("server_read"), code: 403, body: deniedBody},
		{name: "a browser key", path: revealPath("passport", ""), with: append(kind("browser"), gatewaytest.Header("Origin", "https://app.example.com")), code: 403, body: deniedBody},
		{name: "an administrator's session", path: revealPath("passport", ""), with: []gatewaytest.Request{gatewaytest.Cookie(admin)}, code: 403, body: deniedBody},
		{name: "no credential", path: revealPath("passport", ""), code: 403, body: deniedBody},
	}
	checkRows(t, acme, rows)
	for _, row := range rows {
		if a := acme.Do(t, http.MethodGet, row.path, row.with...); !strings.Contains(a.Header.Get("Cache-Control"), "no-store") {
			t.Errorf("%s: Cache-Control is %q", row.name, a.Header.Get("Cache-Control"))
		}
	}
	checkRows(t, other, []exactRow{{name: "of another organization", path: revealPath("passport", ""), with: []gatewaytest.Request{gatewaytest.WithKey(other.Key(t, tenants.Contacts))}, body: missing}})

	plain := acme.Get(t, key, revealPath("passport", ""))
	if plain.Header.Get("X-Encryption-Algorithm") != "" || plain.Header.Get("X-Encryption-Key-Id") != "" {
		t.Errorf("a value in clear text bears the headers of an encrypted one: %v", plain.Header)
	}
	if a := acme.Get(t, key, at(docID(2))); a.Code != http.StatusOK || a.Status != "failed" {
		t.Errorf("a contact without the value: %d %s", a.Code, a.Text())
	}
	// What is no encrypted field cannot be told apart, and nothing of it is shown.
	wantFaults(t, acme.Get(t, key, "/api/contacts/"+docID(1)+"/reveal-secret"), http.StatusUnprocessableEntity, "field required")
	unlike := acme.Get(t, key, revealPath("nothing", ""))
	wantFailure(t, unlike, http.StatusUnprocessableEntity)
	for _, field := range []string{"email", "age", "password", "_id", "a.b", "fields.passport", "secrets", "Passport", "PASSPORT", "%24where"} {
		if a := acme.Get(t, key, revealPath(field, "")); a.Code != unlike.Code || a.Text() != unlike.Text() {
			t.Errorf("field %q: %d %s\nwant %d %s", field, a.Code, a.Text(), unlike.Code, unlike.Text())
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
	// One whose base64 has a plus sign, which a query may show as a blank.
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
		a := acme.Get(t, key, revealPath("passport", "&public_key="+row.key))
		value, _ := a.Field("field_value").(string)
		sealed, err := base64.StdEncoding.DecodeString(value)
		if err != nil || a.Code != http.StatusOK || a.Message != "success" {
			t.Errorf("%s: %d %s: %v", row.name, a.Code, a.Text(), err)
			continue
		}
		wantBody(t, a, http.StatusOK, envelopeOK("success", `{"field_value":"`+value+`"}`))
		if got, err := row.open(sealed); got != passport {
			t.Errorf("%s opens as %q: %v", row.name, got, err)
		}
		id := sha256.Sum256(row.raw)
		if got := a.Header.Get("X-Encryption-Key-Id"); got != hex.EncodeToString(id[:]) {
			t.Errorf("%s: X-Encryption-Key-Id is %q, want the SHA-256 %x", row.name, got, id)
		}
		algorithm := a.Header.Get("X-Encryption-Algorithm")
		if known, ok := algorithms[row.family]; algorithm == "" || ok && known != algorithm {
			t.Errorf("%s: X-Encryption-Algorithm is %q", row.name, algorithm)
		}
		algorithms[row.family] = algorithm
		if !strings.Contains(a.Header.Get("Cache-Control"), "no-store") {
			t.Errorf("%s: Cache-Control is %q", row.name, a.Header.Get("Cache-Control"))
		}
	}
	if algorithms["RSA"] == algorithms["X25519"] {
		t.Errorf("the algorithms are named alike: %q", algorithms)
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
		a := acme.Get(t, key, revealPath("passport", "&public_key="+text))
		if wantFailure(t, a, http.StatusUnprocessableEntity); strings.Contains(a.Text(), passport) || !strings.Contains(a.Text(), `"field":"public_key"`) {
			t.Errorf("%s: %s", name, a.Text())
		}
	}
	long := acme.Get(t, key, revealPath("diary", "&public_key="+urlSafe(der)))
	if wantFailure(t, long, http.StatusUnprocessableEntity); strings.Contains(long.Text(), "ddd") {
		t.Errorf("more than OAEP holds: %s", long.Text())
	}
	if a := acme.Get(t, key, revealPath("diary", "&public_key="+urlSafe(public[:]))); a.Status != "ok" {
		t.Errorf("a sealed box holds any length: %s", a.Text())
	}
	wantFailure(t, acme.Get(t, key, revealPath("passport", "&public_key="+urlSafe(der)+"&public_key="+urlSafe(der))), http.StatusBadRequest)
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
		a := acme.Get(t, key, revealPath("passport", query))
		if wantFailure(t, a, http.StatusUnprocessableEntity); strings.Contains(a.Text(), passport) || !strings.Contains(a.Text(), `"field":"public_key"`) {
			t.Errorf("%q: %s", query, a.Text())
		}
	}
	public, _, err := box.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := acme.Get(t, key, revealPath("passport", "&public_key="+base64.URLEncoding.EncodeToString(public[:])))
	if a.Code != http.StatusOK || a.Status != "ok" || strings.Contains(a.Text(), passport) {
		t.Errorf("%d %s", a.Code, a.Text())
	}
}

func TestContract_RevealIsAudited(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme", "teams")
	acme.Import(t, contactLines()...)
	key := acme.Key(t, tenants.Contacts)
	recent := func() []audit.Record {
		return auditRecords(t, acme, 100)
	}
	for _, row := range []struct {
		name, key, path, outcome string
		code                     int
	}{
		{"success", key, revealPath("passport", ""), audit.OK, 200},
		{"no such contact", key, "/api/contacts/" + absentID + "/reveal-secret?field=passport", audit.Failed, 200},
		{"no such field", key, revealPath("nothing", ""), audit.Failed, 422},
		{"bad public key", key, revealPath("passport", "&public_key=x"), audit.Failed, 422},
		{"no permission", acme.Key(t), revealPath("passport", ""), audit.Denied, 403},
		{"a reading key", acme.KeyWith(t, func(k *control.NewKey) { k.Kind, k.Permissions = "server_read", []string{"contacts"} }).Token, revealPath("passport", ""), audit.Denied, 403},
	} {
		before := map[string]bool{}
		for _, r := range recent() {
			before[r.ID] = true
		}
		a := acme.Get(t, row.key, row.path)
		records := slices.DeleteFunc(recent(), func(r audit.Record) bool { return before[r.ID] })
		if len(records) != 1 {
			t.Errorf("%s: %d new records", row.name, len(records))
			continue
		}
		r := records[0]
		if r.Operation != "contacts.reveal" || r.Outcome != row.outcome || r.Code != row.code || r.Code != a.Code || !strings.HasPrefix(r.Subject, "key:") {
			t.Errorf("%s: the record is %+v", row.name, r)
		}
		if strings.Contains(fmt.Sprintf("%+v", r), passport) {
			t.Errorf("%s: the record holds the value: %+v", row.name, r)
		}
	}
	if strings.Contains(g.Log.String(), passport) {
		t.Error("the log holds the value")
	}
}

// TestContract_ContactFieldsThatAreAskedFor: what campaigns and reports ask for is not taken from them unless that is forced.
func TestContract_ContactFieldsThatAreAskedFor(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", tenants.FeatureTeams)
	acme.Import(t, bundleTeams()...)
	c := asking{acme, acme.Key(t, tenants.AllPermissions()...)}
	limited := asking{acme, acme.KeyWith(t, func(k *control.NewKey) { k.Permissions, k.Teams = []string{"contacts"}, []string{teamA} }).Token}
	const fields, plan = "/api/contacts/fields", "/api/contacts/fields/plan"
	c.do(t, 200, posted, fields, `{"key":"plan","title":"Plan","type":"Text"}`)
	c.do(t, 200, posted, fields, `{"key":"free","title":"Free","type":"Text"}`)
	campaign := c.do(t, 200, posted, "/api/campaigns", `{"name":"x","filter":{"or":[{"plan":{"starts_with":"g"}},{"country":"DE"}]},"teams":["`+teamB+`"]}`).Field("id").(string)
	report := c.do(t, 200, posted, "/api/custom-reports", `{"title":"r","class":"Contacts","query":{"fields":["plan"]}}`).Field("id").(string)
	for _, path := range []string{plan, plan + "?purge=true"} {
		c.do(t, 422, del, path, "", "1 campaigns ("+campaign+") could not be counted any more", "1 custom reports ("+report+") could not be run any more", `"field":"campaigns"`, `"field":"reports"`)
		limited.do(t, 403, del, path, "", notTheirs, "!"+campaign)
	}
	c.do(t, 422, change, plan, `{"type":"Number"}`, `"field":"campaigns"`, `!"field":"reports"`)
	c.do(t, 200, change, plan, `{"title":"Tariff","type":"Select"}`) // is asked about as before
	c.do(t, 200, del, fields+"/free", "")
	c.do(t, 200, get, "/api/campaigns/count/"+campaign, "")
	c.do(t, 200, del, plan+"?force=true", "")
	c.do(t, 422, get, "/api/campaigns/count/"+campaign, "")
	c.do(t, 200, posted, plan+"/restore", "")
	c.do(t, 200, get, "/api/campaigns/count/"+campaign, "")
	c.do(t, 200, del, "/api/campaigns/"+campaign, "")
	c.do(t, 200, del, "/api/custom-reports/"+report, "")
	c.do(t, 200, del, plan+"?purge=true", "")
}
