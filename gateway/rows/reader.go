package rows

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"tenantry/backends/export"
	"tenantry/gateway/transfer"
)

// maxRow is the longest row, in bytes.
const maxRow = 1 << 20

// bounded fails where more than maxRow bytes would be read for one row.
type bounded struct {
	r     io.Reader
	read  int64
	limit int64
}

var errRowTooLong = fmt.Errorf("%w: a row is longer than %d bytes; a quote or bracket may be missing", ErrOptions, maxRow)

// unreadable says what is wrong with the file itself. An err of the disk stays what it is: the file may be good.
func unreadable(err error, format string, args ...any) error {
	if syntax := new(json.SyntaxError); err != nil && !errors.As(err, &syntax) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.As(err, new(*csv.ParseError)) {
		return err
	}
	return fmt.Errorf("%w: %s", ErrOptions, fmt.Sprintf(format, args...))
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.read >= b.limit {
		return 0, errRowTooLong
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.limit-b.read)])
	b.read += int64(n)
	return n, err
}

// allow lets the row that starts at the offset be read.
func (b *bounded) allow(offset int64) { b.limit = offset + maxRow + 1<<16 }

// doubled doubles the carriage return of line ends within quotes, of which package csv takes one away. It fails
// where a row has far more cells than a file may have columns: package csv would keep them all.
type doubled struct {
	r      *bufio.Reader
	comma  byte
	cells  int // of the row so far
	quoted bool
	again  bool
}

// maxCells bounds those of a row, which may be more than there are columns: that is told with its line.
const maxCells = 16 * maxColumns

func (d *doubled) Read(p []byte) (n int, err error) {
	for ; n < len(p) && (n == 0 || d.again || d.r.Buffered() > 0); n++ {
		if d.again {
			p[n], d.again = '\r', false
			continue
		}
		if p[n], err = d.r.ReadByte(); err != nil {
			return n, err
		}
		switch p[n] {
		case '"':
			d.quoted = !d.quoted
		case '\n':
			if !d.quoted {
				d.cells = 0
			}
		case d.comma:
			if d.quoted {
				continue
			}
			if d.cells++; d.cells > maxCells {
				return n, fmt.Errorf("%w: a row has more than %d cells", ErrOptions, maxCells)
			}
		case '\r':
			next, _ := d.r.Peek(1)
			d.again = d.quoted && string(next) == "\n"
		}
	}
	return n, nil
}

type csvReader struct {
	io.Closer
	bounds *bounded
	r      *csv.Reader
	header []string
}

// open opens a file of rows of that format.
func open(src transfer.Source, format string) (transfer.Reader, error) {
	in, err := src.Open()
	if err != nil {
		return nil, fmt.Errorf("opening the rows: %w", err)
	}
	bounds := &bounded{r: in}
	bounds.allow(0)
	buf := bufio.NewReaderSize(bounds, 64<<10)
	var r transfer.Reader
	if format == CSV {
		r, err = openCSV(in, bounds, buf)
	} else {
		r, err = openJSON(in, bounds, buf)
	}
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return r, nil
}

// start returns how a file begins, without a byte order mark, which spreadsheets write.
func start(buf *bufio.Reader) ([]byte, error) {
	const mark = "\xef\xbb\xbf"
	if head, err := buf.Peek(len(mark)); err == nil && string(head) == mark {
		if _, err := buf.Discard(len(mark)); err != nil {
			return nil, err
		}
	}
	head, err := buf.Peek(32 << 10)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return head, err
}

// openCSV reads the header; it tells by it what stands between columns.
func openCSV(in io.Closer, bounds *bounded, buf *bufio.Reader) (transfer.Reader, error) {
	head, err := start(buf)
	if err != nil {
		return nil, err
	}
	first, _, _ := bytes.Cut(head, []byte("\n"))
	cells := &doubled{r: buf, comma: ','}
	c := &csvReader{Closer: in, bounds: bounds, r: csv.NewReader(cells)}
	for _, comma := range []rune{';', '\t'} {
		if !bytes.ContainsRune(first, ',') && bytes.ContainsRune(first, comma) {
			c.r.Comma, cells.comma = comma, byte(comma)
			break
		}
	}
	if c.header, err = c.r.Read(); errors.Is(err, io.EOF) {
		return nil, unreadable(nil, "the file is empty")
	} else if err != nil {
		return nil, unreadable(err, "the header is not valid CSV: %v", err)
	}
	for i, name := range c.header { // its cells become names of fields, whatever they are
		name = strings.ReplaceAll(name, "\r\n", "\n")
		switch {
		case !utf8.ValidString(name) || strings.Contains(name, "\x00"):
			return nil, unreadable(nil, "the header is not valid UTF-8, or holds a NUL character; save the file as CSV in UTF-8")
		case strings.Contains(name, "\r"):
			return nil, unreadable(nil, "the header holds a carriage return; end the lines with a line feed, alone or after it")
		}
		c.header[i] = export.Original(strings.TrimSpace(name))
	}
	return c, nil
}

func (c *csvReader) Offset() int64 { return c.r.InputOffset() }

func (c *csvReader) Next() (transfer.Raw, error) {
	c.bounds.allow(c.r.InputOffset())
	cells, err := c.r.Read()
	var parse *csv.ParseError
	switch {
	case errors.As(err, &parse) && errors.Is(err, csv.ErrFieldCount):
		return transfer.Raw{Number: parse.StartLine, Cells: cells, Err: fmt.Errorf("the row has %d cells, the header %d", len(cells), len(c.header))}, nil
	case errors.As(err, &parse):
		return transfer.Raw{Number: parse.StartLine, Cells: cells, Err: fmt.Errorf("the row is not valid CSV: %w", parse.Err)}, nil
	case err != nil:
		return transfer.Raw{}, err
	}
	line, _ := c.r.FieldPos(0)
	return transfer.Raw{Number: line, Cells: cells}, nil
}

type jsonReader struct {
	io.Closer
	bounds *bounded
	dec    *json.Decoder
	array  bool
	number int
}

func openJSON(in io.Closer, bounds *bounded, buf *bufio.Reader) (transfer.Reader, error) {
	head, err := start(buf)
	if err != nil {
		return nil, err
	}
	head = bytes.TrimLeft(head, " \t\r\n")
	if len(head) == 0 || head[0] != '[' && head[0] != '{' {
		return nil, unreadable(nil, "a JSON array of objects is expected")
	}
	j := &jsonReader{Closer: in, bounds: bounds, dec: json.NewDecoder(buf), array: head[0] == '['}
	if j.array {
		_, err = j.dec.Token()
	}
	return j, err
}

func (j *jsonReader) Offset() int64 { return j.dec.InputOffset() }

func (j *jsonReader) Next() (transfer.Raw, error) {
	j.bounds.allow(j.dec.InputOffset())
	if !j.dec.More() {
		return transfer.Raw{}, j.end()
	}
	var raw json.RawMessage
	if err := j.dec.Decode(&raw); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return transfer.Raw{}, unreadable(err, "row %d is not valid JSON, near byte %d: %v", j.number+1, j.dec.InputOffset(), err)
	}
	j.number++
	return transfer.Raw{Number: j.number, Text: string(raw)}, nil
}

// end returns io.EOF where the file ends as it should.
func (j *jsonReader) end() error {
	if j.array {
		if t, err := j.dec.Token(); err != nil || t != json.Delim(']') {
			return unreadable(err, "the list of rows does not end after row %d", j.number)
		}
		j.array = false
	}
	if _, err := j.dec.Token(); !errors.Is(err, io.EOF) {
		return unreadable(err, "there is something after the list of rows, at byte %d", j.dec.InputOffset())
	}
	return io.EOF
}
