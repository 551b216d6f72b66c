package submit

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"tenantry/gateway/console/ask"
	"tenantry/gateway/console/form"
	"tenantry/gateway/console/input"
	"tenantry/gateway/console/visit"
	"tenantry/internal/fault"
	"tenantry/internal/formdata"
	"tenantry/operation"
)

// Bounds of the fields before the file in a form.
const (
	maxParts      = 100
	maxFieldBytes = 64 << 10 // names and values of all fields together
)

// upload handles a form with files. It streams them to the operation; the other fields must come before the files.
func upload(v *visit.Visit, row *operation.Row, params map[string]string) {
	sent := url.Values{}
	v.Visitor.Pause()
	media, sentAs, err := mime.ParseMediaType(v.R.Header.Get("Content-Type"))
	if err == nil && (media != operation.FormMedia || sentAs["boundary"] == "") {
		err = http.ErrNotMultipart
	}
	parts := formdata.NewReader(v.R.Body, sentAs["boundary"])
	left := int64(maxFieldBytes)
	for range maxParts {
		if err != nil {
			break
		}
		var part *multipart.Part
		if part, err = parts.Next(); err != nil {
			break
		}
		name := part.FormName()
		if name == "file" {
			form.PathValues(row, params, sent)
			call := ask.Call{Row: row, Path: params, IfMatch: sent.Get("_match"), Connection: v.W}
			if text := attach(&call, parts, part); text != "" {
				sent.Set("_once", ask.NewIdempotencyKey())
				faults := []fault.Fault{{Field: "file", Code: fault.Format, Message: text}}
				showAgain(v, http.StatusUnprocessableEntity, row, params, sent, faults, "")
				return
			}
			query := form.Query(row, sent)
			call.Query = query.Encode()
			carryOut(v, call, sent, query)
			return
		}
		var value []byte
		if value, err = io.ReadAll(io.LimitReader(part, left+1)); err != nil {
			break
		}
		if left -= int64(len(name) + len(value)); left < 0 {
			err = errors.New("the fields before the file are too long")
			break
		}
		sent.Add(name, string(value))
	}
	if errors.Is(err, io.EOF) || err == nil {
		err = errors.New("no file")
	}
	v.Log.DebugContext(v.R.Context(), "a form with a file did not arrive", "error", err)
	v.Problem(http.StatusBadRequest, "The form did not arrive", "Choose a file and try again.")
}

// attach gives the call the file that the part has, and the files that follow if the operation takes several. It
// returns what is wrong with the choice, or "".
func attach(call *ask.Call, parts *formdata.Reader, part *multipart.Part) (wrong string) {
	switch types := input.MediaTypes(); {
	case input.TakesAny(call.Row) && part.FileName() == "": // browsers send such a part if nothing is chosen
		return "choose a file"
	case slices.Contains(call.Row.Upload, operation.FormMedia):
		files := newFiles(parts, part)
		call.File, call.MediaType = files, files.form.FormDataContentType()
	case input.TakesAny(call.Row):
		call.File, call.MediaType = part, part.Header.Get("Content-Type")
	default:
		extension := strings.ToLower(path.Ext(part.FileName()))
		at := slices.IndexFunc(types, func(m input.MediaType) bool { return m.Extension == extension })
		if at < 0 {
			return "choose a file whose name ends with " + strings.Join(input.Extensions(call.Row), " or ")
		}
		call.File, call.MediaType = part, types[at].Media
	}
	return ""
}

// files reads the files of a form as a form of their own, without the fields of the page.
type files struct {
	parts *formdata.Reader
	part  *multipart.Part
	form  *multipart.Writer // writes to head
	head  bytes.Buffer      // what comes before the rest of the part
	err   error             // what comes after
}

// newFiles returns a reader of a form with the part and those that follow.
func newFiles(parts *formdata.Reader, part *multipart.Part) *files {
	f := &files{parts: parts, part: part}
	f.form = multipart.NewWriter(&f.head)
	_, f.err = f.form.CreatePart(part.Header)
	return f
}

// Read reads the form. It returns an error if the form of the page ends before its last boundary.
func (f *files) Read(p []byte) (int, error) {
	for {
		if f.head.Len() > 0 {
			return f.head.Read(p)
		}
		if f.err != nil {
			return 0, f.err
		}
		n, err := f.part.Read(p)
		if errors.Is(err, io.EOF) {
			err = f.next()
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// next goes to the next part, or to the end of the form.
func (f *files) next() (err error) {
	f.part, err = f.parts.Next()
	switch {
	case errors.Is(err, io.EOF):
		f.err = io.EOF
		return f.form.Close()
	case err == nil:
		_, err = f.form.CreatePart(f.part.Header)
	}
	return err
}
