package bundle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/tenants"
)

// batchSize and batchMemory are how many records are stored at a time, and how many bytes of memory they may take
// together with all others that wait for the same.
const batchSize, batchMemory = 1000, 4 << 20

// compareSize is how many lines are compared at a time with what the organization has, whose records may be large.
const compareSize = 64

// queue has lines that wait for a step, by kind.
type queue struct {
	of     map[string][]*entry
	memory int64
}

// add queues a line. It returns the kinds of which no more shall wait.
func (q *queue) add(e *entry, kinds []*kind) (full []*kind) {
	name := e.kind.Name
	q.of[name] = append(q.of[name], e)
	if q.memory += e.size; q.memory >= batchMemory {
		return kinds
	}
	if len(q.of[name]) >= batchSize {
		return []*kind{e.kind}
	}
	return nil
}

// take returns the lines of a kind, which wait no more.
func (q *queue) take(name string) []*entry {
	batch := q.of[name]
	delete(q.of, name)
	for _, e := range batch {
		q.memory -= e.size
	}
	return batch
}

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
	folders map[key]lying // by the identifiers that they have in the organization
	steps   int           // see step
	waiting queue         // to be compared
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
	if err == nil && im.mirror != nil {
		err = im.list(ctx)
	}
	failed, all := im.bad.count, im.tally.report().Lines
	if err == nil && failed > 0 && !o.Partial {
		err = &RefusedError{failed, all, im.mirror != nil}
	}
	if err != nil {
		if !o.DryRun { // nothing is stored yet
			for _, c := range im.tally.kinds {
				c.Created, c.Updated, c.Unchanged, c.Removed = 0, 0, 0, 0
			}
		}
		return im.report(), err
	}
	if err := im.fits(ctx); err != nil || o.DryRun {
		return im.report(), err
	}
	err = im.store(ctx)
	return im.report(), err
}

// fits refuses an import of more records than the organization has room for, before anything is stored. How many bytes
// they take is seen when they are.
func (im *importer) fits(ctx context.Context) error {
	most := im.tenant.Org.Limit(tenants.LimitDocuments)
	if most == 0 {
		return nil
	}
	created := int64(0)
	for _, k := range im.kinds {
		if c := im.tally.kinds[k.Name]; c != nil && !k.Control {
			created += int64(c.Created - c.Removed)
		}
	}
	used, err := im.tenant.Workspace().Used(ctx)
	if err == nil && created > 0 && used.Documents+created > most {
		for _, c := range im.tally.kinds {
			if !im.opt.DryRun {
				c.Created, c.Updated, c.Unchanged, c.Removed = 0, 0, 0, 0
			}
		}
		err = &NoRoomError{created, &store.QuotaError{Limit: tenants.LimitDocuments, Used: used.Documents, Allowed: most}}
	}
	return err
}

func (im *importer) reset() {
	im.bad, im.done, im.creates, im.updates = lineSet{}, lineSet{}, lineSet{}, lineSet{}
	im.lineOf, im.claimed = map[string]map[key]int32{}, map[key]int32{}
	im.digests, im.repeats = map[key]int32{}, map[int]int32{}
	im.waiting, im.edges, im.folders = queue{of: map[string][]*entry{}}, nil, map[key]lying{}
	im.tally, im.remembered = newTally(), im.prepared
	im.mirror.reset()
}

func (im *importer) report() Report {
	r := im.tally.report()
	r.DryRun = im.opt.DryRun
	return r
}

// check reads every line and decides what is to be done with it.
func (im *importer) check(ctx context.Context) error {
	for _, k := range im.kinds {
		n, err := k.Records.Count(ctx, im.workspace(k.Resource))
		if err != nil {
			return fmt.Errorf("reading what the organization has: %w", err)
		}
		im.isEmpty[k.Name] = n == 0
	}
	if im.mirror != nil {
		if err := im.mirror.begin(ctx, im.session); err != nil {
			return fmt.Errorf("reading what the organization has: %w", err)
		}
		im.mirror.checking = true
		defer func() { im.mirror.checking = false }()
	}
	if err := im.define(ctx); err != nil {
		return err
	}
	if im.mirror != nil && im.tally.of(kindOrganization).Lines == 0 {
		return ErrNotWhole
	}
	if err := im.keepAdmins(ctx); errors.Is(err, ErrNoAdministrator) {
		return err
	} else if err != nil {
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
	for of := im.defined; ; im.defined = of { // the file's
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
			if err := im.register(e); err != nil {
				return err
			}
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
		for _, k := range im.waiting.add(e, im.kinds) {
			if err := im.compare(ctx, k.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// register notes the identifiers of a line and refuses those given before. Error: ErrTooMany.
func (im *importer) register(e *entry) error {
	notes := len(im.claimed) + len(im.digests) + len(im.repeats)
	edges, ids := len(im.edges), len(im.lineOf[e.kind.Name])
	im.identify(e)
	notes = len(im.claimed) + len(im.digests) + len(im.repeats) + len(im.lineOf[e.kind.Name]) - notes - ids
	return im.remember(int64(notes)*claimMemory + int64(len(im.edges)-edges)*edgeMemory)
}

// identify notes what a line is, and what it refers to.
func (im *importer) identify(e *entry) {
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
	for batch := range slices.Chunk(im.waiting.take(name), compareSize) {
		if err := im.named[name].compare(ctx, im.session, batch); err != nil {
			return fmt.Errorf("comparing with what the organization has: %w", err)
		}
		if err := im.decide(name, batch); err != nil {
			return err
		}
	}
	return nil
}

// decide notes what is to be done with lines that were compared. Error: ErrTooMany.
func (im *importer) decide(name string, batch []*entry) error {
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
		im.mirror.say(name, e.id)
		if name == kindFolder && e.id != "" {
			rec := e.rec
			if e.old != nil {
				rec = e.old // as the line makes it
			}
			im.folders[keyOf(e.id)] = lying{int32(e.line), e.kind.parent(rec)}
			if err := im.remember(lyingMemory); err != nil {
				return err
			}
		}
		if !e.kind.Definition { // it is compared once more before it is stored
			e.rec, e.old, e.secrets = nil, nil, nil
		}
	}
	return im.remember(0) // merge notes aliases
}

// resolve refuses lines whose references lead nowhere, or to lines that are refused.
func (im *importer) resolve(ctx context.Context) error {
	outside := map[reference]bool{} // those not in the file
	for _, e := range im.edges {
		if _, inside := im.lineOf[e.target][e.to]; !inside {
			outside[reference{e.target, e.to.id()}] = true
		}
	}
	if im.mirror == nil { // else what is outside goes
		if err := im.dangling(ctx, outside); err != nil {
			return err
		}
	}
	if err := im.refuseCycles(ctx); err != nil {
		return err
	}
	return im.spread(ctx, outside)
}

// dangling leaves of the references those that lead nowhere.
func (s *session) dangling(ctx context.Context, refs map[reference]bool) error {
	ids := map[string][]string{}
	for r := range refs {
		ids[r.target] = append(ids[r.target], r.id)
	}
	for target, all := range ids {
		slices.Sort(all)
		for part := range slices.Chunk(all, compareSize) {
			k := s.named[target]
			err := k.Records.Each(ctx, s.workspace(k.Resource), store.In("id", part...), func(rec any) error {
				delete(refs, reference{target, k.Meta(rec).ID})
				return nil
			})
			if err != nil {
				return fmt.Errorf("looking for references: %w", err)
			}
		}
	}
	return nil
}

const parentField = "folder_id"

// lying says in which folder a folder is to lie; in is zero at the top.
type lying struct {
	line int32 // 0: the file does not have it
	in   key
}

// parent returns in which folder a folder lies.
func (k *kind) parent(rec any) (in key) {
	k.Refers(rec, func(field, _ string, id *string) {
		if field == parentField && *id != "" {
			in = keyOf(*id)
		}
	})
	return in
}

// refuseCycles refuses folders of the file that would contain themselves, also by way of folders that the organization
// has. It looks at each folder once.
func (im *importer) refuseCycles(ctx context.Context) error {
	moves := false // else those that the organization has contain none of the file
	for _, f := range im.folders {
		moves = moves || im.updates.has(int(f.line))
	}
	above := func(at key) key {
		in := im.folders[at].in
		if own, ok := im.alias[in.id()]; ok {
			return keyOf(own)
		}
		return in
	}
	reached := map[key]int{{}: -1} // in which walk first
	for walk, at := range slices.Collect(maps.Keys(im.folders)) {
		for ; reached[at] == 0; at = above(at) {
			reached[at] = walk + 1
			if _, known := im.folders[at]; moves && !known {
				if err := im.lookUp(ctx, at); err != nil {
					return fmt.Errorf("looking for references: %w", err)
				}
			}
			if err := im.step(ctx); err != nil {
				return err
			}
		}
		if reached[at] != walk+1 {
			continue // it leads to the top, or where another walk led
		}
		for first := at; ; {
			if line := int(im.folders[at].line); line > 0 && !im.done.has(line) {
				var errs fault.List
				errs.Add(parentField, "forbidden", "the folder would contain itself")
				im.refuse(line, kindFolder, errs)
			}
			if at = above(at); at == first {
				break
			}
		}
	}
	return nil
}

// lookUp notes in which folder one of the organization lies.
func (im *importer) lookUp(ctx context.Context, k key) error {
	folders := im.named[kindFolder]
	found, err := folders.Records.Find(ctx, im.tenant.Workspace(), store.Query{Filter: store.Eq("id", k.id()), State: store.Either})
	for _, f := range found {
		im.folders[k] = lying{in: folders.parent(f)}
	}
	return err
}
