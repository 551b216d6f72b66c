package strictjson_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"tenantry/internal/strictjson"
)

// TestValues checks that a text may have the maximum number of values, and that one more is refused at its place,
// whatever its shape: in a tree, in a stream, and in a field that is not held.
func TestValues(t *testing.T) {
	t.Parallel()
	const most = strictjson.MaxValues
	list := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("1,", n-1), ",") + "]" } // n values
	var p strictjson.Parser
	if v, err := p.Parse(list(most)); err != nil || len(v.Items) != most-1 {
		t.Errorf("%d values: got %v, want no error", most, err)
	}
	for name, text := range map[string]string{
		"numbers": list(most + 1), "lists": "[" + strings.Repeat("[],", most) + "[]]", "members": members(most),
	} {
		_, err := p.Parse(text)
		if want := fmt.Sprintf("has more than %d values, at byte ", most); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, want)
		}
	}
	skip := func([]byte) (strictjson.Want, int) { return strictjson.Skip, 0 }
	if _, err := strictjson.ReadObject(strings.NewReader(`{"a":[1,2,3]}`), nil, 5, skip); err != nil {
		t.Errorf("five values: got %v, want no error", err)
	}
	if _, err := strictjson.ReadObject(strings.NewReader(`{"a":[1,2,3,4],"b":`), nil, 5, skip); err == nil || err.Error() != "the text has more than 5 values, at byte 13" {
		t.Errorf("six values: got %v, want an error", err)
	}
}

func members(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, `,"%x":0`, i)
	}
	return "{" + text.String()[1:] + "}"
}

// TestReadObject_Elements checks that of a list that is too long one more element is held, and that the rest is
// checked.
func TestReadObject_Elements(t *testing.T) {
	t.Parallel()
	two := func([]byte) (strictjson.Want, int) { return strictjson.Whole, 2 }
	for text, want := range map[string]string{
		`{"a":[1,2]}`: `[1,2]`, `{"a":[1, 2 ,[3,4,5],6,[7,8,9]],"b":0}`: `[1, 2 ,[3,4,5]]`, `{"a":[]}`: `[]`,
		`{"a":{"b":[1,2,3,4]}}`: `{"b":[1,2,3,4]}`, `{"a":[[1,2,3],4]}`: `[[1,2,3],4]`, `{"a":"[1,2,3]"}`: `"[1,2,3]"`,
	} {
		for _, src := range []*strings.Reader{nil, strings.NewReader(text)} {
			var read strictjson.Fields
			var err error
			if src == nil {
				read, err = strictjson.ReadObject(nil, []byte(text), 0, two)
			} else {
				read, err = strictjson.ReadObject(iotest.OneByteReader(src), nil, 0, two)
			}
			if err != nil || string(read.All[0].Raw) != want {
				t.Errorf("%s: got %v, %v, want no error and string(read.All[0].Raw) = %v", text, read, err, want)
			}
		}
	}
	if _, err := strictjson.ReadObject(nil, []byte(`{"a":[1,2,3,4,x]}`), 0, two); err == nil {
		t.Error("got no error for a fault in an element that is not held, want one")
	}
}

func TestElements(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		` [1 ,{"a":[2,3]}, "x,y" ,[]]`: `1|{"a":[2,3]}|"x,y"|[]`, `[]`: "", `{"a":1}`: "", `7`: "", ``: "", `[1,`: "1", `[[1,2],[3]`: `[1,2]|[3]`,
	} {
		var got []string
		for part := range strictjson.Elements([]byte(text)) {
			got = append(got, string(part))
		}
		if strings.Join(got, "|") != want {
			t.Errorf(`%s: got %q, want strings.Join(got, "|") = %v`, text, got, want)
		}
	}
}

// TestMemory checks that the tree of a text and the decoded record take no more than Memory estimates.
func TestMemory(t *testing.T) { //nolint:paralleltest // it measures allocations
	const n = strictjson.MaxValues - 1
	list := func(one string) string { return "[" + strings.Repeat(one+",", n-1) + one + "]" }
	for name, text := range map[string]string{
		"numbers": list("1"), "lists": list("[]"), "texts": list(`"a"`), "escapes": list(`"\n"`), "members": members(n),
		"objects": "[" + strings.Repeat(`{"a":1},`, n/2-1) + `{"a":1}]`, "a text": `["` + strings.Repeat("x", 1<<20) + `"]`,
	} {
		before := heap()
		var p strictjson.Parser
		v, err := p.Parse(strings.Clone(text))
		kept := v.Any()
		took := heap() - before
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if most := strictjson.MemoryOf(text); took > most {
			t.Errorf("%s: a text of %d bytes takes %d, want at most %d", name, len(text), took, most)
		}
		runtime.KeepAlive(v)
		runtime.KeepAlive(kept)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
