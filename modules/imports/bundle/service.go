// Package bundle carries organizations in and out as bundles, which are lines of JSON, and
// imports whatever else a feed makes lines of.
//
// A bundle is read several times: once for the definitions in it, once to check every
// line, once to store them. So references may point forward, nothing is stored where a
// line is bad, and memory holds identifiers and definitions, never the documents.
//
// A line is the same record as a stored one if they share the id, or else the
// external_id, or, for a line that gives no id, the name, address or public identifier
// that is unique among its kind. A line that has none of these gets an id made from its
// content (secret values apart), so that importing the same file again changes nothing;
// the n-th of several equal lines is the n-th record. Names that a line does not give
// stay as they are in a record that exists; null empties one.
//
// Encrypted values are bound to organization, record and field. {"enc": "..."} is taken
// where it opens for exactly the record that the line is, and refused everywhere else.
package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/crypto/sealing"
	"tenantry/internal/strictjson"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/secrets"
)

// The resources that something here is particular about.
const (
	kindOrganization = "organization"
	kindUser         = "user"
	kindFolder       = "folder"
)

// Deps are what is carried. All but End are required.
type Deps struct {
	Directory *tenants.Directory
	People    identity.Kinds
	// Resources are all whose records travel, in the order in which they are written and
	// definitions are stored: after those that they refer to.
	Resources []*record.Resource
	// End, where set, ends records of a resource for good as its operations do, with all that hangs on them. Done is
	// false where there are none that do. Those that are gone already are passed over.
	End func(ctx context.Context, t *tenants.Tenant, resource string, ids []string) (done bool, err error)
}

// Service imports and exports. It is immutable and safe for concurrent use; two imports
// into one organization at a time may each report the other's records as duplicates.
type Service struct {
	deps Deps
	most int // lines of an import that is Bounded
	// What such an import keeps in memory, in bytes; see account.
	remembered, defined int64
}

// New returns a Service.
func New(d Deps) *Service { return &Service{d, maxLines, maxRemembered, maxDefined} }

// Importable returns all whose records travel.
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
	most   int                         // lines that are read of a file
	turn   func(context.Context) error // see ImportOptions.Turn
	tally  *tally
	// allowed says whether the import may still store something; nil: it may.
	allowed func(context.Context) error
	account

	asIs          int // lines that an export wrote as they are stored
	unknown       int // lines that an export wrote without permissions and roles that do not exist
	rightsChanged bool
	mirror        *mirror // nil: what no line is stays
	// isEmpty: the organization had no record of the kind when the import began.
	isEmpty map[string]bool
	// alias leads from identifiers of the bundle to those under which the organization
	// knows the same records.
	alias map[string]string
}

func (s *Service) session(t *tenants.Tenant, progress func(Progress), bounded bool) (*session, error) {
	out := &session{
		deps: &s.deps, tenant: t, most: math.MaxInt, named: map[string]*kind{}, meter: meter{report: progress}, tally: newTally(),
		vault: &secrets.Vault{Keys: s.deps.Directory, Tenant: t}, isEmpty: map[string]bool{}, alias: map[string]string{},
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
			k.guard, k.watch, k.leave = keepAdmin, turn, leave
		case r == own && bounded:
			k.held = operators
		}
		out.kinds = append(out.kinds, k)
		out.named[r.Name] = k
	}
	return out, nil
}

// Import takes a bundle. The report is valid also where an error is returned. Errors:
// *RefusedError where lines are bad and Partial is not set; *IncompleteError where lines
// that were good could not be stored; *InterruptedError where it ended while storing;
// ErrTooMany; what reading the source returns; store.ErrUnavailable.
func (s *Service) Import(ctx context.Context, t *tenants.Tenant, src Source, o ImportOptions) (Report, error) {
	return s.run(ctx, t, o, func(session *session) Feed { return &bundle{session: session, src: src} })
}

// ImportFeed takes the lines of a feed. Report and errors are those of Import, and what the
// feed returns.
func (s *Service) ImportFeed(ctx context.Context, t *tenants.Tenant, f Feed, o ImportOptions) (Report, error) {
	o.Mirror = false
	return s.run(ctx, t, o, func(*session) Feed { return f })
}

func (s *Service) run(ctx context.Context, t *tenants.Tenant, o ImportOptions, feed func(*session) Feed) (Report, error) {
	t, err := s.deps.Directory.BySlug(ctx, t.Org.Slug) // as it is now
	if err != nil {
		return newTally().report(), err
	}
	if o.Mirror {
		t = t.Through((*store.Workspace).BeyondQuota) // what goes makes room, and goes last
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
	return session.run(ctx, feed(session), o)
}

// goOn returns when the import may go on, or why it may not.
func (s *session) goOn(ctx context.Context) error {
	if err := ctx.Err(); err != nil || s.turn == nil {
		return err
	}
	return s.turn(ctx)
}

// keepAdmin changes a user, unless that takes the last administrator away by now.
func keepAdmin(ctx context.Context, s *session, old any, write func() error) error {
	if u := old.(*identity.User); !u.ActiveAdmin() {
		return identity.KeepAdmin(ctx, s.deps.Directory, s.deps.People, s.tenant, u.UID, time.Now(), write)
	}
	return write()
}

// leave removes a user, unless that takes the last administrator away by now.
func leave(ctx context.Context, s *session, rec any, remove func() error) error {
	err := identity.KeepAdmin(ctx, s.deps.Directory, s.deps.People, s.tenant, rec.(*identity.User).UID, time.Now(), remove)
	if errors.Is(err, store.ErrNotFound) {
		err = nil
	}
	return err
}

// turn ends what was begun by a user who is deactivated, and a link to one who is given more.
func turn(old any) func() {
	u := old.(*identity.User)
	was := *u
	return func() { u.Invalidate(&was) }
}

// ExportOptions say what an export holds.
type ExportOptions struct {
	// RevealSecrets writes secrets in clear. Callers audit it.
	RevealSecrets bool
	// SealTo, where set, is the key to which secrets are sealed, so that whoever has its
	// private half can import them anywhere. Callers audit it.
	SealTo *sealing.PublicKey
	// Progress is called at most ten times a second; Total is not known.
	Progress func(Progress)
}

// Export writes the organization as a bundle: definitions first, each kind in order of
// its identifiers. Records that are written meanwhile may or may not be part of it.
// Errors: what w returns, store.ErrUnavailable, and fields.ErrCorrupt where a secret that
// is to be revealed cannot be opened.
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
	if err := session.holdDefined(ctx); err != nil {
		return out, err
	}
	m := &session.meter
	m.start(PhaseWriting, 0)
	bytes := int64(0)
	for _, k := range session.kinds {
		err := k.export(ctx, session, func(line []byte) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if _, err := w.Write(line); err != nil {
				return err
			}
			out.Kinds[k.Name]++
			out.Lines++
			bytes += int64(len(line))
			m.at(bytes, out.Lines)
			return nil
		})
		if err != nil {
			return out, fmt.Errorf("exporting lines of kind %s: %w", k.Name, err)
		}
	}
	m.end()
	out.AsIs, out.Problems, out.LeftOut = session.asIs, session.tally.problems, session.leftOut(&out)
	return out, nil
}

// leftOut says what an export could not take along.
func (s *session) leftOut(r *ExportReport) []string {
	out := []string{"API keys, sessions, share links, the audit log and answers kept for repeated requests are never part of an export: make new keys and links where it is imported."}
	if n := r.Kinds[kindUser]; n > 0 {
		out = append(out, fmt.Sprintf("Passwords of people (%d): whoever shall sign in where it is imported needs a new link: tenantry user update USER --org SLUG --link", n))
	}
	if n := s.unknown; n > 0 {
		out = append(out, fmt.Sprintf("Permissions and roles that do not exist were left out of people, roles and service accounts (%d): they give nothing.", n))
	}
	if n := s.vault.Kept; n > 0 {
		out = append(out, fmt.Sprintf("Encrypted values (%d) open in this organization alone: an import elsewhere refuses their lines. Export with --secrets to take them along.", n))
	}
	if n := s.vault.Lost; n > 0 {
		out = append(out, fmt.Sprintf("Encrypted values (%d) open nowhere any more, since their key is gone; they were left out.", n))
	}
	return out
}

// IncompleteError says that lines which were good could not be stored, because others
// changed the organization meanwhile; the report names them.
type IncompleteError struct{ Failed, Lines int }

func (e *IncompleteError) Error() string {
	return fmt.Sprintf("%d of %d lines could not be stored because the organization was changed meanwhile; import the same file again", e.Failed, e.Lines)
}

var errMoved = errors.New("what is defined was changed meanwhile")

// ErrTooMany says that a file holds more than an import keeps account of.
var ErrTooMany = errors.New("the file holds too many lines")
