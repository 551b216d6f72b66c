package transfer

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenantry/modules/imports/bundle"
	"tenantry/modules/imports/tabular"
)

// office is what rows of these tests refer to.
const office = `{"kind":"team","id":"0000000000000000000000a1","name":"North"}
{"kind":"team","id":"0000000000000000000000a2","name":"South"}
{"kind":"role","name":"reader","label":"Reader","permissions":["contacts"]}
{"kind":"user","id":7,"name":"Grace","email":"grace@example.com","roles":["reader"]}
{"kind":"folder","id":"0000000000000000000000c1","name":"Letters","user_id":7}
{"kind":"contact","id":"0000000000000000000000b1","email":"ada@example.com"}
{"kind":"form_collection","id":"000000000000000000000091","name":"apply","label":"Apply","label_plural":"Applications","schema":{"why":{"title":"Why","type":"LongText"},"age":{"title":"Age","type":"Number"},"pin":{"title":"Pin","type":"Encrypted"}}}
{"kind":"campaign","id":"0000000000000000000000d1","name":"Gold"}
{"kind":"file","id":"0000000000000000000000f1","pid":"p1","filename":"scan.pdf","mimetype":"application/pdf","type":"scan","user_id":7}
{"kind":"service_account","name":"crm","permissions":["contacts"]}
`

// T: what a row becomes follows from the resource's description.
func TestRows_AnyResource(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, c := range map[string]struct {
		as, format, file string
		kind             string
		want             []string // in the export
	}{
		"folders": {"folders", tabular.CSV, "Name;Folder ID;user_id;Teams;deleted;created_at\n\"2024\nletters\";0000000000000000000000c1;7;0000000000000000000000a1|0000000000000000000000a2;yes;2024-01-02T03:04:05Z\nTop;;;;;\n", "folder", []string{
			`"name":"2024 letters","folder_id":"0000000000000000000000c1","user_id":7,"public":false,"teams":["0000000000000000000000a1","0000000000000000000000a2"],"deleted":true,"created_at":"2024-01-02T03:04:05.000Z"`, `"name":"Top"`}},
		"folders within each other": {"folders", tabular.CSV, "id,name,folder_id\n0000000000000000000000c4,Inner,0000000000000000000000c3\n0000000000000000000000c3,Outer,\n", "folder", []string{
			`"id":"0000000000000000000000c4","name":"Inner","folder_id":"0000000000000000000000c3"`}},
		"files": {"files", tabular.JSON, `[{"filename":"b.pdf","mimetype":"application/pdf","folder_id":"0000000000000000000000c1","contact_id":"0000000000000000000000b1","user_id":7,"teams":["0000000000000000000000a1"],"deleted":false}]`, "file", []string{
			`"filename":"b.pdf","mimetype":"application/pdf","folder_id":"0000000000000000000000c1","contact_id":"0000000000000000000000b1","user_id":7,"teams":["0000000000000000000000a1"]`}},
		"campaigns": {"campaigns", tabular.CSV, "name,filter,teams\nAll,,\nGerman,\"{\"\"country\"\": \"\"DE\"\"}\",0000000000000000000000a1\n", "campaign", []string{
			`"name":"All"`, `"name":"German","filter":{"country":"DE"},"teams":["0000000000000000000000a1"]`}},
		"reports": {"custom_reports", tabular.JSON, `[{"id":"0000000000000000000000e2","title":"A","class":"Contacts","query":{"fields":["email"]},"desc":"two\nlines","secure":"no","exportable":true,"child_reports":["0000000000000000000000e3"]},
			{"id":"0000000000000000000000e3","title":"B","class":"Contacts","query":"{\"fields\":[\"city\"]}","shareable":false}]`, "custom_report", []string{
			`"desc":"two\nlines","class":"Contacts","query":{"fields":["email"]},"secure":false`, `"exportable":true,"child_reports":["0000000000000000000000e3"]`, `"query":{"fields":["city"]},"secure":true`, `"shareable":false`}},
		"submissions by name": {"submissions:apply", tabular.CSV, "form name,Why,age,pin,created_at\na,\"because\nof it\",36,4321,2024-01-02\n", "submission", []string{
			`"form":"000000000000000000000091","values":{"age":36,"form_name":"a","pin":"4321","why":"because\nof it"},"created_at":"2024-01-02T00:00:00.000Z"`}},
		"submissions by id": {"submissions:000000000000000000000091", tabular.JSON, `[{"form_name":"f","why":"x"}]`, "submission", []string{`"form":"000000000000000000000091","values":{"form_name":"f","why":"x"}`}},
		"teams":             {"teams", tabular.CSV, "name\nEast\n", "team", []string{`"name":"East"`}},
		"roles":             {"roles", tabular.CSV, "name,permissions\nwriter,contacts;manage_files\n", "role", []string{`"name":"writer","label":"writer","permissions":["contacts","manage_files"]`}},
		"users": {"users", tabular.CSV, "name,email,roles,teams,active\nEva,eva@example.com,reader,0000000000000000000000a1,no\nIda,ida@example.com,,,\n", "user", []string{
			`"name":"Eva","email":"eva@example.com","roles":["reader"],"teams":["0000000000000000000000a1"],"active":false`, `"name":"Ida","email":"ida@example.com","active":true`}},
		"service accounts": {"service_accounts", tabular.CSV, "name,permissions\nmail,contacts\n", "service_account", []string{`"name":"mail","permissions":["contacts"]`}},
		"contact fields":   {"contact_fields", tabular.CSV, "key,title,type\nplan,Plan,Select\nage,Age,Number\n", "contact_field", []string{`"key":"plan","title":"Plan","type":"Select"`, `"key":"age"`}},
		"custom objects": {"custom_objects", tabular.JSON, `[{"name":"tree","label":"Tree","label_plural":"Trees","schema":{"species":{"title":"Species","type":"Text"}}}]`, "custom_object", []string{
			`"name":"tree","label":"Tree","label_plural":"Trees","schema":{"species":{"title":"Species","type":"Text"}}`}},
		"forms":          {"form_collections", tabular.CSV, "name,label,label_plural,standalone,external_id\nask,Ask,Asks,true,f-1\n", "form_collection", []string{`"name":"ask","label":"Ask","label_plural":"Asks","schema":{},`, `"standalone":true,"external_id":"f-1"`}},
		"the one record": {"compliance_settings", tabular.CSV, "enabled,lesson_tags_all\ntrue,a;b\n", "compliance_settings", []string{`"enabled":true,"lesson_tags_all":["a","b"]`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{t, w.gateway, w.service}
			org := w.org("o" + strings.NewReplacer(" ", "-").Replace(name))
			w.mustLoad(org, office)
			before := len(lines(w.dump(org, true), c.kind))
			o := tabular.Options{As: c.as, Format: c.format}
			if o.DryRun = true; w.mustRows(org, c.file, o).Created == 0 || len(lines(w.dump(org, true), c.kind)) != before {
				t.Fatal("a dry run tells nothing, or stores something")
			}
			o.DryRun = false
			r := w.mustRows(org, c.file, o)
			out := w.dump(org, true)
			if made := lines(out, c.kind); r.Created != len(made)-before || r.Created != r.Lines || r.Kinds[c.kind] != r.Counts {
				t.Errorf("%+v, and %d lines", r, len(made))
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("missing %s in\n%s", want, out)
				}
			}
			if again := w.mustRows(org, c.file, o); again.Unchanged != r.Lines {
				t.Errorf("again: %+v", again.Counts)
			}
			if problems := w.mustRows(org, c.file, o).Problems; len(problems) > 0 {
				t.Errorf("got %v, want len(problems) <= 0", problems)
			}
		})
	}
}

// T: faults of rows name the column or the field.
func TestRows_AnyResourceFaults(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	w.mustLoad(acme, office)
	before := w.dump(acme, true)
	for file, want := range map[string]string{
		"folders\nname,user_id\nA,seven\n":                            `column "user_id": expected a number`,
		"folders\nname,user_id\nA,1.5\n":                              "user_id must be",
		"folders\nname,deleted\nA,perhaps\n":                          `column "deleted": true or false is expected`,
		"folders\nname,created_at\nA,then\n":                          `column "created_at": a time like`,
		"folders\nname,folder_id\nA,0000000000000000000000c9\n":       "folder_id names a folder",
		"folders\nname,folder_id\nA,Letters\n":                        "folder_id must be an identifier",
		"folders\nname,teams\nA,0000000000000000000000a9\n":           "teams names a team",
		"folders\nname,user_id\nA,8\n":                                "user_id names a user",
		"folders\nuser_id\n7\n":                                       "name is required",
		"folders\nname,user_id\n,7\n":                                 "name is required",
		"folders\nname\n" + strings.Repeat("x", 201) + "\n":           "name must have at most 200 characters",
		"files\nfilename\na.pdf\n":                                    "mimetype is required",
		"campaigns\nname,filter\nA,{nonsense\n":                       `column "filter": JSON is expected: the text`,
		"campaigns\nname,filter\nA,\"{\"\"unknown\"\":\"\"x\"\"}\"\n": "unknown",
		"campaigns\nname,teams\nA," + strings.Repeat("x;", 1001):      "",
		"custom_reports\ntitle,class\nA,Nothing\n":                    "class",
		"users\nname,email\nA,nonsense\n":                             "email must be a plain address such as name@example.com",
		"users\nname,E-Mail\nA,nonsense\n":                            `column "E-Mail": email must be a plain address`,
		"users\nname,email,roles\nA,a@example.com,boss\n":             "roles names a role",
		"teams\nname\nM\xfcller\n":                                    `column "name": the text is not valid UTF-8; save`,
		"submissions:apply\nage\nold\n":                               `column "age": expected a number`,
		"teams\nname\n\"\x00\"\n":                                     "NUL",
		"compliance_settings\nenabled\ntrue\nfalse\n":                 "line 2 is also of the kind",
	} {
		as, file, _ := strings.Cut(file, "\n")
		r, err := w.rows(acme, file, tabular.Options{As: as, Format: tabular.CSV})
		var refused *bundle.RefusedError
		if !errors.As(err, &refused) || len(r.Problems) == 0 || !strings.Contains(r.Problems[len(r.Problems)-1].String(), want) {
			t.Errorf("%s: got %q: %v, %v, want an error of the type of refused and len(r.Problems) > 0 and containing %q",
				as, file, err, r.Problems, want)
		}
	}
	for file, want := range map[string]string{
		"folders\nname,colour\nA,red\n":                 `a folder has no field for the column "colour"`,
		"users\nname,email,password_hash\nA,a@b.de,x\n": `a user has no field for the column "password_hash"`,
		"submissions:apply\nwhy,when\na,b\n":            `no field for the column "when"`,
		"submissions:none\nwhy\na\n":                    `there is no form collection "none"`,
		"submissions\nwhy\na\n":                         "submissions:FORM",
		"records:\nwhy\na\n":                            "records:OBJECT",
		"records:No\nwhy\na\n":                          "for the custom object, the name must have",
		"folders:x\nname\na\n":                          "rows can be imported as teams, roles, users, service_accounts, contact_fields,",
		"organizations\nname\na\n":                      "rows can be imported as",
		"folder\nname\na\n":                             "rows can be imported as",
	} {
		as, file, _ := strings.Cut(file, "\n")
		if r, err := w.rows(acme, file, tabular.Options{As: as, Format: tabular.CSV}); !errors.Is(err, tabular.ErrOptions) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %q: %v, %v, want the error tabular.ErrOptions and containing %q", as, file, err, r.Problems, want)
		}
	}
	if _, err := w.rows(acme, "a\nx\n", tabular.Options{As: "folders", Format: tabular.CSV, Map: map[string][]string{"a": {"colour"}}}); !errors.Is(err, tabular.ErrOptions) {
		t.Errorf("a map to no field: %v", err)
	}
	if after := w.dump(acme, true); after != before {
		t.Errorf("something was stored:\n%s", after)
	}
}

// T: a row with a stored record's value of the key gives what changes, and nothing else.
func TestRows_AnyResourceKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	w.mustLoad(acme, office)
	for _, c := range []struct{ as, key, file, want string }{
		{"folders", "name", "name,user_id,deleted\nLetters,,true\n", `"id":"0000000000000000000000c1","name":"Letters","user_id":7,"public":false,"deleted":true`},
		{"files", "filename", "filename,type\nscan.pdf,letter\n", `"id":"0000000000000000000000f1","pid":"p1","filename":"scan.pdf","mimetype":"application/pdf","user_id":7,"type":"letter"`},
		{"files", "user_id", "user_id,type\n7,bill\n", `"type":"bill"`}, // no text, and without an index
		{"campaigns", "name", "name,teams\nGold,0000000000000000000000a1\n", `"id":"0000000000000000000000d1","name":"Gold","teams":["0000000000000000000000a1"]`},
		{"roles", "label", "label,permissions\nReader,contacts;manage_files\n", `"name":"reader","label":"Reader","permissions":["contacts","manage_files"]`},
		{"users", "email", "email,active\ngrace@example.com,no\n", `"id":7,"name":"Grace","email":"grace@example.com","roles":["reader"],"active":false`},
	} {
		o := tabular.Options{As: c.as, Format: tabular.CSV, Key: c.key}
		if r := w.mustRows(acme, c.file, o); r.Updated != 1 || r.Created != 0 {
			t.Errorf("%s: got %+v, want r.Updated = 1 and r.Created = 0", c.as, r.Counts)
		}
		if out := w.dump(acme, false); !strings.Contains(out, c.want) {
			t.Errorf("missing %s in\n%s", c.want, out)
		}
		if r := w.mustRows(acme, c.file, o); r.Unchanged != 1 {
			t.Errorf("%s, again: %+v", c.as, r.Counts)
		}
	}
	// What is added needs all that a new record needs.
	r, err := w.rows(acme, "filename,type\nscan.pdf,x\nother.pdf,x\n", tabular.Options{As: "files", Format: tabular.CSV, Key: "filename"})
	if err == nil || r.Failed != 1 || !strings.Contains(r.Problems[0].String(), "line 3 (file): mimetype is required") {
		t.Errorf(`got %v %v, want an error and r.Failed = 1 and containing "line 3 (file): mimetype is required"`,
			err, r.Problems)
	}
	for key, as := range map[string]string{"teams": "folders", "filter": "campaigns"} {
		if _, err := w.rows(acme, "name,"+key+"\nA,\n", tabular.Options{As: as, Format: tabular.CSV, Key: key}); !errors.Is(err, tabular.ErrOptions) {
			t.Errorf("%s by %s: %v", as, key, err)
		}
	}
}

// T: what columns of contacts are not matched with by name, a map leads to.
func TestRows_ContactsByMap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	w.mustLoad(acme, office)
	file := "mail,teams,since\nb@example.com,0000000000000000000000a1;0000000000000000000000a2,2024-01-02\n"
	o := tabular.Options{As: "contacts", Format: tabular.CSV, Map: map[string][]string{"mail": {"email"}, "teams": {"teams"}, "since": {"created_at"}}}
	r := w.mustRows(acme, file, o)
	if want := column("teams", "teams", "", false); !cmp.Equal(r.Columns[1], want) {
		t.Errorf("got %+v, want %v", r.Columns, want)
	}
	if out := w.dump(acme, false); !strings.Contains(out, `"email":"b@example.com","teams":["0000000000000000000000a1","0000000000000000000000a2"],"created_at":"2024-01-02T00:00:00.000Z"`) {
		t.Errorf("got %v, want containing %q",
			out, `"email":"b@example.com","teams":["0000000000000000000000a1","0000000000000000000000a2"],"created_at":"2024-01-02T00:00:00.000Z"`)
	}
	o.Map["teams"] = []string{"fields"}
	if r, err := w.rows(acme, file, o); err == nil {
		t.Errorf("got %+v, want an error", r)
	}
	delete(o.Map, "teams")
	o.Map["*"] = []string{"*"}
	if r := w.mustRows(acme, file, o); !cmp.Equal(r.Columns[1], column("teams", "column_teams", "Text", true)) {
		t.Errorf("Columns = %+v, want the second to be column_teams", r.Columns)
	}
}

// T: bad rows of definitions are written as those of documents are.
func TestRows_BadDefinitions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	var bad strings.Builder
	r, err := w.rows(acme, "name,email\nA,a@example.com\nB,nonsense\nC,a@example.com\nD,d@example.com\n", tabular.Options{As: "users", Format: tabular.CSV, Partial: true, Bad: &bad})
	if err != nil || r.Created != 2 || r.Failed != 2 || bad.String() != "name,email\nB,nonsense\nC,a@example.com\n" {
		t.Errorf("got %v %+v\n%s\nwant no error and r.Created = 2 and r.Failed = 2 and bad.String() = \"name,email\\nB,nonsense\\nC,a@example.com\\n\"",
			err, r, bad.String())
	}
}
