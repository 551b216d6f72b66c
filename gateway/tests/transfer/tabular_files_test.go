package transfer

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/encoding/htmlindex"

	"tenantry/backends/record/schema"
	"tenantry/gateway/gatewaytest"
	"tenantry/modules/imports/tabular"
	"tenantry/tenants"
)

// TestRows_ABareQuote spoils its own row and no other, and the bad rows are what stood in the file.
func TestRows_ABareQuote(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	o := tabular.Options{As: "records:part", Format: tabular.CSV, Key: "code"}
	w.mustRows(acme, "name,qty,code\r\nnut,1,AB-2\r\n", o)
	var bad bytes.Buffer
	o.Partial, o.Bad = true, &bad
	r := w.mustRows(acme, "name,qty,code\r\n5\" nail,9,AB-9\r\nscrew,7,AB-2\r\n", o)
	if r.Updated != 1 || r.Created != 0 || r.Failed != 1 || bad.String() != "name,qty,code\r\n5\" nail,9,AB-9\r\n" {
		t.Errorf("got %+v\n%q\nwant r.Updated = 1 and r.Created = 0 and r.Failed = 1 and bad.String() = \"name,qty,code\\r\\n5\\\" nail,9,AB-9\\r\\n\"",
			r, bad.String())
	}
	if out := w.dump(acme, false); !strings.Contains(out, `{"code":"AB-2","name":"screw","qty":7}`) {
		t.Errorf(`got %v, want containing "{\"code\":\"AB-2\",\"name\":\"screw\",\"qty\":7}"`, out)
	}
}

// TestRows_TheSameFileAgain changes nothing and makes nothing, whatever its columns are called.
func TestRows_TheSameFileAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	long := strings.Repeat("long ", 60)
	for i, header := range []string{
		"ref,created_at", "object,deleted,values", "Preis (EUR),Größe,Opt-in?,Company's name,名,,a,a,a", "a,a,a_2,a_2,a (2),A", long + "x," + long + "y,b",
		"email,Email,E-Mail,email", "名,字,,", "id,ID,external_id,External ID", "a,values.a,fields.a,values", "column,,column,column_2", "Net Price,net_price,net-price",
		"name,Name,last_name,Last Name", "x,X,x,X,x",
	} {
		for _, as := range []string{"records:thing", "contacts"} {
			t.Run(as+" "+strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				w := &world{t, w.gateway, w.service}
				org := w.org(fmt.Sprintf("%.3s-%d", as, i))
				names := strings.Split(header, ",")
				file := header + "\n"
				for row := range 3 {
					for at, name := range names {
						if at > 0 {
							file += ","
						}
						if file += fmt.Sprintf("v%d-%d", row, at); strings.Contains(strings.ToLower(name), "mail") {
							file += "@example.com"
						}
					}
					file += "\n"
				}
				o := tabular.Options{As: as, Format: tabular.CSV}
				r := w.mustRows(org, file, o)
				before := w.dump(org, false)
				again := w.mustRows(org, file, o)
				if after := w.dump(org, false); r.Created != 3 || again.Unchanged != 3 || again.Created+again.Updated != 0 || after != before {
					t.Errorf("got %+v\n%+v\n%s\nwant r.Created = 3 and again.Unchanged = 3 and again.Created+again.Updated = 0 and after = %v",
						r, again, after, before)
				}
				led := map[string]bool{}
				for i, c := range again.Columns {
					if led[c.Field] || c.New || c.Field != r.Columns[i].Field {
						t.Errorf("%+v, at first %+v", c, r.Columns[i])
					}
					led[c.Field] = true
				}
			})
		}
	}
}

// TestRows_LookAlikes go where they went, exact names first, and it is said where they could go elsewhere.
func TestRows_LookAlikes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	o := tabular.Options{As: "records:price", Format: tabular.CSV, Key: "ref"}
	w.mustRows(acme, "ref,Net Price,net_price,net-price\nR1,100,110,120\n", o)
	w.mustRows(acme, "ref,Net Price,net_price,net-price\nR1,101,111,121\n", o)
	if out := w.dump(acme, false); !strings.Contains(out, `"values":{"net_price":111,"net_price_2":101,"net_price_3":121,"ref":"R1"}`) || len(lines(out, "record")) != 1 {
		t.Errorf(`got %v, want containing %q and len(lines(out, "record")) = 1`,
			out, `"values":{"net_price":111,"net_price_2":101,"net_price_3":121,"ref":"R1"}`)
	}
	r := w.mustRows(acme, "ref,NET PRICE\nR1,102\n", o)
	if c := r.Columns[1]; c.Field != "net_price" || !strings.Contains(c.Note, "also similar to the field net_price_2") {
		t.Errorf(`got %+v, want c.Field = "net_price" and containing "also similar to the field net_price_2"`, r.Columns)
	}
	w.mustLoad(acme, `{"kind":"custom_object","name":"one","label":"One","label_plural":"Ones","schema":{"net_price":{"title":"Price","type":"Number"}}}`)
	r = w.mustRows(acme, "Net Price,net-price\n1,2\n", tabular.Options{As: "records:one", Format: tabular.CSV})
	if r.Columns[0].Field != "net_price" || !r.Columns[1].New || !strings.Contains(r.Columns[1].Note, "similar to the field net_price, which another column is mapped to") {
		t.Errorf(`got %+v, want r.Columns[0].Field = "net_price" and r.Columns[1].New and containing "similar to the field net_price, which another column is mapped to"`,
			r.Columns)
	}
}

// TestRows_WhatIsNoNumber stays as it is written, or is refused.
func TestRows_WhatIsNoNumber(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	o := tabular.Options{As: "records:place", Format: tabular.CSV}
	w.mustRows(acme, "zip,place\n10115,Berlin\n53111,Bonn\n", o)
	for _, zip := range []string{"01067", "+49351123", "100E10", "1.10", "0.12345678901234567"} {
		r, err := w.rows(acme, "zip,place\n"+zip+",Dresden\n", o)
		if err == nil || r.Failed != 1 || !strings.Contains(fmt.Sprint(r.Problems), `line 2 (record): column "zip": expected a number such as`) {
			t.Errorf(`%s: got %v %v, want an error and r.Failed = 1 and containing "line 2 (record): column \"zip\": expected a number such as"`,
				zip, err, r.Problems)
		}
	}
	for name, file := range map[string]string{
		"texts": `[{"v":"1007421"},{"v":"12.50"}]`, "versions": `[{"v":"1.1"},{"v":"1.10"}]`, "both": `[{"v":1},{"v":"2"}]`, "digits": `[{"v":0.12345678901234567}]`,
	} {
		r := w.mustRows(acme, file, tabular.Options{As: "records:" + name, Format: tabular.JSON})
		if r.Columns[0].Type != schema.Text {
			t.Errorf("%s: got %+v, want r.Columns[0].Type = %v", name, r.Columns, schema.Text)
		}
	}
	if out := w.dump(acme, false); !strings.Contains(out, `{"v":"0.12345678901234567"}`) || !strings.Contains(out, `{"v":"12.50"}`) {
		t.Errorf(`got %v, want containing "{\"v\":\"0.12345678901234567\"}" and containing "{\"v\":\"12.50\"}"`, out)
	}
	r := w.mustRows(acme, "city,country\nOslo,NO\nBergen,NO\n", tabular.Options{As: "records:city", Format: tabular.CSV})
	if r.Columns[1].Type != schema.Text || !strings.Contains(w.dump(acme, false), `{"city":"Bergen","country":"NO"}`) {
		t.Errorf(`got %+v, want r.Columns[1].Type = %v and containing "{\"city\":\"Bergen\",\"country\":\"NO\"}"`,
			r.Columns, schema.Text)
	}
}

// TestRows_TextsAsTheyAre keeps line ends within quotes and blanks, which the same file does not change.
func TestRows_TextsAsTheyAre(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	o := tabular.Options{As: "records:note", Format: tabular.CSV, Key: "ref"}
	file := "ref,a,b\r\nn1,\"one\r\ntwo\", \r\nn2,x,y\r\n"
	w.mustRows(acme, file, o)
	if out := w.dump(acme, false); !strings.Contains(out, `{"a":"one\r\ntwo","b":" ","ref":"n1"}`) {
		t.Errorf(`got %v, want containing "{\"a\":\"one\\r\\ntwo\",\"b\":\" \",\"ref\":\"n1\"}"`, out)
	}
	if again := w.mustRows(acme, file, o); again.Unchanged != 2 {
		t.Errorf("got %+v, want again.Unchanged = 2", again)
	}
}

// TestRows_SeparatorsAndEncodings are found where a file says them, and taken as they are given.
func TestRows_SeparatorsAndEncodings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in := func(encoding, text string) string {
		e, err := htmlindex.Get(encoding)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := e.NewEncoder().String(text)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	const plain = "Straße,price\nKöln,1\nBonn,2\n"
	for name, c := range map[string]struct{ file, encoding, delimiter, want string }{
		"semicolons":        {"Name;Preis, netto;Ort\nA;12,50;Bonn\n", "", "", `{"name":"A","ort":"Bonn","preis_netto":"12,50"}`},
		"sep":               {"sep=|\r\na;b|c\r\n1|2\r\n", "", "", `{"a_b":1,"c":2}`},
		"bars":              {"a|b\n1|x, y\n", "", "", `{"a":1,"b":"x, y"}`},
		"given":             {"a^b;c\n1^2\n", "", "^", `{"a":1,"b_c":2}`},
		"given by name":     {"a,b\tc\n1\t2\n", "", "tab", `{"a_b":1,"c":2}`},
		"windows-1252":      {in("windows-1252", plain), "windows-1252", "", `{"price":1,"stra_e":"Köln"}`},
		"guessed":           {in("windows-1252", plain), tabular.GuessEncoding, "", `{"price":1,"stra_e":"Köln"}`},
		"guessed UTF-8":     {plain, tabular.GuessEncoding, "", `{"price":1,"stra_e":"Köln"}`},
		"guessed UTF-16":    {in("utf-16be", plain), tabular.GuessEncoding, "", `{"price":1,"stra_e":"Köln"}`},
		"UTF-16 by mark":    {"\xff\xfe" + in("utf-16le", plain), "", "", `{"price":1,"stra_e":"Köln"}`},
		"iso-2022-jp":       {in("iso-2022-jp", "名,n\n東京,1\n"), "iso-2022-jp", "", `{"column":"東京","n":1}`},
		"a mark goes first": {"\xef\xbb\xbf" + plain, "windows-1252", "", `{"price":1,"stra_e":"Köln"}`},
		"carriage returns":  {"a,b\r1,2\r\"x\ry\",3", "", "", `{"a":"x\ry","b":3}`},
	} {
		org := w.org(strings.ToLower(strings.ReplaceAll(name, " ", "-")))
		o := tabular.Options{As: "records:thing", Format: tabular.CSV, Encoding: c.encoding, Delimiter: c.delimiter}
		w.mustRows(org, c.file, o)
		before := w.dump(org, false)
		if w.mustRows(org, c.file, o); !strings.Contains(before, c.want) || w.dump(org, false) != before {
			t.Errorf("%s: got %s, want containing %q and w.dump(org, false) = %v", name, before, c.want, before)
		}
	}
	acme := w.org("acme")
	for name, o := range map[string]tabular.Options{
		"no encoding is called": {Encoding: "klingon"}, "cells are separated by": {Delimiter: "ab"}, "not valid UTF-8": {},
		"not valid iso-2022-jp": {Encoding: "iso-2022-jp"},
	} {
		o.As, o.Format = "records:thing", tabular.CSV
		if _, err := w.rows(acme, in("windows-1252", plain), o); !errors.Is(err, tabular.ErrOptions) {
			t.Errorf("%s: got %v, want the error tabular.ErrOptions", name, err)
		}
	}
	var bad bytes.Buffer
	w.mustRows(acme, in("windows-1252", "Straße,n\nKöln,1,2\nBonn,2\n"), tabular.Options{As: "records:thing", Format: tabular.CSV, Encoding: "windows-1252", Partial: true, Bad: &bad})
	if bad.String() != in("windows-1252", "Straße,n\nKöln,1,2\n") {
		t.Errorf("bad rows = %q, want the row of Köln after the header", bad.String())
	}
}

// compared is a CSV file, and what another reader makes of it.
type compared struct {
	name   string
	file   []byte
	o      tabular.Options
	header []string
	rows   [][]string
}

// compare imports a file twice, exports, and compares what comes out with what the other reader found, cell by cell.
func (w *world) compare(org *tenants.Tenant, c compared) {
	w.t.Helper()
	c.o.As, c.o.Format = "records:thing", tabular.CSV
	r, err := w.rows(org, string(c.file), c.o)
	if err != nil {
		w.t.Errorf("%s: %v %v", c.name, err, r.Problems)
		return
	}
	before := w.dump(org, false)
	again := w.mustRows(org, string(c.file), c.o)
	if after := w.dump(org, false); after != before || again.Created+again.Updated != 0 {
		w.t.Errorf("%s: the second time: %+v", c.name, again.Counts)
	}
	w.comeBack(org, c.name)
	if len(r.Columns) != len(c.header) {
		w.t.Fatalf("%s: %d columns, %d names", c.name, len(r.Columns), len(c.header))
	}
	want, got := map[string]int{}, map[string]int{}
	for _, row := range c.rows {
		cells, blank := make([]string, len(row)), true
		for i, cell := range row {
			blank = blank && strings.TrimSpace(cell) == ""
			cells[i] = expected(r.Columns[i].Type, cell)
		}
		if !blank {
			want[strings.Join(cells, "\x00")]++
		}
	}
	for _, line := range lines(before, "record") {
		var rec map[string]any
		d := json.NewDecoder(strings.NewReader(line))
		if d.UseNumber(); d.Decode(&rec) != nil {
			w.t.Fatal(line)
		}
		values, _ := rec["values"].(map[string]any)
		cells := make([]string, len(c.header))
		for i, column := range r.Columns {
			from := rec
			if column.Type != "" {
				from = values
			}
			if v := from[column.Field]; v != nil {
				cells[i] = strings.ReplaceAll(fmt.Sprint(v), "\r\n", "\n") // as the other reader has it
			}
		}
		got[strings.Join(cells, "\x00")]++
	}
	for _, row := range slices.Sorted(maps.Keys(want)) {
		if got[row] == 0 || r.Columns[0].Field == "external_id" && got[row] != want[row] {
			w.t.Errorf("%s: %d of %d times there: %.300q", c.name, got[row], want[row], row)
			return
		}
		delete(got, row)
	}
	for row := range got {
		w.t.Errorf("%s: nothing in the file is %.300q", c.name, row)
		return
	}
}

// comeBack imports the export of the rows, by the identifiers in it, and nothing changes and nothing is created by
// that.
func (w *world) comeBack(org *tenants.Tenant, name string) {
	w.t.Helper()
	o := &gatewaytest.Org{Gateway: w.gateway, Slug: org.Org.Slug, Host: org.Org.Slug + ".localhost"}
	key := o.Key(w.t, tenants.AllPermissions()...)
	before := w.dump(org, false)
	a := o.Page(w.t, "/api/custom/objects/thing/records/export?format=csv", gatewaytest.WithKey(key))
	if a.Code != 200 {
		w.t.Fatalf("%s: the export: %d %.300s", name, a.Code, a.Text())
	}
	r, err := w.rows(org, a.Text(), tabular.Options{As: "records:thing", Format: tabular.CSV})
	if after := w.dump(org, false); err != nil || after != before || r.Created+r.Updated+r.Failed != 0 || r.Unchanged != len(lines(before, "record")) {
		w.t.Errorf("%s: the export, imported again: %v %+v %.600v\n%s\n%s", name, err, r.Counts, r.Problems, a.Text(), cmp.Diff(before, after))
	}
}

// expected returns what comes out of a cell: the same text, save that of days, times and truths the value counts.
func expected(typ, cell string) string {
	switch typ {
	case schema.Date, schema.DateTime, schema.Boolean:
		if v, err := schema.Convert(typ, cell); err == nil && v != nil {
			return fmt.Sprint(v)
		}
		return strings.TrimSpace(cell)
	case schema.Number, schema.Email, schema.URL:
		return strings.TrimSpace(cell)
	case "": // a field of every record, of one line
		return strings.TrimSpace(cell)
	}
	return cell
}

// TestRows_Generated is the property that nothing changes and nothing is created: files of generated headers,
// separators, quotes, encodings and types come out as they went in.
func TestRows_Generated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	seed := rand.Uint64()
	if given := os.Getenv("TENANTRY_TEST_SEED"); given != "" {
		seed, _ = strconv.ParseUint(given, 10, 64)
	}
	t.Logf("TENANTRY_TEST_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for n := range 40 {
		w.compare(w.org("g"+strconv.Itoa(n)), generated(t, random, fmt.Sprintf("seed %d, file %d", seed, n)))
	}
}

// generated makes a file up.
func generated(t *testing.T, random *rand.Rand, name string) compared {
	t.Helper()
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	kinds := [][]string{
		{"1", "-2.5", "0", "1000000", " 7 "}, {"01067", "53111", "10115"}, {"1.1", "1.10", "100E10"}, {"+49351123", "007"}, {"NO", "no"}, {"yes", "no", "Yes"}, {"true", "false"},
		{"2024-01-02", "2 Jan 2024"}, {"2024-01-02T03:04:05Z", "2024-01-02 03:04:05"}, {"a@example.com"}, {"https://example.com/x"}, {"0.12345678901234567", "0.5"},
		{"x", " ", " x ", "a;b", "a,b", "a|b", "a\tb", `5" nail`, `"`, "one\ntwo", "one\r\ntwo", "ä", "=1+1", "'=1", "[\"a\"]", "null", "'x", "NaN"},
	}
	columns := 2 + random.IntN(7)
	c := compared{name: name, header: make([]string, columns)}
	of := make([][]string, columns)
	for i := range columns {
		c.header[i] = pick("a", "A", "a", "a_2", "Net Price", "net_price", "net-price", "Größe", "ü", "", "object", "deleted", "values", "created_at", "id", "b;c", "d, e", "f|g", `h"i`, "Opt-in?", strings.Repeat("w", 300))
		of[i] = kinds[random.IntN(len(kinds))]
	}
	for n := range 1 + random.IntN(30) {
		row := make([]string, columns)
		for i := range row {
			if row[i] = pick(of[i]...); random.IntN(4) == 0 {
				row[i] = ""
			}
			if c.header[i] == "id" { // what tells records apart
				row[i] = fmt.Sprintf("%d-%d", n, i)
			}
		}
		c.rows = append(c.rows, row)
	}
	var text bytes.Buffer
	out := csv.NewWriter(&text)
	out.UseCRLF = random.IntN(2) == 0
	out.Comma = rune(pick(",", ";", "\t", "|")[0])
	if random.IntN(2) == 0 {
		c.o.Delimiter = string(out.Comma)
	} else {
		fmt.Fprintf(&text, "sep=%c\n", out.Comma)
	}
	if err := out.WriteAll(append([][]string{c.header}, c.rows...)); err != nil {
		t.Fatal(err)
	}
	body := text.Bytes()
	c.file = body
	if encoding := pick("", "windows-1252", "utf-16le", "utf-16be"); encoding != "" {
		e, err := htmlindex.Get(encoding)
		if err != nil {
			t.Fatal(err)
		}
		c.o.Encoding = encoding
		if c.file, err = e.NewEncoder().Bytes(body); err != nil {
			t.Fatal(err)
		}
	}
	_, body, sep := bytes.Cut(body, []byte("sep="))
	if sep {
		_, body, _ = bytes.Cut(body, []byte("\n"))
	} else {
		body = text.Bytes()
	}
	in := csv.NewReader(bytes.NewReader(body))
	in.Comma = out.Comma
	read, err := in.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	c.header, c.rows = read[0], apart(read[1:])
	return c
}

// apart returns the cells without the apostrophe that an export writes before what a spreadsheet would take for a
// formula.
func apart(all [][]string) [][]string {
	for _, row := range all {
		for i, cell := range row {
			if rest, marked := strings.CutPrefix(cell, "'"); marked && strings.HasPrefix(strings.TrimLeft(rest, "'"), "=") {
				row[i] = rest
			}
		}
	}
	return all
}

// TestRows_Folder imports every CSV file of the folder that TENANTRY_TEST_FILES names twice, and compares what comes
// out.
func TestRows_Folder(t *testing.T) {
	t.Parallel()
	folder := os.Getenv("TENANTRY_TEST_FILES")
	if folder == "" {
		t.Skip("TENANTRY_TEST_FILES names no folder")
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.[ct]sv"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no CSV files (%v)", folder, err)
	}
	w := newWorld(t)
	for n, name := range files {
		file, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		c := compared{name: filepath.Base(name), file: file}
		most := 0
		for _, comma := range ",;\t|" { // the one by which the other reader has the most cells
			in := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(file, []byte("\xef\xbb\xbf"))))
			in.Comma = comma
			if read, err := in.ReadAll(); err == nil && len(read) > 0 && len(read[0]) > most {
				most, c.header, c.rows = len(read[0]), read[0], apart(read[1:])
			}
		}
		if most == 0 {
			t.Logf("%s: not compared: the other reader refuses it", name)
			continue
		}
		w.compare(w.org("f"+strconv.Itoa(n)), c)
		t.Logf("%s: %d rows", name, len(c.rows))
	}
}
