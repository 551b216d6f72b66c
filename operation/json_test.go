package operation_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"tenantry/operation"
)

// FuzzParseBody: whatever is accepted is one JSON object, read as encoding/json reads it;
// what arrives in pieces is read as what is there at once.
func FuzzParseBody(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":1}`, `{"a":1,"a":2}`, `{"a":{"b":[1,2,{"c":null}]}}`, `{"a":"\u0000"}`, `{"a":"\ud800"}`, `[`, `{"a":1}x`, "\xef\xbb\xbf{}",
		`{"a":1e400}`, `{"a":-0}`, `{"a" : [ ] }`, `{"a":tru}`, `{"teams":["x",1]}`, `{"a":9007199254740993}`, `{"\u0061":1,"a":2}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		b, err := operation.ParseBody(raw)
		agreesInPieces(t, raw, b, err)
		if err != nil {
			var p *operation.Problem
			if !errors.As(err, &p) || p.Code != http.StatusBadRequest || !utf8.ValidString(p.Message) {
				t.Fatalf("the refusal is no readable 400: %v", err)
			}
			return
		}
		if !json.Valid(raw) {
			t.Fatal("accepted what encoding/json calls invalid")
		}
		dec := json.NewDecoder(bytes.NewReader(raw))
		var reference map[string]json.RawMessage
		if err := dec.Decode(&reference); err != nil {
			t.Fatalf("encoding/json: %v", err)
		}
		if _, err := dec.Token(); !errors.Is(err, io.EOF) {
			t.Fatal("accepted trailing bytes")
		}
		if len(reference) != len(b.Names()) {
			t.Fatalf("fields %q, encoding/json reads %d", b.Names(), len(reference))
		}
		for name, value := range reference {
			if !b.Has(name) || !bytes.Equal(bytes.TrimSpace(b.Raw(name)), bytes.TrimSpace(value)) {
				t.Fatalf("field %q is %s, encoding/json reads %s", name, b.Raw(name), value)
			}
		}
	})
}

// everything is an operation that takes each of the fields.
func everything(names []string) *operation.Row {
	o := &operation.Row{}
	for _, name := range names {
		o.Body = append(o.Body, operation.Field{Name: name, Shape: operation.Object})
	}
	return o
}

func agreesInPieces(t *testing.T, raw []byte, want operation.Body, refusal error) {
	t.Helper()
	for name, src := range map[string]io.Reader{
		"byte by byte": iotest.OneByteReader(bytes.NewReader(raw)), "with its end": iotest.DataErrReader(bytes.NewReader(raw)),
	} {
		got, err := everything(want.Names()).ReadBody(src)
		if fmt.Sprint(err) != fmt.Sprint(refusal) || !slices.Equal(got.Names(), want.Names()) {
			t.Fatalf("%s %q: %v %q; at once %v %q", name, raw, err, got.Names(), refusal, want.Names())
		}
		for _, field := range want.Names() {
			if !bytes.Equal(got.Raw(field), want.Raw(field)) {
				t.Fatalf("%s %q: %s is %s; at once %s", name, raw, field, got.Raw(field), want.Raw(field))
			}
		}
	}
}

// hostile returns bodies of about that size that are dear to read.
func hostile(size int) map[string]string {
	fill := func(head, unit, tail string) string {
		return head + strings.Repeat(unit, (size-len(head)-len(tail))/len(unit)) + tail
	}
	var keys, escaped strings.Builder
	for i := 0; keys.Len() < size-20; i++ {
		keys.WriteString(`"` + strconv.FormatInt(int64(i), 36) + `":0,`)
	}
	for i := 0; escaped.Len() < size-20; i++ {
		escaped.WriteString(`"\u0061` + strconv.FormatInt(int64(i), 36) + `":0,`)
	}
	return map[string]string{
		"deep arrays":              fill(`{"x":[`, strings.Repeat("[", 30)+strings.Repeat("]", 30)+",", `0]}`),
		"tiny names":               `{` + keys.String() + `"z z":0}`,
		"escaped names":            `{` + escaped.String() + `"z z":0}`,
		"tiny names, inside":       `{"x":{` + keys.String() + `"z z":0}}`,
		"tiny names, one twice":    `{"x":{` + keys.String() + `"0":0}}`,
		"many objects":             fill(`{"x":[`, `{"a":0},`, `0]}`),
		"huge name":                fill(`{"`, "x", `":0}`),
		"huge string":              fill(`{"x":"`, "x", `"}`),
		"huge string for a text":   fill(`{"name":"`, "x", `"}`),
		"long array":               fill(`{"x":[`, "0,", `0]}`),
		"long array, broken":       fill(`{"x":[`, "0,", `x]}`),
		"long array for a text":    fill(`{"name":[`, "0,", `0]}`),
		"long array for an object": fill(`{"schema":[`, "0,", `0]}`),
		"broken at once":           fill(`{x`, "0,", `0]}`),
		"deep at once":             fill(`{"x":`, "[", ``),
		"no object":                fill(`[`, "0,", `0]`),
	}
}

// TestHostileBodiesAreCheap holds that reading a body takes at most a few times its allowed length in memory,
// whatever it holds, and none for what is not used.
func TestHostileBodiesAreCheap(t *testing.T) { // not parallel: what others allocate would count
	o := &operation.Row{Request: operation.Request{Body: []operation.Field{{Name: "name", Shape: operation.Text}, {Name: "schema", Shape: operation.Object}}}}
	const size = 256 << 10
	for name, text := range hostile(size) {
		most := uint64(16 << 10) // a buffer, a message
		switch {
		case strings.Contains(name, "names"):
			most = 10 * size // none may be there twice
		case strings.HasPrefix(name, "huge name"), strings.Contains(name, " for "):
			most = 6 * size // it grows by doubling
		}
		if name == "long array for a text" {
			most = 16 << 10
		}
		src := strings.NewReader(text)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := o.ReadBody(src)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > most {
			t.Errorf("%s: %d bytes were allocated for a body of %d, at most %d may be (%v)", name, used, len(text), most, err)
		}
	}
}

// TestDecoderStopsAtTheFirstFault holds that nothing is read after the first impossible byte.
func TestDecoderStopsAtTheFirstFault(t *testing.T) {
	t.Parallel()
	for name, head := range map[string]string{
		"syntax": `{"a":x`, "no object": `[`, "depth": `{"a":` + strings.Repeat("[", 32), "a name twice": `{"a":1,"a":`, "UTF-8": "{\"a\":\"\xff", "NUL": `{"a":"\u0000"`, "mark": "\xef\xbb\xbf",
		"behind the end": `{}x`,
	} {
		_, err := (&operation.Row{}).ReadBody(io.MultiReader(strings.NewReader(head), iotest.ErrReader(errors.New("was read on"))))
		var p *operation.Problem
		if !errors.As(err, &p) || p.Code != http.StatusBadRequest {
			t.Errorf("%s: got %v, want an error of the type of p and %v", name, err, http.StatusBadRequest)
		}
	}
	cause := errors.New("the caller has gone")
	if _, err := (&operation.Row{}).ReadBody(io.MultiReader(strings.NewReader(`{"a":`), iotest.ErrReader(cause))); !errors.Is(err, cause) {
		t.Errorf("a body that stops: %v", err)
	}
}

// TestReadBodyHoldsWhatIsUsed: what the operation does not know is named, not held; where a
// scalar belongs, no array or object is.
func TestReadBodyHoldsWhatIsUsed(t *testing.T) {
	t.Parallel()
	o := &operation.Row{Request: operation.Request{BodyLimit: operation.MaxBodyLimit, Teams: true, Body: []operation.Field{{Name: "name", Shape: operation.Text}, {Name: "n", Shape: operation.Integer}, {Name: "schema", Shape: operation.Object}, {Name: "on", Shape: operation.Boolean}}}}
	b, err := o.ReadBody(strings.NewReader(`{"x":{"y":1},"name":["a",{"b":[]}],"n": {"z":0} ,"schema":["a"],"teams":["t"],"on":true,"Name":"q"}`))
	if err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]string{"x": "", "name": "[]", "n": "{}", "schema": `["a"]`, "teams": `["t"]`, "on": "true", "Name": ""} {
		if got := string(b.Raw(field)); got != want {
			t.Errorf("%s is held as %q, not %q", field, got, want)
		}
	}
	if got := strings.Join(b.Names(), " "); got != "x name n schema teams on Name" {
		t.Errorf("names: %s", got)
	}
	var many strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&many, `"u%d":0,`, i)
	}
	b, err = o.ReadBody(strings.NewReader(`{` + many.String() + `"name":"x"}`))
	if err != nil || len(b.Names()) > 100 || !b.Has("name") {
		t.Errorf("%d names, %v", len(b.Names()), err)
	}
}
