package console_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
)

// BenchmarkPages makes pages of an organization with much in it: with TENANTRY_TEST_LONG 100,000 contacts, else a tenth, and a folder
// of 10,000 files.
func BenchmarkPages(b *testing.B) {
	contacts := 10_000
	if os.Getenv("TENANTRY_TEST_LONG") != "" {
		contacts = 100_000
	}
	g := gatewaytest.Start(b)
	acme := g.Org(b, "acme")
	const folder = "66f000000000000000000001"
	lines := []string{fmt.Sprintf(`{"kind":"folder","id":%q,"name":"Much"}`, folder)}
	for i := range contacts {
		lines = append(lines, fmt.Sprintf(`{"kind":"contact","id":"66a%021d","first_name":"Mila","last_name":"Person %d","email":"mila.%d@mail.example","city":"Bonn","country":"DE","status":"active"}`, i, i, i))
	}
	for i := range 10_000 {
		lines = append(lines, fmt.Sprintf(`{"kind":"file","id":"66b%021d","filename":"file-%d.pdf","mimetype":"application/pdf","hash":"%032d","folder_id":%q}`, i, i, i, folder))
	}
	acme.Import(b, lines...)
	_, cookie := acme.Person(b, "root@example.com", func(n *control.NewUser) { n.Roles = []string{"admin"} })
	for name, path := range map[string]string{
		"overview": "/", "contacts": "/contacts", "common": "/contacts?q=mila", "rare": "/contacts?q=mila.77%40", "find": "/find?q=mila", "none": "/find?q=nobodyhasit", "files": "/files", "folder": "/files/folders/" + folder,
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
			b.ReportMetric(float64(processor(b)-before)/float64(b.N)/1e6, "cpu-ms/page") // with what else the process did
		})
	}
}

// processor returns how long the process has had a processor.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
