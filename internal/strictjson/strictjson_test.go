package strictjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"tenantry/internal/strictjson"
	"tenantry/internal/texts"
)

// seeds are texts on which strict and lenient readers of JSON differ.
func seeds() []string {
	return []string{
		`{"teams":["x",1]}`, `{"a":-0}`, `{"a":1e400}`, `{"\u0061":1,"a":2}`, `{"a":tru}`, `[1,{"a":[{}]}]`, "{\"a\":\"\xff", "\v", `{"a":1} `, `null`, `-1.5e3`,
		`{}`, `{"a":1}`, ` { "a" : [1, -2.5e+3, "x", true, false, null, {}] } `, `{"a":{"b":{"c":[[],[[]]]}}}`,
		`{"a":1,"a":2}`, `{"a":1,"A":2}`, `{"ſchema":1,"schema":2}`, `{"a\u0000":1}`, `{"a":"\u0000"}`, `{"a":"\ud800"}`,
		`{"a":"\ud800abc"}`, `{"\uD800":1}`, `{"a":"\udc00\ud800"}`, `{"a":"\ud800\u0041"}`, `{"a":"\ud800\ud83d\ude00"}`, `{"a":"\\ud800"}`, `{"a":"\ud83d\uDE00x\udbff\udfff"}`,
		`{"a":"\ud800\x"}`, `{"a":"\ud800\u12"}`, `{"a":["x","\udfff"]}`,
		`{"a":"\ud83d\ude00é\n\/"}`, "{\"a\":\"\x01\"}", "{\"a\":\"\xff\"}", "\xef\xbb\xbf{}", `{"a":01}`, `{"a":1.}`, `{"a":.5}`,
		`{"a":-}`, `{"a":1e}`, `{"a":9007199254740993}`, `{"a":1}x`, `{"a":1} {"b":2}`, `{"a":1,}`, `[1,]`, `[`, `{`, `{"a"`, `{"a":`, ``, ` `,
		`"x"`, `tru`, `nul`, `truex`, `{'a':1}`, `{a:1}`, "{\"a\":\"x\ty\"}", "{\"a\":1}\r", strings.Repeat("[", 33) + strings.Repeat("]", 33),
		strings.Repeat("[", 32) + strings.Repeat("]", 32), `{"` + strings.Repeat("x", 100) + `":1}`, `{"a":"\x"}`, `{"a":"\u12"}`,
	}
}

// agrees compares the reader with encoding/json, with itself, and with slowCheck.
func agrees(t *testing.T, src string) {
	t.Helper()
	var p strictjson.Parser
	for range 2 { // used again, it does the same
		got, err := p.Parse(src)
		if checked := strictjson.Check([]byte(src)); fmt.Sprint(err) != fmt.Sprint(checked) {
			t.Fatalf("%q: Parse = %v, Check = %v, want the same error", src, err, checked)
		}
		agreesWithSlowCheck(t, []byte(src))
		agreesInPieces(t, []byte(src), got, err)
		if err != nil {
			var fault strictjson.Error
			if !errors.As(err, &fault) || !utf8.ValidString(string(fault)) {
				t.Fatalf("%q: got %v, want an Error as a sentence", src, err)
			}
			continue
		}
		decoded := decode(t, []byte(src))
		if !reflect.DeepEqual(got.Any(), decoded) {
			t.Fatalf("%q: got %#v, want %#v", src, got.Any(), decoded)
		}
		if again := decode(t, got.Raw()); !reflect.DeepEqual(again, decoded) {
			t.Fatalf("%q is written as %s", src, got.Raw())
		}
	}
}

func decode(t *testing.T, src []byte) (v any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(src))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%q: %v", src, err)
	}
	return v
}

// agreesInPieces checks that an object that arrives in pieces has the same fields, or the same fault.
func agreesInPieces(t *testing.T, raw []byte, want strictjson.Value, refusal error) {
	t.Helper()
	if text := bytes.TrimLeft(raw, " \t\r\n"); len(text) > 0 && text[0] != '{' {
		return // it is read no further than to know that it is no object
	}
	keep := func([]byte) (strictjson.Want, int) { return strictjson.Whole, 0 }
	for name, src := range map[string]io.Reader{
		"at once": nil, "byte by byte": iotest.OneByteReader(bytes.NewReader(raw)), "with its end": iotest.DataErrReader(bytes.NewReader(raw)),
	} {
		read, err := strictjson.ReadObject(src, raw, 0, keep)
		fields := read.All
		if fmt.Sprint(err) != fmt.Sprint(refusal) {
			t.Fatalf("%s %q: ReadObject = %v, want %v as from Parse", name, raw, err, refusal)
		}
		if err != nil {
			continue
		}
		for i, m := range want.Members {
			if fields[i].Name != m.Name || !reflect.DeepEqual(decode(t, fields[i].Raw), m.Value.Any()) {
				t.Fatalf("%s %q: %s is %s", name, raw, fields[i].Name, fields[i].Raw)
			}
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, src := range seeds() {
		agrees(t, src)
	}
}

func TestParse_ManyNames(t *testing.T) {
	t.Parallel()
	m := map[string]int{}
	for i := range 100 {
		m[strings.Repeat("n", i)] = i
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	agrees(t, string(text))
	agrees(t, strings.Replace(string(text), `{`, `{"nn":1,`, 1))
}

// TestReadObject_Holds checks that unwanted fields are not held, nor arrays and objects of fields wanted as scalars.
func TestReadObject_Holds(t *testing.T) {
	t.Parallel()
	read, err := strictjson.ReadObject(nil, []byte(`{"x":{"y":1},"s":["a"],"w":[1, 2]}`), 0, func(name []byte) (strictjson.Want, int) {
		return map[string]strictjson.Want{"s": strictjson.Scalar, "w": strictjson.Whole}[string(name)], 0
	})
	fields := read.All
	want := []strictjson.Field{{Name: "s", Raw: json.RawMessage("[]")}, {Name: "w", Raw: json.RawMessage("[1, 2]")}}
	if err != nil || !slices.EqualFunc(fields, want, func(a, b strictjson.Field) bool { return a.Name == b.Name && bytes.Equal(a.Raw, b.Raw) }) {
		t.Fatalf("%s, %v", fields, err)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range seeds() {
		f.Add(s)
	}
	f.Fuzz(agrees)
}

// agreesWithSlowCheck checks that both readers accept or refuse the text, and that this reader stops no later if their
// errors differ.
func agreesWithSlowCheck(t *testing.T, raw []byte) {
	t.Helper()
	got, want := strictjson.Check(raw), slowCheck(raw)
	if bytes.ContainsAny(raw, "\v\f\u0085\u00a0\u2028\u2029") && (got == nil) == (want == nil) {
		return // slowCheck takes blanks that JSON does not know for an empty text
	}
	if (got == nil) != (want == nil) || got != nil && got.Error() != want.Error() && position(got) > position(want) {
		t.Fatalf("%q: got %v, want %v as from slowCheck", raw, got, want)
	}
}

// position returns the byte that an error names, or 0.
func position(err error) int {
	digits := regexp.MustCompile(`byte (\d+)$`).FindStringSubmatch(err.Error())
	if digits == nil {
		return 0
	}
	n, _ := strconv.Atoi(digits[1])
	return n
}

func wrong(format string, args ...any) error { return strictjson.Error(fmt.Sprintf(format, args...)) }

// slowCheck is a simple reader as a reference: it reads the text several times.
func slowCheck(raw []byte) error {
	if bytes.HasPrefix(raw, []byte("\xef\xbb\xbf")) {
		return wrong("starts with a byte order mark; send plain UTF-8")
	}
	if !utf8.Valid(raw) {
		return wrong("is not valid UTF-8, at byte %d", invalidAt(raw)+1)
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return wrong("is empty; a JSON object is expected")
	}
	if at := tooDeep(raw); at >= 0 {
		return wrong("nests deeper than %d levels, at byte %d", strictjson.MaxDepth, at+1)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := checkValue(dec, raw); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return wrong("has bytes after its JSON value, at byte %d", dec.InputOffset()+1)
	}
	if at := halfAt(raw); at >= 0 {
		return wrong("has half of a surrogate pair, which is not a character, at byte %d", at+1)
	}
	return nil
}

// halfAt returns the offset of the first half of a surrogate pair in valid JSON, or -1.
func halfAt(raw []byte) int {
	pair := regexp.MustCompile(`^\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}`)
	half := regexp.MustCompile(`^\\u[dD][89a-fA-F]`)
	for i := 0; i < len(raw); i++ {
		switch {
		case raw[i] != '\\':
		case pair.Match(raw[i:]):
			i += 11
		case half.Match(raw[i:]):
			return i
		default:
			i++
		}
	}
	return -1
}

// tooDeep returns the offset at which brackets outside strings first nest deeper than strictjson.MaxDepth, or -1. The
// text need not be valid JSON.
func tooDeep(raw []byte) int {
	depth, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > strictjson.MaxDepth {
				return i
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return -1
}

// invalidAt returns the offset of the first byte that is not UTF-8.
func invalidAt(raw []byte) int {
	at := 0
	for at < len(raw) {
		r, size := utf8.DecodeRune(raw[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	return at
}

func checkValue(dec *json.Decoder, raw []byte) error {
	t, err := dec.Token()
	if err != nil {
		return brokenJSON(raw)
	}
	delim, ok := t.(json.Delim)
	if !ok {
		if s, isText := t.(string); isText && strings.ContainsRune(s, 0) {
			return wrong("contains a NUL character, at byte %d", dec.InputOffset())
		}
		return nil
	}
	seen := map[string]bool{}
	for dec.More() {
		if delim == '{' {
			name, err := dec.Token()
			if err != nil {
				return brokenJSON(raw)
			}
			key, _ := name.(string)
			if seen[key] {
				return wrong("gives the name %q twice in one object, at byte %d", texts.Clip(key), dec.InputOffset())
			}
			if strings.ContainsRune(key, 0) {
				return wrong("contains a NUL character, at byte %d", dec.InputOffset())
			}
			seen[key] = true
		}
		if err := checkValue(dec, raw); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return brokenJSON(raw)
	}
	return nil
}

// brokenJSON describes the first byte that is not JSON, counting from 1.
func brokenJSON(raw []byte) error {
	var v any
	var syntax *json.SyntaxError
	if !errors.As(json.Unmarshal(raw, &v), &syntax) {
		return wrong("is not valid JSON")
	}
	if syntax.Offset >= int64(len(raw)) && strings.Contains(syntax.Error(), "unexpected end") {
		return wrong("is not valid JSON: it ends too early, after byte %d", len(raw))
	}
	return wrong("is not valid JSON, at byte %d", syntax.Offset)
}
