package bundle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenantry/backends/store"
	"tenantry/modules/contacts"
	"tenantry/tenants"
)

// mirrored imports a bundle as a mirror, and holds the export against it.
func (w *world) mirrored(t *testing.T, of *tenants.Tenant, bundle string) Report {
	t.Helper()
	r, err := w.load(of, bundle, ImportOptions{Mirror: true})
	if err != nil {
		t.Fatalf("mirror: %v\n%v", err, r.Problems)
	}
	if diff := cmp.Diff(timeless(bundle), timeless(w.dump(of, true))); diff != "" {
		t.Errorf("the export is not the bundle (-bundle +export):\n%s", diff)
	}
	if again, err := w.load(of, bundle, ImportOptions{Mirror: true}); err != nil || again.Unchanged != again.Lines || again.Removed != 0 {
		t.Errorf("again: %v %+v", err, again)
	}
	return r
}

// end removes a record for good.
func (w *world) end(t *testing.T, of *tenants.Tenant, kind, id string) {
	t.Helper()
	session, err := w.service.session(of, nil, false)
	check(t, err)
	check(t, session.named[kind].end(t.Context(), session, []string{id}))
}

// admin is a line of an active administrator.
const admin = `{"kind":"user","id":9,"name":"Ada","email":"ada@example.com","roles":["admin"]}` + "\n"

// TestMirror_MakesWhole: a record becomes what its line says of it, with nothing besides: values of fields that nobody
// defines any more, members of objects that are merged otherwise, encrypted values.
func TestMirror_MakesWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme, other := w.org("acme"), w.org("other")
	w.mustLoad(acme, complete+admin)
	w.mustLoad(other, complete+admin)
	before, neighbour := w.dump(acme, true), w.dump(other, true)
	w.mustLoad(acme, `{"kind":"organization","name":"Changed","settings":{"sign_in_names_organization":true},"limits":{"documents":1000},"request_limits":{"key":{"rate":"5/m"}},"providers":["cache"],"frame_origins":["https://example.com"]}
{"kind":"team","id":"0000000000000000000000a2","name":"South"}
{"kind":"role","name":"reader","label":"Changed","permissions":["view_users"]}
{"kind":"role","name":"more","permissions":["contacts"]}
{"kind":"user","id":7,"name":"Changed","email":"changed@example.com","roles":["more"],"permissions":[],"teams":["0000000000000000000000a2"],"active":true}
{"kind":"user","id":8,"name":"More","email":"more@example.com","roles":["more"]}
{"kind":"service_account","name":"more","permissions":["contacts"],"teams":["0000000000000000000000a2"]}
{"kind":"contact_field","key":"more","title":"More","type":"Text"}
{"kind":"contact_field","key":"hidden","title":"Hidden","type":"Encrypted"}
{"kind":"contact_field","key":"plan","title":"Changed","type":"Text"}
{"kind":"custom_object","name":"more","label":"More","label_plural":"Mores","schema":{"a":{"title":"A","type":"Text"}}}
{"kind":"custom_object","id":"000000000000000000000061","name":"tree","label":"Changed","label_plural":"Changed","schema":{"species":{"title":"S","type":"Text"},"code":{"title":"Code","type":"Encrypted"},"height":{"title":"Height","type":"Number"},"age":{"title":"Age","type":"Number"}}}
{"kind":"record","object":"more","values":{"a":"b"}}
{"kind":"record","object":"tree","values":{"species":"Ash"}}
{"kind":"record","id":"000000000000000000000071","object":"tree","values":{"species":"Elm","age":5,"code":"other"},"external_id":"t-2"}
{"kind":"form_collection","name":"more","label":"More","label_plural":"Mores"}
{"kind":"submission","form":"000000000000000000000091","values":{"form_name":"more"}}
{"kind":"contact","external_id":"more","email":"more@example.com"}
{"kind":"contact","id":"0000000000000000000000b1","email":"changed@example.com","tags":[],"fields":{"more":"value","hidden":"value","plan":null},"teams":["0000000000000000000000a2"],"external_id":"c-2"}
{"kind":"folder","id":"0000000000000000000000c9","name":"More"}
{"kind":"folder","id":"0000000000000000000000c2","name":"2024","folder_id":"0000000000000000000000c9","deleted":false}
{"kind":"file","pid":"more","filename":"more","mimetype":"a/b","folder_id":"0000000000000000000000c9"}
{"kind":"campaign","name":"More","filter":{"more":"x"}}
{"kind":"custom_report","pid":"more-more-more-more","title":"More","class":"Records","source":"more"}
{"kind":"custom_report","id":"0000000000000000000000e1","pid":"public-report-e1","title":"Changed","class":"Contacts","query":{},"input":{"more":{"rule":"editable","value":"x"}},"visual_props":{"more":1},"shareable":false}
{"kind":"compliance_settings","enabled":false,"lesson_tags_any":["z"]}
`)
	_, err := w.contacts.Contacts.In(acme.Workspace()).Update(t.Context(), "0000000000000000000000b1", func(c *contacts.Contact) error {
		c.Fields["left"] = "of a field that was purged"
		return nil
	})
	check(t, err)
	r := w.mirrored(t, acme, before)
	if r.Created != 0 || r.Removed != 16 || len(r.Removals) != 16 {
		t.Errorf("got %+v, want r.Created = 0 and r.Removed = 16 and len(r.Removals) = 16", r)
	}
	if diff := cmp.Diff(neighbour, w.dump(other, true)); diff != "" {
		t.Errorf("another organization changed:\n%s", diff)
	}
}

// TestMirror_Reseals: fields that became encrypted, or no longer are, are again what they were, with the values of the
// bundle.
func TestMirror_Reseals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	w.mustLoad(acme, complete+admin)
	before := w.dump(acme, true)
	object := `{"kind":"custom_object","id":"000000000000000000000061","name":"tree","label":"Tree","label_plural":"Trees","schema":{"species":{"title":"Species","type":"%s"},"height":{"title":"Height","type":"Number"},"code":{"title":"Code","type":"%s"}}}`
	for _, line := range []string{
		`{"kind":"campaign","id":"0000000000000000000000d1","name":"Gold","filter":null}`, `{"kind":"custom_report","id":"0000000000000000000000e2","title":"Trees","class":"Records","source":"tree","query":{}}`,
		`{"kind":"contact","id":"0000000000000000000000b1","fields":null}`, `{"kind":"contact_field","key":"plan","title":"Plan","type":"Encrypted"}`, `{"kind":"contact_field","key":"ssn","title":"SSN","type":"Text"}`,
		`{"kind":"contact","id":"0000000000000000000000b1","fields":{"plan":"sealed","ssn":"plain"}}`,
		`{"kind":"record","id":"000000000000000000000071","object":"tree","values":{"species":"Oak","code":null}}`, fmt.Sprintf(object, "Text", "Text"),
		`{"kind":"record","id":"000000000000000000000071","object":"tree","values":{"species":null,"code":"plain"}}`, fmt.Sprintf(object, "Encrypted", "Text"),
		`{"kind":"record","id":"000000000000000000000071","object":"tree","values":{"species":"sealed"}}`,
	} {
		w.mustLoad(acme, line)
	}
	w.mirrored(t, acme, before)
}

// TestMirror_BringsBack: what was purged comes back as it was, by its identifier, also where another record has its
// unique values by now, and so do values that records have exchanged.
func TestMirror_BringsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	more := `{"kind":"contact","id":"0000000000000000000000b2","external_id":"c-2","email":"b@example.com"}
{"kind":"user","id":8,"name":"Alan","email":"alan@example.com"}
{"kind":"service_account","id":"0000000000000000000000a5","name":"one"}
{"kind":"service_account","id":"0000000000000000000000a6","name":"two"}
{"kind":"custom_object","id":"000000000000000000000062","name":"bush","label":"Bush","label_plural":"Bushes","schema":{}}
`
	w.mustLoad(acme, complete+admin+more)
	before := w.dump(acme, true)
	w.end(t, acme, kindContact, "0000000000000000000000b1")
	w.end(t, acme, kindRecord, "000000000000000000000071")
	w.end(t, acme, kindObject, "000000000000000000000061")
	w.end(t, acme, "form_collection", "000000000000000000000091")
	w.end(t, acme, kindFolder, "0000000000000000000000c1")
	w.mustLoad(acme, `{"kind":"custom_object","id":"000000000000000000000063","name":"tree","label":"Other","label_plural":"Trees","schema":{"other":{"title":"O","type":"Text"}}}
{"kind":"record","object":"tree","values":{"other":"x"},"external_id":"t-1"}
{"kind":"form_collection","id":"000000000000000000000093","name":"apply","label":"Apply","label_plural":"Applications"}
{"kind":"contact","id":"0000000000000000000000b3","external_id":"c-1"}
{"kind":"custom_object","id":"000000000000000000000062","name":"bush","label":"Tree","label_plural":"Bushes"}
{"kind":"user","id":11,"name":"Else","email":"else@example.com","roles":["admin"]}
{"kind":"service_account","id":"0000000000000000000000a5","name":"three"}
`)
	for _, line := range []string{ // each takes what another one had
		`{"kind":"user","id":8,"name":"Alan","email":"x@example.com"}`, `{"kind":"user","id":9,"name":"Ada","email":"alan@example.com","roles":[]}`,
		`{"kind":"user","id":8,"name":"Alan","email":"ada@example.com","roles":["admin"]}`,
		`{"kind":"service_account","id":"0000000000000000000000a6","name":"one"}`, `{"kind":"service_account","id":"0000000000000000000000a5","name":"two"}`,
	} {
		w.mustLoad(acme, line)
	}
	w.mirrored(t, acme, before)
}

// TestMirror_Refused: nothing is stored of a mirror that would leave nobody in charge, or that is no whole
// organization.
func TestMirror_Refused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	w.mustLoad(acme, complete+admin)
	before := w.dump(acme, true)
	organization := `{"kind":"organization","name":"Other"}` + "\n"
	for _, c := range []struct {
		bundle string
		o      ImportOptions
		want   error
	}{
		{admin, ImportOptions{}, ErrNotWhole},
		{"", ImportOptions{}, ErrNotWhole},
		{organization, ImportOptions{}, ErrNoAdministrator},
		{organization + `{"kind":"user","id":10,"name":"Else","email":"else@example.com"}`, ImportOptions{}, ErrNoAdministrator},
		{organization + strings.Replace(admin, `"roles"`, `"active":false,"roles"`, 1), ImportOptions{}, nil},
		{organization + admin + `{"kind":"contact","teams":["0000000000000000000000a1"]}`, ImportOptions{}, nil}, // which goes
		{organization + admin + `{"kind":"record","object":"tree","values":{"species":"Oak"}}`, ImportOptions{}, nil},
		{organization + admin + `{"kind":"folder","name":"In","folder_id":"0000000000000000000000c1"}`, ImportOptions{}, nil},
		{organization + admin + `{"kind":"user","id":10,"name":"Else","email":"else@example.com","roles":["reader"],"as_is":true}`, ImportOptions{}, nil},
		{organization + admin, ImportOptions{Partial: true}, ErrPartial},
	} {
		c.o.Mirror = true
		_, err := w.load(acme, c.bundle, c.o)
		_, refused := errors.AsType[*RefusedError](err)
		if err != nil && strings.Contains(err.Error(), "--partial") {
			t.Errorf("%s: %v, which no mirror goes with", c.bundle, err)
		}
		if err == nil || !refused && c.want == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want an error", c.bundle, err)
		}
	}
	if diff := cmp.Diff(before, w.dump(acme, true)); diff != "" {
		t.Errorf("difference:\n%s", diff)
	}
}

// TestMirror_DryRun: a dry run changes nothing, and lists exactly what the real run removes.
func TestMirror_DryRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	w.mustLoad(acme, complete+admin)
	for i := range 120 {
		w.mustLoad(acme, fmt.Sprintf(`{"kind":"contact","first_name":"No","last_name":"%d"}`, i))
	}
	before := w.dump(acme, true)
	bundle := `{"kind":"organization","name":"Acme"}` + "\n" + admin
	dry, err := w.load(acme, bundle, ImportOptions{Mirror: true, DryRun: true})
	check(t, err)
	if diff := cmp.Diff(before, w.dump(acme, true)); diff != "" {
		t.Fatalf("difference:\n%s", diff)
	}
	if dry.Removed != strings.Count(before, "\n")-2 || len(dry.Removals) != maxRemovals || dry.MoreRemovals != dry.Removed-maxRemovals {
		t.Errorf("%d removed, %d listed, %d more of %d", dry.Removed, len(dry.Removals), dry.MoreRemovals, strings.Count(before, "\n"))
	}
	for _, want := range []Removal{
		{"compliance_settings", dry.Removals[0].ID, ""}, {"custom_report", "0000000000000000000000e1", "By country"}, {"campaign", "0000000000000000000000d1", "Gold"},
		{kindRecord, "000000000000000000000071", "t-1"}, {"file", "0000000000000000000000f1", "scan.pdf"}, {kindFolder, "0000000000000000000000c1", "Letters"}, {kindContact, "0000000000000000000000b1", "Ada Löwe"},
	} {
		if !slices.Contains(dry.Removals, want) {
			t.Errorf("%+v is not among %v", want, dry.Removals)
		}
	}
	real, err := w.load(acme, bundle, ImportOptions{Mirror: true})
	check(t, err)
	dry.DryRun = false
	if diff := cmp.Diff(dry, real); diff != "" {
		t.Errorf("(-dry +real):\n%s", diff)
	}
	if lines := strings.Split(strings.TrimSpace(w.dump(acme, true)), "\n"); len(lines) != 2 {
		t.Errorf("%d lines are left: %s", len(lines), lines)
	}
}

// TestMirror_Interrupted: a mirror that ended at any moment is finished by another one, and what somebody makes
// meanwhile stays until then.
func TestMirror_Interrupted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	w.mustLoad(acme, complete+admin)
	before := w.dump(acme, true)
	stop := errors.New("stopped")
	for most := 0; ; most++ {
		w.mustLoad(acme, `{"kind":"service_account","name":"one"}
{"kind":"contact_field","key":"more","title":"More","type":"Text"}
{"kind":"contact","external_id":"more","fields":{"more":"x"}}
{"kind":"contact","id":"0000000000000000000000b1","external_id":"c-9"}
{"kind":"user","id":7,"name":"Changed","email":"changed@example.com"}
{"kind":"user","id":20,"name":"Grace","email":"hopper@example.com"}
`)
		w.mustLoad(acme, `{"kind":"contact","id":"0000000000000000000000b9","external_id":"c-1"}`)
		w.end(t, acme, kindRecord, "000000000000000000000071")
		asked := 0
		r, err := w.load(acme, before, ImportOptions{Mirror: true, Allowed: func(ctx context.Context) error {
			if asked++; asked > most {
				return stop
			}
			return nil
		}})
		if err == nil {
			if most < 8 {
				t.Errorf("it asked only %d times: %+v", most, r)
			}
			break
		}
		if !errors.Is(err, stop) || most > 100 {
			t.Fatalf("got %v %+v, want the error stop and most <= 100", err, r)
		}
		check(t, w.contacts.Contacts.In(acme.Workspace()).Insert(t.Context(), &contacts.Contact{Email: "meanwhile@example.com"}))
		w.mirrored(t, acme, before)
	}
	meanwhile := false
	_, err := w.load(acme, before, ImportOptions{Mirror: true, Turn: func(ctx context.Context) error {
		if meanwhile {
			return nil
		}
		meanwhile = true
		return w.contacts.Contacts.In(acme.Workspace()).Insert(ctx, &contacts.Contact{Email: "meanwhile@example.com"})
	}})
	check(t, err)
	n, err := w.contacts.Contacts.In(acme.Workspace()).Count(t.Context(), store.Eq("email", "meanwhile@example.com"))
	if err != nil || n != 1 || !meanwhile {
		t.Errorf("%d contacts of those made meanwhile, %v", n, err)
	}
	w.mirrored(t, acme, before)
}
