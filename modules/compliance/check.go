package compliance

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/together"
	"tenantry/operation"
	"tenantry/operation/filters"
)

// Lesson is the name of the custom object and the form whose records are lessons. Such a record has the identifier of
// its contact in the field contact, and its tags in the field tags.
const Lesson = "lesson"

// Lessons are the possible lessons of one source: the records of a table that match, with fields that the organization
// defined.
type Lessons struct {
	Table  store.Table
	Of     store.Filter
	Fields schema.Fields
}

// Deps are the dependencies of the module.
type Deps struct {
	Contacts func(*store.Workspace) store.Table
	// Records and Submissions return the lessons of a workspace. Error: store.ErrNotFound if none are defined.
	Records, Submissions func(context.Context, *store.Workspace) (Lessons, error)
}

// Checked says whether a contact complies.
type Checked struct {
	Contact   string   `json:"contact" rule:"ref=contact" doc:"Identifier of the contact."`
	Compliant bool     `json:"compliant" doc:"Whether one of its lessons counts."`
	Fails     []string `json:"fails" enum:"lessons,lesson_tags_all,lesson_tags_any" doc:"The settings that no lesson of the contact meets; both, if one lesson meets the first and another the second. If the settings name no tags: lessons, if the contact has none."`
}

// CheckedPage is a page of checked contacts, in the order of their identifiers.
type CheckedPage operation.Part[Checked]

type contactInput struct {
	ID string `json:"id" doc:"Identifier of the contact." example:"665f1c2ab4d3e2f1a0b9c8d7"`
}

func (m *Module) checkRows() []operation.Row {
	const says = "A contact complies if one of its lessons counts. Lessons are the records of the custom object lesson " +
		"and, if the settings include them, the submissions of the form lesson, " +
		"whose field contact (Text) has the contact's identifier and whose field tags (MultiSelect) the lesson's tags."
	row := func(o operation.Row) operation.Row {
		o.Method, o.Tag, o.Teams, o.Weight = http.MethodGet, "Compliance", true, operation.Heavy
		o.Credentials, o.Kinds, o.Rule = operation.Key|operation.Session, operation.ServerKeys, operation.AdminOnly(permission)
		o.Failures = append(o.Failures, operation.Failure{
			Code: http.StatusForbidden, Message: permission, When: "the caller is no administrator, or an API key",
			Data: map[string]string{"permission": permission},
		},
			operation.Failure{
				Code:    http.StatusUnprocessableEntity,
				Message: "Validation failed: compliance is not enabled, so nothing is checked",
				When:    "compliance is not enabled, or lessons are not defined",
			})
		return o
	}
	example := Checked{Contact: "665f1c2ab4d3e2f1a0b9c8d7", Fails: []string{"lesson_tags_any"}}
	return []operation.Row{
		operation.Typed(row(operation.Row{
			Name: "compliance.check", Path: "/api/compliance/contacts",
			Response: operation.Response{Message: "Contacts found", Example: CheckedPage(operation.OnePage(example))},
			Docs: operation.Docs{
				Summary: "Check all contacts against the settings", Description: says,
				Ask: "A contact complies if it has a lesson with the tags that the settings require.",
			},
		}), m.checkAll),
		operation.Typed(row(operation.Row{
			Name: "compliance.check_one", Path: "/api/compliance/contacts/{id}",
			Response: operation.Response{
				Message: "Contact found", Example: example,
				Failures: []operation.Failure{{
					Code: http.StatusNotFound, Message: "Contact not found",
					When: "there is no such contact in the caller's teams",
				}},
			},
			Docs: operation.Docs{Summary: "Check a contact against the settings", Description: says},
		}), m.checkOne),
	}
}

func (m *Module) checkAll(ctx context.Context, c *operation.Call, in operation.Following) (out CheckedPage, err error) {
	var errs fault.List
	q := store.Query{Sort: []store.Order{store.Asc("id")}, LeaveOut: true}
	follows := in.Span(c, &q, &errs, func(place string) (store.Filter, bool) {
		return store.Where(store.F("id"), store.OpGt, place), store.ValidID(place)
	})
	if err := errs.Err(); err != nil {
		return out, err
	}
	found, count, err := m.check(ctx, c, q, store.Filter{})
	if err != nil {
		return out, err
	}
	part, err := operation.PartOf(c, in, follows, count, found.Records, found.Left, found.Cut, func(last int) string { return found.Records[last].Contact })
	return CheckedPage(part), err
}

func (m *Module) checkOne(ctx context.Context, c *operation.Call, in contactInput) (Checked, error) {
	if !store.ValidID(in.ID) {
		return Checked{}, operation.NotFound("Contact not found")
	}
	which := store.Eq("id", in.ID)
	found, _, err := m.check(ctx, c, store.Query{Filter: which, Limit: 1}, which)
	if err == nil && len(found.Records) == 0 {
		err = operation.NotFound("Contact not found")
	}
	if err != nil {
		return Checked{}, err
	}
	return found.Records[0], nil
}

// check returns the results of the contacts that q finds, and how many contacts match of in all.
func (m *Module) check(
	ctx context.Context, c *operation.Call, q store.Query, of store.Filter,
) (out store.Found[Checked], count int64, err error) {
	var rows [][]any
	var asked *Settings
	err = together.Do(c.Workspace.Remote(), func() (err error) {
		asked, err = m.Settings.In(c.Workspace).First(ctx, store.Query{})
		return err
	}, func() (err error) {
		rows, out.Cut, err = m.deps.Contacts(c.Workspace).Select(ctx, []store.Field{store.F("id")}, q)
		return err
	}, func() (err error) {
		count, err = m.deps.Contacts(c.Workspace).Count(ctx, of)
		return err
	})
	if errors.Is(err, store.ErrNotFound) || err == nil && !asked.Enabled {
		err = fault.One("enabled", fault.Required, "compliance is not enabled, so nothing is checked")
	}
	if err != nil {
		return out, 0, err
	}
	all := len(rows)
	rows = slices.DeleteFunc(rows, func(row []any) bool { return row == nil }) // unreadable records
	if out.Left, out.Records = all-len(rows), make([]Checked, len(rows)); len(rows) == 0 {
		return out, count, nil
	}
	met, err := m.lessons(ctx, c.Workspace, asked, rows)
	if err != nil {
		return out, 0, err
	}
	for i, row := range rows {
		id, _ := row[0].(string)
		out.Records[i] = met.result(id)
	}
	return out, count, nil
}

// requirements are what one lesson of a contact must meet: each requirement on its own, and the last one all of them.
type requirements []requirement

type requirement struct {
	setting string
	where   func(tags store.Field) store.Filter
	met     map[any]bool // contacts with such a lesson
}

// requirementsOf returns the requirements of the settings.
func requirementsOf(s *Settings) requirements {
	all := func(tags store.Field) (f store.Filter) {
		every := make([]store.Filter, len(s.LessonTagsAll))
		for i, tag := range s.LessonTagsAll {
			every[i] = store.Where(tags, store.OpEq, tag)
		}
		return store.All(every...)
	}
	some := func(tags store.Field) store.Filter {
		values := make([]any, len(s.LessonTagsAny))
		for i, tag := range s.LessonTagsAny {
			values[i] = tag
		}
		return store.Where(tags, store.OpIn, values...)
	}
	switch {
	case len(s.LessonTagsAll) == 0 && len(s.LessonTagsAny) == 0:
		return requirements{{setting: "lessons", where: all}}
	case len(s.LessonTagsAny) == 0:
		return requirements{{setting: "lesson_tags_all", where: all}}
	case len(s.LessonTagsAll) == 0:
		return requirements{{setting: "lesson_tags_any", where: some}}
	}
	return requirements{{setting: "lesson_tags_all", where: all}, {
		setting: "lesson_tags_any", where: some,
	}, {where: func(tags store.Field) store.Filter {
		return store.All(all(tags), some(tags))
	}}}
}

// result returns whether a contact complies.
func (n requirements) result(id string) Checked {
	out := Checked{Contact: id, Compliant: n[len(n)-1].met[id], Fails: []string{}}
	for _, r := range n {
		if !out.Compliant && r.setting != "" && !r.met[id] {
			out.Fails = append(out.Fails, r.setting)
		}
	}
	if !out.Compliant && len(out.Fails) == 0 {
		out.Fails = []string{n[0].setting, n[1].setting}
	}
	return out
}

// lessons returns the requirements with the contacts that meet them. The engine counts the lessons.
func (m *Module) lessons(
	ctx context.Context, ws *store.Workspace, s *Settings, contacts [][]any,
) (requirements, error) {
	var errs fault.List
	if s.validateTags(&errs); len(errs) > 0 {
		return nil, errs.Err()
	}
	sources := []func(context.Context, *store.Workspace) (Lessons, error){m.deps.Records}
	if s.SubmissionEnabled {
		sources = append(sources, m.deps.Submissions)
	}
	ids := make([]any, len(contacts))
	for i := range contacts {
		ids[i] = contacts[i][0]
	}
	asked := requirementsOf(s)
	for i := range asked {
		asked[i].met = map[any]bool{}
	}
	var questions []func() error
	found := make([][][]any, len(sources)*len(asked))
	for _, source := range sources {
		all, err := source(ctx, ws)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		contact, tags := filters.Defined("contact", all.Fields["contact"].Type), filters.Defined("tags", all.Fields["tags"].Type)
		if err != nil || !contact.Texts() || tags.Ref.Type != store.TypeStrings {
			continue
		}
		for _, requirement := range asked {
			n := len(questions)
			questions = append(questions, func() (err error) {
				found[n], _, err = all.Table.Aggregate(ctx, store.Aggregation{
					Filter: store.All(all.Of, store.Where(contact.Ref, store.OpIn, ids...), requirement.where(tags.Ref)),
					Groups: []store.Group{{Field: contact.Ref}}, Measures: []store.Measure{{Op: store.MeasureCount}}, Limit: len(ids),
				})
				return err
			})
		}
	}
	if len(questions) == 0 {
		return nil, fault.One(
			"lessons", fault.Required,
			"there is no custom object lesson with the fields contact (Text) and tags (MultiSelect); nor, if submissions are included, such a form",
		)
	}
	err := together.Do(ws.Remote(), questions...)
	for n, rows := range found {
		for _, row := range rows {
			asked[n%len(asked)].met[row[0]] = true
		}
	}
	return asked, err
}
