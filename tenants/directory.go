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

// Kinds are the records of this package. They belong to the control workspace.
type Kinds struct {
	Organizations *store.Kind[Organization]
	Installations *store.Kind[Installation]
	Chores        *store.Kind[Chore]
}

// NewKinds declares the records.
func NewKinds() Kinds {
	organizations := store.Must[Organization](store.Spec{
		Name: "organizations", Fields: []string{"org_id", "slug", "state"},
		Indexes: []store.Index{{Fields: []string{"slug"}, Unique: true}, {Fields: []string{"org_id"}, Unique: true}},
		Access:  []store.Access{{Where: []string{"slug"}}, {Where: []string{"org_id"}}, {Sort: []string{"slug"}}},
	})
	installations := store.Must[Installation](store.Spec{Name: "installations"})
	return Kinds{Organizations: organizations, Installations: installations, Chores: store.Must[Chore](store.Spec{Name: "chores"})}
}

// Specs returns the declarations, for the store's list of control kinds.
func (k Kinds) Specs() []*store.Spec {
	return []*store.Spec{k.Organizations.Spec(), k.Installations.Spec(), k.Chores.Spec()}
}

// How long what was read about an organization is used.
const (
	refreshAfter = 500 * time.Millisecond // then one caller reads again while the others go on
	staleAfter   = 900 * time.Millisecond // then everybody waits for that read
	retryAfter   = 500 * time.Millisecond // between reads while the store fails
	loadTimeout  = 2 * time.Second
	// DefaultGrace is how long an organization read before is served while the store fails.
	DefaultGrace = 30 * time.Second
	// DefaultOrganizations is how many are kept in memory.
	DefaultOrganizations = 16_384
)

// DirectoryOptions say what a Directory works on. Store, Kinds and Keyring are needed.
type DirectoryOptions struct {
	Store   *store.Store
	Kinds   Kinds
	Keyring *keyring.Keyring
	// BaseDomain: hosts are exactly <slug>.<BaseDomain>. Empty: any domain will do.
	BaseDomain string
	Now        func() time.Time // nil: time.Now
	// Grace: 0 is DefaultGrace; below 0 there is none.
	Grace time.Duration
	// NewBackend is where new organizations are placed; empty: store.DefaultBackend.
	NewBackend string
	// Limits are those of organizations that have none of their own, but for LimitFolderChildren. 0: there is none.
	Limits map[string]int64
	// Organizations is how many are kept in memory, 0: DefaultOrganizations. Others are read when they are asked for.
	Organizations int
	// Log is told of workspaces that belong to somebody else; nil: nobody is.
	Log *slog.Logger
}

// Directory knows the organizations and leads from a host name to one. What another
// process changed holds after at most a second, what this one changed at once. Safe for
// concurrent use.
type Directory struct {
	store   *store.Store
	control *store.Workspace
	orgs    store.Collection[Organization]
	// installations holds what is true of the whole control workspace, installation its identity.
	installations store.Collection[Installation]
	installation  string
	chores        store.Collection[Chore]
	keyring       *keyring.Keyring
	base          string
	now           func() time.Time
	log           *slog.Logger
	grace         time.Duration
	// newBackend is where new organizations are placed.
	newBackend string
	limits     map[string]int64 // see DirectoryOptions
	held       held

	slots *cache.Map[string, *slot]
	slugs cache.Weak[int64, string] // of organizations that are known to anybody
	// changing has one change of each organization at a time.
	changing fairqueue.Queue[int64]
	vault    vault

	hooks    sync.Mutex
	onChange []func(org int64)
	onRemove []func(people *store.Workspace) []store.Purger
}

// NewDirectory returns a Directory on the store's control workspace. Errors: a malformed
// base domain, store.ErrUnavailable.
func NewDirectory(ctx context.Context, o DirectoryOptions) (*Directory, error) {
	base := strings.ToLower(strings.Trim(o.BaseDomain, "."))
	if base != "" {
		for label := range strings.SplitSeq(base, ".") {
			if !validLabel(label) {
				return nil, fmt.Errorf("the base domain %q is no host name; give it without scheme, port and path", o.BaseDomain)
			}
		}
	}
	control, err := o.Store.Control(ctx)
	if err != nil {
		return nil, err
	}
	most := cmp.Or(o.Organizations, DefaultOrganizations)
	d := &Directory{
		store: o.Store, control: control, orgs: o.Kinds.Organizations.In(control), keyring: o.Keyring,
		base: base, now: o.Now, log: o.Log, grace: o.Grace, slots: cache.New[string, *slot](most), vault: vault{open: cache.New[int64, map[string]*DataKeys](most)},
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
	if err := d.proveKeyring(ctx); err != nil {
		return nil, err
	}
	if err := d.identify(ctx); err != nil {
		return nil, err
	}
	o.Store.LocateWith(d.locate)
	return d, nil
}

// slot is what is known about one slug.
type slot struct {
	answer atomic.Pointer[answer]
	mu     sync.Mutex
	flight *flight
	gen    uint64 // grows when what is known becomes void
}

type answer struct {
	tenant  *Tenant // nil: nobody answers to the slug
	readAt  time.Time
	failed  time.Time // when reading again failed last
	failure error
}

// flight is a read that others may wait for. It is not golang.org/x/sync/singleflight, which does not tell that a read is
// under way, so that the others could go on with what they have; and where they wait, they wait beyond their own
// deadlines (Do), or a panic of the read ends the process (DoChan).
type flight struct {
	done   chan struct{}
	tenant *Tenant
	err    error
	again  bool // it ended with its caller's deadline: that says nothing to the others
}

// Resolve returns the active organization that a host ("acme.example.com:8080") names.
// Errors: ErrUnknownTenant, ErrNoSlug in it, and store.ErrUnavailable where that cannot be told now.
func (d *Directory) Resolve(ctx context.Context, host string) (*Tenant, error) {
	slug, ok := hostSlug(host, d.base)
	if !ok {
		return nil, ErrNoSlug
	}
	s, ok := d.slots.Get(slug)
	if ok {
		if a := s.answer.Load(); a != nil && a.freshAt(d.now()) {
			return a.result()
		}
	} else {
		s = d.slots.GetOrPut(strings.Clone(slug), func() *slot { return &slot{} })
	}
	return d.refresh(ctx, slug, s)
}

func (a *answer) freshAt(now time.Time) bool {
	age := now.Sub(a.readAt)
	return !a.readAt.IsZero() && age >= 0 && age < refreshAfter
}

func (a *answer) result() (*Tenant, error) {
	if a.tenant == nil {
		return nil, ErrUnknownTenant
	}
	return a.tenant, nil
}

// usable reports whether the answer may be given while nobody knows better: until
// staleAfter, and where the store fails for the grace. That nobody answers to a slug is
// never prolonged.
func (d *Directory) usable(a *answer, now time.Time) bool {
	if a == nil || a.readAt.IsZero() {
		return false
	}
	age := now.Sub(a.readAt)
	return age >= 0 && (age < staleAfter || a.failure != nil && a.tenant != nil && age < staleAfter+d.grace)
}

func (d *Directory) refresh(ctx context.Context, slug string, s *slot) (*Tenant, error) {
	for {
		now := d.now()
		s.mu.Lock()
		a := s.answer.Load()
		if a != nil && a.freshAt(now) {
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
			if f.again {
				continue
			}
			return f.tenant, f.err
		}
		f := &flight{done: make(chan struct{})}
		s.flight = f
		gen := s.gen
		s.mu.Unlock()
		d.fly(ctx, slug, s, f, gen, a)
		return f.tenant, f.err
	}
}

// fly reads the organization and notes the answer, unless it became void meanwhile.
func (d *Directory) fly(ctx context.Context, slug string, s *slot, f *flight, gen uint64, before *answer) {
	landed := false
	defer func() {
		if !landed { // the read panicked: who waits must not take that for an answer
			f.err = fmt.Errorf("reading organization %s: %w: the read broke off", slug, store.ErrUnavailable)
			s.leave(f)
		}
		close(f.done)
	}()
	loadCtx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	var known *Tenant
	if before != nil {
		known = before.tenant
	}
	readAt := d.now() // before the read, so that the age is never underestimated
	tenant, err := d.load(loadCtx, slug, known)
	next := &answer{tenant: tenant, readAt: readAt}
	if err != nil {
		f.again = ctx.Err() != nil
		next = &answer{failed: d.now(), failure: err}
		if before != nil {
			next.tenant, next.readAt = before.tenant, before.readAt
		}
	}
	s.mu.Lock()
	if s.gen == gen {
		s.flight = nil
		if !f.again {
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
	landed = true
}

// leave lets the next caller read again.
func (s *slot) leave(f *flight) {
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

// load returns the active organization of that slug, nil where there is none, and known
// itself where nothing changed.
func (d *Directory) load(ctx context.Context, slug string, known *Tenant) (*Tenant, error) {
	asked := time.Now()
	org, err := d.orgs.First(ctx, store.Query{Filter: store.Eq("slug", slug)})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading organization %s: %w: %w", slug, store.ErrUnavailable, err)
	case org.State != Active:
		return nil, nil
	}
	tenant, err := d.tenant(ctx, org, asked)
	if err == nil && known != nil && reflect.DeepEqual(known.Org, *org) { // a revision can come again that the control data lost
		return known, nil
	}
	return tenant, err
}

// tenant returns the organization as it was read. asked is when that reading began.
func (d *Directory) tenant(ctx context.Context, org *Organization, asked time.Time) (*Tenant, error) {
	workspace, err := d.store.At(ctx, org.OrgID, d.placement(d.withDefaults(org), asked))
	if err != nil {
		return nil, fmt.Errorf("opening organization %s: %w: %w", org.Slug, store.ErrUnavailable, err)
	}
	slug := d.slugs.GetOrPut(org.OrgID, func() *string { s := strings.Clone(org.Slug); return &s })
	return &Tenant{Org: *org, slug: slug, workspace: workspace, people: d.control.Partition(org.OrgID), prefix: redisPrefix(d.installation, org.ID)}, nil
}

// PeopleOf returns an organization's part of the control workspace by its number, for who looks through all.
func (d *Directory) PeopleOf(org int64) *store.Workspace { return d.control.Partition(org) }

// Nobody returns an organization that has nobody and nothing, for a host that leads to none:
// what is asked of its people costs what it costs elsewhere, and finds nobody. It has no
// documents, and its workspace is nil.
func (d *Directory) Anonymous(host string) *Tenant {
	slug, _ := hostSlug(host, d.base)
	const noPartition = -1 // numbers of organizations begin at 1
	return &Tenant{
		Org: Organization{Meta: store.Meta{ID: "?" + slug}, Slug: slug, State: Removed}, people: d.control.Partition(noPartition),
		prefix: redisPrefix(d.installation, "?"+slug), // no identity begins so
		absent: func(ctx context.Context) error {
			_, err := d.orgs.First(ctx, store.Query{Filter: store.Eq("org_id", int64(noPartition))})
			if errors.Is(err, store.ErrNotFound) {
				return nil
			}
			return err
		},
	}
}

// Absent looks up a document of an organization that has none (see Directory.Anonymous), which costs what it costs one
// that does not have this document. Of others it does nothing. Error: ErrUnavailable.
func (t *Tenant) Absent(ctx context.Context) error {
	if t.absent == nil {
		return nil
	}
	return t.absent(ctx)
}

// Forget makes what is cached about an organization void: the next Resolve reads again.
// It is called for changes that another process announces.
func (d *Directory) Forget(org int64) {
	if slug := d.slugs.Get(org); slug != nil { // else it is kept by nobody
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
	s.flight = nil // whoever comes now must not wait for a read that began before the change
	s.answer.Store(nil)
	s.mu.Unlock()
}

// Kept returns how many things are kept in memory, by what they are.
func (d *Directory) Kept() map[string]int {
	return map[string]int{"organizations": d.slots.Len(), "slugs": d.slugs.Len(), "data_keys": d.vault.open.Len()}
}

// OnChange registers a function that is called after every change this process made to
// an organization or to the rights in it. It must not block.
func (d *Directory) OnChange(fn func(org int64)) {
	d.hooks.Lock()
	defer d.hooks.Unlock()
	d.onChange = append(d.onChange, fn)
}

// OnRemove registers a function that names what ends with an organization in its part of the control workspace.
func (d *Directory) OnRemove(fn func(people *store.Workspace) []store.Purger) {
	d.hooks.Lock()
	defer d.hooks.Unlock()
	d.onRemove = append(d.onRemove, fn)
}

func (d *Directory) changed(org *Organization) {
	d.forget(org.Slug)
	d.hooks.Lock()
	hooks := d.onChange[:len(d.onChange):len(d.onChange)]
	d.hooks.Unlock()
	for _, fn := range hooks {
		fn(org.OrgID)
	}
}
