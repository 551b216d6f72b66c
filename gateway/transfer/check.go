package transfer

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"tenantry/backends/store"
	"tenantry/internal/fault"
)

// batchSize is how many records are looked up and stored at a time.
const batchSize = 1000

// importer is the state of one import beside the session's.
type importer struct {
	*session
	feed Feed
	opt  ImportOptions

	definitions []*entry
	bad         lineSet // lines that are not stored
	done        lineSet // lines whose records are stored as the lines say
	creates     lineSet // lines that are new records, as far as was seen when checking
	updates     lineSet // lines that change records, likewise

	lineOf  map[string]map[key]int32 // of given identifiers, by kind
	claimed map[key]int32            // line of each unique value
	digests map[key]int32            // number of lines with that content
	repeats map[int]int32            // how many equal lines stand before that one
	edges   []edge
	steps   int                 // see step
	waiting map[string][]*entry // to be compared, by kind
}

// edge is a reference from a line to a document.
type edge struct {
	line   int32
	from   *kind
	field  string
	target string
	to     key
	asIs   bool // the line is taken also where the reference leads nowhere
}

func (s *session) run(ctx context.Context, f Feed, o ImportOptions) (Report, error) {
	im := &importer{session: s, feed: f, opt: o}
	im.reset()
	err := im.check(ctx)
	if err != nil {
		return im.report(), err
	}
	if failed, all := im.bad.count, im.tally.report().Lines; failed > 0 && !o.Partial {
		for _, c := range im.tally.kinds {
			if !o.DryRun {
				c.Created, c.Updated, c.Unchanged = 0, 0, 0
			}
		}
		return im.report(), &RefusedError{failed, all}
	}
	if o.DryRun {
		return im.report(), nil
	}
	err = im.store(ctx)
	return im.report(), err
}

func (im *importer) reset() {
	im.bad, im.done, im.creates, im.updates = lineSet{}, lineSet{}, lineSet{}, lineSet{}
	im.lineOf, im.claimed = map[string]map[key]int32{}, map[key]int32{}
	im.digests, im.repeats = map[key]int32{}, map[int]int32{}
	im.waiting, im.edges = map[string][]*entry{}, nil
	im.tally = newTally()
}

func (im *importer) report() Report {
	r := im.tally.report()
	r.DryRun = im.opt.DryRun
	return r
}

// check reads every line and decides what is to be done with it.
func (im *importer) check(ctx context.Context) error {
	for _, k := range im.kinds {
		empty, err := k.empty(ctx, im.session)
		if err != nil {
			return fmt.Errorf("reading what the organization has: %w", err)
		}
		im.isEmpty[k.Name] = empty
	}
	if err := im.define(ctx); err != nil {
		return err
	}
	if err := im.keepAdmins(ctx); err != nil {
		return fmt.Errorf("looking for administrators: %w", err)
	}
	err := im.pump(ctx, im.feed, PhaseChecking, func(int) interest { return wanted }, func(c *chunk) error {
		return im.weigh(ctx, c.entries)
	})
	if err != nil {
		return fmt.Errorf("checking the file: %w", err)
	}
	if err := im.compareAll(ctx); err != nil {
		return err
	}
	return im.resolve(ctx)
}

// define checks the definitions. Where one turns out to be bad after others were checked
// against it, they are checked again without it.
func (im *importer) define(ctx context.Context) error {
	found, err := im.feed.Prepare(ctx, &Into{im.deps.Resources, im.session})
	if err != nil {
		return err
	}
	lines, refused := map[string][]Line{}, map[int]*entry{}
	for _, l := range found {
		lines[l.Kind] = append(lines[l.Kind], l)
	}
	for {
		if err := im.loadView(ctx); err != nil {
			return fmt.Errorf("reading what the organization has: %w", err)
		}
		im.definitions = nil
		for _, k := range im.kinds {
			im.learn(ctx, lines[k.Name], refused)
		}
		learned := slices.DeleteFunc(slices.Clone(im.definitions), func(e *entry) bool { return len(e.errs) > 0 })
		if err := im.weigh(ctx, im.definitions); err != nil {
			return err
		}
		if err := im.compareAll(ctx); err != nil {
			return err
		}
		before := len(refused)
		for _, e := range learned {
			if len(e.errs) > 0 {
				e.judged = true
				refused[e.line] = e
			}
		}
		if len(refused) == before {
			for _, e := range learned {
				im.view.settle(e)
			}
			return nil
		}
		im.reset()
	}
}

// learn decodes the definitions of one kind and teaches the good ones to the view. Those in
// refused are known to be bad for a reason that was found later.
func (im *importer) learn(ctx context.Context, lines []Line, refused map[int]*entry) {
	first := len(im.definitions)
	for _, l := range lines {
		e := refused[l.Number]
		if e == nil {
			e = im.understand(ctx, l)
		}
		im.definitions = append(im.definitions, e)
	}
	for _, e := range im.definitions[first:] {
		im.view.learn(e)
	}
}

// weigh takes note of lines in order and queues the good ones for comparison.
func (im *importer) weigh(ctx context.Context, entries []*entry) error {
	for _, e := range entries {
		name := e.name()
		if e.kind != nil {
			im.register(e)
		}
		im.tally.of(name).Lines++
		if len(e.errs) > 0 {
			im.reject(e)
			continue
		}
		if len(e.doubts) > 0 {
			im.tally.warn(e.line, name, e.doubts)
		}
		e.raw = Raw{} // it is read again where it is needed
		im.waiting[name] = append(im.waiting[name], e)
		if len(im.waiting[name]) >= batchSize {
			if err := im.compare(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// register notes the identifiers of a line and refuses those given before.
func (im *importer) register(e *entry) {
	name := e.kind.Name
	for _, c := range e.claims {
		if first, given := im.claimed[c.key]; given {
			e.errs.Add(c.field, "duplicate", "row %d has the same %s", first, c.field)
			return
		}
		im.claimed[c.key] = int32(e.line)
	}
	if e.id != "" {
		lines := im.lineOf[name]
		if lines == nil {
			lines = map[key]int32{}
			im.lineOf[name] = lines
		}
		k := keyOf(e.id)
		switch first, given := lines[k]; {
		case !given:
			lines[k] = int32(e.line)
		case !e.judged:
			e.errs.Add("id", "duplicate", "line %d gives the same id", first)
		}
	}
	if len(e.errs) > 0 {
		return
	}
	for _, c := range e.kind.identify(e) {
		if first, given := im.claimed[c.key]; given {
			if e.kind.Single {
				e.errs.Add("kind", "duplicate", "line %d is of the kind %s too, of which there is one", first, name)
			} else {
				e.errs.Add(c.field, "duplicate", "line %d gives the same %s", first, c.field)
			}
		} else {
			im.claimed[c.key] = int32(e.line)
		}
	}
	if len(e.errs) > 0 {
		return
	}
	if e.digest != (key{}) {
		n := im.digests[e.digest]
		im.digests[e.digest] = n + 1
		if n > 0 {
			im.repeats[e.line] = n
		}
		e.id = e.digest.repeat(int(n)).id()
	}
	e.kind.references(e, func(field, target string, id *string) {
		if *id != "" && !im.named[target].Definition {
			im.edges = append(im.edges, edge{int32(e.line), e.kind, field, target, keyOf(*id), e.asIs})
		}
	})
}

func (im *importer) reject(e *entry) { im.refuse(e.line, e.name(), e.errs) }

func (im *importer) refuse(line int, name string, errs fault.List) {
	if im.bad.has(line) {
		return
	}
	c := im.tally.of(name)
	switch {
	case im.done.has(line):
		c.Unchanged--
	case im.creates.has(line):
		c.Created--
	case im.updates.has(line):
		c.Updated--
	}
	im.bad.add(line)
	c.Failed++
	im.tally.problem(line, name, errs)
}

func (im *importer) compareAll(ctx context.Context) error {
	for _, k := range im.kinds {
		if err := im.compare(ctx, k.Name); err != nil {
			return err
		}
	}
	return nil
}

// compare decides what is to be done with the lines of a kind that wait for it.
func (im *importer) compare(ctx context.Context, name string) error {
	batch := im.waiting[name]
	im.waiting[name] = batch[:0]
	if len(batch) == 0 {
		return nil
	}
	for start := 0; start < len(batch); start += batchSize {
		if err := im.named[name].compare(ctx, im.session, batch[start:min(start+batchSize, len(batch))]); err != nil {
			return fmt.Errorf("comparing with what the organization has: %w", err)
		}
	}
	c := im.tally.of(name)
	for _, e := range batch {
		switch {
		case len(e.errs) > 0:
			im.reject(e)
		case e.change == create:
			im.creates.add(e.line)
			c.Created++
		case e.change == update:
			im.updates.add(e.line)
			c.Updated++
		default:
			im.done.add(e.line)
			im.rightsChanged = im.rightsChanged || e.kind.Rights
			c.Unchanged++
		}
	}
	return nil
}

// resolve refuses lines whose references lead nowhere, or to lines that are refused.
func (im *importer) resolve(ctx context.Context) error {
	outside := map[string][]string{} // identifiers not in the file, by kind
	seen := map[string]map[key]bool{}
	for _, e := range im.edges {
		if _, inside := im.lineOf[e.target][e.to]; !inside && !seen[e.target][e.to] {
			if seen[e.target] == nil {
				seen[e.target] = map[key]bool{}
			}
			seen[e.target][e.to] = true
			outside[e.target] = append(outside[e.target], e.to.id())
		}
	}
	missing := map[string]map[key]bool{}
	for target, ids := range outside {
		missing[target] = map[key]bool{}
		for start := 0; start < len(ids); start += batchSize {
			part := ids[start:min(start+batchSize, len(ids))]
			there, err := im.named[target].present(ctx, im.session, part)
			if err != nil {
				return fmt.Errorf("looking for references: %w", err)
			}
			for _, id := range part {
				if !there[id] {
					missing[target][keyOf(id)] = true
				}
			}
		}
	}
	im.refuseCycles()
	if err := im.refuseMoves(ctx); err != nil {
		return err
	}
	return im.spread(ctx, missing)
}

const parentField = "folder_id"

// lies reports whether the reference says in which folder another one lies.
func (e *edge) lies() bool { return e.from.Name == kindFolder && e.field == parentField }

// refuseCycles refuses folders that would contain themselves.
func (im *importer) refuseCycles() {
	parent := map[int32]int32{}
	for _, e := range im.edges {
		if e.lies() {
			if to, inside := im.lineOf[kindFolder][e.to]; inside {
				parent[e.line] = to
			}
		}
	}
	state := map[int32]int32{} // the line from which it was reached first
	for start := range parent {
		at, ok := start, true
		for ok && state[at] == 0 {
			state[at] = start
			at, ok = parent[at]
		}
		if !ok || state[at] != start {
			continue
		}
		for first := at; ; {
			var errs fault.List
			errs.Add(parentField, "forbidden", "the folder would contain itself")
			im.refuse(int(at), kindFolder, errs)
			if at = parent[at]; at == first {
				break
			}
		}
	}
}

// refuseMoves refuses folders of the organization that the bundle moves into one of
// their own folders, where that is not in the bundle. It looks at each folder once.
func (im *importer) refuseMoves(ctx context.Context) error {
	changes := func(e edge) bool { return e.from.Name == kindFolder && im.updates.has(int(e.line)) }
	if !slices.ContainsFunc(im.edges, changes) {
		return nil
	}
	parents := map[key]key{} // those that the bundle gives, and those that were read
	own := map[int32]key{}
	for k, line := range im.lineOf[kindFolder] {
		own[line] = k
	}
	for _, e := range im.edges {
		if k, ok := own[e.line]; ok && e.lies() {
			parents[k] = e.to
		}
	}
	moved := func(k key) (line int32, ok bool) {
		line, ok = im.lineOf[kindFolder][k]
		return line, ok && im.updates.has(int(line)) && !im.bad.has(int(line))
	}
	reached := map[key]int{} // in which walk first
	for walk, start := range slices.Collect(maps.Keys(parents)) {
		if _, ok := moved(start); !ok {
			continue
		}
		at, ok := start, true
		for ok && reached[at] == 0 {
			reached[at] = walk + 1
			next, given := parents[at]
			if _, inside := im.lineOf[kindFolder][at]; !given && !inside {
				var err error
				if next, given, err = im.parent(ctx, at); err != nil {
					return fmt.Errorf("looking for references: %w", err)
				}
				if given {
					parents[at] = next
				}
			}
			if err := im.step(ctx); err != nil {
				return err
			}
			at, ok = next, given
		}
		if !ok || reached[at] != walk+1 {
			continue // it leads to the top, or where another walk led
		}
		for first := at; ; {
			if line, ok := moved(at); ok {
				var errs fault.List
				errs.Add(parentField, "forbidden", "the folder would contain itself")
				im.refuse(int(line), kindFolder, errs)
			}
			if at = parents[at]; at == first {
				break
			}
		}
	}
	return nil
}

// parent returns in which folder one of the organization lies.
func (im *importer) parent(ctx context.Context, k key) (parent key, ok bool, err error) {
	folders := im.named[kindFolder]
	found, err := folders.Records.Find(ctx, im.tenant.Workspace(), store.Query{Filter: store.Eq("id", k.id()), State: store.Either})
	for _, f := range found {
		folders.Refers(f, func(field, _ string, id *string) {
			if field == parentField && *id != "" {
				parent, ok = keyOf(*id), true
			}
		})
	}
	return parent, ok, err
}
