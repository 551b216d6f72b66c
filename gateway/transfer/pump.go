package transfer

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"

	"tenantry/internal/strictjson"
)

// rawLine is a line or row before it is understood.
type rawLine struct {
	number int
	text   string   // of a bundle, or of a JSON row
	cells  []string // of a CSV row
	err    error    // why it cannot be read
}

// reader reads the lines of a feed. It belongs to one goroutine.
type reader interface {
	// next returns io.EOF after the last line.
	next() (rawLine, error)
	// offset returns how many bytes were read so far.
	offset() int64
	Close() error
}

// feed is where the lines of an import come from.
type feed interface {
	open() (reader, error)
	size() int64
	// prepare finds the definitions and returns them, checked, and teaches the good ones to
	// the view. Lines in refused are known to be bad for a reason found later.
	prepare(ctx context.Context, refused map[int]*entry) ([]*entry, error)
	// decode reads one line; nil for a line that holds a definition. Safe for concurrent
	// use with a parser each.
	decode(ctx context.Context, p *strictjson.Parser, l rawLine) *entry
	// original returns the line as it stood in the file, with its line feed.
	original(l rawLine) []byte
}

// chunk is a run of lines that one worker decodes.
type chunk struct {
	lines   []rawLine
	skipped []rawLine // that the caller wants to see, though it does not want them decoded
	entries []*entry
	read    int64
	err     error // of the reader, after the lines
	done    chan struct{}
}

const (
	chunkLines = 200
	chunkBytes = 1 << 20
)

// interest says what is to be done with a line.
type interest byte

const (
	wanted interest = iota
	unwanted
	shown
)

// pump reads a feed, decodes its lines in parallel and calls visit with them in order,
// always from the calling goroutine. All goroutines have ended when it returns.
func (s *session) pump(ctx context.Context, f feed, phase string, want func(line int) interest, visit func(*chunk) error) error {
	r, err := f.open()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	workers := max(runtime.GOMAXPROCS(0), 2)
	work := make(chan *chunk, workers)
	order := make(chan *chunk, 2*workers)
	var running sync.WaitGroup
	defer func() {
		cancel()
		running.Wait()
		_ = r.Close() // it was only read
	}()
	running.Go(func() {
		defer close(order)
		defer close(work)
		for {
			c := gather(r, want)
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
				for _, l := range c.lines {
					if ctx.Err() != nil {
						break
					}
					if e := f.decode(ctx, &p, l); e != nil {
						c.entries = append(c.entries, e)
					}
				}
				close(c.done)
			}
		})
	}
	s.meter.start(phase, f.size())
	lines := 0
	for c := range order {
		select {
		case <-c.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := visit(c); err != nil {
			return err
		}
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

func gather(r reader, want func(int) interest) *chunk {
	c := &chunk{done: make(chan struct{})}
	bytes := 0
	for seen := 0; seen < 100*chunkLines && len(c.lines) < chunkLines && bytes < chunkBytes && len(c.skipped) < chunkLines; seen++ {
		l, err := r.next()
		if err != nil {
			c.err = err
			break
		}
		switch want(l.number) {
		case wanted:
			c.lines = append(c.lines, l)
			bytes += len(l.text)
		case shown:
			c.skipped = append(c.skipped, l)
			bytes += len(l.text)
		}
	}
	c.read = r.offset()
	return c
}
