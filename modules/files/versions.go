package files

import (
	"context"
	"errors"
	"net/http"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/modules/files/contents"
	"tenantry/operation"
	"tenantry/tenants"
)

// maxVersions is how many earlier contents of a file are kept; the oldest goes first.
const maxVersions = 100

// VersionAnswer is an earlier content of a file.
type VersionAnswer struct {
	ID         string `json:"id" doc:"Identifier of the version."`
	URL        string `json:"url" doc:"Address at which its bytes can be read for a time."`
	Filename   string `json:"filename" doc:"Name of the file then."`
	Mimetype   string `json:"mimetype" doc:"MIME type of the file then."`
	Size       int64  `json:"size" doc:"Size in bytes."`
	Checksum   string `json:"checksum" doc:"SHA-256 of the bytes, hexadecimal."`
	UserID     int64  `json:"user_id" doc:"User who uploaded the file."`
	ReplacedBy int64  `json:"replaced_by" doc:"User who replaced this content; 0: a key did."`
	ReplacedAt string `json:"replaced_at" doc:"RFC 3339, UTC, milliseconds."`
}

// VersionList are the earlier contents of a file.
type VersionList struct {
	Count   int             `json:"count" doc:"Number of versions."`
	Results []VersionAnswer `json:"results" doc:"The versions, the newest first."`
}

type fileInput struct {
	ID string `json:"id" doc:"Identifier of the file." example:"665f1c2ab4d3e2f1a0b9c8e1"`
}

func (m *Module) versionsRow() operation.Row {
	return operation.Typed(operation.Row{
		Name: "files.versions", Method: http.MethodGet, Path: "/api/files/{id}/versions",
		Policy: operation.Policy{
			Credentials: operation.Key | operation.Session, Kinds: operation.ServerKeys, Rule: operation.Needs(tenants.ManageFiles),
		},
		Request: operation.Request{Teams: true},
		Response: operation.Response{
			Message: "Versions found",
			Example: VersionList{Count: 1, Results: []VersionAnswer{{
				ID: "665f1c2ab4d3e2f1a0b9c8e2", URL: "https://files.example.com/acme/9f86d081884c7d65?file=q7Zt0b1kY3m9&version=665f1c2ab4d3e2f1a0b9c8e2&until=1717596000&key=m0Zk3rX9b1kY3m9q7Zt0bA",
				Filename: "lease.pdf", Mimetype: "application/pdf", Size: 52814, Checksum: exampleSum, UserID: 7, ReplacedBy: 7,
				ReplacedAt: texts.Time(exampleUpdated),
			}}},
			Failures: []operation.Failure{{
				Code: http.StatusNotFound, Message: fileMissing, When: "there is no such file, or the caller may not see it",
			}},
		},
		Docs: operation.Docs{
			Tag: tag, Summary: "List the versions of a file", Title: "Versions", Aside: true,
			Description: "Answers the contents that a file had before they were replaced, the newest first. At most 100 are kept.",
		},
	}, m.listVersions)
}

func (m *Module) listVersions(ctx context.Context, c *operation.Call, in fileInput) (VersionList, error) {
	out := VersionList{Results: []VersionAnswer{}}
	file, err := m.Files.In(c.Workspace).Get(ctx, in.ID)
	if err != nil {
		return out, operation.OrMissing(err, fileMissing)
	}
	found, err := m.versionsOf(ctx, c.Tenant, file.ID)
	if err != nil || len(found) == 0 {
		return out, err
	}
	found = found[:min(len(found), maxVersions)]
	at, err := m.addresses(ctx, c, []File{{Hash: found[0].Hash, Checksum: found[0].Checksum}})
	if err != nil {
		return out, err
	}
	for i := range found {
		v := &found[i]
		out.Results = append(out.Results, VersionAnswer{
			ID: v.ID, URL: at.version(file, v), Filename: v.Filename, Mimetype: v.Mimetype, Size: v.Size, Checksum: v.Checksum,
			UserID: v.UserID, ReplacedBy: v.ReplacedBy, ReplacedAt: texts.Time(v.CreatedAt),
		})
	}
	out.Count = len(out.Results)
	return out, nil
}

// versionsOf returns the versions of a file, the newest first, with some that are too many.
func (m *Module) versionsOf(ctx context.Context, t *tenants.Tenant, file string) ([]Version, error) {
	return m.Versions.In(t.Workspace()).Find(ctx, store.Query{
		Filter: store.Eq("file_id", file), Sort: store.NewestFirst(), Limit: 2 * maxVersions,
	})
}

// readingVersion admits a reader to an earlier content of a file. The signature covers its hash.
func (m *Module) readingVersion(ctx context.Context, t *tenants.Tenant, file *File, in fetchInput) (reading, error) {
	v, err := m.Versions.In(t.Workspace()).Get(ctx, in.Version)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return reading{}, err
	}
	if err != nil || v.FileID != file.ID || v.Hash != in.Hash {
		return reading{}, operation.NotFound(fileMissing)
	}
	then := *file
	then.Filename, then.Mimetype = v.Filename, v.Mimetype
	return reading{file: &then, hash: v.Hash, signed: true}, nil
}

func (m *Module) replaceRow() operation.Row {
	row := operation.Row{
		Name: "files.replace", Method: http.MethodPost, Path: "/api/files/{id}/content",
		Policy: operation.Policy{
			Credentials: operation.Key | operation.Session, Kinds: operation.ServerFull, Rule: operation.Needs(tenants.ManageFiles),
			Audit: operation.AuditAlways, Timeout: uploadTime,
		},
		Request: uploads(),
		Response: operation.Response{
			Message: "File replaced", Data: FileRecord{}, Example: FileRecord{FileDetails: detailed(fileExample())},
			Failures: append(uploadFailures(), operation.Failure{
				Code: http.StatusNotFound, Message: fileMissing, When: "there is no such file, or the caller may not see it",
			}),
		},
		Target: operation.Target{Resource: m.Files.Name, Revised: true, OnRecord: true},
		Docs: operation.Docs{
			Tag: tag, Summary: "Replace the content of a file", Verb: "Replace",
			Description: "Gives a file other bytes, and keeps those it had as a version. The body is as that of an upload, with one " +
				"file; its name and type become those of the record, if they are given. All addresses of the former content end.",
		},
	}
	row.Teams = true
	row.Params = append(row.Params, operation.Param{
		Name: "id", In: operation.InPath, Shape: operation.Text, Required: true, Ref: m.Files.Name,
		Description: "Identifier of the file.", Example: exampleFile,
	}, operation.Param{
		Name: "filename", In: operation.InQuery, Shape: operation.Text, Description: "Name of the file from now on.", Example: "lease.pdf",
	}, operation.Param{
		Name: "mimetype", In: operation.InQuery, Shape: operation.Text, Description: "MIME type from now on.", Example: "application/pdf",
	})
	row.Handler = m.replace
	return row
}

// replace gives a file other bytes.
func (m *Module) replace(ctx context.Context, c *operation.Call) (operation.Result, error) {
	id := c.Path("id")
	file, err := m.Files.In(c.Workspace).Get(ctx, id)
	if err == nil {
		err = c.Current(file.Rev)
	}
	if err != nil {
		return operation.Result{}, operation.OrMissing(err, fileMissing)
	}
	var in *incoming
	defer func() {
		if in != nil {
			_ = in.arrival.Close()
		}
	}()
	err = m.each(ctx, c, func(context.Context, *operation.Call, *incoming) error { return nil }, func(more *incoming) error {
		if in != nil {
			_ = more.arrival.Close()
			return oneFile()
		}
		in = more
		return nil
	})
	if err == nil && in == nil {
		err = oneFile()
	}
	if err != nil {
		return operation.Result{}, err
	}
	var result operation.Result
	err = m.deps.Contents.Store(ctx, c.Tenant, []*contents.Arrival{in.arrival}, func(ctx context.Context, b *store.Batch, blobs []*contents.Blob) (err error) {
		result, err = m.commitReplacement(ctx, c, b, id, in, blobs[0])
		return err
	})
	if err == nil {
		err = m.dropOldVersions(ctx, c.Tenant, id)
	}
	return result, operation.OrMissing(err, fileMissing)
}

func oneFile() error {
	return fault.One("file", fault.Length, "the new content of a file is exactly one file")
}

// commitReplacement commits a batch that gives a file other bytes, and notes those it had.
func (m *Module) commitReplacement(
	ctx context.Context, c *operation.Call, b *store.Batch, id string, in *incoming, blob *contents.Blob,
) (operation.Result, error) {
	files := m.Files.In(c.Workspace)
	file, err := files.Get(ctx, id)
	if err == nil {
		err = c.Current(file.Rev)
	}
	if err != nil {
		return operation.Result{}, err
	}
	was := *file
	file.hold(blob)
	file.UserID = c.Principal.UserID
	file.Filename = in.text(c, "filename", file.Filename)
	if !in.undeclared {
		file.Mimetype = in.text(c, "mimetype", file.Mimetype)
	}
	var errs fault.List
	m.Files.Hold(&record.Checking{Errs: &errs, Known: &record.Known{}}, file, &was)
	if err = errs.Err(); err == nil {
		err = m.keepVersion(ctx, c, b, file, &was)
	}
	if err == nil {
		err = files.StageReplace(ctx, b, file)
	}
	if err != nil {
		return operation.Result{}, err
	}
	result, err := c.Commit(ctx, b, func(ctx context.Context) (operation.Result, error) {
		c.Note(m.Files.Name, id)
		c.Revision = file.Rev
		shown, err := m.maker.Show(ctx, c, []*File{file})
		if err != nil {
			return operation.Result{}, err
		}
		return operation.Result{Data: shown[0]}, nil
	})
	if err == nil {
		m.wantThumbnailOf(c.Tenant, file)
	}
	return result, err
}

// keepVersion adds to the batch of a change a version of the bytes that a file loses by it, if it loses some.
func (m *Module) keepVersion(_ context.Context, c *operation.Call, b *store.Batch, file, was *File) error {
	if was == nil || !was.Stored() || was.Hash == file.Hash {
		return nil
	}
	return m.Versions.In(c.Tenant.Workspace()).StageInsert(b, &Version{
		FileID: was.ID, Hash: was.Hash, Filename: was.Filename, Mimetype: was.Mimetype, Size: was.Size, Detected: was.Detected,
		Checksum: was.Checksum, UserID: was.UserID, ReplacedBy: c.Principal.UserID,
	})
}

// dropVersionsAfter removes the oldest versions of a file after a change, if it has too many.
func (m *Module) dropVersionsAfter(change operation.Handler) operation.Handler {
	return func(ctx context.Context, c *operation.Call) (operation.Result, error) {
		result, err := change(ctx, c)
		if err == nil && c.Body.Has("url") {
			err = m.dropOldVersions(ctx, c.Tenant, c.Path("id"))
		}
		return result, err
	}
}

// text returns a field that the upload gives, or else what it was. Clients send octetStream if they know no type.
func (in *incoming) text(c *operation.Call, name, was string) string {
	if values := c.Query.Tree(name); len(values) > 0 {
		return values[0].Value
	}
	for _, v := range in.values {
		if v.Name == name && v.Value.Text != octetStream {
			return v.Value.Text
		}
	}
	return was
}

// dropOldVersions removes the oldest versions of a file that has too many. There may be several, because calls may be
// interrupted before this, or overlap.
func (m *Module) dropOldVersions(ctx context.Context, t *tenants.Tenant, file string) error {
	all, err := m.versionsOf(ctx, t, file)
	if err != nil {
		return err
	}
	var hashes []string
	for i := maxVersions; i < len(all); i++ {
		err := m.Versions.In(t.Workspace()).Delete(ctx, &all[i])
		if err != nil && !errors.Is(err, store.ErrConflict) {
			return err
		}
		hashes = append(hashes, all[i].Hash)
	}
	return m.deps.Contents.Drop(ctx, t, hashes, m.used)
}
