package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const base = `{"kind":"team","id":"0000000000000000000000a1","name":"North"}
{"kind":"user","id":7,"name":"Grace","email":"grace@example.com"}
{"kind":"contact_field","key":"plan","title":"Plan","type":"Select"}
{"kind":"contact_field","key":"age","title":"Age","type":"Number"}
{"kind":"contact_field","key":"ssn","title":"SSN","type":"Encrypted"}
{"kind":"custom_object","id":"000000000000000000000061","name":"tree","label":"Tree","label_plural":"Trees","schema":{"species":{"title":"Species","type":"Text","required":true},"height":{"title":"Height","type":"Number"}}}
{"kind":"form_collection","id":"000000000000000000000091","name":"apply","label":"Apply","label_plural":"Applications","schema":{"why":{"title":"Why","type":"LongText","required":true}}}
`

// TestBadLines gives every kind bad lines. Each is to be reported with
// the fields and codes listed, and nothing is to be stored.
func TestBadLines(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	w.mustLoad(acme, base)
	before := w.dump(acme, false)
	id := `"id":"00000000000000000000ffff"`
	many := func(n int, format string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(format, i))
		}
		return `["` + strings.Join(all, `","`) + `"]`
	}
	teams := `"teams":` + many(1001, "%024x")
	for _, c := range []struct{ line, want string }{
		{`{`, "line:format"},
		{`[1]`, "line:format"},
		{`"x"`, "line:format"},
		{`{"kind":"contact","email":"a@b.de","email":"c@d.de"}`, "line:format"},
		{`{"kind":"contact","city":"a\u0000b"}`, "line:format"},
		{"{\"kind\":\"contact\",\"city\":\"\xff\"}", "line:format"},
		{`{"kind":"contact","fields":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`, "line:format"},
		{`{"email":"a@b.de"}`, "kind:required"},
		{`{"kind":7}`, "kind:required"},
		{`{"kind":"Contact"}`, "kind:unknown"},
		{`{"kind":"contact","id":"XYZ"}`, "id:format"},
		{`{"kind":"contact","id":"00000000000000000000FFFF"}`, "id:format"},
		{`{"kind":"contact","Email":"a@b.de","org_id":7}`, "Email:unknown org_id:unknown"},
		{`{"kind":"contact","email":"nobody","first_name":7,"tags":["a",1]}`, "email:format first_name:type tags:type"},
		{`{"kind":"user","email":"bad","name":""}`, "email:format name:required"},
		{`{"kind":"custom_report","title":"x","class":"Recs","query":{"measures":[{"op":"median"}]},"visual":"donut"}`, "class:unknown query.measures[0].op:unknown visual:unknown"},
		{`{"kind":"contact","email":"nobody","city":"a\nb"}`, "email:format city:format"},
		{`{"kind":"contact_field","key":"n","type":"Text","title":null}`, "title:type"},
		{`{"kind":"contact","tags":["a","a"]}`, "tags:duplicate"},
		{`{"kind":"contact","fields":{"age":"old","colour":"red"}}`, "fields.age:type fields.colour:unknown"},
		{`{"kind":"contact","fields":{"ssn":7}}`, "fields.ssn:type"},
		{`{"kind":"contact","fields":{"ssn":{"enc":"enc.v1.1.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}}}`, "fields.ssn:format"},
		{`{"kind":"contact","fields":[]}`, "fields:type"},
		{`{"kind":"contact","teams":["0000000000000000000000ff"]}`, "teams:unknown"},
		// What no service takes later cannot come by a bundle either.
		{`{"kind":"user","email":"a@b.de","name":"A","roles":` + many(201, "r%d") + `}`, "roles:length"},
		{`{"kind":"user","email":"a@b.de","name":"A",` + teams + `}`, "teams:length"},
		{`{"kind":"service_account","name":"a",` + teams + `}`, "teams:length"},
		{`{"kind":"contact",` + teams + `}`, "teams:length"},
		{`{"kind":"folder","name":"x",` + teams + `}`, "teams:length"},
		{`{"kind":"file","filename":"x","mimetype":"a/b",` + teams + `}`, "teams:length"},
		{`{"kind":"campaign","name":"x","filter":{},` + teams + `}`, "teams:length"},
		{`{"kind":"custom_report","title":"x","class":"Contacts",` + teams + `}`, "teams:length"},
		{`{"kind":"contact","created_at":"yesterday"}`, "created_at:format"},
		{`{"kind":"contact","created_at":-1}`, "created_at:format"},
		{`{"kind":"contact_field","key":"e mail","title":"","type":"text"}`, "title:required"},
		{`{"kind":"contact_field","key":"e mail","title":"x","type":"text"}`, "key:format type:format"},
		{`{"kind":"contact_field","key":"email","title":"x","type":"Text"}`, "key:forbidden"},
		{`{"kind":"contact_field","key":"x"}`, "title:required type:required"},
		{`{"kind":"folder",` + id + `}`, "name:required"},
		{`{"kind":"folder","name":" ","deleted":"no"}`, "deleted:type"},
		{`{"kind":"folder","name":"x","folder_id":"0000000000000000000000ff"}`, "folder_id:unknown"},
		{`{"kind":"folder",` + id + `,"name":"x","folder_id":"00000000000000000000ffff"}`, "folder_id:forbidden"},
		{`{"kind":"folder","name":"x","user_id":8}`, "user_id:unknown"},
		{`{"kind":"folder","name":"x","user_id":1.5}`, "user_id:range"},
		{`{"kind":"file","filename":"x"}`, "mimetype:required"},
		{`{"kind":"file","filename":"x","mimetype":"a/b","contact_id":"0000000000000000000000ff"}`, "contact_id:unknown"},
		{`{"kind":"record","values":{}}`, "object:required"},
		{`{"kind":"record","object":"bush"}`, "object:unknown"},
		{`{"kind":"record","object":"tree","values":{"height":"tall"}}`, "values.height:type values.species:required"},
		{`{"kind":"record","object":"tree","values":{"species":"Oak","__proto__":1}}`, "values.__proto__:unknown"},
		{`{"kind":"submission","values":{}}`, "form:required"},
		{`{"kind":"submission","form":"0000000000000000000000ff"}`, "form:unknown"},
		{`{"kind":"custom_object","name":"Tree","label":"","label_plural":"x"}`, "label:required"},
		{`{"kind":"custom_object","name":"Bush!","label":"b","label_plural":"x","schema":[]}`, "schema:type"},
		{`{"kind":"custom_object","name":"bush","label":"Tree","label_plural":"Bushes"}`, "label:duplicate"},
		{`{"kind":"custom_object",` + id + `,"name":"tree","label":"Big tree","label_plural":"Big trees"}`, "name:duplicate"},
		{`{"kind":"custom_object","name":"bush","label":"b","label_plural":"x","schema":{"a":{"title":"A"},"b c":{"title":"B","type":"Text"}}}`, "schema.a.type:required schema.\"b c\":format"},
		{`{"kind":"form_collection","name":"f","label":"F","label_plural":"Fs","email_alerts":{"recipients":"x"},"standalone":1}`, "email_alerts.recipients:type standalone:type"},
		{`{"kind":"form_collection","name":"f","label":"F","label_plural":"Fs","email_alerts":"x"}`, "email_alerts:type"},
		{`{"kind":"form_collection","name":"f","label":"F","label_plural":"Fs","email_alerts":[]}`, "email_alerts:type"},
		{`{"kind":"custom_report","title":"x","class":"Contacts","input":[]}`, "input:type"},
		{`{"kind":"organization","name":"A","request_limits":{"organisation":{"rate":"1/s"}}}`, "request_limits:format"},
		{`{"kind":"organization","name":"A","request_limits":[]}`, "request_limits:format"},
		{`{"kind":"campaign","name":"x","filter":{"colour":"red"}}`, "filter.colour:unknown"},
		{`{"kind":"campaign","name":"x","filter":{"ssn":"1"}}`, "filter.ssn:forbidden"},
		{`{"kind":"campaign"}`, "name:required"},
		{`{"kind":"custom_report","title":"x","class":"Nothing"}`, "class:unknown"},
		{`{"kind":"custom_report","title":"x","class":"Records"}`, "source:required"},
		{`{"kind":"custom_report","title":"x","class":"Records","source":"bush"}`, "source:unknown"},
		{`{"kind":"custom_report","title":"x","class":"Records","source":"tree","query":{"fields":["colour"]}}`, "query.fields:unknown"},
		{`{"kind":"custom_report","title":"x","class":"Contacts","query":{"fields":["ssn"]}}`, "query.fields:forbidden"},
		{`{"kind":"custom_report","title":"x","class":"Contacts","query":{"filter":{"ssn":"1"}}}`, "filter.ssn:forbidden"},
		{`{"kind":"custom_report","title":"x","class":"Contacts","query":{"group_by":[{"field":"ssn"}],"measures":[{"op":"count"}]}}`, "query.group_by:forbidden"},
		{`{"kind":"custom_report","title":"x","class":"Contacts","visual":"cloud","input":{"a":{"rule":"open","value":""}}}`, "visual:unknown input.a.rule:unknown"},
		{`{"kind":"custom_report","title":"x","class":"Contacts","child_reports":["0000000000000000000000ff"]}`, "child_reports:unknown"},
		{`{"kind":"compliance_settings","enabled":"yes","lesson":[]}`, "enabled:type lesson:unknown"},
		{`{"kind":"organization","name":"","features":{"magic":true},"limits":{"folder_children":0}}`, "features.magic:unknown limits.folder_children:range"},
		{`{"kind":"role","name":"Big Boss","permissions":["everything"]}`, "name:format permissions:unknown"},
		{`{"kind":"role","name":"admin","permissions":["contacts"]}`, "name:forbidden"},
		{`{"kind":"user","id":0,"name":"x","email":"x@example.com"}`, "id:range"},
		{`{"kind":"user","id":8,"name":"x","email":"GRACE@example.com"}`, "email:duplicate"},
		{`{"kind":"user","name":"x","email":"x","roles":["boss"],"teams":["0000000000000000000000ff"]}`, "email:format roles:unknown teams:unknown"},
		{`{"kind":"team","name":"a\nb"}`, "name:format"},
	} {
		r, err := w.load(acme, c.line, ImportOptions{})
		var refused *RefusedError
		if !errors.As(err, &refused) || r.Failed != 1 || len(r.Problems) != 1 || r.Problems[0].Line != 1 {
			t.Errorf("%s: got %v %+v, want an error of the type of refused and r.Failed = 1 and len(r.Problems) = 1 and r.Problems[0].Line = 1",
				c.line, err, r)
			continue
		}
		for _, part := range strings.Fields(strings.ReplaceAll(c.want, `"b c"`, `"b_c"`)) {
			field, code, _ := strings.Cut(part, ":")
			field = strings.ReplaceAll(field, `"b_c"`, `"b c"`)
			found := false
			for _, e := range r.Problems[0].Errors {
				found = found || e.Field == field && e.Code == code
			}
			if !found {
				t.Errorf("%s: %s is not among %v", c.line, part, r.Problems[0].Errors)
			}
		}
	}
	if diff := cmp.Diff(before, w.dump(acme, false)); diff != "" {
		t.Fatalf("something was stored: %s", diff)
	}
}

func TestBadLines_MarkAndLength(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	r, err := w.load(acme, "\xef\xbb\xbf"+base, ImportOptions{})
	if err == nil || r.Failed != 1 || !strings.Contains(r.Problems[0].String(), "byte order mark") {
		t.Fatalf(`got %v %v, want an error and r.Failed = 1 and containing "byte order mark"`, err, r.Problems)
	}
	r, err = w.load(acme, base+`{"kind":"contact","city":"`+strings.Repeat("x", MaxLine)+`"}`+"\n{\n", ImportOptions{})
	if err == nil || r.Failed != 2 || r.Problems[0].Line != 8 || r.Problems[0].Errors[0].Code != "length" || r.Problems[1].Line != 9 {
		t.Fatalf(`got %v %v, want an error and r.Failed = 2 and r.Problems[0].Line = 8 and "length" and r.Problems[1].Line = 9`,
			err, r.Problems)
	}
	w.mustLoad(acme, "\n \r\n"+strings.ReplaceAll(base, "\n", "\r\n")+"\n\n")
}

// TestBadLines_TooManyDefinitions: those that are stored count too.
func TestBadLines_TooManyDefinitions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	fields := func(from, to int) string {
		var b strings.Builder
		for i := from; i < to; i++ {
			fmt.Fprintf(&b, `{"kind":"contact_field","key":"f%d","title":"F%d","type":"Text"}`+"\n", i, i)
		}
		return b.String()
	}
	w.mustLoad(acme, fields(0, 499))
	w.mustLoad(acme, fields(498, 500))
	for name, bundle := range map[string]string{"one more": fields(500, 501), "one more beside those there are": fields(0, 501)} {
		r, err := w.load(acme, bundle, ImportOptions{})
		if err == nil || r.Failed != 1 || r.Problems[0].Errors[0].Message != "an organization has at most 500 contact fields" {
			t.Errorf(`%s: got %v %+v, want an error and r.Failed = 1 and r.Problems[0].Errors[0].Message = "an organization has at most 500 contact fields"`,
				name, err, r)
		}
	}
}

func TestBadLines_RepeatedInTheBundle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	bundle := base + `{"kind":"contact","id":"0000000000000000000000b1","external_id":"x"}
{"kind":"contact","id":"0000000000000000000000b1","external_id":"y"}
{"kind":"contact","external_id":"x"}
{"kind":"record","object":"tree","values":{"species":"Oak"},"external_id":"x"}
{"kind":"record","object":"tree","values":{"species":"Elm"},"external_id":"x"}
{"kind":"team","id":"0000000000000000000000a1","name":"South"}
{"kind":"user","id":7,"name":"Grace","email":"other@example.com"}
{"kind":"user","name":"Grace","email":"GRACE@example.com"}
{"kind":"custom_object","name":"shrub","label":"Shrub","label_plural":"Trees"}
{"kind":"compliance_settings","enabled":true}
{"kind":"compliance_settings","enabled":false}
{"kind":"file","pid":"p","filename":"a","mimetype":"text/b"}
{"kind":"file","pid":"p","filename":"c","mimetype":"text/d"}
`
	r, err := w.load(acme, bundle, ImportOptions{})
	if err == nil {
		t.Fatal("taken")
	}
	var got []string
	for _, p := range r.Problems {
		for _, e := range p.Errors {
			got = append(got, fmt.Sprintf("%d %s %s", p.Line, e.Field, e.Message))
		}
	}
	want := []string{
		"9 id line 8 gives the same id", "10 external_id line 8 gives the same external_id", "12 external_id line 11 gives the same external_id",
		"13 id line 1 gives the same id", "14 id line 2 gives the same id", "15 email line 2 gives the same email",
		"16 label_plural line 6 gives the same label_plural", "18 kind line 17 is also of the kind compliance_settings, which has only one record",
		"20 pid line 19 gives the same pid",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("mismatch (-want +got):\n%s", diff)
	}
}

// TestPartial stores the good lines; lines that refer to bad ones are bad themselves.
// TestDeletedDefinitions define nothing, unless the bundle has them too: as an export has them, or live.
func TestDeletedDefinitions(t *testing.T) {
	t.Parallel()
	const (
		object = `{"kind":"custom_object","name":"tree","label":"Tree","label_plural":"Trees","deleted":true}` + "\n"
		form   = `{"kind":"form_collection","id":"000000000000000000000091","name":"apply","label":"Apply","label_plural":"Applications","deleted":true}` + "\n"
		field  = `{"kind":"contact_field","key":"plan","title":"Plan","type":"Select","deleted":true}` + "\n"
	)
	for _, c := range []struct{ deleted, line, want string }{
		{object, `{"kind":"record","id":"0000000000000000000000b1","object":"tree","values":{"species":"Oak"}}`, "object names a custom object that neither the file nor the organization has"},
		{form, `{"kind":"submission","id":"0000000000000000000000b1","form":"000000000000000000000091","values":{"form_name":"a","why":"x"}}`, "form names a form collection that neither the file nor the organization has"},
		{field, `{"kind":"contact","id":"0000000000000000000000b1","email":"a@example.com","fields":{"plan":"gold"}}`, "fields.plan is not a field that is defined"},
	} {
		w := newWorld(t)
		acme, other := w.org("acme"), w.org("other")
		w.mustLoad(acme, base)
		w.mustLoad(acme, c.deleted)
		if r, err := w.load(acme, c.line, ImportOptions{}); err == nil || r.Problems[0].Errors[0].Message != c.want {
			t.Errorf("%s: got %v %v, want an error and r.Problems[0].Errors[0].Message = %v", c.line, err, r.Problems, c.want)
		}
		w.mustLoad(acme, strings.Replace(c.line, `"id"`, `"as_is":true,"id"`, 1))
		w.mustLoad(acme, c.deleted+c.line)
		dump := w.dump(acme, false)
		if w.mustLoad(other, dump); strings.Contains(dump, `"as_is"`) {
			t.Errorf(`got %s, want nothing containing "\"as_is\""`, dump)
		}
		if r := w.mustLoad(acme, dump); r.Created+r.Updated != 0 {
			t.Errorf("its own export: %+v", r.Counts)
		}
		w.mustLoad(acme, c.line+"\n"+strings.Replace(c.deleted, `,"deleted":true`, "", 1))
		w.mustLoad(acme, c.line)
	}
}

// TestLinesAreCounted of an import that is Bounded, whatever they hold; with others the operator decides.
func TestLinesAreCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.service.most = 3
	acme := w.org("acme")
	const team = `{"kind":"team","name":"North"}` + "\n"
	for bundle, good := range map[string]bool{team + "\n\n": true, "\n\n" + team: true, "\n\n\n" + team: false, strings.Repeat("{}\n", 4): false} {
		_, err := w.load(acme, bundle, ImportOptions{Bounded: true, DryRun: true})
		if errors.Is(err, ErrTooMany) == good || !good && !strings.Contains(err.Error(), "at most 3 are allowed, including blank ones; split it") {
			t.Errorf("%q: %v", bundle, err)
		}
		if _, err = w.load(acme, bundle, ImportOptions{DryRun: true}); errors.Is(err, ErrTooMany) {
			t.Errorf("%q, not bounded: %v", bundle, err)
		}
	}
}

func TestPartial(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	bundle := base + `{"kind":"custom_object","id":"000000000000000000000062","name":"bush","label":"Bush","label_plural":"Trees"}
{"kind":"record","object":"bush","values":{}}
{"kind":"folder","id":"0000000000000000000000c3","name":"c","folder_id":"0000000000000000000000c2"}
{"kind":"folder","id":"0000000000000000000000c2","name":"b","folder_id":"0000000000000000000000c1"}
{"kind":"folder","id":"0000000000000000000000c1","name":"a","user_id":99}
{"kind":"folder","id":"0000000000000000000000d1","name":"round","folder_id":"0000000000000000000000d2"}
{"kind":"folder","id":"0000000000000000000000d2","name":"and round","folder_id":"0000000000000000000000d1"}
{"kind":"file","filename":"x","mimetype":"text/y","folder_id":"0000000000000000000000c3"}
{"kind":"file","filename":"z","mimetype":"text/y"}
not JSON
{"kind":"contact","id":"0000000000000000000000b1"}
{"kind":"contact","id":"0000000000000000000000b2","email":"x"}
{"kind":"file","filename":"x","mimetype":"text/y","contact_id":"0000000000000000000000b2"}
{"kind":"file","filename":"x","mimetype":"text/y","contact_id":"0000000000000000000000b1"}
`
	if r, err := w.load(acme, bundle, ImportOptions{}); err == nil || r.Failed != 11 || r.Created != 0 || strings.Count(w.dump(acme, false), "\n") != 1 {
		t.Fatalf(`got %v %+v, want an error and r.Failed = 11 and r.Created = 0 and strings.Count(w.dump(acme, false), "\n") = 1`,
			err, r)
	}
	var bad bytes.Buffer
	r, err := w.load(acme, bundle, ImportOptions{Partial: true, Bad: &bad})
	if err != nil || r.Failed != 11 || r.Created != 10 {
		t.Fatalf("got %v %+v, want no error and r.Failed = 11 and r.Created = 10", err, r)
	}
	all := strings.SplitAfter(bundle, "\n")
	want := strings.Join([]string{all[7], all[8], all[9], all[10], all[11], all[12], all[13], all[14], all[16], all[18], all[19]}, "")
	if diff := cmp.Diff(want, bad.String()); diff != "" {
		t.Fatalf("mismatch (-want +got):\n%s", diff)
	}
	again, err := w.load(acme, bundle, ImportOptions{Partial: true})
	if err != nil || again.Unchanged != 10 || again.Failed != 11 || again.Created != 0 {
		t.Fatalf("got %v %+v, want no error and again.Unchanged = 10 and again.Failed = 11 and again.Created = 0", err, again)
	}
}
