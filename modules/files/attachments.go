package files

import (
	"context"
	"errors"
	"net/http"
	"time"

	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/crypto/tokens"
	"tenantry/modules/files/contents"
	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/limits"
)

// Attachment is a file that was sent for a field of a form and waits for the submission that names its token. It is no
// File yet, so no read shows it. The submission makes it one in its commit, once; otherwise it ends with its bytes.
type Attachment struct {
	store.Meta
	Form     string `json:"form"`
	Field    string `json:"field"`
	Token    string `json:"token"` // its hash; see tokens.NewOpaque
	Filename string `json:"filename"`
	Mimetype string `json:"mimetype"`
	Hash     string `json:"hash"`
	Size     int64  `json:"size"`
	Detected string `json:"detected,omitempty"`
	Checksum string `json:"checksum"`
	UserID   int64  `json:"user_id"`
	Ends     int64  `json:"ends"` // Unix milliseconds
	// From is a pseudonym of the address of the visitor who sent it; empty: no visitor did.
	From string `json:"from,omitempty"`
}

// Bounds of the attachments of a form that wait: those of all visitors, likewise those of all others, and those of one
// address of visitors.
const (
	attachmentLife  = time.Hour
	maxAttached     = 100
	maxAttachedSize = 100 << 20 // bytes together, or ten times the largest file that the field takes
	maxOfVisitor    = 10
	maxVisitorSize  = 20 << 20 // likewise, or one such file
	attachmentRetry = 10 * time.Minute

	attachedFull = "Too many files wait for submissions of this form, please retry later"
)

// Attaching says for what a file is sent.
type Attaching struct {
	Form, Field string
	Filename    string
	Mimetype    string // declared; empty: the one that the bytes show
	Most        int64  // bytes that the field takes
	// Judge refuses a file by its declared type and the one that its bytes show.
	Judge func(declared, detected string) error
	// Answer makes the answer to the upload.
	Answer func(Attached) any
}

// Attached is a file that waits for a submission.
type Attached struct {
	Token    string // opaque; whoever has it can submit the file
	Filename string
	Size     int64
	Detected string
	Ends     time.Time
}

func newAttachments() *store.Kind[Attachment] {
	return store.Must[Attachment](store.Spec{
		Name: "attachments", Uncounted: true, Fields: []string{"form", "hash", "ends", "token"},
		Indexes: []store.Index{
			{Fields: []string{"form"}}, {Fields: []string{"hash"}}, {Fields: []string{"ends"}}, {Fields: []string{"token"}, Unique: true},
		},
		Access: []store.Access{
			{Where: []string{"form"}}, {Where: []string{"hash"}}, {Sort: []string{"ends"}}, {Where: []string{"token"}},
		},
	})
}

// Attach stores the upload of a call as a file that waits for a submission, for an hour. Refusals: 413; 429 if too many
// wait for the form; 507; those of Judge.
func (m *Module) Attach(ctx context.Context, c *operation.Call, in Attaching) (operation.Result, error) {
	from, err := m.visitor(ctx, c)
	if err != nil {
		return operation.Result{}, err
	}
	least := max(c.UploadSize, 1)
	if err := m.attachmentRoom(ctx, c.Tenant, in, from, least); err != nil {
		return operation.Result{}, err
	}
	if err := m.deps.Contents.Admit(ctx, c.Tenant, least); err != nil {
		return operation.Result{}, err
	}
	digest, err := c.RequestHeader(digestHeader)
	if err == nil {
		err = contents.CheckDigest(digest)
	}
	if err != nil {
		return operation.Result{}, err
	}
	arrival, err := m.deps.Contents.Receive(ctx, c.Tenant, c.Upload)
	if err != nil {
		return operation.Result{}, err
	}
	defer func() { _ = arrival.Close() }()
	if in.Mimetype == "" {
		in.Mimetype = arrival.Media
	}
	if err = arrival.CheckDigest(digest); err == nil {
		err = in.Judge(in.Mimetype, arrival.Media)
	}
	if err != nil {
		return operation.Result{}, err
	}
	return m.keepAttachment(ctx, c, in, from, arrival)
}

// keepAttachment stores an attachment with its bytes.
func (m *Module) keepAttachment(
	ctx context.Context, c *operation.Call, in Attaching, from string, arrival *contents.Arrival,
) (result operation.Result, err error) {
	all := m.Attachments.In(c.Tenant.Workspace())
	token, hash := tokens.NewOpaque(schema.TokenPrefix)
	ends := m.deps.Now().Add(attachmentLife)
	rec := &Attachment{
		Meta: store.Meta{ID: c.Workspace.NewID()}, Form: in.Form, Field: in.Field, Token: hash,
		Filename: in.Filename, Mimetype: in.Mimetype, UserID: c.Principal.UserID, Ends: ends.UnixMilli(), From: from,
	}
	keep := func(ctx context.Context, b *store.Batch, blobs []*contents.Blob) error {
		// The commit fails if another upload of the organization is stored after this look-up, and all is tried again.
		if err := m.attachmentRoom(ctx, c.Tenant, in, from, arrival.Size); err != nil {
			return err
		}
		blob := blobs[0]
		rec.Hash, rec.Size, rec.Detected, rec.Checksum = blob.Hash, blob.Size, blob.Media, blob.Sum
		if err := all.StageInsert(b, rec); err != nil {
			return err
		}
		result, err = c.Commit(ctx, b, func(context.Context) (operation.Result, error) {
			c.Note("attachment", rec.ID)
			return operation.Result{Data: in.Answer(Attached{
				Token: token.Reveal(), Filename: rec.Filename, Size: rec.Size, Detected: rec.Detected, Ends: ends,
			})}, nil
		})
		return err
	}
	if err := m.deps.Contents.Store(ctx, c.Tenant, []*contents.Arrival{arrival}, keep); err != nil {
		return operation.Result{}, err
	}
	c.Undo = func(ctx context.Context) error { return m.endAttachment(ctx, c.Tenant, rec) }
	return result, nil
}

// visitor returns a pseudonym of the address from which a visitor calls; "": the caller is none.
func (m *Module) visitor(ctx context.Context, c *operation.Call) (string, error) {
	if !c.Principal.Public() {
		return "", nil
	}
	return m.deps.Contents.Pseudonym(ctx, c.Tenant, limits.Network(c.Remote).String())
}

// attachmentRoom refuses a file if too many wait for submissions of the form. The visitors of one address cannot use up
// the room of all visitors, and these not that of others.
func (m *Module) attachmentRoom(ctx context.Context, t *tenants.Tenant, in Attaching, from string, size int64) error {
	var group, own struct{ files, bytes int64 }
	now := m.deps.Now().UnixMilli()
	err := m.Attachments.In(t.Workspace()).Each(ctx, store.Eq("form", in.Form), store.Either, func(a *Attachment) error {
		if a.Ends > now && (a.From == "") == (from == "") {
			group.files, group.bytes = group.files+1, group.bytes+a.Size
			if a.From == from {
				own.files, own.bytes = own.files+1, own.bytes+a.Size
			}
		}
		return nil
	})
	if err == nil && (group.files >= maxAttached || group.bytes+size > max(maxAttachedSize, 10*in.Most) ||
		from != "" && (own.files >= maxOfVisitor || own.bytes+size > max(maxVisitorSize, in.Most))) {
		err = &operation.Problem{Code: http.StatusTooManyRequests, RetryAfter: attachmentRetry, Message: attachedFull}
	}
	return err
}

// Redeem makes the file of a token a File in the batch, and ends the token with it. The file belongs to the
// teams of the folder, if it has some, or else to those that the caller is limited to. It lies in the folder unless that
// is empty or in the trash. found is false if the
// token is not one of that field of that form, has expired or was used. Errors: store.ErrNotFound if the folder was
// purged, because nobody knows any more who may see the file; store.ErrUnavailable, store.ErrConflict.
func (m *Module) Redeem(
	ctx context.Context, c *operation.Call, b *store.Batch, form, field, folder, token string,
) (id string, found bool, err error) {
	ws := c.Tenant.Workspace()
	hash, ok := tokens.HashOpaque(schema.TokenPrefix, token)
	if !ok {
		return "", false, nil
	}
	all := m.Attachments.In(ws)
	rec, err := all.First(ctx, store.Query{Filter: store.Eq("token", hash)})
	if errors.Is(err, store.ErrNotFound) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	if rec.Form != form || rec.Field != field || rec.Ends <= m.deps.Now().UnixMilli() {
		return "", false, nil
	}
	file := &File{
		Meta: store.Meta{ID: c.Workspace.NewID()}, Filename: rec.Filename, Mimetype: rec.Mimetype, Hash: rec.Hash,
		Size: rec.Size, Detected: rec.Detected, Checksum: rec.Checksum, UserID: rec.UserID,
	}
	if own := c.Principal.Scope(c.Tenant, nil); !own.All {
		file.Teams = own.Teams
	}
	if err := m.layIn(ctx, b, ws, folder, file); err != nil {
		return "", false, err
	}
	m.Files.Fill(file)
	if err := all.StageDelete(ctx, b, rec); err != nil {
		return "", false, err
	}
	return file.ID, true, m.Files.In(ws).StageInsert(b, file)
}

// layIn gives a new file the teams of a folder, if one is named, and lays it in the folder unless that is in the trash.
// Errors: store.ErrNotFound, store.ErrUnavailable.
func (m *Module) layIn(ctx context.Context, b *store.Batch, ws *store.Workspace, folder string, file *File) error {
	if folder == "" {
		return nil
	}
	in := m.Folders.In(ws)
	there, err := in.First(ctx, store.Query{Filter: store.Eq("id", folder), State: store.Either})
	if err != nil {
		return err
	}
	b.Require(in.Unchanged(there))
	if len(there.Teams) > 0 {
		file.Teams = there.Teams
	}
	if !there.Deleted {
		file.FolderID = there.ID
	}
	return nil
}

// endAttachment removes an attachment, and its bytes unless something else uses them.
func (m *Module) endAttachment(ctx context.Context, t *tenants.Tenant, rec *Attachment) error {
	if err := m.Attachments.In(t.Workspace().BeyondQuota()).Delete(ctx, rec); err != nil {
		return err
	}
	return m.deps.Contents.Drop(ctx, t, []string{rec.Hash}, m.used)
}

// endAttachments removes attachments that have expired, with their bytes.
func (m *Module) endAttachments(ctx context.Context, t *tenants.Tenant) error {
	all := m.Attachments.In(t.Workspace())
	for {
		old, err := all.Find(ctx, store.Query{
			Filter: store.Where(store.F("ends"), store.OpLt, m.deps.Now().UnixMilli()), Sort: []store.Order{store.Asc("ends")}, Limit: 100,
		})
		if err != nil || len(old) == 0 {
			return err
		}
		for i := range old {
			if err := m.endAttachment(ctx, t, &old[i]); err != nil && !errors.Is(err, store.ErrConflict) {
				return err
			}
		}
	}
}
