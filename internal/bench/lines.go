package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// line is a line of the table: what is asked of Tenantry, and beside whom. Or, where figures stand for
// themselves, how they are measured.
type line struct {
	name, what  string
	connections int
	ours        source
	beside      []reference
	measure     func(context.Context, *bench) ([]fact, error)
	long        bool
}

// reference is what a line stands beside; connections 0: those of the line.
type reference struct {
	name, goal  string
	from        source
	connections int
}

// source makes the data and returns what is asked for it.
type source func(context.Context, *bench) (*traffic, error)

func names(lines []line) (names []string) {
	for i, l := range lines {
		if i == 0 || l.name != lines[i-1].name {
			names = append(names, l.name)
		}
	}
	return names
}

// lines are all lines, with so many times fewer records.
func lines(fewer int) []line {
	all := []line{
		{name: "report", what: "a custom report by key", connections: 32, ours: small(report), beside: []reference{{name: "bare Gin", goal: "0.70", from: bareGin}}},

		{name: "organizations", what: "campaign counts over 1,000 organizations, evenly", connections: 32, ours: counts(10_000/fewer, 1_000/fewer, even), beside: []reference{{name: "one organization", goal: "0.80", from: counts(10_000/fewer, 1, even)}}},
		{name: "organizations", what: "campaign counts over 10,000 organizations, evenly", connections: 32, ours: counts(10_000/fewer, 10_000/fewer, even), beside: []reference{{name: "one organization", goal: "0.60", from: counts(10_000/fewer, 1, even)}}},
		{name: "organizations", what: "campaign counts over 10,000 organizations, by Zipf with s = 1.1", connections: 32, ours: counts(10_000/fewer, 10_000/fewer, zipf), beside: []reference{{name: "one organization", goal: "0.80", from: counts(10_000/fewer, 1, even)}}},
		{name: "memory", what: "memory by active organizations", measure: memory(10_000 / fewer)},
		{name: "crowd", what: "creating organizations", measure: creating(10_000 / fewer)},

		{name: "folder", what: "page 1 of a folder of 100,000 files, 50 a page", connections: 8, ours: page(100_000/fewer, 1), beside: []reference{{name: "PocketBase", goal: "5", from: pocketbasePage(100_000/fewer, 1)}}},
		{name: "folder", what: "page 1,000 of it", connections: 8, ours: page(100_000/fewer, 1_000/fewer), beside: []reference{{name: "PocketBase", goal: "5", from: pocketbasePage(100_000/fewer, 1_000/fewer)}}},
		{name: "folder", what: "page 2,000 of it, the last", connections: 8, ours: page(100_000/fewer, 2_000/fewer), beside: []reference{
			{name: "PocketBase", goal: "5", from: pocketbasePage(100_000/fewer, 2_000/fewer)}, {name: "page 1", goal: "0.50", from: page(100_000/fewer, 1)},
		}},
	}
	for _, n := range []int{100_000 / fewer, 1_000_000 / fewer} {
		of, long := " of "+whole(n)+" contacts", n > 100_000/fewer
		count := func(what, question string, goals ...string) line {
			return line{name: "count", what: what + of, connections: 1, long: long, ours: filtered(n, question), beside: []reference{
				{name: "PocketBase", goal: goals[0], from: pocketbaseFiltered(n, question)}, {name: "SQL by hand", goal: goals[1], from: sqlAsked(n, "/count/"+question)},
			}}
		}
		limit, scan := "3 ms", "40 ms"
		if long {
			limit, scan = "25 ms", "400 ms"
		}
		all = append(all,
			count("a count by the organization's own field, equal,", "tier", limit, ""),
			count("a count by the organization's own field, greater,", "seats", limit, scan+" without an index"),
			count("a count by `contains`", "contains", "", ""),
			line{name: "shared", what: "a secure shared report, by country" + of + ", each time another question", connections: 1, long: long, ours: shared(n, most), beside: []reference{{name: "SQL by hand", goal: "0.91", from: sqlAsked(n, "/report")}}},
			line{name: "shared", what: "the same report, each time another question", connections: 32, long: long, ours: shared(n, most), beside: []reference{{name: "SQL by hand", goal: "0.91", from: sqlAsked(n, "/report")}}},
			line{name: "shared", what: "the same report, all with one question", connections: 32, long: long, ours: shared(n, 1), beside: []reference{{name: "each with its own", from: shared(n, most)}}},
			line{name: "import", what: "import" + of, long: long, measure: importing(n)},
		)
	}
	return append(all,
		line{name: "import", what: "import of 10,000 contacts", measure: importing(10_000 / fewer)},
		line{name: "put", what: "PUT of one form by 32 writers", connections: 32, ours: small(putForm), beside: []reference{{name: "one writer", goal: "1, none failed", from: small(putForm), connections: 1}}},
		line{name: "create", what: "creates of a record", connections: 1, ours: small(createRecord), beside: []reference{{name: durable, goal: "1.2", from: pocketbaseCreate("full")}, {name: asItComes, from: pocketbaseCreate("default")}}},
		line{name: "create", what: "creates of a record", connections: 32, ours: small(createRecord), beside: []reference{{name: durable, goal: "5", from: pocketbaseCreate("full")}, {name: asItComes, from: pocketbaseCreate("default")}}},
		line{name: "delete", what: "DELETE of a file", connections: 32, ours: deletes(deleteFile), beside: []reference{{name: durable, from: deletes(pocketbaseDelete)}}},
		line{name: "reveal", what: "reveal of an encrypted field, each with its audit record", connections: 32, ours: small(reveal), beside: []reference{{name: "a bare Gin that answers the report", goal: "15,000/s", from: bareGin}}},
		line{name: "keys", what: "first looks over 5,000 keys after a start", connections: 32, ours: firstLooks(5_000 / fewer), beside: []reference{{name: "one key", goal: "0.70", from: oneKey(5_000 / fewer)}}},
	)
}

const (
	durable   = "PocketBase, a write on disk when acknowledged as here"
	asItComes = "PocketBase as it comes (synchronous=NORMAL)"
	countPath = "/api/campaigns/count"
)

// small asks an organization with a few records.
func small(requests func(org) [][]byte) source {
	return func(ctx context.Context, b *bench) (*traffic, error) {
		s, o, err := b.smallOrg(ctx)
		if err != nil {
			return nil, err
		}
		return &traffic{process: s.process, server: s, requests: requests(o), spread: even}, nil
	}
}

func report(o org) [][]byte {
	return [][]byte{o.request(http.MethodGet, "/api/custom-reports/"+plainReport, "")}
}

// bareGin answers the bytes and headers of our report.
func bareGin(ctx context.Context, b *bench) (*traffic, error) {
	ours, err := small(report)(ctx, b)
	if err != nil {
		return nil, err
	}
	header, body, err := ours.ask(ctx, ours.requests[0])
	if err != nil {
		return nil, err
	}
	answer := struct {
		Header map[string]string
		Body   string
	}{map[string]string{}, string(body)}
	for name := range header {
		if name != "Date" && name != "Content-Length" { // which its server writes itself
			answer.Header[name] = header.Get(name)
		}
	}
	path := filepath.Join(b.dir, "answer.json")
	raw, err := json.Marshal(answer)
	if err == nil {
		err = os.WriteFile(path, raw, 0o600)
	}
	if err != nil {
		return nil, err
	}
	p, err := b.rival(ctx, "gin", "gin", path)
	if err != nil {
		return nil, err
	}
	return &traffic{process: p, requests: ours.requests, spread: even}, nil
}

// counts asks for the count of all contacts in the first of many organizations, each of which was asked before.
func counts(n, first int, spread spread) source {
	return func(ctx context.Context, b *bench) (*traffic, error) {
		s, c, err := b.crowd(ctx, n)
		if err != nil {
			return nil, err
		}
		t := &traffic{process: s.process, server: s, spread: spread}
		for _, o := range c.orgs[:first] {
			t.requests = append(t.requests, o.request(http.MethodGet, countPath, ""))
		}
		return t, touch(ctx, s, c.orgs[:first])
	}
}

// memory is that of a server that has just been started, with so many organizations asked one after the other.
func memory(n int) func(context.Context, *bench) ([]fact, error) {
	return func(ctx context.Context, b *bench) (facts []fact, err error) {
		if _, _, err = b.crowd(ctx, n); err != nil {
			return nil, err
		}
		b.stop("crowd")
		s, c, err := b.crowd(ctx, n)
		if err != nil {
			return nil, err
		}
		var first float64
		for _, active := range []int{1, n / 10, n} {
			if err := touch(ctx, s, c.orgs[:active]); err != nil {
				return nil, err
			}
			heap, err := s.heap(ctx)
			if err != nil {
				return nil, err
			}
			f := fact{what: fmt.Sprintf("memory with %s of %s organizations asked since the start", whole(active), whole(n)),
				figure: fmt.Sprintf("resident %d MiB, heap %.1f MiB", s.resident()>>20, heap/(1<<20))}
			if active == 1 {
				first = heap
			}
			if active == n {
				f.goal = "400 MiB in all"
				f.figure += fmt.Sprintf(", of it %.1f KiB for each organization seen", (heap-first)/float64(n-1)/1024)
			}
			facts = append(facts, f)
		}
		return facts, nil
	}
}

func creating(n int) func(context.Context, *bench) ([]fact, error) {
	return func(ctx context.Context, b *bench) ([]fact, error) {
		_, c, err := b.crowd(ctx, n)
		if err != nil {
			return nil, err
		}
		ms := func(d time.Duration) string { return number(float64(d.Microseconds()) / 1000) }
		made := float64(n - c.counted)
		return []fact{
			{"creating an organization by command, beside a running server", fmt.Sprintf("%s ms, a key %s ms, the start of the command included (median of %d)", ms(c.org), ms(c.key), c.counted), ""},
			{fmt.Sprintf("creating %s organizations with a key each over the server's socket, %d at a time", whole(n-c.counted), c.concurrency), number(made/c.took.Seconds()) + " a second", "2,000 a second"},
			{"disk for each of them, empty but for its key", fmt.Sprintf("%.0f KiB", float64(c.disk)/float64(n)/1024), "40 KiB"},
		}, nil
	}
}

// page asks for one page of the folder.
func page(n, page int) source {
	return func(ctx context.Context, b *bench) (*traffic, error) {
		path, err := b.files(n)
		if err != nil {
			return nil, err
		}
		s, o, err := b.imported(ctx, "folder", path)
		if err != nil {
			return nil, err
		}
		return &traffic{process: s.process, server: s, spread: even, requests: [][]byte{o.request(http.MethodGet, fmt.Sprintf("/api/files/folders/%s?page=%d&per_page=50", folder, page), "")}}, nil
	}
}

func pocketbasePage(n, page int) source {
	ask := url.Values{"filter": {"folder='" + folder[9:] + "'"}, "sort": {"filename"}, "perPage": {"50"}, "page": {strconv.Itoa(page)}}
	return pocketbase(func(b *bench) (string, error) { return b.files(n) }, "/api/collections/files/records?"+ask.Encode())
}

// pocketbase asks a PocketBase that holds a bundle.
func pocketbase(bundle func(*bench) (string, error), paths ...string) source {
	return func(ctx context.Context, b *bench) (*traffic, error) {
		path, err := bundle(b)
		if err != nil {
			return nil, err
		}
		name := "pocketbase-" + filepath.Base(path)
		p, err := b.rival(ctx, name, "pocketbase", filepath.Join(b.dir, name), "default", path)
		if err != nil {
			return nil, err
		}
		t := &traffic{process: p, spread: even}
		for _, path := range paths {
			t.requests = append(t.requests, p.request(http.MethodGet, path, ""))
		}
		return t, nil
	}
}

// values are what a question of the contacts is asked with.
func values(question string) (values []string) {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same each time
	for i := range 100 {
		switch question {
		case "tier":
			values = append(values, fmt.Sprintf("tier-%d", i%tiers))
		case "seats":
			values = append(values, strconv.Itoa(random.IntN(most)))
		default:
			values = append(values, strconv.Itoa(100+random.IntN(900)))
		}
	}
	return values
}

func filtered(n int, question string) source {
	brackets := map[string]string{"tier": "filters[tier]", "seats": "filters[seats][gt]", "contains": "filters[last_name][contains]"}[question]
	return func(ctx context.Context, b *bench) (*traffic, error) {
		s, o, err := b.contactsOrg(ctx, n)
		if err != nil {
			return nil, err
		}
		t := &traffic{process: s.process, server: s, spread: even}
		for _, v := range values(question) {
			t.requests = append(t.requests, o.request(http.MethodGet, countPath+"?"+url.Values{brackets: {v}}.Encode(), ""))
		}
		return t, nil
	}
}

func (b *bench) contactsOrg(ctx context.Context, n int) (*server, org, error) {
	path, err := b.contacts(n)
	if err != nil {
		return nil, org{}, err
	}
	return b.imported(ctx, fmt.Sprintf("contacts-%d", n), path)
}

func pocketbaseFiltered(n int, question string) source {
	condition := map[string]string{"tier": "tier='%s'", "seats": "seats>%s", "contains": "last_name~'%s'"}[question]
	var paths []string
	for _, v := range values(question) {
		paths = append(paths, "/api/collections/contacts/records?"+url.Values{"filter": {fmt.Sprintf(condition, v)}, "perPage": {"1"}, "fields": {"id"}}.Encode())
	}
	return pocketbase(func(b *bench) (string, error) { return b.contacts(n) }, paths...)
}

func sqlAsked(n int, path string) source {
	return func(ctx context.Context, b *bench) (*traffic, error) {
		bundle, err := b.contacts(n)
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("sql-%d", n)
		folder := filepath.Join(b.dir, name)
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, err
		}
		p, err := b.rival(ctx, name, "sql", folder, bundle)
		if err != nil {
			return nil, err
		}
		asked := values(filepath.Base(path))
		if path == "/report" {
			asked = nowhere(most)
		}
		t := &traffic{process: p, spread: even}
		for _, v := range asked {
			t.requests = append(t.requests, p.request(http.MethodGet, path+"?v="+url.QueryEscape(v), ""))
		}
		return t, nil
	}
}

// nowhere are countries that no contact is in, so that questions differ and their answers do not.
func nowhere(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("Nowhere %d", i))
	}
	return names
}

// shared reads the shared report by its token, with so many values of its input.
func shared(n, different int) source {
	return func(ctx context.Context, b *bench) (*traffic, error) {
		s, o, err := b.contactsOrg(ctx, n)
		if err != nil {
			return nil, err
		}
		t := &traffic{process: s.process, server: s, spread: even}
		_, body, err := t.ask(ctx, o.request(http.MethodPost, "/api/custom-reports/"+sharedReport+"/share", "{}"))
		if err != nil {
			return nil, err
		}
		var answer struct{ Data struct{ Token string } }
		if err := json.Unmarshal(body, &answer); err != nil || answer.Data.Token == "" {
			return nil, fmt.Errorf("sharing the report: %s", body)
		}
		reader := org{slug: o.slug}
		for _, v := range nowhere(different) {
			ask := url.Values{"token": {answer.Data.Token}, "data": {"1"}, "params[but]": {v}}
			t.requests = append(t.requests, reader.request(http.MethodGet, "/api/reports/shared/"+pid+"?"+ask.Encode(), ""))
		}
		return t, nil
	}
}

// importing loads contacts into an organization of its own by the command line.
func importing(n int) func(context.Context, *bench) ([]fact, error) {
	return func(ctx context.Context, b *bench) ([]fact, error) {
		path, err := b.contacts(n)
		if err != nil {
			return nil, err
		}
		s, err := b.server(ctx, "main")
		if err != nil {
			return nil, err
		}
		slug := fmt.Sprintf("import-%d", n)
		if _, err := newOrg(ctx, s, slug); err != nil {
			return nil, err
		}
		used, began := s.cpu(), time.Now()
		if _, err := b.command(ctx, s, "import", "--org", slug, path); err != nil {
			return nil, err
		}
		took := time.Since(began)
		return []fact{{"import of " + whole(n) + " contacts by command", fmt.Sprintf("%s a second, %.0f µs of the server's processors each", number(float64(n)/took.Seconds()),
			float64((s.cpu()-used).Microseconds())/float64(n)), "30,000 a second"}}, nil
	}
}

func putForm(o org) (requests [][]byte) {
	for i := range 100 {
		requests = append(requests, o.request(http.MethodPut, "/api/form/collections/"+form, fmt.Sprintf(`{"name":"visit","label":"Visit %d","label_plural":"Visits","schema":{"note":{"title":"Note","type":"LongText"}}}`, i)))
	}
	return requests
}

func createRecord(o org) [][]byte {
	return [][]byte{o.request(http.MethodPost, "/api/custom/objects/tree/records", `{"values":{"species":"oak","height":21.5}}`)}
}

// pocketbaseCreate stores the same in a PocketBase that has nothing else.
func pocketbaseCreate(durability string) source {
	return func(ctx context.Context, b *bench) (*traffic, error) {
		path, err := b.bundle("nothing", func(func(string, ...any)) {})
		if err != nil {
			return nil, err
		}
		name := "pocketbase-writes-" + durability
		p, err := b.rival(ctx, name, "pocketbase", filepath.Join(b.dir, name), durability, path)
		if err != nil {
			return nil, err
		}
		return &traffic{process: p, spread: even, requests: [][]byte{p.request(http.MethodPost, "/api/collections/trees/records", `{"species":"oak","height":21.5}`)}}, nil
	}
}

// deletes deletes files, which there are enough of for every turn.
func deletes(of func(context.Context, *bench, string) (*traffic, func(file string) []byte, error)) source {
	return func(ctx context.Context, b *bench) (*traffic, error) {
		each := int(5000 * b.seconds)
		path, err := b.bundle("deleted", func(line func(string, ...any)) {
			for i := range each * b.turns {
				line(`{"kind":"file","id":"%s","filename":"file %d.pdf","mimetype":"application/pdf"}`, id("e", i), i)
			}
		})
		if err != nil {
			return nil, err
		}
		t, request, err := of(ctx, b, path)
		if err != nil {
			return nil, err
		}
		turn := 0
		t.spread, t.again = once, func(_ context.Context, t *traffic) error {
			t.requests = nil
			for i := range each {
				t.requests = append(t.requests, request(id("e", turn*each+i)))
			}
			turn++
			return nil
		}
		return t, nil
	}
}

func deleteFile(ctx context.Context, b *bench, path string) (*traffic, func(string) []byte, error) {
	s, o, err := b.imported(ctx, "deletes", path)
	if err != nil {
		return nil, nil, err
	}
	return &traffic{process: s.process, server: s}, func(file string) []byte { return o.request(http.MethodDelete, "/api/files/"+file, "") }, nil
}

func pocketbaseDelete(ctx context.Context, b *bench, path string) (*traffic, func(string) []byte, error) {
	p, err := b.rival(ctx, "pocketbase-deletes", "pocketbase", filepath.Join(b.dir, "pocketbase-deletes"), "full", path)
	if err != nil {
		return nil, nil, err
	}
	return &traffic{process: p}, func(file string) []byte {
		return p.request(http.MethodDelete, "/api/collections/files/records/"+file[9:], "")
	}, nil
}

func reveal(o org) (requests [][]byte) {
	for i := range revealed {
		requests = append(requests, o.request(http.MethodGet, "/api/contacts/"+id("c", i)+"/reveal-secret?field=passport", ""))
	}
	return requests
}

// keys are many of one organization, on a server of its own.
func (b *bench) keys(ctx context.Context, n int) (*server, []org, error) {
	s, err := b.server(ctx, "keys")
	if err != nil {
		return nil, nil, err
	}
	keys, err := have(b, fmt.Sprintf("%d keys", n), func() ([]org, error) {
		if _, err := newOrg(ctx, s, "keys"); err != nil {
			return nil, err
		}
		keys := make([]org, n)
		return keys, each(ctx, 8, n, func(i int) (err error) {
			keys[i], err = newKey(ctx, s, "keys", fmt.Sprintf("key %d", i))
			return err
		})
	})
	return s, keys, err
}

// firstLooks counts with every key once, after a start of the server, so that it knows none of them.
func firstLooks(n int) source {
	return func(ctx context.Context, b *bench) (*traffic, error) {
		_, keys, err := b.keys(ctx, n)
		if err != nil {
			return nil, err
		}
		t := &traffic{spread: once, again: func(ctx context.Context, t *traffic) error {
			b.stop("keys")
			s, _, err := b.keys(ctx, n)
			if err != nil {
				return err
			}
			t.process, t.server = s.process, s
			return touch(ctx, s, keys[:1])
		}}
		for _, k := range keys[1:] {
			t.requests = append(t.requests, k.request(http.MethodGet, countPath, ""))
		}
		return t, nil
	}
}

func oneKey(n int) source {
	return func(ctx context.Context, b *bench) (*traffic, error) {
		_, keys, err := b.keys(ctx, n)
		if err != nil {
			return nil, err
		}
		return &traffic{spread: even, requests: [][]byte{keys[0].request(http.MethodGet, countPath, "")}, again: func(ctx context.Context, t *traffic) error {
			s, _, err := b.keys(ctx, n) // which the other side has started anew
			if err == nil {
				t.process, t.server = s.process, s
			}
			return err
		}}, nil
	}
}
