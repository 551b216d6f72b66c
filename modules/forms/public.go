package forms

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"tenantry/backends/record"
	"tenantry/backends/record/field"
	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/internal/texts"
	"tenantry/operation"
	"tenantry/operation/crud"
	"tenantry/tenants"
	"tenantry/tenants/limits"
)

const (
	publicMissing = "Form not found"
	publicCaller  = "public" // in challenges, in place of the identifier of a key
	shortestPID   = 16
	longestPID    = 64
	onceHeader    = "Idempotency-Key"
	longestOnce   = 255
	orderWarned   = "field_order names"
	fillTries     = 10 // how often a submission is tried again because its form has changed meanwhile
)

// publicFields returns the settings of the public form, which are fields of the form like others.
func (m *Module) publicFields() []*field.Field {
	var fields []*field.Field
	for _, name := range []string{
		"pid", "public", "origins", "frame_origins", "thanks", "thanks_url", "proof_of_work", "field_order",
	} {
		n, _ := m.Forms.Index(name)
		fields = append(fields, &m.Forms.Fields[n])
	}
	return fields
}

// publishRow is the row that changes the settings of the public form.
func (m *Module) publishRow() operation.Row {
	row := m.updateRow()
	row.Name, row.Path, row.Handler = "forms.publish", row.Path+"/public", m.publish
	row.Request = operation.Request{Teams: true, Params: row.Params, BodyLimit: schema.BodyLimit}
	row.Message, row.Data, row.Example = "Public form updated", FullAnswer{}, m.publicExample()
	row.Failures = []operation.Failure{
		row.Failures[0], row.Failures[1], crud.Limits(),
		operation.Refuses(http.StatusUnprocessableEntity, "the body is unacceptable; every problem is named",
			"thanks_url", fault.Format, "thanks_url must be an address that begins with https://"),
		operation.Refuses(http.StatusConflict, "another form has the same pid", "pid", fault.Duplicate, "pid is already in use"),
	}
	row.Docs = operation.Docs{
		Tag: tag, Summary: "Set up the public form", Verb: "Save",
		Description: "Opens a form to everybody, closes it, or changes the settings of its public form. Takes any of the fields; " +
			"absent ones stay unchanged. Standalone forms cannot be changed.",
	}
	for _, f := range m.publicFields() {
		row.Declare(f)
	}
	return row
}

func (m *Module) publicExample() FullAnswer {
	form := m.example()
	form.Public, form.PID, form.PublicURL = true, examplePID, "https://acme.example.com"+operation.FormPath+examplePID
	return form
}

func (m *Module) publish(ctx context.Context, c *operation.Call) (operation.Result, error) {
	var errs fault.List
	ch := m.parsePublic(c, &errs)
	if len(errs) > 0 {
		if _, err := m.changeable(ctx, c); err != nil {
			return operation.Result{}, err
		}
		return operation.Result{}, errs.Err()
	}
	return m.revise(ctx, c, &ch, nil, func(form *Form) any { return m.full(c, form) })
}

// checkPublic notes faults of the settings of the public form, and writes origins as browsers send them.
func (f *Form) checkPublic(errs *fault.List) {
	if f.PID != "" && (len(f.PID) < shortestPID || !texts.Plain(f.PID, longestPID, "_-")) {
		errs.Add("pid", fault.Format, `pid must have %d to %d of A-Z, a-z, 0-9, "_" and "-"`, shortestPID, longestPID)
	}
	f.Origins = checkOrigins(errs, "origins", f.Origins)
	f.FrameOrigins = checkOrigins(errs, "frame_origins", f.FrameOrigins)
	if f.ThanksURL == "" {
		return
	}
	u, err := url.Parse(f.ThanksURL)
	if err != nil || u.Scheme != "https" || u.Opaque != "" || u.User != nil {
		errs.Add("thanks_url", fault.Format, "thanks_url must be an address that begins with https://")
		return
	}
	if _, ok := tenants.Origin("https://" + u.Host); !ok || strings.ContainsAny(f.ThanksURL, " \\") {
		errs.Add("thanks_url", fault.Format, "thanks_url must be an address such as https://www.example.com/thanks")
	}
}

// checkOrigins returns the origins as browsers send them, each once.
func checkOrigins(errs *fault.List, name string, given []string) []string {
	var origins []string
	for _, text := range given {
		origin, ok := tenants.Origin(text)
		switch {
		case !ok:
			tenants.AddInvalidOrigin(errs, name, text)
		case !slices.Contains(origins, origin):
			origins = append(origins, origin)
		}
	}
	return origins
}

// fillPublic gives a form that is public an identifier.
func (f *Form) fillPublic() {
	if f.Public && f.PID == "" {
		f.PID = record.NewPID()
	}
}

// publicTerms returns the terms of challenges for visitors of the public form, who do not learn its identifier.
func (f *Form) publicTerms() terms { return terms{f.PID, publicCaller, int(f.ProofOfWork)} }

// Visible returns the fields that visitors of the public form fill in. The name of the form fills itself in, and where
// files are laid is nobody else's business.
func (f *Form) Visible() schema.Fields {
	fields := f.Schema.Clone()
	for name, one := range fields {
		one.FolderID = ""
		fields[name] = one
	}
	delete(fields, FormName)
	return fields
}

// Order returns the identifiers of the visible fields in the order in which visitors see them: as the form says, then
// required ones, then by identifier.
func (f *Form) Order() []string {
	fields, place := f.Visible(), map[string]int{}
	for name, one := range fields {
		if place[name] = len(f.FieldOrder); !one.Required {
			place[name]++
		}
	}
	for at, name := range f.FieldOrder {
		place[name] = at
	}
	names := fields.Names()
	slices.SortStableFunc(names, func(a, b string) int { return place[a] - place[b] })
	return append([]string{}, names...) // an answer has a list even if it is empty
}

// Public returns the public form with that identifier. Unknown forms, forms that are not public or in the trash, and
// organizations that do not exist have the same error, after the same look-up. Errors: an *operation.Problem of 404,
// store.ErrUnavailable.
func (m *Module) Public(ctx context.Context, t *tenants.Tenant, pid string) (*Form, error) {
	missing := operation.NotFound(publicMissing)
	if len(pid) < shortestPID || !texts.Plain(pid, longestPID, "_-") {
		return nil, missing
	}
	if t.Workspace() == nil {
		return nil, cmp.Or[error](t.Absent(ctx), missing)
	}
	form, err := m.Forms.In(t.Workspace()).First(ctx, store.Query{Filter: store.Eq("pid", pid)})
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && !form.Public:
		return nil, missing
	case err != nil:
		return nil, err
	}
	return form, nil
}

// visited returns the public form that the path of a call names, and lets its pages read the answer. It refuses pages
// of other sites that the form does not list, and visitors over their limit.
func (m *Module) visited(ctx context.Context, c *operation.Call) (*Form, error) {
	form, err := m.Public(ctx, c.Tenant, c.Path("pid"))
	if err != nil {
		return nil, err
	}
	c.Rename("id", form.ID)
	listed := c.Origin() != "" && slices.Contains(form.Origins, c.Origin())
	if listed {
		c.ReadableBy(c.Origin())
	}
	if c.CrossSite && !listed {
		return nil, operation.OtherSite()
	}
	if c.CountVisitor != nil && c.Operation.Method != http.MethodGet {
		err = c.CountVisitor(ctx, form.ID)
	}
	return form, err
}

// PublicForm is a form as visitors see it.
type PublicForm struct {
	Title       string        `json:"title" doc:"Name of the form."`
	Schema      schema.Fields `json:"schema" doc:"Fields by identifier, without form_name, which fills itself in."`
	ProofOfWork int64         `json:"proof_of_work" doc:"Bits of work that a submission requires; 0: none."`
	FieldOrder  []string      `json:"field_order" doc:"Identifiers of all these fields, in the order in which to show them."`
}

// Filled is the answer to a submission of a visitor.
type Filled struct {
	Thanks    string `json:"thanks" doc:"What the visitor should read; empty if the form does not say."`
	ThanksURL string `json:"thanks_url" doc:"Address to which the visitor should be sent; empty if there is none."`
}

const examplePID = "Jx2mB0l4Zk6u1q9cVtYw8g"

type publicInput struct {
	PID string `json:"pid" doc:"Public identifier of the form." example:"Jx2mB0l4Zk6u1q9cVtYw8g"`
}

// publicRow completes a row of public forms.
func publicRow(row operation.Row) operation.Row {
	row.Credentials, row.Rule = operation.Open, operation.AnyCaller()
	row.AnyHost, row.AnySite, row.Tag = true, true, tag
	row.Failures = append(row.Failures, operation.Failure{
		Code: http.StatusNotFound, Message: publicMissing, When: "there is no public form with that identifier",
	})
	if row.Method != http.MethodGet {
		row.Audit = operation.AuditAlways
		row.Failures = append(row.Failures, operation.Failure{
			Code: http.StatusForbidden, Message: operation.OtherSite().Message,
			When: "a page whose origin the form does not list makes the call",
		}, operation.Failure{
			Code: http.StatusInsufficientStorage, Message: noRoom, When: "the organization has reached a quota",
		})
	}
	return row
}

// publicRows are the rows of public forms.
func (m *Module) publicRows() []operation.Row {
	return []operation.Row{m.showRow(), m.fillRow(), m.publicChallengeRow(), m.publicAttachRow()}
}

func (m *Module) showRow() operation.Row {
	return operation.On(publicRow(operation.Row{
		Name: "forms.show", Method: http.MethodGet, Path: operation.FormPath + "{pid}",
		Response: operation.Response{
			Paged: true, Message: "Form found",
			Example: PublicForm{Title: "Application", Schema: exampleForm().Visible(), FieldOrder: exampleForm().Order()},
		},
		Docs: operation.Docs{
			Summary: "Get a public form",
			Description: "Open to everybody. Pages of the origins that the form lists may read the answer. Callers that accept " +
				"HTML get a page that shows the form.",
		},
	}), m.visited, func(_ context.Context, _ *operation.Call, form *Form, _ publicInput) (PublicForm, error) {
		return PublicForm{form.Label, form.Visible(), form.ProofOfWork, form.Order()}, nil
	})
}

func (m *Module) publicChallengeRow() operation.Row {
	return operation.On(publicRow(operation.Row{
		Name: "forms.public_challenge", Method: http.MethodGet, Path: operation.FormPath + "{pid}/challenge",
		Response: operation.Response{Message: "Challenge found", Example: Challenge{
			examplePID + ".public.1717510000.18.Jx2mB0l4Zk6u1q9cVtYw8g.1.mJ1b3rVn0c5J0o2t7bXwqg", 18, "2024-06-04T14:06:40.000Z",
		}},
		Docs: operation.Docs{
			Summary:     "Get a challenge for a public form",
			Description: "For public forms that require proof of work, as forms.challenge is for keys of kind browser.",
		},
	}), m.visited, func(ctx context.Context, c *operation.Call, form *Form, _ publicInput) (Challenge, error) {
		return m.issue(ctx, c, form.publicTerms())
	})
}

func (m *Module) publicAttachRow() operation.Row {
	row := m.attachRow()
	row.Name, row.Path = "forms.public_attach", operation.FormPath+"{pid}/files"
	row.Policy = operation.Policy{Timeout: publicAttachTime}
	row.Params = slices.DeleteFunc(row.Params, func(p operation.Param) bool { return p.In == operation.InPath })
	row.Failures = slices.DeleteFunc(row.Failures, func(f operation.Failure) bool {
		return f.Code == http.StatusNotFound || f.Code == http.StatusInsufficientStorage
	})
	row.Params = append(row.Params, operation.Param{
		Name: "pid", In: operation.InPath, Shape: operation.Text, Required: true,
		Description: "Public identifier of the form.", Example: examplePID,
	})
	row.Summary = "Upload a file for a public form"
	attach := row.Handler
	row.Handler = func(ctx context.Context, c *operation.Call) (operation.Result, error) {
		if _, err := m.visited(ctx, c); err != nil {
			return operation.Result{}, err
		}
		return attach(ctx, c)
	}
	return publicRow(row)
}

func (m *Module) fillRow() operation.Row {
	maker := crud.NewMaker(m.Submissions, m.submissionOptions())
	row := publicRow(operation.Row{
		Name: "forms.fill", Method: http.MethodPost, Path: operation.FormPath + "{pid}",
		Request: operation.Request{
			BodyLimit: operation.MaxBodyLimit,
			Params: append([]operation.Param{{
				Name: onceHeader, In: operation.InHeader, Shape: operation.Text,
				Description: "Of a request that may be repeated: 1 to 255 visible ASCII characters. Requests of one network address " +
					"with the same values and the same key store one submission.",
				Example: "3f1c2ab4",
			}}, m.submit().Params...),
		},
		Response: operation.Response{
			Paged: true, Message: "Submission received", Example: Filled{Thanks: "We will answer within two days."},
		},
		Docs: operation.Docs{
			Summary: "Fill in a public form",
			Description: "Stores a submission. Pages of the origins that the form lists may make the call, and programs. Values " +
				"are checked as in every submission; form_name fills itself in. A form that a page sends, as " +
				"application/x-www-form-urlencoded or multipart/form-data, is answered with a page.",
		},
	})
	row = operation.On(row, m.visited, func(ctx context.Context, c *operation.Call, form *Form, _ publicInput) (Filled, error) {
		return m.fill(ctx, c, maker, form)
	})
	maker.Declare(&row)
	row.Handler = m.wakeAfter(row.Handler)
	return row
}

// fill stores the submission of a visitor.
func (m *Module) fill(
	ctx context.Context, c *operation.Call, maker crud.Maker[Submission], form *Form,
) (out Filled, err error) {
	if err := checkProof(c); err != nil {
		return out, err
	}
	once, err := m.once(ctx, c, form)
	if err != nil {
		return out, err
	}
	if err := m.prove(ctx, c, form.publicTerms(), once); err != nil {
		return out, err
	}
	if c.Discard = c.Query.Text(honeypotParam) != ""; c.Discard { // a program has filled in the hidden field
		c.Note(honeypotParam, "filled in")
	}
	c.Note(m.Forms.Name, form.ID)
	for range fillTries {
		if err = m.store(ctx, c, maker, form, once); !errors.Is(err, store.ErrConflict) {
			break
		}
		if form, err = m.Public(ctx, c.Tenant, c.Path("pid")); err != nil { // it may have changed
			return out, err
		}
	}
	if dup, is := errors.AsType[*store.DuplicateError](err); is && once != "" && slices.Contains(dup.Fields, "once") {
		c.Note("repeated", "true")
		err = nil
	}
	return Filled{form.Thanks, form.ThanksURL}, hideQuota(err)
}

// store makes one attempt at storing the submission. Error: store.ErrConflict if the form has changed meanwhile.
func (m *Module) store(
	ctx context.Context, c *operation.Call, maker crud.Maker[Submission], form *Form, once string,
) error {
	values, err := named(c.Body, form)
	if err != nil {
		return err
	}
	b := c.Workspace.Batch()
	rec, err := maker.Stage(ctx, c, b, []strictjson.Member{{Name: "values", Value: values}}, func(s *Submission) { s.Once = once })
	if err == nil {
		b.Require(m.Forms.In(c.Tenant.Workspace()).Unchanged(form)) // it must still be public
		_, err = c.Commit(ctx, b, func(context.Context) (operation.Result, error) {
			c.Note(m.Submissions.Name, rec.ID)
			return operation.Result{Data: Filled{form.Thanks, form.ThanksURL}}, nil
		})
		return err
	}
	b.Discard()
	return err
}

// named returns the values of a submission with the name of the form, which visitors do not fill in.
func named(body operation.Body, form *Form) (strictjson.Value, error) {
	values := body.Value("values")
	switch {
	case !body.Has("values"):
		values = strictjson.Value{Is: strictjson.Object}
	case values.Is != strictjson.Object:
		return values, fault.One("values", fault.Type, "values must be an object")
	}
	name := strictjson.Value{Is: strictjson.Text, Text: form.Label}
	if given := values.Get(FormName); given.Is != strictjson.Null && given.Text != name.Text {
		at := "values." + FormName
		return values, fault.One(at, fault.Forbidden, "%s fills itself in", at)
	}
	values.Members = slices.DeleteFunc(slices.Clone(values.Members), func(m strictjson.Member) bool { return m.Name == FormName })
	values.Members = append(values.Members, strictjson.Member{Name: FormName, Value: name})
	return values, nil
}

// once returns what identifies the request, if the caller says that it may be repeated: a keyed hash of the key that the
// caller has chosen, its network address and the values, of which nobody can guess the values. Otherwise "".
func (m *Module) once(ctx context.Context, c *operation.Call, form *Form) (string, error) {
	key, err := c.RequestHeader(onceHeader)
	if err != nil || key == "" {
		return "", err
	}
	if len(key) > longestOnce || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", operation.BadRequest("The header %s must have 1 to %d visible ASCII characters", onceHeader, longestOnce)
	}
	keys, err := m.keys.DataKeys(ctx, c.Tenant, challengePurpose)
	if err != nil {
		return "", err
	}
	mac := hmac.New(sha256.New, keys.Current().Bytes())
	for _, part := range []string{"once", form.ID, key, limits.Network(c.Remote).String(), string(c.Body.Raw("values"))} {
		sum := sha256.Sum256([]byte(part)) // of a fixed length, so that parts cannot run into each other
		mac.Write(sum[:])
	}
	return hex.EncodeToString(mac.Sum(nil)[:16]), nil
}
