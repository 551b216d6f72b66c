package formdata

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestReader(t *testing.T) {
	t.Parallel()
	part := func(header, content string) string {
		return "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n" + header + "\r\n" + content + "\r\n"
	}
	long := func(n int) string { return "X-A: " + strings.Repeat("a", n) + "\r\n" }
	const end = "--x--\r\n"
	for name, tt := range map[string]struct {
		form string
		want string // the sizes of the parts
		err  error
	}{
		"small":                     {part("", "12") + part("", "") + end, "2 0 ", io.EOF},
		"long content":              {part("", strings.Repeat("a\r\n--", 1<<20)) + part(long(9000), "1") + end, "5242880 1 ", io.EOF},
		"many parts":                {strings.Repeat(part(long(9000), "12345"), 20) + end, strings.Repeat("5 ", 20), io.EOF},
		"a long header":             {part(long(MaxHeader), "1") + end, "", ErrHeader},
		"the header of a later one": {part("", "1") + part(long(1<<20), "2") + end, "1 ", ErrHeader},
		"many lines":                {part(strings.Repeat(long(100), 200), "1") + end, "", ErrHeader},
		"a long beginning":          {strings.Repeat("a\r\n", MaxHeader) + part("", "1") + end, "", ErrHeader},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from := strings.NewReader(tt.form)
			r, got := NewReader(from, "x"), ""
			for {
				p, err := r.Next()
				if err != nil {
					if !errors.Is(err, tt.err) {
						t.Errorf("got %v, want %v", err, tt.err)
					}
					break
				}
				n, err := io.Copy(io.Discard, p)
				if err != nil {
					t.Fatal(err)
				}
				got += fmt.Sprint(n, " ")
			}
			if got != tt.want {
				t.Errorf("got parts of %s bytes, want %s", got, tt.want)
			}
			if read := len(tt.form) - from.Len(); tt.want == "" && read > MaxHeader {
				t.Errorf("read %d bytes, want at most %d", read, MaxHeader)
			}
		})
	}
}
