package forms

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/operation"
	"tenantry/tenants"
)

// Attachments keeps the files that are sent for fields of the type File, and knows those that the organization has.
// Implementations must be safe for concurrent use.
type Attachments interface {
	// Keep stores the upload of the call for an hour, during which no read shows it, and returns what a.Answer makes
	// of it. Refusals: 413, 429 if too many files wait for the form, 507 and those of a.Judge. It sets Call.Undo.
	Keep(ctx context.Context, c *operation.Call, a Attachment) (operation.Result, error)
	// Redeem adds to the batch the writes that make the file of a token a file of the organization, with the teams of
	// the folder if one is named, and end the token. found is false if the token was not given for that field of that
	// form, has expired or was used. Error: store.ErrNotFound if the folder is gone.
	Redeem(ctx context.Context, c *operation.Call, b *store.Batch, form, field, folder, token string) (
		id string, found bool, err error)
	// FindMissing returns which files the caller does not see, and the preconditions that the others are unchanged.
	FindMissing(ctx context.Context, c *operation.Call, ids []string) ([]string, []store.Precondition, error)
	// FindMissingFolders is FindMissing for folders.
	FindMissingFolders(ctx context.Context, c *operation.Call, ids []string) ([]string, []store.Precondition, error)
}

// Attachment says for what a file is sent.
type Attachment struct {
	Form, Field string
	Filename    string
	Mimetype    string // declared; empty: the one that the bytes show
	Most        int64  // bytes that the field takes
	// Judge refuses a file by its declared type and the one that its bytes show.
	Judge func(declared, detected string) error
	// Answer makes the answer of a file that was kept.
	Answer func(Attached) any
}

// Attached is a file that waits for a submission.
type Attached struct {
	Token    string
	Filename string
	Size     int64
	Detected string
	Ends     time.Time
}

// AttachedAnswer is a file that waits for a submission, as callers see it.
type AttachedAnswer struct {
	Token     string `json:"token" doc:"Value for the field in one submission of the form, in place of an identifier."`
	Filename  string `json:"filename" doc:"Name of the file."`
	Size      int64  `json:"size" doc:"Size in bytes."`
	Detected  string `json:"detected" doc:"MIME type that the bytes show."`
	ExpiresAt string `json:"expires_at" doc:"When the file is removed unless it was submitted; RFC 3339, UTC, milliseconds."`
}

const (
	attachTime = 30 * time.Minute
	// publicAttachTime is the same for visitors, who must not hold a place for long.
	publicAttachTime = 5 * time.Minute
	// maxByStrangers is the size of a file in bytes that a browser key may send, if the field does not say.
	maxByStrangers = 10 << 20
	maxAttachment  = schema.MaxFileSize
	maxMedia       = 200 // characters of a media type

	fieldParam   = "field"
	digestHeader = "Content-Digest"
)

// attachInput is the upload of a file for a field.
type attachInput struct {
	ID       string `json:"id" doc:"Identifier of the form." example:"665f1c2ab4d3e2f1a0b9c8d7"`
	Field    string `json:"field" rule:"required max=64 format=line" doc:"Identifier of a field of the form, of the type File." example:"paper"`
	Filename string `json:"filename" rule:"required max=255 format=label" doc:"Name of the file." example:"lease.pdf"`
	Proof    string `json:"proof" rule:"max=300" doc:"For keys of kind browser that require proof of work: the challenge, a colon and the solution. A file takes a challenge of its own." example:"665f1c2a.665f1c2a.1717510000.18.Jx2mB0l4Zk6u1q9c.1.mJ1b3rVn:1a2b"`
}

func (m *Module) attachRow() operation.Row {
	return operation.On(operation.Row{
		Name: "forms.attach", Method: http.MethodPost, Path: "/api/form/collections/{id}/files",
		Policy: operation.Policy{
			Credentials: operation.Key | operation.Session, Kinds: operation.ServerFull | operation.Browser,
			Rule: operation.Needs(tenants.CreateFormSubmissions), Audit: operation.AuditAlways, Timeout: attachTime,
		},
		Request: operation.Request{
			Upload: []string{operation.AnyMedia}, UploadExamples: []string{"Hello.\n"}, UploadLimit: maxAttachment,
			Params: []operation.Param{{
				Name: digestHeader, In: operation.InHeader, Shape: operation.Text,
				Description: "SHA-256 of the body (RFC 9530), which is checked.",
				Example:     "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:",
			}},
		},
		Response: operation.Response{
			Message: "File kept", Data: AttachedAnswer{}, Once: true,
			Example: AttachedAnswer{
				Token: schema.TokenPrefix + "_0QJ7vYk3mZ1b9Xw8c5R2d6T4fG7hL1nP3sU5aE8iO0", Filename: "lease.pdf", Size: 52814, Detected: "application/pdf",
				ExpiresAt: "2024-06-04T15:06:40.000Z",
			},
			Failures: []operation.Failure{
				{Code: http.StatusNotFound, Message: missing, When: "no such form in this organization"},
				operation.Refuses(http.StatusUnprocessableEntity, "the field is none of files, or does not take the type of the file",
					fieldParam, fault.Type, `the field "paper" takes application/pdf; the file is declared as application/pdf and shows text/html`),
				{Code: http.StatusRequestEntityTooLarge, Message: "The file is larger than 10485760 bytes, the limit for visitors", When: "the file is larger than the field takes"},
				{
					Code: http.StatusTooManyRequests, Message: "Too many files wait for submissions of this form, please retry later",
					When: "10 files or 20 MiB of the visitor, or 100 files or 100 MiB in all, wait for submissions of the form",
				},
				{Code: http.StatusInsufficientStorage, Message: noRoom, When: "a browser key is used, and the organization has reached a quota"},
			},
		},
		Docs: operation.Docs{
			Tag: tag, Summary: "Upload a file for a submission", Verb: "Upload", Aside: true,
			Description: "The body is a file for a field of the type File. It is kept for an hour, and nobody can read it. The " +
				"answer has a token, which one submission of the form may name in place of the identifier of a file: then it is " +
				"stored as a file of the organization together with the submission. The field must accept the declared type of " +
				"the file (Content-Type) and the one that its bytes show.",
		},
	}, m.formOf, m.attach)
}

// formOf returns the form that the path names.
func (m *Module) formOf(ctx context.Context, c *operation.Call) (*Form, error) {
	form, err := m.Forms.In(c.Workspace).Get(ctx, c.Path("id"))
	return form, operation.OrMissing(err, missing)
}

func (m *Module) attach(ctx context.Context, c *operation.Call, form *Form, in attachInput) (operation.Result, error) {
	field, defined := form.Fields()[in.Field]
	if !defined || field.Type != schema.File {
		return operation.Result{}, fault.One(fieldParam, fault.Unknown, "the form has no field %q of the type File", schema.Printable(in.Field))
	}
	stranger := c.Principal.Public()
	most, of := c.Tenant.Org.Limit(tenants.LimitFileSize), "the limit file_size of the organization"
	switch {
	case field.MaxSize > 0 && field.MaxSize < most:
		most, of = field.MaxSize, fmt.Sprintf("the limit of the field %q", in.Field)
	case field.MaxSize == 0 && stranger && maxByStrangers < most:
		most, of = maxByStrangers, "the limit for visitors"
	}
	if err := c.LimitUpload(most, of); err != nil {
		return operation.Result{}, err
	}
	declared, err := declaredMedia(c)
	if err == nil && declared != "" && !field.TakesDeclared(declared) {
		err = refuseMedia(in.Field, field, declared, "")
	}
	switch {
	case err != nil:
	case c.Principal.KeyKind == tenants.Browser:
		err = m.prove(ctx, c, keyTerms(c), "")
	case stranger:
		err = m.prove(ctx, c, form.publicTerms(), "")
	}
	if err != nil {
		return operation.Result{}, err
	}
	result, err := m.Attachments.Keep(ctx, c, Attachment{
		Form: form.ID, Field: in.Field, Filename: texts.Trim(in.Filename), Mimetype: declared, Most: most,
		Judge: func(declared, detected string) error {
			if !field.Takes(declared, detected) {
				return refuseMedia(in.Field, field, declared, detected)
			}
			if c.Principal.Kind == tenants.Anonymous { // the file may have taken long to arrive
				_, err := m.Public(ctx, c.Tenant, form.PID)
				return err
			}
			return nil
		},
		Answer: func(kept Attached) any {
			c.Note(m.Forms.Name, form.ID)
			return AttachedAnswer{kept.Token, kept.Filename, kept.Size, kept.Detected, texts.Time(kept.Ends.UnixMilli())}
		},
	})
	if stranger {
		err = hideQuota(err)
	}
	return result, err
}

// declaredMedia returns the media type that the caller declares, without parameters; "" if it is none.
func declaredMedia(c *operation.Call) (string, error) {
	sent, err := c.RequestHeader("Content-Type")
	if err != nil {
		return "", err
	}
	media, _, err := mime.ParseMediaType(sent)
	if err != nil || len(media) > maxMedia || !strings.Contains(media, "/") {
		return "", nil //nolint:nilerr // it declares none
	}
	return media, nil
}

// refuseMedia explains that a field does not take a file.
func refuseMedia(name string, f schema.Field, declared, detected string) error {
	shows := ""
	if detected != "" {
		shows = " and shows " + detected
	}
	return fault.One(fieldParam, fault.Type, "the field %q takes %s; the file is declared as %s%s",
		name, strings.Join(f.Accept.List(), ", "), cmp.Or(texts.Clip(declared), "nothing"), shows)
}

// redeem makes the tokens in a new submission files of the organization, in the commit that stores the submission, and
// checks that the caller sees the other files that it names.
func (m *Module) redeem(ctx context.Context, c *operation.Call, b *store.Batch, rec, was *Submission) error {
	if was != nil { // it is deleted
		return nil
	}
	fields, _ := m.Submissions.Defined(&c.Known, rec)
	rec.Values = maps.Clone(rec.Values)
	var errs fault.List
	for _, name := range fields.Names() {
		if value := rec.Values[name]; fields[name].Type == schema.File && value != nil {
			ids, err := m.redeemField(ctx, c, b, rec.Form, fields[name], name, value, &errs)
			if err != nil {
				return err
			}
			rec.Values[name] = ids
		}
	}
	return errs.Err()
}

// redeemField returns the value of a field with an identifier in place of each token.
func (m *Module) redeemField(
	ctx context.Context, c *operation.Call, b *store.Batch, form string, f schema.Field, name string, value any, errs *fault.List,
) (any, error) {
	at := "values." + name
	named, plain := slices.Clone(schema.Files(value)), []string{}
	for i, one := range named {
		if one == "" {
			continue
		}
		if !schema.IsToken(one) {
			plain = append(plain, one)
			continue
		}
		id, found, err := m.Attachments.Redeem(ctx, c, b, form, name, f.FolderID, one)
		switch {
		case errors.Is(err, store.ErrNotFound):
			errs.Add(at, fault.Unknown, "%s cannot take files, because the folder that the form names for them is gone", at)
		case err != nil:
			return nil, err
		case found:
			c.Note(fmt.Sprintf("%s.%d", at, i+1), id)
		default:
			errs.Add(at, fault.Unknown, "%s has a token that was used, has expired, or is not for this field: upload the file again", at)
		}
		named[i] = id
	}
	switch {
	case len(plain) == 0:
	case c.Principal.Public(): // it must not learn which files there are
		errs.Add(at, fault.Forbidden, "%s must have tokens of uploaded files: visitors cannot name others", at)
	default:
		missing, unchanged, err := m.Attachments.FindMissing(ctx, c, plain)
		if err != nil {
			return nil, err
		}
		if b.Require(unchanged...); len(missing) > 0 {
			errs.Add(at, fault.Unknown, "%s names a file that is not in this organization", at)
		}
	}
	if _, one := value.(string); one {
		return named[0], nil
	}
	list := make([]any, len(named))
	for i := range named {
		list[i] = named[i]
	}
	return list, nil
}

// hideQuota keeps from visitors of a page how much is stored.
func hideQuota(err error) error {
	full, isFull := errors.AsType[*store.QuotaError](err)
	if !isFull {
		return err
	}
	return &operation.Problem{
		Code: http.StatusInsufficientStorage, Message: noRoom, Reason: fmt.Sprintf("limit %s", full.Limit), Err: err,
	}
}

// requireFolders refuses folders that the fields of a form name newly and that the caller does not see: visitors would
// lay files there.
func (m *Module) requireFolders(ctx context.Context, c *operation.Call, need *store.Preconditions, now, was schema.Fields) error {
	var named []string
	for name, f := range now {
		if f.FolderID != "" && f.FolderID != was[name].FolderID && !slices.Contains(named, f.FolderID) {
			named = append(named, f.FolderID)
		}
	}
	if len(named) == 0 {
		return nil
	}
	missing, unchanged, err := m.Attachments.FindMissingFolders(ctx, c, named)
	if err != nil {
		return err
	}
	need.Require(unchanged...)
	var errs fault.List
	for _, name := range now.Names() {
		if f := now[name]; f.FolderID != was[name].FolderID && slices.Contains(missing, f.FolderID) {
			at := "schema." + name + ".folder_id"
			errs.Add(at, fault.Unknown, "%s names a folder that is not in this organization", at)
		}
	}
	return errs.Err()
}
