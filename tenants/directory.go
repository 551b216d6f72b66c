package tenants

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tenantry/backends/store"
	"tenantry/crypto/keyring"
	"tenantry/internal/cache"
	"tenantry/internal/fairqueue"
)

// Kinds are the record kinds of this package. They belong to the control workspace.
type Kinds struct {
	Organizations *store.Kind[Organization]
	Installations *store.Kind[Installation]
	Chores        *store.Kind[Chore]
}

// NewKinds declares the kinds.
func NewKinds() Kinds {
	organizations := store.Must[Organization](store.Spec{
		Name: "organizations", Fields: []string{"org_id", "slug", "state", "sends", "due_at"},
		Indexes: []store.Index{
			{Fields: []string{"slug"}, Unique: true}, {Fields: []string{"org_id"}, Unique: true}, {Fields: []string{"sends"}, Sparse: true},
			{Fields: []string{"state", "due_at"}},
		},
		Access: []store.Access{{Where: []string{"slug"}}, {Where: []string{"org_id"}}, {Where: []string{"sends"}}, {Where: []string{"state", "due_at"}, Sort: []string{"due_at"}}, {Sort: []string{"slug"}}},
	})
	installations := store.Must[Installation](store.Spec{Name: "installations"})
	return Kinds{Organizations: organizations, Installations: installations,
		Chores: store.Must[Chore](store.Spec{Name: "chores"})}
}

// Specs returns the specifications, for the store's list of control kinds.
func (k Kinds) Specs() []*store.Spec {
	return []*store.Spec{k.Organizations.Spec(), k.Installations.Spec(), k.Chores.Spec()}
}

// Lifetimes of cached organizations.
const (
	refreshAfter = 500 * time.Millisecond // one caller reads again while the others use the cached answer
	staleAfter   = 900 * time.Millisecond // every caller waits for that read
	retryAfter   = 500 * time.Millisecond // pause between reads while the store fails
	loadTimeout  = 2 * time.Second
	// DefaultGrace is how much longer a cached organization is used while the store fails.
	DefaultGrace = 30 * time.Second
	// DefaultOrganizations is how many organizations are cached.
	DefaultOrganizations = 16_384
)

// DirectoryOptions configure a Directory. Store, Kinds and Keyring are required.
type DirectoryOptions struct {
	Store   *store.Store
	Kinds   Kinds
	Keyring *keyring.Keyring
	// BaseDomain restricts hosts to <slug>.<BaseDomain>. Empty: any domain is accepted.
	BaseDomain string
	Now        func() time.Time // nil: time.Now
	// Grace is how much longer a cached organization is used while the store fails. 0: DefaultGrace; below 0: none.
	Grace time.Duration
	// NewBackend is the backend of new organizations; empty: store.DefaultBackend.
	NewBackend string
	// Limits apply to organizations that have none of their own, except for LimitFolderChildren. 0: no limit.
	Limits map[string]int64
	// Organizations is how many are cached, 0: DefaultOrganizations. Others are read on each request.
	Organizations int
	// Log receives warnings, such as of workspaces that belong to another owner; nil: nothing is logged.
	Log *slog.Logger
}

// Directory manages the organizations and resolves host names to them. Changes made through it take effect at once, and
// changes made by other processes within a second. It is safe for concurrent use.
type Directory struct {
	store   *store.Store
	control *store.Workspace
	orgs    store.Collection[Organization]
	// installations holds records about the whole control workspace.
	installations store.Collection[Installation]
	installation  string // identity of the installation
	chores        store.Collection[Chore]
	keyring       *keyring.Keyring
	base          string
	now           func() time.Time
	log           *slog.Logger
	grace         time.Duration
	newBackend    string           // see DirectoryOptions
	limits        map[string]int64 // see DirectoryOptions
	holds         holdTracker

	slots    *cache.Map[string, *slot] // by slug
	slugs    cache.Weak[int64, string] // by number, of organizations of which a Tenant is in use, or an answer is cached
	changing fairqueue.Queue[int64]    // serializes the changes of each organization
	vault    vault
	creating sync.RWMutex // held to create organizations, and by Still

	hooks    sync.Mutex // guards the functions below
	onChange []func(org int64)
	onRemove []func(people *store.Workspace) []store.Purger
	onErase  []func(ctx context.Context, org int64) error
}

// NewDirectory returns a Directory on the store's control workspace. It checks the keyring against the data and loads
// the identity of the installation. Errors: a malformed base domain, ErrForeignKeyring, store.ErrUnavailable.
func NewDirectory(ctx context.Context, o DirectoryOptions) (*Directory, error) {
	base := strings.ToLower(strings.Trim(o.BaseDomain, "."))
	if base != "" {
		for label := range strings.SplitSeq(base, ".") {
			if !validLabel(label) {
				return nil, fmt.Errorf("the base domain %q is not a host name; give it without scheme, port and path", o.BaseDomain)
			}
		}
	}
	control, err := o.Store.Control(ctx)
	if err != nil {
		return nil, err
	}
	capacity := cmp.Or(o.Organizations, DefaultOrganizations)
	d := &Directory{
		store: o.Store, control: control, orgs: o.Kinds.Organizations.In(control), keyring: o.Keyring,
		base: base, now: o.Now, log: o.Log, grace: o.Grace,
		slots: cache.New[string, *slot](capacity), vault: vault{open: cache.New[int64, map[string]*DataKeys](capacity)},
	}
	if d.now == nil {
		d.now = time.Now
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if d.grace == 0 {
		d.grace = DefaultGrace
	}
	d.newBackend, d.limits = o.NewBackend, o.Limits
	d.installations, d.chores = o.Kinds.Installations.In(control), o.Kinds.Chores.In(control)
	if err := d.checkKeyring(ctx); err != nil {
		return nil, err
	}
	if err := d.loadIdentity(ctx); err != nil {
		return nil, err
	}
	o.Store.SetLocator(d.locate)
	return d, nil
}

// slot is the cache entry of one slug.
type slot struct {
	answer atomic.Pointer[answer]
	mu     sync.Mutex // guards flight and gen
	flight *flight    // the read under way, if any
	gen    uint64     // grows with every invalidation
}

// answer is the last result of reading a slug.
type answer struct {
	tenant  *Tenant // nil: no active organization has the slug
	slug    *string // of the organization that has it, active or not: Forget finds the answer by it; nil: there is none
	readAt  time.Time
	failed  time.Time // when the last read failed
	failure error     // of the last read; nil if it succeeded
}

// flight is a read of a slug that several callers may wait for. It does not use golang.org/x/sync/singleflight, which
// does not report whether a read is under way, so that other callers could use a cached answer meanwhile. With its Do,
// callers wait beyond their own deadlines; with its DoChan, a panic of the read ends the process.
type flight struct {
	done   chan struct{}
	tenant *Tenant
	err    error
	retry  bool // it ended because the context of its own caller did, so the others read again
}

// Resolve returns the active organization that a host ("acme.example.com:8080") names. Errors: ErrUnknownTenant, which
// includes ErrNoSlug; store.ErrUnavailable if the store fails and no cached answer can be used.
func (d *Directory) Resolve(ctx context.Context, host string) (*Tenant, error) {
	slug, ok := hostSlug(host, d.base)
	if !ok {
		return nil, ErrNoSlug
	}
	s, ok := d.slots.Get(slug)
	if ok {
		if a := s.answer.Load(); a != nil && a.isFresh(d.now()) {
			return a.result()
		}
	} else {
		s = d.slots.GetOrPut(strings.Clone(slug), func() *slot { return &slot{} })
	}
	return d.refresh(ctx, slug, s)
}

func (a *answer) isFresh(now time.Time) bool {
	age := now.Sub(a.readAt)
	return !a.readAt.IsZero() && age >= 0 && age < refreshAfter
}

func (a *answer) result() (*Tenant, error) {
	if a.tenant == nil {
		return nil, ErrUnknownTenant
	}
	return a.tenant, nil
}

// usable reports whether a cached answer may be given instead of a new one: until staleAfter, and for the grace after
// it while the store fails. The absence of an organization gets no grace.
func (d *Directory) usable(a *answer, now time.Time) bool {
	if a == nil || a.readAt.IsZero() {
		return false
	}
	age := now.Sub(a.readAt)
	return age >= 0 && (age < staleAfter || a.failure != nil && a.tenant != nil && age < staleAfter+d.grace)
}

// refresh returns the organization of a slug. It reads it unless the cached answer can be used or another caller is
// reading it already.
func (d *Directory) refresh(ctx context.Context, slug string, s *slot) (*Tenant, error) {
	for {
		now := d.now()
		s.mu.Lock()
		a := s.answer.Load()
		if a != nil && a.isFresh(now) {
			s.mu.Unlock()
			return a.result()
		}
		usable := d.usable(a, now)
		if a != nil && a.failure != nil && now.Sub(a.failed) < retryAfter {
			s.mu.Unlock()
			if usable {
				return a.result()
			}
			return nil, a.failure
		}
		if f := s.flight; f != nil {
			s.mu.Unlock()
			if usable {
				return a.result()
			}
			select {
			case <-f.done:
			case <-ctx.Done():
				return nil, fmt.Errorf("resolving an organization: %w: %w", store.ErrUnavailable, ctx.Err())
			}
			if f.retry {
				continue
			}
			return f.tenant, f.err
		}
		f := &flight{done: make(chan struct{})}
		s.flight = f
		gen := s.gen
		s.mu.Unlock()
		d.runFlight(ctx, slug, s, f, gen, a)
		return f.tenant, f.err
	}
}

// runFlight reads the organization and caches the answer, unless the slot was invalidated meanwhile.
func (d *Directory) runFlight(ctx context.Context, slug string, s *slot, f *flight, gen uint64, before *answer) {
	completed := false
	defer func() {
		if !completed { // the read panicked: waiting callers must get an error
			f.err = fmt.Errorf("reading organization %s: %w: the read panicked", slug, store.ErrUnavailable)
			s.clearFlight(f)
		}
		close(f.done)
	}()
	loadCtx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	var known *Tenant
	if before != nil {
		known = before.tenant
	}
	readAt := d.now() // before the read, so that its age is never underestimated
	tenant, held, err := d.load(loadCtx, slug, known)
	next := &answer{tenant: tenant, slug: held, readAt: readAt}
	if err != nil {
		f.retry = ctx.Err() != nil
		next = &answer{failed: d.now(), failure: err}
		if before != nil {
			next.tenant, next.slug, next.readAt = before.tenant, before.slug, before.readAt
		}
	}
	s.mu.Lock()
	if s.gen == gen {
		s.flight = nil
		if !f.retry {
			s.answer.Store(next)
		}
	}
	s.mu.Unlock()
	switch {
	case err == nil:
		f.tenant, f.err = next.result()
	case d.usable(next, d.now()) && s.current(gen):
		f.tenant, f.err = next.result()
	default:
		f.err = err
	}
	completed = true
}

// clearFlight ends a read without an answer, so that the next caller reads again.
func (s *slot) clearFlight(f *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flight == f {
		s.flight = nil
	}
}

func (s *slot) current(gen uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gen == gen
}

// load reads the active organization of a slug, and returns nil if there is none. It returns known itself if the
// organization has not changed. held keeps the slug in Directory.slugs, also of an organization that is not active.
func (d *Directory) load(ctx context.Context, slug string, known *Tenant) (tenant *Tenant, held *string, err error) {
	asked := time.Now()
	org, err := d.orgs.First(ctx, store.Query{Filter: store.Eq("slug", slug)})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("reading organization %s: %w: %w", slug, store.ErrUnavailable, err)
	}
	if held = d.hold(org); org.State != Active {
		return nil, held, nil
	}
	tenant, err = d.tenant(ctx, org, asked)
	// The revisions alone do not tell: after an election has lost one, another change can get the same revision.
	if err == nil && known != nil && reflect.DeepEqual(known.Org, *org) {
		return known, held, nil
	}
	return tenant, held, err
}

// hold returns the slug of an organization, which is in Directory.slugs for as long as somebody refers to it.
func (d *Directory) hold(org *Organization) *string {
	return d.slugs.GetOrPut(org.OrgID, func() *string { s := strings.Clone(org.Slug); return &s })
}

// tenant returns the organization as a Tenant. asked is when the read of org began.
func (d *Directory) tenant(ctx context.Context, org *Organization, asked time.Time) (*Tenant, error) {
	workspace, err := d.store.At(ctx, org.OrgID, d.placement(d.withDefaults(org), asked))
	if err != nil {
		return nil, fmt.Errorf("opening organization %s: %w: %w", org.Slug, store.ErrUnavailable, err)
	}
	return &Tenant{
		Org: *org, slug: d.hold(org), workspace: workspace, people: d.control.Partition(org.OrgID),
		prefix: redisPrefix(d.installation, org.ID), directory: d,
	}, nil
}

// PeopleOf returns an organization's partition of the control workspace by its number, for searches over all
// organizations.
func (d *Directory) PeopleOf(org int64) *store.Workspace { return d.control.Partition(org) }

// Anonymous returns an empty tenant for a host that names no organization. Look-ups of its people cost as much as
// elsewhere and find nothing, so that timing does not reveal which organizations exist. It has no documents: its
// workspace is nil.
func (d *Directory) Anonymous(host string) *Tenant {
	slug, _ := hostSlug(host, d.base)
	const noPartition = -1 // numbers of organizations begin at 1
	return &Tenant{
		Org: Organization{Meta: store.Meta{ID: "?" + slug}, Slug: slug,
			State: Removed}, people: d.control.Partition(noPartition),
		prefix: redisPrefix(d.installation, "?"+slug), // no identity begins with ?
		absent: func(ctx context.Context) error {
			_, err := d.orgs.First(ctx, store.Query{Filter: store.Eq("org_id", int64(noPartition))})
			if errors.Is(err, store.ErrNotFound) {
				return nil
			}
			return err
		},
	}
}

// Absent looks up an organization that does not exist if the tenant is one of Directory.Anonymous, which takes as long
// as looking up a missing document of a real organization. For other tenants it does nothing. Error:
// store.ErrUnavailable.
func (t *Tenant) Absent(ctx context.Context) error {
	if t.absent == nil {
		return nil
	}
	return t.absent(ctx)
}

// Forget invalidates what is cached about an organization: the next Resolve reads it again. It is called for changes
// that other processes announce.
func (d *Directory) Forget(org int64) {
	if slug := d.slugs.Get(org); slug != nil { // otherwise nothing is cached
		d.forget(*slug)
	}
}

func (d *Directory) forget(slug string) {
	s, ok := d.slots.Get(slug)
	if !ok {
		return
	}
	s.mu.Lock()
	s.gen++
	s.flight = nil // later callers must not get the answer of a read that began before the change
	s.answer.Store(nil)
	s.mu.Unlock()
}

// Kept returns the number of entries of each cache, by name.
func (d *Directory) Kept() map[string]int {
	return map[string]int{"organizations": d.slots.Len(), "slugs": d.slugs.Len(), "data_keys": d.vault.open.Len()}
}

// OnChange registers a function that is called after every change that this process makes to an organization or to
// rights in it. The function must not block.
func (d *Directory) OnChange(fn func(org int64)) {
	d.hooks.Lock()
	defer d.hooks.Unlock()
	d.onChange = append(d.onChange, fn)
}

// OnRemove registers a function that returns what to purge from an organization's partition of the control workspace
// when the organization is erased.
func (d *Directory) OnRemove(fn func(people *store.Workspace) []store.Purger) {
	d.hooks.Lock()
	defer d.hooks.Unlock()
	d.onRemove = append(d.onRemove, fn)
}

// OnErase registers a function that removes what an organization has outside of the stores when it is erased. It is
// called again if the erasure is repeated.
func (d *Directory) OnErase(fn func(ctx context.Context, org int64) error) {
	d.hooks.Lock()
	defer d.hooks.Unlock()
	d.onErase = append(d.onErase, fn)
}

func (d *Directory) notifyChanged(org *Organization) {
	d.forget(org.Slug)
	d.hooks.Lock()
	hooks := d.onChange[:len(d.onChange):len(d.onChange)]
	d.hooks.Unlock()
	for _, fn := range hooks {
		fn(org.OrgID)
	}
}
