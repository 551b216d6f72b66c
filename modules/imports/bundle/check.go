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

// batchSize bounds the records that are stored at a time, and batchMemory the bytes of memory that all records waiting
// for the same step take together.
const batchSize, batchMemory = 1000, 4 << 20

// compareSize is how many lines are compared with the organization's records at a time, because those may be large.
const compareSize = 64

// queue holds lines that wait for a step, by kind.
type queue struct {
	of     map[string][]*entry
	memory int64
}

// add queues a line. It returns the kinds whose lines must be handled now.
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

// take removes the lines of a kind from the queue.
func (q *queue) take(name string) []*entry {
	batch := q.of[name]
	delete(q.of, name)
	for _, e := range batch {
		q.memory -= e.size
	}
	return batch
}

// importer is the state of one import, in addition to the session's.
type importer struct {
	*session
	feed Feed
	opt  ImportOptions

	definitions []*entry
	bad         lineSet // lines that are not stored
	done        lineSet // lines whose records are already stored as the lines say
	creates     lineSet // lines that create records, as determined by the check
	updates     lineSet // lines that change records, as determined by the check

	lineOf  map[string]map[key]int32 // of given identifiers, by kind
	claimed map[key]int32            // line of each unique value
	digests map[key]int32            // number of lines with that content
	repeats map[int]int32            // how many equal lines precede a line
	edges   []edge
	folders map[key]location // by their identifiers in the organization
	steps   int              // see step
	waiting queue            // to be compared
}

// edge is a reference from a line to a document.
type edge struct {
	line   int32
	from   *kind
	field  string
	target string
	to     key
	asIs   bool // the line is accepted even if the reference is dangling
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
		if !o.DryRun { // nothing has been stored
			for _, c := range im.tally.kinds {
				c.Created, c.Updated, c.Unchanged, c.Removed = 0, 0, 0, 0
			}
		}
		return im.report(), err
	}
	if err := im.checkQuota(ctx); err != nil || o.DryRun {
		return im.report(), err
	}
	err = im.store(ctx)
	return im.report(), err
}

// checkQuota refuses an import of more records than the quota allows, before anything is stored. Their size in bytes
// is checked only when they are stored.
func (im *importer) checkQuota(ctx context.Context) error {
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
		err = &NoRoomError{
			created, &store.QuotaError{Limit: tenants.LimitDocuments, Used: used.Documents, Allowed: most},
		}
	}
	return err
}

func (im *importer) reset() {
	im.bad, im.done, im.creates, im.updates = lineSet{}, lineSet{}, lineSet{}, lineSet{}
	im.without = lineSet{}
	im.lineOf, im.claimed = map[string]map[key]int32{}, map[key]int32{}
	im.digests, im.repeats = map[key]int32{}, map[int]int32{}
	im.waiting, im.edges, im.folders = queue{of: map[string][]*entry{}}, nil, map[key]location{}
	im.tally, im.remembered = newTally(), im.prepared
	im.mirror.reset()
}

func (im *importer) report() Report {
	r := im.tally.report()
	r.DryRun, r.FilesWithout = im.opt.DryRun, im.without.countWithout(&im.bad)
	return r
}

// check reads every line and decides what to do with it.
func (im *importer) check(ctx context.Context) error {
	for _, k := range im.kinds {
		n, err := k.Records.Count(ctx, im.workspace(k.Resource))
		if err != nil {
			return fmt.Errorf("read the organization's records: %w", err)
		}
		im.isEmpty[k.Name] = n == 0
	}
	if im.mirror != nil {
		if err := im.mirror.begin(ctx, im.session); err != nil {
			return fmt.Errorf("read the organization's records: %w", err)
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
	if err := im.checkAdmins(ctx); errors.Is(err, ErrNoAdministrator) {
		return err
	} else if err != nil {
		return fmt.Errorf("look up administrators: %w", err)
	}
	err := im.pump(ctx, im.feed, PhaseChecking, func(int) interest { return decode }, func(c *chunk) error {
		return im.register(ctx, c.entries)
	})
	if err != nil {
		return fmt.Errorf("check the file: %w", err)
	}
	if err := im.compareAll(ctx); err != nil {
		return err
	}
	return im.resolve(ctx)
}

// define checks the definitions. If one turns out to be bad after others were checked against it, all are checked
// again without it.
func (im *importer) define(ctx context.Context) error {
	found, err := im.feed.Prepare(ctx, &Into{im.deps.Resources, im.session})
	if err != nil {
		return err
	}
	lines, refused := map[string][]Line{}, map[int]*entry{}
	for _, l := range found {
		lines[l.Kind] = append(lines[l.Kind], l)
	}
	for of := im.defined; ; im.defined = of { // the memory of the file's definitions
		if err := im.loadView(ctx); err != nil {
			return fmt.Errorf("read the organization's records: %w", err)
		}
		im.definitions = nil
		for _, k := range im.kinds {
			im.learn(ctx, lines[k.Name], refused)
		}
		learned := slices.DeleteFunc(slices.Clone(im.definitions), func(e *entry) bool { return len(e.errs) > 0 })
		if err := im.register(ctx, im.definitions); err != nil {
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

// learn decodes the definitions of one kind and adds the good ones to the view. The definitions in refused were found
// to be bad in an earlier round.
func (im *importer) learn(ctx context.Context, lines []Line, refused map[int]*entry) {
	first := len(im.definitions)
	for _, l := range lines {
		e := refused[l.Number]
		if e == nil {
			e = im.decodeLine(ctx, l)
		}
		im.definitions = append(im.definitions, e)
	}
	for _, e := range im.definitions[first:] {
		im.view.learn(e)
	}
}

// registerLine notes lines in order and queues the good ones for comparison.
func (im *importer) register(ctx context.Context, entries []*entry) error {
	for _, e := range entries {
		name := e.name()
		if e.kind != nil {
			if err := im.registerLine(e); err != nil {
				return err
			}
		}
		im.tally.of(name).Lines++
		if len(e.errs) > 0 {
			im.reject(e)
			continue
		}
		if len(e.warnings) > 0 {
			im.tally.warn(e.line, name, e.warnings)
		}
		e.raw = Raw{} // the line is read again when it is needed
		for _, k := range im.waiting.add(e, im.kinds) {
			if err := im.compare(ctx, k.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// registerLine notes the identifiers of a line and refuses those that an earlier line has. Error: ErrTooMany.
func (im *importer) registerLine(e *entry) error {
	notes := len(im.claimed) + len(im.digests) + len(im.repeats)
	edges, ids := len(im.edges), len(im.lineOf[e.kind.Name])
	im.identify(e)
	notes = len(im.claimed) + len(im.digests) + len(im.repeats) + len(im.lineOf[e.kind.Name]) - notes - ids
	return im.remember(int64(notes)*claimMemory + int64(len(im.edges)-edges)*edgeMemory)
}

// identify notes the identity of a line and its references.
func (im *importer) identify(e *entry) {
	name := e.kind.Name
	for _, c := range e.claims {
		if first, given := im.claimed[c.key]; given {
			e.errs.Add(c.field, "duplicate", "line %d has the same %s", first, c.field)
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
				e.errs.Add("kind", "duplicate", "line %d is also of the kind %s, which has only one record", first, name)
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

// compare decides what to do with the waiting lines of a kind.
func (im *importer) compare(ctx context.Context, name string) error {
	for batch := range slices.Chunk(im.waiting.take(name), compareSize) {
		if err := im.named[name].compare(ctx, im.session, batch); err != nil {
			return fmt.Errorf("compare with the organization's records: %w", err)
		}
		if err := im.decide(name, batch); err != nil {
			return err
		}
	}
	return nil
}

// decide notes what to do with compared lines. Error: ErrTooMany.
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
		im.mirror.mark(name, e.id)
		if name == kindFolder && e.id != "" {
			rec := e.rec
			if e.old != nil {
				rec = e.old // compare has applied the line to it
			}
			im.folders[keyOf(e.id)] = location{int32(e.line), e.kind.parent(rec)}
			if err := im.remember(locationMemory); err != nil {
				return err
			}
		}
		if !e.kind.Definition { // it is compared again before it is stored
			e.rec, e.old, e.secrets = nil, nil, nil
		}
	}
	return im.remember(0) // merging may have added aliases
}

// resolve refuses lines with dangling references, and lines that refer to refused lines.
func (im *importer) resolve(ctx context.Context) error {
	outside := map[reference]bool{} // references to records that are not in the file
	for _, e := range im.edges {
		if _, inside := im.lineOf[e.target][e.to]; !inside {
			outside[reference{e.target, e.to.id()}] = true
		}
	}
	if im.mirror == nil { // a mirror removes records that are not in the file
		if err := im.dangling(ctx, outside); err != nil {
			return err
		}
	}
	if err := im.refuseCycles(ctx); err != nil {
		return err
	}
	return im.refuseDependents(ctx, outside)
}

// dangling removes the references that do not dangle from refs.
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
				return fmt.Errorf("look up references: %w", err)
			}
		}
	}
	return nil
}

const parentField = "folder_id"

// location is the folder that a folder is to be in; in is zero at the top level.
type location struct {
	line int32 // 0: the folder is not in the file
	in   key
}

// parent returns the folder that a folder is in.
func (k *kind) parent(rec any) (in key) {
	k.Refers(rec, func(field, _ string, id *string) {
		if field == parentField && *id != "" {
			in = keyOf(*id)
		}
	})
	return in
}

// refuseCycles refuses folders of the file that would contain themselves, even by way of the organization's folders.
// It visits each folder once.
func (im *importer) refuseCycles(ctx context.Context) error {
	moves := false // otherwise the organization's folders contain no folder of the file
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
	reached := map[key]int{{}: -1} // the number of the walk that reached a folder first
	for walk, at := range slices.Collect(maps.Keys(im.folders)) {
		for ; reached[at] == 0; at = above(at) {
			reached[at] = walk + 1
			if _, known := im.folders[at]; moves && !known {
				if err := im.lookUp(ctx, at); err != nil {
					return fmt.Errorf("look up references: %w", err)
				}
			}
			if err := im.step(ctx); err != nil {
				return err
			}
		}
		if reached[at] != walk+1 {
			continue // it leads to the top level, or joins an earlier walk
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

// lookUp notes the location of one of the organization's folders.
func (im *importer) lookUp(ctx context.Context, k key) error {
	folders := im.named[kindFolder]
	found, err := folders.Records.Find(ctx, im.tenant.Workspace(), store.Query{
		Filter: store.Eq("id", k.id()), State: store.Either,
	})
	for _, f := range found {
		im.folders[k] = location{in: folders.parent(f)}
	}
	return err
}
