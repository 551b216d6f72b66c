package isolation

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
	"tenantry/tenants"
)

// TestHostVariants finds out from the answered report which organization was reached.
func TestHostVariants(t *testing.T) {
	t.Parallel()
	local := fixture.NewQuietWorld(t)
	based := fixture.NewQuietWorld(t, func(c *config.Config, _ *gateway.Options) { c.BaseDomain = "example.test" })
	const acme, nobody = "acme", ""
	type variant struct{ target, version, headers, want string }
	plain := func(host, want string) variant { return variant{"%s", "HTTP/1.1", "Host: " + host + "\r\n", want} }
	check := func(w *fixture.World, variants []variant) {
		t.Helper()
		for _, v := range variants {
			reached := nobody
			for _, p := range []*fixture.Party{w.A, w.B} {
				target := fmt.Sprintf(v.target, "/api/custom-reports/"+p.IDs[fixture.RefReport])
				code, body := w.Raw(t, "GET "+target+" "+v.version+"\r\n"+v.headers+fixture.KeyHeader+": "+p.FullKey+"\r\nConnection: close\r\n\r\n")
				switch {
				case code == http.StatusOK && strings.Contains(body, p.Mark) && reached == nobody:
					reached = p.Slug
				case code < 400 || code > 499 || strings.Contains(body, w.A.Mark) || strings.Contains(body, w.B.Mark):
					t.Errorf("%+v with the key of %s: got %d %.200s, want at least 400, at most 499, without %q and without %q",
						v, p.Slug, code, body, w.A.Mark, w.B.Mark)
				}
			}
			if reached != v.want {
				t.Errorf("%+v reached %q, want %q", v, reached, v.want)
			}
		}
	}
	common := []variant{
		plain("", nobody), plain("acme", nobody), plain("127.0.0.1", nobody), plain("127.0.0.1:8080", nobody), plain("[::1]", nobody), plain("localhost", nobody),
		plain("acme.127.0.0.1", nobody), plain("acme.0x7f.1", nobody), plain("xn--acme-fua.example.test", nobody), plain("аcme.example.test", nobody), plain("acme%2eexample.test", nobody),
		plain("acme..example.test", nobody), plain(".acme.example.test", nobody), plain("acme.example.test:99999", nobody), plain("acme.example.test:port", nobody),
		plain("acme.example.test:80:80", nobody), plain("acme.example.test/birch", nobody), plain("acme.example.test, birch.example.test", nobody),
		plain("birch@acme.example.test", nobody), plain("birch:x@acme.example.test", nobody), plain("acme\t.example.test", nobody), plain("acme\x00.example.test", nobody),
		plain("acme.example.test#x", nobody), plain("acme.example.test?x", nobody), plain("_acme.example.test", nobody), plain("acme_.example.test", nobody), plain(strings.Repeat("a", 300)+".example.test", nobody),
		{"%s", "HTTP/1.0", "", nobody}, {"%s", "HTTP/1.1", "Host: acme.example.test\r\nHost: birch.example.test\r\n", nobody},
		{"http://birch@nobody.example.test%s", "HTTP/1.1", "Host: acme.example.test\r\n", nobody},
		plain("acme.example.test", acme), plain("ACME.Example.TEST", acme), plain("acme.example.test.", acme), plain("acme.example.test:443", acme), plain("acme.example.test.:8080", acme),
		{"%s", "HTTP/1.0", "Host: acme.example.test\r\n", acme},
		// The target of a request line takes precedence over the header, for every reader of HTTP.
		{"http://acme.example.test%s", "HTTP/1.1", "Host: birch.example.test\r\n", acme},
		{"http://birch.example.test%s", "HTTP/1.1", "Host: acme.example.test\r\n", "birch"},
		{"%s", "HTTP/1.1", "Host: acme.example.test\r\nX-Forwarded-Host: birch.example.test\r\nX-Host: birch.example.test\r\nForwarded: host=birch.example.test\r\nX-Original-Host: birch.example.test\r\nX-HTTP-Host-Override: birch.example.test\r\n", acme},
	}
	check(local, common)
	check(local, []variant{plain("acme.localhost", acme), plain("acme.localhost:8080", acme), plain("birch.acme.localhost", "birch")})
	check(based, common)
	check(based, []variant{
		plain("acme.localhost", nobody), plain("example.test", nobody), plain("birch.acme.example.test", nobody), plain("acme.birch.example.test", nobody),
		plain("acme.example.test.evil.test", nobody), plain("acme.evilexample.test", nobody), plain("acmeexample.test", nobody),
	})

	behind := fixture.NewQuietWorld(t, func(c *config.Config, _ *gateway.Options) {
		c.BaseDomain, c.TrustedProxies = "example.test", []string{"127.0.0.0/8", "::1"}
	})
	forwarded := func(more, want string) variant {
		return variant{"%s", "HTTP/1.1", "Host: proxy.internal\r\n" + more, want}
	}
	check(behind, []variant{
		forwarded("X-Forwarded-Host: acme.example.test\r\n", acme), forwarded("X-Forwarded-Host: ACME.example.test:443\r\n", acme), forwarded("", nobody),
		forwarded("X-Forwarded-Host: acme.example.test\r\nX-Forwarded-Host: birch.example.test\r\n", nobody),
		forwarded("X-Forwarded-Host: birch.example.test, acme.example.test\r\n", nobody), forwarded("X-Forwarded-Host: acme.evil.test\r\n", nobody), forwarded("X-Forwarded-Host:\r\n", nobody),
		{"%s", "HTTP/1.1", "Host: birch.example.test\r\nX-Forwarded-Host: acme.example.test\r\n", acme},
	})
	elsewhere := fixture.NewQuietWorld(t, func(c *config.Config, _ *gateway.Options) {
		c.BaseDomain, c.TrustedProxies = "example.test", []string{"10.0.0.0/8"}
	})
	check(elsewhere, []variant{{"%s", "HTTP/1.1", "Host: acme.example.test\r\nX-Forwarded-Host: birch.example.test\r\nX-Forwarded-For: 10.0.0.1\r\n", acme}})
}

func TestUnknownSuspendedAndWrongKeyAreAlike(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t, fixture.WithPlants, fixture.WithDemoFiles)
	c := w.Org(t, "cedar")
	suspendedKey := c.Key(t, tenants.AllPermissions()...)
	if _, err := control.Call[control.Organization](t.Context(), w.Commands, "org.suspend", control.Slug{Slug: "cedar"}); err != nil {
		t.Fatal(err)
	}
	for _, op := range w.App.Operations() {
		s := fixture.SampleFor(&op)
		for _, path := range op.Paths() {
			answers := map[string]*gatewaytest.Answer{}
			q := w.Build(&op, path, s, func(at fixture.Slot) (string, bool) { return fixture.RandomLike(w.A.IDs[at.Ref]), true }, fixture.Every)
			ask := func(name, host, key string) {
				answers[name] = w.Do(t, q.Method, host, q.Target, append(slices.Clone(q.Changes), gatewaytest.WithKey(key))...)
			}
			ask("unknown organization", "nobody.localhost", w.A.FullKey)
			ask("suspended organization", "cedar.localhost", suspendedKey)
			ask("no organization", "localhost", w.A.FullKey)
			if op.Credentials&operation.Open == 0 {
				ask("wrong key", w.A.Host, fixture.RandomKey(t, tenants.ServerFull))
			}
			for name, a := range answers {
				if g, want := fixture.Canonical(a, "", nil), fixture.Canonical(answers["unknown organization"], "", nil); g != want {
					t.Errorf("%s %s, %s:\n%s\nunknown organization:\n%s", op.Method, path, name, g, want)
				}
			}
		}
	}
}

// TestLimitHeadersDoNotRevealOrganizations checks that rate limit headers do not reveal which organizations exist.
func TestLimitHeadersDoNotRevealOrganizations(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme")
	for _, path := range []string{"/api/reports/shared/x", "/api/reports/shared/x?unknown[]=y", "/api/reports/shared/x?token=y"} {
		here, nowhere := acme.Do(t, http.MethodGet, path), g.Do(t, http.MethodGet, "nobody.localhost", path)
		names := func(a *gatewaytest.Answer) []string { return slices.Sorted(maps.Keys(a.Header)) }
		if here.Header.Get("RateLimit-Limit") == "" || !slices.Equal(names(here), names(nowhere)) || here.Code != nowhere.Code || here.Text() != nowhere.Text() {
			t.Errorf("%s: an organization answers %d %v %s, none %d %v %s, want the same with limits",
				path, here.Code, names(here), here.Text(), nowhere.Code, names(nowhere), nowhere.Text())
		}
	}
}

func TestConfusableSlugsAreRefused(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	g.Org(t, "acme")
	g.Org(t, "gone")
	if _, err := control.Call[control.Certificate](t.Context(), g.Commands, "org.delete", control.Deletion{Slug: "gone", Now: true}); err != nil {
		t.Fatal(err)
	}
	name := "Another"
	for _, slug := range []string{
		"аcme", "ACME", "Acme", "admin", "www", "api", "gone", "acme", "xn--cme-7cd", "ac--me", "-acme", "acme-", "acme.birch", "acme_", "ac me", "acme\x00", "", strings.Repeat("a", 64), "ᴀcme", "acme\u200b",
	} {
		if _, err := control.Call[control.Organization](t.Context(), g.Commands, "org.create", control.NewOrganization{Slug: slug, OrganizationFields: control.OrganizationFields{Name: name}}); err == nil {
			t.Errorf("organization %q was created, want an error", slug)
		}
	}
}

// limitedKey returns the files and folders that a team-limited key sees in a folder, and a count.
func limitedKey(t testing.TB, p *fixture.Party, key, query string, changes ...gatewaytest.Request) (seen map[string]bool, count string, code int) {
	t.Helper()
	seen = map[string]bool{}
	a := p.Get(t, key, "/api/files/folders/"+p.IDs[fixture.RefFolder]+query, changes...)
	for _, list := range []string{"files", "folders"} {
		items, _ := a.Field(list).([]any)
		for _, item := range items {
			if m, ok := item.(map[string]any); ok {
				seen[fmt.Sprint(m["id"])] = true
			}
		}
	}
	c := p.Get(t, key, "/api/campaigns/count"+query, changes...)
	if (a.Code == http.StatusOK) != (c.Code == http.StatusOK) {
		t.Errorf("teams %.100q: the folder answers %d, the count %d, want both or neither to succeed",
			query, a.Code, c.Code)
	}
	return seen, fmt.Sprint(c.Field("count")), a.Code
}

func TestTeamParameterNeverWidensAccess(t *testing.T) {
	t.Parallel()
	w := fixture.NewQuietWorld(t)
	p := w.A
	team, other := p.IDs[fixture.RefTeam], p.IDs[fixture.RefOtherTeam]
	limited := p.KeyWith(t, func(k *control.NewKey) {
		k.Permissions, k.Teams = fixture.PermissionNames(tenants.AllPermissions()), []string{team}
	}).Token
	entitled, count, code := limitedKey(t, p, limited, "")
	everything, _, _ := limitedKey(t, p, p.FullKey, "")
	if code != http.StatusOK || len(entitled) != 4 || len(everything) != 6 || count != "8" {
		t.Fatalf("%d: the key sees %d and %s, without limit %d, want 200, 4 entitled, 6 everything and 8",
			code, len(entitled), count, len(everything))
	}
	many := func(n int, name, id string) string {
		return "?" + strings.Repeat(name+"="+id+"&", n-1) + name + "=" + id
	}
	queries := []string{
		"?teams[]=" + other, "?teams[]=" + other + "&teams[]=" + team, "?teams[]=" + w.B.IDs[fixture.RefTeam], "?teams[]=", "?teams[]=*", "?teams[]=null", "?teams[]=all", "?teams[]=0", "?teams[]=-1",
		"?teams[]=%27%20OR%201=1--", "?teams[]={%22$ne%22:null}", "?teams[]=" + strings.ToUpper(team), "?teams[]=" + team + "%20", "?teams[]=" + team + "%00", "?teams[]=%00", "?teams[]=%ff", "?teams[]=" + team + "," + other,
		"?teams=" + other, "?teams=" + team + "&teams=" + other, "?teams=" + other + "&teams[]=" + team, "?teams[]=" + other + "&teams=" + team, "?teams=", "?teams", "?teams[]",
		"?teams[0]=" + other, "?teams[1]=" + other + "&teams[0]=" + team, "?teams[][]=" + other, "?teams[$ne]=x", "?teams[$in][]=" + other, "?teams[or]=" + other, "?teams%5B%5D=" + other, "?teams%5b%5d=" + other,
		"?Teams[]=" + other, "?TEAMS=" + other, "?team[]=" + other, "?scope=all", "?all=1", "?teams[=" + other, "?teams]=" + other, "?teams[]=" + other + ";x=1", "?teams[]=%zz",
		many(900, "teams[]", other), many(10_000, "teams[]", "x"), many(900, "teams", other), many(900, "teams[]", "x"), "?teams[]=" + strings.Repeat("a", 10_000), "?teams[]=💥",
	}
	for _, query := range queries {
		seen, n, code := limitedKey(t, p, limited, query)
		for id := range seen {
			if !entitled[id] {
				t.Errorf("teams %.100q shows %s, want only entitled records", query, id)
			}
		}
		if code == http.StatusOK && n != "8" && n != "4" { // all that the key is entitled to, or what has no team
			t.Errorf("teams %.100q counts %s contacts, want 8 or 4", query, n)
		}
		if code != http.StatusOK && (code < 400 || code > 499) {
			t.Errorf("teams %.100q: got %d, want 200 or a 4xx code", query, code)
		}
	}
	if seen, n, _ := limitedKey(t, p, limited, "?teams[]="+other); len(seen) != 1 && len(seen) != 0 || n != "4" {
		t.Errorf("another team's records: got %d records and the count %s, want at most 1 and 4", len(seen), n)
	}
	// In a body, against the query, and strictly.
	hidden := "/api/custom-reports/" + p.ID(87) + "/share"
	for _, body := range []string{
		`{"teams":["` + other + `"]}`, `{"teams":"` + other + `"}`, `{"teams":null}`, `{"teams":{}}`, `{"teams":[]}`, `{"teams":[null]}`, `{"teams":[["` + other + `"]]}`, `{"teams":{"$ne":null}}`, `{"teams":true}`, `{}`, `{"Teams":["` + other + `"]}`,
	} {
		for _, query := range []string{"", "?teams[]=" + other, "?teams[]=" + team, "?teams=" + other, "?teams[]="} {
			a := p.Do(t, http.MethodPost, hidden+query, gatewaytest.WithKey(limited), gatewaytest.Body("application/json", body))
			if a.Code != http.StatusNotFound && a.Code != http.StatusBadRequest && a.Code != http.StatusUnprocessableEntity {
				t.Errorf("sharing another team's report with %s%s: got %d %.200s, want 404, 400 or 422",
					query, body, a.Code, a.Body)
			}
		}
	}
	if a := p.Do(t, http.MethodPost, hidden, gatewaytest.WithKey(p.FullKey), gatewaytest.Body("application/json", `{}`)); a.Code != http.StatusOK {
		t.Errorf("sharing it without limit: got %d %.200s, want 200", a.Code, a.Body)
	}
	if a := p.Get(t, limited, "/api/files/folders/"+p.IDs[fixture.RefFolder]+"?teams[]=x", gatewaytest.Header("Prefer", "handling=strict")); a.Code != http.StatusBadRequest {
		t.Errorf("strict: got %d %.200s, want 400", a.Code, a.Body)
	}
	for _, path := range []string{"/api/contacts/" + p.IDs[fixture.RefContactOther] + "/reveal-secret?field=" + fixture.SecretField, "/api/custom-reports/" + p.ID(87)} {
		separator := "?"
		if strings.Contains(path, "?") {
			separator = "&"
		}
		for _, more := range []string{"", "teams[]=" + other, "teams=" + other, "teams[]=*"} {
			if a := p.Get(t, limited, path+separator+more); a.Status == "ok" || strings.Contains(a.Text(), p.Mark) {
				t.Errorf("%s with %q: got %d %.200s, want a failure and without %q", path, more, a.Code, a.Body, p.Mark)
			}
		}
	}
}

func TestForeignFoldersAndCycles(t *testing.T) {
	t.Parallel()
	w := fixture.NewQuietWorld(t, gatewaytest.OwnFiles) // the test makes a circle in the file
	for _, id := range []string{w.A.IDs[fixture.RefParent], w.A.IDs[fixture.RefFolder], fixture.RandomLike(w.A.IDs[fixture.RefParent]), "null", "", "../" + w.A.IDs[fixture.RefParent]} {
		for _, folder := range []string{w.B.IDs[fixture.RefFolder], w.A.IDs[fixture.RefFolder]} {
			a := w.B.Get(t, w.B.FullKey, "/api/files/folders/"+folder+"?folder_id="+url.QueryEscape(id))
			if a.Code != http.StatusNotFound || a.Message != "Folder not found" {
				t.Errorf("folder %s in %q: got %d %.200s, want 404 and the message %q",
					folder, id, a.Code, a.Body, "Folder not found")
			}
		}
	}
	// A record with a parent in another organization leads there no more than any other. The records are stored
	// directly, because an import refuses both.
	b := w.B
	point := func(n int, parent string) {
		id := b.ID(n)
		b.Import(t, `{"kind":"folder","id":"`+id+`","name":"`+b.NewText()+`"}`)
		b.Exec(t, `UPDATE "c:folders" SET f_folder_id = ?1, body = json_set(body, '$.folder_id', ?1) WHERE id = ?2`, parent, id)
	}
	point(200, b.ID(201))
	point(201, b.ID(200))
	point(202, b.ID(202))
	point(203, w.A.IDs[fixture.RefFolder])
	for _, n := range []int{200, 201, 202, 203} {
		started := time.Now()
		a := b.Get(t, b.FullKey, "/api/files/folders/"+b.ID(n))
		if parent, _ := a.Field("folder_id").(string); parent == "" {
			t.Errorf("folder %d has no parent: got %.300s, want parent set", n, a.Body)
		}
		if a.Code != http.StatusOK || strings.Contains(a.Text(), w.A.Mark) || time.Since(started) > 30*time.Second {
			t.Errorf("folder %d: got %d after %s %.300s, want 200 within 30 s and nothing of the other organization",
				n, a.Code, time.Since(started), a.Body)
		}
	}
	if a := b.Get(t, b.FullKey, "/api/files/folders/"+w.A.IDs[fixture.RefFolder]); a.Code != http.StatusNotFound {
		t.Errorf("the folder that it dangles from: got %d %.200s, want 404", a.Code, a.Body)
	}
}

func TestUserNumbersRevealNothing(t *testing.T) {
	t.Parallel()
	w := fixture.NewQuietWorld(t)
	caller := w.B
	own := map[int]bool{}
	last := 700
	foreign, err := control.Call[[]control.User](t.Context(), w.Commands, "user.list", control.Page{Org: w.A.Slug, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	mine, err := control.Call[[]control.User](t.Context(), w.Commands, "user.list", control.Page{Org: w.B.Slug, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range mine {
		own[int(u.ID)] = strings.Contains(u.Email, caller.Mark)
	}
	numbers := []int{0, -1, 8999, 9000, 9999}
	for n := range last {
		numbers = append(numbers, n)
	}
	for _, u := range foreign {
		numbers = append(numbers, int(u.ID), int(u.ID)+100_000)
	}
	blind := caller.Key(t)
	missing := fixture.Canonical(caller.Get(t, caller.FullKey, "/api/users/123456"), "", nil)
	refused := fixture.Canonical(caller.Get(t, blind, "/api/users/123456"), "", nil)
	for _, n := range numbers {
		path := fmt.Sprintf("/api/users/%d", n)
		if got := fixture.Canonical(caller.Get(t, blind, path), "", nil); got != refused {
			t.Fatalf("user %[1]d, to a caller who may read nobody: got\n%[2]s\nwant\n%[3]s", n, got, refused)
		}
		if got := fixture.Canonical(caller.Get(t, caller.FullKey, path), "", nil); got != missing && !own[n] {
			t.Fatalf("user %d: got\n%s\nwant as missing:\n%s", n, got, missing)
		}
	}
}

func TestSameNameInTwoOrganizations(t *testing.T) {
	t.Parallel()
	w := fixture.NewQuietWorld(t)
	body := gatewaytest.JSON(map[string]any{"name": "tree", "label": "Tree", "label_plural": "Trees"})
	for _, p := range []*fixture.Party{w.A, w.B} {
		if a := p.Do(t, http.MethodPost, "/api/custom/objects", gatewaytest.WithKey(p.FullKey), body); a.Code != http.StatusOK {
			t.Errorf("%s: got %d %s, want %v", p.Slug, a.Code, a.Body, http.StatusOK)
		}
		if a := p.Do(t, http.MethodPost, "/api/custom/objects", gatewaytest.WithKey(p.FullKey), body); a.Code != http.StatusConflict {
			t.Errorf("%s again: got %d %s, want 409", p.Slug, a.Code, a.Body)
		}
	}
	// One organization's name does not help to guess another's.
	a := w.B.Do(t, http.MethodPost, "/api/custom/objects", gatewaytest.WithKey(w.B.FullKey), gatewaytest.JSON(map[string]any{
		"name": w.A.IDs[fixture.RefObjectName], "label": "L", "label_plural": "P",
	}))
	if a.Code != http.StatusOK {
		t.Errorf("a name of another organization: got %d %s, want 200", a.Code, a.Body)
	}
}
