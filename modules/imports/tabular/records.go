package tabular

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxCells bounds the cells of a record. It is larger than maxColumns, so that a record with some cells too many is
// reported with its line.
const maxCells = 16 * maxColumns

// records splits a CSV text into records as in RFC 4180. Text in quotes is kept unchanged, including line ends. Empty
// lines are skipped. It is not safe for concurrent use.
type records struct {
	r     *bufio.Reader
	comma byte
	// end is the line end: a line feed, which may follow a carriage return, or a carriage return if there are no line
	// feeds.
	end  byte
	line int // lines read so far
	buf  []byte
}

// csvRecord is one record; its cells share its text.
type csvRecord struct {
	text  string // as in the file, with its line end
	line  int    // of its beginning, from 1
	cells []string
	err   error // why it cannot be split into cells
}

var (
	errBareQuote = errors.New(`a cell has a " but does not begin with one; enclose such a cell in quotes and double each " in it`)
	errQuote     = errors.New(`a " is not closed, or text follows the one that closes a cell`)
)

// next returns the next record, or io.EOF. A record that is too long, or has too many cells, ends the file with
// ErrOptions.
func (d *records) next() (csvRecord, error) {
	for {
		d.buf = d.buf[:0]
		out := csvRecord{line: d.line + 1}
		err := d.more()
		if errors.Is(err, io.EOF) && len(d.buf) > 0 {
			err = nil // the last line may lack a line end
		}
		if err != nil {
			return csvRecord{}, err
		}
		if len(d.bare(d.buf)) == 0 {
			continue
		}
		cuts, err := d.split(&out)
		if err != nil {
			return csvRecord{}, err
		}
		if out.text = string(d.buf); out.err != nil {
			return out, nil
		}
		out.cells = make([]string, len(cuts))
		for i, c := range cuts {
			if out.cells[i] = out.text[c.from:c.to]; c.doubled {
				out.cells[i] = strings.ReplaceAll(out.cells[i], `""`, `"`)
			}
		}
		return out, nil
	}
}

// more reads another line.
func (d *records) more() error {
	for {
		part, err := d.r.ReadSlice(d.end)
		if d.buf = append(d.buf, part...); len(d.buf) > maxRow {
			return errRowTooLong
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if len(part) > 0 {
			d.line++
		}
		return err
	}
}

// bare returns a line without its line end.
func (d *records) bare(line []byte) []byte {
	line = bytes.TrimSuffix(line, []byte{d.end})
	return bytes.TrimSuffix(line, []byte("\r"))
}

// cut is the position of a cell in the text of its record.
type cut struct {
	from, to int
	doubled  bool // it contains doubled quotes
}

// split finds the cells of the record that begins in buf, and reads more lines if quotes continue.
func (d *records) split(out *csvRecord) (cuts []cut, err error) {
	length := len(d.bare(d.buf))
	for at := 0; ; {
		if len(cuts) >= maxCells {
			return nil, fmt.Errorf("%w: a row has more than %d cells", ErrOptions, maxCells)
		}
		if at >= length || d.buf[at] != '"' {
			n := bytes.IndexByte(d.buf[at:length], d.comma)
			last := n < 0
			if last {
				n = length - at
			}
			if bytes.IndexByte(d.buf[at:at+n], '"') >= 0 {
				out.err = errBareQuote
				return nil, nil
			}
			if cuts, at = append(cuts, cut{from: at, to: at + n}), at+n+1; last {
				return cuts, nil
			}
			continue
		}
		c := cut{from: at + 1}
		for at++; ; {
			n := bytes.IndexByte(d.buf[at:], '"')
			if n < 0 {
				at = len(d.buf)
				switch err := d.more(); {
				case len(d.buf) > at && (err == nil || errors.Is(err, io.EOF)):
					length = at + len(d.bare(d.buf[at:]))
				case errors.Is(err, io.EOF):
					out.err = errQuote
					return nil, nil
				default:
					return nil, err
				}
				continue
			}
			if at += n + 1; at < length && d.buf[at] == '"' {
				c.doubled = true
				at++
				continue
			}
			break
		}
		c.to = at - 1
		switch cuts = append(cuts, c); {
		case at >= length:
			return cuts, nil
		case d.buf[at] != d.comma:
			out.err = errQuote
			return nil, nil
		}
		at++
	}
}

// separators are the delimiters that are detected. The comma is last, because it may be the decimal separator of
// numbers if another one fits, too.
const separators = ";\t|,"

// maxJudged is how many records are examined to detect the delimiter.
const maxJudged = 100

// separator detects the delimiter from the beginning of a file: the one for which the header has several cells and
// most of the first records have as many; of several the one with the most cells. The head may end within a record.
func separator(head []byte, whole bool, end byte) byte {
	best, fit, most := byte(','), -1, 1
	for i := range len(separators) {
		d := &records{r: bufio.NewReader(bytes.NewReader(head)), comma: separators[i], end: end}
		columns, fits := 0, 0
		var rest int
		for n := range maxJudged {
			rec, err := d.next()
			if err != nil {
				break
			}
			if rest += len(rec.text); n > 0 && !whole && rest >= len(head) {
				break // the record may continue
			}
			switch {
			case n == 0:
				columns = len(rec.cells)
			case len(rec.cells) == columns:
				fits++
			}
		}
		if columns > 1 && (fits > fit || fits == fit && columns > most) {
			best, fit, most = separators[i], fits, columns
		}
	}
	return best
}

// lineEnd detects the line end from the beginning of a file: a carriage return if there is no line feed outside
// quotes.
func lineEnd(head []byte) byte {
	quoted, returns := false, false
	for _, b := range head {
		switch {
		case b == '"':
			quoted = !quoted
		case b == '\n' && !quoted:
			return '\n'
		case b == '\r' && !quoted:
			returns = true
		}
	}
	if returns {
		return '\r'
	}
	return '\n'
}
