package tabular

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"tenantry/modules/imports/bundle"
)

// split returns what records makes of a text, and the text that its records had.
func split(t *testing.T, text string, comma byte) (all [][]string, kept string, bad int) {
	t.Helper()
	d := &records{r: bufio.NewReaderSize(strings.NewReader(text), 16), comma: comma, end: '\n'}
	for {
		rec, err := d.next()
		switch {
		case errors.Is(err, io.EOF):
			return all, kept, bad
		case err != nil:
			t.Fatal(err)
		case rec.err != nil:
			bad++
		default:
			all = append(all, rec.cells)
		}
		kept += rec.text
	}
}

// FuzzRecords holds records to what the standard library reads, which drops carriage returns before line feeds.
func FuzzRecords(f *testing.F) {
	for _, seed := range []string{
		"a,b\n1,2\n", "a;b\r\n\"x;\r\ny\";2", "a\n5\" nail\nscrew\r\n", "\"a\"b\n1\n", "\"\"\"\",\n\n,\r\n\"", "a\r", "\"a\r\"\r\n\"b\n\"\"c\"\"\"\n", "\r\r\n", "\"\n",
	} {
		f.Add(seed, byte(','))
		f.Add(seed, byte(';'))
	}
	f.Fuzz(func(t *testing.T, text string, comma byte) {
		if !separates(comma) || len(text) > maxRow {
			return
		}
		got, kept, bad := split(t, text, comma)
		if plain := strings.NewReplacer("\r", "", "\n", ""); plain.Replace(kept) != plain.Replace(text) {
			t.Errorf("%q: the records have %q", text, kept)
		}
		r := csv.NewReader(strings.NewReader(text))
		r.Comma, r.FieldsPerRecord = rune(comma), -1
		want, err := r.ReadAll()
		if err != nil {
			if bad == 0 {
				t.Errorf("%q: nothing is wrong with it, but %v", text, err)
			}
			return
		}
		for _, rec := range got {
			for i := range rec {
				rec[i] = strings.ReplaceAll(rec[i], "\r\n", "\n")
			}
		}
		if bad > 0 || !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%q: %q, want %q (%d bad)", text, got, want, bad)
		}
	})
}

// TestSeparator_IsJudgedOutsideQuotes over several records.
func TestSeparator_IsJudgedOutsideQuotes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]byte{
		"a,b\n1,2\n":                             ',',
		"Name;Preis, netto;Ort\nA;12,50;Bonn\n":  ';',
		"a|b\n1|2\n":                             '|',
		"a\tb, c\n1\t2\n":                        '\t',
		"\"a;b\",c\n\"1;2\",3\n":                 ',',
		"\"a\nb;c\",d\n\"x\n;;;\",3\n":           ',',
		"Note; text,qty\nhello,5\n":              ',',
		"name\nSmith, John\n":                    ',',
		"name\nSmith; John\n":                    ',',
		"a;b\n1;2\n\"" + strings.Repeat("x,", 9): ';',
		"id,n\n2,6\n3\n":                         ',',
		"":                                       ',',
	} {
		if got := separator([]byte(text), true, '\n'); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// FuzzOpen holds the steps from bytes to records together: whatever a file holds, reading it ends, and rows that are
// read have the cells of the header.
func FuzzOpen(f *testing.F) {
	for _, seed := range []string{"a,b\n1,2\n", "sep=;\na;b\n", "\xff\xfea\x00,\x00b\x00\n\x00", "\xef\xbb\xbfa\tb\n", "a\r1\r", "[{\"a\":1}]", "Stra\xdfe\n\xe4"} {
		for _, encoding := range []string{"", "windows-1252", "iso-2022-jp", GuessEncoding} {
			f.Add([]byte(seed), encoding, "")
		}
		f.Add([]byte(seed), "utf-16le", "tab")
	}
	f.Fuzz(func(t *testing.T, file []byte, encoding, delimiter string) {
		for _, format := range []string{CSV, JSON} {
			src := bundle.Source{Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(file)), nil }}
			r, err := open(src, &Options{Format: format, Encoding: encoding, Delimiter: delimiter})
			if err != nil {
				if !errors.Is(err, ErrOptions) {
					t.Fatal(err)
				}
				continue
			}
			for err == nil {
				raw, e := r.Next()
				if c, is := r.(*csvReader); is && e == nil && raw.Err == nil && len(raw.Cells) != len(c.header) {
					t.Fatalf("%q: %d cells", raw.Text, len(raw.Cells))
				}
				err = e
			}
			if !errors.Is(err, io.EOF) && !errors.Is(err, ErrOptions) {
				t.Fatal(err)
			}
		}
	})
}
