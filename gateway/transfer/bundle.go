package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"tenantry/backends/contacts"
	"tenantry/internal/strictjson"
	"tenantry/internal/texts"
)

// Limits of the definitions of one bundle, which are kept in memory.
const (
	maxDefinitions     = 100_000
	maxDefinitionBytes = 256 << 20
)

// bundle is the feed of lines of JSON.
type bundle struct {
	session     *session
	src         Source
	definitions lineSet
	found       map[string][]definition
}

type bundleReader struct {
	*lineReader
	io.Closer
}

func (b *bundle) size() int64 { return b.src.Size }

func (b *bundle) open() (reader, error) {
	in, err := b.src.Open()
	if err != nil {
		return nil, fmt.Errorf("opening the bundle: %w", err)
	}
	return &bundleReader{newLineReader(in), in}, nil
}

func (r *bundleReader) offset() int64 { return r.lineReader.offset }

// next skips blank lines.
func (r *bundleReader) next() (rawLine, error) {
	for {
		line, err := r.lineReader.next()
		switch {
		case errors.Is(err, errLineTooLong):
			return rawLine{number: r.number, err: err}, nil
		case err != nil:
			return rawLine{}, err
		case len(bytes.TrimSpace(line)) > 0:
			return rawLine{number: r.number, text: string(line)}, nil
		}
	}
}

func (b *bundle) original(l rawLine) []byte { return append([]byte(l.text), '\n') }

// prepare reads the definitions, which later lines and earlier ones depend on.
func (b *bundle) prepare(ctx context.Context, refused map[int]*entry) ([]*entry, error) {
	if b.found == nil {
		var err error
		if b.found, err = b.collect(ctx); err != nil {
			return nil, err
		}
	}
	var all []*entry
	for _, k := range b.session.kinds {
		var entries []*entry
		for _, d := range b.found[k.name()] {
			e := refused[d.line]
			if e == nil {
				e = k.decode(ctx, b.session.view, d.value, d.line)
			}
			entries = append(entries, e)
		}
		for _, e := range entries {
			if len(e.errs) == 0 {
				b.session.limitFields(e)
			}
			if len(e.errs) == 0 {
				b.session.view.learn(e)
			}
		}
		all = append(all, entries...)
	}
	return all, nil
}

// limitFields refuses contact fields beyond those that an organization can have.
func (s *session) limitFields(e *entry) {
	def, ok := e.rec.(*contacts.FieldDef)
	if !ok {
		return
	}
	if _, known := s.view.fields[def.Key]; !known && len(s.view.fields) >= contacts.MaxFields {
		e.errs.Add("key", "length", "an organization has at most %d contact fields", contacts.MaxFields)
	}
}

type definition struct {
	line  int
	value strictjson.Value
}

func (b *bundle) collect(ctx context.Context) (map[string][]definition, error) {
	r, err := b.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }() // it was only read
	lines := r.(*bundleReader).lineReader
	b.session.meter.start(PhaseReading, b.src.Size)
	found := map[string][]definition{}
	var p strictjson.Parser
	kept, count := 0, 0
	for {
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if lines.number%1000 == 0 {
			b.session.meter.at(lines.offset, lines.number)
			if err := ctx.Err(); err != nil {
				return nil, err
			}
		}
		if errors.Is(err, errLineTooLong) {
			continue // noted when lines are checked
		}
		if err != nil {
			return nil, fmt.Errorf("reading the bundle: %w", err)
		}
		if k := b.session.named[sniff(line)]; k != nil && !k.definition() {
			continue
		}
		v, err := p.Parse(string(line))
		if err != nil || v.Is != strictjson.Object {
			continue // likewise
		}
		name := v.Get("kind").Text
		k := b.session.named[name]
		if k == nil || !k.definition() {
			continue
		}
		if count, kept = count+1, kept+len(line); count > maxDefinitions || kept > maxDefinitionBytes {
			return nil, fmt.Errorf("%w: at most %d lines and %d MiB of kinds other than documents; line %d is beyond that",
				errTooMany, maxDefinitions, maxDefinitionBytes>>20, lines.number)
		}
		b.definitions.add(lines.number)
		found[name] = append(found[name], definition{lines.number, v})
	}
	b.session.meter.end()
	return found, nil
}

func (b *bundle) decode(ctx context.Context, p *strictjson.Parser, l rawLine) *entry {
	if b.definitions.has(l.number) {
		return nil
	}
	e := b.understand(ctx, p, l)
	e.raw = l
	return e
}

func (b *bundle) understand(ctx context.Context, p *strictjson.Parser, l rawLine) *entry {
	bad := &entry{line: l.number}
	if l.err != nil {
		bad.errs.Add("line", "length", "the line is longer than %d bytes", MaxLine)
		return bad
	}
	v, err := p.Parse(l.text)
	if err != nil {
		bad.errs.Add("line", "format", "%s", lineMessage(err))
		return bad
	}
	if v.Is != strictjson.Object {
		bad.errs.Add("line", "format", "the line must be a JSON object")
		return bad
	}
	kind := v.Get("kind")
	if kind.Is != strictjson.Text {
		bad.errs.Add("kind", "required", "kind is required: a string that says what the line is")
		return bad
	}
	k := b.session.named[kind.Text]
	if k == nil {
		bad.errs.Add("kind", "unknown", "kind %q is not known", texts.Clip(kind.Text))
		return bad
	}
	return k.decode(ctx, b.session.view, v, l.number)
}

// lineMessage says of a line what is wrong with a text.
func lineMessage(err error) string {
	var fault strictjson.Error
	if errors.As(err, &fault) {
		return "the line " + string(fault)
	}
	return err.Error()
}
