package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tenantry/gateway/control"
)

// made is the result of a function of memoize, or its error.
type made struct {
	what any
	err  error
}

// memoize calls do once for each name and returns its result every time.
func memoize[T any](b *bench, name string, do func() (T, error)) (T, error) {
	m, ok := b.made[name]
	if !ok {
		b.say("making %s", name)
		what, err := do()
		if err != nil {
			err = fmt.Errorf("making %s: %w", name, err)
		}
		m = made{what, err}
		b.made[name] = m
	}
	return m.what.(T), m.err
}

// org is an organization with a key for all permissions that the benchmarks need.
type org struct {
	slug, key string
}

const account = "bench" // the service account of all keys

func newOrg(ctx context.Context, s *server, slug string) (o org, err error) {
	created := control.NewOrganization{Slug: slug, OrganizationFields: control.OrganizationFields{Name: slug}}
	if _, err = control.Call[control.Organization](ctx, s.commands, "org.create", created); err != nil {
		return o, err
	}
	return newKey(ctx, s, slug, account)
}

func newKey(ctx context.Context, s *server, slug, name string) (org, error) {
	key := control.NewKey{Org: slug, Name: name, Kind: "server_full"}
	if name == account {
		key.Permissions = []string{ // of the account, which is created with the key
			"contacts", "manage_files", "manage_custom_objects", "manage_forms", "manage_reports", "manage_campaigns",
			"manage_users", "manage_webhooks",
		}
	} else {
		key.Account = account
	}
	made, err := control.Call[control.IssuedKey](ctx, s.commands, "key.create", key)
	return org{slug, made.Token}, err
}

// request formats a request with the key and the body, unless these are empty.
func (o org) request(method, path, body string) []byte {
	var r bytes.Buffer
	fmt.Fprintf(&r, "%s %s HTTP/1.1\r\nHost: %s.localhost\r\n", method, path, o.slug)
	if o.key != "" {
		fmt.Fprintf(&r, "X-Service-Token: %s\r\n", o.key)
	}
	return finish(&r, body)
}

// request formats a request to a rival.
func (p *process) request(method, path, body string) []byte {
	var r bytes.Buffer
	fmt.Fprintf(&r, "%s %s HTTP/1.1\r\nHost: localhost\r\n", method, path)
	if p.token != "" {
		fmt.Fprintf(&r, "Authorization: %s\r\n", p.token)
	}
	return finish(&r, body)
}

func finish(r *bytes.Buffer, body string) []byte {
	if body != "" {
		fmt.Fprintf(r, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	r.WriteString("\r\n" + body)
	return r.Bytes()
}

// bundle is a file of lines that Tenantry imports and that rivals read.
type bundle struct {
	name  string
	write func(b *bench, line func(format string, args ...any)) // nil: the bundle is empty
}

// file writes the bundle once and returns its path.
func (b *bench) file(of bundle) (string, error) {
	return memoize(b, "the bundle "+of.name, func() (string, error) {
		path := filepath.Join(b.dir, of.name+".ndjson")
		f, err := os.Create(path)
		if err != nil {
			return "", err
		}
		w := bufio.NewWriterSize(f, 1<<20)
		if of.write != nil {
			of.write(b, func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) })
		}
		return path, errors.Join(w.Flush(), f.Close())
	})
}

// orgWith is an organization of the main server with the content of a bundle.
func orgWith(slug string, of bundle) place {
	return func(ctx context.Context, b *bench) (*traffic, caller, error) {
		s, err := b.server(ctx, "main")
		if err != nil {
			return nil, nil, err
		}
		o, err := memoize(b, "organization "+slug, func() (o org, err error) {
			path, err := b.file(of)
			if err == nil {
				o, err = newOrg(ctx, s, slug)
			}
			if err != nil {
				return o, err
			}
			f, err := os.Open(path)
			if err != nil {
				return o, err
			}
			defer f.Close()
			_, err = s.commands.Do(ctx, "import", control.ImportRequest{Org: slug}, control.Streams{Input: f})
			return o, err
		})
		return &traffic{process: s.process, server: s}, o, err
	}
}

// rivalWith is a rival with the content of a bundle.
func rivalWith(program, name string, of bundle, more ...string) place {
	return func(ctx context.Context, b *bench) (*traffic, caller, error) {
		path, err := b.file(of)
		if err != nil {
			return nil, nil, err
		}
		name := program + "-" + name
		p, err := b.rival(ctx, name, program, append([]string{filepath.Join(b.dir, name), path}, more...)...)
		return &traffic{process: p}, p, err
	}
}

const (
	plainReport   = "0000000000000000000000a1"
	sharedReport  = "0000000000000000000000a2"
	form          = "0000000000000000000000b1"
	folder        = "0000000000000000000000f1"
	pid           = "benchmark-report-pid-0001"
	revealed      = 1000 // contacts with a secret
	tiers         = 10
	distinctSeats = 1000
	countries     = "DE FR GB ES IT NL PL SE US CA BR MX JP KR IN AU ZA NG KE EG AT CH BE DK FI NO PT GR IE CZ"
)

func id(first string, i int) string { return fmt.Sprintf("%s%0*d", first, 24-len(first), i) }

// short returns an identifier as PocketBase has it.
func short(id string) string { return id[len(id)-15:] }

// smallBundle has the data of the lines whose figures do not depend on the number of records.
func smallBundle() bundle {
	return bundle{"small", func(_ *bench, line func(string, ...any)) {
		line(`{"kind":"custom_report","id":"%s","title":"By country","class":"Contacts","query":{"group_by":[{"field":"country"}],"measures":[{"op":"count"}],"sort":["-count"]},"secure":true,"shareable":true}`, plainReport)
		line(`{"kind":"custom_object","name":"tree","label":"Tree","label_plural":"Trees","schema":{"species":{"title":"Species","type":"Text","required":true},"height":{"title":"Height","type":"Number"}}}`)
		line(`{"kind":"form_collection","id":"%s","name":"visit","label":"Visit","label_plural":"Visits","schema":{"note":{"title":"Note","type":"LongText"}}}`, form)
		line(`{"kind":"contact_field","key":"passport","title":"Passport","type":"Encrypted"}`)
		for i := range revealed {
			line(`{"kind":"contact","id":"%s","email":"c%d@example.com","fields":{"passport":"X%08d"}}`, id("c", i), i, i)
		}
	}}
}

// filesBundle has a folder with many files.
func filesBundle(n int) bundle {
	return bundle{"files", func(_ *bench, line func(string, ...any)) {
		line(`{"kind":"folder","id":"%s","name":"Large"}`, folder)
		for i := range n {
			line(`{"kind":"file","id":"%s","filename":"file %06d.pdf","mimetype":"application/pdf","folder_id":"%s"}`, id("d", i), i, folder)
		}
	}}
}

// deletedBundle has files to delete, enough for every turn.
func deletedBundle() bundle {
	return bundle{"deleted", func(b *bench, line func(string, ...any)) {
		for i := range b.deletions() {
			line(`{"kind":"file","id":"%s","filename":"file %d.pdf","mimetype":"application/pdf"}`, id("e", i), i)
		}
	}}
}

// deletions returns more deletions than a fast machine can make.
func (b *bench) deletions() int { return b.turns * int(20_000*b.seconds) }

// contactsBundle has contacts with fields of the organization's own, and a report on them.
func contactsBundle(n int) bundle {
	return bundle{fmt.Sprintf("contacts-%d", n), func(_ *bench, line func(string, ...any)) {
		line(`{"kind":"contact_field","key":"tier","title":"Tier","type":"Text"}`)
		line(`{"kind":"contact_field","key":"seats","title":"Seats","type":"Number"}`)
		line(`{"kind":"custom_report","id":"%s","pid":"%s","title":"By country","class":"Contacts","query":{"filter":{"country":{"ne":{"input":"but"}}},"group_by":[{"field":"country"}],"measures":[{"op":"count"}],"sort":["-count"]},"input":{"but":{"title":"But","type":"text","rule":"editable"}},"secure":true,"shareable":true}`, sharedReport, pid)
		countries := strings.Fields(countries)
		for i := range n {
			mixed := int(uint32(i) * 2654435761 >> 8) // so that equal values are not adjacent
			line(`{"kind":"contact","id":"%s","email":"c%d@example.com","first_name":"First %d","last_name":"Name %05d","country":"%s","city":"City %d","status":"%s","fields":{"tier":"tier-%d","seats":%d}}`,
				id("c", i), i, mixed%700, mixed%5000, countries[mixed%len(countries)], mixed%500, []string{"active", "inactive", "new"}[mixed%3], mixed/7%tiers, mixed/11%distinctSeats)
		}
	}}
}

// crowd is many organizations on a server of their own, and how long it took to create them.
type crowd struct {
	orgs        []org
	took, keyed time.Duration // to create the organizations from a file, and a key for each of them
	disk        int64         // bytes on disk of all organizations
	org, key    time.Duration
	counted     int // organizations that were created by single commands, to measure org and key
	concurrency int
}

// crowd creates n organizations with a key each, the first of them by single commands, the others by one command from a
// file.
func (b *bench) crowd(ctx context.Context, n int) (*server, *crowd, error) {
	return b.crowdOn(ctx, "crowd", n)
}

// crowdOn is crowd on a server of that name.
func (b *bench) crowdOn(ctx context.Context, name string, n int) (*server, *crowd, error) {
	c, err := memoize(b, withCommas(n)+" organizations of "+name, func() (*crowd, error) {
		s, err := b.server(ctx, name)
		if err != nil {
			return nil, err
		}
		c := &crowd{orgs: make([]org, n), counted: min(20, n/2), concurrency: 8}
		before, err := size(s.data)
		if err != nil {
			return nil, err
		}
		var orgs, keys []float64
		for i := range c.counted {
			slug := fmt.Sprintf("o%d", i)
			began := time.Now()
			if _, err := b.command(ctx, s, "org", "create", "--slug", slug, "--name", slug); err != nil {
				return nil, err
			}
			orgs = append(orgs, time.Since(began).Seconds())
			began = time.Now()
			out, err := b.command(ctx, s, "key", "create", "--org", slug, "--name", "bench", "--kind", "server_full", "--permission", "contacts")
			if err != nil {
				return nil, err
			}
			keys = append(keys, time.Since(began).Seconds())
			var key struct{ Token string }
			if err := json.Unmarshal(out, &key); err != nil {
				return nil, err
			}
			c.orgs[i] = org{slug, key.Token}
		}
		c.org, c.key = time.Duration(median(orgs)*1e9), time.Duration(median(keys)*1e9)
		file, err := b.file(bundle{withCommas(n) + "-organizations", func(_ *bench, line func(string, ...any)) {
			for i := c.counted; i < n; i++ {
				line(`{"slug":"o%d","name":"o%d"}`, i, i)
			}
		}})
		if err != nil {
			return nil, err
		}
		began := time.Now()
		if _, err := b.command(ctx, s, "org", "create", "--from", file); err != nil {
			return nil, err
		}
		c.took, began = time.Since(began), time.Now()
		err = each(ctx, c.concurrency, n-c.counted, func(i int) (err error) {
			i += c.counted
			c.orgs[i], err = newKey(ctx, s, fmt.Sprintf("o%d", i), account)
			return err
		})
		c.keyed = time.Since(began)
		if err != nil {
			return nil, err
		}
		b.stop(s.name) // writes everything to the databases
		c.disk, err = size(s.data)
		c.disk -= before
		return c, err
	})
	if err != nil {
		return nil, nil, err
	}
	s, err := b.server(ctx, name)
	return s, c, err
}

// each calls do with every number below n, that many at a time, until one of them fails.
func each(ctx context.Context, together, n int, do func(int) error) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, together)
	for worker := range together {
		wg.Go(func() {
			for errs[worker] == nil && ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if errs[worker] = do(i); errs[worker] != nil {
					next.Store(int64(n))
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

// warmUp sends one request to each organization.
func warmUp(ctx context.Context, s *server, orgs []org) error {
	t := &traffic{process: s.process, server: s}
	return each(ctx, 8, len(orgs), func(i int) error {
		_, _, err := t.ask(ctx, orgs[i].request(http.MethodGet, countPath, ""))
		return err
	})
}

// size returns the total size of the files in a folder.
func size(folder string) (sum int64, err error) {
	err = filepath.WalkDir(folder, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	return sum, err
}
