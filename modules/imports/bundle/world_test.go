package bundle

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tenantry/backends/driver"
	"tenantry/backends/enginetest"
	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/crypto/keyring"
	"tenantry/modules/campaigns"
	"tenantry/modules/compliance"
	"tenantry/modules/contacts"
	"tenantry/modules/files"
	"tenantry/modules/forms"
	"tenantry/modules/objects"
	"tenantry/reports"
	"tenantry/tenants"
	"tenantry/tenants/identity"
)

const (
	kindField   = "contact_field"
	kindObject  = "custom_object"
	kindContact = "contact"
	kindRecord  = "record"
)

// world is a program with an embedded store.
type world struct {
	t         testing.TB
	engine    driver.Engine
	deps      Deps
	service   *Service
	contacts  contacts.Kinds
	files     files.Kinds
	objects   objects.Kinds
	forms     forms.Kinds
	campaigns campaigns.Kinds
	settings  compliance.Kinds
	reports   reports.Kinds
}

// newWorld returns a program that has besides the usual resources those given.
func newWorld(t testing.TB, more ...record.Kept) *world {
	t.Helper()
	return newWorldOn(t, enginetest.Open(t), more...)
}

func newWorldOn(t testing.TB, engine driver.Engine, more ...record.Kept) *world {
	t.Helper()
	ctx := t.Context()
	w := &world{t: t, engine: engine}
	ring, err := keyring.Create(filepath.Join(t.TempDir(), "keyring"))
	check(t, err)
	var d Deps
	org := tenants.NewKinds()
	d.People = identity.NewKinds()
	st := store.New(store.Options{Engine: w.engine, Control: append(org.Specs(), record.Specs(d.People.Kept())...)})
	d.Directory, err = tenants.NewDirectory(ctx, tenants.DirectoryOptions{Store: st, Kinds: org, Keyring: ring})
	check(t, err)
	addresses, objects, forms, files, settings := contacts.New(contacts.Deps{}), objects.New(nil), forms.New(nil), files.New(files.Deps{}), compliance.New(compliance.Deps{})
	sent := campaigns.New(campaigns.Deps{Contacts: addresses})
	asked := reports.New(reports.Deps{Classes: []reports.Class{
		reports.NewClass("Contacts", addresses.Contacts.Kind, "", nil), reports.NewClass("Records", objects.Records.Kind, "object", nil),
		reports.NewClass("Submissions", forms.Submissions.Kind, "form", nil), reports.NewClass("Files", files.Files.Kind, "", nil),
		reports.NewClass("Campaigns", sent.Campaigns.Kind, "", nil),
	}})
	w.contacts, w.files, w.objects, w.forms, w.campaigns, w.settings, w.reports = addresses.Kinds, files.Kinds, objects.Kinds, forms.Kinds, sent.Kinds, settings.Kinds, asked.Kinds
	kept := slices.Concat(w.contacts.Kept(), w.files.Kept(), w.objects.Kept(), w.forms.Kept(), w.campaigns.Kept(), w.reports.Kept(), w.settings.Kept(), more)
	st.Keep(record.Specs(kept)...)
	d.Resources = record.Described(append(d.People.Kept(), kept...))
	w.deps, w.service = d, New(d)
	return w
}

// org makes an organization.
func (w *world) org(slug string) *tenants.Tenant {
	w.t.Helper()
	t, err := w.deps.Directory.Create(w.t.Context(), tenants.NewOrganization{Slug: slug, Name: "Organization"})
	check(w.t, err)
	return t
}

func (w *world) load(t *tenants.Tenant, bundle string, o ImportOptions) (Report, error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Minute)
	defer cancel()
	return w.service.Import(ctx, t, BytesSource([]byte(bundle)), o)
}

// mustLoad imports a bundle that has no bad line.
func (w *world) mustLoad(t *tenants.Tenant, bundle string) Report {
	w.t.Helper()
	r, err := w.load(t, bundle, ImportOptions{})
	if err != nil {
		w.t.Fatalf("import: %v\n%v", err, r.Problems)
	}
	return r
}

func (w *world) dump(t *tenants.Tenant, reveal bool) string {
	w.t.Helper()
	fresh, err := w.deps.Directory.BySlug(w.t.Context(), t.Org.Slug)
	check(w.t, err)
	var out bytes.Buffer
	_, err = w.service.Export(w.t.Context(), fresh, &out, ExportOptions{RevealSecrets: reveal})
	check(w.t, err)
	return out.String()
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// complete holds lines of every kind, each before what it refers to.
const complete = `{"kind":"custom_report","id":"0000000000000000000000e1","pid":"public-report-e1","title":"By country","class":"Contacts","query":{"group_by":[{"field":"country"}],"measures":[{"op":"count"}],"sort":["-count"],"limit":100},"input":{"country":{"rule":"locked","value":"DE"}},"secure":true,"portal_visible":false,"shareable":true,"exportable":true,"visual":"bar","visual_props":{"stacked":true},"child_reports":["0000000000000000000000e2"],"teams":["0000000000000000000000a1"]}
{"kind":"custom_report","id":"0000000000000000000000e2","pid":"public-report-e2","title":"Trees","class":"Records","source":"tree","query":{"fields":["species"]},"secure":false,"portal_visible":true,"exportable":false}
{"kind":"campaign","id":"0000000000000000000000d1","name":"Gold","filter":{"plan":"gold","or":[{"country":"DE"},{"age":{"gt":30}}]},"teams":["0000000000000000000000a1"]}
{"kind":"file","id":"0000000000000000000000f1","pid":"pub-f1","filename":"scan.pdf","mimetype":"application/pdf","hash":"ab12","folder_id":"0000000000000000000000c2","contact_id":"0000000000000000000000b1","user_id":7,"type":"scan","teams":["0000000000000000000000a1"],"deleted":true,"created_at":"2024-01-02T03:04:05.678Z"}
{"kind":"folder","id":"0000000000000000000000c2","name":"2024","folder_id":"0000000000000000000000c1","user_id":7,"deleted":false,"created_at":"2024-01-02T03:04:05.006Z","updated_at":"2024-01-02T03:04:05.007Z"}
{"kind":"folder","id":"0000000000000000000000c1","name":"Letters","folder_id":null,"user_id":7,"teams":["0000000000000000000000a1"],"deleted":false}
{"kind":"submission","id":"000000000000000000000081","form":"000000000000000000000091","values":{"form_name":"a","why":"because","pin":"4321"}}
{"kind":"record","id":"000000000000000000000071","object":"tree","values":{"species":"Oak","height":12.50,"code":"secret-tree"},"external_id":"t-1"}
{"kind":"contact","id":"0000000000000000000000b1","email":"ada@example.com","first_name":"Ada","last_name":"Löwe","phone":"+49 30 1234","country":"DE","city":"Köln","status":"active","tags":["x","y"],"fields":{"plan":"gold","age":36,"ssn":"123-45-6789"},"teams":["0000000000000000000000a1"],"external_id":"c-1"}
{"kind":"compliance_settings","enabled":true,"lesson_tags_all":["a"],"lesson_tags_any":["b","c"],"submission_enabled":false}
{"kind":"form_collection","id":"000000000000000000000091","name":"apply","label":"Apply","label_plural":"Applications","schema":{"why":{"title":"Why","type":"LongText"},"pin":{"title":"Pin","type":"Encrypted"}},"email_alerts":{"enabled":true,"recipients":["a@example.com"],"subject":"New"},"standalone":true,"external_id":"f-1","external_created_at":"2020-01-01","external_updated_at":"2020-01-02"}
{"kind":"custom_object","id":"000000000000000000000061","name":"tree","label":"Tree","label_plural":"Trees","schema":{"species":{"title":"Species","type":"Text","required":true},"height":{"title":"Height","type":"Number"},"code":{"title":"Code","type":"Encrypted"}}}
{"kind":"contact_field","key":"plan","title":"Plan","type":"Select"}
{"kind":"contact_field","key":"age","title":"Age","type":"Number"}
{"kind":"contact_field","key":"ssn","title":"SSN","type":"Encrypted"}
{"kind":"user","id":7,"name":"Grace","email":"Grace@example.com","roles":["reader","admin"],"permissions":["contacts"],"teams":["0000000000000000000000a1"],"active":false}
{"kind":"role","name":"reader","label":"Reader","permissions":["view_users","contacts"]}
{"kind":"team","id":"0000000000000000000000a1","name":"North"}
{"kind":"organization","name":"Acme","features":{"teams":true},"settings":{"require_public_encryption_key":true},"limits":{"folder_children":50}}
`

// ofKind returns the lines of a kind in a bundle.
func ofKind(bundle, kind string) []string {
	var out []string
	for line := range strings.Lines(bundle) {
		if sniff(line) == kind {
			out = append(out, line)
		}
	}
	return out
}

// BytesSource returns content held in memory as a Source.
func BytesSource(content []byte) Source {
	return Source{
		Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		Size: int64(len(content)),
	}
}
