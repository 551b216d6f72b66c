package campaigns_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenantry/backends/enginetest"
	"tenantry/backends/record"
	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/crypto/keyring"
	"tenantry/internal/fault"
	"tenantry/modules/campaigns"
	"tenantry/modules/contacts"
	"tenantry/operation"
	"tenantry/operation/filters"
	"tenantry/tenants"
	"tenantry/tenants/secrets"
)

const teamA, teamB = "aaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbb"

// fixture is the module over the real contacts and a real store.
type fixture struct {
	module   *campaigns.Module
	kinds    campaigns.Kinds
	contacts *contacts.Module
	people   contacts.Kinds
	dir      *tenants.Directory
	tenant   *tenants.Tenant
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	ctx := testContext(t)
	engine := enginetest.Open(t)
	f := &fixture{}
	control := tenants.NewKinds()
	ring, err := keyring.Create(filepath.Join(t.TempDir(), "keyring"))
	must(t, err)
	s := store.New(store.Options{Engine: engine, Control: control.Specs()})
	f.dir, err = tenants.NewDirectory(ctx, tenants.DirectoryOptions{Store: s, Kinds: control, Keyring: ring})
	must(t, err)
	f.contacts = contacts.New(contacts.Deps{Keys: f.dir})
	f.module = campaigns.New(campaigns.Deps{Contacts: f.contacts})
	f.kinds, f.people = f.module.Kinds, f.contacts.Kinds
	s.Keep(record.Specs(append(f.kinds.Kept(), f.people.Kept()...))...)
	f.tenant = f.organization(t, "acme")
	return f
}

func (f *fixture) organization(t *testing.T, slug string) *tenants.Tenant {
	t.Helper()
	tenant, err := f.dir.Create(testContext(t), tenants.NewOrganization{Slug: slug, Name: slug, Features: map[string]bool{tenants.FeatureTeams: true}})
	must(t, err)
	for key, typ := range map[string]string{"ssn": "Encrypted", "age": "Number", "birthday": "Date", "seen": "DateTime", "vip": "Boolean", "colors": "MultiSelect", "note": "Text"} {
		must(t, f.people.Fields.In(tenant.Workspace()).Insert(testContext(t), &contacts.FieldDef{Key: key, Title: key, Type: typ}))
	}
	return tenant
}

func (f *fixture) add(t *testing.T, tenant *tenants.Tenant, list ...contacts.Contact) {
	t.Helper()
	ctx := testContext(t)
	defs, err := f.contacts.Definitions(ctx, tenant.Workspace())
	must(t, err)
	for i := range list {
		c := &list[i]
		c.ID = tenant.Workspace().NewID()
		var errs fault.List
		vault := secrets.Vault{Keys: f.dir, Tenant: tenant}
		at := secrets.Place{Collection: f.people.Contacts.Spec().Name, Record: c.ID}
		given := vault.Take(ctx, at, "fields", c.Fields, func(name string) bool { return defs[name].Type == schema.Encrypted }, &errs)
		fields := schema.Fields{}
		for key, def := range defs {
			fields[key] = schema.Field{Title: def.Title, Type: def.Type}
		}
		c.Fields, _ = fields.CheckValues(&errs, "fields", c.Fields)
		must(t, errs.Err())
		_, err := vault.Put(ctx, at, &c.Secrets, given)
		must(t, err)
		must(t, f.people.Contacts.In(tenant.Workspace()).Insert(ctx, c))
	}
}

func (f *fixture) campaign(t *testing.T, tenant *tenants.Tenant, filter string, teams ...string) string {
	t.Helper()
	c := campaigns.Campaign{Name: "c", Filter: json.RawMessage(filter), Teams: teams}
	must(t, f.kinds.Campaigns.In(tenant.Workspace()).Insert(testContext(t), &c))
	return c.ID
}

func caller(teams ...string) *tenants.Principal {
	return &tenants.Principal{Kind: tenants.ServiceAccount, AccountID: "a", KeyID: "k", KeyKind: tenants.ServerRead, Teams: teams}
}

// count runs the operation as the gateway does: row first, then handler.
func (f *fixture) count(t fataler, tenant *tenants.Tenant, p *tenants.Principal, id, query string) (int64, *operation.Problem) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	op := f.module.Operations()[0]
	c := operation.NewCall(&op, func(string) string { return id })
	c.Tenant, c.Principal = tenant, p
	res, err := operation.Run(ctx, c, operation.Input{Query: query})
	if err != nil {
		return -1, operation.ProblemOf(err)
	}
	counted, ok := res.Data.(campaigns.Counted)
	if !ok {
		t.Fatalf("data is %T", res.Data)
	}
	return counted.Count, nil
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestRowsAreComplete(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, op := range f.module.Operations() {
		if faults := op.Validate(); len(faults) > 0 {
			t.Errorf("got %v, want len(faults) <= 0", faults)
		}
		if op.Kinds.Admits(tenants.Browser) || op.Name == "campaigns.count" && !op.Kinds.Admits(tenants.ServerRead) || !op.Teams {
			t.Errorf("%s: kinds or teams are not as they must be", op.Name)
		}
	}
	if raw, err := json.Marshal(campaigns.Counted{}); err != nil || string(raw) != `{"count":0}` {
		t.Errorf(`got %s, %v, want no error and string(raw) = "{\"count\":0}"`, raw, err)
	}
}

func people(f *fixture, t *testing.T) {
	f.add(t, f.tenant,
		contacts.Contact{Country: "DE", City: "Bonn", Tags: []string{"a", "b"}, Fields: map[string]any{"age": json.Number("30"), "vip": true, "ssn": "111"}},
		contacts.Contact{Country: "DE", City: "Berlin", Tags: []string{"b"}, Fields: map[string]any{"age": json.Number("31.5"), "birthday": "2024-05-17", "ssn": "222"}},
		contacts.Contact{Country: "FR", City: "Paris", Teams: []string{teamA}, Fields: map[string]any{"age": json.Number("9007199254740993"), "seen": "2024-05-17T23:30:00-02:00"}},
		contacts.Contact{Country: "FR", Teams: []string{teamB}, Fields: map[string]any{"vip": false, "colors": []any{"red", "blue"}, "ssn": "333"}},
		contacts.Contact{},
	)
}

func TestCountByFilter(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	people(f, t)
	for query, want := range map[string]int64{
		"":                        5,
		"filters=":                5,
		"filters=0":               5,
		"filters=%7B%7D":          5,
		"filters[country]=DE":     2,
		"filters[country]=de":     0,
		"filters[country]=":       1,
		"filters[country][ne]=DE": 3,
		"filters[country]=DE&filters[country]=FR":     4,
		"filters[country][]=DE&filters[city]=Bonn":    1,
		"filters[country][nin]=DE":                    3,
		"filters[city][exists]=false":                 2,
		"filters[city][contains]=r":                   2,
		"filters[city][contains]=R":                   2,
		"filters[city][contains_exact]=R":             0,
		"filters[city][starts_with]=B":                2,
		"filters[city][starts_with]=bO":               1,
		"filters[city][starts_with_exact]=bO":         0,
		"filters[tags]=b":                             2,
		"filters[tags][contains]=a":                   1,
		"filters[tags][ne]=a":                         4,
		"filters[tags][exists]=true":                  2,
		"filters[age][gt]=30":                         2,
		"filters[age][gte]=3e1&filters[age][lt]=31.6": 2,
		"filters[age]=9007199254740993":               1,
		"filters[age]=9007199254740992":               0,
		"filters[vip]=true":                           1,
		"filters[vip][ne]=true":                       4,
		"filters[birthday]=2024-05-17":                1,
		"filters[birthday][lt]=2024-05-18":            1,
		"filters[seen]=2024-05-18":                    1,
		"filters[seen]=2024-05-17":                    0,
		"filters[seen]=2024-05-18T01:30:00Z":          1,
		"filters[seen][ne]=2024-05-18":                4,
		"filters[colors]=red":                         1,
		"filters[created_at][gt]=2020-01-01":          5,
		"filters[created_at][lt]=2020-01-01":          0,
		"filters[or][0][city]=Bonn&filters[or][1][city]=Paris&filters[country]=FR":      1,
		"filters[or][5][country]=DE&filters[or][5][vip]=true&filters[or][9][vip]=false": 2,
	} {
		got, p := f.count(t, f.tenant, caller(), "", query)
		if p != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", query, got, p, want)
		}
	}
}

func TestCountOfCampaign(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	people(f, t)
	german := f.campaign(t, f.tenant, `{"country":"DE"}`)
	everybody := f.campaign(t, f.tenant, "")
	null := f.campaign(t, f.tenant, "null")
	inA := f.campaign(t, f.tenant, `{"country":"FR"}`, teamA)
	stale := f.campaign(t, f.tenant, `{"gone":1}`)
	secret := f.campaign(t, f.tenant, `{"ssn":"111"}`)
	broken := f.campaign(t, f.tenant, `{"country":3}`)
	input := f.campaign(t, f.tenant, `{"country":{"input":"c"}}`)
	for name, tc := range map[string]struct {
		id, query string
		caller    *tenants.Principal
		want      int64
		code      int
		message   string
	}{
		"its own filter":            {german, "", caller(), 2, 0, ""},
		"replaced":                  {german, "filters[country]=FR", caller(), 2, 0, ""},
		"replaced by all":           {german, "filters=false", caller(), 5, 0, ""},
		"no filter":                 {everybody, "", caller(), 5, 0, ""},
		"null":                      {null, "", caller(), 5, 0, ""},
		"team limit":                {german, "filters=", caller(teamA), 4, 0, ""},
		"request's teams":           {german, "filters=&teams[]=" + teamB, caller(), 4, 0, ""},
		"not in scope":              {inA, "", caller(teamB), -1, 200, "undefined error"},
		"its teams do not narrow":   {inA, "", caller(), 2, 0, ""},
		"stale":                     {stale, "", caller(), -1, 422, `the campaign's own filter.gone`},
		"stale, but replaced":       {stale, "filters=", caller(), 5, 0, ""},
		"secret":                    {secret, "", caller(), -1, 422, `the campaign's own filter.ssn`},
		"broken":                    {broken, "", caller(), -1, 422, `the campaign's own filter.country`},
		"input":                     {input, "", caller(), -1, 422, `there is no input "c"`},
		"missing":                   {f.tenant.Workspace().NewID(), "", caller(), -1, 200, "undefined error"},
		"malformed":                 {"x' OR 1=1", "filters=", caller(), -1, 200, "undefined error"},
		"upper case":                {strings.ToUpper(inA), "", caller(), -1, 200, "undefined error"},
		"missing and a good filter": {f.tenant.Workspace().NewID(), "filters[country]=DE", caller(), -1, 200, "undefined error"},
		"missing and unreadable":    {f.tenant.Workspace().NewID(), "filters[country][$ne]=DE", caller(), -1, 422, "$ne"},
	} {
		got, p := f.count(t, f.tenant, tc.caller, tc.id, tc.query)
		if tc.code == 0 {
			if p != nil || got != tc.want {
				t.Errorf("%s: %d, %v; want %d", name, got, p, tc.want)
			}
			continue
		}
		if p == nil || p.Code != tc.code || !strings.Contains(p.Message, tc.message) {
			t.Errorf("%s: %d, %v; want %d %s", name, got, p, tc.code, tc.message)
		}
		if tc.code == 200 {
			if raw, _ := json.Marshal(p.Envelope()); string(raw) != `{"status":"failed","message":"undefined error","data":[]}` {
				t.Errorf(`%s: got %s, want string(raw) = "{\"status\":\"failed\",\"message\":\"undefined error\",\"data\":[]}"`,
					name, raw)
			}
		}
	}
}

func TestOrganizationsAreApart(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	people(f, t)
	other := f.organization(t, "other")
	f.add(t, other, contacts.Contact{Country: "DE"})
	foreign := f.campaign(t, f.tenant, "")
	if got, p := f.count(t, other, caller(), "", "filters[country]=DE"); p != nil || got != 1 {
		t.Errorf("got %d, %v, want p = nil and 1", got, p)
	}
	if _, p := f.count(t, other, caller(), foreign, ""); p == nil || p.Code != 200 || p.Message != "undefined error" {
		t.Errorf("another organization's campaign: %v", p)
	}
}

// TestEncryptedFieldsCannotBeFilteredOn holds that no answer depends on an encrypted field's value or on its
// presence.
func TestEncryptedFieldsCannotBeFilteredOn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	people(f, t)
	answers := map[string]string{}
	for _, field := range []string{"ssn", "SSN", "Ssn", "secrets", "secrets.ssn", "fields.ssn", "fields"} {
		for _, op := range append(filters.Operators(), "") {
			for _, prefix := range []string{"filters", "filters[or][0]"} {
				for _, value := range []string{"111", "nobody", "true", "false", ""} {
					path := prefix + "[" + field + "]"
					if op != "" {
						path += "[" + op + "]"
					}
					n, p := f.count(t, f.tenant, caller(), "", path+"="+value+"&filters[country]=DE")
					if p == nil {
						t.Fatalf("%s=%s counted %d", path, value, n)
					}
					raw, _ := json.Marshal(p.Envelope())
					if p.Code != 422 || !strings.Contains(p.Message, field) {
						t.Errorf("%s: got %d %s, want 422 and containing %q", path, p.Code, raw, field)
					}
					if before, ok := answers[path]; ok && before != string(raw) {
						t.Errorf("%s: the answer depends on the value: %s and %s", path, before, raw)
					}
					answers[path] = string(raw)
				}
			}
		}
	}
}

func TestUndeclaredOperatorsAreRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	people(f, t)
	for _, name := range []string{"$where", "$expr", "email][$regex", "country][$ne", "country][$gt", "__proto__", "__proto__][eq", "a.b", "or][0][$or", "country'--"} {
		n, p := f.count(t, f.tenant, caller(), "", "filters["+url.QueryEscape(name)+"]=1")
		if p == nil || p.Code < 400 || p.Code > 499 {
			t.Errorf("%s: got %d, %v, want p other than nil and p.Code >= 400 and p.Code <= 499", name, n, p)
		}
		// The brackets inside the name arrive as brackets, however they are escaped.
		n, p = f.count(t, f.tenant, caller(), "", "filters["+name+"]=1")
		if p == nil || p.Code < 400 || p.Code > 499 || !strings.Contains(p.Message, strings.Split(name, "]")[0]) {
			t.Errorf("%s: got %d, %v, want p other than nil and p.Code >= 400 and p.Code <= 499 and containing %q",
				name, n, p, strings.Split(name, "]")[0])
		}
	}
}

func TestMalformedQueryIsNeverTheUnfilteredCount(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	people(f, t)
	for _, raw := range []string{"filters[country]=DE;x=1", "filters[country]=%zz", "filters[country=DE", "filters]country[=DE", "filters[country]]=DE",
		"filters[country]=%00", "filters[country]=%ff", "filters[a][b][c][d][e][f][g]=1", strings.Repeat("a=1&", 1001) + "filters[country]=DE",
		"filters=DE", "filters=0&filters[country]=DE", "filters[]=DE", "filters[country][eq][x]=DE", "filters[or][0]=DE", "filters[or]=DE"} {
		if n, p := f.count(t, f.tenant, caller(), "", raw); p == nil || p.Code < 400 || p.Code > 499 {
			t.Errorf("%.60q: got %d, %v, want p other than nil and p.Code >= 400 and p.Code <= 499", raw, n, p)
		}
	}
}

type failing struct{ err error }

func (b failing) Catalog(context.Context, *store.Workspace) (filters.Catalog, error) {
	return nil, b.err
}
func (b failing) CatalogOf(defined schema.Fields) filters.Catalog {
	return contacts.NewKinds().CatalogOf(defined)
}
func (b failing) Count(context.Context, *store.Workspace, store.Filter) (int64, error) {
	return 0, b.err
}
func (b failing) ListRow() operation.Row {
	return operation.Row{}
}

func TestContactsUnavailable(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.module = campaigns.New(campaigns.Deps{Contacts: failing{store.ErrUnavailable}})
	f.module.Kinds = f.kinds
	for _, query := range []string{"", "filters[country]=DE"} {
		if _, p := f.count(t, f.tenant, caller(), "", query); p == nil || p.Code != 503 || p.RetryAfter == 0 {
			t.Errorf("%q: got %v, want p other than nil and 503 and p.RetryAfter > 0", query, p)
		}
	}
	f.module = campaigns.New(campaigns.Deps{Contacts: failing{errors.New("boom at /var/x")}})
	if _, p := f.count(t, f.tenant, caller(), "", ""); p == nil || p.Code != 500 || strings.Contains(p.Message, "boom") {
		t.Errorf(`got %v, want p other than nil and 500 and nothing containing "boom"`, p)
	}
}

// fataler is what *testing.T and *rapid.T have in common here.
type fataler interface{ Fatalf(string, ...any) }
