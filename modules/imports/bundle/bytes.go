package bundle

import (
	"archive/zip"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/tenants"
)

// Content is what the record of a file says of its bytes.
type Content struct {
	Hash     string // names them in their organization
	Size     int64  // in bytes
	Media    string // that they show
	Checksum string // SHA-256, hexadecimal; empty: they are not kept here
}

// Given is bytes for records that an import stores.
type Given struct {
	Content
	// Open returns the bytes if the organization does not have them yet.
	Open func() (io.ReadCloser, error)
}

// Bytes keeps the bytes of files. Records that have some implement holder. Methods are safe for concurrent use, and all
// of them return store.ErrUnavailable if they cannot answer.
type Bytes interface {
	// Named returns the contents of those hashes that the organization has, by hash; at most 1,000.
	Named(ctx context.Context, t *tenants.Tenant, hashes []string) (map[string]Content, error)
	// Measure reads bytes, and returns their content as the organization has it (has), or would have it.
	Measure(ctx context.Context, t *tenants.Tenant, src io.Reader) (c Content, has bool, err error)
	// Open returns the bytes of a hash and their size. Error: ErrNoBytes.
	Open(ctx context.Context, t *tenants.Tenant, hash string) (r io.ReadCloser, size int64, err error)
	// Admit returns a *store.QuotaError if the organization may not store that many bytes more.
	Admit(ctx context.Context, t *tenants.Tenant, more int64) error
	// Store stores bytes together with the records that commit stages in the batch and commits. got are the contents as
	// stored, in the order of all. Commit may be called several times. If it fails, nothing is stored. Errors: those of
	// commit and of Given.Open, *store.QuotaError, ErrNoBytes if bytes without Open are gone, ErrBytes.
	Store(ctx context.Context, t *tenants.Tenant, all []Given,
		commit func(ctx context.Context, b *store.Batch, got []Content) error) error
}

// Errors of Bytes.
var (
	// ErrNoBytes: there are no such bytes.
	ErrNoBytes = errors.New("no such bytes")
	// ErrBytes: the bytes are not those that their checksum names.
	ErrBytes = errors.New("the bytes are not those of the checksum")
)

// holder is a record that has bytes.
type holder interface {
	// Content returns hash, size, media type and SHA-256 of the bytes, as in Content.
	Content() (hash string, size int64, media, checksum string)
	SetContent(hash string, size int64, media, checksum string)
}

func contentOf(rec any) (c Content) {
	c.Hash, c.Size, c.Media, c.Checksum = rec.(holder).Content()
	return c
}

func (c Content) set(rec any) { rec.(holder).SetContent(c.Hash, c.Size, c.Media, c.Checksum) }

// The fields of a file that its bytes decide. An import sets those after the first by what is stored.
const (
	hashField     = "hash"
	checksumField = "checksum"
)

func contentFields() []string { return []string{hashField, "size", "detected", checksumField} }

// holds reports whether records of the kind have bytes.
func (k *kind) holds() bool {
	_, is := k.Bare().(holder)
	return is
}

// settle decides which bytes the new state of each entry has: those of the stored record, if they are the same; if the
// line has a checksum, those of the organization under its hash or those of the archive; or none. The stored records are known. A line
// cannot claim bytes: size, media type and checksum are always those of what is stored.
func (k *kind) settle(ctx context.Context, s *session, batch []*entry) error {
	if !k.holds() {
		return nil
	}
	var hashes []string
	for _, e := range batch {
		if e.change != undecided || len(e.errs) > 0 {
			continue
		}
		if e.said == nil {
			said := contentOf(e.rec)
			e.said = &said
		}
		if e.said.Hash != "" && !e.keeps(*e.said) {
			hashes = append(hashes, e.said.Hash)
		}
	}
	have := map[string]Content{}
	if s.deps.Bytes != nil {
		var err error
		slices.Sort(hashes)
		if have, err = s.deps.Bytes.Named(ctx, s.tenant, slices.Compact(hashes)); err != nil {
			return err
		}
	}
	for _, e := range batch {
		if e.change != undecided || len(e.errs) > 0 {
			continue
		}
		if err := k.settleOne(ctx, s, e, have); err != nil {
			return err
		}
	}
	return nil
}

// keeps reports whether the stored record has the bytes of the line.
func (e *entry) keeps(c Content) bool {
	if e.old == nil {
		return false
	}
	was := contentOf(e.old)
	return was.Checksum != "" && (was.Checksum == c.Checksum || c.Checksum == "" && was.Hash == c.Hash)
}

func (k *kind) settleOne(ctx context.Context, s *session, e *entry, have map[string]Content) error {
	c := *e.said
	e.bytes = nil
	given := k.gives(e, hashField)
	if !given {
		c.Hash, c.Checksum = "", ""
	}
	for _, name := range contentFields() {
		if n, ok := k.Index(name); ok { // without a hash, an existing record stays as it is
			e.given, e.nulls = e.given&^(1<<n), e.nulls&^(1<<n)
			if given {
				e.given |= 1 << n
			}
		}
	}
	stored, known := have[c.Hash]
	keeps := e.keeps(c)
	if keeps {
		stored = contentOf(e.old)
	}
	mends, err := s.mends(ctx, c, stored)
	switch {
	case err != nil:
		return err
	case c.Hash == "":
		c = Content{}
	case mends:
		if e.bytes, err = s.unpack(ctx, e, c, true); err != nil || e.bytes == nil {
			return err
		}
		c = e.bytes.Content
	case keeps:
		c = stored
	case c.Checksum == "": // the file has no bytes, only a name for some: a name alone gives no right to any
		if s.archive.has(c.Hash) {
			s.missBytes(e)
		}
		c = Content{Hash: c.Hash}
	case known && c.Checksum != stored.Checksum:
		e.errs.Add(checksumField, fault.Mismatch, "the organization has other bytes under this hash: their checksum is %s", stored.Checksum)
	case known:
		c, e.bytes = stored, &Given{Content: stored}
	case s.archive.has(c.Hash):
		if e.bytes, err = s.unpack(ctx, e, c, false); err != nil || e.bytes == nil {
			return err
		}
		c = e.bytes.Content
	default:
		s.missBytes(e)
		c = Content{Hash: c.Hash}
	}
	c.set(e.rec)
	k.clearNulls(e)
	return nil
}

// missBytes notes that a line came without the bytes of its file.
func (s *session) missBytes(e *entry) {
	if !s.without.has(e.line) {
		s.without.add(e.line)
	}
}

// gives reports whether the line gives a field, also null.
func (k *kind) gives(e *entry, name string) bool {
	n, ok := k.Index(name)
	return ok && e.given&(1<<n) != 0
}

// clearNulls makes fields of the bytes that are given and empty null, so that they are emptied.
func (k *kind) clearNulls(e *entry) {
	for _, name := range contentFields() {
		if n, ok := k.Index(name); ok && k.gives(e, name) && len(k.Fields[n].Append(nil, e.rec)) == 0 {
			e.nulls |= 1 << n
		}
	}
}

// Bounds of files that are stored together: in number, and in bytes that are copied for it, unless one is larger.
const maxTogether, maxCopied = 50, 64 << 20

// fitting returns the first of the entries, as many as may be stored together with their bytes.
func fitting(batch []*entry) []*entry {
	n, copied := 0, int64(0)
	for i, e := range batch {
		if e.bytes == nil {
			continue
		}
		n++
		if e.bytes.Open != nil {
			copied += e.bytes.Size
		}
		if i > 0 && (n > maxTogether || copied > maxCopied) {
			return batch[:i]
		}
	}
	return batch
}

// storeBytes stores the records that stage stages, together with the bytes of their entries.
func (s *session) storeBytes(
	ctx context.Context, batch []*entry, need []store.Precondition, stage func(ctx context.Context, b *store.Batch) error,
) error {
	var all []Given
	var of []*entry
	for _, e := range batch {
		if e.bytes != nil {
			one := *e.bytes
			if s.archive.isStored(one.Checksum) {
				one.Open = nil
			}
			all, of = append(all, one), append(of, e)
		}
	}
	err := s.deps.Bytes.Store(ctx, s.tenant, all, func(ctx context.Context, b *store.Batch, got []Content) error {
		for i, e := range of {
			got[i].set(cmp.Or(e.old, e.rec))
		}
		b.Require(need...)
		if err := stage(ctx, b); err != nil {
			return err
		}
		return b.Commit(ctx)
	})
	switch {
	case errors.Is(err, ErrNoBytes): // they were removed since they were found
		return fmt.Errorf("%w: %w", store.ErrConflict, err)
	case err == nil:
		for _, one := range all {
			s.archive.noteStored(one.Checksum)
		}
	}
	return err
}

// hasBytes reports whether some of the entries have bytes to be stored with them.
func hasBytes(batch []*entry) bool {
	return slices.ContainsFunc(batch, func(e *entry) bool { return e.bytes != nil })
}

// unpack returns the bytes of a line that the archive has. It returns nil, and adds to the errors of the line, if they are
// not those that the line names. Each is read once to check it. With mends they are stored even if the organization has
// them, because their object is missing. Errors: *NoRoomError, ErrTooMany, that of the context,
// store.ErrUnavailable.
func (s *session) unpack(ctx context.Context, e *entry, c Content, mends bool) (*Given, error) {
	f := s.archive.files[c.Hash]
	size, most := f.UncompressedSize64, uint64(s.tenant.Org.Limit(tenants.LimitFileSize))
	switch {
	case c.Size < 0 || c.Size > 0 && uint64(c.Size) != size:
		e.errs.Add("size", fault.Mismatch, "%s in the archive has %d bytes, but size is %d", f.Name, size, c.Size)
	case s.bounded && most > 0 && size > most:
		e.errs.Add("size", fault.Length, "the file has %d bytes, and the limit file_size of the organization is %d", size, most)
	}
	if len(e.errs) > 0 {
		return nil, nil
	}
	m, err := s.measure(ctx, f)
	switch {
	case err != nil:
		return nil, err
	case m.broken != nil:
		e.errs.Add(checksumField, fault.Mismatch, "%s in the archive is damaged: %v", f.Name, m.broken)
		return nil, nil
	case m.Checksum != c.Checksum:
		e.errs.Add(checksumField, fault.Mismatch, "%s in the archive has other bytes: their checksum is %s", f.Name, m.Checksum)
		return nil, nil
	}
	given := &Given{Content: m.Content}
	if !m.has || mends {
		given.Open = f.Open
	}
	return given, nil
}

// mends reports whether the archive has the bytes of a line that the organization should have, but which are missing.
func (s *session) mends(ctx context.Context, said, stored Content) (bool, error) {
	if stored.Checksum == "" || said.Checksum != stored.Checksum || !s.archive.has(said.Hash) || s.archive.isStored(stored.Checksum) {
		return false, nil
	}
	r, size, err := s.deps.Bytes.Open(ctx, s.tenant, stored.Hash)
	if errors.Is(err, ErrNoBytes) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return size != stored.Size, r.Close()
}

// measure returns what bytes the archive has in a file. It reads them the first time.
func (s *session) measure(ctx context.Context, f *zip.File) (*measured, error) {
	if m := s.archive.measured[f.Name]; m != nil {
		return m, nil
	}
	if err := s.admit(ctx, f.UncompressedSize64); err != nil {
		return nil, err
	}
	s.prepared += contentMemory
	if err := s.remember(contentMemory); err != nil {
		return nil, err
	}
	m := &measured{}
	r, err := f.Open()
	if err != nil {
		m.broken = err
	} else {
		src := &noted{Reader: r}
		m.Content, m.has, err = s.deps.Bytes.Measure(ctx, s.tenant, src)
		_ = r.Close() // it was only read
		if m.broken = src.err; ctx.Err() != nil || m.broken == nil && err != nil {
			return nil, cmp.Or(ctx.Err(), err)
		}
	}
	if m.broken == nil && !m.has && !s.archive.adds[m.Checksum] {
		s.archive.adds[m.Checksum] = true
		s.fresh += m.Size
	}
	s.archive.measured[f.Name] = m
	return m, nil
}

// admit returns a *NoRoomError if the organization may not store that many bytes, besides those that the archive adds
// already.
func (s *session) admit(ctx context.Context, more uint64) error {
	all := s.fresh + int64(min(more, math.MaxInt64/4))
	err := s.deps.Bytes.Admit(ctx, s.tenant, all)
	if full, is := errors.AsType[*store.QuotaError](err); is {
		return &NoRoomError{New: all, Err: full}
	}
	return err
}

// noted keeps the error that ends a reader, other than io.EOF.
type noted struct {
	io.Reader
	err error
}

func (n *noted) Read(p []byte) (int, error) {
	read, err := n.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		n.err = err
	}
	return read, err
}

// contentMemory estimates what is remembered of bytes in an archive.
const contentMemory = 512
