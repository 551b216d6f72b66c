package files

import (
	"cmp"
	"context"
	"crypto/hmac"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"tenantry/backends/blobs"
	"tenantry/backends/store"
	"tenantry/internal/deliver"
	"tenantry/internal/picture"
	"tenantry/modules/files/contents"
	"tenantry/operation"
	"tenantry/tenants"
)

// fetchInput is an address of a file.
type fetchInput struct {
	Hash      string `json:"hash" doc:"Name of the bytes." example:"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b"`
	File      string `json:"file" doc:"Public identifier of the file." example:"q7Zt0b1kY3m9"`
	Until     string `json:"until" doc:"When the address ends, in Unix seconds." example:"1717596000"`
	Key       string `json:"key" doc:"Signature of the address." example:"m0Zk3rX9b1kY3m9q7Zt0bA"`
	Version   string `json:"version" doc:"Identifier of an earlier content of the file."`
	Thumbnail bool   `json:"thumbnail" default:"false" doc:"Answers the small picture."`
	Download  bool   `json:"download" default:"false" doc:"Browsers save the file instead of showing it."`
}

const (
	// publicAge is how long caches keep what everybody may read, after it was deleted, too.
	publicAge = time.Hour

	addressEnded = "This address of a file is not valid, or it has ended. Read the file again for its current address"
)

func (m *Module) fetchRow() operation.Row {
	return operation.Typed(operation.Row{
		Name: "files.fetch", Method: http.MethodGet, Path: operation.ContentPath + "content/{hash}",
		Policy: operation.Policy{Credentials: operation.Open, Rule: operation.AnyCaller(), AnyHost: true},
		Response: operation.Response{
			Content: []string{operation.AnyMedia},
			Failures: []operation.Failure{
				{Code: http.StatusForbidden, Message: addressEnded, When: "the signature is missing, wrong or has ended, and the file is not public"},
				{Code: http.StatusNotFound, Message: fileMissing, When: "the file was deleted or has other bytes now"},
			},
		},
		Docs: operation.Docs{
			Tag: tag, Summary: "Fetch a file", Aside: true,
			Description: "Answers the bytes of a file. The whole address is url of the file; it is signed and ends, unless the " +
				"file is public. Ranges and conditional requests are honoured. What browsers would run, such as HTML and SVG, is " +
				"sent as a download, and nothing is run in the name of the organization. Pictures that everybody may read come " +
				"without their metadata.",
		},
	}, m.fetch)
}

// reading is a file that may be read at an address.
type reading struct {
	file   *File
	hash   string
	signed bool // otherwise it is public
}

func (m *Module) fetch(ctx context.Context, c *operation.Call, in fetchInput) (operation.Result, error) {
	read, err := m.admit(ctx, c.Tenant, in)
	if err != nil {
		return operation.Result{}, err
	}
	c.Recheck = func(ctx context.Context, t *tenants.Tenant) error {
		_, err := m.admit(ctx, t, in)
		return err
	}
	blob, err := m.deps.Contents.Find(ctx, c.Tenant, read.hash)
	if errors.Is(err, contents.ErrNone) {
		return operation.Result{}, operation.NotFound(bytesMissing)
	}
	if err != nil {
		return operation.Result{}, err
	}
	if in.Thumbnail {
		return m.fetchThumbnail(ctx, c, read, blob, in)
	}
	if !read.signed && blob.Plain == nil && picture.Supports(blob.Media) { // its metadata could not be removed
		return operation.Result{}, operation.Forbidden(addressEnded)
	}
	object, err := m.deps.Contents.Open(ctx, blob)
	if err != nil {
		return operation.Result{}, opened(err)
	}
	served := deliver.Policy(read.file.Mimetype, blob.Media, frameAncestors(m.deps.BaseURL(c.Tenant.Org.Slug)))
	content := &operation.Content{ReadSeekCloser: whole(object), Media: served.ContentType, Tag: strconv.Quote(read.hash)}
	if !read.signed && blob.Plain != nil {
		content.ReadSeekCloser = plain{blob.Plain.Reader(object), object}
		content.Tag = strconv.Quote(read.hash + "-plain")
	} else if sum, err := hex.DecodeString(blob.Sum); err == nil {
		c.Header.Set("Repr-Digest", contents.Digest(sum))
	}
	m.head(c, read, in)
	c.Header.Set("Content-Disposition", deliver.Disposition(served.Inline && !in.Download, read.file.Filename))
	c.Header.Set("Content-Security-Policy", served.CSP)
	content.Modified = time.UnixMilli(read.file.UpdatedAt) // not that of the bytes, which others may have stored before
	return operation.Result{Content: content}, nil
}

// whole returns the object as the file that it is, so that the kernel can send it.
func whole(object blobs.Object) io.ReadSeekCloser {
	if f, is := object.(*blobs.File); is {
		return f.File
	}
	return object
}

// bytesMissing is answered for a record whose bytes are lost, which the operator's doctor finds too.
const bytesMissing = "The bytes of the file are missing"

// opened explains why the bytes of a blob could not be opened.
func opened(err error) error {
	if errors.Is(err, blobs.ErrNotFound) {
		return operation.NotFound(bytesMissing)
	}
	return err
}

// plain is a picture without its metadata.
type plain struct {
	io.ReadSeeker
	io.Closer
}

// head sets the headers that all answers with bytes have. The bytes of a hash never change, but who may read them does.
func (m *Module) head(c *operation.Call, read reading, in fetchInput) {
	age, who := publicAge, "public"
	if read.signed {
		until, _ := strconv.ParseInt(in.Until, 10, 64)
		age, who = time.Unix(until, 0).Sub(m.deps.Now()), "private"
	}
	c.Header.Set("Cache-Control", fmt.Sprintf("%s, max-age=%d, immutable", who, max(int64(age/time.Second), 0)))
	c.Header.Set("Referrer-Policy", "no-referrer") // an address is a right
}

// frameAncestors are the pages that may show a file in a frame: those of the organization.
func frameAncestors(base string) string { return "'self' " + base }

// admit returns the file that may be read at an address. Errors: 403 for an address without a right, whether or not the
// file exists; 404.
func (m *Module) admit(ctx context.Context, t *tenants.Tenant, in fetchInput) (reading, error) {
	ended := operation.Forbidden(addressEnded)
	if !ValidHash(in.Hash) || in.File == "" {
		return reading{}, ended
	}
	if t.Workspace() == nil { // an unknown host must take as long to answer as an organization without the file
		return reading{}, cmp.Or[error](t.Absent(ctx), ended)
	}
	file, err := m.Files.In(t.Workspace()).First(ctx, store.Query{Filter: store.Eq("pid", in.File), State: store.Either})
	signed := File{PID: in.File, Hash: in.Hash}
	switch {
	case errors.Is(err, store.ErrNotFound):
		file, err = nil, nil
	case err == nil && (file.Stored() || in.Version != ""):
		signed.Teams = file.Teams
	case err == nil:
		err = ended
	}
	if err != nil {
		return reading{}, err
	}
	if in.Key == "" {
		if file == nil || file.Deleted || in.Version != "" || file.Hash != in.Hash {
			return reading{}, ended
		}
		public, err := m.isPublic(ctx, t, file)
		if err == nil && !public {
			err = ended
		}
		return reading{file: file, hash: in.Hash}, err
	}
	if file == nil && len(t.Org.DataKeys[AddressPurpose]) == 0 { // no address was made, and a stranger must not make a key
		return reading{}, ended
	}
	mac, err := m.signer(ctx, t)
	if err != nil {
		return reading{}, err
	}
	if !hmac.Equal([]byte(sign(mac, &signed, in.Until, in.Version)), []byte(in.Key)) || !lasts(in.Until, m.deps.Now()) {
		return reading{}, ended
	}
	switch {
	case file == nil || file.Deleted:
		return reading{}, operation.NotFound(fileMissing)
	case in.Version != "":
		return m.readingVersion(ctx, t, file, in)
	case file.Hash != in.Hash:
		return reading{}, operation.NotFound(fileMissing)
	}
	return reading{file: file, hash: in.Hash, signed: true}, nil
}

// isPublic reports whether everybody may read a file. One whose folder is gone is not public.
func (m *Module) isPublic(ctx context.Context, t *tenants.Tenant, f *File) (bool, error) {
	if f.FolderID == "" {
		return isPublic(t, f, nil), nil
	}
	folder, err := m.Folders.In(t.Workspace()).Get(ctx, f.FolderID)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil && isPublic(t, f, folder), err
}
