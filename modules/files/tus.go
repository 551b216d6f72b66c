package files

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"tenantry/backends/blobs"
	"tenantry/backends/record/field"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/internal/texts"
	"tenantry/modules/files/contents"
	"tenantry/operation"
	"tenantry/tenants"
)

// Resumable uploads follow the protocol tus 1.0 (https://tus.io/protocols/resumable-upload) with its extensions creation,
// expiration and termination. What arrives is stored in parts, so that any replica can continue after a cut. The last
// bytes count only once the file is stored: an upload whose offset is its length has a record.

// Transfer is an upload that may be cut and resumed.
type Transfer struct {
	store.Meta
	Teams  []string          `json:"teams,omitempty"` // of the file; only callers who see these see the upload
	Length int64             `json:"length"`
	Offset int64             `json:"offset"`
	Parts  []contents.Part   `json:"parts,omitempty"`
	Fields map[string]string `json:"fields,omitempty"` // of the record, and the digest
	Ends   int64             `json:"ends"`             // Unix milliseconds
	FileID string            `json:"file_id,omitempty"`
}

// Bounds of resumable uploads.
const (
	tusVersion    = "1.0.0"
	tusExtensions = "creation,expiration,termination"
	tusPath       = "/api/files/tus"
	offsetType    = "application/offset+octet-stream"

	transferLife = 24 * time.Hour
	maxTransfers = 500 // of an organization, under way
	maxMetadata  = 8 << 10
	saveTime     = 30 * time.Second // for what has arrived when the sender is gone
)

// TransferAnswer is an upload as callers see it.
type TransferAnswer struct {
	ID        string  `json:"id" doc:"Identifier of the upload."`
	Offset    int64   `json:"offset" doc:"Bytes that have arrived."`
	Length    int64   `json:"length" doc:"Bytes of the whole file."`
	ExpiresAt string  `json:"expires_at" doc:"When what has arrived is removed, unless the upload is complete. RFC 3339, UTC, milliseconds."`
	FileID    *string `json:"file_id" doc:"Identifier of the file; null until the upload is complete."`
}

func newTransfers() *store.Kind[Transfer] {
	return store.Must[Transfer](store.Spec{
		Name: "transfers", Uncounted: true, Teams: true, Fields: []string{"ends"},
		Indexes: []store.Index{{Fields: []string{"ends"}}},
		Access:  []store.Access{{Sort: []string{"ends"}}},
	})
}

// checkTus checks the version of the protocol, and gives every answer the header of it.
func checkTus(c *operation.Call) error {
	c.Header.Set("Tus-Resumable", tusVersion)
	version, err := c.RequestHeader("Tus-Resumable")
	if err == nil && version != tusVersion && c.Operation.Method != http.MethodGet {
		c.Header.Set("Tus-Version", tusVersion)
		err = &operation.Problem{Code: http.StatusPreconditionFailed, Message: wrongVersion}
	}
	return err
}

// number reads a header that is a whole number.
func number(c *operation.Call, name string) (int64, error) {
	text, err := c.RequestHeader(name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || text[0] == '+' {
		return 0, operation.BadRequest("The header %s must be a whole number", name)
	}
	return n, nil
}

func (m *Module) createTransfer(ctx context.Context, c *operation.Call) (operation.Result, error) {
	if err := checkTus(c); err != nil {
		return operation.Result{}, err
	}
	length, err := number(c, "Upload-Length")
	if err != nil {
		return operation.Result{}, err
	}
	if most := c.Tenant.Org.Limit(tenants.LimitFileSize); length > most {
		return operation.Result{}, operation.FileTooLarge(most, ofSize)
	}
	metadata, err := c.RequestHeader("Upload-Metadata")
	if err != nil {
		return operation.Result{}, err
	}
	rec := &Transfer{Length: length, Ends: m.deps.Now().Add(transferLife).UnixMilli()}
	if rec.Fields, err = parseMetadata(metadata); err != nil {
		return operation.Result{}, err
	}
	if err := contents.CheckDigest(rec.Fields["digest"]); err != nil {
		return operation.Result{}, err
	}
	file, err := m.draft(ctx, c, m.transferValues(rec, octetStream))
	if err != nil {
		return operation.Result{}, err
	}
	// The teams are those that the caller gives now, whoever sends the last bytes.
	if rec.Teams = file.Teams; len(rec.Teams) > 0 {
		rec.Fields["teams"] = strings.Join(rec.Teams, ",")
	}
	result, err := m.beginTransfer(ctx, c, rec)
	if err != nil {
		return result, err
	}
	if length == 0 { // no byte will follow
		if err := m.finish(ctx, c, rec, strings.NewReader("")); err != nil {
			return operation.Result{}, err
		}
		result.Data = m.showTransfer(c, rec)
	}
	c.Header.Set("Location", c.BaseURL+tusPath+"/"+rec.ID)
	return result, nil
}

// beginTransfer stores a new upload if there is room for it. Uploads of an organization begin one after another, so that
// none takes room that another has seen; with several replicas, as many as these can be beyond it.
func (m *Module) beginTransfer(ctx context.Context, c *operation.Call, rec *Transfer) (operation.Result, error) {
	org := c.Tenant.Org.OrgID
	if err := m.beginning.Enter(ctx, org); err != nil {
		return operation.Result{}, err
	}
	defer m.beginning.Leave(org)
	if err := m.transferRoom(ctx, c.Tenant, rec.Length); err != nil {
		return operation.Result{}, err
	}
	b := c.Tenant.Workspace().Batch()
	rec.ID = c.Workspace.NewID()
	if err := m.Transfers.In(c.Workspace).StageInsert(b, rec); err != nil {
		return operation.Result{}, err
	}
	return c.Commit(ctx, b, func(context.Context) (operation.Result, error) {
		c.Note("upload", rec.ID)
		return operation.Result{Data: m.showTransfer(c, rec)}, nil
	})
}

// transferRoom refuses an upload if too many are under way, or if there is no room for all of them.
func (m *Module) transferRoom(ctx context.Context, t *tenants.Tenant, length int64) error {
	many, bytes, now := 0, length, m.deps.Now().UnixMilli()
	err := m.Transfers.In(t.Workspace()).Each(ctx, store.Filter{}, store.Either, func(other *Transfer) error {
		if other.FileID == "" && other.Ends > now {
			many++
			bytes += other.Length
		}
		return nil
	})
	if err == nil && many >= maxTransfers {
		err = &operation.Problem{
			Code: http.StatusTooManyRequests, RetryAfter: time.Minute,
			Message: "The organization has 500 uploads that have not ended: complete or delete some of them",
		}
	}
	if err == nil {
		err = m.deps.Contents.Admit(ctx, t, bytes)
	}
	return err
}

// parseMetadata reads the header Upload-Metadata.
func parseMetadata(text string) (map[string]string, error) {
	wrong := operation.BadRequest("The header Upload-Metadata must be names and values in base64, separated by a blank, with commas between")
	if len(text) > maxMetadata {
		return nil, operation.BadRequest("The header Upload-Metadata must have at most %d bytes", maxMetadata)
	}
	fields := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(pair), " ")
		if name == "" && text != "" {
			return nil, wrong
		}
		decoded, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			return nil, wrong
		}
		switch name {
		case "filetype":
			name = "mimetype"
		case "filename", "mimetype", "folder_id", "contact_id", "type", "teams", "digest":
		default:
			continue // clients send what they like
		}
		if _, twice := fields[name]; twice {
			return nil, wrong
		}
		if len(decoded) > 0 {
			fields[name] = string(decoded)
		}
	}
	return fields, nil
}

// transferValues returns the values of the record of an upload.
func (m *Module) transferValues(rec *Transfer, detected string) []strictjson.Member {
	values := []strictjson.Member{}
	for _, f := range m.maker.Fields() {
		text, given := rec.Fields[f.Name]
		if !given && f.Name == "mimetype" {
			text, given = detected, true
		}
		if given {
			values = append(values, strictjson.Member{Name: f.Name, Value: valueOf(&f, text)})
		}
	}
	return values
}

// valueOf returns the value of a field that a text gives; elements of a list have commas between.
func valueOf(f *field.Field, text string) strictjson.Value {
	if f.Elements() == 0 {
		return f.Literal(text)
	}
	list := strictjson.Value{Is: strictjson.Array}
	for one := range strings.SplitSeq(text, ",") {
		list.Items = append(list.Items, f.Literal(strings.TrimSpace(one)))
	}
	return list
}

// transfer returns the upload that the path names.
func (m *Module) transfer(ctx context.Context, c *operation.Call) (*Transfer, error) {
	rec, err := m.Transfers.In(c.Workspace).Get(ctx, c.Path("id"))
	if err != nil {
		return nil, operation.OrMissing(err, transferMissing)
	}
	if rec.FileID == "" && rec.Ends <= m.deps.Now().UnixMilli() {
		return nil, operation.NotFound(transferMissing)
	}
	return rec, nil
}

// showTransfer returns the answer of an upload, and sets the headers of the protocol.
func (m *Module) showTransfer(c *operation.Call, rec *Transfer) TransferAnswer {
	c.Header.Set("Upload-Offset", strconv.FormatInt(rec.Offset, 10))
	c.Header.Set("Upload-Length", strconv.FormatInt(rec.Length, 10))
	if rec.FileID == "" {
		c.Header.Set("Upload-Expires", time.UnixMilli(rec.Ends).UTC().Format(http.TimeFormat))
	} else {
		c.Header.Set("X-File-Id", rec.FileID)
	}
	return TransferAnswer{
		ID: rec.ID, Offset: rec.Offset, Length: rec.Length, ExpiresAt: texts.Time(rec.Ends), FileID: orNull(rec.FileID),
	}
}

func (m *Module) getTransfer(ctx context.Context, c *operation.Call) (operation.Result, error) {
	err := checkTus(c)
	if err != nil {
		return operation.Result{}, err
	}
	rec, err := m.transfer(ctx, c)
	if err != nil {
		return operation.Result{}, err
	}
	return operation.Result{Data: m.showTransfer(c, rec)}, nil
}

func (m *Module) deleteTransfer(ctx context.Context, c *operation.Call) (operation.Result, error) {
	err := checkTus(c)
	if err != nil {
		return operation.Result{}, err
	}
	rec, err := m.transfer(ctx, c)
	if err != nil {
		return operation.Result{}, err
	}
	b := c.Tenant.Workspace().Batch()
	if err := m.Transfers.In(c.Workspace).StageDelete(ctx, b, rec); err != nil {
		return operation.Result{}, err
	}
	result, err := c.Commit(ctx, b, func(context.Context) (operation.Result, error) {
		c.Note("upload", rec.ID)
		return operation.Result{}, nil
	})
	if err == nil {
		err = m.deps.Contents.DropParts(ctx, c.Tenant, rec.ID)
	}
	return result, err
}

func (m *Module) appendTransfer(ctx context.Context, c *operation.Call) (operation.Result, error) {
	if err := checkTus(c); err != nil {
		return operation.Result{}, err
	}
	at, err := number(c, "Upload-Offset")
	if err != nil {
		return operation.Result{}, err
	}
	rec, err := m.transfer(ctx, c)
	if err != nil {
		return operation.Result{}, err
	}
	m.showTransfer(c, rec)
	if at != rec.Offset {
		return operation.Result{}, errOffset()
	}
	if rec.FileID != "" {
		return operation.Result{}, nil
	}
	if err := c.LimitUpload(rec.Length-rec.Offset, "the rest of the upload"); err != nil {
		return operation.Result{}, err
	}
	err = m.take(ctx, c, rec)
	m.showTransfer(c, rec)
	return operation.Result{}, err
}

func errOffset() error {
	return &operation.Problem{Code: http.StatusConflict, Message: wrongOffset, Header: map[string]string{"Connection": "close"}}
}

// take stores the bytes of a request in parts, and the file with the last of them.
func (m *Module) take(ctx context.Context, c *operation.Call, rec *Transfer) error {
	for {
		most := min(contents.PartBytes(rec.Length), rec.Length-rec.Offset)
		a, cut, err := m.deps.Contents.ReceiveSome(ctx, c.Tenant, io.LimitReader(c.Upload, most))
		if err != nil {
			return err
		}
		last := rec.Offset+a.Size == rec.Length
		switch {
		case cut != nil && (errors.Is(cut, operation.ErrEnded) || errors.Is(context.Cause(ctx), operation.ErrEnded)):
			err = cut
		case last: // also if something was wrong after it, because an upload that is complete has a file
			err = m.complete(ctx, c, rec, a)
		case a.Size > 0:
			err = m.keepPart(ctx, c, rec, a)
		}
		closed := a.Close()
		if err == nil {
			err = closed
		}
		if err != nil || cut != nil || last || a.Size < most {
			return errors.Join(err, cut)
		}
	}
}

// takeTurn waits until no other request of this process stores bytes of the upload, because each would hold a copy of
// them. It returns a 409 if the upload has changed meanwhile. The caller must call leave.
func (m *Module) takeTurn(ctx context.Context, c *operation.Call, rec *Transfer) (leave func(), err error) {
	if err := m.storing.Enter(ctx, rec.ID); err != nil {
		return nil, err
	}
	if err := m.overtaken(ctx, c, rec, nil); err != nil {
		m.storing.Leave(rec.ID)
		return nil, err
	}
	return func() { m.storing.Leave(rec.ID) }, nil
}

// keepPart adds what has arrived to an upload, also if its sender is gone.
func (m *Module) keepPart(ctx context.Context, c *operation.Call, rec *Transfer, a *contents.Arrival) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTime)
	defer cancel()
	leave, err := m.takeTurn(ctx, c, rec)
	if err != nil {
		return err
	}
	defer leave()
	parts, replaced, err := m.deps.Contents.AppendPart(ctx, c.Tenant, rec.ID, rec.Parts, a, rec.Length)
	if errors.Is(err, blobs.ErrNotFound) {
		return m.overtaken(ctx, c, rec, err)
	}
	if err != nil {
		return err
	}
	was := rec.Offset
	stored, err := m.Transfers.In(c.Workspace).Update(ctx, rec.ID, func(t *Transfer) error {
		if t.Offset != was || t.FileID != "" {
			return errOffset()
		}
		t.Offset, t.Parts = t.Offset+a.Size, parts
		t.Ends = m.deps.Now().Add(transferLife).UnixMilli()
		return nil
	})
	if err != nil {
		return errors.Join(operation.OrMissing(err, transferMissing), m.deps.Contents.DropPart(ctx, parts[len(parts)-1]))
	}
	*rec = *stored
	if err := m.deps.Contents.DropPart(ctx, replaced...); err != nil { // which end with the upload, too
		m.deps.Contents.Log.WarnContext(ctx, "replaced parts of an upload could not be removed yet",
			"organization", c.Tenant.Org.Slug, "error", err)
	}
	return nil
}

// complete stores the file of an upload with its last bytes.
func (m *Module) complete(ctx context.Context, c *operation.Call, rec *Transfer, last *contents.Arrival) error {
	leave, err := m.takeTurn(ctx, c, rec)
	if err != nil {
		return err
	}
	defer leave()
	file, err := last.File()
	if err != nil {
		return err
	}
	return m.finish(ctx, c, rec, file)
}

// finish stores the file of an upload whose last bytes have arrived.
func (m *Module) finish(ctx context.Context, c *operation.Call, rec *Transfer, last io.Reader) error {
	whole, err := m.deps.Contents.Join(ctx, rec.Parts, last)
	if errors.Is(err, blobs.ErrNotFound) {
		return m.overtaken(ctx, c, rec, err)
	}
	if err != nil {
		return err
	}
	defer func() { _ = whole.Close() }()
	if err := whole.CheckDigest(rec.Fields["digest"]); err != nil {
		return fault.One("digest", fault.Mismatch, "digest does not match the bytes of the whole file. Nothing of this "+
			"request was kept: send it again, or begin a new upload")
	}
	transfers, was := m.Transfers.In(c.Workspace), *rec
	var file *File
	err = m.deps.Contents.Store(ctx, c.Tenant, []*contents.Arrival{whole}, func(ctx context.Context, b *store.Batch, blobs []*contents.Blob) error {
		done := was
		file, err = m.maker.Stage(ctx, c, b, m.transferValues(&done, whole.Media), func(f *File) { f.hold(blobs[0]) })
		if err != nil {
			return err
		}
		done.Offset, done.FileID, done.Parts = done.Length, file.ID, nil
		if err := transfers.StageReplace(ctx, b, &done); err != nil {
			return err
		}
		_, err := c.Commit(ctx, b, func(context.Context) (operation.Result, error) {
			c.Note(m.Files.Name, file.ID)
			return operation.Result{}, nil
		})
		*rec = done
		return err
	})
	if err != nil {
		*rec = was
		if errors.Is(err, contents.ErrRefused) {
			err = errors.Join(err, m.dropTransfer(ctx, c.Tenant, rec))
		}
		return err
	}
	m.wantThumbnailOf(c.Tenant, file)
	if err := m.deps.Contents.DropParts(ctx, c.Tenant, rec.ID); err != nil {
		m.deps.Contents.Log.WarnContext(ctx, "parts of a completed upload could not be removed and will be retried",
			"organization", c.Tenant.Org.Slug, "error", err)
	}
	return nil
}

// overtaken tells a request whose upload another one has continued, completed or ended. Otherwise it returns err.
func (m *Module) overtaken(ctx context.Context, c *operation.Call, rec *Transfer, err error) error {
	now, gone := m.transfer(ctx, c)
	if gone != nil {
		return gone
	}
	if now.Rev != rec.Rev {
		*rec, err = *now, errOffset()
	}
	return err
}

// dropTransfer removes an upload of which nothing may be kept.
func (m *Module) dropTransfer(ctx context.Context, t *tenants.Tenant, rec *Transfer) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTime)
	defer cancel()
	err := m.Transfers.In(t.Workspace()).Delete(ctx, rec)
	if err != nil && !errors.Is(err, store.ErrConflict) { // another request for it gets the same answer
		return err
	}
	return m.deps.Contents.DropParts(ctx, t, rec.ID)
}

// areTransfers is the contents.Uploads of the module.
func (m *Module) areTransfers(ctx context.Context, t *tenants.Tenant, ids []string) (map[string]bool, error) {
	there := map[string]bool{}
	err := m.Transfers.In(t.Workspace()).Each(ctx, store.In("id", ids...), store.Either, func(rec *Transfer) error {
		there[rec.ID] = true
		return nil
	})
	return there, err
}

// endTransfers removes uploads that have expired, with their parts.
func (m *Module) endTransfers(ctx context.Context, t *tenants.Tenant) error {
	all := m.Transfers.In(t.Workspace().BeyondQuota())
	for {
		old, err := all.Find(ctx, store.Query{
			Filter: store.Where(store.F("ends"), store.OpLt, m.deps.Now().UnixMilli()), Sort: []store.Order{store.Asc("ends")}, Limit: 100,
		})
		if err != nil || len(old) == 0 {
			return err
		}
		for i := range old {
			if err := m.deps.Contents.DropParts(ctx, t, old[i].ID); err != nil {
				return err
			}
			if err := all.Delete(ctx, &old[i]); err != nil && !errors.Is(err, store.ErrConflict) {
				return err
			}
		}
	}
}
