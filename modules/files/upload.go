package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"tenantry/backends/record/field"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/formdata"
	"tenantry/internal/strictjson"
	"tenantry/modules/files/contents"
	"tenantry/operation"
	"tenantry/tenants"
)

// Bounds of one upload.
const (
	maxUpload     = 1 << 40 // bytes that no organization's limit exceeds
	maxParts      = 100     // files
	maxFieldBytes = 2000    // of another part
	maxFormBytes  = 64 << 10
	fieldBytes    = 64 // that each other part has in maxFormBytes besides its content
	uploadTime    = 2 * time.Hour

	octetStream = "application/octet-stream"
)

// Uploaded is the answer to an upload.
type Uploaded struct {
	Count   int          `json:"count" doc:"Number of files that were stored."`
	Results []FileRecord `json:"results" doc:"Their records, in the order in which they were sent."`
}

// uploads describes the input of an upload.
func uploads() operation.Request {
	return operation.Request{
		Upload:         []string{operation.AnyMedia, operation.FormMedia},
		UploadExamples: []string{"Hello.\n", "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"hello.txt\"\r\nContent-Type: text/plain\r\n\r\nHello.\n\r\n--x--\r\n"},
		UploadLimit:    maxUpload,
		FormFields:     true,
		Params: []operation.Param{{
			Name: digestHeader, In: operation.InHeader, Shape: operation.Text,
			Description: "SHA-256 of the body (RFC 9530), which is checked; in a form, a header of the part.",
			Example:     "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:",
		}},
	}
}

const (
	digestHeader = "Content-Digest"
	// formType is what curl and others send for bytes of which they know nothing.
	formType = "application/x-www-form-urlencoded"
	// ofSize says which limit a file exceeds.
	ofSize = "the limit file_size of the organization"
)

// tooLarge documents the refusal of a file by its size.
func tooLarge() operation.Failure {
	return operation.Failure{
		Code: http.StatusRequestEntityTooLarge, Message: "The file is larger than 1073741824 bytes, " + ofSize,
		When: "a file is larger than the limit file_size",
	}
}

// uploadFailures documents the refusals of an upload.
func uploadFailures() []operation.Failure {
	return []operation.Failure{
		tooLarge(),
		operation.Refuses(http.StatusUnprocessableEntity, "the bytes that arrived are others than the digest says", digestHeader, fault.Mismatch,
			"Content-Digest does not match the bytes that arrived: send the file again"),
		{
			Code: http.StatusUnprocessableEntity, Message: contents.RefusedMessage, When: "the scanner of the installation refuses the file",
			Data: operation.Refusal(http.StatusUnprocessableEntity, "file", fault.Forbidden, contents.RefusedMessage).Data,
		},
		{Code: http.StatusInsufficientStorage, Message: operation.NoSpaceMessage, When: "the server has no space left for files"},
	}
}

func (m *Module) uploadRow() operation.Row {
	row := operation.Row{
		Name: "files.upload", Method: http.MethodPost, Path: "/api/files/upload",
		Policy: operation.Policy{
			Credentials: operation.Key | operation.Session, Kinds: operation.ServerFull, Rule: operation.Needs(tenants.ManageFiles),
			Audit: operation.AuditAlways, Timeout: uploadTime,
		},
		Request: uploads(),
		Response: operation.Response{
			Message: "Files stored", Data: Uploaded{}, Failures: uploadFailures(),
			Example: Uploaded{Count: 1, Results: []FileRecord{{FileDetails: detailed(fileExample())}}},
		},
		Target: operation.Target{Resource: m.Files.Name},
		Docs: operation.Docs{
			Tag: tag, Summary: "Upload files", Verb: "Upload", Page: "files.list",
			Description: "Stores files and makes their records, all or none. The body is one file, with its name in filename and " +
				"its type in Content-Type, or a form (multipart/form-data) of up to 100 parts named file. Other parts of " +
				"the form set the same fields as the query, for the files that follow them. The type that the bytes show is " +
				"answered as detected, beside the declared one. Nothing is fetched from an address.",
		},
	}
	m.maker.Declare(&row, "url") // with teams, which are those of the files
	row.Handler = m.upload
	return row
}

// upload stores the files of an upload.
func (m *Module) upload(ctx context.Context, c *operation.Call) (operation.Result, error) {
	var all []*incoming
	defer func() {
		for _, in := range all {
			_ = in.arrival.Close()
		}
	}()
	err := m.each(ctx, c, m.precheck, func(in *incoming) error {
		all = append(all, in)
		return nil
	})
	if err == nil && len(all) == 0 {
		err = fault.One("file", fault.Required, "the form has no part named file")
	}
	if err != nil {
		return operation.Result{}, err
	}
	arrivals := make([]*contents.Arrival, len(all))
	for i, in := range all {
		arrivals[i] = in.arrival
	}
	var result operation.Result
	var made []*File
	err = m.deps.Contents.Store(ctx, c.Tenant, arrivals, func(ctx context.Context, b *store.Batch, blobs []*contents.Blob) error {
		made = make([]*File, len(all))
		for i, in := range all {
			var err error
			if made[i], err = m.maker.Stage(ctx, c, b, in.values, func(f *File) { f.hold(blobs[i]) }); err != nil {
				return in.explain(err, i, len(all))
			}
		}
		var err error
		result, err = c.Commit(ctx, b, func(ctx context.Context) (operation.Result, error) {
			shown, err := m.maker.Show(ctx, c, made)
			out := Uploaded{Count: len(made), Results: []FileRecord{}}
			for i, one := range shown {
				if rec, ok := one.(FileRecord); ok {
					out.Results = append(out.Results, rec)
				}
				c.Note(fmt.Sprintf("file.%d", i+1), made[i].ID)
			}
			return operation.Result{Data: out}, err
		})
		return err
	})
	if err != nil {
		return operation.Result{}, err
	}
	for _, f := range made {
		m.wantThumbnailOf(c.Tenant, f)
	}
	return result, nil
}

// wantThumbnailOf has the small picture of a new file made.
func (m *Module) wantThumbnailOf(t *tenants.Tenant, f *File) {
	if hasThumbnail(f) {
		m.wantThumbnail(t, f.Hash)
	}
}

// hold gives the file the bytes of a blob.
func (f *File) hold(blob *contents.Blob) {
	f.Hash, f.Size, f.Detected, f.Checksum = blob.Hash, blob.Size, blob.Media, blob.Sum
}

// incoming is one file of an upload.
type incoming struct {
	values     []strictjson.Member // of its record
	undeclared bool                // its type is the one that the bytes show
	arrival    *contents.Arrival
	digest     string
}

// explain says which of several files a fault is about.
func (in *incoming) explain(err error, i, of int) error {
	refused, is := errors.AsType[*fault.Error](err)
	if !is || of == 1 {
		return err
	}
	var named fault.List
	for _, f := range refused.Faults {
		named.Add(fmt.Sprintf("file[%d].%s", i, f.Field), f.Code, "file %d: %s", i+1, f.Message)
	}
	return named.Err()
}

// precheck refuses a file whose record could not be stored, before its bytes are taken.
func (m *Module) precheck(ctx context.Context, c *operation.Call, in *incoming) error {
	_, err := m.draft(ctx, c, in.values)
	return err
}

// draft returns a file record of these values that is not stored.
func (m *Module) draft(ctx context.Context, c *operation.Call, values []strictjson.Member) (*File, error) {
	b := c.Tenant.Workspace().Batch()
	defer b.Discard()
	return m.maker.Stage(ctx, c, b, values, func(*File) {})
}

// each receives the files of an upload, after check has accepted their records, and passes them on.
func (m *Module) each(
	ctx context.Context, c *operation.Call, check func(context.Context, *operation.Call, *incoming) error, pass func(*incoming) error,
) error {
	if err := m.bound(ctx, c); err != nil {
		return err
	}
	sent, err := c.RequestHeader("Content-Type")
	if err != nil {
		return err
	}
	media, params, err := mime.ParseMediaType(sent)
	if strings.Contains(media, "*") || media == formType {
		media = "" // says nothing
	}
	if media != operation.FormMedia || err != nil {
		in := &incoming{}
		in.setText(m, "mimetype", media, !c.Query.Has("mimetype"))
		if in.digest, err = c.RequestHeader(digestHeader); err != nil {
			return err
		}
		return m.receive(ctx, c, in, c.Upload, check, pass)
	}
	form := formdata.NewReader(io.MultiReader(c.Upload, strings.NewReader("\r\n"), noEnd{}), params["boundary"])
	values, read, left := []strictjson.Member{}, 0, maxFormBytes
	late := "" // a field after the last file
	for {
		part, err := form.Next()
		switch {
		case err == io.EOF && late != "": //nolint:errorlint // others wrap it
			return fault.One(late, fault.Forbidden, "%s comes after the last file, so it would apply to none: put it before the files", late)
		case err == io.EOF: //nolint:errorlint // others wrap it
			return nil
		}
		if err != nil {
			return malformed(err)
		}
		switch name := strings.TrimSuffix(part.FormName(), "[]"); {
		case name == "file" || part.FileName() != "":
			late = ""
			if read++; read > maxParts {
				return fault.One("file", fault.Length, "a form may have at most %d files", maxParts)
			}
			in := &incoming{values: slices.Clone(values), digest: part.Header.Get(digestHeader)}
			declared, _, _ := mime.ParseMediaType(part.Header.Get("Content-Type"))
			in.setText(m, "filename", part.FileName(), !has(values, "filename") && !c.Query.Has("filename"))
			in.setText(m, "mimetype", declared, !has(values, "mimetype") && !c.Query.Has("mimetype"))
			if err := m.receive(ctx, c, in, part, check, pass); err != nil {
				return in.explain(err, read-1, read)
			}
		default:
			if values, err = m.readField(part, name, values, &left); err != nil {
				return err
			}
			if read > 0 {
				late = name
			}
		}
	}
}

// bound applies the limits of the organization before any byte is read.
func (m *Module) bound(ctx context.Context, c *operation.Call) error {
	if err := c.LimitUpload(c.Tenant.Org.Limit(tenants.LimitFileSize), ofSize); err != nil {
		return err
	}
	return m.deps.Contents.Admit(ctx, c.Tenant, max(c.UploadSize, 1))
}

// receive takes the bytes of one file.
func (m *Module) receive(
	ctx context.Context, c *operation.Call, in *incoming, src io.Reader,
	check func(context.Context, *operation.Call, *incoming) error, pass func(*incoming) error,
) (err error) {
	if !has(in.values, "mimetype") && !c.Query.Has("mimetype") { // until the bytes have shown it
		in.values, in.undeclared = append(in.values, m.member("mimetype", octetStream)), true
		defer func() {
			if in.arrival != nil {
				in.values[len(in.values)-1] = m.member("mimetype", in.arrival.Media)
			}
		}()
	}
	if err := cmp.Or(contents.CheckDigest(in.digest), check(ctx, c, in)); err != nil {
		return err
	}
	arrival, err := m.deps.Contents.Receive(ctx, c.Tenant, src)
	if err != nil {
		return malformed(err)
	}
	in.arrival = arrival
	if err = arrival.CheckDigest(in.digest); err == nil {
		err = pass(in)
	}
	if err != nil {
		_ = arrival.Close()
	}
	return err
}

// noEnd follows the bytes of a form. The reader of forms returns io.EOF for bytes that end between two parts, as for the
// last boundary, after which it reads nothing. A last boundary may lack the end of its line, which each adds.
type noEnd struct{}

func (noEnd) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// malformed explains why the parts of a form could not be read to their end.
func malformed(err error) error {
	if source := errors.Unwrap(err); source != nil && strings.HasPrefix(err.Error(), "multipart:") {
		err = source // such as a bound on the upload
	}
	_, header := errors.AsType[textproto.ProtocolError](err)
	switch {
	case errors.Is(err, formdata.ErrHeader):
		return operation.BadRequest("The form could not be read, so nothing was stored: the header of a part may have at most %d "+
			"bytes", formdata.MaxHeader)
	case errors.Is(err, multipart.ErrMessageTooLarge), errors.Is(err, io.ErrUnexpectedEOF), header,
		strings.HasPrefix(err.Error(), "multipart:"):
		return operation.BadRequest("The form could not be read to its end, so nothing was stored")
	}
	return err
}

// readField reads a part of a form that is a field of the record. left is what remains of maxFormBytes.
func (m *Module) readField(
	part *multipart.Part, name string, values []strictjson.Member, left *int,
) ([]strictjson.Member, error) {
	at := slices.IndexFunc(m.maker.Fields(), func(f field.Field) bool { return f.Name == name })
	if at < 0 {
		return nil, operation.BadRequest("The form has a part %q, which is neither a file nor a field of one", clip(name))
	}
	text, err := io.ReadAll(io.LimitReader(part, maxFieldBytes+1))
	if err != nil {
		return nil, malformed(err)
	}
	if len(text) > maxFieldBytes {
		return nil, fault.One(name, fault.Length, "%s must be at most %d bytes", name, maxFieldBytes)
	}
	if *left -= len(text) + fieldBytes; *left < 0 {
		return nil, fault.One(name, fault.Length, "the fields of a form may have at most %d bytes together, of which each "+
			"takes %d besides its own: send the files in several forms", maxFormBytes, fieldBytes)
	}
	f := &m.maker.Fields()[at]
	v := f.Literal(string(text))
	for i := range values {
		if values[i].Name == name { // a list has a part for each element
			values[i].Value = strictjson.Value{Is: strictjson.Array, Items: append(values[i].Value.Items, v)}
			return values, nil
		}
	}
	if f.Elements() > 0 {
		v = strictjson.Value{Is: strictjson.Array, Items: []strictjson.Value{v}}
	}
	return append(values, strictjson.Member{Name: name, Value: v}), nil
}

// setText sets a field of the record, if it may be set and the text is not empty.
func (in *incoming) setText(m *Module, name, text string, may bool) {
	if may && text != "" {
		in.values = append(in.values, m.member(name, text))
	}
}

func (m *Module) member(name, text string) strictjson.Member {
	return strictjson.Member{Name: name, Value: strictjson.Value{Is: strictjson.Text, Text: text}}
}

func has(values []strictjson.Member, name string) bool {
	return slices.ContainsFunc(values, func(m strictjson.Member) bool { return m.Name == name })
}

func clip(text string) string { return text[:min(len(text), 60)] }
