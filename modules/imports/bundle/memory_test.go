package bundle

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/record"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
)

func object(name string, fields int) string {
	var schema strings.Builder
	for i := range fields {
		fmt.Fprintf(&schema, `,"f%d":{"title":"F","type":"Text"}`, i)
	}
	return fmt.Sprintf(`{"kind":"custom_object","name":"%s","label":"%[1]s","label_plural":"%[1]s %[1]s","schema":{%s}}`+"\n", name, schema.String()[1:])
}

// TestDefinitionsAreBounded: those of the file and those that the organization has take no more memory together than
// they may, of an import that is Bounded; with others the operator decides.
func TestDefinitionsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.service.defined = 90 << 10
	acme, other := w.org("acme"), w.org("other")
	for name, c := range map[string]struct {
		bundle string
		good   bool
	}{
		"few": {object("a", 100), true}, "many": {object("a", 100) + object("b", 100) + object("c", 100), false},
	} {
		_, err := w.load(acme, c.bundle, ImportOptions{Bounded: true, DryRun: true})
		if errors.Is(err, ErrTooMany) == c.good || !c.good && !strings.Contains(err.Error(), "with definitions") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := w.load(acme, c.bundle, ImportOptions{DryRun: true}); err != nil {
			t.Errorf("%s, by the operator: %v", name, err)
		}
	}
	for _, name := range []string{"d", "e", "f", "g", "h", "i"} {
		w.mustLoad(other, object(name, 100))
	}
	if _, err := w.load(other, object("a", 100), ImportOptions{Bounded: true, DryRun: true}); !errors.Is(err, ErrTooMany) {
		t.Errorf("beside those that are there: %v", err)
	}
}

// TestWhatIsRememberedIsBounded: identifiers, unique values and references of lines take no more memory than they may,
// of an import that is Bounded.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	lines := func(format string) string {
		var out strings.Builder
		for i := range 100 {
			fmt.Fprintf(&out, format+"\n", i)
		}
		return out.String()
	}
	for name, c := range map[string]struct {
		bundle string
		each   int64 // of a line
	}{
		"a unique value": {lines(`{"kind":"contact","external_id":"x%d"}`), claimMemory},
		"an identifier":  {lines(`{"kind":"contact","id":"%024x"}`), claimMemory},
		"content":        {lines(`{"kind":"contact","city":"c%d"}`), claimMemory},
		"a reference":    {lines(`{"kind":"file","filename":"%d","mimetype":"a/b","contact_id":"0000000000000000000000b1"}`), claimMemory + edgeMemory},
		"a folder":       {lines(`{"kind":"folder","name":"f%d"}`), claimMemory + locationMemory},
	} {
		for over, most := range map[bool]int64{false: 100 * c.each, true: 100*c.each - 1} {
			w.service.remembered = most
			if _, err := w.load(acme, c.bundle, ImportOptions{Bounded: true, DryRun: true}); errors.Is(err, ErrTooMany) != over {
				t.Errorf("%s, %d bytes: %v", name, most, err)
			}
		}
		w.service.remembered = 1
		if _, err := w.load(acme, c.bundle, ImportOptions{DryRun: true}); errors.Is(err, ErrTooMany) {
			t.Errorf("%s, by the operator: %v", name, err)
		}
	}
}

// TestLinesOfManyValues: a line that would take many times its length in memory is refused, a definition too.
func TestLinesOfManyValues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	many := "[" + strings.Repeat("[],", strictjson.MaxValues) + "[]]"
	var bundle strings.Builder
	for i := range 8 {
		fmt.Fprintf(&bundle, `{"kind":"%s","name":"a%d","schema":%s}`+"\n", [...]string{"custom_object", "record"}[i%2], i, many)
	}
	r, err := w.load(acme, bundle.String(), ImportOptions{})
	if err == nil || r.Failed != 8 || !strings.Contains(r.Problems[7].String(), fmt.Sprintf("has more than %d values, at byte", strictjson.MaxValues)) {
		t.Errorf("got %v %v, want an error and r.Failed = 8", err, r.Problems)
	}
}

// ahead is a feed of lines that take 5 MiB each.
type ahead struct {
	Feed
	t             *testing.T
	read, visited atomic.Int64
}

func (a *ahead) Size() int64           { return 0 }
func (a *ahead) Open() (Reader, error) { return a, nil }
func (a *ahead) Offset() int64         { return 0 }
func (a *ahead) Close() error          { return nil }

func (a *ahead) Next() (Raw, error) {
	// One is visited, one waits for room.
	n := a.read.Add(1)
	if under := n - a.visited.Load(); under > pumpMemory/(5<<20)+2 {
		a.t.Errorf("%d lines are under way", under)
	}
	if n > 12 {
		return Raw{}, io.EOF
	}
	return Raw{Number: int(n), Text: "x", memory: 5 << 20}, nil
}

func (a *ahead) Line(*strictjson.Parser, Raw) (Line, bool) { return Line{}, false }

// TestPump_Memory: lines that take much are not read far ahead of those that are visited.
func TestPump_Memory(t *testing.T) {
	t.Parallel()
	s := &session{most: 100}
	f := &ahead{t: t}
	err := s.pump(t.Context(), f, PhaseChecking, func(int) interest { return decode }, func(c *chunk) error {
		for range 100 {
			runtime.Gosched() // to those who read
		}
		time.Sleep(time.Millisecond) // as what is compared takes; without it nothing else would come of it
		f.visited.Add(int64(len(c.lines)))
		return nil
	})
	if err != nil || f.visited.Load() != 12 {
		t.Errorf("%d visited, %v", f.visited.Load(), err)
	}
}

// TestQueue: what waits is taken by its number, and all of it where it takes much memory.
func TestQueue(t *testing.T) {
	t.Parallel()
	kinds := []*kind{{Resource: &record.Resource{}}, {Resource: &record.Resource{}}}
	kinds[0].Name, kinds[1].Name = "a", "b"
	q := queue{of: map[string][]*entry{}}
	for i := range batchSize {
		if full := q.add(&entry{kind: kinds[0], size: 1}, kinds); (len(full) == 1) != (i == batchSize-1) {
			t.Fatalf("%d lines: %d kinds", i+1, len(full))
		}
	}
	if n := len(q.take("a")); n != batchSize || q.memory != 0 {
		t.Errorf("%d lines are taken, %d bytes remain", n, q.memory)
	}
	for i, want := range []int{0, 2} {
		if full := q.add(&entry{kind: kinds[i], size: batchMemory / 2}, kinds); len(full) != want {
			t.Errorf("%d large lines: %d kinds", i+1, len(full))
		}
	}
}

// TestRawSize: an empty cell takes memory too.
func TestRawSize(t *testing.T) {
	t.Parallel()
	if r := (Raw{Cells: make([]string, 1000)}); r.size() < 1000*100 {
		t.Errorf("1,000 empty cells: %d", r.size())
	}
	if r := (Raw{Text: "[" + strings.Repeat("[],", 999) + "[]]"}); r.size() < 1000*100 {
		t.Errorf("1,000 empty lists: %d", r.size())
	}
}

// TestProblemsOfALineAreBounded: of a line a report says a few things, and keeps nothing of the line.
func TestProblemsOfALineAreBounded(t *testing.T) {
	t.Parallel()
	var errs fault.List
	for range 100 {
		errs.Add("field", fault.Length, "%s", strings.Repeat("x", 500))
	}
	tally := newTally()
	tally.problem(1, "contact", errs)
	tally.warn(2, "contact", errs)
	r := tally.report()
	if n := len(r.Problems[0].Errors); n < 5 || n > maxFaultBytes/500 {
		t.Errorf("%d faults of a line", n)
	}
	if n := len(r.Warnings[0].Errors); n > maxFaultBytes/500 {
		t.Errorf("%d doubts of a line", n)
	}
}
