package forms

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tenantry/backends/enginetest"
	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/operation/schematest"
	"tenantry/tenants"
)

const (
	pageOrigin = "https://www.example.com"
	pageKey    = "665f1c2ab4d3e2f1a0b9c8d6"
	work       = 8
)

// remembered is Spent in memory.
type remembered struct {
	mu   sync.Mutex
	all  map[string]string
	fail error
}

func (*remembered) Begin(context.Context, *tenants.Tenant) error { return nil }

func (r *remembered) Spend(
	_ context.Context, t *tenants.Tenant, challenge, by string, _ time.Time, _ time.Duration,
) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	spent, known := r.all[t.Org.Slug+challenge]
	if !known {
		r.all[t.Org.Slug+challenge] = by
	}
	return !known || by != "" && spent == by, r.fail
}

// page is a form, and who fills it in.
type page struct {
	*fixture
	module *Module
	spent  *remembered
	form   string
}

func newPage(t *testing.T) *page {
	t.Helper()
	m := New(new(tenants.Directory))
	p := &page{module: m, spent: &remembered{all: map[string]string{}}}
	m.Spent = p.spent
	p.fixture = &fixture{schematest.Open(t, enginetest.Open(t), m), m.Kinds}
	m.keys = p.Directory
	record.Link(record.Described(m.Kept()))
	p.form = p.fixture.form(t, sample())
	return p
}

func visitor(bits int) *tenants.Principal {
	return &tenants.Principal{
		Kind: tenants.ServiceAccount, KeyID: pageKey, KeyKind: tenants.Browser, Origins: []string{pageOrigin},
		Permissions: []tenants.Permission{tenants.CreateFormSubmissions}, ProofOfWork: bits,
	}
}

func (p *page) submit(t *testing.T, as *tenants.Principal, query url.Values) schematest.Answer {
	t.Helper()
	r := schematest.Request{
		Operation: "submissions.create", Path: map[string]string{"id": p.form}, Query: query.Encode(), Principal: as, Body: `{"values":{"form_name":"Visit","why":"because"}}`,
	}
	if as.KeyKind == tenants.Browser {
		r.Origin = pageOrigin
	}
	return p.Do(t, r)
}

func (p *page) challenge(t *testing.T, form string, as *tenants.Principal) Challenge {
	t.Helper()
	a := p.Do(t, schematest.Request{Operation: "forms.challenge", Path: map[string]string{"id": form}, Principal: as, Origin: pageOrigin})
	var c Challenge
	if err := json.Unmarshal([]byte(a.Data), &c); err != nil || a.Code != 200 {
		t.Fatalf("got %+v, %v, want no error and 200", a, err)
	}
	return c
}

// solve returns the proof of a challenge whose sum begins with so many zero bits, or with fewer.
func solve(challenge string, bits int, enough bool) string {
	for n := 0; ; n++ {
		proof := challenge + ":" + strconv.Itoa(n)
		if zeros(sha256.Sum256([]byte(proof))) >= bits == enough {
			return proof
		}
	}
}

func (p *page) stored(t *testing.T) int64 {
	t.Helper()
	n, err := p.kinds.Submissions.In(p.Base()).CountIn(t.Context(), store.Filter{}, store.Either)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestProofOfWork: a key that asks for work takes a submission with a proof, once, and no other.
func TestProofOfWork(t *testing.T) {
	t.Parallel()
	p := newPage(t)
	who := visitor(work)
	given := p.challenge(t, p.form, who)
	if given.Bits != work {
		t.Errorf("got %+v, want given.Bits = %v", given, work)
	}
	good := solve(given.Challenge, work, true)
	parts := strings.Split(given.Challenge, ".")
	changed := func(part int, to string) string {
		other := append([]string{}, parts...)
		other[part] = to
		return solve(strings.Join(other, "."), work, true)
	}
	keys, err := p.Directory.DataKeys(t.Context(), p.Tenant, challengePurpose)
	if err != nil {
		t.Fatal(err)
	}
	late := fmt.Sprintf("%s.%s.%d.%d.late.%d", p.form, pageKey, time.Now().Add(-time.Second).Unix(), work, keys.Current().Version())
	other := p.fixture.form(t, Form{Name: "other", Label: "Other", LabelPlural: "Others"})
	elsewhere := visitor(work)
	elsewhere.KeyID = "665f1c2ab4d3e2f1a0b9c8d5"
	for what, proof := range map[string]string{
		"proof is required:this key requires":           "",
		"no colon:a colon":                              given.Challenge,
		"no point:a colon":                              "challenge:1",
		"junk:is not for a challenge of":                "a.b.c.d.e.f.g:1",
		"no parts:is not for a challenge of":            ".:1",
		"another signature:is not for a challenge of":   changed(6, "x"),
		"a later end:is not for a challenge of":         changed(2, "99999999999"),
		"fewer bits:is not for a challenge of":          changed(3, "0"),
		"another version:is not for a challenge of":     changed(5, "9"),
		"another form:another form or key":              solve(p.challenge(t, other, who).Challenge, work, true),
		"another key:another form or key":               solve(p.challenge(t, p.form, elsewhere).Challenge, work, true),
		"a key that asked for less:another form or key": solve(p.challenge(t, p.form, visitor(1)).Challenge, work, true),
		"an expired one:has expired":                    solve(late+"."+sign(keys.Current().Bytes(), late), work, true),
		"too little work:begin with 8 zero bits":        solve(given.Challenge, work, false),
		"a long one:at most 300 characters":             good + strings.Repeat("a", maxProof),
	} {
		says := what[strings.Index(what, ":")+1:]
		if a := p.submit(t, who, url.Values{"proof": {proof}}); a.Code != 422 || !strings.Contains(a.Message, says) {
			t.Errorf("%s: got %d %s, want 422 and containing %q", what, a.Code, a.Message, says)
		}
	}
	if n := p.stored(t); n != 0 {
		t.Fatalf("%d submissions are stored without proof", n)
	}
	if a := p.submit(t, who, url.Values{"proof": {good}}); a.Code != 200 {
		t.Errorf("with a good proof: %+v", a)
	}
	if a := p.submit(t, who, url.Values{"proof": {good}}); a.Code != 422 || !strings.Contains(a.Message, "has been used") {
		t.Errorf("the same proof again: %+v", a)
	}
	if a := p.submit(t, who, url.Values{"proof": {solve(given.Challenge, work, true) + "x"}}); a.Code != 422 {
		t.Errorf("another proof of the same challenge: %+v", a)
	}
	p.spent.fail = errors.Join(store.ErrUnavailable)
	if a := p.submit(t, who, url.Values{"proof": {solve(p.challenge(t, p.form, who).Challenge, work, true)}}); a.Code != 503 {
		t.Errorf("where nobody can tell whether it was used: %+v", a)
	}
	if n := p.stored(t); n != 1 {
		t.Errorf("%d submissions are stored, want 1", n)
	}
	for what, as := range map[string]*tenants.Principal{"a browser key that asks for none": visitor(0), "a server's key": schematest.Key()} {
		if a := p.submit(t, as, nil); a.Code != 200 {
			t.Errorf("%s: got %+v, want 200", what, a)
		}
	}
	if a := p.Do(t, schematest.Request{Operation: "forms.challenge", Path: map[string]string{"id": "000000000000000000000000"}, Principal: who, Origin: pageOrigin}); a.Code != 404 {
		t.Errorf("a challenge for no form: %+v", a)
	}
}

// TestHoneypot: what fills in the field that people do not see is answered as if it were stored.
func TestHoneypot(t *testing.T) {
	t.Parallel()
	p := newPage(t)
	shape := func(a schematest.Answer) string {
		var data map[string]any
		if err := json.Unmarshal([]byte(a.Data), &data); err != nil {
			t.Fatal(err)
		}
		id, _ := data["id"].(string)
		created, _ := data["created_at"].(string)
		if !store.ValidID(id) || len(created) != len("2024-06-04T14:06:40.000Z") || data["updated_at"] != created || strings.HasPrefix(created, "19") {
			t.Errorf(`got %s, want len(created) = %v and data["updated_at"] = %v`,
				a.Data, len("2024-06-04T14:06:40.000Z"), created)
		}
		return a.Message + strings.NewReplacer(id, "ID", created, "TIME").Replace(a.Data)
	}
	empty := p.submit(t, visitor(0), url.Values{"honeypot": {""}})
	if n := p.stored(t); empty.Code != 200 || n != 1 {
		t.Fatalf("an empty one: %+v, %d stored", empty, n)
	}
	filled := p.submit(t, visitor(0), url.Values{"honeypot": {"https://spam.example"}})
	if n := p.stored(t); filled.Code != 200 || n != 1 {
		t.Errorf("a filled one: %+v, %d stored", filled, n)
	}
	if shape(filled) != shape(empty) {
		t.Errorf("the answers differ: %s and %s", shape(filled), shape(empty))
	}
	if a := p.submit(t, schematest.Key(), url.Values{"honeypot": {"x"}}); a.Code != 200 || p.stored(t) != 2 {
		t.Errorf("of a server's key: %+v", a)
	}
}

// TestQuota_TellsVisitorsNothing: a page's visitors are not told how much the organization has.
func TestQuota_TellsVisitorsNothing(t *testing.T) {
	t.Parallel()
	p := newPage(t)
	used, err := p.Base().Used(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Directory.Update(t.Context(), "acme", func(o *tenants.Organization) error {
		o.Limits = map[string]int64{tenants.LimitDocuments: used.Documents}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if a := p.submit(t, visitor(0), nil); a.Code != 507 || a.Message != noRoom || a.Data != "[]" {
		t.Errorf("a visitor: %+v", a)
	}
	if a := p.submit(t, visitor(0), url.Values{"honeypot": {"x"}}); a.Code != 507 || a.Message != noRoom || a.Data != "[]" {
		t.Errorf("what fills in what people do not see: %+v", a)
	}
	if a := p.submit(t, schematest.Key(), nil); a.Code != 507 || a.Data != fmt.Sprintf(`{"limit":"documents","used":%d,"allowed":%[1]d}`, used.Documents) {
		t.Errorf("a server: %+v", a)
	}
}
