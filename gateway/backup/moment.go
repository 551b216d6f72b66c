package backup

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"tenantry/backends/store"
)

// ErrNoMoment: the folder does not have the state of a second.
var ErrNoMoment = errors.New("the state of that second is not available")

// Moment is a second to which an installation, or a part of it, can be restored: a backup, and what the log has since.
type Moment struct {
	*Manifest

	At    time.Time
	depot *Depot
	from  uint64           // the number of the last cut that the backup needs not
	since time.Time        // of that cut
	to    uint64           // the number of the last cut up to the moment
	put   map[string]int64 // objects that were stored since the backup, and their sizes
	gone  []string         // objects, or prefixes, that were removed since, but for those in put
}

// ParseMoment reads a second as RFC 3339, or as "2026-11-27 15:45:07" in UTC. Error: it is written differently.
func ParseMoment(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, time.DateTime, "2006-01-02T15:04:05"} {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("write the second like 2026-11-27T15:45:07Z, not %.40q", text)
}

// logIndex is what a log has, without pages.
type logIndex struct {
	cuts []logCut
	now  time.Time // cuts that are later were made while the clock was ahead; zero: there are none
}

// readIndex reads the cuts of a log that are not before a time.
func readIndex(folder string, from time.Time) (*logIndex, error) {
	x := &logIndex{}
	hours, err := logHours(folder)
	for _, path := range hours {
		if err == nil && !beganAt(path).Add(time.Hour).Before(from) {
			err = readRecords(path, 0, false, func(r *logRecord, _ int64) error {
				if r.Cut != nil {
					x.cuts = append(x.cuts, *r.Cut)
				}
				return nil
			})
		}
		if errors.Is(err, fs.ErrNotExist) { // it was pruned meanwhile
			err = nil
		}
	}
	return x, err
}

// span is a range of seconds to which a backup can be completed.
type span struct{ first, last time.Time }

func (s span) String() string {
	return s.first.Format(time.RFC3339) + " to " + s.last.Format(time.RFC3339)
}

// start returns the index of the last cut that a backup has all of; -1: there is none.
func (x *logIndex) start(m *Manifest) int {
	if m.Cut == 0 { // its time says nothing: the clock may have been ahead
		return -1
	}
	return slices.IndexFunc(x.cuts, func(c logCut) bool {
		return c.Sequence == m.Cut && !c.At.After(m.Began.Add(clockSlack))
	})
}

// logEnds says why there are no later seconds if nothing is wrong.
const logEnds = "the log ends"

// chain returns the index after the last cut that continues another one, and why there is no later one. Cuts that were
// made while the clock was ahead are left out: nobody knows at which seconds they were made.
func (x *logIndex) chain(start int) (end int, why string) {
	why = logEnds
	limit := x.now.Add(time.Minute)
	if x.now.IsZero() {
		limit = x.cuts[len(x.cuts)-1].At
	}
	for end = max(start+1, 1); end < len(x.cuts); end++ {
		last, c := &x.cuts[end-1], &x.cuts[end]
		if c.Sequence == last.Sequence+1 {
			continue
		}
		why = fmt.Sprintf("a part of the log between %s and %s is missing or damaged", last.At.Format(time.RFC3339), c.At.Format(time.RFC3339))
		if c.At.Before(last.At) {
			why = fmt.Sprintf("the clock was ahead until %s", c.At.Format(time.RFC3339))
			limit = c.At
		}
		break
	}
	for end > start+1 && x.cuts[end-1].At.After(limit) {
		if end--; why == logEnds {
			why = "the rest of the log is later than the clock of this machine"
		}
	}
	return end, why
}

// spans returns the seconds to which a backup can be completed, and why there are no more after them.
func (x *logIndex) spans(m *Manifest) (found []span, why string) {
	start := x.start(m)
	if start < 0 {
		return nil, "the log has not all that was changed since the backup " + m.Name
	}
	end, why := x.chain(start)
	next := m.Ended.Add(time.Second) // of the second in which it ended, it may have a part
	broken := map[string]bool{}
	last := x.cuts[start]
	add := func(until time.Time) {
		if until = until.Truncate(time.Second); !until.Before(next) && len(broken) == 0 {
			found = append(found, span{next, until})
		}
	}
	for _, c := range x.cuts[start+1 : end] {
		if len(c.Files) > 0 { // what was between the two is not known to the second
			known := c.Since.Truncate(time.Second)
			if c.At.Truncate(time.Second).After(known.Add(time.Second)) {
				add(latest(known, last.At.Truncate(time.Second)))
				if up := ceil(c.At); up.After(next) {
					next = up
				}
			}
		}
		was := len(broken)
		breaks := slices.ContainsFunc(c.Files, func(f logFile) bool { return f.Kind == store.CutBroken })
		if breaks && was == 0 {
			add(c.At.Truncate(time.Second).Add(-time.Second))
		}
		changed := changes(broken, c)
		if was > 0 && len(broken) == 0 {
			next = latest(next, ceil(c.At))
		}
		if changed != "" {
			why = fmt.Sprintf("what was changed in %s before %s is not in the log; the next backup begins anew", changed, c.At.Format(time.RFC3339))
		}
		last = c
	}
	add(last.At)
	return merge(found), why
}

// changes notes which databases a cut breaks, and which are whole again, and returns one that it breaks.
func changes(broken map[string]bool, c logCut) (one string) {
	for _, f := range c.Files {
		name := c.Backend + "/" + f.File
		switch f.Kind {
		case store.CutBroken:
			broken[name] = true
			one = name
		case store.CutCreated, store.CutGone:
			delete(broken, name)
		case store.CutChanged:
		}
	}
	return one
}

func ceil(t time.Time) time.Time {
	if full := t.Truncate(time.Second); !full.Equal(t) {
		return full.Add(time.Second)
	}
	return t
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// merge joins spans that follow each other or overlap.
func merge(all []span) (merged []span) {
	slices.SortFunc(all, func(a, b span) int { return a.first.Compare(b.first) })
	for _, s := range all {
		if n := len(merged); n > 0 && !s.first.After(merged[n-1].last.Add(time.Second)) {
			merged[n-1].last = latest(merged[n-1].last, s.last)
			continue
		}
		merged = append(merged, s)
	}
	return merged
}

// maxSpans bounds the spans that an error names.
const maxSpans = 5

// unavailable returns ErrNoMoment with a reason, the nearest seconds if the time is between two spans, and the newest
// spans.
func unavailable(at time.Time, reason string, all []span) error {
	all = merge(all)
	if after := slices.IndexFunc(all, func(s span) bool { return s.first.After(at) }); after > 0 {
		reason += fmt.Sprintf("; the nearest are %s and %s",
			all[after-1].last.Format(time.RFC3339), all[after].first.Format(time.RFC3339))
	}
	says := "none"
	if len(all) > 0 {
		newest := make([]string, 0, maxSpans)
		for _, s := range all[max(0, len(all)-maxSpans):] {
			newest = append(newest, s.String())
		}
		slices.Reverse(newest)
		says = strings.Join(newest, ", ")
	}
	return fmt.Errorf("%w: %s: %s; available are: %s", ErrNoMoment, at.Format(time.RFC3339), reason, says)
}

// FindMoment returns the moment of a second. A backup of that name is its base, or the newest that can be. Errors:
// ErrNoMoment, which says which seconds are available; those of Read.
func (d *Depot) FindMoment(ctx context.Context, name string, at time.Time) (*Moment, error) {
	at = at.UTC().Truncate(time.Second)
	if d.folder == "" {
		return nil, fmt.Errorf("%w: %s is a bucket, and changes are logged in folders only", ErrNoMoment, d)
	}
	names, err := d.list(ctx)
	switch {
	case err != nil:
		return nil, err
	case name != "" && !slices.Contains(names, name):
		return nil, fmt.Errorf("%w %q in %s: the newest is %s", ErrNone, name, d, names[0])
	}
	if name != "" {
		names = []string{name}
	}
	x, err := readIndex(d.folder, time.Time{})
	if err != nil {
		return nil, fmt.Errorf("the log of changes: %w", err)
	}
	if len(x.cuts) == 0 {
		return nil, fmt.Errorf("%w: %s has no log of changes (the setting backup.log); restore a backup without --at", ErrNoMoment, d)
	}
	x.now = time.Now()
	var all []span
	reason := "no backup ended before it"
	for _, name := range names { // the newest first
		m, err := d.read(ctx, name)
		if errors.Is(err, ErrDamaged) && len(names) > 1 {
			continue
		}
		if err != nil {
			return nil, err
		}
		found, why := x.spans(m)
		if slices.ContainsFunc(found, func(s span) bool { return !at.Before(s.first) && !at.After(s.last) }) {
			return x.moment(d, m, at), nil
		}
		if slices.ContainsFunc(found, func(s span) bool { return s.first.After(at) }) {
			why = "nobody logged changes in that second, because the gateway was killed or could not write the log"
		}
		if m.Ended.Before(at) && reason == "no backup ended before it" {
			reason = why
		}
		all = append(all, found...)
	}
	return nil, unavailable(at, reason, all)
}

// moment returns the moment of a backup and a second to which it can be completed.
func (x *logIndex) moment(d *Depot, m *Manifest, at time.Time) *Moment {
	found := &Moment{Manifest: m, At: at, depot: d, put: map[string]int64{}}
	start := x.start(m)
	if start >= 0 {
		found.from, found.since = x.cuts[start].Sequence, x.cuts[start].At
	}
	end, _ := x.chain(start)
	for _, c := range x.cuts[start+1 : end] {
		if c.At.After(at) {
			break
		}
		found.to = c.Sequence
		maps.Copy(found.put, c.Put)
		for _, name := range c.Gone {
			maps.DeleteFunc(found.put, func(put string, _ int64) bool { return isNamed(put, name) })
			found.gone = append(found.gone, name)
		}
	}
	found.to = max(found.to, found.from)
	return found
}

// isNamed reports whether an object has a name, or a name that begins with a prefix, which ends in a slash.
func isNamed(object, name string) bool {
	return object == name || strings.HasSuffix(name, "/") && strings.HasPrefix(object, name)
}

// objects returns the objects of the moment. The checksums of those that were stored since the backup are not known.
func (m *Moment) objects(ctx context.Context) (map[string]object, error) {
	all, err := m.depot.objects(ctx, m.Manifest)
	if all == nil || err != nil {
		return nil, err
	}
	for _, name := range m.gone {
		maps.DeleteFunc(all, func(stored string, _ object) bool { return isNamed(stored, name) })
	}
	for name, size := range m.put {
		all[name] = object{size: size}
	}
	return all, nil
}

// Complete makes copies of databases of the backup what they were at the moment. dir returns the folder of a copy, or ""
// for databases that are left out. verify checks those that it changed. Errors: ErrDamaged, those of verify.
func (m *Moment) Complete(
	ctx context.Context, dir func(backend, file string) string, verify func(ctx context.Context, path string) error, told func(Progress),
) error {
	p := &patcher{dir: dir, open: map[string]*os.File{}, sizes: map[string]int64{}, changed: map[string]bool{}}
	if err := errors.Join(m.patch(ctx, p, told), p.close()); err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(p.changed)) {
		told(Progress{Step: "checking databases", Detail: filepath.Base(path)})
		if err := verify(ctx, path); err != nil {
			return fmt.Errorf("%w: %s at %s: %w", ErrDamaged, filepath.Base(path), m.At.Format(time.RFC3339), err)
		}
	}
	return nil
}

// patch applies the log.
func (m *Moment) patch(ctx context.Context, p *patcher, told func(Progress)) (err error) {
	if p.unpack, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxRecordBody)); err != nil {
		return err
	}
	defer p.unpack.Close()
	return m.read(ctx, func(r *logRecord) error {
		if r.Cut == nil {
			return p.pages(r)
		}
		told(Progress{Step: "applying the log", Detail: r.Cut.At.Format(time.RFC3339)})
		return p.end(r.Cut)
	})
}

// read calls do with the records of the cuts that the moment needs. Their bodies are checked. Errors: ErrDamaged, which
// says up to which second they are whole; those of do and of the folder; the context's own.
func (m *Moment) read(ctx context.Context, do func(r *logRecord) error) error {
	hours, err := logHours(m.depot.folder)
	if err != nil {
		return err
	}
	done, last := m.from, time.Time{}
	for i, path := range hours {
		if done >= m.to {
			return nil
		}
		if beganAt(path).Add(time.Hour).Before(m.since) {
			continue
		}
		from, err := m.needed(path)
		if err != nil {
			return fmt.Errorf("the log of changes: %w", err)
		}
		err = readRecords(path, from, true, func(r *logRecord, _ int64) error {
			switch {
			case done >= m.to:
				return fs.SkipAll
			case r.State != nil && r.State.Sequence > done:
				return m.damaged(hours[max(0, i-1)], last)
			case r.State != nil:
				return nil
			case r.Cut != nil && r.Cut.Sequence != done+1:
				return m.damaged(path, last)
			case r.Cut != nil:
				done, last = r.Cut.Sequence, r.Cut.At
			}
			return errors.Join(do(r), ctx.Err())
		})
		switch {
		case errors.Is(err, fs.SkipAll):
		case errors.Is(err, ErrDamaged):
			return err
		case err != nil:
			return fmt.Errorf("the log of changes: %s: %w", path, err)
		}
		if i == len(hours)-1 && done < m.to {
			return m.damaged(path, last)
		}
	}
	if done < m.to {
		return m.damaged(filepath.Join(m.depot.folder, logFolder), last)
	}
	return nil
}

// needed returns the offset in a file of the log from which on the moment needs it.
func (m *Moment) needed(path string) (from int64, err error) {
	err = readRecords(path, 0, false, func(r *logRecord, end int64) error {
		if r.State != nil && r.State.Sequence <= m.from || r.Cut != nil && r.Cut.Sequence <= m.from {
			from = end
		}
		return nil
	})
	return from, err
}

// damaged returns the error of a file of the log that has not all that the moment needs. last is the time of the last
// whole cut.
func (m *Moment) damaged(path string, last time.Time) error {
	last = last.Truncate(time.Second)
	if !last.After(m.Ended) {
		return fmt.Errorf("%w: the log of changes cannot be read in %s, nor any second after the backup %s; restore that without "+
			"--at, or name another one with --backup", ErrDamaged, path, m.Name)
	}
	return fmt.Errorf("%w: the log of changes cannot be read in %s after %s: restore that second with --at, or an earlier one",
		ErrDamaged, path, last.Format(time.RFC3339))
}

// patcher applies pages to copies of databases.
type patcher struct {
	dir    func(backend, file string) string
	unpack *zstd.Decoder
	open   map[string]*os.File
	sizes  map[string]int64 // that files are to have at the end of the cut
	block  []byte
	// changed has the paths of databases that were changed.
	changed map[string]bool
}

// maxPatched bounds the files that are open at the same time.
const maxPatched = 64

// pages applies the pages of a record.
func (p *patcher) pages(r *logRecord) (err error) {
	in := r.Pages
	if !plain(in.Backend) || !plain(in.File) {
		return fmt.Errorf("%w: it names a database %q of a backend %q", ErrDamaged, in.File, in.Backend)
	}
	dir := p.dir(in.Backend, in.File)
	if dir == "" {
		return nil
	}
	path := filepath.Join(dir, in.File)
	switch in.Kind {
	case store.CutGone, store.CutCreated:
		delete(p.changed, path)
		if err := errors.Join(p.forget(path), remove(path)); err != nil || in.Kind == store.CutGone {
			return err
		}
	case store.CutBroken:
		return nil
	case store.CutChanged:
	}
	if in.Count == 0 {
		return nil
	}
	f, err := p.file(path)
	if err != nil {
		return err
	}
	if p.block, err = p.unpack.DecodeAll(r.body, p.block[:0]); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if in.Size < 512 || len(p.block)%(4+in.Size) != 0 {
		return fmt.Errorf("%w: pages of %d bytes in %d", ErrDamaged, in.Size, len(p.block))
	}
	for block := p.block; len(block) > 0; block = block[4+in.Size:] {
		number := int64(binary.BigEndian.Uint32(block))
		if number < 1 || number > int64(in.Count) {
			return fmt.Errorf("%w: page %d of %d", ErrDamaged, number, in.Count)
		}
		if _, err := f.WriteAt(block[4:4+in.Size], (number-1)*int64(in.Size)); err != nil {
			return err
		}
	}
	p.changed[path] = true
	p.sizes[path] = int64(in.Count) * int64(in.Size)
	return nil
}

// end ends a cut.
func (p *patcher) end(*logCut) error {
	for path, size := range p.sizes {
		f, err := p.file(path)
		if err == nil {
			err = f.Truncate(size)
		}
		if err != nil {
			return err
		}
	}
	clear(p.sizes)
	return nil
}

func (p *patcher) file(path string) (*os.File, error) {
	if f := p.open[path]; f != nil {
		return f, nil
	}
	if len(p.open) >= maxPatched {
		if err := p.close(); err != nil {
			return nil, err
		}
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		p.open[path] = f
	}
	return f, err
}

// forget closes a file that is going to be removed.
func (p *patcher) forget(path string) error {
	f := p.open[path]
	if f == nil {
		return nil
	}
	delete(p.open, path)
	delete(p.sizes, path)
	return f.Close()
}

// close syncs and closes all files.
func (p *patcher) close() error {
	var errs []error
	for _, f := range p.open {
		errs = append(errs, f.Sync(), f.Close())
	}
	clear(p.open)
	return errors.Join(errs...)
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// complete makes the restored databases what they were at the moment.
func (t *Target) complete(ctx context.Context, told func(Progress)) error {
	unknown := ""
	err := t.Then.Complete(ctx, func(backend, _ string) string {
		if t.Dirs[backend] == "" {
			unknown = backend
			return ""
		}
		return filepath.Join(t.Dirs[backend], restoringFolder)
	}, t.Verify, told)
	if err == nil && unknown != "" {
		err = fmt.Errorf("the log has databases of the backend %s, which the settings do not name", unknown)
	}
	return err
}
