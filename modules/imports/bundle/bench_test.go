package bundle

import (
	"bytes"
	"fmt"
	"strconv"
	"testing"
)

// contactBundle returns n contacts with what contacts usually have.
func contactBundle(n int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"kind":"contact_field","key":"plan","title":"Plan","type":"Select"}` + "\n")
	b.WriteString(`{"kind":"contact_field","key":"age","title":"Age","type":"Number"}` + "\n")
	countries := []string{"DE", "FR", "US", "JP", "BR"}
	for i := range n {
		fmt.Fprintf(&b, `{"kind":"contact","id":"%024x","email":"person%d@example.com","first_name":"First%d","last_name":"Last%d","phone":"+49 30 %d",`+
			`"country":"%s","city":"City %d","status":"active","tags":["t%d","all"],"fields":{"plan":"gold","age":%d},"external_id":"c-%d"}`+"\n",
			i+1, i, i%977, i%4999, 100000+i, countries[i%len(countries)], i%300, i%20, i%90, i)
	}
	return b.Bytes()
}

func BenchmarkImportContacts(b *testing.B) {
	const n = 20_000
	w := newWorld(b)
	src := BytesSource(contactBundle(n))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		org := w.org("org" + strconv.Itoa(i))
		b.StartTimer()
		r, err := w.service.Import(b.Context(), org, src, ImportOptions{})
		if err != nil || r.Kinds[kindContact].Created != n {
			b.Fatalf("got %+v %v, want no error and r.Kinds[kindContact].Created = %v", r, err, n)
		}
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "contacts/s")
}

func BenchmarkImportContactsAgain(b *testing.B) {
	const n = 20_000
	w := newWorld(b)
	src := BytesSource(contactBundle(n))
	org := w.org("acme")
	if _, err := w.service.Import(b.Context(), org, src, ImportOptions{}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		r, err := w.service.Import(b.Context(), org, src, ImportOptions{})
		if err != nil || r.Kinds[kindContact].Unchanged != n {
			b.Fatalf("got %+v %v, want no error and r.Kinds[kindContact].Unchanged = %v", r, err, n)
		}
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "contacts/s")
}

func BenchmarkCheckContacts(b *testing.B) {
	const n = 20_000
	w := newWorld(b)
	src := BytesSource(contactBundle(n))
	org := w.org("acme")
	b.ReportAllocs()
	for b.Loop() {
		if r, err := w.service.Import(b.Context(), org, src, ImportOptions{DryRun: true}); err != nil || r.Created == 0 {
			b.Fatalf("got %+v %v, want no error and r.Created > 0", r, err)
		}
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "contacts/s")
}
