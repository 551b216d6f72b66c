package operations

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"tenantry/backends/mongo/mongotest"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/modules/imports/bundle"
	"tenantry/tenants"
)

// TestUnreadableRecord changes a record in the database so that it cannot be read. Lists omit it and say so,
// counts include it, and exports and moves are refused and name it, as log, metric and doctor do, all without its
// values. After it is restored, nothing of that remains.
func TestUnreadableRecord(t *testing.T) {
	t.Parallel()
	t.Run("on SQLite", func(t *testing.T) {
		t.Parallel()
		o := damagedWorld(t, func(c *config.Config, other config.Backend) {
			b := c.Backends["default"]
			b.Isolation = config.IsolationFile
			c.Backends = map[string]config.Backend{"default": b, "other": other}
		})
		p := &fixture.Party{Org: o.Org}
		whole := p.Stored(t, `SELECT body FROM "c:contacts" WHERE id = ?1`, o.id)
		set := func(body string) func(*testing.T) {
			return func(t *testing.T) { p.Exec(t, `UPDATE "c:contacts" SET body = ?1 WHERE id = ?2`, body, o.id) }
		}
		o.checkDamage(t, "no JSON", "it is not valid JSON", set(`{"email":"hunter2@example.com`), set(whole))
		o.checkDamage(t, "another type", "field email", set(strings.Replace(whole, `"email":"`, `"email":9471147,"was":"`, 1)), set(whole))
	})
	t.Run("on MongoDB", func(t *testing.T) {
		t.Parallel()
		if os.Getenv(mongotest.Variable) == "" {
			t.Skip(mongotest.Variable + " names no server")
		}
		database := mongotest.Database(t)
		o := damagedWorld(t, func(c *config.Config, other config.Backend) {
			var own config.Config
			if err := gatewaytest.UseMongo(&own, os.Getenv(mongotest.Variable), database); err != nil {
				t.Fatal(err)
			}
			c.Backends = map[string]config.Backend{"default": own.Backends["mongo"], "other": other}
		})
		contacts := mongotest.Client(t).Database(database).Collection("contacts")
		org := "org-" + strconv.FormatInt(o.Tenant(t).Org.OrgID, 10)
		at := bson.D{{Key: "_id", Value: org + "/" + o.id}}
		whole, err := contacts.FindOne(t.Context(), at).Raw()
		if err != nil {
			t.Fatal(err)
		}
		set := func(name string, v any) func(*testing.T) {
			return func(t *testing.T) {
				if r, err := contacts.UpdateOne(t.Context(), at, bson.D{{Key: "$set", Value: bson.D{{Key: name, Value: v}}}}); err != nil || r.MatchedCount != 1 {
					t.Fatalf("got %+v, %v, want no error and r.MatchedCount = 1", r, err)
				}
			}
		}
		back := func(t *testing.T) {
			if _, err := contacts.ReplaceOne(t.Context(), at, whole); err != nil {
				t.Fatal(err)
			}
		}
		o.checkDamage(t, "what JSON has nothing like", "field email", set("email", bson.Regex{Pattern: "hunter2"}), back)
		o.checkDamage(t, "another type", "field email", set("email", 9471147), back)
		o.checkDamage(t, "no revision", "revision", set("rev", "hunter2"), back)

		// A document that belongs to nobody, with the organization's name: it is in no order of identifiers, and would
		// be left behind.
		foreign, err := contacts.InsertOne(t.Context(), bson.D{{Key: "org_id", Value: org}, {Key: "email", Value: "hunter2"}})
		if err != nil {
			t.Fatal(err)
		}
		o.refuses(t, "not this program's")
		if _, err := contacts.DeleteOne(t.Context(), bson.D{{Key: "_id", Value: foreign.InsertedID}}); err != nil {
			t.Fatal(err)
		}
		if _, err := gatewaytest.Move(t.Context(), o.Commands, control.MoveRequest{Slug: "acme", To: "other"}, nil); err != nil {
			t.Errorf("the move of what is whole again: got %v, want no error", err)
		}
	})
}

// damagedOrg is an organization with seven contacts, one of which is damaged.
type damagedOrg struct {
	fixture.KeyClient
	id string
}

const damagedReport = "00000000000000000000d001"

func damagedWorld(t *testing.T, backends func(c *config.Config, other config.Backend)) *damagedOrg {
	t.Helper()
	g := gatewaytest.Start(t, func(c *config.Config, _ *gateway.Options) {
		d := config.Default()
		c.Store, c.Control, c.Backends = d.Store, d.Control, d.Backends
		backends(c, config.Backend{Engine: config.EngineSQLite, Isolation: config.IsolationFile})
	}, fixture.ShortLeases)
	o := &damagedOrg{KeyClient: fixture.KeyClient{Org: g.Org(t, "acme")}, id: fixture.DocID(0xabc000003)}
	o.Import(t, append(fixture.ContactsBundle(7), `{"kind":"custom_report","id":"`+damagedReport+`","title":"R","class":"Contacts","exportable":true,"query":{"fields":["email"],"sort":["email"]}}`)...)
	o.Token = o.Key(t, tenants.AllPermissions()...)
	return o
}

// list returns the identifiers on a page and the next place.
func (o *damagedOrg) list(t *testing.T, query string, left int) (ids []string, next string) {
	t.Helper()
	a := o.Get(t, o.Token, "/api/contacts?"+query)
	var data struct {
		Next    string
		Count   int
		Results []struct{ ID string }
	}
	if err := json.Unmarshal([]byte(a.DataJSON()), &data); err != nil || a.Code != http.StatusOK || data.Count != 7 {
		t.Fatalf("%s: got %d %.300s %v, want no error and %v and data.Count = 7", query, a.Code, a.Body, err, http.StatusOK)
	}
	warning := ""
	if left > 0 {
		warning = fmt.Sprintf("records that are left out, since they cannot be read: %d", left)
	}
	if got := a.Header.Get("X-Warning"); got != warning {
		t.Errorf("%s: the warning %q, want %q", query, got, warning)
	}
	for _, r := range data.Results {
		ids = append(ids, r.ID)
	}
	return ids, data.Next
}

// checkDamage damages the record, checks everything that reads it, and restores it.
func (o *damagedOrg) checkDamage(t *testing.T, what, reason string, damage, mend func(*testing.T)) {
	t.Helper()
	damage(t)
	const figure = `tenantry_store_unreadable_records{backend="default"}`
	rest := []string{}
	for i := range 7 {
		if id := fixture.DocID(0xabc000000 + i); id != o.id {
			rest = append(rest, id)
		}
	}
	same := func(how string, got []string) {
		t.Helper()
		if !slices.Equal(got, rest) {
			t.Errorf("%s, %s: %v, want %v", what, how, got, rest)
		}
	}
	ids, _ := o.list(t, "", 1)
	same("the whole list", ids)
	var paged, after []string
	for page, left := range []int{0, 1, 0, 0} {
		ids, _ := o.list(t, fmt.Sprintf("per_page=2&page=%d", page+1), left)
		paged = append(paged, ids...)
	}
	same("page by page", paged)
	for next, left := "", []int{0, 1, 0, 0}; len(after) < 7; left = left[1:] {
		ids, following := o.list(t, "per_page=2&after="+next, left[0])
		if after = append(after, ids...); following == "" {
			break
		}
		next = following
	}
	same("one after another", after)

	if a := o.Get(t, o.Token, "/api/campaigns/count"); a.Code != http.StatusOK || !strings.Contains(a.DataJSON(), "7") {
		t.Errorf("%s: the count: got %d %s, want 200 with 7", what, a.Code, a.Body)
	}
	if a := o.Get(t, o.Token, "/api/custom-reports/"+damagedReport+"/run"); a.Code != http.StatusOK || !strings.Contains(a.DataJSON(), `"count":7`) || strings.Contains(a.Text(), "hunter2") {
		t.Errorf("%s: the report: got %d %s, want 200, with %q and without hunter2", what, a.Code, a.Body, `"count":7`)
	}
	a := o.Get(t, o.Token, "/api/contacts/"+o.id)
	if a.Code != http.StatusInternalServerError || strings.Contains(a.Text(), reason) {
		t.Errorf("%s: by its id: got %d %s, want 500 and without %q", what, a.Code, a.Body, reason)
	}
	if a := o.Get(t, o.Token, "/api/contacts/"+rest[0]); a.Code != http.StatusOK {
		t.Errorf("%s: another: got %d %s, want 200", what, a.Code, a.Body)
	}
	// For the report, a number in place of a text is only another value.
	if a := o.Get(t, o.Token, "/api/custom-reports/"+damagedReport+"/export"); what != "another type" && (a.Code != http.StatusInternalServerError || strings.Contains(a.Text(), "p1@example")) {
		t.Errorf("%s: the export of the report: got %d %s, want 500 without values", what, a.Code, a.Body)
	}
	o.refuses(t, reason)
	if _, _, figures := fixture.CallAdmin(t, o.Gateway, http.MethodGet, "/metrics"); !strings.Contains(figures, figure+" 1\n") {
		t.Errorf("%s: the damaged record is not counted, want 1", what)
	}
	named := func() (says []string) {
		for _, f := range fixture.Findings(t, o.Gateway, control.Examination{}) {
			if f.What == "backend default records" {
				says = append(says, f.Says)
			}
		}
		return says
	}
	if says := named(); len(says) != 1 || !strings.Contains(says[0], "organization acme: contacts "+o.id) || !strings.Contains(says[0], reason) {
		t.Errorf("%s: doctor says %q, want the record and the reason", what, says)
	}
	mend(t)
	if says := named(); len(says) != 0 {
		t.Errorf("%s, put back: doctor says %q, want none", what, says)
	}
	if ids, _ := o.list(t, "", 0); len(ids) != 7 {
		t.Errorf("%s, put back: got %v, want 7", what, ids)
	}
	if _, _, figures := fixture.CallAdmin(t, o.Gateway, http.MethodGet, "/metrics"); !strings.Contains(figures, figure+" 0\n") {
		t.Errorf("%s: the damaged record is still counted, want 0", what)
	}
	log := o.Log.String()
	if n := strings.Count(log, `"kind":"contacts","id":"`+o.id+`","reason":"`); n < 1 || strings.Contains(log, "hunter2") || strings.Contains(log, "9471147") {
		t.Errorf("%s: named %d times in the log, or with a value, want at least 1, without hunter2 and without 9471147",
			what, n)
	}
}

// refuses checks that exports and moves are refused, with the reason.
func (o *damagedOrg) refuses(t *testing.T, reason string) {
	t.Helper()
	var out bytes.Buffer
	if _, err := o.App.Transfer().Export(t.Context(), o.Tenant(t), &out, bundle.ExportOptions{}); err == nil || !strings.Contains(err.Error(), "cannot be read: ") || !strings.Contains(err.Error(), reason) {
		t.Errorf("the export: got %v, want an error, with %q and with %q", err, "cannot be read: ", reason)
	}
	if _, err := gatewaytest.Move(t.Context(), o.Commands, control.MoveRequest{Slug: "acme", To: "other"}, nil); err == nil || !strings.Contains(err.Error(), "contacts") || !strings.Contains(err.Error(), reason) {
		t.Errorf("the move: got %v, want an error, with contacts and with %q", err, reason)
	}
	if _, err := control.Call[control.Organization](t.Context(), o.Commands, "org.move.rollback", control.Slug{Slug: "acme"}); err != nil {
		t.Errorf("undoing the move: got %v, want no error", err)
	}
}
