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

// GuessEncoding detects the encoding: UTF-8 if the beginning of the file is valid, UTF-16 if most of its even or odd
// bytes are zero, otherwise Windows-1252.
const GuessEncoding = "guess"

// decoded is the text of a file, decoded to UTF-8.
type decoded struct {
	io.Reader
	name  string            // of its encoding; "" for UTF-8
	mark  string            // the byte order mark, which is not part of the text
	other encoding.Encoding // nil for UTF-8
}

// encodingNamed returns the encoding of that name in the WHATWG Encoding Standard; nil for UTF-8. Error: ErrOptions.
func encodingNamed(name string) (encoding.Encoding, error) {
	e, err := htmlindex.Get(name)
	if err != nil || e == encoding.Replacement {
		return nil, fmt.Errorf("%w: unknown encoding %q; use one that browsers know, such as utf-8, windows-1252, "+
			"utf-16le, iso-8859-2 or shift_jis, or %s to detect it",
			ErrOptions, texts.Clip(name), GuessEncoding)
	}
	if e == unicode.UTF8 {
		e = nil
	}
	return e, nil
}

// CheckEncoding returns ErrOptions if no encoding has that name.
func CheckEncoding(name string) error {
	if name == "" || name == GuessEncoding {
		return nil
	}
	_, err := encodingNamed(name)
	return err
}

// decode returns the text of a file. The encoding is that of its byte order mark, otherwise the declared one,
// otherwise UTF-8.
func decode(in io.Reader, declared string) (d decoded, err error) {
	buf := bufio.NewReaderSize(in, headSize)
	head, whole, err := peek(buf)
	if err != nil {
		return d, err
	}
	marks := []struct{ mark, name string }{
		{"\xef\xbb\xbf", "utf-8"}, {"\xff\xfe", "utf-16le"}, {"\xfe\xff", "utf-16be"},
	}
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

// guessEncoding returns the likely encoding of a file from its beginning.
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

// changes reports whether decoding may have replaced invalid bytes in a text.
func (d decoded) changes(text string) bool {
	return d.other != nil && strings.ContainsRune(text, utf8.RuneError)
}

// encodingName returns the name of the encoding of an open file.
func (d decoded) encodingName() string {
	if d.name == "" && d.Reader != nil {
		return "utf-8"
	}
	return d.name
}

// encode returns a text in the encoding of the file.
func (d decoded) encode(text string) []byte {
	if d.other == nil {
		return []byte(text)
	}
	raw, err := d.other.NewEncoder().Bytes([]byte(text))
	if err != nil {
		return []byte(text) // invalid bytes were replaced
	}
	return raw
}

// delimiters are the delimiters of cells by name.
func delimiters() map[string]byte {
	return map[string]byte{"comma": ',', "semicolon": ';', "tab": '\t', "pipe": '|', "\\t": '\t'}
}

// delimiterOf returns the delimiter with that name, or that is the text itself. Error: ErrOptions.
func delimiterOf(text string) (byte, error) {
	if sep, named := delimiters()[strings.ToLower(text)]; named {
		return sep, nil
	}
	if len(text) == 1 && separates(text[0]) {
		return text[0], nil
	}
	return 0, fmt.Errorf(
		"%w: the delimiter must be comma, semicolon, tab, pipe, or another single ASCII character that is not a letter, digit or quote",
		ErrOptions,
	)
}

// CheckDelimiter returns ErrOptions if the text does not name a delimiter.
func CheckDelimiter(text string) error {
	if text == "" {
		return nil
	}
	_, err := delimiterOf(text)
	return err
}

// separates reports whether a byte can be a delimiter.
func separates(b byte) bool {
	letter := b >= '0' && b <= '9' || b|0x20 >= 'a' && b|0x20 <= 'z'
	return b < utf8.RuneSelf && b != '"' && b != '\r' && b != '\n' && b != 0 && !letter
}

// encodingAdvice ends the messages about texts that are not valid UTF-8.
const encodingAdvice = "save the file as UTF-8, or set its encoding, for example windows-1252, which many " +
	"spreadsheets write, or guess (--encoding; over HTTP the parameter encoding)"
