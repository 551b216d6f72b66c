package transfer

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxRow is the longest row, in bytes.
const maxRow = 1 << 20

// bounded fails where more than maxRow bytes would be read for one row.
type bounded struct {
	r     io.Reader
	read  int64
	limit int64
}

var errRowTooLong = fmt.Errorf("a row is longer than %d bytes; a quote or bracket may be missing", maxRow)

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

const mark = "\xef\xbb\xbf"

// skipMark skips a byte order mark, which spreadsheets write.
func skipMark(r *bufio.Reader) error {
	if start, err := r.Peek(len(mark)); err == nil && string(start) == mark {
		_, err := r.Discard(len(mark))
		return err
	}
	return nil
}

type csvReader struct {
	io.Closer
	bounds *bounded
	r      *csv.Reader
	header []string
}

// openCSV reads the header; it tells by it what stands between columns.
func openCSV(in io.ReadCloser) (reader, error) {
	bounds := &bounded{r: in}
	bounds.allow(0)
	buf := bufio.NewReaderSize(bounds, 64<<10)
	c := &csvReader{Closer: in, bounds: bounds}
	fail := func(err error) (reader, error) {
		return nil, errors.Join(fmt.Errorf("reading the header: %w", err), in.Close())
	}
	if err := skipMark(buf); err != nil {
		return fail(err)
	}
	start, err := buf.Peek(32 << 10)
	if err != nil && !errors.Is(err, io.EOF) {
		return fail(err)
	}
	first, _, _ := bytes.Cut(start, []byte("\n"))
	c.r = csv.NewReader(buf)
	for _, comma := range []rune{';', '\t'} {
		if !bytes.ContainsRune(first, ',') && bytes.ContainsRune(first, comma) {
			c.r.Comma = comma
			break
		}
	}
	header, err := c.r.Read()
	if errors.Is(err, io.EOF) {
		return fail(errors.New("the file is empty"))
	}
	if err != nil {
		return fail(err)
	}
	c.header = make([]string, len(header))
	for i, name := range header {
		c.header[i] = strings.ToValidUTF8(strings.TrimSpace(name), "?")
	}
	return c, nil
}

func (c *csvReader) offset() int64 { return c.r.InputOffset() }

func (c *csvReader) next() (rawLine, error) {
	c.bounds.allow(c.r.InputOffset())
	cells, err := c.r.Read()
	var parse *csv.ParseError
	switch {
	case errors.As(err, &parse) && errors.Is(err, csv.ErrFieldCount):
		return rawLine{number: parse.StartLine, cells: cells, err: fmt.Errorf("the row has %d cells, the header %d", len(cells), len(c.header))}, nil
	case errors.As(err, &parse):
		return rawLine{number: parse.StartLine, cells: cells, err: fmt.Errorf("the row is not valid CSV: %w", parse.Err)}, nil
	case err != nil:
		return rawLine{}, err
	}
	line, _ := c.r.FieldPos(0)
	return rawLine{number: line, cells: cells}, nil
}

type jsonReader struct {
	io.Closer
	bounds *bounded
	dec    *json.Decoder
	array  bool
	number int
}

func openJSON(in io.ReadCloser) (reader, error) {
	bounds := &bounded{r: in}
	bounds.allow(0)
	buf := bufio.NewReaderSize(bounds, 64<<10)
	j := &jsonReader{Closer: in, bounds: bounds}
	fail := func(err error) (reader, error) {
		return nil, errors.Join(fmt.Errorf("reading the rows: %w", err), in.Close())
	}
	if err := skipMark(buf); err != nil {
		return fail(err)
	}
	start, err := buf.Peek(4096)
	if err != nil && !errors.Is(err, io.EOF) {
		return fail(err)
	}
	start = bytes.TrimLeft(start, " \t\r\n")
	if len(start) == 0 || start[0] != '[' && start[0] != '{' {
		return fail(errors.New("a JSON array of objects is expected"))
	}
	j.dec = json.NewDecoder(buf)
	if j.array = start[0] == '['; j.array {
		if _, err := j.dec.Token(); err != nil {
			return fail(err)
		}
	}
	return j, nil
}

func (j *jsonReader) offset() int64 { return j.dec.InputOffset() }

func (j *jsonReader) next() (rawLine, error) {
	j.bounds.allow(j.dec.InputOffset())
	if !j.dec.More() {
		return rawLine{}, j.end()
	}
	var raw json.RawMessage
	if err := j.dec.Decode(&raw); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return rawLine{}, fmt.Errorf("row %d is not valid JSON, near byte %d: %w", j.number+1, j.dec.InputOffset(), err)
	}
	j.number++
	return rawLine{number: j.number, text: string(raw)}, nil
}

// end returns io.EOF where the file ends as it should.
func (j *jsonReader) end() error {
	if j.array {
		if t, err := j.dec.Token(); err != nil || t != json.Delim(']') {
			return fmt.Errorf("the list of rows does not end after row %d: %w", j.number, errors.Join(err, io.ErrUnexpectedEOF))
		}
		j.array = false
	}
	if _, err := j.dec.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("there is something after the list of rows, at byte %d", j.dec.InputOffset())
	}
	return io.EOF
}
