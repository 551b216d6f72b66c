package tabular

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"tenantry/modules/imports/bundle"
	"tenantry/operation/export"
)

// maxRow is the longest row, in bytes.
const maxRow = 1 << 20

// boundedReader fails if more than maxRow bytes would be read for one row.
type boundedReader struct {
	r     io.Reader
	read  int64
	limit int64
}

var errRowTooLong = fmt.Errorf("%w: a row is longer than %d bytes; a quote or bracket may be missing", ErrOptions, maxRow)

// unreadable returns ErrOptions for a malformed file. An I/O error is returned unchanged, because the file may be
// good.
func unreadable(err error, format string, args ...any) error {
	if syntax := new(json.SyntaxError); err != nil && !errors.As(err, &syntax) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return fmt.Errorf("%w: %s", ErrOptions, fmt.Sprintf(format, args...))
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.read >= b.limit {
		return 0, errRowTooLong
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.limit-b.read)])
	b.read += int64(n)
	return n, err
}

// allow allows the row at the offset to be read.
func (b *boundedReader) allow(offset int64) { b.limit = offset + maxRow + 1<<16 }

// countingReader counts the bytes that are read.
type countingReader struct {
	io.ReadCloser
	bytes int64
}

func (a *countingReader) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	a.bytes += int64(n)
	return n, err
}

func (a *countingReader) Offset() int64 { return a.bytes }

// open opens a file of rows with the options.
func open(src bundle.Source, o *Options) (bundle.Reader, error) {
	in, err := src.Open()
	if err != nil {
		return nil, fmt.Errorf("open the rows: %w", err)
	}
	from := &countingReader{ReadCloser: in}
	var r bundle.Reader
	text, err := decode(from, o.Encoding)
	switch {
	case err != nil:
	case o.Format == CSV:
		r, err = openCSV(from, text, o.Delimiter)
	default:
		r, err = openJSON(from, text)
	}
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return r, nil
}

// headSize is how much of a file is examined to detect its encoding and delimiter.
const headSize = 64 << 10

// peek returns the beginning of a text, and whether it is the whole text.
func peek(buf *bufio.Reader) (head []byte, whole bool, err error) {
	head, err = buf.Peek(headSize)
	if errors.Is(err, io.EOF) {
		return head, true, nil
	}
	return head, false, err
}

type csvReader struct {
	*countingReader
	text    decoded
	records records
	first   string // the header as in the file
	header  []string
}

// openCSV reads the header. It detects the line end, and the delimiter unless that is given.
func openCSV(from *countingReader, text decoded, delimiter string) (bundle.Reader, error) {
	c := &csvReader{countingReader: from, text: text, records: records{r: bufio.NewReaderSize(text, headSize)}}
	head, whole, err := peek(c.records.r)
	if err != nil {
		return nil, err
	}
	c.records.end = lineEnd(head)
	if c.first, err = c.separate(head, whole, delimiter); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	var header csvRecord
	if err == nil {
		header, err = c.records.next()
	}
	switch {
	case errors.Is(err, io.EOF):
		return nil, unreadable(nil, "the file is empty")
	case err != nil:
		return nil, err
	case header.err != nil:
		return nil, unreadable(nil, "the header is not valid CSV: %v", header.err)
	}
	c.first += header.text
	for i, name := range header.cells { // names must be valid text, because they become names of fields
		switch name = strings.ReplaceAll(name, "\r\n", "\n"); {
		case !utf8.ValidString(name):
			return nil, unreadable(nil, "the header is not valid UTF-8; "+encodingAdvice)
		case strings.Contains(name, "\x00"):
			return nil, unreadable(nil, "the header holds a NUL character, as UTF-16 does; "+encodingAdvice)
		case text.changes(name):
			return nil, unreadable(nil, "the header is not valid %s", text.name)
		case strings.Contains(name, "\r"):
			return nil, unreadable(nil, "the header holds a carriage return; end the lines with a line feed, alone or after it")
		}
		header.cells[i] = export.Original(strings.TrimSpace(name))
	}
	c.header = header.cells
	return c, nil
}

// separate determines the delimiter: the given one, that of a first line such as "sep=;", or the one that fits the
// first records. It returns that first line, which is not the header.
func (c *csvReader) separate(head []byte, whole bool, given string) (line string, err error) {
	d := &c.records
	if after, marked := bytes.CutPrefix(head, []byte("sep=")); marked && len(after) > 0 && separates(after[0]) {
		if rest := after[1:]; len(rest) == 0 || rest[0] == '\r' || rest[0] == '\n' {
			if d.comma, err = after[0], d.more(); err != nil && !errors.Is(err, io.EOF) {
				return "", err
			}
			line = string(d.buf)
		}
	}
	switch {
	case given != "":
		d.comma, err = delimiterOf(given)
	case line == "":
		d.comma = separator(head, whole, d.end)
	}
	return line, err
}

func (c *csvReader) Next() (bundle.Raw, error) {
	rec, err := c.records.next()
	if err != nil {
		return bundle.Raw{}, err
	}
	raw := bundle.Raw{Number: rec.line, Text: rec.text, Cells: rec.cells}
	switch {
	case rec.err != nil:
		raw.Err = fmt.Errorf("the row is not valid CSV: %w", rec.err)
	case len(rec.cells) != len(c.header):
		raw.Err = fmt.Errorf("the row has %d cells but the header has %d", len(rec.cells), len(c.header))
	case c.text.changes(rec.text):
		raw.Err = fmt.Errorf("the row is not valid %s", c.text.name)
	}
	return raw, nil
}

type jsonReader struct {
	*countingReader
	text   decoded
	bounds *boundedReader
	dec    *json.Decoder
	array  bool
	number int
}

func openJSON(from *countingReader, text decoded) (bundle.Reader, error) {
	bounds := &boundedReader{r: text}
	bounds.allow(0)
	buf := bufio.NewReaderSize(bounds, headSize)
	head, _, err := peek(buf)
	if err != nil {
		return nil, err
	}
	head = bytes.TrimLeft(head, " \t\r\n")
	if len(head) == 0 || head[0] != '[' && head[0] != '{' {
		return nil, unreadable(nil, "a JSON array of objects is expected")
	}
	j := &jsonReader{countingReader: from, text: text, bounds: bounds, dec: json.NewDecoder(buf), array: head[0] == '['}
	if j.array {
		_, err = j.dec.Token()
	}
	return j, err
}

func (j *jsonReader) Next() (bundle.Raw, error) {
	j.bounds.allow(j.dec.InputOffset())
	if !j.dec.More() {
		return bundle.Raw{}, j.end()
	}
	var raw json.RawMessage
	if err := j.dec.Decode(&raw); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return bundle.Raw{}, unreadable(err, "row %d is not valid JSON, near byte %d: %v", j.number+1, j.dec.InputOffset(), err)
	}
	j.number++
	out := bundle.Raw{Number: j.number, Text: string(raw)}
	if j.text.changes(out.Text) {
		out.Err = fmt.Errorf("the row is not valid %s", j.text.name)
	}
	return out, nil
}

// end returns io.EOF if the file ends properly.
func (j *jsonReader) end() error {
	if j.array {
		if t, err := j.dec.Token(); err != nil || t != json.Delim(']') {
			return unreadable(err, "the list of rows does not end after row %d", j.number)
		}
		j.array = false
	}
	if _, err := j.dec.Token(); !errors.Is(err, io.EOF) {
		return unreadable(err, "the file continues after the list of rows, at byte %d", j.dec.InputOffset())
	}
	return io.EOF
}
