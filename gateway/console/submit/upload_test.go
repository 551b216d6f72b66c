package submit

import (
	"io"
	"mime/multipart"
	"strings"
	"testing"
	"testing/iotest"

	"tenantry/internal/formdata"
)

// TestFilesAreSentAsTheyCame reads the files of a form that follow its fields, in pieces of any size, and refuses a form
// that is cut.
func TestFilesAreSentAsTheyCame(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	w := multipart.NewWriter(&b)
	if err := w.WriteField("path.id", "1"); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a.txt": strings.Repeat("a\r\n--", 3000), "ü \"b\".bin": "", "c": "\x00"}
	for _, name := range []string{"a.txt", "ü \"b\".bin", "c"} {
		part, err := w.CreateFormFile("file", name)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = part.Write([]byte(want[name])) // to memory
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	open := func(sent io.Reader) *files {
		parts := formdata.NewReader(sent, w.Boundary())
		first, err := parts.Next()
		if err != nil {
			t.Fatal(err)
		}
		if _, err = io.Copy(io.Discard, first); err != nil {
			t.Fatal(err)
		}
		part, err := parts.Next()
		if err != nil {
			t.Fatal(err)
		}
		return newFiles(parts, part)
	}
	for how, pieces := range map[string]func(io.Reader) io.Reader{
		"at once": func(r io.Reader) io.Reader { return r }, "by bytes": iotest.OneByteReader, "with the end": iotest.DataErrReader,
	} {
		f := open(pieces(strings.NewReader(b.String())))
		again := multipart.NewReader(pieces(f), f.form.Boundary())
		n := 0
		for ; ; n++ {
			part, err := again.NextPart()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", how, err)
			}
			if got, err := io.ReadAll(part); err != nil || string(got) != want[part.FileName()] {
				t.Errorf("%s: %q has %d bytes and %v, want %d", how, part.FileName(), len(got), err, len(want[part.FileName()]))
			}
		}
		if n != len(want) {
			t.Errorf("%s: %d files, want %d", how, n, len(want))
		}
	}
	for cut := 1; cut < len(w.Boundary()); cut++ {
		if _, err := io.ReadAll(open(strings.NewReader(b.String()[:b.Len()-cut-4]))); err == nil {
			t.Errorf("a form that lacks its last %d bytes is passed on as whole", cut+4)
		}
	}
}
