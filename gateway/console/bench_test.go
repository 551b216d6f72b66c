package console_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"tenantry/gateway/control"
	"tenantry/gateway/demo"
	"tenantry/gateway/gatewaytest"
)

// BenchmarkPages makes pages of a large organization: the data of the demo, 10,000 contacts (100,000 with
// TENANTRY_TEST_LONG), and a folder of 10,000 files.
func BenchmarkPages(b *testing.B) {
	contacts := 10_000
	if os.Getenv("TENANTRY_TEST_LONG") != "" {
		contacts = 100_000
	}
	g := gatewaytest.Start(b)
	acme := g.Org(b, "acme")
	const folder = "67f000000000000000000001"
	var bundle bytes.Buffer
	if err := demo.WriteBundle(&bundle, time.Now()); err != nil {
		b.Fatal(err)
	}
	lines := append(strings.Split(strings.TrimSpace(bundle.String()), "\n"), fmt.Sprintf(`{"kind":"folder","id":%q,"name":"Much"}`, folder))
	for i := range contacts {
		lines = append(lines, fmt.Sprintf(`{"kind":"contact","id":"67a%021d","first_name":"Mila","last_name":"Person %d","email":"mila.%d@mail.example","city":"Bonn","country":"DE","status":"active"}`, i, i, i))
	}
	for i := range 10_000 {
		lines = append(lines, fmt.Sprintf(`{"kind":"file","id":"67b%021d","filename":"file-%d.pdf","mimetype":"application/pdf","hash":"%032d","folder_id":%q}`, i, i, i, folder))
	}
	acme.Import(b, lines...)
	if err := g.App.PutUsage(b.Context(), "acme", demo.Usage(time.Now())); err != nil {
		b.Fatal(err)
	}
	root, cookie := acme.Person(b, "root@example.com", func(n *control.NewUser) { n.Roles = []string{"admin"} })
	shared, ok := acme.Do(b, http.MethodGet, "/api/custom-reports/"+demo.PlainReportID, gatewaytest.Cookie(cookie)).Field("share_url").(string)
	if !ok {
		b.Fatal("the report has no address")
	}
	shared = shared[strings.Index(shared, "/shared/"):]
	report := "/custom-reports/" + demo.PlainReportID
	for name, path := range map[string]string{
		"overview": "/", "contacts": "/contacts", "common": "/contacts?q=mila", "rare": "/contacts?q=mila.77%40", "find": "/find?q=mila", "none": "/find?q=nobodyhasit", "files": "/files", "folder": "/files/folders/" + folder,
		"contact": "/contacts/66a000000000000000000001", "create": "/do/contacts.create", "objects": "/custom/objects", "records": "/custom/objects/bike/records", "form": "/form/collections/66b000000000000000000001",
		"reports": "/custom-reports", "report": report, "run": report + "/run", "shares": report + "/shares", "shared": shared, "campaign": "/campaigns/" + demo.CampaignID,
		"users": "/users", "user": fmt.Sprint("/users/", root.ID), "keys": "/keys", "explain": "/authz/explain", "compliance": "/compliance/contacts", "audit": "/audit", "usage": "/usage", "imports": "/import", "me": "/me", "reference": "/docs",
	} {
		b.Run(name, func(b *testing.B) {
			size, before := 0, processor(b)
			for b.Loop() {
				a := acme.Page(b, path, gatewaytest.Cookie(cookie))
				if size = len(a.Body); strings.Contains(name, "rare") && !strings.Contains(a.Text(), "1 entry") || a.Code != 200 {
					b.Fatalf("%d %s", a.Code, a.Text())
				}
			}
			b.ReportMetric(float64(size), "B/page")
			b.ReportMetric(float64(processor(b)-before)/float64(b.N)/1e6, "cpu-ms/page") // of the whole process
		})
	}
}

// BenchmarkOverview makes the overview of an organization with 8,000 reports, half of which are open to everybody with
// their address.
func BenchmarkOverview(b *testing.B) {
	g := gatewaytest.Start(b)
	acme := g.Org(b, "acme")
	lines := make([]string, 8000)
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"kind":"custom_report","id":"67c%021d","pid":"report-%016d","title":"Contacts by country %d","class":"Contacts","secure":%t,"query":{"group_by":[{"field":"country"}],"measures":[{"op":"count"}]},"visual":"bar"}`, i, i, i, i%2 == 0)
	}
	acme.Import(b, lines...)
	_, cookie := acme.Person(b, "root@example.com", func(n *control.NewUser) { n.Roles = []string{"admin"} })
	b.ReportAllocs()
	before := processor(b)
	for b.Loop() {
		if a := acme.Page(b, "/", gatewaytest.Cookie(cookie)); a.Code != 200 || !strings.Contains(a.Text(), "3,988 more of the custom reports") {
			b.Fatalf("%d %s", a.Code, a.Text())
		}
	}
	b.ReportMetric(float64(processor(b)-before)/float64(b.N)/1e6, "cpu-ms/page")
}

// processor returns the CPU time of the process.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
