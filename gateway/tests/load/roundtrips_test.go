package load

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/mongo/mongotest"
	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
)

// maxRounds is how often a read with warm caches may wait for the store.
const maxRounds = 2

// missing is the name of a read of a missing record.
const missing = "none such"

// read is one call of a reading operation with its calls of a remote store: consecutive rounds of concurrent calls. In
// an embedded store the calls are sequential, and the first failure ends them.
type read struct {
	operation string
	name      string
	target    string
	fixture.Credential
	rounds [][]string
}

// readsOf returns at least one read for every reading operation.
func readsOf(t testing.TB, p *fixture.Party) []read {
	t.Helper()
	const long, custom = "00000000000000000000c001", "00000000000000000000c002"
	p.Import(t,
		`{"kind":"custom_report","id":"`+long+`","pid":"`+p.Mark+`longreport","title":"Long","secure":false,"class":"Contacts","query":{"fields":["id","plan"],"limit":2}}`,
		`{"kind":"custom_report","id":"00000000000000000000c003","pid":"`+p.Mark+`groupsreport","title":"Groups","secure":false,"class":"Contacts","query":{"group_by":[{"field":"country"}],"measures":[{"op":"count"}]}}`,
		fixture.LessonObject,
		`{"kind":"campaign","id":"`+custom+`","name":"Custom","filter":{"plan":{"exists":true}}}`)
	key := fixture.Credential{Name: "key", Shown: []gatewaytest.Request{gatewaytest.WithKey(p.FullKey)}}
	admin := fixture.Credential{Name: "session of an administrator", Shown: []gatewaytest.Request{gatewaytest.Cookie(p.AdminCookie)}}
	nobody := fixture.Credential{Name: "nobody"}
	id := func(r fixture.Ref) string { return p.IDs[r] }
	folder, shared := "/api/files/folders/"+id(fixture.RefFolder), "/api/reports/shared/"
	token := "?data=1&token=" + id(fixture.RefShare)
	family := []string{"find contact_fields", "find custom_reports", "find custom_reports", "find share_revocations"}
	return []read{
		{"folders.get", "whole", folder, key, [][]string{
			{"find files", "find folders", "find folders"}, {"find contacts", "find users"},
		}},
		{"folders.get", "full page", folder + "?page=1&per_page=1", key, [][]string{
			{"find files", "find folders", "find folders"}, {"count files", "count folders", "find contacts", "find users"},
		}},
		{"folders.get", "basic", folder + "?schema=basic", key, [][]string{{"count files", "count folders", "find folders"}}},
		{"folders.get", missing, "/api/files/folders/" + strings.Repeat("0", fixture.IDLength), key, [][]string{{"find files", "find folders", "find folders"}}},
		{"objects.schema", "common", "/api/custom/objects/schema", key, nil},
		{"objects.schema", "one", "/api/custom/objects/schema?id=" + id(fixture.RefObject) + "&name=" + id(fixture.RefObjectName), key, [][]string{{"find custom_objects"}}},
		{"forms.schema", "common", "/api/form/collections/schema", key, nil},
		{"forms.schema", "one", "/api/form/collections/schema?id=" + id(fixture.RefForm), key, [][]string{{"find form_collections"}}},
		{"forms.challenge", "one", "/api/form/collections/" + id(fixture.RefForm) + "/challenge", key, [][]string{{"find form_collections"}}},
		{"forms.show", "one", "/f/" + id(fixture.RefPublicForm), nobody, [][]string{{"find form_collections"}}},
		{"forms.public_challenge", "one", "/f/" + id(fixture.RefPublicForm) + "/challenge", nobody, [][]string{{"find form_collections"}}},
		{"reports.get", "one", "/api/custom-reports/" + id(fixture.RefReport), key, [][]string{{"find custom_reports"}}},
		{"reports.shared", "without rows", shared + p.Mark + "groupsreport", nobody, [][]string{{"find contact_fields", "find custom_reports"}}},
		{"reports.shared", "groups", shared + p.Mark + "groupsreport?data=1", nobody, [][]string{{"find contact_fields", "find custom_reports"}, {"aggregate contacts"}}},
		{"reports.shared", "bundle by token", shared + id(fixture.RefPID) + token, nobody, [][]string{family, {"find contacts"}}},
		{"reports.shared", "contacts of a country", shared + id(fixture.RefPID) + token + "&params[country]=FR", nobody, [][]string{family, {"find contacts"}}},
		{"reports.shared", "child on a custom object", shared + id(fixture.RefPID) + "/" + id(fixture.RefChild) + token, nobody, [][]string{
			{"find custom_objects", "find custom_reports", "find custom_reports", "find share_revocations"}, {"find records"},
		}},
		{"reports.shared", "child on a form", shared + id(fixture.RefPID) + "/" + p.ID(82) + token, nobody, [][]string{
			{"find custom_reports", "find custom_reports", "find form_collections", "find share_revocations"}, {"find form_submissions"},
		}},
		{"reports.shared", "child on files", shared + id(fixture.RefPID) + "/" + p.ID(83) + token, nobody, [][]string{
			{"find custom_reports", "find custom_reports", "find share_revocations"}, {"find files"},
		}},
		{"reports.shared", "secure", shared + id(fixture.RefSecurePID) + "?data=1&token=" + id(fixture.RefSecureShare), nobody, [][]string{
			{"find contact_fields", "find custom_reports", "find share_revocations"}, {"find contacts"},
		}},
		{"reports.shared", "more rows than shown", shared + p.Mark + "longreport?data=1", nobody, [][]string{
			{"find contact_fields", "find custom_reports"}, {"count contacts", "find contacts"},
		}},
		{"reports.fields", "of contacts", "/api/custom-reports/fields?class=Contacts", key, [][]string{{"find contact_fields"}}},
		{"reports.fields", "of a custom object", "/api/custom-reports/fields?class=Records&source=" + id(fixture.RefObjectName), key, [][]string{{"find custom_objects"}}},
		{"reports.run", "one", "/api/custom-reports/" + id(fixture.RefReport) + "/run", key, [][]string{
			{"find custom_reports"}, {"find contact_fields"}, {"count contacts", "find contacts"},
		}},
		{"events.list", "at the end", "/api/events?after=" + cursorOf(t, p), key, [][]string{{"find events"}, {"find events"}}},
		{"report_schedules.runs", "of one", "/api/report-schedules/" + id("report_schedule") + "/runs", key, [][]string{{"find report_schedules"}, {"find accounts"}, {"count report_runs", "find report_runs"}}},
		{"webhooks.deliveries", "of one", "/api/webhooks/" + id("webhook") + "/deliveries", key, [][]string{{"find webhooks"}, {"find accounts"}, {"count webhook_deliveries", "find webhook_deliveries"}}},
		{"reports.list_shares", "of one", "/api/custom-reports/" + id(fixture.RefScratch) + "/shares", key, [][]string{
			{"find custom_reports"}, {"find share_revocations"}, {"count shares", "find shares"},
		}},
		{"compliance.schema", "all", "/api/compliance/schema", admin, nil},
		{"compliance.check", "all", "/api/compliance/contacts", admin, [][]string{
			{"count contacts", "find compliance_settings", "find contacts"}, {"find custom_objects"}, {"aggregate records", "aggregate records", "aggregate records"},
		}},
		{"compliance.check_one", "one", "/api/compliance/contacts/" + id(fixture.RefContact), admin, [][]string{
			{"count contacts", "find compliance_settings", "find contacts"}, {"find custom_objects"}, {"aggregate records", "aggregate records", "aggregate records"},
		}},
		{"users.get", "one with a role", "/api/users/" + id(fixture.RefUser), key, [][]string{{"find users"}, {"find roles"}}},
		{"organization.get", "as it is", "/api/organization", admin, [][]string{{"find storage", "used "}}},
		{"me.get", "an administrator", "/api/me", admin, [][]string{{"find users"}, {"find noted_rights"}}},
		{"sessions.list", "one's own", "/api/me/sessions", admin, [][]string{{"find users"}}},
		{"sessions.get", "one", "/api/me/sessions/" + id(fixture.RefSession), admin, [][]string{{"find users"}}},
		{"store.explain", "a count", "/api/store/explain?call=/api/campaigns/count", admin, [][]string{{"count contacts"}}},
		{"audit.head", "one", "/api/audit/head", key, [][]string{{"find audit_heads"}}},
		{"audit.proof", "one", "/api/audit/" + id(fixture.RefProven) + "/proof", key, [][]string{
			{"find audit_heads", "find audit_log"}, {"find audit_leaves"},
		}},
		{"audit.extension", "of the same head", "/api/audit/extension?head=" + url.QueryEscape(id(fixture.RefHead)), key, [][]string{
			{"find audit_heads"}, {"find audit_leaves"},
		}},
		{"audit.verify", "nothing is sealed", "/api/audit/verification", admin, [][]string{{"find audit_seals"}, {"count audit_log"}}},
		{"files.versions", "none", "/api/files/" + id(fixture.RefFile) + "/versions", key, [][]string{{"find files"}, {"find file_versions"}}},
		{"files.fetch", "signed", p.FileAddress(), nobody, [][]string{{"find files"}, {"find blobs"}}},
		{"uploads.get", "begun", "/api/files/tus/" + id(fixture.RefTransfer), key, [][]string{{"find transfers"}}},
		{"authz.explain", "a person", "/api/authz/explain?operation=folders.get&subject=user:" + id(fixture.RefUser), admin, [][]string{{"find users"}, {"find roles"}}},
		{"contacts.reveal", "one", "/api/contacts/" + id(fixture.RefContact) + "/reveal-secret?field=" + fixture.SecretField, key, [][]string{
			{"find contact_fields", "find contacts"}, {"write audit_log"},
		}},
		{"campaigns.count", "all", "/api/campaigns/count", key, [][]string{{"count contacts"}}},
		{"campaigns.count", "by standard fields", "/api/campaigns/count?filters[country]=DE&filters[email][exists]=true", key, [][]string{{"count contacts"}}},
		{"campaigns.count", "by a field of its own", "/api/campaigns/count?filters[plan][exists]=true", key, [][]string{{"find contact_fields"}, {"count contacts"}}},
		{"campaigns.count", "campaign", "/api/campaigns/count/" + id(fixture.RefCampaign), key, [][]string{{"find campaigns"}, {"count contacts"}}},
		{"campaigns.count", "campaign by a field of its own", "/api/campaigns/count/" + custom, key, [][]string{
			{"find campaigns", "find contact_fields"}, {"count contacts"},
		}},
		{"campaigns.count", "campaign with another filter", "/api/campaigns/count/" + id(fixture.RefCampaign) + "?filters[plan][exists]=true", key, [][]string{
			{"find campaigns", "find contact_fields"}, {"count contacts"},
		}},
	}
}

// embedded returns the calls of an embedded store, sorted.
func (r *read) embedded() []string {
	if r.name == missing {
		return []string{"find folders"}
	}
	calls := slices.Concat(r.rounds...)
	// All are on the first page, so nothing is counted: see store.Collection.Page.
	for of, counted := range map[string]string{
		"reports.list_shares": "count shares", "webhooks.deliveries": "count webhook_deliveries", "report_schedules.runs": "count report_runs",
	} {
		if r.operation == of {
			calls = slices.DeleteFunc(calls, func(call string) bool { return call == counted })
		}
	}
	slices.Sort(calls)
	return calls
}

func (r *read) String() string { return r.operation + ", " + r.name }

// code returns the code of the answer.
func (r *read) code() int {
	if r.name == missing {
		return http.StatusNotFound
	}
	return http.StatusOK
}

// gate holds calls of the store back after they have ended, before their caller continues.
type gate struct {
	armed atomic.Bool // calls are held
	calls chan heldCall
	open  chan struct{} // closed when nothing is held any more
}

type heldCall struct {
	name    string
	release chan struct{}
}

func newGate() *gate {
	return &gate{calls: make(chan heldCall), open: make(chan struct{})}
}

// option makes the gateway pass the gate, and sign no heads meanwhile.
func (g *gate) option(_ *config.Config, o *gateway.Options) {
	o.Observe, o.HeadInterval = g.observe, -1
}

// observe holds every call except those for organizations, which any request may read again twice a second, and for
// keys and usage, which are stored in the background.
func (g *gate) observe(c store.Call) {
	if !g.armed.Load() || c.Collection == "organizations" || c.Collection == "keys" || c.Collection == "usage" {
		return
	}
	h := heldCall{c.Operation + " " + c.Collection, make(chan struct{})}
	select {
	case g.calls <- h:
	case <-g.open:
		return
	}
	select {
	case <-h.release:
	case <-g.open:
	}
}

// await returns n calls that are held at the same time, sorted by name. There are fewer if the request is answered
// before, or if no more come.
func (g *gate) await(n int, answered <-chan struct{}) (held []heldCall) {
	late := time.NewTimer(5 * time.Second)
	defer late.Stop()
	for len(held) < n {
		select {
		case h := <-g.calls:
			held = append(held, h)
			continue
		case <-answered:
		case <-late.C:
		}
		break
	}
	slices.SortFunc(held, func(a, b heldCall) int { return strings.Compare(a.name, b.name) })
	return held
}

// TestRoundTrips proves for every read which calls of the store it makes and how often it waits: all calls of a round
// are held together, so none of them needs another's answer.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	g := newGate()
	w := fixture.NewWorld(t, g.option, fixture.ReadAnew)
	defer g.armed.Store(false) // when the gateway ends it stores what was counted
	reads := readsOf(t, w.A)
	for _, r := range reads {
		g.armed.Store(false)
		for range 2 { // warm the caches
			if a := w.A.Do(t, http.MethodGet, r.target, r.Shown...); a.Code != r.code() {
				t.Fatalf("%s: got %d %s, want %d", &r, a.Code, a.Body, r.code())
			}
		}
		g.armed.Store(true)
		if len(r.rounds) > maxRounds && !slices.Contains([]string{"webhooks.deliveries", "report_schedules.runs", "reports.list_shares", "reports.run", "compliance.check", "compliance.check_one"}, r.operation) { // beyond the contract, and seldom read
			t.Errorf("%[1]s waits %[2]d times for the store, want at most %[3]d", &r, len(r.rounds), maxRounds)
		}
		if remote := w.A.Tenant(t).Workspace().Remote(); remote != (os.Getenv(mongotest.Variable) != "") {
			t.Fatalf("the store is remote: %t, want it with a server only", remote)
		} else if !remote {
			listCall(t, w, g, &r)
		} else if !follow(t, w, g, &r) {
			return
		}
	}
	for _, fault := range uncoveredReads(w.App.Operations(), reads) {
		t.Error(fault)
	}
}

// askRead makes the call, whose store calls are held, and closes the returned channel when there is an answer.
func askRead(t *testing.T, w *fixture.World, r *read) <-chan struct{} {
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if a := w.A.Page(t, r.target, r.Shown...); a.Code != r.code() {
			t.Errorf("%s: got %d %s, want %d", r, a.Code, a.Body, r.code())
		}
	}()
	return answered
}

// mostSlow is how often a call is made again that took so long that its rights were asked again before it was answered.
const mostSlow = 20

// listCall makes the call and compares its calls of an embedded store, in any order.
func listCall(t *testing.T, w *fixture.World, g *gate, r *read) {
	for try := 1; ; try++ {
		began := time.Now()
		names := callsOf(t, w, g, r)
		if slices.Equal(names, r.embedded()) {
			t.Logf("%-18s %-30s %d calls", r.operation, r.name, len(names))
			return
		}
		if time.Since(began) < 500*time.Millisecond || try == mostSlow { // see operation.Access.Confirm
			t.Errorf("%s makes the calls %q, want %q", r, names, r.embedded())
			return
		}
	}
}

// callsOf makes the call and returns its calls of an embedded store, sorted.
func callsOf(t *testing.T, w *fixture.World, g *gate, r *read) (names []string) {
	answered := askRead(t, w, r)
	for held := g.await(1, answered); len(held) > 0; held = g.await(1, answered) {
		names = append(names, held[0].name)
		close(held[0].release)
	}
	<-answered
	slices.Sort(names)
	return names
}

// follow makes the call and releases its rounds one by one. It reports whether they were the expected ones; otherwise
// the gate stays open.
func follow(t *testing.T, w *fixture.World, g *gate, r *read) bool {
	answered := askRead(t, w, r)
	t.Logf("%-18s %-30s %d calls, %d rounds", r.operation, r.name, len(slices.Concat(r.rounds...)), len(r.rounds))
	fail := func(format string, args ...any) bool {
		t.Errorf("%s: %s", r, fmt.Sprintf(format, args...))
		close(g.open)
		<-answered
		return false
	}
	for i, round := range r.rounds {
		held := g.await(len(round), answered)
		names := make([]string, len(held))
		for j, h := range held {
			names[j] = h.name
		}
		if !slices.Equal(names, round) {
			return fail("round %d has %q at the same time, want %q", i+1, names, round)
		}
		for _, h := range held {
			close(h.release)
		}
	}
	if more := g.await(1, answered); len(more) > 0 {
		return fail("one more call than expected: %s", more[0].name)
	}
	select {
	case <-answered:
		return true
	default:
		return fail("no answer")
	}
}

// cursorOf returns the end of the party's event log.
func cursorOf(t testing.TB, p *fixture.Party) string {
	t.Helper()
	next, _ := p.Get(t, p.FullKey, "/api/events").Field("next").(string)
	for range 100 { // on a store that several processes use, what was written last may be told only now
		a := p.Get(t, p.FullKey, "/api/events?after="+next)
		if told, _ := a.Field("results").([]any); len(told) == 0 {
			break
		}
		next, _ = a.Field("next").(string)
	}
	return next
}

// uncoveredReads returns the reading operations without a read, and the reads without an operation.
func uncoveredReads(rows []operation.Row, reads []read) (faults []string) {
	known := map[string]bool{}
	for _, op := range rows {
		if known[op.Name] = op.Method == http.MethodGet; op.Resource != "" || op.Streams != nil || op.Feeds != "" {
			continue // all such rows ask the same way, or read all there is
		}
		if known[op.Name] && !slices.ContainsFunc(reads, func(r read) bool { return r.operation == op.Name }) {
			faults = append(faults, fmt.Sprintf(
				"operation %s reads, and nothing says how often it waits for the store; add it to readsOf", op.Name))
		}
	}
	for _, r := range reads {
		if !known[r.operation] {
			faults = append(faults, fmt.Sprintf("%s: there is no operation of that name that reads", &r))
		}
	}
	return faults
}

func TestRoundTripsCoverEveryRead(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t)
	rows, reads := slices.DeleteFunc(w.App.Operations(), func(o operation.Row) bool { return o.Resource != "" || o.Streams != nil || o.Feeds != "" }), readsOf(t, w.A)
	for _, op := range rows {
		others := slices.DeleteFunc(slices.Clone(reads), func(r read) bool { return r.operation == op.Name })
		if faults := uncoveredReads(rows, others); (len(faults) == 1) != (op.Method == http.MethodGet) {
			t.Errorf("without the reads of %s %s: got the faults %q, want one for a GET", op.Method, op.Name, faults)
		}
	}
}

// TestSpeculativeReadsAreNotAnswered changes a shared report and a campaign between reads. Data that are read
// speculatively, because the last read needed them, never get into an answer.
func TestSpeculativeReadsAreNotAnswered(t *testing.T) {
	t.Parallel()
	w := fixture.NewQuietWorld(t)
	p, team, other := w.A, w.A.IDs[fixture.RefTeam], w.A.IDs[fixture.RefOtherTeam]
	list := `"class":"Contacts","query":{"fields":["id","plan"],"limit":2}`
	for i, change := range []struct {
		is              string
		teams, children []string
	}{
		{is: list},
		{is: list, teams: []string{team}},
		{is: list, teams: []string{other}},
		{is: list, children: []string{p.ID(81), p.ID(82)}},
		{is: list, children: []string{p.ID(82), p.ID(83)}, teams: []string{team}},
		{is: `"class":"Contacts","query":{"fields":["id","plan"],"limit":50}`},
		{is: `"class":"Contacts","query":{"group_by":[{"field":"country"}],"measures":[{"op":"count"}]}`, children: []string{p.ID(83)}},
		{is: `"class":"Records","source":"` + p.IDs[fixture.RefObjectName] + `","query":{}`},
		{is: `"class":"Submissions","source":"` + p.IDs[fixture.RefForm] + `","query":{}`},
		{is: `"class":"Files","query":{"fields":["id"],"limit":1}`},
		{is: list},
	} {
		members, err := json.Marshal(map[string][]string{"teams": append([]string{}, change.teams...), "child_reports": append([]string{}, change.children...)})
		if err != nil {
			t.Fatal(err)
		}
		is := change.is + "," + strings.Trim(string(members), "{}")
		fresh := strconv.Itoa(i)
		p.Import(t,
			`{"kind":"custom_report","id":"00000000000000000000d001","pid":"`+p.Mark+`changing","title":"Changing","secure":false,`+is+`}`,
			`{"kind":"custom_report","id":"`+fmt.Sprintf("%024x", 0xe000+i)+`","pid":"`+p.Mark+`freshreport`+fresh+`","title":"Changing","secure":false,`+is+`}`)
		read := func(pid string) string {
			a := p.Get(t, "", "/api/reports/shared/"+p.Mark+pid+"?data=1")
			m, ok := a.Data.(map[string]any)
			if !ok {
				t.Fatalf("%s: got %d %s, want ok", is, a.Code, a.Body)
			}
			delete(m, "id")
			delete(m, "retrieved_at")
			return fmt.Sprint(m)
		}
		want := read("freshreport" + fresh)
		for range 2 {
			if got := read("changing"); got != want {
				t.Errorf("%s\nis read as %s\nwant       %s", is, got, want)
			}
		}
	}
	for _, c := range []struct{ filter, want string }{
		{`{"plan":{"exists":true}}`, "12"}, {`{"country":"DE"}`, "6"}, {`{"plan":{"exists":false}}`, "0"}, {`{}`, "12"},
	} {
		p.Import(t, `{"kind":"campaign","id":"00000000000000000000d002","name":"Changing","filter":`+c.filter+`}`)
		for range 2 {
			if a := p.Get(t, p.FullKey, "/api/campaigns/count/00000000000000000000d002"); fmt.Sprint(a.Field("count")) != c.want {
				t.Errorf("%s counts %s, want %s", c.filter, a.Text(), c.want)
			}
		}
	}
}

// TestLogCountsStoreCalls checks that the log line of a request has its number of store calls.
func TestLogCountsStoreCalls(t *testing.T) {
	t.Parallel()
	w := fixture.NewQuietWorld(t)
	path := "/api/custom-reports/" + w.A.IDs[fixture.RefReport]
	if a := w.A.Get(t, w.A.FullKey, path, gatewaytest.Header("X-Request-Id", "the-one-to-look-at")); a.Code != http.StatusOK {
		t.Fatalf("got %v, want %v", a.Text(), http.StatusOK)
	}
	// The report, and at most the organization, the key and its account.
	if line := fixture.Logged(t, w.Gateway, "the-one-to-look-at"); line.StoreCalls < 1 || line.StoreCalls > 4 || line.StoreUS <= 0 {
		t.Errorf("got %+v, want line.StoreCalls >= 1 and line.StoreCalls <= 4 and line.StoreUS > 0", line)
	}
}
