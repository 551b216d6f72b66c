package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"tenantry/internal/scan"
	"tenantry/internal/strictjson"
)

// maxDefinitions bounds how many lines of a bundle may be definitions, because they are held in memory.
const maxDefinitions = 100_000

// bundle is the Feed of a file with lines of JSON.
type bundle struct {
	session     *session
	src         Source
	definitions lineSet
}

type bundleReader struct {
	*scan.Reader
	io.Closer
}

func (b *bundle) Size() int64 { return b.src.Size }

func (b *bundle) Open() (Reader, error) {
	in, err := b.src.Open()
	if err != nil {
		return nil, fmt.Errorf("open the bundle: %w", err)
	}
	return &bundleReader{scan.New(in, MaxLine), in}, nil
}

// Next returns the next line that is not blank.
func (r *bundleReader) Next() (Raw, error) {
	for {
		line, err := r.Reader.Next()
		switch {
		case errors.Is(err, scan.ErrTooLong):
			return Raw{Number: r.Number(), Err: err}, nil
		case errors.Is(err, io.EOF):
			return Raw{}, err
		case err != nil:
			return Raw{}, fmt.Errorf("read the bundle: %w", err)
		case len(bytes.TrimSpace(line)) > 0:
			return Raw{Number: r.Number(), Text: string(line)}, nil
		}
	}
}

func (b *bundle) Original(l Raw) []byte { return append([]byte(l.Text), '\n') }

// Prepare finds the definitions, because earlier and later lines depend on them.
func (b *bundle) Prepare(ctx context.Context, into *Into) ([]Line, error) {
	return into.Collect(ctx, b, func(p *strictjson.Parser, r Raw) (Line, bool) {
		if k := b.session.named[sniff(r.Text)]; k != nil && !k.Definition {
			return Line{}, false
		}
		l, _ := b.Line(p, r)
		k := b.session.named[l.Kind]
		if k == nil || !k.Definition {
			return l, false // its faults are noted when lines are checked
		}
		b.definitions.add(r.Number)
		return l, true
	})
}

// Line parses a line. It returns false for a definition, which Prepare has handled.
func (b *bundle) Line(p *strictjson.Parser, r Raw) (Line, bool) {
	l := Line{Number: r.Number}
	if b.definitions.has(r.Number) {
		return l, false
	}
	if r.Err != nil {
		l.Faults.Add("line", "length", "the line is longer than %d bytes", MaxLine)
		return l, true
	}
	v, err := p.Parse(r.Text)
	var broken strictjson.Error
	kind := v.Get("kind")
	switch {
	case errors.As(err, &broken):
		l.Faults.Add("line", "format", "the line %s", string(broken))
	case v.Is != strictjson.Object:
		l.Faults.Add("line", "format", "the line must be a JSON object")
	case kind.Is != strictjson.Text:
		l.Faults.Add("kind", "required", "kind is required: a string with the kind of the line")
	default:
		l.Kind, l.Value = kind.Text, v
	}
	return l, true
}
