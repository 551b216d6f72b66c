package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"tenantry/gateway/control"
)

const (
	noisy     = 16 // connections of the noisy neighbour
	residents = 60_000
	password  = "four words of a kind"
)

// expensiveCall is a kind of call that uses much of the resources that neighbours share: its name, an operation that
// represents it, and the requests of a noisy organization.
type expensiveCall struct {
	name string
	row  string
	loud func(*neighbourhood) [][]byte
	// fresh makes each turn use a new organization, whose fields have no index.
	fresh bool
}

// expensiveCalls returns the kinds of expensive calls. A test compares them with the rows: every row that is Heavy,
// takes an upload, streams or has limits of its own belongs to one of them.
func expensiveCalls() []expensiveCall {
	contacts := func(ask url.Values) string { return "/api/contacts?" + ask.Encode() }
	return []expensiveCall{
		{name: "filter", row: "campaigns.count", loud: func(h *neighbourhood) [][]byte {
			ask := url.Values{}
			for i := range 48 {
				ask.Set(fmt.Sprintf("filters[or][%d][last_name][contains]", i), fmt.Sprintf("none %d", i))
			}
			return h.loud.gets(countPath + "?" + ask.Encode())
		}},
		{name: "q", row: "contacts.list", loud: func(h *neighbourhood) [][]byte {
			return h.loud.gets(contacts(url.Values{"q": {"nobody has this"}}))
		}},
		{name: "sort", row: "contacts.list", loud: func(h *neighbourhood) [][]byte {
			return h.loud.gets(contacts(url.Values{"sort": {"city,-last_name,first_name"}, "per_page": {"1000"}}))
		}},
		{name: "page", row: "contacts.list", loud: func(h *neighbourhood) (requests [][]byte) {
			for i := range 10 { // different pages, because a repeated one is cached
				requests = append(requests, h.loud.gets(contacts(url.Values{"sort": {"last_name"}, "page": {fmt.Sprint(20 + i)}, "per_page": {"1000"}}))...)
			}
			return requests
		}},
		{name: "report", row: "reports.run", loud: func(h *neighbourhood) [][]byte { return h.reports }},
		{name: "check", row: "audit.verify", loud: func(h *neighbourhood) [][]byte { return [][]byte{h.signedIn("/api/audit/verification")} }},
		{name: "bulk", row: "contacts.bulk", loud: func(h *neighbourhood) [][]byte { return h.loud.bulk() }},
		{name: "import", row: "imports.create", loud: func(h *neighbourhood) [][]byte { return h.imports() }},
		{name: "export", row: "contacts.export", loud: func(h *neighbourhood) [][]byte {
			return h.loud.gets("/api/contacts/export?format=csv")
		}},
		{name: "index", row: "contacts.list", fresh: true, loud: func(h *neighbourhood) [][]byte {
			return append(h.builder.gets(contacts(url.Values{"filters[tier]": {"none"}})), h.builder.gets(contacts(url.Values{"filters[seats]": {"-1"}}))...)
		}},
		{name: "reveal", row: "contacts.reveal", loud: func(h *neighbourhood) (requests [][]byte) {
			for i := range revealed {
				requests = append(requests, h.loud.gets("/api/contacts/"+id("c", i)+"/reveal-secret?field=passport")...)
			}
			return requests
		}},
		{name: "password", row: "sessions.create", loud: func(h *neighbourhood) [][]byte {
			return [][]byte{org{slug: h.loud.slug}.request(http.MethodPost, "/auth/sign-in", h.signIn())}
		}},
	}
}

// probe is a call that a neighbour makes meanwhile.
type probe struct {
	name string
	asks func(org) [][]byte
}

func probes() []probe {
	return []probe{
		{"a report by key", func(o org) [][]byte { return o.gets("/api/custom-reports/" + plainReport) }},
		{"`q`", func(o org) [][]byte { return o.gets("/api/contacts?q=nobody+has+this") }},
		{"a create", func(o org) [][]byte {
			return [][]byte{o.request(http.MethodPost, "/api/custom/objects/tree/records", `{"values":{"species":"oak","height":21.5}}`)}
		}},
	}
}

func (o org) gets(path string) [][]byte { return [][]byte{o.request(http.MethodGet, path, "")} }

// bulk creates 1,000 contacts with 200 tags each, the largest bulk.
func (o org) bulk() [][]byte {
	var body strings.Builder
	body.WriteString(`{"records":[`)
	for i := range 1000 {
		if i > 0 {
			body.WriteByte(',')
		}
		fmt.Fprintf(&body, `{"external_id":"bulk-%d","tags":[`, i)
		for tag := range 200 {
			if tag > 0 {
				body.WriteByte(',')
			}
			fmt.Fprintf(&body, `"t%d"`, tag)
		}
		body.WriteString(`]}`)
	}
	body.WriteString(`]}`)
	return [][]byte{o.request(http.MethodPost, "/api/contacts/bulk", body.String())}
}

// neighbourhood is a noisy organization, a neighbour in its file and one in another file.
type neighbourhood struct {
	server          *server
	loud, near, far org
	builder         org    // the new organization of this turn; see expensiveCall.fresh
	cookie          string // of an administrator of the noisy one
	reports         [][]byte
}

func (h *neighbourhood) signIn() string {
	return fmt.Sprintf(`{"email":"loud@example.com","password":%q}`, password)
}

// signedIn formats a request of the administrator.
func (h *neighbourhood) signedIn(path string) []byte {
	return fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s.localhost\r\nCookie: %s\r\n\r\n", path, h.loud.slug, h.cookie)
}

// imports formats an upload of 20,000 contacts.
func (h *neighbourhood) imports() [][]byte {
	var rows bytes.Buffer
	rows.WriteString("external_id,first_name,last_name,country\n")
	for i := range 20_000 {
		fmt.Fprintf(&rows, "import-%d,First %d,Name %d,DE\n", i, i%700, i%5000)
	}
	var r bytes.Buffer
	fmt.Fprintf(&r, "POST /api/import?as=contacts&key=external_id HTTP/1.1\r\nHost: %s.localhost\r\nCookie: %s\r\nContent-Type: text/csv\r\nContent-Length: %d\r\n\r\n",
		h.loud.slug, h.cookie, rows.Len())
	r.Write(rows.Bytes())
	return [][]byte{r.Bytes()}
}

// fileOf returns the shared file of an organization: the one that is written when a record is created.
func (b *bench) fileOf(ctx context.Context, s *server, o org) (name string, err error) {
	if _, _, err := (&traffic{process: s.process, server: s}).ask(ctx, o.request(http.MethodPost, "/api/contacts", `{"first_name":"Ada"}`)); err != nil {
		return "", err
	}
	var last time.Time
	err = filepath.WalkDir(s.data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasPrefix(d.Name(), "_shared-") || !strings.HasSuffix(path, "-wal") {
			return err
		}
		info, err := d.Info()
		if err == nil && info.ModTime().After(last) {
			name, last = d.Name(), info.ModTime()
		}
		return err
	})
	if err == nil && name == "" {
		err = errors.New("no shared file was written")
	}
	return name, err
}

// newNeighbour creates an organization in the same file as another one, or in a different file.
func (b *bench) newNeighbour(ctx context.Context, s *server, of org, name string, same bool) (org, error) {
	file, err := b.fileOf(ctx, s, of)
	for i := 0; err == nil; i++ {
		var o org
		var where string
		if o, err = newOrg(ctx, s, fmt.Sprintf("%s-%d", name, i)); err == nil {
			where, err = b.fileOf(ctx, s, o)
		}
		if err == nil && (where == file) == same {
			return o, nil
		}
	}
	return org{}, err
}

// neighbours creates three organizations with equal data.
func (b *bench) neighbours(ctx context.Context) (*neighbourhood, error) {
	h, err := memoize(b, "the neighbours", func() (h *neighbourhood, err error) {
		h = &neighbourhood{}
		s, err := b.server(ctx, "main")
		if err != nil {
			return nil, err
		}
		if h.loud, err = newOrg(ctx, s, "loud"); err != nil {
			return nil, err
		}
		h.near, err = b.newNeighbour(ctx, s, h.loud, "near", true)
		if err == nil {
			h.far, err = b.newNeighbour(ctx, s, h.loud, "far", false)
		}
		for _, o := range []org{h.loud, h.near, h.far} {
			for _, of := range []bundle{contactsBundle(residents / b.small), smallBundle()} {
				if err == nil {
					err = b.give(ctx, s, o, of)
				}
			}
		}
		if err == nil {
			_, err = control.Call[control.User](ctx, s.commands, "user.create", control.NewUser{Org: h.loud.slug,
				UserFields: control.UserFields{Name: "Loud", Email: "loud@example.com", Roles: []string{"admin"}, Password: password}})
		}
		return h, err
	})
	if err != nil {
		return nil, err
	}
	if h.server, err = b.server(ctx, "main"); err != nil {
		return nil, err
	}
	t := &traffic{process: h.server.process, server: h.server}
	header, _, err := t.ask(ctx, org{slug: h.loud.slug}.request(http.MethodPost, "/auth/sign-in", h.signIn()))
	if err != nil {
		return nil, err
	}
	h.cookie, _, _ = strings.Cut(header.Get("Set-Cookie"), ";")
	reports, err := shared(func(context.Context, *bench) (*traffic, caller, error) { return t, h.loud, nil }, distinctSeats)(ctx, b)
	if err == nil {
		h.reports = reports.requests
	}
	return h, err
}

// give imports a bundle into an organization.
func (b *bench) give(ctx context.Context, s *server, o org, of bundle) error {
	path, err := b.file(of)
	if err == nil {
		_, err = b.command(ctx, s, "import", "--org", o.slug, path)
	}
	return err
}

// noisyLines returns a line for each kind of expensive call, with a neighbour's calls next to it.
func noisyLines() (lines []line) {
	for _, d := range expensiveCalls() {
		lines = append(lines, line{name: "noisy-" + d.name, what: "a neighbour next to " + d.name, measure: d.measure})
	}
	return lines
}

// measure measures the probes of both neighbours in turns, alone and while the noisy organization sends its calls.
func (d expensiveCall) measure(ctx context.Context, b *bench) (facts []fact, err error) {
	h, err := b.neighbours(ctx)
	if err != nil {
		return nil, err
	}
	for _, of := range []struct {
		where string
		org
	}{{"in the same file", h.near}, {"in another file", h.far}} {
		for at, p := range probes() {
			f, err := d.measureProbe(ctx, b, h, p, at, of.org)
			if err != nil {
				return facts, fmt.Errorf("%s %s: %w", p.name, of.where, err)
			}
			f.what = fmt.Sprintf("%s of a neighbour %s, next to %d connections with %s", p.name, of.where, noisy, d.name)
			b.say("%s: %s", f.what, f.figure)
			facts = append(facts, f)
		}
	}
	return facts, nil
}

// measureProbe measures one probe, the at-th.
func (d expensiveCall) measureProbe(ctx context.Context, b *bench, h *neighbourhood, p probe, at int, neighbour org) (f fact, err error) {
	quiet := &traffic{process: h.server.process, server: h.server, requests: p.asks(neighbour), spread: even}
	var alone, beside []float64
	failed, answers := 0.0, 0.0
	for turn := range b.turns {
		r, err := b.run(ctx, quiet, 1, b.seconds)
		if err != nil {
			return f, err
		}
		alone = append(alone, r.P99/1000)
		if d.fresh {
			name := fmt.Sprintf("builder-%s-%d-%d", neighbour.slug, at, turn)
			if h.builder, err = b.newNeighbour(ctx, h.server, neighbour, name, neighbour == h.near); err == nil {
				err = b.give(ctx, h.server, h.builder, contactsBundle(residents/b.small))
			}
			if err != nil {
				return f, err
			}
		}
		loud := &traffic{process: h.server.process, server: h.server, requests: d.loud(h), spread: even}
		var other result
		ended := make(chan error, 1)
		go func() {
			var err error
			if other, err = b.run(ctx, loud, noisy, b.seconds+1); errors.Is(err, errNoAnswer) {
				err = nil // all calls wait for each other
			}
			ended <- err
		}()
		time.Sleep(time.Second) // until the noisy calls have begun
		r, err = b.run(ctx, quiet, 1, b.seconds)
		if err := errors.Join(<-ended, err); err != nil {
			return f, err
		}
		beside, failed, answers = append(beside, r.P99/1000), failed+r.Refused+r.Broken, answers+other.Requests
	}
	a, n := median(alone), median(beside)
	f.figure = fmt.Sprintf("p99 %s ms, alone %s; %.0f failed, while the other had %.0f answers", number(n), number(a), failed, answers)
	if failed > 0 || n > 1.2*a && n > a+10 {
		f.figure = "**" + f.figure + "**"
	}
	f.goal = "1.2 times or 10 ms more, none failed"
	return f, nil
}
