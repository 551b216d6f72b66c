package transfer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenantry/crypto/sealing"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/modules/imports/bundle"
	"tenantry/modules/imports/tabular"
	"tenantry/operation"
	"tenantry/tenants"
)

// Settings of TestRandom_ExportsImport.
const (
	sequencesVariable = "TENANTRY_TEST_SEQUENCES" // how many; otherwise a few seconds' worth
	seedVariable      = "TENANTRY_TEST_SEED"      // of the first; otherwise the clock's
)

// sequence is one organization under random operations. Each operation takes its random numbers from its own source, so
// omitting others does not change it.
type sequence struct {
	t        *testing.T
	org      *gatewaytest.Org
	key      string
	rng      *rand.Rand
	snapshot []byte // an earlier export
	keys     []string
	done     *performed
}

// performed is the names of the called operations.
type performed struct{ names sync.Map }

type step struct {
	do   int
	seed uint64
}

// steps returns the operations, repeated by their frequency.
func (s *sequence) steps() []func() {
	return []func(){
		s.bundle, s.bundle, s.bundle, s.bundle, s.bundle, s.bundle, s.rows, s.rows, s.rows, s.form, s.form, s.form, s.object, s.file,
		s.share, s.people, s.people, s.settings, s.keyOf, s.take, s.restore,
	}
}

func (s *sequence) pick(of ...string) string { return of[s.rng.IntN(len(of))] }
func (s *sequence) maybe() bool              { return s.rng.IntN(2) == 0 }
func (s *sequence) id(kind string) string {
	return fmt.Sprintf("%020x%s%d", 0, kind, 1+s.rng.IntN(3))
}
func (s *sequence) field() string { return s.pick("f1", "f2", "f3", "f4") }
func (s *sequence) some(of func() string) []string {
	list := []string{}
	for range s.rng.IntN(3) {
		if v := of(); !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}

func (s *sequence) value() any {
	switch s.rng.IntN(9) {
	case 0:
		return s.rng.IntN(5)
	case 1:
		return json.Number("12.50")
	case 2:
		return s.maybe()
	case 3:
		return []string{"x", "y"}
	case 4:
		return "2024-05-17T10:30:00+02:00"
	case 5:
		return "a@example.com"
	case 6:
		return map[string]any{"enc": "x"}
	case 7:
		return nil
	}
	return s.pick("", "text", "2024-05-17", "7")
}

func (s *sequence) values() map[string]any {
	out := map[string]any{}
	for range s.rng.IntN(4) {
		out[s.field()] = s.value()
	}
	return out
}

func (s *sequence) fields() map[string]any {
	out := map[string]any{}
	for range s.rng.IntN(4) {
		f := map[string]any{"title": s.pick("One", "Two"), "type": s.fieldType()}
		if s.rng.IntN(4) == 0 {
			f["required"] = true
		}
		out[s.field()] = f
	}
	return out
}

func (s *sequence) fieldType() string {
	return s.pick("Text", "LongText", "Number", "Boolean", "Date", "DateTime", "Email", "Select", "MultiSelect", "Encrypted", "Encrypted", "Colour")
}

func (s *sequence) filter() map[string]any {
	switch s.rng.IntN(4) {
	case 0:
		return map[string]any{}
	case 1:
		return map[string]any{s.field(): s.pick("text", "7")}
	case 2:
		return map[string]any{"or": []any{map[string]any{s.field(): map[string]any{"gt": s.rng.IntN(5)}}, map[string]any{"country": "DE"}}}
	}
	return map[string]any{"country": s.pick("DE", "FR")}
}

func (s *sequence) query() map[string]any {
	switch s.rng.IntN(4) {
	case 0:
		return map[string]any{}
	case 1:
		return map[string]any{"fields": []string{s.field(), "created_at"}}
	case 2:
		return map[string]any{"group_by": []any{map[string]any{"field": s.field()}}, "measures": []any{map[string]any{"op": "count"}}}
	}
	return map[string]any{"filter": s.filter(), "fields": []string{"id"}}
}

// line returns a line of a bundle. Many lines are invalid on purpose.
func (s *sequence) line() map[string]any {
	n := strconv.Itoa(1 + s.rng.IntN(2))
	team := func() string { return s.id("aaa") }
	l := map[string]any{}
	set := func(kind string, pairs ...any) {
		l["kind"] = kind
		for i := 0; i < len(pairs); i += 2 {
			if s.rng.IntN(5) > 0 || slices.Contains([]string{"id", "name", "label", "label_plural", "object", "form", "key", "title", "type", "email", "class", "filename", "mimetype"}, pairs[i].(string)) {
				l[pairs[i].(string)] = pairs[i+1]
			}
		}
	}
	switch s.rng.IntN(16) {
	case 0:
		set("organization", "name", "Name "+n, "features", map[string]any{"teams": s.maybe()}, "limits", map[string]any{"folder_children": 1 + s.rng.IntN(9)},
			"request_limits", map[string]any{"key": map[string]any{"rate": s.pick("off", "100000/s")}}, "providers", s.some(func() string { return s.pick("p1", "p2") }))
	case 1:
		set("team", "id", team(), "name", "Team "+n)
	case 2:
		set("role", "name", "role"+n, "permissions", s.some(func() string { return s.pick("contacts", "view_users") }))
	case 3:
		set("user", "id", 50+s.rng.IntN(3), "name", "Person", "email", "p"+n+"@example.com", "roles", s.some(func() string { return s.pick("role1", "role2", "admin") }), "teams", s.some(team), "active", s.maybe())
	case 4:
		set("service_account", "id", s.id("acc"), "name", "account "+n, "permissions", s.some(func() string { return "contacts" }), "teams", s.some(team), "active", s.maybe())
	case 5, 6:
		set("contact_field", "key", s.field(), "title", "Field", "type", s.fieldType())
	case 7:
		set("custom_object", "name", "object"+n, "label", "Object "+n, "label_plural", "Objects "+n, "schema", s.fields())
	case 8:
		set("record", "id", s.id("bbb"), "object", "object"+n, "values", s.values(), "external_id", s.pick("e1", "e2", ""))
	case 9:
		set("form_collection", "id", fmt.Sprintf("%021xfo%s", 0, n), "name", "form"+n, "label", "Form "+n, "label_plural", "Forms "+n, "schema", s.fields(), "external_id", "x"+n)
		l["id"] = strings.Replace(l["id"].(string), "fo", "f0", 1)
	case 10:
		v := s.values()
		v["form_name"] = "filled"
		set("submission", "id", s.id("ccc"), "form", fmt.Sprintf("%021xf0%s", 0, n), "values", v)
	case 11, 12:
		set("contact", "id", s.id("ddd"), "email", s.pick("a@example.com", "b@example.com"), "country", s.pick("DE", "FR", ""), "tags", s.some(func() string { return s.pick("t1", "t2") }),
			"fields", s.values(), "teams", s.some(team), "external_id", s.pick("e1", "e2", ""))
	case 13:
		if s.maybe() {
			set("folder", "id", s.id("fff"), "name", "Folder", "folder_id", s.id("fff"), "user_id", 50+s.rng.IntN(3), "teams", s.some(team), "deleted", s.maybe())
			if s.maybe() {
				delete(l, "folder_id")
			}
		} else {
			set("file", "id", s.id("eee"), "pid", "file-"+n, "filename", "f.pdf", "mimetype", "a/b", "folder_id", s.id("fff"), "contact_id", s.id("ddd"), "deleted", s.maybe())
		}
	case 14:
		set("campaign", "id", s.id("cab"), "name", "Campaign", "filter", s.filter(), "teams", s.some(team))
	case 15:
		class := s.pick("Contacts", "Records", "Submissions", "Files", "Campaigns")
		set("custom_report", "id", s.id("cce"), "pid", "report-number-0000"+n, "title", "Report", "class", class, "query", s.query(), "secure", s.maybe(), "child_reports", s.some(func() string { return s.id("cce") }),
			"input", map[string]any{"in": map[string]any{"rule": s.pick("locked", "editable"), "value": "x"}}, "shareable", s.maybe(), "visual_props", map[string]any{"b": 1, "a": s.value()}, "teams", s.some(team))
		if class == "Records" {
			l["source"] = "object" + n
		} else if class == "Submissions" {
			l["source"] = fmt.Sprintf("%021xf0%s", 0, n)
		}
		if s.rng.IntN(9) == 0 {
			return map[string]any{"kind": "compliance_settings", "enabled": s.maybe(), "lesson_tags_all": s.some(func() string { return "tag" })}
		}
	}
	return l
}

func (s *sequence) tenant() *tenants.Tenant { return s.org.Tenant(s.t) }

func (s *sequence) bundle() {
	var lines bytes.Buffer
	for range 1 + s.rng.IntN(8) {
		raw, err := json.Marshal(s.line())
		if err != nil {
			s.t.Error(err)
		}
		lines.Write(append(raw, '\n'))
	}
	s.load(lines.Bytes(), bundle.ImportOptions{Partial: s.rng.IntN(4) > 0, DryRun: s.rng.IntN(9) == 0})
}

// load imports lines that may be refused but must not fail.
func (s *sequence) load(lines []byte, o bundle.ImportOptions) {
	_, err := s.org.App.Transfer().Import(s.t.Context(), s.tenant(), gatewaytest.Source(lines), o)
	s.expected(err)
}

func (s *sequence) expected(err error) {
	if err == nil {
		return
	}
	text := err.Error()
	for _, known := range []string{"nothing was imported", "cannot import these rows", "could not be stored because the organization was changed"} {
		if strings.Contains(text, known) {
			return
		}
	}
	s.t.Errorf("an operation failed: got %v, want no error", err)
}

func (s *sequence) rows() {
	columns := []string{"email", "Country", "f1", "f2", "New"}
	file := strings.Join(columns, ",") + "\n"
	for range 1 + s.rng.IntN(4) {
		for i := range columns {
			if i > 0 {
				file += ","
			}
			file += s.pick("", "7", "text", "a@example.com", "true")
		}
		file += "\n"
	}
	o := tabular.Options{As: s.pick("contacts", "records:object1", "records:object3"), Format: tabular.CSV, Partial: s.rng.IntN(4) > 0, DryRun: s.rng.IntN(9) == 0}
	if s.maybe() {
		o.Key = s.pick("email", "f1", "country")
	}
	if s.maybe() {
		o.Map = map[string][]string{"email": {"email", "f4"}, "*": {"*"}}
	}
	_, err := tabular.Import(s.t.Context(), s.org.App.Transfer(), s.tenant(), gatewaytest.Source([]byte(file)), o)
	s.expected(err)
}

// call calls an operation of the API, which may refuse it.
func (s *sequence) call(name, method, path string, body any) *gatewaytest.Answer {
	changes := []gatewaytest.Request{gatewaytest.WithKey(s.key)}
	if body != nil {
		changes = append(changes, gatewaytest.JSON(body))
	}
	a := s.org.Do(s.t, method, path, changes...)
	if a.Code >= 500 {
		s.t.Errorf("%s %s: got %d %s, want a code below 500", method, path, a.Code, a.Text())
	}
	s.done.names.Store(name, true)
	return a
}

func (s *sequence) form() {
	n := strconv.Itoa(1 + s.rng.IntN(2))
	body := map[string]any{"schema": s.fields()}
	if s.maybe() {
		body["label"] = "Form " + s.pick("1", "2", "other")
	}
	if s.maybe() {
		body["email_alerts"] = map[string]any{"enabled": s.maybe(), "more": s.value()}
	}
	s.call("forms.update", http.MethodPut, fixture.FormsPath+fmt.Sprintf("%021xf0%s", 0, n), body)
}

func (s *sequence) object() {
	n := s.pick("1", "2", "3")
	s.call("objects.create", http.MethodPost, "/api/custom/objects", map[string]any{"name": "object" + n, "label": "Object " + n, "label_plural": "Objects " + n, "schema": s.fields()})
}

func (s *sequence) file() { s.call("files.delete", http.MethodDelete, "/api/files/"+s.id("eee"), nil) }

func (s *sequence) share() {
	path := "/api/custom-reports/" + s.id("cce")
	a := s.call("reports.share", http.MethodPost, path+"/share", map[string]any{"params": map[string]any{}})
	if s.maybe() {
		id, _ := a.Field("id").(string)
		s.call("reports.revoke_share", http.MethodDelete, path+"/shares/"+id, nil)
	}
	if s.maybe() {
		s.call("reports.revoke_shares", http.MethodDelete, path+"/shares", nil)
	}
}

func (s *sequence) people() {
	c, ctx, org := s.org.Commands, s.t.Context(), s.org.Slug
	name, active, teams := s.pick("Ada", "Grace"), s.maybe(), s.some(func() string { return s.id("aaa") })
	switch s.rng.IntN(5) { // what is refused is as it was
	case 3:
		kind := s.pick("account", "role", "team")
		ref := map[string]string{"account": s.pick("account 1", "account 2"), "role": s.pick("role1", "role2"), "team": s.id("aaa")}[kind]
		_, _ = control.Call[control.Deleted](ctx, c, kind+".delete", control.Ref{Org: org, ID: ref})
	case 4:
		permissions := []string{"contacts"}
		account := s.pick("account 1", "account 2")
		fields := control.AccountFields{Permissions: permissions, Teams: teams}
		_, _ = control.Call[control.Account](ctx, c, "account.create", control.NewAccount{New: control.New{Org: org, Name: account}, AccountFields: fields})
		fields.Active = &active
		_, _ = control.Call[control.Account](ctx, c, "account.update", control.AccountChange{TeamChange: control.TeamChange{Ref: control.Ref{Org: org, ID: account}}, AccountFields: fields})
	case 0:
		_, _ = control.Call[control.User](ctx, c, "user.create", control.NewUser{Org: org, UserFields: control.UserFields{Name: name, Email: "u" + s.pick("1", "2") + "@example.com", Teams: teams}})
	case 1:
		_, _ = control.Call[control.User](ctx, c, "user.update", control.UserChange{UserRef: control.UserRef{Org: org, User: s.pick("50", "51", "1", "2")}, Active: &active, UserFields: control.UserFields{Name: name, Teams: teams}})
	case 2:
		_, _ = control.Call[control.User](ctx, c, "user.deactivate", control.UserRef{Org: org, User: s.pick("50", "51", "1")})
	}
}

func (s *sequence) settings() {
	c, ctx, org := s.org.Commands, s.t.Context(), s.org.Slug
	name, rate, providers := s.pick("A", "B"), s.pick("100000/s", "off", "default"), s.some(func() string { return s.pick("p1", "p2") })
	_, _ = control.Call[control.Organization](ctx, c, "org.update", control.OrganizationChange{
		Slug: org, OrganizationFields: control.OrganizationFields{
			Name: name, Features: map[string]bool{"teams": s.maybe()}, Settings: map[string]bool{tenants.AllSettings()[0]: s.maybe()}, Providers: providers,
		},
	})
	_, _ = control.Call[control.RequestLimits](ctx, c, "org.limits", control.LimitsChange{Org: org, KeyRate: &rate})
}

func (s *sequence) keyOf() {
	c, ctx, org := s.org.Commands, s.t.Context(), s.org.Slug
	if issued, err := control.Call[control.IssuedKey](ctx, c, "key.create", control.NewKey{Org: org, Name: "k", Kind: string(tenants.ServerFull), Permissions: []string{"contacts"}}); err == nil {
		s.keys = append(s.keys, issued.ID)
	}
	if len(s.keys) > 1 {
		_, _ = control.Call[control.Key](ctx, c, "key.revoke", control.KeyRef{Org: org, ID: s.keys[0]})
	}
}

func (s *sequence) take() { s.snapshot, _ = s.export(s.org, bundle.ExportOptions{}) }

func (s *sequence) restore() {
	if s.snapshot != nil {
		s.load(s.snapshot, bundle.ImportOptions{Partial: s.maybe()})
	}
}

func (s *sequence) export(o *gatewaytest.Org, options bundle.ExportOptions) ([]byte, bundle.ExportReport) {
	var out bytes.Buffer
	r, err := o.App.Transfer().Export(s.t.Context(), o.Tenant(s.t), &out, options)
	if err != nil || len(r.Problems) > 0 {
		s.t.Errorf("export: got %v %v, want no error and no problems", err, r.Problems)
	}
	return out.Bytes(), r
}

// verify imports the result of the sequence elsewhere and returns the differences.
func (s *sequence) verify(target *gatewaytest.Org, key *sealing.PrivateKey) (fault string) {
	into := func(o *gatewaytest.Org, lines []byte, how string) bundle.Report {
		r, err := o.App.Transfer().Import(s.t.Context(), o.Tenant(s.t), gatewaytest.Source(lines), bundle.ImportOptions{OpenWith: key})
		if err != nil {
			fault += fmt.Sprintf("%s: %v %v\n", how, err, r.Problems)
		}
		return r
	}
	kept, _ := s.export(s.org, bundle.ExportOptions{})
	if r := into(s.org, kept, "into itself"); r.Unchanged != r.Lines {
		fault += fmt.Sprintf("into itself: %+v\n", r.Counts)
	}
	clear, _ := s.export(s.org, bundle.ExportOptions{RevealSecrets: true})
	sealed, _ := s.export(s.org, bundle.ExportOptions{SealTo: key.Public()})
	into(target, sealed, "into an empty organization")
	again, _ := s.export(target, bundle.ExportOptions{RevealSecrets: true})
	if diff := cmp.Diff(strings.Split(string(clear), "\n"), strings.Split(string(again), "\n")); diff != "" {
		fault += "the exports differ (-source +target):\n" + diff
	}
	if r := into(target, sealed, "again"); fault == "" && r.Unchanged != r.Lines {
		fault += fmt.Sprintf("into the target again: %+v\n", r.Counts)
	}
	if fault != "" {
		return fault
	}
	if s.org.Tenant(s.t).Org.State != tenants.Active {
		return ""
	}
	there := target.Key(s.t, tenants.AllPermissions()...)
	for _, path := range s.reads() {
		a, b := s.org.Get(s.t, s.key, path), target.Get(s.t, there, path)
		if x, y := normal(a, s.org.Slug), normal(b, target.Slug); x != y {
			fault += fmt.Sprintf("GET %s\nsource %s\ntarget %s\n", path, x, y)
		}
	}
	return fault
}

func (s *sequence) reads() []string {
	id, n := s.id, s.pick("1", "2")
	return []string{
		"/api/files/folders/" + id("fff"), "/api/custom/objects/schema?name=object" + n, fixture.FormsPath + "schema?id=" + fmt.Sprintf("%021xf0%s", 0, n),
		"/api/custom-reports/" + id("cce"), "/api/reports/shared/report-number-0000" + n + "?data=1", "/api/campaigns/count/" + id("cab"),
		"/api/users/5" + n, "/api/contacts/" + id("ddd") + "/reveal-secret?field=" + s.field(),
	}
}

var differs = regexp.MustCompile(`"(org_id|retrieved_at)":"?\d+"?|localhost:\d+`)

func normal(a *gatewaytest.Answer, slug string) string {
	return strconv.Itoa(a.Code) + strings.ReplaceAll(differs.ReplaceAllString(a.Text(), "$1"), slug, "SLUG")
}

// TestRandom_ExportsImport exports and imports after random sequences of all changing operations. A failing sequence is
// shrunk and reported with its seed.
func TestRandom_ExportsImport(t *testing.T) {
	t.Parallel()
	count, long := 12, os.Getenv(sequencesVariable)
	if n, err := strconv.Atoi(long); err == nil {
		count = n
	}
	first := uint64(time.Now().UnixNano())
	if n, err := strconv.ParseUint(os.Getenv(seedVariable), 10, 64); err == nil {
		first = n
	}
	key, err := sealing.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	done := &performed{}
	const batch = 200 // organizations of one pair of gateways
	began := time.Now()
	for from := 0; from < count && !t.Failed(); from += batch {
		t.Run(strconv.Itoa(from), func(t *testing.T) {
			source, target := gatewaytest.Start(t), gatewaytest.Start(t)
			if from == 0 {
				t.Cleanup(func() { complete(t, source.App.Operations(), done, min(count, batch)) })
			}
			var next, orgs atomic.Int64
			var workers sync.WaitGroup
			for range 3 {
				workers.Go(func() {
					for i := next.Add(1) - 1; i < int64(min(batch, count-from)) && !t.Failed(); i = next.Add(1) - 1 {
						seed := first + uint64(from) + uint64(i)
						attempt := func(steps []step) string {
							n := strconv.FormatInt(orgs.Add(1), 10)
							return play(t, steps, source.Org(t, "s"+n, "teams"), target.Org(t, "t"+n), key, done, seed)
						}
						steps := draw(seed)
						if fault := attempt(steps); fault != "" {
							steps, fault = shrink(steps, fault, attempt)
							t.Errorf("seed %d, operations %v (set %s=%d %s=1 to repeat):\n%s", seed, steps, seedVariable, seed, sequencesVariable, fault)
						}
					}
				})
			}
			workers.Wait()
		})
		if long != "" {
			t.Logf("%d sequences from seed %d in %s", min(from+batch, count), first, time.Since(began).Round(time.Second))
		}
	}
}

func draw(seed uint64) []step {
	rng := rand.New(rand.NewPCG(seed, 1))
	steps := make([]step, 4+rng.IntN(14))
	for i := range steps {
		steps[i] = step{rng.IntN(len((&sequence{}).steps())), rng.Uint64()}
	}
	return steps
}

func play(t *testing.T, steps []step, source, target *gatewaytest.Org, key *sealing.PrivateKey, done *performed, seed uint64) string {
	t.Helper()
	s := &sequence{t: t, org: source, key: source.Key(t, tenants.AllPermissions()...), done: done}
	for _, step := range steps {
		s.rng = rand.New(rand.NewPCG(step.seed, 2))
		s.steps()[step.do]()
	}
	s.rng = rand.New(rand.NewPCG(seed, 3))
	return s.verify(target, key)
}

// shrink omits operations as long as the fault remains.
func shrink(steps []step, fault string, attempt func([]step) string) ([]step, string) {
	for i := 0; i < len(steps); {
		fewer := slices.Delete(slices.Clone(steps), i, i+1)
		if f := attempt(fewer); f != "" {
			steps, fault = fewer, f
		} else {
			i++
		}
	}
	return steps, fault
}

// complete compares the called operations with the rows that change something.
func complete(t *testing.T, rows []operation.Row, done *performed, sequences int) {
	t.Helper()
	if sequences < 100 {
		return // too few for every operation to have come
	}
	elsewhere := []string{"contacts.disclose"} // nothing of it is exported, nor of what is tagged Sessions
	for _, op := range rows {
		if _, called := done.names.Load(op.Name); op.Method != http.MethodGet && !called && op.Tag != "Sessions" && !slices.Contains(elsewhere, op.Name) {
			t.Errorf("no sequence calls %s, which changes something, want one", op.Name)
		}
	}
}
