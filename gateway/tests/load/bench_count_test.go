package load

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"tenantry/gateway/gatewaytest"
	"tenantry/modules/imports/bundle"
)

// countSizes are the numbers of contacts; the million takes about a minute to store.
func countSizes() []int {
	if os.Getenv("TENANTRY_TEST_LONG") != "" {
		return []int{100_000, 1_000_000}
	}
	return []int{100_000}
}

// BenchmarkCampaignCount counts contacts by two conditions. sql is the same count in hand-written SQL on the same file
// and indexes; of-sql is the ratio of the gateway's time, including HTTP.
func BenchmarkCampaignCount(b *testing.B) {
	for _, size := range countSizes() {
		g := gatewaytest.Start(b, quiet, gatewaytest.OwnFiles)
		acme := g.Org(b, "acme")
		fillContacts(b, acme, size)
		key := acme.Key(b)
		db := openFile(b, filepath.Join(g.Config.Data, "db", "org-1.db"))
		for _, c := range []struct{ name, query, sql string }{
			{"country and status", "filters[country]=DE&filters[status]=active",
				`SELECT count(*) FROM "c:contacts" WHERE f_country = 'DE' AND f_status = 'active'`},
			{"city and country", "filters[city]=City+17&filters[country]=DE",
				`SELECT count(*) FROM "c:contacts" WHERE f_city = 'City 17' AND f_country = 'DE'`},
			{"status and time", "filters[status]=active&filters[created_at][gte]=2024-06-01",
				`SELECT count(*) FROM "c:contacts" WHERE f_status = 'active' AND f_created_at >= 1717200000000`},
			{"first name and status", "filters[first_name]=First+7&filters[status]=active",
				`SELECT count(*) FROM "c:contacts" WHERE f_first_name = 'First 7' AND f_status = 'active'`},
		} {
			path := "/api/campaigns/count?" + c.query
			b.Run(fmt.Sprintf("%d/%s", size, c.name), func(b *testing.B) {
				compareCount(b, acme, key, path, db, c.sql)
			})
		}
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// compareCount takes turns, so that changes in the machine's speed affect both.
func compareCount(b *testing.B, o *gatewaytest.Org, key, path string, db *sqlite.Conn, query string) {
	want := countSQL(b, db, query)
	answer := o.Get(b, key, path)
	if got, _ := answer.Field("count").(json.Number); answer.Code != http.StatusOK || got.String() != fmt.Sprint(want) || want == 0 {
		b.Fatalf("%s answers %s, by hand %d", path, answer.Text(), want)
	}
	conn, err := net.Dial("tcp", o.App.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	request := fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\nX-Service-Token: %s\r\n\r\n", path, o.Host, key)
	var own, reference time.Duration
	for b.Loop() {
		began := time.Now()
		if _, err := conn.Write(request); err != nil {
			b.Fatal(err)
		}
		if err := skipAnswer(r); err != nil {
			b.Fatal(err)
		}
		own += time.Since(began)
		began = time.Now()
		countSQL(b, db, query)
		reference += time.Since(began)
	}
	n := float64(b.N)
	b.ReportMetric(float64(own.Microseconds())/n, "us/gateway")
	b.ReportMetric(float64(reference.Microseconds())/n, "us/sql")
	b.ReportMetric(own.Seconds()/reference.Seconds(), "of-sql")
}

func countSQL(b *testing.B, db *sqlite.Conn, query string) (n int64) {
	err := sqlitex.Execute(db, query, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
		n = stmt.ColumnInt64(0)
		return nil
	}})
	if err != nil {
		b.Fatal(err)
	}
	return n
}

func openFile(b *testing.B, path string) *sqlite.Conn {
	db, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		b.Fatal(err)
	}
	return db
}

// fillContacts imports generated contacts.
func fillContacts(b *testing.B, o *gatewaytest.Org, n int) {
	path := filepath.Join(b.TempDir(), "contacts.ndjson")
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	w := bufio.NewWriter(f)
	countries, states := []string{"DE", "FR", "US", "JP", "BR"}, []string{"active", "new", "gone"}
	for i := range n {
		fmt.Fprintf(w, `{"kind":"contact","id":"%024x","email":"p%d@example.com","first_name":"First %d","last_name":"Last %d","country":"%s","city":"City %d","status":"%s","phone":"+49%09d"}`+"\n",
			i+1, i*7919%n, i%1009, i%10_007, countries[i%5], i%997, states[i%3], i)
	}
	if err := errors.Join(w.Flush(), f.Close()); err != nil {
		b.Fatal(err)
	}
	source, err := bundle.FileSource(path)
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	report, err := o.App.Transfer().Import(b.Context(), o.Tenant(b), source, bundle.ImportOptions{})
	if err != nil || report.Created != n {
		b.Fatalf("importing: %v %+v", err, report)
	}
	b.Logf("imported %d contacts, %.0f a second", n, float64(n)/time.Since(began).Seconds())
}
