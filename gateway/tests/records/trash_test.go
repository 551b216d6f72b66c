package records

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
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
	"tenantry/tenants"
)

// kept is one record: the path of its list, its identifier, and its name in the path.
type kept struct{ path, made, name string }

// fillTrash creates one record of every resource with a trash, and returns them by resource.
func fillTrash(t *testing.T, o orchard, word string) map[string]kept {
	t.Helper()
	all := map[string]kept{}
	add := func(resource, path, body, by string) {
		t.Helper()
		made := o.do(t, http.MethodPost, path, body, 200)
		all[resource] = kept{path: path, made: fmt.Sprint(made["id"]), name: fmt.Sprint(made[by])}
	}
	names := fmt.Sprintf(`"name":"%[1]s","label":"%[1]s","label_plural":"%[1]ss"`, word)
	add("folder", fixture.FoldersPath, `{"name":"`+word+`"}`, "id")
	add("file", fixture.FilesPath, `{"filename":"`+word+`","mimetype":"text/plain"}`, "id")
	add("contact_field", "/api/contacts/fields", `{"key":"`+word+`","title":"T","type":"Text"}`, "key")
	add("contact", "/api/contacts", `{"email":"`+word+`@example.com"}`, "id")
	add("campaign", "/api/campaigns", `{"name":"`+word+`"}`, "id")
	add("custom_report", "/api/custom-reports", `{"title":"`+word+`","class":"Contacts"}`, "id")
	add("custom_object", fixture.ObjectsPath, `{`+names+`}`, "name")
	add("form_collection", "/api/form/collections", `{`+names+`}`, "id")
	o.do(t, http.MethodPost, fixture.ObjectsPath, `{`+strings.ReplaceAll(names, word, word+"_stays")+`}`, 200)
	stays := o.do(t, http.MethodPost, "/api/form/collections", `{`+strings.ReplaceAll(names, word, word+"_stays")+`}`, 200)["id"].(string)
	add("record", fixture.ObjectsPath+"/"+word+"_stays/records", `{"values":{}}`, "id")
	add("submission", "/api/form/collections/"+stays+"/submissions", `{"values":{"form_name":"x"}}`, "id")
	return all
}

// code returns the code of a read.
func (k kept) code(t *testing.T, o orchard, query string) int {
	t.Helper()
	if k.path == "/api/custom-reports" && query != "" { // the contract's read knows no trash
		if fmt.Sprint(o.do(t, http.MethodGet, k.path+query+"&filters[id]="+k.made, "", 200)["count"]) == "0" {
			return http.StatusNotFound
		}
		return http.StatusOK
	}
	return o.Get(t, o.key, k.path+"/"+k.name+query).Code
}

// TestTrash_IsEmptied checks that records deleted longer ago than trash.keep are purged, for every resource with a
// trash and in every organization, while records deleted later and live records stay.
func TestTrash_IsEmptied(t *testing.T) {
	t.Parallel()
	clock := &fixture.Clock{}
	g := gatewaytest.Start(t, clock.Option)
	var orgs []orchard
	old, young, live := map[string]map[string]kept{}, map[string]map[string]kept{}, map[string]map[string]kept{}
	for _, slug := range []string{"acme", "globex"} {
		org := g.Org(t, slug, tenants.FeatureTeams)
		o := orchard{org, org.Key(t, tenants.AllPermissions()...)}
		orgs = append(orgs, o)
		old[slug], young[slug], live[slug] = fillTrash(t, o, "old"), fillTrash(t, o, "young"), fillTrash(t, o, "live")
	}
	remove := func(all map[string]map[string]kept) {
		for _, o := range orgs {
			for resource, k := range all[o.Slug] {
				o.do(t, http.MethodDelete, k.path+"/"+k.name+map[bool]string{true: "?force=true"}[resource == "custom_object"], "", 200)
			}
		}
	}
	// Records of a definition exist until the definition is purged.
	hanging := orgs[0].do(t, http.MethodPost, fixture.ObjectsPath+"/old/records", `{"values":{}}`, 200)["id"].(string)
	remove(old)
	for _, op := range g.App.Operations() { // every resource with a trash was filled
		if _, filled := old["acme"][op.Resource]; op.Expire != nil && !filled {
			t.Errorf("got nothing of %s in the trash, want a record", op.Resource)
		}
	}
	clock.Advance(29 * fixture.Day)
	fixture.EmptyTrash(t, g.App)
	remove(young)
	for resource, k := range old["acme"] {
		if code := k.code(t, orgs[0], "?deleted=true"); code != 200 {
			t.Errorf("after 29 days the %s is gone: got %d, want 200", resource, code)
		}
	}
	clock.Advance(fixture.Day + time.Minute)
	orgs[0].do(t, http.MethodPost, fixture.FoldersPath+"/"+old["acme"]["folder"].made+"/restore", "", 404) // about to end
	state(t, g, "org.suspend", "globex")                                                                   // its trash is emptied all the same
	clock.Advance(time.Hour)
	fixture.EmptyTrash(t, g.App)
	state(t, g, "org.resume", "globex")
	clock.Advance(time.Second) // nothing that was read of it before is used
	for _, o := range orgs {
		for resource := range old[o.Slug] {
			for state, at := range map[string]struct {
				k     kept
				query string
				code  int
			}{
				"old":   {old[o.Slug][resource], "?deleted=true", 404},
				"young": {young[o.Slug][resource], "?deleted=true", 200},
				"live":  {live[o.Slug][resource], "", 200},
			} {
				if code := at.k.code(t, o, at.query); code != at.code {
					t.Errorf("%s: the %s %s: %d, want %d", o.Slug, state, resource, code, at.code)
				}
			}
		}
		told := map[string]string{}
		for _, r := range fixture.AuditLog(t, o.Org) {
			if r.Operation != "trash.purge" {
				continue
			}
			for resource, id := range r.Facts {
				if told[resource] != "" || r.Subject != "system" || r.Outcome != "ok" {
					t.Errorf("%s: got the record %+v, want one by system with the outcome ok", o.Slug, r)
				}
				told[resource] = id
			}
		}
		for resource, k := range old[o.Slug] {
			if k.made != "<nil>" && told[resource] != k.made || told[resource] == "" { // a contact field has no id
				t.Errorf("%s: the end of %s %s is recorded as that of %q, want the same record",
					o.Slug, resource, k.made, told[resource])
			}
		}
	}
	names := `"name":"old","label":"old","label_plural":"olds"`
	orgs[0].do(t, http.MethodPost, fixture.ObjectsPath, `{`+names+`}`, 200) // and its name is free
	orgs[0].do(t, http.MethodGet, fixture.ObjectsPath+"/old/records/"+hanging, "", 404)
	orgs[0].do(t, http.MethodPost, fixture.FoldersPath+"/"+young["acme"]["folder"].made+"/restore", "", 200)
}

// state changes the state of an organization by a command.
func state(t *testing.T, g *gatewaytest.Gateway, command, slug string) {
	t.Helper()
	if _, err := control.Call[control.Organization](t.Context(), g.Commands, command, map[string]string{"slug": slug}); err != nil {
		t.Fatal(err)
	}
}

// TestTrash_IsEmptiedByOneAtATime checks that each record is purged once, and that one replica has a round at a time.
func TestTrash_IsEmptiedByOneAtATime(t *testing.T) {
	t.Parallel()
	clock := &fixture.Clock{}
	g := gatewaytest.Start(t, clock.Option)
	race(t, clock, []*gatewaytest.Gateway{g, g, g, g})
}

// TestTrash_IsEmptiedByOneReplica is the same with replicas that share a store.
func TestTrash_IsEmptiedByOneReplica(t *testing.T) {
	t.Parallel()
	clock := &fixture.Clock{}
	race(t, clock, fixture.StartTrio(t, clock.Option).Replicas[:])
}

// race lets all replicas empty the trash concurrently.
func race(t *testing.T, c *fixture.Clock, all []*gatewaytest.Gateway) {
	t.Helper()
	o := cabinet{newOrchard(t, all[0], "acme")}
	const records = 20 // fewer than fill the time of a turn
	folder := o.folder(t, "F", "")
	for i := range records {
		o.file(t, fmt.Sprint(i), folder)
	}
	o.do(t, http.MethodDelete, fixture.FoldersPath+"/"+folder+"?contents=true", "", 200)
	c.Advance(31 * fixture.Day)
	var taken atomic.Int32
	var sweepers sync.WaitGroup
	for _, g := range all {
		sweepers.Go(func() {
			if fixture.TrashTurn(t, g.App) {
				taken.Add(1)
			}
		})
	}
	if sweepers.Wait(); taken.Load() != 1 {
		t.Errorf("%d replicas had the turn, want 1", taken.Load())
	}
	told := map[string]int{}
	for _, r := range fixture.AuditLog(t, o.Org) {
		if r.Operation == "trash.purge" {
			told[fmt.Sprint(r.Facts)]++
		}
	}
	if len(told) != records+1 {
		t.Errorf("%d ends are recorded, want %v", len(told), records+1)
	}
	for what, n := range told {
		if n != 1 {
			t.Errorf("%s ended %d times, want 1", what, n)
		}
	}
	if live, deleted := o.shown(t); live+deleted != "" {
		t.Errorf("got live %s and deleted %s, want none", live, deleted)
	}
	if fixture.TrashTurn(t, all[0].App) {
		t.Error("got another round at once, want none")
	}
}

// TestTrash_PanicEndsNothingElse checks that the trash of other resources is emptied if that of one fails because of a
// fault in the program.
func TestTrash_PanicEndsNothingElse(t *testing.T) {
	t.Parallel()
	clock := &fixture.Clock{}
	var broken atomic.Bool
	g := gatewaytest.Start(t, clock.Option, func(_ *config.Config, o *gateway.Options) {
		o.Observe = func(c store.Call) {
			if broken.Load() && c.Collection == "files" {
				panic("broken")
			}
		}
	})
	org := g.Org(t, "acme", tenants.FeatureTeams)
	o := orchard{org, org.Key(t, tenants.AllPermissions()...)}
	old := fillTrash(t, o, "old")
	for _, resource := range []string{"file", "campaign", "contact"} {
		o.do(t, http.MethodDelete, old[resource].path+"/"+old[resource].name, "", 200)
	}
	clock.Advance(31 * fixture.Day)
	broken.Store(true)
	if !fixture.TrashTurn(t, g.App) {
		t.Error("got no turn for the replica, want one")
	}
	broken.Store(false)
	for resource, code := range map[string]int{"file": 200, "campaign": 404, "contact": 404} {
		if got := old[resource].code(t, o, "?deleted=true"); got != code {
			t.Errorf("%s: %d, want %d", resource, got, code)
		}
	}
	if !strings.Contains(g.Log.String(), "panic: broken") {
		t.Error("got no panic in the log, want the fault")
	}
}

// TestTrash_NamesTheHolderOfAValue checks that a caller who may see the record in the trash that has a unique value
// gets its identifier.
func TestTrash_NamesTheHolderOfAValue(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	o := client{Org: g.Org(t, "acme", tenants.FeatureTeams)}.of(t, tenants.AllPermissions()...)
	const north, south = "aaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbb"
	o.Import(t, `{"kind":"team","id":"`+north+`","name":"North"}`, `{"kind":"team","id":"`+south+`","name":"South"}`)
	for path, body := range map[string]string{
		"/api/contacts":                    `{"external_id":"a","teams":["` + north + `"]}`,
		"/api/contacts/fields":             `{"key":"plan","title":"Plan","type":"Text"}`,
		"/api/custom/objects":              `{"name":"tree","label":"Tree","label_plural":"Trees"}`,
		"/api/form/collections":            `{"name":"visit","label":"Visit","label_plural":"Visits"}`,
		"/api/custom/objects/rock/records": `{"external_id":"a","values":{}}`,
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			if strings.Contains(path, "rock") {
				o.do(t, http.MethodPost, "/api/custom/objects", `{"name":"rock","label":"Rock","label_plural":"Rocks"}`, 200)
			}
			made := o.do(t, http.MethodPost, path, body, 200)
			key := made["id"]
			if key == nil {
				key = made["key"]
			}
			refused := func(c client) string {
				t.Helper()
				return c.do(t, http.MethodPost, path, body, 409)["message"].(string)
			}
			if says := refused(o); strings.Contains(says, "trash") {
				t.Errorf("of a live one: got %s, want no mention of the trash", says)
			}
			o.do(t, http.MethodDelete, fmt.Sprint(path, "/", key), "", 200)
			says := refused(o)
			told := regexp.MustCompile(`in the trash \(id ([0-9a-f]{24})\): restore it, or end it for good`).FindStringSubmatch(says)
			if told == nil || made["id"] != nil && told[1] != made["id"] {
				t.Fatalf("of a deleted one: got %s, want its identifier", says)
			}
			if path == "/api/contacts" {
				other := o.do(t, http.MethodPost, path, `{"external_id":"b"}`, 200)["id"].(string)
				if says := o.do(t, http.MethodPut, path+"/"+other, `{"external_id":"a"}`, 409)["message"].(string); !strings.Contains(says, told[0]) {
					t.Errorf("a change: got %[1]s, want it with %[2]s", says, told[0])
				}
				if got := fmt.Sprint(o.do(t, http.MethodPost, path+"/bulk", `{"records":[{"id":"`+other+`","external_id":"a"}]}`, 200)); !strings.Contains(got, told[0]) {
					t.Errorf("a bulk: got %[1]s, want it with %[2]s", got, told[0])
				}
				limited := client{o.Org, o.KeyWith(t, func(k *control.NewKey) {
					k.Permissions, k.Teams = []string{string(tenants.Contacts)}, []string{south}
				}).Token}
				if a := limited.Do(t, http.MethodPost, path, gatewaytest.WithKey(limited.key), fixture.JSONText(`{"external_id":"a"}`)); a.Code != 409 || strings.Contains(a.Text(), told[1]) {
					t.Errorf("a caller who does not see it: got %d %s, want 409 and without %q",
						a.Code, a.Text(), told[1])
				}
			}
			o.do(t, http.MethodPost, path+"/"+told[1]+"/restore", "", 200)
		})
	}
}

// TestTrash_BulkRestoresNoExpiredRecord checks that a bulk does not restore records whose time is over.
func TestTrash_BulkRestoresNoExpiredRecord(t *testing.T) {
	t.Parallel()
	clock := &fixture.Clock{}
	g := gatewaytest.Start(t, clock.Option)
	acme := g.Org(t, "acme")
	o := orchard{acme, acme.Key(t, tenants.Contacts)}
	o.do(t, http.MethodPost, "/api/contacts/fields", `{"key":"ssn","title":"SSN","type":"Encrypted"}`, 200)
	one := "/api/contacts/" + o.do(t, http.MethodPost, "/api/contacts", `{"first_name":"Ada","external_id":"x","fields":{"ssn":"078-05-1120"}}`, 200)["id"].(string)
	bulk := func() string {
		return fmt.Sprint(o.do(t, http.MethodPost, "/api/contacts/bulk", `{"records":[{"external_id":"x"},{"external_id":"y"}]}`, 200))
	}
	o.do(t, http.MethodDelete, one, "", 200)
	clock.Advance(29 * fixture.Day)
	if told := bulk(); !strings.Contains(told, "updated:1") {
		t.Errorf("within its time: got %s, want 1 updated", told)
	}
	o.do(t, http.MethodDelete, one, "", 200)
	clock.Advance(30*fixture.Day + time.Minute)
	o.do(t, http.MethodPost, one+"/restore", "", 404)
	if told := bulk(); !strings.Contains(told, "failed:1") || !strings.Contains(told, "field:external_id") || !strings.Contains(told, "updated:1") {
		t.Errorf("after it: got %s, want 1 failed and 1 updated", told)
	}
	o.do(t, http.MethodGet, one, "", 404)
	clock.Advance(time.Hour)
	fixture.EmptyTrash(t, g.App)
	if told := bulk(); !strings.Contains(told, "created:1") {
		t.Errorf("once it has ended: got %s, want 1 created", told)
	}
}

// TestTrash_PurgedDataAreInNoFile checks that closed files contain nothing of purged records, small or large.
func TestTrash_PurgedDataAreInNoFile(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, gatewaytest.Embedded)
	acme := g.Org(t, "acme")
	o := orchard{acme, acme.Key(t, tenants.Contacts)}
	o.do(t, http.MethodPost, "/api/contacts/fields", `{"key":"story","title":"Story","type":"LongText"}`, 200)
	const word = "Rumpelstiltskin"
	var made []string
	for range 20 {
		made = append(made, o.do(t, http.MethodPost, "/api/contacts", `{"first_name":"`+word+`","fields":{"story":"`+strings.Repeat(word+" ", 1000)+`"}}`, 200)["id"].(string))
	}
	for _, id := range made {
		o.do(t, http.MethodDelete, "/api/contacts/"+id+"?purge=true", "", 200)
	}
	g.Stop(t)
	files := 0
	err := filepath.WalkDir(g.Config.Data, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if files++; bytes.Contains(content, []byte(word)) {
			t.Errorf("%s contains purged data, want none", path)
		}
		return err
	})
	if err != nil || files < 2 {
		t.Fatalf("got %d files, %v, want no error and at least 2", files, err)
	}
}

// TestTrash_KeptForEver checks that with 0 nothing is purged.
func TestTrash_KeptForEver(t *testing.T) {
	t.Parallel()
	clock := &fixture.Clock{}
	g := gatewaytest.Start(t, clock.Option, func(c *config.Config, _ *gateway.Options) { c.Trash.Keep = 0 })
	c := cabinet{newOrchard(t, g, "acme")}
	folder := c.folder(t, "F", "")
	c.do(t, http.MethodDelete, fixture.FoldersPath+"/"+folder, "", 200)
	clock.Advance(10_000 * fixture.Day)
	c.do(t, http.MethodPost, fixture.FoldersPath+"/"+folder+"/restore", "", 200)
}

// TestTrash_KeepsRestoredRecords checks that a record that is restored, or changed by an import, while the trash is
// emptied stays, and so do records added to a deleted folder.
func TestTrash_KeepsRestoredRecords(t *testing.T) {
	t.Parallel()
	clock := &fixture.Clock{}
	g := gatewaytest.Start(t, clock.Option)
	c := cabinet{newOrchard(t, g, "acme")}
	folder := c.folder(t, "F", "")
	c.do(t, http.MethodDelete, fixture.FoldersPath+"/"+folder, "", 200)
	c.Import(t, fixture.FileLine(8, "late.txt", folder, ""), fixture.FolderLine(9, "late", folder, ""), fixture.FileLine(10, "later.txt", fixture.DocID(9), ""))
	clock.Advance(31 * fixture.Day)
	fixture.EmptyTrash(t, g.App)
	if live, deleted := c.shown(t); live != "late late.txt later.txt" || deleted != "" {
		t.Errorf("live: %s; deleted: got %s, want live %q and no deleted", live, deleted, "late late.txt later.txt")
	}
	if got := c.do(t, http.MethodGet, fixture.FilesPath+"/"+fixture.DocID(8), "", 200); got["folder_id"] != "" {
		t.Errorf("it lies in a folder that is gone: got %v, want no folder_id", got)
	}
	if got := c.tree(t); got != "late()" {
		t.Errorf("the tree: got %s, want %q", got, "late()")
	}
}

// TestTrash_IsEmptiedPastUnreadableRecords checks that unreadable records stay, even if they are the oldest, and that
// the ones after them are purged.
func TestTrash_IsEmptiedPastUnreadableRecords(t *testing.T) {
	t.Parallel()
	clock := &fixture.Clock{}
	g := gatewaytest.Start(t, clock.Option, gatewaytest.OwnFiles)
	acme := g.Org(t, "acme")
	key := gatewaytest.WithKey(acme.Key(t, tenants.Contacts))
	acme.Import(t, fixture.ContactsBundle(120)...)
	p := &fixture.Party{Org: acme}
	remove := func(id string) {
		t.Helper()
		if a := acme.Do(t, http.MethodDelete, "/api/contacts/"+id, key); a.Code != http.StatusOK {
			t.Fatalf("got %d %s, want %v", a.Code, a.Body, http.StatusOK)
		}
	}
	listed := acme.Do(t, http.MethodGet, "/api/contacts?per_page=1000", key).Field("results").([]any)
	last := listed[len(listed)-1].(map[string]any)["id"].(string)
	for _, rec := range listed[:len(listed)-1] {
		remove(rec.(map[string]any)["id"].(string))
	}
	clock.Advance(time.Minute)
	remove(last)
	p.Exec(t, `UPDATE "c:contacts" SET body = '{' WHERE id <> ?1`, last)
	clock.Advance(31 * fixture.Day)
	fixture.EmptyTrash(t, g.App)
	if left := p.Stored(t, `SELECT count(*) FROM "c:contacts"`); left != "119" {
		t.Errorf("%s of 120 are left, not the 119 that cannot be read, want left 119", left)
	}
}
