package tabular

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/unicode"

	"tenantry/internal/texts"
)

// GuessEncoding, as an encoding, has that found out: UTF-8 where all that is looked at is valid, UTF-16 where every
// other byte of it is mostly zero, else Windows-1252.
const GuessEncoding = "guess"

// decoded is the text of a file in UTF-8.
type decoded struct {
	io.Reader
	name  string            // of its encoding; "" for UTF-8
	mark  string            // the byte order mark, which is not in the text
	other encoding.Encoding // nil for UTF-8
}

// encodingNamed returns the encoding of that name, as browsers know them; nil for UTF-8. Another name is ErrOptions.
func encodingNamed(name string) (encoding.Encoding, error) {
	e, err := htmlindex.Get(name)
	if err != nil || e == encoding.Replacement {
		return nil, fmt.Errorf("%w: unknown encoding %q; use one that browsers know, such as utf-8, windows-1252, utf-16le, iso-8859-2 or shift_jis, or %s to detect it",
			ErrOptions, texts.Clip(name), GuessEncoding)
	}
	if e == unicode.UTF8 {
		e = nil
	}
	return e, nil
}

// CheckEncoding reports whether an encoding has that name. Error: ErrOptions.
func CheckEncoding(name string) error {
	if name == "" || name == GuessEncoding {
		return nil
	}
	_, err := encodingNamed(name)
	return err
}

// decode returns the text of a file. A byte order mark says what its encoding is, else the one that is declared is; it
// is UTF-8 where nothing is.
func decode(in io.Reader, declared string) (d decoded, err error) {
	buf := bufio.NewReaderSize(in, headSize)
	head, whole, err := peek(buf)
	if err != nil {
		return d, err
	}
	marks := []struct{ mark, name string }{{"\xef\xbb\xbf", "utf-8"}, {"\xff\xfe", "utf-16le"}, {"\xfe\xff", "utf-16be"}}
	for _, m := range marks {
		if d.mark == "" && bytes.HasPrefix(head, []byte(m.mark)) {
			d.mark, declared = m.mark, m.name
		}
	}
	if declared == GuessEncoding {
		declared = guessEncoding(head, whole)
	}
	if d.Reader = buf; declared != "" {
		if d.other, err = encodingNamed(declared); err != nil {
			return d, err
		}
	}
	if _, err := buf.Discard(len(d.mark)); err != nil {
		return d, err
	}
	if d.other != nil {
		d.name, d.Reader = declared, d.other.NewDecoder().Reader(buf)
	}
	return d, nil
}

// guessEncoding returns what a file is likely to be written in that begins so.
func guessEncoding(head []byte, whole bool) string {
	zeros := [2]int{}
	for i, b := range head {
		if b == 0 {
			zeros[i%2]++
		}
	}
	if !whole { // the last character may be cut
		for n := 1; n < utf8.UTFMax && n < len(head); n++ {
			if utf8.RuneStart(head[len(head)-n]) {
				if !utf8.FullRune(head[len(head)-n:]) {
					head = head[:len(head)-n]
				}
				break
			}
		}
	}
	switch {
	case zeros[1] > len(head)/8 && zeros[0] < zeros[1]/4:
		return "utf-16le"
	case zeros[0] > len(head)/8 && zeros[1] < zeros[0]/4:
		return "utf-16be"
	case utf8.Valid(head):
		return "utf-8"
	}
	return "windows-1252"
}

// changes reports whether decoding may have changed a text: it stands for what is not valid.
func (d decoded) changes(text string) bool {
	return d.other != nil && strings.ContainsRune(text, utf8.RuneError)
}

// written names the encoding of a file that was opened.
func (d decoded) written() string {
	if d.name == "" && d.Reader != nil {
		return "utf-8"
	}
	return d.name
}

// encode returns a text as it stood in the file.
func (d decoded) encode(text string) []byte {
	if d.other == nil {
		return []byte(text)
	}
	raw, err := d.other.NewEncoder().Bytes([]byte(text))
	if err != nil {
		return []byte(text) // what is not valid was lost
	}
	return raw
}

// delimiters are what separates cells, by the names that people give them.
func delimiters() map[string]byte {
	return map[string]byte{"comma": ',', "semicolon": ';', "tab": '\t', "pipe": '|', "\\t": '\t'}
}

// delimiterOf returns the separator of cells of that name, or which the text itself is. Another text is ErrOptions.
func delimiterOf(text string) (byte, error) {
	if sep, named := delimiters()[strings.ToLower(text)]; named {
		return sep, nil
	}
	if len(text) == 1 && separates(text[0]) {
		return text[0], nil
	}
	return 0, fmt.Errorf("%w: the delimiter is comma, semicolon, tab, pipe, or another single ASCII character that is not a letter, digit or quote", ErrOptions)
}

// CheckDelimiter reports whether the text says what separates cells. Error: ErrOptions.
func CheckDelimiter(text string) error {
	if text == "" {
		return nil
	}
	_, err := delimiterOf(text)
	return err
}

// separates reports whether a byte can stand between cells.
func separates(b byte) bool {
	letter := b >= '0' && b <= '9' || b|0x20 >= 'a' && b|0x20 <= 'z'
	return b < utf8.RuneSelf && b != '"' && b != '\r' && b != '\n' && b != 0 && !letter
}
