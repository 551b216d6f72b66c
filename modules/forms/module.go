// Package forms keeps forms, which are definitions of fields, and their submissions.
package forms

import (
	"context"
	"net/http"
	"slices"

	"tenantry/backends/record"
	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/operation"
	"tenantry/operation/crud"
	"tenantry/tenants"
	"tenantry/tenants/secrets"
)

// Module serves forms and their submissions. It is immutable once it serves and safe for concurrent use.
type Module struct {
	Kinds
	// Reports, if set, says which reports a change breaks. It must be set before the module serves.
	Reports schema.Dependents
	// Spent remembers answered challenges. It must be set before the module serves.
	Spent Spent
	// Attachments keeps the files of fields of the type File. It must be set before the module serves.
	Attachments Attachments
	// Alerts mails alerts about submissions. It must be set before the module serves.
	Alerts Alerter
	keys   secrets.Keys
}

// New returns the module. The keys seal values of encrypted fields.
func New(keys secrets.Keys) *Module { return &Module{Kinds: NewKinds(), keys: keys} }

const (
	tag              = "Forms"
	missing          = "Form Collection not found"
	notUpdated       = "Unable to update Form Collection"
	standaloneDetail = "Standalone Custom Objects cannot be updated through the API"
	exampleID        = "665f1c2ab4d3e2f1a0b9c8d7"
)

// Operations returns the module's rows.
func (m *Module) Operations() []operation.Row {
	own := []operation.Row{m.updateRow(), m.publishRow(), m.challengeRow(), m.attachRow()}
	for i := range own {
		crud.Resolve(&own[i], "id", func() *record.Resource { return m.Forms.Resource })
	}
	return slices.Concat(own, m.submissionRows(), []operation.Row{m.schemaRow()}, m.collectionRows(), m.publicRows())
}

func (m *Module) collectionRows() []operation.Row {
	return crud.Rows(m.Forms.Resource, crud.Options{
		Path: "/api/form/collections", Name: "forms", Things: "Form Collections", Tag: tag, Search: []string{
			"name", "label", "label_plural",
		},
		Read:  operation.NeedsOneOf(tenants.ManageForms, tenants.ViewFormSubmissions, tenants.CreateFormSubmissions),
		Write: operation.Needs(tenants.ManageForms), Before: crud.Before(m.before), Show: crud.ShowEach(m.show),
		Example: m.example(),
		Create: crud.Action{
			Policy:  operation.Policy{Weight: operation.Heavy},
			Request: operation.Request{BodyLimit: schema.BodyLimit},
			Types:   map[string]any{"schema": schema.Definitions{}, "email_alerts": nil},
		},
		Update: crud.Absent(),
		Delete: crud.Action{
			Policy: operation.Policy{Timeout: crud.ClearTimeout},
			Lead:   "The form's submissions are hidden until it is restored; with purge they are deleted with it.",
		},
	})
}

// show answers a form. Only callers who may manage forms see the e-mail alerts.
func (m *Module) show(c *operation.Call, f *Form) FullAnswer {
	shown := m.full(c, f)
	if !c.Principal.May(tenants.ManageForms) {
		shown.EmailAlerts = Alerts{}
	}
	return shown
}

// before completes a new form, and deletes the submissions of one that is purged.
func (m *Module) before(ctx context.Context, c *operation.Call, need *store.Preconditions, rec, was *Form) error {
	switch {
	case was == nil:
		rec.UserID = c.Principal.UserID
		var errs fault.List
		if raw, ok := c.Body.Object(&errs, "schema"); ok {
			rec.Schema = schema.Strict(&errs, "schema", raw, Common())
			delete(rec.Schema, FormName)
		}
		if c.Body.Object(&errs, "email_alerts"); len(errs) > 0 {
			return errs.Err()
		}
		rec.blind(c, nil)
		m.warnAlerts(c, rec)
		rec.warnNames(c, orderWarned, rec.FieldOrder)
		return m.requireFolders(ctx, c, need, rec.Schema, nil)
	case was.Standalone && c.Principal.Kind != tenants.System:
		return fault.One("standalone", fault.Forbidden, standaloneDetail)
	case rec == nil:
		if !was.Deleted { // so that no submissions are added meanwhile
			was.Deleted = true
			if err := m.Forms.In(c.Workspace).Replace(ctx, was); err != nil {
				return err
			}
		}
		return crud.Clear(ctx, m.Submissions.In(c.Workspace), store.Eq("form", was.ID))
	}
	return nil
}

// full shows a form to a caller who may manage forms.
func (m *Module) full(c *operation.Call, f *Form) FullAnswer {
	shown := crud.As[FullAnswer](m.Forms.Resource)(f, c.Tenant)
	if f.Public {
		shown.PublicURL = c.BaseURL + operation.FormPath + f.PID
	}
	return shown
}

// submissionRows returns the rows of submissions. Pages create them with browser keys.
func (m *Module) submissionRows() []operation.Row {
	return crud.Rows(m.Submissions.Resource, m.submissionOptions())
}

// submissionOptions say how submissions are served.
func (m *Module) submissionOptions() crud.Options {
	return crud.Options{
		Path: "/api/form/collections/{id}/submissions", Things: "Submissions", Within: "Form Collection",
		Read: operation.Needs(tenants.ViewFormSubmissions), Write: operation.Needs(tenants.ManageForms), Keys: m.keys, Export: true,
		Search: []string{"values"}, Create: m.submit(), Update: crud.Absent(),
		Stage: crud.Stage(m.stage),
	}
}

func exampleForm() *Form {
	f := &Form{
		UserID: 7, Name: "application", Label: "Application", LabelPlural: "Applications",
		Schema: schema.Fields{
			"motivation": {Title: "Motivation", Type: schema.LongText, Required: true},
			"paper":      {Title: "Paper", Type: schema.File, MaxSize: 5 << 20, MaxFiles: 2},
		},
		EmailAlerts: Alerts{"enabled": true, "recipients": []any{"office@example.com"}, "subject": "New application"},
	}
	f.ID, f.CreatedAt, f.UpdatedAt = exampleID, 1717509162000, 1717595562000
	return f
}

func (m *Module) example() FullAnswer {
	return crud.As[FullAnswer](m.Forms.Resource)(exampleForm(), &tenants.Tenant{Org: tenants.Organization{OrgID: 1}})
}

func (m *Module) updateRow() operation.Row {
	example := exampleForm()
	return operation.Row{
		Name: "forms.update", Method: http.MethodPut, Path: "/api/form/collections/{id}",
		Policy: operation.Policy{
			Credentials: operation.Key | operation.Session, Kinds: operation.ServerFull,
			Rule: operation.Needs(tenants.ManageForms), Audit: operation.AuditAlways,
			Weight: operation.Heavy,
		},
		Request: operation.Request{
			Contract: true,
			Teams:    true,
			Params: []operation.Param{
				{
					Name: "id", In: operation.InPath, Shape: operation.Text, Required: true,
					Description: "Identifier of the form.", Example: exampleID,
				},
			},
			Body: []operation.Field{
				{
					Name: "name", Shape: operation.Text, Bounds: schema.NameBounds(),
					Description: "Singular identifier: 1 to 64 lower-case letters, digits or _, a letter first.",
					Ask: operation.Ask{
						Label: "Short name",
						Hint:  "For addresses and files: lower-case letters, digits and _, such as application.",
					},
					Example: example.Name,
				},
				{
					Name: "label", Shape: operation.Text, Bounds: schema.LabelBounds(),
					Description: "Singular label, at most 200 characters.",
					Ask:         operation.Ask{Label: "Name", Hint: "Such as Application."}, Example: example.Label,
				},
				{
					Name: "label_plural", Shape: operation.Text, Bounds: schema.LabelBounds(),
					Description: "Plural label, at most 200 characters.",
					Ask:         operation.Ask{Label: "Name of several", Hint: "Such as Applications."},
					Example:     example.LabelPlural,
				},
				{
					Name: "schema", Shape: operation.Object, Type: schema.Definitions{}, Example: example.Schema,
					Description: "At most 500 fields by identifier (1 to 64 letters, digits, _ or -), each with title (at most 200 " +
						"characters), type (StudlyCase) and, optionally, required. " +
						"Fields of the type File may also have accept, max_size, max_files and folder_id.", Ask: operation.Ask{Label: "Fields"},
				},
				{
					Name: "email_alerts", Shape: operation.Object, Members: Alerts{}.Declared(), Example: example.EmailAlerts,
					Description: "enabled (boolean), recipients (at most 1000 e-mail addresses), subject (one line, at most 200 " +
						"characters), reply_to_field (the field with the address for answers) and fields (the fields whose values are told); " +
						"other members are kept. At most 128 KiB and 8 levels.", Ask: operation.Ask{
						Label: "E-mail alerts", Hint: "Mails about each submission, to these addresses.",
					},
				},
			},
			BodyLimit: schema.BodyLimit,
		},
		Response: operation.Response{
			Data: Answer{}, Message: "Form Collection updated", Example: m.example().Answer,
			Failures: []operation.Failure{
				{
					Code: http.StatusOK, Message: notUpdated, When: "the form is standalone",
					Data: Refused{standaloneDetail},
				},
				{Code: http.StatusNotFound, Message: missing, When: "no such form in this organization"},
				crud.Limits(),
				operation.Refuses(http.StatusUnprocessableEntity, "the body is unacceptable; every problem is named", "label", fault.Required, "label must not be empty"),
				operation.Refuses(http.StatusConflict, "another form has the same name, label or plural label; each one is named", "name", fault.Duplicate, "name is already in use"),
			},
		},
		Target: operation.Target{Revised: true},
		Docs: operation.Docs{
			Tag:     tag,
			Summary: "Update a form collection", Verb: "Save",
			Description: "Takes any of the fields; absent ones stay unchanged. schema and email_alerts are replaced as a whole, " +
				"but locked fields, such as form_name, always stay unchanged. Standalone forms cannot be updated. " +
				"Values of dropped fields stay stored. While submissions have values of a field, it cannot become Encrypted, " +
				"and an Encrypted field cannot change its type or be dropped. If custom reports use changed fields, the header " + warningHeader + " of the answer names the reports.",
		},
		Handler: m.update,
	}
}

func (m *Module) schemaRow() operation.Row {
	return operation.Typed(operation.Row{
		Name: "forms.schema", Method: http.MethodGet, Path: "/api/form/collections/schema",
		Policy: operation.Policy{
			Credentials: operation.Key | operation.Session, Kinds: operation.ServerKeys | operation.Browser,
			Rule: operation.NeedsOneOf(tenants.ViewFormSubmissions, tenants.ManageForms, tenants.CreateFormSubmissions),
		},
		Request: operation.Request{
			Contract: true,
			Teams:    true,
		},
		Response: operation.Response{
			Message: "Form Collection schema", Example: Schema{exampleForm().Fields()},
			Failures: []operation.Failure{
				{Code: http.StatusNotFound, Message: missing, When: "no such form in this organization"},
			},
		},
		Docs: operation.Docs{
			Aside: true, IDs: []string{"getFormSchema"}, Tag: tag,
			Summary: "Get the fields of form collections", Title: "Fields of form collections",
			Description: "Without id, the fields of every form; with id, all fields of that form.",
		},
	}, m.schema)
}
