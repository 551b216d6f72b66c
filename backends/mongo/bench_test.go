package mongo_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"tenantry/backends/driver"
)

func filled(b *testing.B, n int) (driver.Workspace, *driver.Collection) {
	b.Helper()
	c := people()
	_, ws := opened(b, nil, c)
	for i := 0; i < n; {
		batch := make([]driver.Write, 0, 1000)
		for ; len(batch) < 1000 && i < n; i++ {
			batch = append(batch, person(c, i))
		}
		if err := ws.Write(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	return ws, c
}

func BenchmarkFindByID(b *testing.B) {
	const n = 1000
	ws, c := filled(b, n)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		docs, err := ws.Find(b.Context(), driver.Query{Collection: c, Limit: 1, Where: eq("id", fmt.Sprintf("%024x", i%n))})
		if err != nil || len(docs) != 1 {
			b.Fatalf("got %v, %v, want no error and len(docs) = 1", len(docs), err)
		}
	}
}

func BenchmarkFind50(b *testing.B) {
	ws, c := filled(b, 200)
	b.ReportAllocs()
	for b.Loop() {
		docs, err := ws.Find(b.Context(), driver.Query{Collection: c, Limit: 50, Where: eq("country", "DE"), Sort: []driver.Order{{Ref: driver.Ref{Name: "created"}}}})
		if err != nil || len(docs) != 50 {
			b.Fatalf("got %v, %v, want no error and len(docs) = 50", len(docs), err)
		}
	}
}

func BenchmarkCount(b *testing.B) {
	ws, c := filled(b, 1000)
	b.ReportAllocs()
	for b.Loop() {
		if n, err := ws.Count(b.Context(), c, eq("country", "DE")); err != nil || n != 334 {
			b.Fatalf("got %v, %v, want no error and n = 334", n, err)
		}
	}
}

func BenchmarkInsert500(b *testing.B) {
	ws, c := filled(b, 0)
	var next atomic.Int64
	b.ReportAllocs()
	for b.Loop() {
		batch := make([]driver.Write, 500)
		for j := range batch {
			batch[j] = person(c, int(next.Add(1)))
		}
		if err := ws.Write(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(next.Load())/b.Elapsed().Seconds(), "docs/s")
}
