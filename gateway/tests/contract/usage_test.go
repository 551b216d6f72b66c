package contract

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
	"tenantry/tenants"
)

// TestUsageOverHTTP checks that calls of an organization are shown by day and operation with their refusals, for 90
// days, and only to that organization.
func TestUsageOverHTTP(t *testing.T) {
	t.Parallel()
	began := time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)
	var later atomic.Int64 // days
	g := gatewaytest.Start(t, func(_ *config.Config, o *gateway.Options) {
		o.Now = func() time.Time { return began.AddDate(0, 0, int(later.Load())) }
	})
	acme, birch := g.Org(t, "acme", tenants.FeatureTeams), g.Org(t, "birch")
	reader, writer := acme.Key(t, tenants.ViewAudit), acme.Key(t, tenants.ManageCampaigns)
	ask := func(times int) {
		var all sync.WaitGroup
		for range times {
			all.Go(func() {
				acme.Get(t, writer, "/api/campaigns")
				acme.Get(t, writer, "/api/audit") // refused
				birch.Get(t, "", "/api/campaigns")
			})
		}
		all.Wait()
	}
	told := func(query, want string) {
		t.Helper()
		if a := acme.Get(t, reader, "/api/usage"+query); a.Code != 200 || !strings.Contains(a.Text(), want) {
			t.Errorf("%s: %d %s\nwant %s", query, a.Code, a.Body, want)
		}
	}
	ask(5)
	g.App.FlushUsage(t.Context())
	ask(2)
	g.App.FlushUsage(t.Context())
	told("?operation=audit.list", `"results":[{"day":"2031-05-01","requests":7,"refused":7,`)
	told("?operation=campaigns.list", `"results":[{"day":"2031-05-01","requests":7,"refused":0,`)
	told("", `{"operation":"audit.list","requests":7,"refused":7,`)
	told("?to=2031-04-30", `"count":0`)
	told("", `"hours":[{"hour":"12","requests":`)
	told("?operation=audit.list", `"hours":[],"minutes":[]`)
	told("", `"minutes":[{"minute":"12:00","requests":`)
	first := acme.Get(t, reader, "/api/usage").Field("results").([]any)[0].(map[string]any)
	for _, name := range []string{"requests", "sent_bytes"} {
		if first[name].(interface{ String() string }).String() == "0" {
			t.Errorf("%s is 0: %v, want more", name, first)
		}
	}

	later.Store(1)
	ask(1)
	g.App.FlushUsage(t.Context()) // the period began the day before
	ask(3)
	g.App.FlushUsage(t.Context())
	told("?operation=audit.list&from=2031-05-02&to=2031-05-02", `"page":1,"pages":1,"count":1,"results":[{"day":"2031-05-02","requests":3,`)
	told("?operation=audit.list&filters[day]=2031-05-01", `"requests":8,`)
	told("?per_page=1", `"page":1,"pages":2,"count":2,"results":[{"day":"2031-05-02",`)
	later.Store(92)
	told("", `"count":0`) // though nobody has asked since, and they are there
	later.Store(91)
	ask(1)
	g.App.FlushUsage(t.Context())
	ask(1)
	g.App.FlushUsage(t.Context())
	told("?sort=day", `"count":2,"results":[{"day":"2031-05-02",`)

	team := fixture.As(acme, gatewaytest.WithKey(acme.Key(t, tenants.ManageUsers))).Create(t, "/api/teams", `{"name":"Red"}`)
	limited := acme.KeyWith(t, func(k *control.NewKey) { k.Permissions, k.Teams = []string{"view_audit"}, []string{team} }).Token
	for _, c := range []struct {
		key, query, says string
		code             int
	}{
		{writer, "", "Lacking necessary permission view_audit", 403},
		{limited, "", "Only callers who are not limited to teams", 403},
		{reader, "?from=may&to=2031-02-30", "from must be a day like 2026-11-22; to must be", 422},
		{reader, "?filters[operations]=x", "operations", 422},
	} {
		if a := acme.Do(t, http.MethodGet, "/api/usage"+c.query, gatewaytest.WithKey(c.key)); a.Code != c.code || !strings.Contains(a.Text(), c.says) {
			t.Errorf("%s: %d %s, want %d %s", c.query, a.Code, a.Body, c.code, c.says)
		}
	}
}

// TestUsage_OfTheLastHour checks that usage is shown for each five minutes of the last hour, and that calls around
// midnight are in the records of two days.
func TestUsage_OfTheLastHour(t *testing.T) {
	t.Parallel()
	began := time.Date(2031, 5, 1, 22, 0, 0, 0, time.UTC)
	var later atomic.Int64 // minutes
	g := gatewaytest.Start(t, func(_ *config.Config, o *gateway.Options) {
		o.Now = func() time.Time { return began.Add(time.Duration(later.Load()) * time.Minute) }
	})
	acme := g.Org(t, "acme")
	reader := acme.Key(t, tenants.ViewAudit)
	told := func() (days []string) {
		for _, day := range acme.Get(t, reader, "/api/usage?sort=day").Field("results").([]any) {
			var minutes []string
			for _, one := range day.(map[string]any)["minutes"].([]any) {
				minutes = append(minutes, fmt.Sprint(one.(map[string]any)["minute"]))
			}
			days = append(days, strings.Join(minutes, " "))
		}
		return days
	}
	for _, c := range []struct {
		at   int64
		want string
	}{
		{0, "22:00"}, {4, "22:00"}, {9, "22:00 22:05"}, {59, "22:00 22:05 22:55"}, {61, "22:05 22:55 23:00"}, {119, "23:00 23:55"},
		{121, "23:00 23:55|00:00"}, {190, "23:00 23:55|01:10"},
	} {
		for range 2 { // what told asked, and nothing, so that no time of before is known
			g.App.FlushUsage(t.Context())
		}
		later.Store(c.at)
		acme.Get(t, reader, "/api/usage")
		g.App.FlushUsage(t.Context())
		if got := strings.Join(told(), "|"); got != c.want {
			t.Errorf("after %d minutes: %s, want %s", c.at, got, c.want)
		}
	}
}

// TestUsage_OfAnonymousCallers checks that anonymous callers alone cause no write, that they are counted with known
// callers, and that the gateway's own notes are not counted as documents.
func TestUsage_OfAnonymousCallers(t *testing.T) {
	t.Parallel()
	var writes atomic.Int32
	g := gatewaytest.Start(t, func(_ *config.Config, o *gateway.Options) {
		now := time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)
		o.Now = func() time.Time { return now }
		o.Observe = func(c store.Call) {
			if c.Operation == "write" && c.Collection == "usage" {
				writes.Add(1)
			}
		}
	})
	acme := g.Org(t, "acme")
	reader := acme.Key(t, tenants.ViewAudit)
	for i := range 3 { // of an organization that is another each time
		change := control.OrganizationChange{Slug: "acme", OrganizationFields: control.OrganizationFields{Limits: map[string]int64{"folder_children": int64(10 + i)}}}
		if _, err := control.Call[control.Organization](t.Context(), g.Commands, "org.update", change); err != nil {
			t.Fatal(err)
		}
		acme.Get(t, "", "/api/contacts")
		acme.Page(t, "/sign-in")
		g.App.FlushUsage(t.Context())
	}
	if n := writes.Load(); n != 0 {
		t.Errorf("strangers made it write %d times, want 0", n)
	}
	acme.Get(t, reader, "/api/contacts") // refused, and yet known
	g.App.FlushUsage(t.Context())
	if n := writes.Load(); n == 0 {
		t.Error("got no write for known callers, want one")
	}
	if a := acme.Get(t, reader, "/api/usage"); !strings.Contains(a.Text(), `"documents":0,`) || !strings.Contains(a.Text(), `{"operation":"contacts.list","requests":4,"refused":4,`) {
		t.Errorf(`got %s, want containing "\"documents\":0," and containing "{\"operation\":\"contacts.list\",\"requests\":4,\"refused\":4,"`,
			a.Body)
	}
}

// TestContract_Explain checks that a reading call is carried out with the caller's rights and that its queries are
// returned instead of its answer; on SQLite with the index used.
func TestContract_Explain(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme", tenants.FeatureTeams)
	acme.Import(t, append(fixture.ContactsBundle(3), `{"kind":"team","id":"`+fixture.DocID(77)+`","name":"Red"}`, `{"kind":"contact_field","key":"plan","title":"Plan","type":"Text"}`)...)
	key := acme.Key(t, tenants.ViewAudit, tenants.Contacts, tenants.ManageCampaigns)
	told := g.Config.Backends[g.Config.Store].Engine == config.EngineSQLite
	for _, c := range []struct{ call, operation, want string }{
		{"/api/contacts?filters[plan]=gold", "contacts.list", `"reads_everything":true,"fields":[{"field":"plan","state":"none"}]`},
		{"/api/contacts?filters[country]=DE", "contacts.list", `"asked":"find","took_us":0,"index":"country_status_deleted_teams","reads_everything":false,"fields":[]`},
		{"/api/contacts/" + strings.Repeat("0", 15) + "abc000000", "contacts.get", `{"collection":"contacts","asked":"find","took_us":0,"index":"id","reads_everything":false,"fields":[]}`},
		{"/api/campaigns/count?filters[first_name]=N1&filters[country]=FR", "campaigns.count", `"reads_everything":false`},
		{"/api/campaigns", "campaigns.list", `"collection":"campaigns","asked":"find"`},
	} {
		a := acme.Get(t, key, "/api/store/explain?call="+url.QueryEscape(c.call))
		text := regexp.MustCompile(`"took_us":\d+`).ReplaceAllString(a.Text(), `"took_us":0`)
		if a.Code != http.StatusOK || a.Message != "Explanation found" || !strings.Contains(text, `"operation":"`+c.operation+`"`) || told && !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %s\nwant %s", c.call, a.Code, text, c.want)
		}
		if strings.Contains(text, "example.com") {
			t.Errorf("%s: the answer is told too: got %s, want it without example.com", c.call, text)
		}
	}
	birch := g.Org(t, "birch")
	birch.Import(t, `{"kind":"folder","id":"`+fixture.DocID(88)+`","name":"Theirs"}`)
	limited := acme.KeyWith(t, func(k *control.NewKey) {
		k.Permissions, k.Teams = []string{string(tenants.ViewAudit), string(tenants.Contacts)}, []string{fixture.DocID(77)}
	}).Token
	for _, c := range []struct {
		key, call string
		code      int
		message   string
	}{
		{key, "", http.StatusUnprocessableEntity, "Validation failed: call must not be empty"},
		{key, "/api/nothing", http.StatusUnprocessableEntity, `Validation failed: call must be the path of an operation that only reads, which "/api/nothing" is not`},
		{key, "/api/contacts/bulk", http.StatusNotFound, "Contact not found"}, // the name of no contact
		{key, "/api/contacts/" + strings.Repeat("0", 15) + "abc000000/reveal-secret?field=x", http.StatusUnprocessableEntity, ""},
		{key, "/api/store/explain?call=/api/contacts", http.StatusUnprocessableEntity, ""},
		{key, "/api/contacts/export", http.StatusUnprocessableEntity, ""},
		{key, "/api/files/folders/" + fixture.DocID(88), http.StatusNotFound, "Folder not found"}, // another organization's
		{key, "/api/files/folders/" + fixture.DocID(89), http.StatusNotFound, "Folder not found"},
		{key, "/api/contacts?filters[nothing]=x", http.StatusUnprocessableEntity, ""},
		{key, "/api/files?folder_id=x", http.StatusForbidden, ""},
		{acme.Key(t, tenants.Contacts), "/api/contacts", http.StatusForbidden, ""},
		{limited, "/api/contacts", http.StatusForbidden, ""},
	} {
		if a := acme.Get(t, c.key, "/api/store/explain?call="+url.QueryEscape(c.call)); a.Code != c.code || c.message != "" && a.Message != c.message {
			t.Errorf("%s: %d %s, want %d %s", c.call, a.Code, a.Body, c.code, c.message)
		}
	}
}

// TestExplain_FindsTheCalledOperation checks paths that match several operations, such as those of lists and
// records.
func TestExplain_FindsTheCalledOperation(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, fixture.ShortLeases)
	acme := g.Org(t, "acme")
	_, admin := acme.Person(t, "root@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
	for _, op := range g.App.Operations() {
		if op.Method != http.MethodGet || strings.Contains(op.Path, "{") || op.Credentials == operation.Key {
			continue // the latter is not for a person
		}
		a := acme.Do(t, http.MethodGet, "/api/store/explain?call="+url.QueryEscape(op.Path), gatewaytest.Cookie(admin))
		want := a.Code == http.StatusOK && a.Field("operation") == op.Name
		if op.Audit != operation.NoAudit || op.Streams != nil || op.Name == "store.explain" {
			want = a.Code == http.StatusUnprocessableEntity && strings.Contains(a.Message, "call must be the path of an operation that only reads")
		}
		if !want && op.Name != "compliance.check" && op.Name != "authz.explain" { // which want more than a path
			t.Errorf("%s is the path of %s: got %d %s, want no operation", op.Path, op.Name, a.Code, a.Body)
		}
	}
}

// TestOverviewShowsUsage checks that the overview shows requests and refusals by hour and day, including its own.
func TestOverviewShowsUsage(t *testing.T) {
	t.Parallel()
	began := time.Date(2031, 5, 1, 12, 30, 0, 0, time.UTC)
	g := gatewaytest.Start(t, func(_ *config.Config, o *gateway.Options) { o.Now = func() time.Time { return began } })
	acme := g.Org(t, "acme")
	acme.Person(t, "root@example.com", func(n *control.NewUser) { n.Roles = []string{"admin"} })
	key := acme.KeyWith(t, func(k *control.NewKey) { k.Name, k.Permissions = "the shop", []string{"contacts", "manage_files"} }).Token
	overview := func() string {
		page := acme.Page(t, "/", gatewaytest.Cookie(acme.SignIn(t, "root@example.com")))
		if page.Code != http.StatusOK {
			t.Fatalf("got %d %s, want %v", page.Code, page.Text(), http.StatusOK)
		}
		return regexp.MustCompile(`\s+`).ReplaceAllString(page.Text(), " ")
	}
	if page := overview(); strings.Contains(page, "Requests of the last day") {
		t.Errorf("of an organization that nobody has asked yet: got %s, want it without %q",
			page, "Requests of the last day")
	}
	acme.Get(t, key, "/api/contacts")
	for range 2 {
		acme.Get(t, key, "/api/audit") // refused
	}
	g.App.FlushUsage(t.Context())
	page := overview()
	for _, want := range []string{
		"2 of them refused", `<td><span dir="auto">12:00</span></td><td class="number"><span class="number" dir="auto">\d\d+</span></td><td class="number"><span class="number" dir="auto">2</span></td>`, `<td><span dir="auto">11:00</span></td><td class="number"><span class="number" dir="auto">0</span></td><td class="number"><span class="number" dir="auto">0</span></td>`,
		`<td><span dir="auto">2031-05-01</span></td><td class="number"><span class="number" dir="auto">\d\d+</span></td><td class="number"><span class="number" dir="auto">2</span></td>`, "100000000 a second, no quota",
	} {
		if !regexp.MustCompile(want).MatchString(page) {
			t.Errorf("without %s: %s", want, page)
		}
	}
	if strings.Contains(page, "\u2068refused\u2069: 0<") {
		t.Errorf("a bar where nothing was refused: got %s, want it without %q", page, "\u2068refused\u2069: 0<")
	}
}

// TestUnusedPermissionsOfKeys checks that a key lists its unused permissions, that refused calls do not count as
// use, and that the overview names those unused for a month.
func TestUnusedPermissionsOfKeys(t *testing.T) {
	t.Parallel()
	c := &fixture.Clock{}
	g := gatewaytest.Start(t, c.Option)
	acme := g.Org(t, "acme")
	acme.Person(t, "root@example.com", func(n *control.NewUser) { n.Roles = []string{"admin"} })
	key := acme.KeyWith(t, func(k *control.NewKey) {
		k.Name, k.Permissions = "the shop", []string{"contacts", "manage_files", "view_users", "manage_users"}
	})
	told := func(permissions, since string) {
		t.Helper()
		if _, err := control.Call[[]control.Key](t.Context(), acme.Commands, "key.list", control.Page{Org: acme.Slug}); err != nil { // stores what was noted
			t.Fatal(err)
		}
		a := acme.Page(t, "/api/keys/"+key.ID, gatewaytest.Cookie(acme.SignIn(t, "root@example.com")))
		if want := regexp.MustCompile(`"unused_permissions":\[` + permissions + `\],"unused_since":` + since); !want.MatchString(a.Text()) {
			t.Errorf("without %s: %s", want, a.Text())
		}
	}
	told(`"contacts","manage_files","view_users","manage_users"`, "null")
	acme.Get(t, key.Token, "/api/contacts")
	acme.Get(t, key.Token, "/api/audit")                     // refused
	acme.Get(t, key.Token, "/api/contacts/000000000000/sav") // nothing
	told(`"manage_files","view_users","manage_users"`, `"2`)
	c.Advance(32 * 24 * time.Hour)
	acme.Get(t, key.Token, "/api/users") // for which either right will do
	told(`"manage_files","manage_users"`, `"2`)
	page := acme.Page(t, "/", gatewaytest.Cookie(acme.SignIn(t, "root@example.com"))).Text()
	if !strings.Contains(page, "The key \u2068the shop\u2069 never needed Manage files, Manage users") {
		t.Errorf("the overview: got %s, want it with %q",
			page, "The key \u2068the shop\u2069 never needed Manage files, Manage users")
	}
	acme.Get(t, key.Token, "/api/files/folders")
	acme.Do(t, http.MethodPost, "/api/teams", gatewaytest.WithKey(key.Token), gatewaytest.JSON(map[string]string{"name": "red"}))
	c.Advance(time.Minute)
	acme.Get(t, key.Token, "/api/contacts")
	told("", `"2`)
	if page := acme.Page(t, "/", gatewaytest.Cookie(acme.SignIn(t, "root@example.com"))).Text(); strings.Contains(page, "never needed") {
		t.Errorf("the overview: got %s, want it without %q", page, "never needed")
	}
}

// TestUnusedPermissionsOfPeople checks the same for people. Calls for the frame of a page do not count, and
// administrators are left out.
func TestUnusedPermissionsOfPeople(t *testing.T) {
	t.Parallel()
	c := &fixture.Clock{}
	g := gatewaytest.Start(t, c.Option)
	acme := g.Org(t, "acme")
	acme.Person(t, "root@example.com", func(n *control.NewUser) { n.Roles = []string{"admin"} })
	person, _ := acme.Person(t, "grace@example.com", func(n *control.NewUser) {
		n.Name, n.Permissions = "Grace", []string{"contacts", "manage_files", "view_users", "manage_users", "manage_reports"}
	})
	id := strconv.FormatInt(person.ID, 10)
	in := func(email string) gatewaytest.Request { return gatewaytest.Cookie(acme.SignIn(t, email)) }
	told := func(permissions, since string) {
		t.Helper()
		if _, err := control.Call[[]control.Key](t.Context(), acme.Commands, "key.list", control.Page{Org: acme.Slug}); err != nil { // stores what was noted
			t.Fatal(err)
		}
		a := acme.Do(t, http.MethodGet, "/api/users?sort=id", in("root@example.com"))
		want := regexp.MustCompile(`"unused_permissions":\[\],"unused_since":"2[^"]*"},{"id":\d+,"name":"Grace".*"unused_permissions":\[` + permissions + `\],"unused_since":` + since)
		if !want.MatchString(a.Text()) {
			t.Errorf("without %s: %s", want, a.Text())
		}
	}
	before := acme.Do(t, http.MethodGet, "/api/users/"+id, in("root@example.com"))
	told(`"contacts","manage_files","manage_reports","view_users","manage_users"`, "null")
	grace := in("grace@example.com")
	acme.Page(t, "/", grace)
	acme.Page(t, "/find?q=ada", grace)
	acme.Do(t, http.MethodGet, "/api/audit", grace) // refused
	acme.Do(t, http.MethodGet, "/api/me", grace)
	told(`"contacts","manage_files","manage_reports","view_users","manage_users"`, `"2`)
	acme.Page(t, "/contacts", grace)
	told(`"manage_files","manage_reports","view_users","manage_users"`, `"2`)
	c.Advance(32 * 24 * time.Hour)
	acme.Do(t, http.MethodPost, "/api/teams", in("grace@example.com"), gatewaytest.JSON(map[string]string{"name": "red"}))
	told(`"manage_files","manage_reports","view_users"`, `"2`)
	if page := acme.Page(t, "/", in("root@example.com")).Text(); !strings.Contains(page, "\u2068Grace\u2069 never needed Manage files, Manage reports, View users") {
		t.Errorf("the overview: got %s, want it with %q",
			page, "\u2068Grace\u2069 never needed Manage files, Manage reports, View users")
	}
	if page := acme.Page(t, "/users/"+id, in("root@example.com")).Text(); !strings.Contains(page, "Unused permissions") {
		t.Errorf("the page of the person: got %s, want it with %q", page, "Unused permissions")
	}
	if after := acme.Do(t, http.MethodGet, "/api/users/"+id, in("root@example.com")); after.Text() != before.Text() || after.Header.Get("ETag") != before.Header.Get("ETag") {
		t.Errorf("after recording unused permissions: got %s, want the person unchanged", after.Text())
	}
}
