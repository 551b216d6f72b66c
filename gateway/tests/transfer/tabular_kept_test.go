package transfer

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"tenantry/modules/imports/bundle"
	"tenantry/modules/imports/tabular"
)

// TestRows_TheOrderOfColumns: columns that differ in their names are the same fields in whichever order they stand; of
// those that do not, the n-th is the n-th.
func TestRows_TheOrderOfColumns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	org := w.org("acme")
	long := strings.Repeat("x", 210)
	names := []string{"k", long + "A", long + "B", "a\nb", "a b", "a", "a", "a (2)", "", "column", "Preis", "preis", "名", "価"}
	write := func(order []int) string {
		var out bytes.Buffer
		header, cells, again := make([]string, len(order)), make([]string, len(order)), ""
		for i, at := range order {
			header[i], cells[i] = names[at], string(rune('A'+at))
			if names[at] == "a" { // whichever comes first has the value of the first
				cells[i], again = "F"+again, again+"x"
			}
		}
		c := csv.NewWriter(&out)
		_ = c.WriteAll([][]string{header, cells})
		return out.String()
	}
	order := make([]int, len(names))
	for i := range order {
		order[i] = i
	}
	o := tabular.Options{As: "records:thing", Format: tabular.CSV, Key: "k"}
	if r := w.mustRows(org, write(order), o); r.Created != 1 {
		t.Fatalf("got %+v, want r.Created = 1", r)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		r := w.mustRows(org, write(order), o)
		if r.Unchanged != 1 || slices.ContainsFunc(r.Columns, func(c bundle.Column) bool { return c.New }) {
			t.Fatalf("%q: got %+v, want r.Unchanged = 1", write(order), r)
		}
	}
}

// TestRows_NothingIsLostUnsaid: what a file says twice, or says otherwise than a field can hold, is refused or kept,
// and never the one of two that comes later.
func TestRows_NothingIsLostUnsaid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, c := range map[string]struct {
		before, file, format string
		maps                 map[string][]string
		refused, has         string
	}{
		"a value inside and beside": {file: `[{"a":1},{"values":{"a":1},"values.a":2}]`, format: tabular.JSON, refused: `duplicate value "values.a"`},
		"a text among lists":        {file: `[{"t":["a"]},{"t":"x;y|z"}]`, format: tabular.JSON, has: `{"t":["x;y|z"]}`},
		"a text of lists, mapped":   {file: `[{"t":["a"]},{"t":"x;y"}]`, format: tabular.JSON, maps: map[string][]string{"t": {"t:list"}}, has: `{"t":["x","y"]}`},
		"all to one field":          {file: "d,e\n1,2\n", format: tabular.CSV, maps: map[string][]string{"*": {"foo"}}, refused: "* stands for all other columns"},
		"all in one format":         {file: "d,e\n1,2\n", format: tabular.CSV, maps: map[string][]string{"*": {"*:number"}}, refused: "* stands for all other columns"},
		"a time of day":             {before: "2024-05-17", file: "d\n2024-05-17T19:00:00-05:00\n", format: tabular.CSV, refused: "a date like"},
		"no time of day":            {before: "2024-05-17", file: "d\n2024-05-19T00:00:00+02:00\n", format: tabular.CSV, has: `{"d":"2024-05-19"}`},
		"a decimal comma":           {file: "Name;Preis, netto\nA;12,50\nB;3,20\n", format: tabular.CSV, has: `"12,50"`},
		"zero without a whole part": {file: "d\n\",00\"\n", format: tabular.CSV, maps: map[string][]string{"d": {"d:1.234,56"}}, has: `{"d":0}`},
		"an amount with its unit":   {file: "d\n12 €\n", format: tabular.CSV, maps: map[string][]string{"d": {"d:1.234,56"}}, refused: "a number written as 1.234,56, without a unit"},
		"a comma alone":             {file: "d\n\",\"\n", format: tabular.CSV, maps: map[string][]string{"d": {"d:1.234,56"}}, refused: "a number written as"},
		"a point alone":             {file: "d\n.\n", format: tabular.CSV, maps: map[string][]string{"d": {"d:number"}}, refused: "a number written as"},
		"a minus alone":             {file: "d\n-\n", format: tabular.CSV, maps: map[string][]string{"d": {"d:number"}}, refused: "a number written as"},
		"no row of JSON":            {file: `[{"a":1,"a":2}]`, format: tabular.JSON, refused: "row 1 is the first unreadable one"},
		"no object of JSON":         {file: `[1,2]`, format: tabular.JSON, refused: "the row must be an object"},
		"CR, and LF in quotes":      {file: "a,b\r1,\"x\ny\"\r2,z\r", format: tabular.CSV, has: `"b":"x\ny"`},
		"a mark and nothing":        {file: "sep=;", format: tabular.CSV, refused: "the file is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{t, w.gateway, w.service}
			org := w.org("o" + strings.NewReplacer(" ", "", ",", "").Replace(strings.ToLower(name)))
			o := tabular.Options{As: "records:thing", Format: c.format, Map: c.maps}
			if c.before != "" {
				w.mustRows(org, "d\n"+c.before+"\n", tabular.Options{As: o.As, Format: tabular.CSV})
			}
			r, err := w.rows(org, c.file, o)
			said := ""
			if err != nil {
				said = err.Error()
			}
			for _, p := range r.Problems {
				said += p.String()
			}
			if c.refused == "" && err != nil || !strings.Contains(said, c.refused) || c.refused != "" && err == nil {
				t.Errorf("%s %+v, want %s", said, r, c.refused)
			}
			if dump := w.dump(org, false); !strings.Contains(dump, c.has) {
				t.Errorf("%s is not in %s", c.has, dump)
			}
		})
	}
}

// TestRows_StayWithin: a file of one object's records does not take them into another, whatever it is imported as.
func TestRows_StayWithin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	org := w.org("acme")
	w.mustRows(org, "a,b\n1,x\n", tabular.Options{As: "records:first", Format: tabular.CSV})
	w.mustRows(org, "a,b\n7,x\n", tabular.Options{As: "records:second", Format: tabular.CSV})
	before := w.dump(org, false)
	id := ""
	for _, line := range lines(before, "record") {
		if strings.Contains(line, `"object":"first"`) {
			id = line[len(`{"kind":"record","id":"`):][:24]
		}
	}
	for _, dry := range []bool{true, false} {
		r, err := w.rows(org, "id,a,b\n"+id+",1,x\n", tabular.Options{As: "records:second", Format: tabular.CSV, DryRun: dry})
		if err == nil || len(r.Problems) != 1 || !strings.Contains(r.Problems[0].String(), "belongs to another custom object") {
			t.Errorf(`got %v %+v, want an error and len(r.Problems) = 1 and containing "belongs to another custom object"`,
				err, r)
		}
	}
	if after := w.dump(org, false); after != before {
		t.Errorf("%s\nbecame\n%s", before, after)
	}
}

// TestRows_SayHowTheyWereRead: the report names the encoding and what stood between cells, and bad rows of a JSON file
// are written as the file was.
func TestRows_SayHowTheyWereRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	org := w.org("acme")
	if r := w.mustRows(org, "a;b\n1;x\n", tabular.Options{As: "records:one", Format: tabular.CSV, Encoding: tabular.GuessEncoding}); r.Delimiter != "semicolon" || r.Encoding != "utf-8" {
		t.Errorf(`got %q %q, want r.Delimiter = "semicolon" and r.Encoding = "utf-8"`, r.Delimiter, r.Encoding)
	}
	if r := w.mustRows(org, "a~b\n1~\xfc\n", tabular.Options{As: "records:two", Format: tabular.CSV, Encoding: tabular.GuessEncoding, Delimiter: "~"}); r.Delimiter != "~" || r.Encoding != "windows-1252" {
		t.Errorf(`got %q %q, want r.Delimiter = "~" and r.Encoding = "windows-1252"`, r.Delimiter, r.Encoding)
	}
	var bad bytes.Buffer
	o := tabular.Options{As: "records:three", Format: tabular.JSON, Encoding: "windows-1252", Partial: true, Bad: &bad}
	if _, err := w.rows(org, "[{\"n\":\"\xfc\"},{\"n\":\"\xe9\",\"m\":{\"x\":1}}]", o); err != nil || bad.String() != "{\"n\":\"\xe9\",\"m\":{\"x\":1}}\n" {
		t.Errorf(`got %v %q, want no error and bad.String() = "{\"n\":\"\xe9\",\"m\":{\"x\":1}}\n"`, err, bad.String())
	}
	bad.Reset()
	o.Encoding = ""
	if _, err := w.rows(org, "\xef\xbb\xbf[{\"n\":\"a\"},{\"n\":\"\xc3\xa9\",\"m\":{\"x\":1}}]", o); err != nil || bad.String() != "\xef\xbb\xbf{\"n\":\"\xc3\xa9\",\"m\":{\"x\":1}}\n" {
		t.Errorf(`got %v %q, want no error and bad.String() = "\ufeff{\"n\":\"é\",\"m\":{\"x\":1}}\n"`, err, bad.String())
	}
}

// TestRows_NoRowMakesNoField: a header alone, such as the export of an object without records, makes nothing.
func TestRows_NoRowMakesNoField(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	org := w.org("acme")
	w.mustRows(org, "a\n1\n", tabular.Options{As: "records:thing", Format: tabular.CSV})
	before := w.dump(org, false)
	for _, file := range []string{"id,object,a,external_id,created_at,updated_at\n", "b\n"} {
		if r := w.mustRows(org, file, tabular.Options{As: "records:thing", Format: tabular.CSV}); r.Lines != 0 {
			t.Errorf("got %+v, want r.Lines = 0", r)
		}
	}
	w.mustRows(org, "b\n", tabular.Options{As: "records:other", Format: tabular.CSV})
	if after := w.dump(org, false); after != before {
		t.Errorf("%s\nbecame\n%s", before, after)
	}
}

// TestRows_KeysOfExports: a file of whose columns each is the key of a field is read by keys, as exports with chosen
// columns write it.
func TestRows_KeysOfExports(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	org := w.org("acme")
	w.mustLoad(org, `{"kind":"custom_object","name":"thing","label":"T","label_plural":"Ts","schema":{"a":{"title":"b","type":"Number"},"b":{"title":"a","type":"Number"}}}`+"\n"+
		`{"kind":"record","object":"thing","external_id":"E","values":{"a":1,"b":2}}`+"\n")
	o := tabular.Options{As: "records:thing", Format: tabular.CSV, Key: "external_id"}
	if r := w.mustRows(org, "external_id,a,b\nE,1,2\n", o); r.Unchanged != 1 {
		t.Errorf("got %+v, want r.Unchanged = 1", r)
	}
	if r := w.mustRows(org, "external_id,a,b,Other\nE,2,1,\n", o); r.Unchanged != 1 { // titles
		t.Errorf("got %+v, want r.Unchanged = 1", r)
	}
}

// TestRows_BadRowsAreReadTheSameWay: what stands between the cells is said in the file of bad rows, where the whole
// file told it.
func TestRows_BadRowsAreReadTheSameWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	org := w.org("acme")
	var bad bytes.Buffer
	o := tabular.Options{As: "records:thing", Format: tabular.CSV, Partial: true, Bad: &bad}
	if _, err := w.rows(org, "Name;Preis, netto\nA;12\nB;5\nC;1,50;x\n", o); err != nil {
		t.Fatal(err)
	}
	mended := strings.Replace(bad.String(), ";x", "", 1)
	if mended != "sep=;\nName;Preis, netto\nC;1,50\n" {
		t.Errorf(`got %q, want mended = "sep=;\nName;Preis, netto\nC;1,50\n"`, bad.String())
	}
	o.Bad = nil
	if r, err := w.rows(org, mended, o); len(r.Columns) != 2 || r.Columns[0].Field != "name" {
		t.Errorf(`got %v %+v, want len(r.Columns) = 2 and r.Columns[0].Field = "name"`, err, r)
	}
}

// TestRows_ReportOfManyColumns is bounded in bytes, whatever columns are called, and says how many it leaves out.
func TestRows_ReportOfManyColumns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	for _, name := range []string{"x", "\x01", "\u65e5"} {
		header := make([]string, 1000)
		for i := range header {
			header[i] = fmt.Sprintf("%04d", i) + strings.Repeat(name, 1000/len(name))
		}
		r, err := w.rows(acme, strings.Join(header, ",")+"\n"+strings.Repeat("v,", 999)+"v\n", tabular.Options{As: "contacts", Format: tabular.CSV, DryRun: true})
		if encoded, _ := json.Marshal(r); len(encoded) > 200<<10 {
			t.Errorf("%q: the report has %d bytes, want at most 200 KiB", name, len(encoded))
		}
		if len(r.Columns)+r.MoreColumns != 1000 || r.MoreColumns == 0 {
			t.Errorf("%q: the report has %d columns and %d more, want 1000 (%v)", name, len(r.Columns), r.MoreColumns, err)
		}
	}
}
