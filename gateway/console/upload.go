package console

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
	"tenantry/internal/fault"
	"tenantry/operation"
)

// How much of a form with a file stands before the file.
const (
	mostParts  = 100
	mostBefore = 64 << 10 // bytes of all of them
)

// takeFile carries out a form with a file, which is passed on while it arrives. What else the form says stands before it.
func (v *visit) takeFile(row *operation.Row, params map[string]string) {
	sent := url.Values{}
	v.arriving.Pause()
	parts, err := v.r.MultipartReader()
	left := int64(mostBefore)
	for range mostParts {
		if err != nil {
			break
		}
		var part *multipart.Part
		if part, err = parts.NextPart(); err != nil {
			break
		}
		name := part.FormName()
		if name == "file" {
			all := mediaTypes()
			at := slices.IndexFunc(all, func(m mediaType) bool { return m.end == strings.ToLower(path.Ext(part.FileName())) })
			if at < 0 {
				sent.Set("_once", ask.NewOnceKey())
				v.again(http.StatusUnprocessableEntity, row, params, sent, []fault.Fault{{Field: "file", Code: fault.Format, Message: "choose a file whose name ends with " + strings.Join(extensions(row), " or ")}}, "")
				return
			}
			fromForm(row, params, sent)
			query := asked(row, sent)
			v.carry(ask.Call{Row: row, Path: params, Query: query.Encode(), File: part, MediaType: all[at].media, Connection: v.w}, sent, query)
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
	v.log.DebugContext(v.r.Context(), "a form with a file did not arrive", "error", err)
	v.problem(http.StatusBadRequest, "The form did not arrive", "Choose a file, and try again.")
}
