package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"tenantry/backends/driver"
	"tenantry/backends/enginetest"
	"tenantry/backends/store"
)

func TestDryRun_ChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	w.mustLoad(acme, base)
	before := w.dump(acme, false)
	r, err := w.load(acme, complete, ImportOptions{DryRun: true})
	if err != nil || !r.DryRun || r.Created != 11 || r.Updated != 4 || r.Unchanged != 4 {
		t.Fatalf("got %v %+v, want no error and r.DryRun and r.Created = 11 and r.Updated = 4 and r.Unchanged = 4", err, r)
	}
	if diff := cmp.Diff(before, w.dump(acme, false)); diff != "" {
		t.Fatalf("difference:\n%s", diff)
	}
}

// TestSameRecord: what tells that a line is a record which is there.
func TestSameRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	w.mustLoad(acme, complete)
	r := w.mustLoad(acme, `{"kind":"contact","external_id":"c-1","city":"Bonn","fields":{"age":37}}
{"kind":"record","object":"tree","external_id":"t-1","values":{"species":"Elm"}}
{"kind":"custom_object","name":"tree","label":"Plant","label_plural":"Plants"}
{"kind":"user","email":"GRACE@example.com","name":"Grace H."}
{"kind":"file","pid":"pub-f1","filename":"new.pdf","mimetype":"application/pdf"}
{"kind":"organization","features":{"teams":false}}
{"kind":"role","name":"reader","permissions":["contacts"]}
{"kind":"contact","id":"0000000000000000000000b9","external_id":"c-9"}
{"kind":"file","id":"0000000000000000000000f9","filename":"a","mimetype":"text/b","contact_id":"0000000000000000000000b9"}
`)
	if r.Updated != 7 || r.Created != 2 {
		t.Fatalf("got %+v, want r.Updated = 7 and r.Created = 2", r)
	}
	out := w.dump(acme, true)
	for _, part := range []string{
		`"city":"Bonn","status":"active","tags":["x","y"],"fields":{"age":37,"plan":"gold","ssn":"123-45-6789"}`,
		`"values":{"code":"secret-tree","height":12.50,"species":"Elm"}`, `"label":"Plant","label_plural":"Plants","schema":{"code"`,
		`"id":7,"name":"Grace H.","email":"GRACE@example.com","roles":["reader","admin"]`, `"filename":"new.pdf"`,
		`"name":"Acme","features":{"teams":false},"settings":{"require`, `"label":"Reader","permissions":["contacts"]`,
	} {
		if !strings.Contains(out, part) {
			t.Errorf("missing %s in\n%s", part, out)
		}
	}
	// The same external_id under another id is the same record, and references follow.
	r = w.mustLoad(acme, `{"kind":"file","id":"0000000000000000000000fa","filename":"c","mimetype":"text/d","contact_id":"0000000000000000000000ba"}
{"kind":"contact","id":"0000000000000000000000ba","external_id":"c-9","city":"Ulm"}`)
	if r.Updated != 1 || r.Created != 1 {
		t.Fatalf("got %+v, want r.Updated = 1 and r.Created = 1", r)
	}
	if out := w.dump(acme, true); strings.Contains(out, "0000000000000000000000ba") || strings.Count(out, `"contact_id":"0000000000000000000000b9"`) != 2 {
		t.Fatalf("the reference does not lead to the contact:\n%s", out)
	}
	_, err := w.load(acme, `{"kind":"contact","id":"0000000000000000000000b1","external_id":"c-9"}`, ImportOptions{})
	if err == nil {
		t.Fatal("one line took the id of one contact and the external_id of another")
	}
}

// TestLinesWithoutIdentity: importing them again changes nothing, and equal lines are
// several records.
func TestLinesWithoutIdentity(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	bundle := base + strings.Repeat(`{"kind":"contact","city":"Ulm","fields":{"ssn":"1"}}`+"\n", 3) +
		`{"kind":"contact", "fields":{"ssn":"2"},"city":"Ulm"}` + "\n" + `{"kind":"folder","name":"x"}` + "\n"
	if r := w.mustLoad(acme, bundle); r.Kinds[kindContact].Created != 4 {
		t.Fatalf("got %+v, want r.Kinds[kindContact].Created = 4", r)
	}
	before := w.dump(acme, true)
	if r := w.mustLoad(acme, bundle); r.Unchanged != r.Lines {
		t.Fatalf("importing again: %+v", r)
	}
	if strings.Count(before, `"ssn":"1"`) != 3 || strings.Count(before, `"ssn":"2"`) != 1 {
		t.Fatalf("the secrets are mixed up:\n%s", before)
	}
	// Part of it is there already: the others still get identifiers of their own.
	other := newWorld(t)
	again := other.org("acme")
	other.mustLoad(again, base+`{"kind":"contact","city":"Ulm","fields":{"ssn":"1"}}`+"\n")
	if r := other.mustLoad(again, bundle); r.Kinds[kindContact].Created != 3 || r.Kinds[kindContact].Unchanged != 1 {
		t.Fatalf("got %+v, want r.Kinds[kindContact].Created = 3 and r.Kinds[kindContact].Unchanged = 1", r)
	}
}

// An identifier made from content must not let anybody who sees it try out secret values.
func TestLinesWithoutIdentity_SecretsAreNotPartOfTheIdentifier(t *testing.T) {
	t.Parallel()
	ids := map[string]bool{}
	for _, ssn := range []string{"1", "2"} {
		w := newWorld(t)
		acme := w.org("acme")
		w.mustLoad(acme, base+`{"kind":"contact","city":"Ulm","fields":{"ssn":"`+ssn+`"}}`)
		ids[ofKind(w.dump(acme, false), kindContact)[0][:50]] = true
	}
	if len(ids) != 1 {
		t.Fatalf("identifiers differ: %v", ids)
	}
}

func TestEncryptedValuesOpenOnlyWhereTheyWereMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	w.mustLoad(acme, complete)
	out := w.dump(acme, false)
	if strings.Contains(out, "123-45-6789") || strings.Contains(out, "4321") {
		t.Fatal("an export holds secrets in clear")
	}
	contact := ofKind(out, kindContact)[0]
	if r := w.mustLoad(acme, contact); r.Unchanged != 1 {
		t.Fatalf("got %+v, want r.Unchanged = 1", r)
	}
	for name, moved := range map[string]string{
		"other record": strings.ReplaceAll(contact, `"0000000000000000000000b1"`, `"0000000000000000000000b5"`),
		"no record":    strings.Replace(contact, `"id":"0000000000000000000000b1",`, ``, 1),
		"other field":  strings.Replace(contact, `"ssn":{`, `"pin":{`, 1),
	} {
		moved = strings.Replace(moved, `"external_id":"c-1"`, `"external_id":"c-2"`, 1)
		r, err := w.load(acme, `{"kind":"contact_field","key":"pin","title":"Pin","type":"Encrypted"}`+"\n"+moved, ImportOptions{})
		if err == nil || len(r.Problems) != 1 || r.Problems[0].Errors[0].Code != "format" {
			t.Errorf(`%s: got %v %+v, want an error and len(r.Problems) = 1 and "format"`, name, err, r)
		}
	}
	other := w.org("other")
	r, err := w.load(other, out, ImportOptions{})
	if err == nil || !strings.Contains(r.Problems[0].String(), "--secrets") {
		t.Fatalf(`got %v %v, want an error and containing "--secrets"`, err, r.Problems)
	}
}

// TestManyReferences: folders and files in the worst order, more of them than wait in memory.
func TestManyReferences(t *testing.T) {
	if testing.Short() {
		t.Skip("it loads thousands of lines")
	}
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	const files, depth = maxPending + 500, 300
	var b strings.Builder
	for i := range files {
		fmt.Fprintf(&b, `{"kind":"file","id":"%024x","pid":"p%d","filename":"f","mimetype":"text/m","folder_id":"%024x"}`+"\n", 1_000_000+i, i, i%depth+1)
	}
	for i := depth; i > 1; i-- {
		fmt.Fprintf(&b, `{"kind":"folder","id":"%024x","name":"f","folder_id":"%024x"}`+"\n", i, i-1)
	}
	b.WriteString(`{"kind":"folder","id":"000000000000000000000001","name":"top"}` + "\n")
	b.WriteString(`{"kind":"custom_report","id":"0000000000000000000000e1","title":"a","class":"Contacts","child_reports":["0000000000000000000000e2"]}
{"kind":"custom_report","id":"0000000000000000000000e2","title":"b","class":"Contacts","child_reports":["0000000000000000000000e1"]}
`)
	r := w.mustLoad(acme, b.String())
	if r.Created != files+depth+2 {
		t.Fatalf("got %+v, want r.Created = %v", r.Counts, files+depth+2)
	}
	if r := w.mustLoad(acme, b.String()); r.Unchanged != files+depth+2 {
		t.Fatalf("importing again: %+v", r.Counts)
	}
}

func TestFolders_CannotMoveIntoTheirOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	folder := func(id, parent string) string {
		return `{"kind":"folder","id":"00000000000000000000000` + id + `","name":"f","folder_id":"00000000000000000000000` + parent + `"}` + "\n"
	}
	w.mustLoad(acme, `{"kind":"folder","id":"000000000000000000000001","name":"f"}`+"\n"+folder("2", "1")+folder("3", "2")+folder("4", "1"))
	for name, bundle := range map[string]string{
		"below itself":         folder("1", "3"),
		"by two moves":         folder("4", "3") + folder("2", "4"),
		"one is in the bundle": folder("2", "1") + folder("1", "3"),
	} {
		if r, err := w.load(acme, bundle, ImportOptions{}); err == nil || r.Problems[0].Errors[0].Code != "forbidden" {
			t.Errorf(`%s: got %v %+v, want an error and "forbidden"`, name, err, r)
		}
	}
	if r := w.mustLoad(acme, folder("3", "4")+folder("2", "3")); r.Updated != 2 {
		t.Errorf("got %+v, want r.Updated = 2", r)
	}
}

func TestUserNumbers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	w.mustLoad(acme, `{"kind":"user","id":41,"name":"A","email":"a@example.com"}
{"kind":"user","name":"B","email":"b@example.com"}
{"kind":"user","name":"C","email":"c@example.com"}`)
	w.mustLoad(acme, `{"kind":"user","name":"D","email":"d@example.com"}`)
	out := strings.Join(ofKind(w.dump(acme, false), kindUser), "")
	for _, part := range []string{`"id":41,"name":"A"`, `"id":42,"name":"B"`, `"id":43,"name":"C"`, `"id":44,"name":"D"`, `"active":true`} {
		if !strings.Contains(out, part) {
			t.Errorf("missing %s in\n%s", part, out)
		}
	}
}

// TestInterrupted: an import that ends early says how much is stored, leaves no
// goroutine, and goes on when it is repeated.
func TestInterrupted(t *testing.T) {
	w := newWorld(t)
	acme := w.org("acme")
	leaks := goleak.IgnoreCurrent()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const total = 10_000
	bundle := contactBundle(total)
	r, err := w.service.Import(ctx, acme, BytesSource(bundle), ImportOptions{Progress: func(p Progress) {
		if p.Phase == PhaseStoring && p.Lines > 0 {
			cancel()
		}
	}})
	var interrupted *InterruptedError
	if !errors.As(err, &interrupted) || !errors.Is(err, context.Canceled) || interrupted.Lines != total+2 {
		t.Fatalf("got %v, want an error of the type of interrupted and the error context.Canceled and interrupted.Lines = %v",
			err, total+2)
	}
	stored, err := w.contacts.Contacts.In(acme.Workspace()).Count(t.Context(), store.Filter{})
	check(t, err)
	if n := r.Kinds[kindContact].Created; int64(n) != stored || n == total {
		t.Fatalf("%d contacts stored, %d reported", stored, n)
	}
	// Engines end these by themselves; what was stored may still be on its way to the counter of a quota.
	goleak.VerifyNone(t, leaks, goleak.IgnoreAnyFunction("zombiezen.com/go/sqlite.(*Conn).SetInterrupt.func1"),
		goleak.IgnoreAnyFunction("tenantry/backends/mongo.(*workspace).addPending"),
		goleak.IgnoreAnyFunction("go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology.(*contextDoneListener).Listen"))
	again := w.mustLoad(acme, string(bundle))
	if again.Created+again.Unchanged != total+2 || again.Unchanged < int(stored) {
		t.Fatalf("got %+v, want again.Created+again.Unchanged = %v and again.Unchanged >= %v",
			again.Counts, total+2, int(stored))
	}
	if w.mustLoad(acme, string(bundle)).Unchanged != total+2 {
		t.Fatal("the bundle is not complete")
	}
}

// TestInterrupted_LeavesNoDanglingReference: whenever an import ends, what is stored
// refers to nothing that is not.
func TestInterrupted_LeavesNoDanglingReference(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	const n = 6000
	for i := range n {
		fmt.Fprintf(&b, `{"kind":"file","id":"%024x","pid":"p%d","filename":"f","mimetype":"text/m","folder_id":"%024x","contact_id":"%024x"}`+"\n", 3*n+i, i, 2*n-i, 4*n+i)
		fmt.Fprintf(&b, `{"kind":"contact","id":"%024x"}`+"\n", 4*n+i)
	}
	for i := n - 1; i >= 0; i-- {
		fmt.Fprintf(&b, `{"kind":"folder","id":"%024x","name":"f","folder_id":"%024x"}`+"\n", n+i+1, n+(i+1)/2)
	}
	fmt.Fprintf(&b, `{"kind":"folder","id":"%024x","name":"top"}`+"\n", n)
	for calls := 1; calls <= 3; calls++ {
		w := newWorld(t)
		acme := w.org("acme")
		ctx, cancel := context.WithCancel(t.Context())
		seen := 0
		_, err := w.service.Import(ctx, acme, BytesSource([]byte(b.String())), ImportOptions{Progress: func(p Progress) {
			if p.Phase == PhaseStoring {
				if seen++; seen == calls {
					cancel()
				}
			}
		}})
		cancel()
		if err == nil {
			continue // it was faster
		}
		there := map[string]bool{}
		out := w.dump(acme, false)
		for line := range strings.Lines(out) {
			there[member24(line, "id")] = true
		}
		for line := range strings.Lines(out) {
			for _, name := range []string{"folder_id", "contact_id"} {
				if id := member24(line, name); id != "" && !there[id] {
					t.Fatalf("%s of a stored line is not there: %s", name, line)
				}
			}
		}
	}
}

func member24(line, name string) string {
	_, rest, found := strings.Cut(line, `"`+name+`":"`)
	if !found || len(rest) < 24 {
		return ""
	}
	return rest[:24]
}

// growing is a source that has changed when it is read again.
type growing struct{ opened int }

func (g *growing) open() (io.ReadCloser, error) {
	g.opened++
	line := `{"kind":"contact","external_id":"x"}`
	if g.opened > 3 { // to see what it is, for the definitions, to check and to store
		line = `{"kind":"contact","external_id":"x","email":"nobody"}`
	}
	return io.NopCloser(strings.NewReader(line)), nil
}

func TestSourceChangesMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	g := &growing{}
	r, err := w.service.Import(t.Context(), acme, Source{Open: g.open}, ImportOptions{})
	var incomplete *IncompleteError
	if !errors.As(err, &incomplete) || r.Failed != 1 || r.Created != 0 {
		t.Fatalf("got %v %+v, want an error of the type of incomplete and r.Failed = 1 and r.Created = 0", err, r)
	}
}

// TestKindAnywhere: programs that sort names put kind behind others.
func TestKindAnywhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	r := w.mustLoad(acme, `{"fields":{"plan":"x"},"kind":"contact"}
{"key":"plan","kind":"contact_field","title":"Plan","type":"Text"}`)
	if r.Kinds[kindContact].Created != 1 || r.Kinds[kindField].Created != 1 {
		t.Fatalf("got %+v, want r.Kinds[kindContact].Created = 1 and r.Kinds[kindField].Created = 1", r)
	}
}

// Others store contacts between the check and the storing of a bundle.
func TestSomebodyElseStoresMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	once := false
	r, err := w.service.Import(t.Context(), acme, BytesSource(contactBundle(5)), ImportOptions{Progress: func(p Progress) {
		if p.Phase == PhaseChecking && !once {
			once = true
			w.mustLoad(acme, `{"kind":"contact","id":"000000000000000000000003","external_id":"other"}
{"kind":"contact","id":"0000000000000000000000f4","external_id":"c-3"}
{"kind":"contact","id":"000000000000000000000002","external_id":"stolen"}
{"kind":"contact","id":"0000000000000000000000f5","external_id":"c-1"}`)
		}
	}})
	c := r.Kinds[kindContact]
	if !once || c.Created+c.Updated+c.Failed != 5 || c.Failed != 1 || c.Updated != 2 {
		t.Fatalf("got %v %+v %v, want once and c.Created+c.Updated+c.Failed = 5 and c.Failed = 1 and c.Updated = 2",
			err, r, r.Problems)
	}
}

func TestStoreUnavailable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	closed := false
	r, err := w.service.Import(t.Context(), acme, BytesSource(contactBundle(10_000)), ImportOptions{Progress: func(p Progress) {
		if p.Phase == PhaseStoring && p.Lines > 0 && !closed {
			closed = true
			_ = w.engine.Close() // the error is the engine's to tell
		}
	}})
	var interrupted *InterruptedError
	if !errors.As(err, &interrupted) || interrupted.Stored != r.Created {
		t.Fatalf("got %v, want an error of the type of interrupted and interrupted.Stored = %v", err, r.Created)
	}
	if !strings.Contains(err.Error(), fmt.Sprintf("%d of 10002 lines stored; import the same file again", r.Created)) {
		t.Fatal(err)
	}
}

// narrow is a store that takes at most so many records together, as a slow one does in the time that a write has.
type narrow struct {
	driver.Engine
	most int
}

type narrowWorkspace struct {
	driver.Workspace
	most int
}

func (n narrow) Open(ctx context.Context, o driver.Opening) (driver.Workspace, error) {
	ws, err := n.Engine.Open(ctx, o)
	return narrowWorkspace{ws, n.most}, err
}

func (n narrowWorkspace) Write(ctx context.Context, writes []driver.Write) error {
	if len(writes) > n.most {
		refused := driver.ErrUnavailable
		if len(writes)%2 > 0 {
			refused = driver.ErrSlow // as an engine says that is still there
		}
		return fmt.Errorf("%d at once: %w", len(writes), refused)
	}
	return n.Workspace.Write(ctx, writes)
}

// TestSlowStore: an import stores fewer records together where the store cannot take as many, and ends where it takes
// hardly any.
func TestSlowStore(t *testing.T) {
	t.Parallel()
	for most, whole := range map[int]bool{70: true, minBatch: true, minBatch - 1: false} {
		w := newWorldOn(t, narrow{enginetest.Open(t), most})
		acme := w.org("acme")
		r, err := w.load(acme, string(contactBundle(2500)), ImportOptions{})
		if whole != (err == nil) || whole != (r.Kinds[kindContact].Created == 2500) {
			t.Fatalf("%d at once: %+v, %v", most, r.Counts, err)
		}
		stored, err := w.contacts.Contacts.In(acme.Workspace()).Count(t.Context(), store.Filter{})
		if check(t, err); stored != int64(r.Kinds[kindContact].Created) {
			t.Errorf("%d at once: %d stored, %d reported", most, stored, r.Kinds[kindContact].Created)
		}
	}
}

func TestProgress_AtMostTenTimesASecond(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	start, calls, last := time.Now(), 0, Progress{}
	bundle := contactBundle(5000)
	r, err := w.service.Import(t.Context(), acme, BytesSource(bundle), ImportOptions{Progress: func(p Progress) {
		calls++
		last = p
		if p.Total != int64(len(bundle)) || p.Bytes > p.Total {
			t.Errorf("got %+v, want p.Total = %v and p.Bytes <= %v", p, int64(len(bundle)), p.Total)
		}
	}})
	check(t, err)
	if most := 6 + int(time.Since(start)/progressInterval); calls > most || calls < 3 {
		t.Errorf("%d calls, at most %d expected", calls, most)
	}
	if last.Phase != PhaseStoring || last.Bytes != last.Total || r.Kinds[kindContact].Created != 5000 {
		t.Errorf("got %+v %+v, want last.Phase = %v and last.Bytes = %v and r.Kinds[kindContact].Created = 5000",
			last, r, PhaseStoring, last.Total)
	}
}

func TestProblemsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	r, err := w.load(acme, strings.Repeat("{\n", 5000), ImportOptions{})
	if err == nil || len(r.Problems) != maxProblems || r.More != 4000 || r.Failed != 5000 || r.Problems[maxProblems-1].Line != maxProblems {
		t.Fatalf("got %v %d %d %d, want an error and len(r.Problems) = %v and r.More = 4000 and r.Failed = 5000 and r.Problems[maxProblems-1].Line = %v",
			err, len(r.Problems), r.More, r.Failed, maxProblems, maxProblems)
	}
}

func TestSpool(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	src, remove, err := Spool(t.Context(), strings.NewReader(base), dir, 0)
	check(t, err)
	for range 2 {
		in, err := src.Open()
		check(t, err)
		var got bytes.Buffer
		_, err = got.ReadFrom(in)
		check(t, errors.Join(err, in.Close()))
		if got.String() != base || src.Size != int64(len(base)) {
			t.Fatal("the copy differs")
		}
	}
	check(t, remove())
	if _, err := src.Open(); err == nil {
		t.Fatal("the copy is still there")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Spool(ctx, strings.NewReader(base), dir, 0); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}
