package bundle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/internal/background"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/internal/texts"
)

// Raw is a line or row before it is decoded.
type Raw struct {
	Number int
	Text   string   // of the line or row
	Cells  []string // of a CSV row; they share Text
	Err    error    // why it cannot be read

	memory int64 // result of size; 0: not computed yet
}

// size estimates how many bytes of memory the line takes until it is stored. Empty cells count, too.
func (r *Raw) size() int64 {
	if r.memory > 0 {
		return r.memory
	}
	if r.memory = strictjson.MemoryOf(r.Text); r.Cells != nil {
		n := len(r.Text)
		if strings.Contains(r.Text, `""`) { // quoted cells do not share Text
			n *= 2
		}
		r.memory = strictjson.Memory(n, len(r.Cells), 0)
	}
	return r.memory
}

// Reader reads the lines of a feed. It is not safe for concurrent use.
type Reader interface {
	// Next returns io.EOF after the last line.
	Next() (Raw, error)
	// Offset returns how many bytes have been read.
	Offset() int64
	Close() error
}

// Line is a line or row that a feed has turned into a line of a bundle.
type Line struct {
	Number int
	Kind   string
	Value  strictjson.Value // an object; otherwise Faults are all that is known
	Text   string           // in place of Value: its JSON
	Faults fault.List
	// Key, if set, identifies the record.
	Key *Key
	// Rev, if set, is the revision of the stored record that the line was made from, 0 if there was none. The line is
	// refused if the record has changed.
	Rev *int64
}

// Key is a value that no other line may have, and the stored record that has it.
type Key struct {
	Field  string
	Digest [12]byte
	ID     string // "" if no record has it
	Many   bool   // several records have it
}

// Feed is the source of the lines of an import.
type Feed interface {
	Open() (Reader, error)
	Size() int64
	// Prepare reads all lines once and returns the definitions.
	Prepare(ctx context.Context, into *Into) ([]Line, error)
	// Line parses one line; false if it is blank or a definition. Safe for concurrent use with one parser each.
	Line(p *strictjson.Parser, r Raw) (Line, bool)
	// Original returns the line as it was in the file, with its line feed.
	Original(r Raw) []byte
}

// Into is the organization that lines are imported into.
type Into struct {
	Resources []*record.Resource
	session   *session
}

// Named returns the resource of that name, which must exist.
func (i *Into) Named(name string) *record.Resource { return i.session.named[name].Resource }

// Workspace returns the workspace that holds the records of a resource.
func (i *Into) Workspace(r *record.Resource) *store.Workspace { return i.session.workspace(r) }

// Remember counts memory that a feed holds until the import ends. Error: ErrTooMany.
func (i *Into) Remember(bytes int64) error {
	i.session.prepared += bytes
	return i.session.remember(bytes)
}

// Collect returns the lines of a feed for which read returns true, as texts. Errors: those of the feed; ErrTooMany if
// the lines take more memory than allowed.
func (i *Into) Collect(ctx context.Context, f Feed, read func(*strictjson.Parser, Raw) (Line, bool)) ([]Line, error) {
	var found []Line
	err := i.Each(ctx, f, func(p *strictjson.Parser, r Raw) error {
		l, wanted := read(p, r)
		if !wanted {
			return nil
		}
		if l.Value.Is == strictjson.Object { // a tree takes many times its text
			l.Text, l.Value = string(l.Value.Raw()), strictjson.Value{}
		}
		if found = append(found, l); len(found) > maxDefinitions {
			return fmt.Errorf(
				"%w: at most %d of kinds other than documents; line %d is beyond that", ErrTooMany, maxDefinitions,
				r.Number,
			)
		}
		if err := i.session.define(entryMemory + strictjson.MemoryOf(l.Text)/3); err != nil { // its record takes part of that
			return fmt.Errorf("%w; line %d is beyond that", err, r.Number)
		}
		return nil
	})
	return found, err
}

// Each calls visit with every line of a feed. Errors: those of the feed and of visit.
func (i *Into) Each(ctx context.Context, f Feed, visit func(*strictjson.Parser, Raw) error) error {
	r, err := i.session.open(f)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // it was only read
	i.session.meter.start(PhaseReading, f.Size())
	var p strictjson.Parser
	for n := 0; ; n++ {
		l, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if n%500 == 0 {
			i.session.meter.at(r.Offset(), n)
			if err := i.session.waitTurn(ctx); err != nil {
				return err
			}
		}
		if err := visit(&p, l); err != nil {
			return err
		}
	}
	i.session.meter.end()
	return nil
}

// maxLines bounds the lines of a Bounded import. Each takes some hundred bytes of memory, and an uploaded file could
// have half a billion lines.
const maxLines = 5_000_000

// limitedReader fails when a file has more lines than allowed.
type limitedReader struct {
	Reader
	most int
}

// Next returns ErrTooMany for the first line beyond the bound.
func (c limitedReader) Next() (Raw, error) {
	l, err := c.Reader.Next()
	if err == nil && l.Number > c.most {
		err = fmt.Errorf("%w: at most %d are allowed, including blank ones; split it into several files", ErrTooMany, c.most)
	}
	return l, err
}

// open opens a feed, limited to the lines that the import may have.
func (s *session) open(f Feed) (Reader, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	return limitedReader{r, s.most}, nil
}

// decodeLine decodes a line and checks everything that does not depend on other data lines.
func (s *session) decodeLine(ctx context.Context, l Line) *entry {
	if l.Text != "" {
		var p strictjson.Parser
		l.Value, _ = p.Parse(l.Text) // it is JSON that the feed wrote
	}
	k := s.named[l.Kind]
	if k == nil && len(l.Faults) == 0 {
		l.Faults.Add("kind", "unknown", "kind %q is not known", texts.Clip(l.Kind))
	}
	if k == nil || l.Value.Is != strictjson.Object {
		return &entry{line: l.Number, kind: k, errs: l.Faults}
	}
	e := k.decode(ctx, s.view, l.Value, l.Number)
	e.rev = l.Rev
	e.errs = append(l.Faults, e.errs...)
	if l.Key != nil {
		e.claims = append(e.claims, claim{field: l.Key.Field, key: l.Key.Digest})
		e.digest = key{} // the key identifies it
		if e.id = cmp.Or(l.Key.ID, e.id); l.Key.Many {
			e.errs.Add(l.Key.Field, "duplicate", "several stored records have this %s", l.Key.Field)
		}
		if l.Key.ID != "" { // fields that are not given keep their stored values
			e.errs = slices.DeleteFunc(e.errs, func(f fault.Fault) bool {
				n, known := k.Index(f.Field)
				within := k.ValuesName() != "" && strings.HasPrefix(f.Field, k.ValuesName()+".") // a row gives no empty values
				kept := f.Code == fault.Required && (known && e.given&(1<<n) == 0 || within)
				if kept {
					e.missing = append(e.missing, f)
				}
				return kept
			})
		}
	}
	return e
}

// chunk is a sequence of lines that one worker decodes.
type chunk struct {
	memory  int64 // of the lines
	lines   []Raw
	skipped []Raw // lines that are passed to the caller but not decoded
	entries []*entry
	read    int64
	err     error // of the reader, after the lines
	broken  error // a panic while decoding
	done    chan struct{}
}

const (
	chunkLines  = 200
	chunkMemory = 1 << 20
	// pumpMemory bounds the memory of lines that are read but not visited yet, except for a single larger line.
	pumpMemory = 8 << 20
)

// interest says what to do with a line.
type interest byte

const (
	decode interest = iota
	skip
	report
)

// pump reads a feed, decodes its lines in parallel and calls visit with them in order, on the calling goroutine. All
// other goroutines have ended when it returns.
func (s *session) pump(
	ctx context.Context, f Feed, phase string, want func(line int) interest, visit func(*chunk) error,
) error {
	r, err := s.open(f)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	workers := max(runtime.GOMAXPROCS(0), 2)
	work := make(chan *chunk, workers)
	order := make(chan *chunk, 2*workers)
	visited := make(chan int64, 4*workers) // memory of visited chunks; the buffer holds all chunks that can exist
	var running sync.WaitGroup
	defer func() {
		cancel()
		running.Wait()
		_ = r.Close() // it was only read
	}()
	running.Go(func() {
		defer close(order)
		defer close(work)
		for held := int64(0); ; {
			c := readChunk(r, want)
			for len(visited) > 0 || held > 0 && held+c.memory > pumpMemory {
				select {
				case freed := <-visited:
					held -= freed
				case <-ctx.Done():
					return
				}
			}
			held += c.memory
			for _, to := range []chan *chunk{order, work} {
				select {
				case to <- c:
				case <-ctx.Done():
					return
				}
			}
			if c.err != nil {
				return
			}
		}
	})
	for range workers {
		running.Go(func() {
			var p strictjson.Parser
			for c := range work {
				c.entries = make([]*entry, 0, len(c.lines))
				c.broken = background.Try(func() error {
					for _, l := range c.lines {
						if ctx.Err() != nil {
							break
						}
						if line, ok := f.Line(&p, l); ok {
							e := s.decodeLine(ctx, line)
							e.raw, e.size = l, l.size()
							c.entries = append(c.entries, e)
						}
					}
					return nil
				})
				close(c.done)
			}
		})
	}
	s.meter.start(phase, f.Size())
	lines := 0
	for c := range order {
		select {
		case <-c.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := cmp.Or(s.waitTurn(ctx), c.broken); err != nil {
			return err
		}
		if err := visit(c); err != nil {
			return err
		}
		visited <- c.memory
		lines += len(c.lines)
		s.meter.at(c.read, lines)
		if c.err != nil && !errors.Is(c.err, io.EOF) {
			return c.err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.meter.end()
	return nil
}

func readChunk(r Reader, want func(int) interest) *chunk {
	c := &chunk{done: make(chan struct{})}
	c.err = background.Try(func() error {
		for seen := 0; seen < 100*chunkLines && len(c.lines) < chunkLines && c.memory < chunkMemory && len(c.skipped) < chunkLines; seen++ {
			l, err := r.Next()
			if err != nil {
				return err
			}
			switch want(l.Number) {
			case decode:
				c.memory += l.size()
				c.lines = append(c.lines, l)
			case report:
				c.memory += l.size()
				c.skipped = append(c.skipped, l)
			}
		}
		return nil
	})
	c.read = r.Offset()
	return c
}
