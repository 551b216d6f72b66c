// Package bundle imports and exports organizations as bundles, which are files with one JSON object on each line, and
// imports other files through a Feed.
//
// A bundle is read several times: once for its definitions, once to check every line, once to store the lines.
// Therefore references may point forward, nothing is stored if a line is bad, and memory holds identifiers and
// definitions, but not the documents.
//
// A line stands for a stored record if they have the same id or else the same external_id or, for a line without an
// id, the same name, address or public identifier that is unique in its kind. A line with none of these gets an id
// derived from its content without secret values, so that importing the same file again changes nothing; the n-th of
// several equal lines stands for the n-th record. Fields that a line does not give stay unchanged in an existing
// record; null empties a field.
//
// Encrypted values are bound to organization, record and field. {"enc": "..."} is accepted only if it can be opened for
// the record of the line.
package bundle

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/crypto/sealing"
	"tenantry/internal/strictjson"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/secrets"
)

// Resources that this package treats specially.
const (
	kindOrganization = "organization"
	kindUser         = "user"
	kindFolder       = "folder"
)

// Deps are the dependencies of a Service. All but End and Bytes are required.
type Deps struct {
	Directory *tenants.Directory
	People    identity.Kinds
	// Resources are all resources that are part of bundles, in the order in which they are written and their
	// definitions are stored: each after those that it refers to.
	Resources []*record.Resource
	// End, if set, deletes records of a resource for good as its operations do, with everything that depends on them.
	// Done is false if the resource has no such operations. Records that no longer exist are skipped.
	End func(ctx context.Context, t *tenants.Tenant, resource string, ids []string) (done bool, err error)
	// Bytes, if set, keeps the bytes of files. Without it no file has any.
	Bytes Bytes
}

// Service imports and exports. It is immutable and safe for concurrent use, but two concurrent imports into one
// organization may each report the other's records as duplicates.
type Service struct {
	deps Deps
	most int // lines of an import that is Bounded
	// Bounds of the memory of such an import in bytes; see memoryUse.
	remembered, defined int64
}

// New returns a Service.
func New(d Deps) *Service { return &Service{d, maxLines, maxRemembered, maxDefined} }

// Importable returns the resources that can be imported.
func (s *Service) Importable() []*record.Resource { return s.deps.Resources }

// session is one import or export.
type session struct {
	deps   *Deps
	kinds  []*kind
	named  map[string]*kind
	tenant *tenants.Tenant
	vault  *secrets.Vault
	view   *view
	reader strictjson.Parser // of the lines that an export writes
	meter  meter
	most   int                         // bound on the lines of a file
	turn   func(context.Context) error // see ImportOptions.Turn
	tally  *tally
	// allowed checks whether the import may still store records; nil: it may.
	allowed func(context.Context) error
	bounded bool
	memoryUse

	archive *archive // of the import; nil: the bundle is lines only
	fresh   int64    // bytes that the archive adds to those of the organization
	without lineSet  // lines of files that came without their bytes
	hashes  *hashSet // of the bytes that an export has met; nil: it does not take them

	asIs          int // lines that an export wrote as stored
	unknown       int // lines that an export wrote without unknown permissions and roles
	rightsChanged bool
	mirror        *mirror // nil: records without a line stay
	// isEmpty: the organization had no record of the kind when the import began.
	isEmpty map[string]bool
	// alias maps identifiers of the bundle to those of the same records in the organization.
	alias map[string]string
}

func (s *Service) session(t *tenants.Tenant, progress func(Progress), bounded bool) (*session, error) {
	out := &session{
		deps: &s.deps, tenant: t, most: math.MaxInt, named: map[string]*kind{}, meter: meter{report: progress}, tally: newTally(),
		vault: &secrets.Vault{
			Keys: s.deps.Directory, Tenant: t,
		}, isEmpty: map[string]bool{}, alias: map[string]string{}, bounded: bounded,
	}
	if bounded {
		out.most, out.mostRemembered, out.mostDefined = s.most, s.remembered, s.defined
	}
	own, err := organizationResource(s.deps.Directory, t, bounded)
	if err != nil {
		return nil, err
	}
	for _, r := range append([]*record.Resource{own}, s.deps.Resources...) {
		k := &kind{Resource: r}
		switch {
		case r.Name == kindUser:
			k.guard, k.watch, k.leave = guardAdmin, watchUser, removeUser
		case r == own && bounded:
			k.held = operatorFields()
		}
		out.kinds = append(out.kinds, k)
		out.named[r.Name] = k
	}
	return out, nil
}

// Import imports a bundle, or an archive of one with the bytes of its files. The report is valid even if an error is
// returned. Errors: ErrArchive; *NoRoomError; *RefusedError if lines are bad
// and Partial is not set; *IncompleteError if good lines could not be stored; *InterruptedError if it ended while
// storing; ErrRestored; ErrTooMany; those of the source; store.ErrUnavailable.
func (s *Service) Import(ctx context.Context, t *tenants.Tenant, src Source, o ImportOptions) (_ Report, err error) {
	lines, archive, err := openArchive(src, o.Bounded)
	if err != nil {
		return newTally().report(), err
	}
	defer func() { err = errors.Join(err, archive.close()) }()
	return s.run(ctx, t, o, func(session *session) Feed {
		if s.deps.Bytes != nil {
			session.archive = archive
		}
		return &bundle{session: session, src: lines}
	})
}

// ImportFeed imports the lines of a feed. Report and errors are those of Import; errors of the feed are returned, too.
func (s *Service) ImportFeed(ctx context.Context, t *tenants.Tenant, f Feed, o ImportOptions) (Report, error) {
	o.Mirror = false
	return s.run(ctx, t, o, func(*session) Feed { return f })
}

// run runs an import on the current state of the organization.
func (s *Service) run(
	ctx context.Context, t *tenants.Tenant, o ImportOptions, feed func(*session) Feed,
) (Report, error) {
	t, err := s.deps.Directory.BySlug(ctx, t.Org.Slug) // as it is now
	if err != nil {
		return newTally().report(), err
	}
	if o.Mirror {
		t = t.Through((*store.Workspace).BeyondQuota) // the records that it removes make room, but are removed last
	}
	session, err := s.session(t, o.Progress, o.Bounded)
	if err != nil {
		return newTally().report(), err
	}
	session.vault.OpenWith, session.allowed, session.turn = o.OpenWith, o.Allowed, o.Turn
	if o.Mirror {
		if o.Partial {
			return newTally().report(), ErrPartial
		}
		session.mirror = &mirror{}
		for _, k := range session.kinds {
			k.whole = true
		}
	}
	report, err := session.run(ctx, feed(session), o)
	if err == nil && !o.DryRun {
		err = s.stillThere(ctx, t)
	}
	return report, err
}

// ErrRestored: what was imported may be gone, because the organization was restored from a backup meanwhile.
var ErrRestored = errors.New("the organization was restored from a backup while the file was imported, and may lack some of " +
	"its records; import it again")

// stillThere returns ErrRestored if an organization has other documents now than when its import began.
func (s *Service) stillThere(ctx context.Context, t *tenants.Tenant) error {
	now, err := s.deps.Directory.BySlug(ctx, t.Org.Slug)
	if err == nil && now.Org.RestoredAt != t.Org.RestoredAt {
		err = ErrRestored
	}
	return err
}

// waitTurn waits until the import may continue. An error says why it may not.
func (s *session) waitTurn(ctx context.Context) error {
	if err := ctx.Err(); err != nil || s.turn == nil {
		return err
	}
	return s.turn(ctx)
}

// guardAdmin changes a user, unless that would remove the last administrator.
func guardAdmin(ctx context.Context, s *session, old any, write func() error) error {
	if u := old.(*identity.User); !u.ActiveAdmin() {
		return identity.KeepAdmin(ctx, s.deps.Directory, s.deps.People, s.tenant, u.UID, time.Now(), write)
	}
	return write()
}

// removeUser removes a user, unless that would remove the last administrator.
func removeUser(ctx context.Context, s *session, rec any, remove func() error) error {
	err := identity.KeepAdmin(ctx, s.deps.Directory, s.deps.People, s.tenant, rec.(*identity.User).UID, time.Now(), remove)
	if errors.Is(err, store.ErrNotFound) {
		err = nil
	}
	return err
}

// watchUser ends sessions of a user who is deactivated, and links to one who gets more rights.
func watchUser(old any) func() {
	u := old.(*identity.User)
	was := *u
	return func() { u.Invalidate(&was) }
}

// ExportOptions say what an export contains.
type ExportOptions struct {
	// RevealSecrets writes secrets in clear. Callers must audit it.
	RevealSecrets bool
	// SealTo, if set, is the key that secrets are sealed to: the holder of its private half can import them anywhere.
	// Callers must audit it.
	SealTo *sealing.PublicKey
	// Files writes an archive: the lines and the bytes of the files that the organization keeps, each once.
	Files bool
	// SkipMissing leaves files out whose bytes are missing or damaged; otherwise they end the export.
	SkipMissing bool
	// Progress is called at most ten times a second; Total is not known.
	Progress func(Progress)
}

// Export writes the organization as a bundle: definitions first, each kind in the order of identifiers. Records that
// are written meanwhile may or may not be included. With o.Files it writes an archive as a stream; memory does not grow
// with its files. Errors: those of w, store.ErrUnavailable, *MissingBytesError, and fields.ErrCorrupt if a secret that is
// to be revealed cannot be opened.
func (s *Service) Export(ctx context.Context, t *tenants.Tenant, w io.Writer, o ExportOptions) (ExportReport, error) {
	out := ExportReport{Kinds: map[string]int{}, LeftOut: []string{}}
	t, err := s.deps.Directory.BySlug(ctx, t.Org.Slug) // as it is now
	if err != nil {
		return out, err
	}
	session, err := s.session(t, o.Progress, false)
	if err != nil {
		return out, err
	}
	session.vault.Reveal, session.vault.SealTo, session.vault.Trusting = o.RevealSecrets, o.SealTo, true
	session.view, session.mostDefined = session.newView(), s.defined
	session.hashes = &hashSet{}
	if err := session.holdDefined(ctx); err != nil {
		return out, err
	}
	m := &session.meter
	m.start(PhaseWriting, 0)
	if !o.Files || s.deps.Bytes == nil {
		err = session.writeLines(ctx, w, &out)
	} else {
		err = session.writeArchive(ctx, w, o, &out)
	}
	if err != nil {
		return out, err
	}
	m.end()
	out.AsIs, out.Problems, out.LeftOut = session.asIs, session.tally.problems, session.leftOut(&out, o.Files)
	return out, nil
}

// writeArchive writes the lines and then the bytes of files.
func (s *session) writeArchive(ctx context.Context, w io.Writer, o ExportOptions, out *ExportReport) error {
	z := zip.NewWriter(w)
	lines, err := newEntry(z, linesName)
	if err != nil {
		return err
	}
	if err := s.writeLines(ctx, lines, out); err != nil {
		return err
	}
	if err := s.writeBytes(ctx, z, o, out); err != nil {
		return err
	}
	return z.Close()
}

// writeLines writes the lines of a bundle.
func (s *session) writeLines(ctx context.Context, w io.Writer, out *ExportReport) error {
	bytes := int64(0)
	for _, k := range s.kinds {
		err := k.export(ctx, s, func(line []byte) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if _, err := w.Write(line); err != nil {
				return err
			}
			out.Kinds[k.Name]++
			out.Lines++
			bytes += int64(len(line))
			s.meter.at(bytes, out.Lines)
			return nil
		})
		if err != nil {
			return fmt.Errorf("export lines of kind %s: %w", k.Name, err)
		}
	}
	return nil
}

// leftOut returns sentences about what an export does not contain.
func (s *session) leftOut(r *ExportReport, files bool) []string {
	out := []string{"API keys, sessions, share links, the audit log and stored answers to repeated requests are never " +
		"part of an export: create new keys and links after an import."}
	if n := r.Kinds[kindUser]; n > 0 {
		out = append(out, fmt.Sprintf("Passwords of people (%d) are not part of it: after an import elsewhere, each needs "+
			"a new link to sign in: tenantry user update USER --org SLUG --link", n))
	}
	if n := len(s.hashes.sorted()); n > 0 && !files {
		out = append(out, fmt.Sprintf("The bytes of files (%d) are not part of it: export with --with-files to include them.", n))
	} else if n > 0 {
		out = append(out, "Earlier contents of files, which were replaced, are not part of it.")
	}
	if n := r.Missing; n > 0 {
		out = append(out, fmt.Sprintf("The bytes of files (%d) are missing or damaged and were left out: %s.", n, strings.Join(r.MissingFiles, ", ")))
	}
	if n := s.unknown; n > 0 {
		out = append(out, fmt.Sprintf("Permissions and roles that do not exist were left out of people, roles and service "+
			"accounts (%d): they have no effect.", n))
	}
	if n := s.vault.Kept; n > 0 {
		out = append(out, fmt.Sprintf("Encrypted values (%d) can be opened only in this organization: an import elsewhere "+
			"refuses their lines. Export with --secrets to include them.", n))
	}
	if n := s.vault.Lost; n > 0 {
		out = append(out, fmt.Sprintf("Encrypted values (%d) can no longer be opened because their key is gone; they were left out.", n))
	}
	return out
}

// IncompleteError says that good lines could not be stored because the organization was changed meanwhile. The report
// names them.
type IncompleteError struct{ Failed, Lines int }

func (e *IncompleteError) Error() string {
	return fmt.Sprintf(
		"%d of %d lines could not be stored because the organization was changed meanwhile; import the same file again",
		e.Failed, e.Lines,
	)
}

var errDefinitions = errors.New("definitions were changed meanwhile")

// ErrTooMany says that a file has more lines or takes more memory than an import may.
var ErrTooMany = errors.New("the file holds too many lines")
