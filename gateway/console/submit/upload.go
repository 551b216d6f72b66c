package submit

import (
	"errors"
	"io"
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
	"tenantry/operation"
)

// How much of a form with a file stands before the file.
const (
	maxParts      = 100
	maxFieldBytes = 64 << 10 // bytes of all of them
)

// takeFile carries out a form with a file, which is passed on while it arrives. What else the form says stands before
// it.
func upload(v *visit.Visit, row *operation.Row, params map[string]string) {
	sent := url.Values{}
	v.Visitor.Pause()
	parts, err := v.R.MultipartReader()
	left := int64(maxFieldBytes)
	for range maxParts {
		if err != nil {
			break
		}
		var part *multipart.Part
		if part, err = parts.NextPart(); err != nil {
			break
		}
		name := part.FormName()
		if name == "file" {
			all := input.MediaTypes()
			at := slices.IndexFunc(all, func(m input.MediaType) bool { return m.Extension == strings.ToLower(path.Ext(part.FileName())) })
			if at < 0 {
				sent.Set("_once", ask.NewIdempotencyKey())
				showAgain(v, http.StatusUnprocessableEntity, row, params, sent, []fault.Fault{{Field: "file", Code: fault.Format, Message: "choose a file whose name ends with " + strings.Join(input.Extensions(row), " or ")}}, "")
				return
			}
			form.PathValues(row, params, sent)
			query := form.Query(row, sent)
			carryOut(v, ask.Call{Row: row, Path: params, Query: query.Encode(), File: part, MediaType: all[at].Media, Connection: v.W}, sent, query)
			return
		}
		var value []byte
		if value, err = io.ReadAll(io.LimitReader(part, left+1)); err != nil {
			break
		}
		if left -= int64(len(name) + len(value)); left < 0 {
			err = errors.New("too much stands before the file")
			break
		}
		sent.Add(name, string(value))
	}
	if errors.Is(err, io.EOF) || err == nil {
		err = errors.New("no file")
	}
	v.Log.DebugContext(v.R.Context(), "a form with a file did not arrive", "error", err)
	v.Problem(http.StatusBadRequest, "The form did not arrive", "Choose a file, and try again.")
}
