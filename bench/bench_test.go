package main

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"
)

func TestReadResult(t *testing.T) {
	t.Parallel()
	const told = "Running 3s test @ http://127.0.0.1:1\n  1 threads and 32 connections\nRequests/sec: 1.00\n"
	got, err := readResult([]byte(told + "\nresult {\"requests\": 300, \"seconds\": 1.5, \"median\": 12.5, \"refused\": 2, \"broken\": 1}\n"))
	if want := (result{Requests: 300, Seconds: 1.5, Median: 12.5, Refused: 2, Broken: 1}); err != nil || got != want || got.rate() != 200 {
		t.Errorf("readResult = %+v, %v, want %+v", got, err, want)
	}
	for _, output := range []string{"", told, told + "\nresult {", told + "\nresult {\"requests\": 0, \"seconds\": 3}\n"} {
		if r, err := readResult([]byte(output)); err == nil {
			t.Errorf("readResult(%q) = %+v, want an error", output, r)
		}
	}
}

func TestSumOf(t *testing.T) {
	t.Parallel()
	const metrics = "# HELP a_total of a\na_total{code=\"200\",status=\"ok\"} 3\na_total{code=\"200\",status=\"failed\"} 2\na_total{code=\"403\",status=\"failed\"} 1e+03\na_total_other{status=\"failed\"} 7\nb 5\n"
	for _, c := range []struct {
		metric string
		labels []string
		want   float64
	}{{"a_total", []string{`status="failed"`}, 1002}, {"a_total", []string{`code="200"`, `status="failed"`}, 2}, {"b", nil, 5}, {"c", nil, 0}} {
		if got, err := sumOf(metrics, c.metric, c.labels...); err != nil || got != c.want {
			t.Errorf("sumOf(%s, %s) = %g, %v, want %g", c.metric, c.labels, got, err, c.want)
		}
	}
}

// TestHeapOf reads a profile of the runtime, because its format is not guaranteed.
func TestHeapOf(t *testing.T) {
	t.Parallel()
	held := make([]byte, 1<<20)
	var profile strings.Builder
	if err := pprof.Lookup("heap").WriteTo(&profile, 1); err != nil {
		t.Fatal(err)
	}
	if got, err := heapOf(profile.String()); err != nil || got < float64(len(held)) || got > 1<<40 {
		t.Errorf("heapOf = %g, %v, want at least %d", got, err, len(held))
	}
	if got, err := heapOf("heap profile"); err == nil {
		t.Errorf("heapOf of an empty profile = %g, want an error", got)
	}
	runtime.KeepAlive(held)
}

func TestMarkdown(t *testing.T) {
	t.Parallel()
	at := func(rates ...float64) (results []result) {
		for _, rate := range rates {
			results = append(results, result{Requests: rate * 2, Seconds: 2, Median: 1500, cpu: time.Duration(rate) * 100 * time.Microsecond})
		}
		return results
	}
	var got table
	l := line{name: "x", what: "a|b", connections: 32, references: []reference{{name: "PocketBase", goal: "2", from: place(nil).get()}, {name: "one", connections: 1, from: place(nil).get()}}}
	got.add(l, [][]result{at(1000, 3000, 2000), at(500, 1000, 2000), {{Requests: 10, Seconds: 1, Refused: 1}}})
	got.add(line{name: "y", connections: 1}, [][]result{at(50)})
	got.facts = []fact{{"size", "40 KB", "1"}}
	text := got.markdown("two processors.", "`go run`.")
	for _, want := range []string{
		"Two processors.\n",
		`| x | a\|b | 32 | 2,000 | 1.50 | 50.0 | PocketBase | 1,000 | 1.50 | 50.0 | **2.00** | 1.00 to 3.00 | 2 |`,
		`| 32 / 1 | 2,000 | 1.50 | 50.0 | one | 10.0 (1 failed) | 0.00 |  | **100.00** |`,
		"| y |  | 1 | 50.0 |", "| size | 40 KB | 1 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("got\n%s\nwant it to contain %q", text, want)
		}
	}
	for row := range strings.Lines(text) {
		if cells := strings.Count(strings.ReplaceAll(row, `\|`, ""), "|"); cells != 0 && cells != 14 && cells != 4 {
			t.Errorf("got %d bars in %q, want 14 or 4", cells, row)
		}
	}
	path := filepath.Join(t.TempDir(), "benchmarks.md")
	if err := os.WriteFile(path, []byte("before\n"+begin+"old\n"+end+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := replace(path, text); err != nil {
		t.Fatal(err)
	}
	if now, err := os.ReadFile(path); err != nil || string(now) != "before\n"+text+"after\n" {
		t.Errorf("file = %q, %v, want the new table between before and after", now, err)
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		of   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 4}, 4}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(c.of); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("median(%v) = %g, want %g", c.of, got, c.want)
		}
	}
}

// TestRivals checks that the bare Gin has Tenantry's version of Gin, so that only the program differs.
func TestRivals(t *testing.T) {
	t.Parallel()
	version := func(path string) string {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(`github.com/gin-gonic/gin \S+`).FindString(string(raw))
	}
	if ours, theirs := version("../go.mod"), version("rivals/go.mod"); ours == "" || ours != theirs {
		t.Errorf("the rivals use %q, want %q as Tenantry", theirs, ours)
	}
}
