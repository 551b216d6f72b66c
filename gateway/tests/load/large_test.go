package load

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
	"tenantry/tenants"
)

// TestRecordSizeLimitIsTheSameEverywhere checks that the maximum size of a record is the same in every interface, for
// every kind with defined fields, and that the refusal names field, size and limit.
func TestRecordSizeLimitIsTheSameEverywhere(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme")
	_, cookie := acme.Person(t, "ada@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
	admin := gatewaytest.Cookie(cookie)
	form, longs := fixture.DocID(0xf1), `"a":{"title":"A","type":"LongText"},"b":{"title":"B","type":"LongText"},"c":{"title":"C","type":"LongText"}`
	acme.Import(t, `{"kind":"contact_field","key":"a","title":"A","type":"LongText"}`, `{"kind":"contact_field","key":"b","title":"B","type":"LongText"}`,
		`{"kind":"contact_field","key":"c","title":"C","type":"LongText"}`,
		`{"kind":"custom_object","name":"tree","label":"Tree","label_plural":"Trees","schema":{`+longs+`}}`,
		`{"kind":"form_collection","id":"`+form+`","name":"visit","label":"Visit","label_plural":"Visits","schema":{`+longs+`}}`)
	key := acme.Key(t, tenants.AllPermissions()...)
	long := strings.Repeat("x", record.MaxRecord/2-1<<10) // two are taken, and not a third
	for _, of := range []struct{ path, values, kind, more, as string }{
		{"/api/contacts", "fields", "contact", "", "contacts"},
		{"/api/custom/objects/tree/records", "values", "record", `"object":"tree",`, "records:tree"},
		{"/api/form/collections/" + form + "/submissions", "values", "submission", `"form":"` + form + `",`, "submissions:" + form},
	} {
		t.Run(of.kind, func(t *testing.T) {
			t.Parallel()
			name := map[bool]string{true: `"form_name":"n",`}[of.kind == "submission"]
			values := func(fields ...string) string {
				text := `"` + of.values + `":{` + name
				for i, f := range fields {
					text += map[bool]string{true: ","}[i > 0] + `"` + f + `":"` + long + `"`
				}
				return text + "}"
			}
			number := regexp.MustCompile(`the ` + of.kind + ` takes [5-9]\d{5} bytes`)
			refused := func(door, answer string) {
				t.Helper()
				if !strings.Contains(answer, of.values+".") || !strings.Contains(answer, fmt.Sprintf("a record takes at most %d", record.MaxRecord)) ||
					!number.MatchString(answer) {
					t.Errorf("%s: got %.400s, want containing %q", door, answer, of.values+".")
				}
			}
			// One after the other, because none of them is larger than a body may be.
			made := fixture.PostJSON(t, acme, key, of.path, `{`+values("a")+`}`)
			if made.Code != http.StatusOK {
				t.Fatalf("created: got %d %.300s, want 200", made.Code, made.Body)
			}
			at := of.path + "/" + made.Field("id").(string)
			change := func(field string) *gatewaytest.Answer {
				return acme.Do(t, http.MethodPut, at, gatewaytest.WithKey(key), fixture.JSONText(`{`+strings.Replace(values(field), name, "", 1)+`}`))
			}
			if of.kind != "submission" { // which nobody changes
				if a := change("b"); a.Code != http.StatusOK {
					t.Errorf("changed to what may be: got %d %.300s, want 200", a.Code, a.Body)
				}
				a := change("c")
				if refused("changed", a.Text()); a.Code != http.StatusUnprocessableEntity {
					t.Errorf("changed: got %d, want 422", a.Code)
				}
				bulk := fixture.PostJSON(t, acme, key, of.path+"/bulk", `{"records":[{`+values("a", "b")+`},{`+values("a", "b", "c")+`}]}`)
				if refused("bulk", bulk.Text()); bulk.Code != http.StatusOK || !strings.Contains(bulk.Text(), `"created":1,"updated":0,"failed":1`) {
					t.Errorf("bulk: got %d %.300s, want 200 with %q",
						bulk.Code, bulk.Body, `"created":1,"updated":0,"failed":1`)
				}
			}
			load := func(query, kind, content string) string {
				var told *gatewaytest.Answer
				fixture.AwaitWithin(t, "an import has begun", time.Minute, func() bool {
					a := acme.Do(t, http.MethodPost, "/api/import"+query, admin, gatewaytest.Body(kind, content))
					id, begun := a.Field("id").(string)
					if !begun { // another one is under way, or a slow server has no room
						return false
					}
					told = fixture.AwaitImport(t, acme, admin, id)
					return true
				})
				return told.Text()
			}
			refused("a bundle", load("", "application/x-ndjson", `{"kind":"`+of.kind+`",`+of.more+values("a", "b", "c")+`}`+"\n"))
			flat := strings.TrimSuffix(strings.TrimPrefix(values("a", "b", "c"), `"`+of.values+`":`), "}")
			refused("JSON rows", load("?as="+of.as, "application/json", `[`+flat+`}]`))
			refused("CSV rows", load("?as="+of.as, "text/csv", map[bool]string{true: "form_name,", false: ""}[name != ""]+"a,b,c\n"+map[bool]string{true: "n,", false: ""}[name != ""]+long+","+long+","+long+"\n"))
		})
	}
}

// TestBodiesOfManyValuesAreRefused checks that a body that would take many times its length in memory is refused while
// it is read, in every row with a body.
func TestBodiesOfManyValuesAreRefused(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme")
	_, cookie := acme.Person(t, "ada@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
	rows := g.App.Operations()
	n := 0
	for i := range rows {
		op := &rows[i]
		if op.Body == nil || op.OwnLimits || op.Credentials&operation.Session == 0 {
			continue
		}
		n++
		path := op.Path
		for _, p := range op.Params {
			path = strings.ReplaceAll(path, "{"+p.Name+"}", fixture.DocID(1))
		}
		a := acme.Do(t, op.Method, path, gatewaytest.Cookie(cookie), fixture.JSONText(`{"unknown":[`+strings.Repeat("1,", op.ValuesMax()-1)+`1]}`))
		if want := fmt.Sprintf("The body has more than %d values, at byte ", op.ValuesMax()); a.Code != http.StatusBadRequest || !strings.HasPrefix(a.Message, want) {
			t.Errorf("%s: got %d %.200s, want %v and beginning with %q", op.Name, a.Code, a.Text(), http.StatusBadRequest, want)
		}
	}
	if n < 20 {
		t.Errorf("only %d rows take a body, want at least 20", n)
	}
}

// TestDecodedBodiesReserveRoom checks that a decoded body is reserved, by organization, until its handler has returned:
// others are refused soon, and another organization continues.
func TestDecodedBodiesReserveRoom(t *testing.T) {
	t.Parallel()
	var blocking atomic.Bool
	release := make(chan struct{})
	g := gatewaytest.Start(t, inFlight(48), func(_ *config.Config, o *gateway.Options) { // 12 MiB, 3 MiB of an organization: three bulks
		o.Observe = func(c store.Call) {
			if blocking.Load() && c.Operation == "find" && c.Collection == "contact_fields" {
				<-release
			}
		}
	})
	free := sync.OnceFunc(func() { blocking.Store(false); close(release) })
	t.Cleanup(free)
	acme, other := g.Org(t, "acme"), g.Org(t, "other")
	key, others := acme.Key(t, tenants.Contacts), other.Key(t, tenants.Contacts)
	bulk := func(n int) string {
		return `{"records":[` + strings.TrimSuffix(strings.Repeat(`{"city":"x","country":"DE"},`, n), ",") + `]}`
	}
	for o, k := range map[*gatewaytest.Org]string{acme: key, other: others} { // what is kept of them is read
		if a := fixture.PostJSON(t, o, k, "/api/contacts/bulk", bulk(1)); a.Code != http.StatusOK {
			t.Fatalf("got %d %s, want %v", a.Code, a.Text(), http.StatusOK)
		}
	}
	fixture.Await(t, "nothing is reserved", func() bool { return fixture.Metric(t, g, "tenantry_decoded_bytes") == 0 })
	large := bulk(1000) // of which some 900 KB are made
	blocking.Store(true)
	answers := make(chan *gatewaytest.Answer, 5)
	for range 5 {
		go func() { answers <- fixture.PostJSON(t, acme, key, "/api/contacts/bulk", large) }()
	}
	fixture.Await(t, "three are under way", func() bool { return fixture.Metric(t, g, "tenantry_decoded_bytes") > 3*800_000 })
	for range 5 - 3 {
		if a := <-answers; a.Code != http.StatusTooManyRequests || a.Header.Get("Retry-After") == "" {
			t.Errorf("one more than there is room for: got %d %.200s, want 429 and a header Retry-After",
				a.Code, a.Text())
		}
	}
	if n := fixture.Metric(t, g, "tenantry_decoded_bytes"); n < 3*800_000 || n > 3<<20 {
		t.Errorf("%d bytes are reserved, want 2,400,000 to 3 MiB", n)
	}
	if n := fixture.Metric(t, g, "tenantry_bodies_bytes"); n != 0 {
		t.Errorf("%d bytes of bodies that were read, want 0", n)
	}
	free()
	for range 3 {
		if a := <-answers; a.Code != http.StatusOK {
			t.Errorf("under way: got %d %.200s, want 200", a.Code, a.Text())
		}
	}
	if a := fixture.PostJSON(t, other, others, "/api/contacts/bulk", large); a.Code != http.StatusOK {
		t.Errorf("another organization: got %d %.200s, want 200", a.Code, a.Text())
	}
	fixture.Await(t, "nothing is reserved any more", func() bool { return fixture.Metric(t, g, "tenantry_decoded_bytes") == 0 })
}
