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

// Bounds of the fields before the file in a form.
const (
	maxParts      = 100
	maxFieldBytes = 64 << 10 // names and values of all fields together
)

// upload handles a form with a file. It streams the file to the operation; the other fields must come before the file.
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
			extension, types := strings.ToLower(path.Ext(part.FileName())), input.MediaTypes()
			at := slices.IndexFunc(types, func(m input.MediaType) bool { return m.Extension == extension })
			if at < 0 {
				sent.Set("_once", ask.NewIdempotencyKey())
				text := "choose a file whose name ends with " + strings.Join(input.Extensions(row), " or ")
				faults := []fault.Fault{{Field: "file", Code: fault.Format, Message: text}}
				showAgain(v, http.StatusUnprocessableEntity, row, params, sent, faults, "")
				return
			}
			form.PathValues(row, params, sent)
			query := form.Query(row, sent)
			carryOut(v, ask.Call{
				Row: row, Path: params, Query: query.Encode(),
				File: part, MediaType: types[at].Media, Connection: v.W,
			}, sent, query)
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
