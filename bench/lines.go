package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// line is a line of the table: the requests to Tenantry and the references to compare with. If measure is set, the line
// has single figures instead.
type line struct {
	name, what  string
	connections int
	ours        source
	references  []reference
	measure     func(context.Context, *bench) ([]fact, error)
	long        bool
}

// reference is the other side of a comparison. With 0 connections it has those of the line.
type reference struct {
	name, goal  string
	from        source
	connections int
}

// source creates the data and returns the traffic.
type source func(context.Context, *bench) (*traffic, error)

// place creates the data and returns the traffic, without requests, and the caller that formats them.
type place func(context.Context, *bench) (*traffic, caller, error)

// caller formats requests as they go over the wire.
type caller interface {
	request(method, path, body string) []byte
}

// get requests the paths at random.
func (p place) get(paths ...string) source {
	return p.asked(func(_ *bench, c caller) (requests [][]byte) {
		for _, path := range paths {
			requests = append(requests, c.request(http.MethodGet, path, ""))
		}
		return requests
	})
}

// send sends the bodies at random.
func (p place) send(method, path string, bodies ...string) source {
	return p.asked(func(_ *bench, c caller) (requests [][]byte) {
		for _, body := range bodies {
			requests = append(requests, c.request(method, path, body))
		}
		return requests
	})
}

func (p place) asked(requests func(*bench, caller) [][]byte) source {
	return func(ctx context.Context, b *bench) (*traffic, error) {
		t, c, err := p(ctx, b)
		if err == nil {
			t.requests, t.spread = requests(b, c), even
		}
		return t, err
	}
}

func names(lines []line) (names []string) {
	for i, l := range lines {
		if i == 0 || l.name != lines[i-1].name {
			names = append(names, l.name)
		}
	}
	return names
}

// lines returns all lines, with the number of records divided by fewer.
func lines(fewer int) []line {
	crowd, files, keys := 10_000/fewer, 100_000/fewer, 5_000/fewer
	small, large := orgWith("small", smallBundle()), orgWith("folder", filesBundle(files))
	theirs := rivalWith("pocketbase", "folder", filesBundle(files), asItComes)
	page := func(n int) source {
		return large.get(fmt.Sprintf("/api/files/folders/%s?page=%d&per_page=50", folder, n))
	}
	theirPage := func(n int) reference {
		ask := url.Values{"filter": {"folder='" + short(folder) + "'"}, "sort": {"filename"}, "perPage": {"50"}, "page": {strconv.Itoa(n)}}
		return reference{name: "PocketBase", goal: "5", from: theirs.get("/api/collections/files/records?" + ask.Encode())}
	}
	report := small.get("/api/custom-reports/" + plainReport)
	one := func(goal string) []reference {
		return []reference{{name: "one organization", goal: goal, from: counts(crowd, 1, even)}}
	}
	all := []line{
		{name: "report", what: "a custom report by key", connections: 32,
			ours: report, references: []reference{{name: "bare Gin", goal: "0.70", from: bareGin(report)}}},
		{name: "organizations", what: "campaign counts over 1,000 organizations, evenly", connections: 32,
			ours: counts(crowd, crowd/10, even), references: one("0.80")},
		{name: "organizations", what: "campaign counts over 10,000 organizations, evenly", connections: 32,
			ours: counts(crowd, crowd, even), references: one("0.60")},
		{name: "organizations", what: "campaign counts over 10,000 organizations, by Zipf with s = 1.1", connections: 32,
			ours: counts(crowd, crowd, zipf), references: one("0.80")},
		{name: "memory", what: "memory by active organizations", measure: memory(crowd)},
		{name: "crowd", what: "creating organizations", measure: creating(crowd)},
		{name: "soak", what: "a soak", long: true, measure: soak(crowd)},
		{name: "backup", what: "load next to backups", measure: backingUp},
		{name: "restore", what: "restoring", measure: restoring},
		{name: "folder", what: "page 1 of a folder of 100,000 files, 50 a page", connections: 8,
			ours: page(1), references: []reference{theirPage(1)}},
		{name: "folder", what: "page 1,000 of it", connections: 8,
			ours: page(files / 100), references: []reference{theirPage(files / 100)}},
		{name: "folder", what: "page 2,000 of it, the last", connections: 8,
			ours:       page(files / 50),
			references: []reference{theirPage(files / 50), {name: "page 1", goal: "0.50", from: page(1)}}},
	}
	for _, n := range []int{100_000 / fewer, 1_000_000 / fewer} {
		all = append(all, contactLines(n, n > 100_000/fewer, report)...)
	}
	all = append(all, line{name: "import", what: "import of 10,000 contacts", measure: importing(10_000 / fewer)})

	var forms, secrets []string
	for i := range revealed {
		forms = append(forms, fmt.Sprintf(`{"name":"visit","label":"Visit %d","label_plural":"Visits","schema":{"note":{"title":"Note","type":"LongText"}}}`, i))
		secrets = append(secrets, "/api/contacts/"+id("c", i)+"/reveal-secret?field=passport")
	}
	put := small.send(http.MethodPut, "/api/form/collections/"+form, forms...)
	create := small.send(http.MethodPost, "/api/custom/objects/tree/records", `{"values":{"species":"oak","height":21.5}}`)
	creates := func(goal string) (beside []reference) {
		for _, durability := range []string{durable, asItComes} {
			from := rivalWith("pocketbase", "writes-"+durability, bundle{name: "nothing"}, durability)
			beside = append(beside, reference{name: "PocketBase, " + durability, goal: goal, from: from.send(http.MethodPost, "/api/collections/trees/records", `{"species":"oak","height":21.5}`)})
			goal = ""
		}
		return beside
	}
	told := orgWith("followed", smallBundle())
	tell := told.send(http.MethodPost, "/api/custom/objects/tree/records", `{"values":{"species":"oak","height":21.5}}`)
	nobody := []reference{{name: "nobody follows", goal: "0.9", from: create}}
	all = append(all, noisyLines()...)
	return append(all,
		line{name: "events", what: "creates of a record in an organization that is followed", connections: 1, ours: followed(tell, told), references: nobody},
		line{name: "events", what: "creates of a record in an organization that is followed", connections: 32, ours: followed(tell, told), references: nobody},
		line{name: "events", what: "streams", measure: streaming(told)},
		line{name: "webhooks", what: "deliveries", measure: delivering(orgWith("sent", smallBundle()))},
		line{name: "events", what: "creates of a record next to 1,000 streams", connections: 32, ours: besideStreams(followed(tell, told), told, fewerStreams),
			references: []reference{{name: "nobody follows", goal: "0.9", from: create}}},
		line{name: "put", what: "PUT of one form by 32 writers", connections: 32,
			ours:       put,
			references: []reference{{name: "one writer", goal: "1, none failed", from: put, connections: 1}}},
		line{name: "create", what: "creates of a record", connections: 1, ours: create, references: creates("1.2")},
		line{name: "create", what: "creates of a record", connections: 32, ours: create, references: creates("5")},
		line{name: "delete", what: "DELETE of a file", connections: 32,
			ours: orgWith("deletes", deletedBundle()).deletes(func(file string) string { return "/api/files/" + file }),
			references: []reference{{name: "PocketBase, " + durable, from: rivalWith("pocketbase", "deletes", deletedBundle(), durable).
				deletes(func(file string) string { return "/api/collections/files/records/" + short(file) })}}},
		line{name: "download", what: "download of a file of 10 MB", connections: 8, ours: small.downloads(),
			references: []reference{{name: "http.FileServer", from: staticFile}, {name: "PocketBase", from: recordFile}}},
		line{name: "reveal", what: "reveal of an encrypted field, each with its audit record", connections: 32,
			ours:       small.get(secrets...),
			references: []reference{{name: "the same bare Gin", goal: "15,000/s", from: bareGin(report)}}},
		line{name: "keys", what: "first uses of 5,000 keys after a start", connections: 32,
			ours: firstLooks(keys), references: []reference{{name: "one key", goal: "0.70", from: oneKey(keys)}}},
	)
}

// Durability of PocketBase, and a path of Tenantry.
const (
	durable   = "synchronous=FULL" // a write is on disk when it is acknowledged, as in Tenantry
	asItComes = "synchronous=NORMAL"
	countPath = "/api/campaigns/count"
)

// contactLines returns the lines for an organization with n contacts.
func contactLines(n int, long bool, neighbour source) []line {
	of, limit, scan := " of "+withCommas(n)+" contacts", "3 ms", "40 ms without an index"
	if long {
		limit, scan = "25 ms", "400 ms without an index"
	}
	data := contactsBundle(n)
	org, records, sql := orgWith(data.name, data), rivalWith("pocketbase", data.name, data, asItComes), rivalWith("sql", data.name, data)
	count := func(what, brackets, filter, path string, values []string, goal, goalOfSQL string) line {
		var ours, theirs, sqls []string
		for _, v := range values {
			ours = append(ours, countPath+"?"+url.Values{brackets: {v}}.Encode())
			theirs = append(theirs, "/api/collections/contacts/records?"+url.Values{"filter": {fmt.Sprintf(filter, v)}, "perPage": {"1"}, "fields": {"id"}}.Encode())
			sqls = append(sqls, path+"?v="+v)
		}
		return line{name: "count", what: what + of, connections: 1, long: long,
			ours: org.get(ours...), references: []reference{
				{name: "PocketBase", goal: goal, from: records.get(theirs...)}, {name: "SQL by hand", goal: goalOfSQL, from: sql.get(sqls...)},
			}}
	}
	var tierNames, numbers, words, reports []string
	for i := range distinctSeats {
		numbers = append(numbers, strconv.Itoa(i))
		words = append(words, countPath+"?"+url.Values{"filters[last_name][contains]": {strconv.Itoa(i)}}.Encode())
		reports = append(reports, "/report?v="+url.QueryEscape(unknownCountry(i)))
	}
	for i := range tiers {
		tierNames = append(tierNames, fmt.Sprintf("tier-%d", i))
	}
	byCountry := sql.get(reports...)
	return []line{
		count("a count by the organization's own field, equal, ten values over and over,", "filters[tier]", "tier='%s'", "/count/tier", tierNames, limit, ""),
		count("a count by the organization's own field, equal, a thousand values,", "filters[seats]", "seats=%s", "/count/seats-equal", numbers, limit, scan),
		count("a count by the organization's own field, greater, a thousand values,", "filters[seats][gt]", "seats>%s", "/count/seats", numbers, limit, scan),
		count("a count by `contains`", "filters[last_name][contains]", "last_name~'%s'", "/count/contains", numbers[100:], "", ""),
		{name: "neighbours", what: "neighbours" + of, long: long, measure: besideSlow(neighbour, org.get(words...), of)},
		{name: "shared", what: "a secure shared report, by country," + of + ", each time another query", connections: 1, long: long,
			ours:       shared(org, distinctSeats),
			references: []reference{{name: "SQL by hand", goal: "0.91", from: byCountry}}},
		{name: "shared", what: "the same report, each time another query", connections: 32, long: long,
			ours:       shared(org, distinctSeats),
			references: []reference{{name: "SQL by hand", goal: "0.91", from: byCountry}}},
		{name: "shared", what: "the same report, all with one query", connections: 32, long: long,
			ours:       shared(org, 1),
			references: []reference{{name: "each with its own", from: shared(org, distinctSeats)}}},
		{name: "import", what: "import" + of, long: long, measure: importing(n)},
	}
}

// deletes deletes the files of deletedBundle, other ones in each turn.
func (p place) deletes(path func(file string) string) source {
	return func(ctx context.Context, b *bench) (*traffic, error) {
		t, c, err := p(ctx, b)
		if err != nil {
			return nil, err
		}
		each, turn := b.deletions()/b.turns, 0
		t.spread, t.prepare = once, func(_ context.Context, t *traffic) error {
			t.requests = nil
			for i := range each {
				t.requests = append(t.requests, c.request(http.MethodDelete, path(id("e", turn*each+i)), ""))
			}
			turn++
			return nil
		}
		return t, nil
	}
}

// bareGin runs a Gin that answers with the bytes and headers of another source.
func bareGin(other source) source {
	return func(ctx context.Context, b *bench) (*traffic, error) {
		ours, err := other(ctx, b)
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
			if name != "Date" && name != "Content-Length" { // the server writes these itself
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
		return &traffic{process: p, requests: ours.requests, spread: even}, err
	}
}

// counts counts all contacts in the first of n organizations, after one request to each of them.
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
		return t, warmUp(ctx, s, c.orgs[:first])
	}
}

// memory measures a newly started server after requests to 1, a tenth and all of n organizations.
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
			if err := warmUp(ctx, s, c.orgs[:active]); err != nil {
				return nil, err
			}
			heap, err := s.heap(ctx)
			if err != nil {
				return nil, err
			}
			f := fact{what: fmt.Sprintf("memory with %s of %s organizations called since the start", withCommas(active), withCommas(n)),
				figure: fmt.Sprintf("resident %d MiB, heap %.1f MiB", s.resident()>>20, heap/(1<<20))}
			if active == 1 {
				first = heap
			}
			if active == n {
				f.goal = "400 MiB in all"
				f.figure += fmt.Sprintf(", %.1f KiB of it for each called organization", (heap-first)/float64(n-1)/1024)
			}
			facts = append(facts, f)
		}
		return facts, nil
	}
}

// soak reads and writes in all organizations for five minutes and reports the server's resources in each half. Growth
// with time shows in the second half.
func soak(n int) func(context.Context, *bench) ([]fact, error) {
	return func(ctx context.Context, b *bench) ([]fact, error) {
		s, c, err := b.crowd(ctx, n)
		if err != nil {
			return nil, err
		}
		t := mixed(s, c.orgs)
		const slices = 10
		var resident, files [2]int64
		var heap [2]float64
		var all result
		for i := range slices {
			r, err := b.run(ctx, t, 32, max(1, 30/float64(b.small)))
			if err != nil {
				return nil, err
			}
			all.Requests, all.Seconds, all.Refused = all.Requests+r.Requests, all.Seconds+r.Seconds, all.Refused+r.Refused
			half := i / (slices / 2)
			resident[half], files[half] = max(resident[half], s.resident()), max(files[half], s.descriptors())
			if heap[half], err = s.heap(ctx); err != nil { // the last value is that of the end of the half
				return nil, err
			}
		}
		what := fmt.Sprintf("%s organizations read and written for %.0f s, a fifth of it writes: ", withCommas(n), all.Seconds)
		return []fact{
			{what + "answers, and failures among them", fmt.Sprintf("%s a second, %.0f", number(all.rate()), all.Refused), "none"},
			{what + "the most memory in each half", fmt.Sprintf("%d and %d MiB", resident[0]>>20, resident[1]>>20), "equal"},
			{what + "the heap at the end of each half", fmt.Sprintf("%.0f and %.0f MiB", heap[0]/(1<<20), heap[1]/(1<<20)), "equal"},
			{what + "the most open files in each half", fmt.Sprintf("%d and %d", files[0], files[1]), "equal"},
		}, nil
	}
}

// creating reports how long it took to create n organizations and their keys.
func creating(n int) func(context.Context, *bench) ([]fact, error) {
	return func(ctx context.Context, b *bench) ([]fact, error) {
		_, c, err := b.crowd(ctx, n)
		if err != nil {
			return nil, err
		}
		ms := func(d time.Duration) string { return number(float64(d.Microseconds()) / 1000) }
		made := float64(n - c.counted)
		return []fact{
			{"creating an organization by command, next to a running server", fmt.Sprintf("%s ms, a key %s ms, the start of the command included (median of %d)", ms(c.org), ms(c.key), c.counted), ""},
			{fmt.Sprintf("creating %s organizations by one command, from a file", withCommas(n-c.counted)), number(made/c.took.Seconds()) + " a second", "2,000 a second"},
			{fmt.Sprintf("creating a key in each of them over the server's socket, %d at a time", c.concurrency), number(made/c.keyed.Seconds()) + " a second", ""},
			{"disk for each of them, empty except for its key", fmt.Sprintf("%.0f KiB", float64(c.disk)/float64(n)/1024), "40 KiB"},
		}, nil
	}
}

// unknownCountry returns a country that no contact has, so that queries differ while their answers do not.
func unknownCountry(i int) string { return fmt.Sprintf("Nowhere %d", i) }

// shared reads the shared report with its token and that many different values of its input.
func shared(p place, different int) source {
	return func(ctx context.Context, b *bench) (*traffic, error) {
		t, c, err := p(ctx, b)
		if err != nil {
			return nil, err
		}
		_, body, err := t.ask(ctx, c.request(http.MethodPost, "/api/custom-reports/"+sharedReport+"/share", "{}"))
		if err != nil {
			return nil, err
		}
		var answer struct{ Data struct{ Token string } }
		if err := json.Unmarshal(body, &answer); err != nil {
			return nil, fmt.Errorf("sharing the report: %w", err)
		}
		reader := org{slug: c.(org).slug}
		t.spread = even
		for i := range different {
			ask := url.Values{"token": {answer.Data.Token}, "data": {"1"}, "params[but]": {unknownCountry(i)}}
			t.requests = append(t.requests, reader.request(http.MethodGet, "/api/reports/shared/"+pid+"?"+ask.Encode(), ""))
		}
		return t, nil
	}
}

// besideSlow measures reads of one organization while another one on the same server has many slow queries.
func besideSlow(reads, slow source, of string) func(context.Context, *bench) ([]fact, error) {
	return func(ctx context.Context, b *bench) ([]fact, error) {
		quiet, err := reads(ctx, b)
		if err != nil {
			return nil, err
		}
		loud, err := slow(ctx, b)
		if err != nil {
			return nil, err
		}
		var alone, together, waits, counts []float64
		refused := 0.0
		for range b.turns {
			r, err := b.run(ctx, quiet, 8, b.seconds)
			if err != nil {
				return nil, err
			}
			alone = append(alone, r.rate())
			var other result
			ended := make(chan error, 1)
			go func() {
				var err error
				other, err = b.run(ctx, loud, 32, b.seconds+2)
				ended <- err
			}()
			time.Sleep(time.Second) // until the slow queries have begun
			r, err = b.run(ctx, quiet, 8, b.seconds)
			if err := errors.Join(<-ended, err); err != nil {
				return nil, err
			}
			together, waits, counts, refused = append(together, r.rate()), append(waits, r.Median/1000), append(counts, other.rate()), refused+other.Refused
		}
		return []fact{{"a custom report by key, 8 connections, while 32 of another organization count by `contains`" + of,
			fmt.Sprintf("%s a second with a median of %s ms, alone %s; counts %s a second, %.0f failed", number(median(together)), number(median(waits)), number(median(alone)), number(median(counts)), refused), ""}}, nil
	}
}

// importing imports contacts into a new organization with the command line.
func importing(n int) func(context.Context, *bench) ([]fact, error) {
	return func(ctx context.Context, b *bench) ([]fact, error) {
		path, err := b.file(contactsBundle(n))
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
		return []fact{{"import of " + withCommas(n) + " contacts by command", fmt.Sprintf("%s a second, %.0f µs of the server's processors each", number(float64(n)/took.Seconds()),
			float64((s.cpu()-used).Microseconds())/float64(n)), "30,000 a second"}}, nil
	}
}

// keys returns n keys of one organization on a server of its own.
func (b *bench) keys(ctx context.Context, n int) (*server, []org, error) {
	s, err := b.server(ctx, "keys")
	if err != nil {
		return nil, nil, err
	}
	keys, err := memoize(b, fmt.Sprintf("%d keys", n), func() ([]org, error) {
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

// firstLooks uses every key once after a start of the server, when none of them is cached.
func firstLooks(n int) source {
	return func(ctx context.Context, b *bench) (*traffic, error) {
		_, keys, err := b.keys(ctx, n)
		if err != nil {
			return nil, err
		}
		t := &traffic{spread: once, prepare: func(ctx context.Context, t *traffic) error {
			b.stop("keys")
			s, _, err := b.keys(ctx, n)
			if err != nil {
				return err
			}
			t.process, t.server = s.process, s
			return warmUp(ctx, s, keys[:1])
		}}
		for _, k := range keys[1:] {
			t.requests = append(t.requests, k.request(http.MethodGet, countPath, ""))
		}
		return t, nil
	}
}

// oneKey uses one of n keys again and again.
func oneKey(n int) source {
	return func(ctx context.Context, b *bench) (*traffic, error) {
		_, keys, err := b.keys(ctx, n)
		if err != nil {
			return nil, err
		}
		return &traffic{spread: even, requests: [][]byte{keys[0].request(http.MethodGet, countPath, "")}, prepare: func(ctx context.Context, t *traffic) error {
			s, _, err := b.keys(ctx, n) // the other side has restarted it
			if err == nil {
				t.process, t.server = s.process, s
			}
			return err
		}}, nil
	}
}
