package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/driver"
)

func people() *driver.Collection {
	return &driver.Collection{Name: "people", Fields: []driver.Field{
		{Name: "email", Type: driver.String}, {Name: "name", Type: driver.String},
		{Name: "country", Type: driver.String}, {Name: "city", Type: driver.String},
		{Name: "status", Type: driver.String}, {Name: "age", Type: driver.Int},
		{Name: "created", Type: driver.Time}, {Name: "teams", Type: driver.Strings},
	}, Indexes: []driver.Index{
		{Name: "email", Fields: []string{"email"}, Unique: true}, {Name: "name", Fields: []string{"name"}},
		{Name: "country", Fields: []string{"country", "status", "teams"}}, {Name: "city", Fields: []string{"city"}},
		{Name: "status", Fields: []string{"status", "created"}}, {Name: "created", Fields: []string{"created"}},
	}}
}

func person(c *driver.Collection, i int) driver.Write {
	country := []string{"DE", "FR", "US", "JP", "BR"}[i%5]
	status := []string{"active", "new", "gone"}[i%3]
	values := []any{
		fmt.Sprintf("p%07d@example.org", i), fmt.Sprintf("Person %d", i*7919%1000003), country,
		fmt.Sprintf("City %d", i*31%997), status, int64(i % 90), 1_700_000_000_000 + int64(i)*1000, []string{"red"},
	}
	body := map[string]any{"id": fmt.Sprintf("%024x", i)}
	for j, v := range values {
		body[c.Fields[j].Name] = v
	}
	b, _ := json.Marshal(body)
	custom := fmt.Appendf(nil, `{"plan":"gold","score":%d}`, i%100)
	return driver.Write{Collection: c, Doc: driver.Document{ID: fmt.Sprintf("%024x", i), Body: b, Custom: custom, Values: values}}
}

func benchWorkspace(b *testing.B, opts Options, c *driver.Collection, n int) (*Engine, driver.Workspace) {
	b.Helper()
	opts.Dir = b.TempDir()
	e, err := Open(context.Background(), opts)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = e.Close() })
	ws, err := e.Open(context.Background(), driver.Opening{Workspace: "bench", Collections: []*driver.Collection{c}})
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; i < n; {
		batch := make([]driver.Write, 0, 1000)
		for ; len(batch) < 1000 && i < n; i++ {
			batch = append(batch, person(c, i))
		}
		if err := ws.Write(context.Background(), batch); err != nil {
			b.Fatal(err)
		}
	}
	return e, ws
}

func BenchmarkInsert1000(b *testing.B) {
	c := people()
	_, ws := benchWorkspace(b, Options{}, c, 0)
	i := 0
	for b.Loop() {
		b.StopTimer()
		batch := make([]driver.Write, 1000)
		for j := range batch {
			batch[j] = person(c, i)
			i++
		}
		b.StartTimer()
		if err := ws.Write(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(i)/b.Elapsed().Seconds(), "docs/s")
}

func BenchmarkWriteOne(b *testing.B) {
	c := people()
	_, ws := benchWorkspace(b, Options{}, c, 0)
	var n atomic.Int64
	b.SetParallelism(16)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := ws.Write(b.Context(), []driver.Write{person(c, int(n.Add(1)))}); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkReadByID(b *testing.B) {
	const n = 20_000
	for _, mode := range []struct {
		name    string
		opts    Options
		writing bool
	}{
		{"held", Options{}, false},
		{"each", Options{noSnapshots: true}, false},
		{"held-writing", Options{}, true},
		{"each-writing", Options{noSnapshots: true}, true},
	} {
		b.Run(mode.name, func(b *testing.B) {
			c := people()
			_, ws := benchWorkspace(b, mode.opts, c, n)
			stop := make(chan struct{})
			if mode.writing {
				go func() {
					for i := n; ; i++ {
						select {
						case <-stop:
							return
						case <-time.After(time.Millisecond):
							_ = ws.Write(context.Background(), []driver.Write{person(c, i)})
						}
					}
				}()
			}
			defer close(stop)
			b.ReportAllocs()
			b.ResetTimer()
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					q := driver.Query{Collection: c, Limit: 1, Where: onField("id", driver.Eq, fmt.Sprintf("%024x", rand.IntN(n)))}
					if docs, err := ws.Find(b.Context(), q); err != nil || len(docs) != 1 {
						b.Errorf("Find = %d documents, %v; want 1", len(docs), err)
						return
					}
				}
			})
		})
	}
}

func BenchmarkQueries(b *testing.B) {
	c := people()
	_, ws := benchWorkspace(b, Options{}, c, 100_000)
	eq := func(name string, v any) driver.Predicate {
		return driver.Predicate{Op: driver.Eq, Ref: driver.Ref{Name: name, Type: driver.String}, Values: []any{v}}
	}
	scoped := driver.Predicate{Op: driver.Or, Kids: []driver.Predicate{
		{Op: driver.Exists, Ref: driver.Ref{Name: "teams", Type: driver.Strings}, Values: []any{false}},
		{Op: driver.In, Ref: driver.Ref{Name: "teams", Type: driver.Strings}, Values: []any{"red", "blue"}},
	}}
	for _, q := range []struct {
		name  string
		where driver.Predicate
	}{
		{"two", driver.Predicate{Kids: []driver.Predicate{eq("country", "DE"), eq("status", "active")}}},
		{"scoped", driver.Predicate{Kids: []driver.Predicate{eq("country", "DE"), eq("status", "active"), scoped}}},
		{"crossing", driver.Predicate{Kids: []driver.Predicate{eq("country", "DE"), eq("city", "City 5")}}},
		{"custom", driver.Predicate{Op: driver.Eq, Ref: driver.Ref{Name: "plan", Custom: true}, Values: []any{"gold"}}},
	} {
		b.Run("count-"+q.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := ws.Count(b.Context(), c, q.where); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("page", func(b *testing.B) {
		for b.Loop() {
			sort := []driver.Order{{Ref: driver.Ref{Name: "status"}}}
			docs, err := ws.Find(b.Context(), driver.Query{Collection: c, Where: eq("country", "DE"), Limit: 50, Sort: sort})
			if err != nil || len(docs) != 50 {
				b.Fatalf("Find = %d documents, %v; want 50", len(docs), err)
			}
		}
	})
}

// BenchmarkCreate measures concurrent inserts without a meter, with one, and with a quota.
func BenchmarkCreate(b *testing.B) {
	for _, kind := range []struct {
		name  string
		write func(*workspace, context.Context, []driver.Write) error
	}{
		{"plain", (*workspace).Write},
		{"counted", func(w *workspace, ctx context.Context, writes []driver.Write) error {
			return w.WriteWithin(ctx, writes, driver.Quota{})
		}},
		{"quota", func(w *workspace, ctx context.Context, writes []driver.Write) error {
			return w.WriteWithin(ctx, writes, driver.Quota{Documents: 1 << 40, Bytes: 1 << 50})
		}},
	} {
		b.Run(kind.name, func(b *testing.B) {
			c := people()
			_, opened := benchWorkspace(b, Options{Shared: true}, c, 0)
			w := opened.(*workspace)
			var i atomic.Int64
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := kind.write(w, b.Context(), []driver.Write{person(c, int(i.Add(1)))}); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
