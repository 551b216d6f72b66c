package transfer

import (
	"context"
	"encoding/json"
	"maps"

	"tenantry/backends/campaigns"
	"tenantry/backends/compliance"
	"tenantry/backends/contacts"
	"tenantry/backends/files"
	"tenantry/backends/forms"
	"tenantry/backends/objects"
	"tenantry/backends/schema"
	"tenantry/backends/secrets"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/reports"
)

// The names of the kinds of lines.
const (
	kindOrganization = "organization"
	kindTeam         = "team"
	kindRole         = "role"
	kindUser         = "user"
	kindAccount      = "service_account"
	kindField        = "contact_field"
	kindObject       = "custom_object"
	kindForm         = "form_collection"
	kindContact      = "contact"
	kindFolder       = "folder"
	kindFile         = "file"
	kindRecord       = "record"
	kindSubmission   = "submission"
	kindCampaign     = "campaign"
	kindReport       = "custom_report"
	kindCompliance   = "compliance_settings"
)

// limits of texts, in characters
const (
	short = 200
	long  = 10_000
)

// dataKinds returns the kinds of records, in the order in which an export writes them
// and definitions are stored.
func dataKinds(d *Deps) []handler {
	return []handler{
		fieldKind(d), objectKind(d), formKind(d), contactKind(d), folderKind(d), fileKind(d),
		recordKind(d), submissionKind(d), campaignKind(d), reportKind(d), complianceKind(d),
	}
}

// documentFields puts the fields that every document has around its own.
func documentFields[T any](meta func(*T) *store.Meta, own ...field[T]) []field[T] {
	id := idField("id", func(rec *T) *string { return &meta(rec).ID })
	id.read = func(rec *T, v strictjson.Value, errs *fault.List) {
		if v.Is != strictjson.Text || !store.ValidID(v.Text) {
			errs.Add("id", "format", "id must be an identifier of 24 lower-case hexadecimal digits")
			return
		}
		meta(rec).ID = v.Text
	}
	created := timeField("created_at", func(rec *T) *int64 { return &meta(rec).CreatedAt })
	updated := timeField("updated_at", func(rec *T) *int64 { return &meta(rec).UpdatedAt })
	updated.silent = true // the store stamps every change
	return append(append([]field[T]{id}, own...), created, updated)
}

// valuesField holds the values of fields that the organization defined.
func valuesField[T any](name string, at func(*T) *map[string]any) field[T] {
	f := tableField(name, at)
	f.copy = func(to, from *T) { // names that a line does not give keep their values
		merged := maps.Clone(*at(to))
		if merged == nil {
			merged = map[string]any{}
		}
		maps.Copy(merged, *at(from))
		*at(to) = merged
	}
	return f
}

func schemaField[T any](at func(*T) *schema.Fields) field[T] {
	f := jsonField("schema", func(rec *T, v strictjson.Value, errs *fault.List) {
		if v.Is != strictjson.Object {
			wrongType(errs, "schema", "an object of fields by identifier")
			return
		}
		*at(rec), _ = schema.Parse(errs, "schema", v.Table(), nil)
		for i := range v.Members { // which callers may not set
			name := v.Members[i].Name
			if f, ok := (*at(rec))[name]; ok && v.Members[i].Value.Get("locked").Is == strictjson.True {
				f.Locked = true
				(*at(rec))[name] = f
			}
		}
	}, func(rec *T) any { return at(rec).Clone() }, // also where it is empty, so that importing takes fields away
		func(to, from *T) { *at(to) = *at(from) })
	f.stored = func(rec *T, v strictjson.Value) error { return json.Unmarshal(v.Raw(), at(rec)) }
	return f
}

// visitor is called with a reference of a record: the field, the kind it leads to, and
// the identifier, which it may replace.
type visitor = func(field, target string, id *string)

func visitTeams(teams []string, visit visitor) {
	for i := range teams {
		visit("teams", kindTeam, &teams[i])
	}
}

func checkTeams(v *view, e *entry, teams []string) {
	for _, id := range teams {
		if !v.teams[id] {
			noteAbsent(&e.errs, "teams", kindTeam)
			return
		}
	}
}

func checkUser(v *view, e *entry, id int64) {
	if id != 0 && !v.users[id] {
		noteAbsent(&e.errs, "user_id", kindUser)
	}
}

// checkValues holds a record's values against its definition and moves the secret ones out.
func checkValues(ctx context.Context, v *view, e *entry, at secrets.Place, fields schema.Fields, values *map[string]any) {
	secret := secretIn(fields)
	e.secrets = v.vault.Take(ctx, at, "values", *values, secret, &e.errs)
	plain := fields
	if len(e.secrets) > 0 || hasSecrets(fields) {
		plain = fields.Clone()
		for name, f := range fields {
			if secret(name) {
				if _, given := e.secrets[name]; f.Required && !given {
					e.errs.Add("values."+name, "required", "values.%s is required", name)
				}
				delete(plain, name)
			}
		}
	}
	clean, unknown := plain.CheckValues(&e.errs, "values", *values)
	for _, name := range unknown {
		path := "values." + schema.Printable(name)
		e.errs.Add(path, "unknown", "%s is not a field that is defined", path)
	}
	if len(clean) == 0 {
		clean = nil
	}
	*values = clean
}

func hasSecrets(fields schema.Fields) bool {
	for _, f := range fields {
		if f.Type == schema.Encrypted {
			return true
		}
	}
	return false
}

func fieldKind(d *Deps) handler {
	type T = contacts.FieldDef
	k := &kind[T]{
		label: kindField, records: d.Contacts.Fields, defines: true, meta: (*T).StoreMeta,
		uniques: []unique[T]{{field: "key", value: func(r *T) string { return r.Key }, identity: always}},
		fields: []field[T]{
			textField("key", 64, func(r *T) *string { return &r.Key }).must(),
			textField("title", short, func(r *T) *string { return &r.Title }).must(),
			textField("type", 64, func(r *T) *string { return &r.Type }).must(),
			timeField("created_at", func(r *T) *int64 { return &r.CreatedAt }),
		},
		check: func(_ context.Context, _ *view, r *T, e *entry) {
			if len(e.errs) == 0 {
				contacts.ValidateField(r, &e.errs)
			}
		},
	}
	return k.ready()
}

func objectKind(d *Deps) handler {
	type T = objects.Definition
	k := &kind[T]{
		label: kindObject, records: d.Objects.Definitions, defines: true, meta: (*T).StoreMeta,
		uniques: []unique[T]{
			{field: "name", value: func(r *T) string { return r.Name }, identity: withoutID},
			{field: "label", value: func(r *T) string { return r.Label }},
			{field: "label_plural", value: func(r *T) string { return r.LabelPlural }},
		},
		fields: documentFields((*T).StoreMeta,
			textField("name", 64, func(r *T) *string { return &r.Name }).must(),
			textField("label", short, func(r *T) *string { return &r.Label }).must(),
			textField("label_plural", short, func(r *T) *string { return &r.LabelPlural }).must(),
			schemaField(func(r *T) *schema.Fields { return &r.Schema }),
		),
		check: func(_ context.Context, _ *view, r *T, e *entry) {
			checkNaming(e, r.Name, r.Label, r.LabelPlural)
		},
	}
	return k.ready()
}

func checkNaming(e *entry, name, label, plural string) {
	if len(e.errs) > 0 {
		return
	}
	schema.CheckName(&e.errs, "name", name)
	schema.CheckLabel(&e.errs, "label", label)
	schema.CheckLabel(&e.errs, "label_plural", plural)
}

func formKind(d *Deps) handler {
	type T = forms.Collection
	k := &kind[T]{
		label: kindForm, records: d.Forms.Collections, defines: true, meta: (*T).StoreMeta,
		uniques: []unique[T]{
			{field: "external_id", value: func(r *T) string { return r.ExternalID }, identity: always},
			{field: "name", value: func(r *T) string { return r.Name }, identity: withoutID},
			{field: "label", value: func(r *T) string { return r.Label }},
			{field: "label_plural", value: func(r *T) string { return r.LabelPlural }},
		},
		fields: documentFields((*T).StoreMeta,
			numberField("user_id", func(r *T) *int64 { return &r.UserID }),
			textField("name", 64, func(r *T) *string { return &r.Name }).must(),
			textField("label", short, func(r *T) *string { return &r.Label }).must(),
			textField("label_plural", short, func(r *T) *string { return &r.LabelPlural }).must(),
			schemaField(func(r *T) *schema.Fields { return &r.Schema }),
			tableField("email_alerts", func(r *T) *map[string]any { return (*map[string]any)(&r.EmailAlerts) }),
			flagField("standalone", func(r *T) *bool { return &r.Standalone }),
			textField("external_id", short, func(r *T) *string { return &r.ExternalID }),
			textField("external_created_at", short, func(r *T) *string { return &r.ExternalCreatedAt }),
			textField("external_updated_at", short, func(r *T) *string { return &r.ExternalUpdatedAt }),
		),
		check: func(_ context.Context, v *view, r *T, e *entry) {
			checkNaming(e, r.Name, r.Label, r.LabelPlural)
			checkUser(v, e, r.UserID)
			r.EmailAlerts.Check(&e.errs, "email_alerts")
			for name := range forms.Common() { // every form has them; they are not stored
				delete(r.Schema, name)
			}
		},
	}
	return k.ready()
}

func contactKind(d *Deps) handler {
	type T = contacts.Contact
	k := &kind[T]{
		label: kindContact, records: d.Contacts.Contacts, meta: (*T).StoreMeta,
		refs:        func(r *T, visit visitor) { visitTeams(r.Teams, visit) },
		uniques:     []unique[T]{{field: "external_id", value: func(r *T) string { return r.ExternalID }, identity: always}},
		secrets:     func(r *T) *map[string]string { return &r.Secrets },
		values:      func(r *T) *map[string]any { return &r.Fields },
		secretNames: func(v *view, _ *T) func(string) bool { return v.secretContactField },
		fields: documentFields((*T).StoreMeta,
			textField("email", short+120, func(r *T) *string { return &r.Email }),
			textField("first_name", short, func(r *T) *string { return &r.FirstName }),
			textField("last_name", short, func(r *T) *string { return &r.LastName }),
			textField("phone", short, func(r *T) *string { return &r.Phone }),
			textField("country", short, func(r *T) *string { return &r.Country }),
			textField("city", short, func(r *T) *string { return &r.City }),
			textField("status", short, func(r *T) *string { return &r.Status }),
			textsField("tags", short, func(r *T) *[]string { return &r.Tags }),
			valuesField("fields", func(r *T) *map[string]any { return &r.Fields }),
			teamsField(func(r *T) *[]string { return &r.Teams }),
			textField("external_id", short, func(r *T) *string { return &r.ExternalID }),
		),
		check: func(ctx context.Context, v *view, r *T, e *entry) {
			if len(e.errs) > 0 {
				return
			}
			e.secrets = v.vault.Take(ctx, secrets.Place{Collection: contacts.Collection, Record: r.ID}, "fields", r.Fields, v.secretContactField, &e.errs)
			contacts.Validate(r, v.fields, &e.errs)
			if len(r.Fields) == 0 {
				r.Fields = nil
			}
			checkTeams(v, e, r.Teams)
		},
	}
	return k.ready()
}

func folderKind(d *Deps) handler {
	type T = files.Folder
	k := &kind[T]{
		label: kindFolder, records: d.Files.Folders, meta: (*T).StoreMeta,
		refs: func(r *T, visit visitor) {
			visit("folder_id", kindFolder, &r.FolderID)
			visitTeams(r.Teams, visit)
		},
		fields: documentFields((*T).StoreMeta,
			textField("name", short, func(r *T) *string { return &r.Name }).must(),
			idField("folder_id", func(r *T) *string { return &r.FolderID }),
			numberField("user_id", func(r *T) *int64 { return &r.UserID }),
			teamsField(func(r *T) *[]string { return &r.Teams }),
			flagField("deleted", func(r *T) *bool { return &r.Deleted }),
		),
		check: func(_ context.Context, v *view, r *T, e *entry) {
			checkTeams(v, e, r.Teams)
			checkUser(v, e, r.UserID)
		},
	}
	return k.ready()
}

func fileKind(d *Deps) handler {
	type T = files.File
	k := &kind[T]{
		label: kindFile, records: d.Files.Files, meta: (*T).StoreMeta,
		uniques: []unique[T]{{field: "pid", value: func(r *T) string { return r.PID }, identity: withoutID}},
		refs: func(r *T, visit visitor) {
			visit("folder_id", kindFolder, &r.FolderID)
			visit("contact_id", kindContact, &r.ContactID)
			visitTeams(r.Teams, visit)
		},
		fill: func(r *T) {
			if r.PID == "" {
				r.PID = reports.NewPID()
			}
		},
		fields: documentFields((*T).StoreMeta,
			textField("pid", short, func(r *T) *string { return &r.PID }),
			textField("filename", 255, func(r *T) *string { return &r.Filename }).must(),
			textField("mimetype", short, func(r *T) *string { return &r.Mimetype }).must(),
			textField("hash", short, func(r *T) *string { return &r.Hash }),
			idField("folder_id", func(r *T) *string { return &r.FolderID }),
			idField("contact_id", func(r *T) *string { return &r.ContactID }),
			numberField("user_id", func(r *T) *int64 { return &r.UserID }),
			textField("type", short, func(r *T) *string { return &r.Type }),
			teamsField(func(r *T) *[]string { return &r.Teams }),
			flagField("deleted", func(r *T) *bool { return &r.Deleted }),
		),
		check: func(_ context.Context, v *view, r *T, e *entry) {
			checkTeams(v, e, r.Teams)
			checkUser(v, e, r.UserID)
			if r.Hash != "" && !files.ValidHash(r.Hash) {
				e.errs.Add("hash", "format", "hash must be 1 to 128 letters, digits, _ and -")
			}
		},
	}
	return k.ready()
}

func recordKind(d *Deps) handler {
	type T = objects.Record
	k := &kind[T]{
		label: kindRecord, records: d.Objects.Records, meta: (*T).StoreMeta,
		uniques: []unique[T]{{
			field: "external_id", value: func(r *T) string { return r.ExternalID }, identity: always,
			group: "object", groupOf: func(r *T) string { return r.Object },
		}},
		secrets:     func(r *T) *map[string]string { return &r.Secrets },
		values:      func(r *T) *map[string]any { return &r.Values },
		secretNames: func(v *view, r *T) func(string) bool { return secretIn(v.objects[r.Object]) },
		fields: documentFields((*T).StoreMeta,
			textField("object", 64, func(r *T) *string { return &r.Object }).must(),
			valuesField("values", func(r *T) *map[string]any { return &r.Values }),
			textField("external_id", short, func(r *T) *string { return &r.ExternalID }),
		),
		check: func(ctx context.Context, v *view, r *T, e *entry) {
			if len(e.errs) > 0 {
				return
			}
			fields, ok := v.objects[r.Object]
			if !ok {
				noteAbsent(&e.errs, "object", "custom object")
				return
			}
			checkValues(ctx, v, e, secrets.Place{Collection: "records", Record: r.ID}, fields, &r.Values)
		},
	}
	return k.ready()
}

func submissionKind(d *Deps) handler {
	type T = forms.Submission
	k := &kind[T]{
		label: kindSubmission, records: d.Forms.Submissions, meta: (*T).StoreMeta,
		refs:        func(r *T, visit visitor) { visit("form", kindForm, &r.Form) },
		secrets:     func(r *T) *map[string]string { return &r.Secrets },
		values:      func(r *T) *map[string]any { return &r.Values },
		secretNames: func(v *view, r *T) func(string) bool { return secretIn(v.forms[r.Form]) },
		fields: documentFields((*T).StoreMeta,
			idField("form", func(r *T) *string { return &r.Form }).must(),
			valuesField("values", func(r *T) *map[string]any { return &r.Values }),
		),
		check: func(ctx context.Context, v *view, r *T, e *entry) {
			if len(e.errs) > 0 {
				return
			}
			fields, ok := v.forms[r.Form] // with those that every form has
			if !ok {
				noteAbsent(&e.errs, "form", "form collection")
				return
			}
			checkValues(ctx, v, e, secrets.Place{Collection: "form_submissions", Record: r.ID}, fields, &r.Values)
		},
	}
	return k.ready()
}

func campaignKind(d *Deps) handler {
	type T = campaigns.Campaign
	k := &kind[T]{
		label: kindCampaign, records: d.Campaigns.Campaigns, meta: (*T).StoreMeta,
		refs: func(r *T, visit visitor) { visitTeams(r.Teams, visit) },
		fields: documentFields((*T).StoreMeta,
			textField("name", short, func(r *T) *string { return &r.Name }).must(),
			jsonField("filter", func(r *T, v strictjson.Value, errs *fault.List) { r.Filter = v.Raw() }, func(r *T) any {
				if len(r.Filter) == 0 {
					return nil
				}
				return r.Filter
			}, func(to, from *T) { to.Filter = from.Filter }),
			teamsField(func(r *T) *[]string { return &r.Teams }),
		),
		check: func(_ context.Context, v *view, r *T, e *entry) {
			if len(e.errs) == 0 {
				campaigns.Validate(r, v, &e.errs)
			}
			checkTeams(v, e, r.Teams)
		},
	}
	return k.ready()
}

func complianceKind(d *Deps) handler {
	type T = compliance.Settings
	k := &kind[T]{
		label: kindCompliance, records: d.Compliance.Settings, meta: (*T).StoreMeta,
		uniques: []unique[T]{{field: "key", value: func(*T) string { return "settings" }, identity: always}},
		fill:    func(r *T) { r.Key = "settings" },
		fields: []field[T]{
			flagField("enabled", func(r *T) *bool { return &r.Enabled }),
			textsField("lesson_tags_all", short, func(r *T) *[]string { return &r.LessonTagsAll }),
			textsField("lesson_tags_any", short, func(r *T) *[]string { return &r.LessonTagsAny }),
			flagField("submission_enabled", func(r *T) *bool { return &r.SubmissionEnabled }),
		},
	}
	return k.ready()
}

func reportKind(d *Deps) handler {
	type T = reports.Report
	flag := func(name string, at func(*T) *bool) field[T] { return flagField(name, at) }
	k := &kind[T]{
		label: kindReport, records: d.Reports.Reports, meta: (*T).StoreMeta,
		uniques: []unique[T]{{field: "pid", value: func(r *T) string { return r.PID }, identity: withoutID}},
		refs: func(r *T, visit visitor) {
			for i := range r.ChildReports {
				visit("child_reports", kindReport, &r.ChildReports[i])
			}
			if r.Class == "Submissions" {
				visit("source", kindForm, &r.Source)
			}
			visitTeams(r.Teams, visit)
		},
		preset: func(r *T) { r.Secure = true },
		fill: func(r *T) {
			if r.PID == "" {
				r.PID = reports.NewPID()
			}
		},
		fields: documentFields((*T).StoreMeta,
			textField("pid", short, func(r *T) *string { return &r.PID }),
			textField("title", short, func(r *T) *string { return &r.Title }).must(),
			textField("desc", long, func(r *T) *string { return &r.Desc }),
			textField("class", 64, func(r *T) *string { return &r.Class }).must(),
			textField("source", short, func(r *T) *string { return &r.Source }),
			queryField(),
			inputField(),
			flag("secure", func(r *T) *bool { return &r.Secure }),
			flag("portal_visible", func(r *T) *bool { return &r.PortalVisible }),
			shareableField(),
			flag("exportable", func(r *T) *bool { return &r.Exportable }),
			textField("visual", 64, func(r *T) *string { return &r.Visual }),
			tableField("visual_props", func(r *T) *map[string]any { return &r.VisualProps }),
			textField("folder", short, func(r *T) *string { return &r.Folder }),
			textField("parent", short, func(r *T) *string { return &r.Parent }),
			textField("row_key", short, func(r *T) *string { return &r.RowKey }),
			tableField("actions", func(r *T) *map[string]any { return &r.Actions }),
			idsField("child_reports", maxList, func(r *T) *[]string { return &r.ChildReports }),
			teamsField(func(r *T) *[]string { return &r.Teams }),
		),
		check: checkReport(d.ReportsModule),
	}
	return k.ready()
}

func queryField() field[reports.Report] {
	f := jsonField("query", func(r *reports.Report, v strictjson.Value, errs *fault.List) {
		if v.Is != strictjson.Object {
			wrongType(errs, "query", "an object")
			return
		}
		r.Query = reports.ParseQuery(v.Raw(), errs)
	}, func(r *reports.Report) any { return r.Query }, func(to, from *reports.Report) { to.Query = from.Query })
	f.stored = func(r *reports.Report, v strictjson.Value) error { return json.Unmarshal(v.Raw(), &r.Query) }
	return f
}

func inputField() field[reports.Report] {
	return jsonField("input", func(r *reports.Report, v strictjson.Value, errs *fault.List) {
		if v.Is != strictjson.Object || json.Unmarshal(v.Raw(), &r.Input) != nil {
			wrongType(errs, "input", "an object of {rule, value, label, type} by name")
		}
	}, func(r *reports.Report) any {
		if len(r.Input) == 0 {
			return nil
		}
		return r.Input
	}, func(to, from *reports.Report) { to.Input = from.Input })
}

func shareableField() field[reports.Report] {
	return jsonField("shareable", func(r *reports.Report, v strictjson.Value, errs *fault.List) {
		if v.Is != strictjson.True && v.Is != strictjson.False {
			wrongType(errs, "shareable", "true or false")
			return
		}
		shareable := v.Is == strictjson.True
		r.Shareable = &shareable
	}, func(r *reports.Report) any {
		if r.Shareable == nil {
			return nil
		}
		return *r.Shareable
	}, func(to, from *reports.Report) { to.Shareable = from.Shareable })
}

// checkReport leaves it to a run whether the query's fields exist: the organization may
// change them after the import just as well.
func checkReport(m *reports.Module) func(context.Context, *view, *reports.Report, *entry) {
	return func(_ context.Context, v *view, r *reports.Report, e *entry) {
		if len(e.errs) > 0 {
			return
		}
		m.Validate(r, &e.errs)
		_, object := v.objects[r.Source]
		_, form := v.forms[r.Source]
		switch {
		case r.Class == "Records" && r.Source != "" && !object:
			noteAbsent(&e.errs, "source", "custom object")
		case r.Class == "Submissions" && r.Source != "" && !form:
			noteAbsent(&e.errs, "source", "form collection")
		}
		if len(e.errs) == 0 {
			m.CheckFields(r, v.definedFor(r), &e.errs)
		}
		checkTeams(v, e, r.Teams)
	}
}
