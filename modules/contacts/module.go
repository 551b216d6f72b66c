// Package contacts keeps the contacts of an organization, the people and organizations that it deals with. It says
// which of their fields can be filtered, and reveals encrypted ones.
package contacts

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/operation"
	"tenantry/operation/crud"
	"tenantry/tenants"
	"tenantry/tenants/secrets"
)

// Deps are the dependencies of the module.
type Deps struct {
	Keys secrets.Keys
}

// Module serves the contacts of all organizations. Safe for concurrent use.
type Module struct {
	Kinds
	// Campaigns and Reports say what a change of fields breaks. They must be set before the module serves.
	Campaigns, Reports schema.Dependents
	keys               secrets.Keys
}

// New returns the module.
func New(deps Deps) *Module { return &Module{Kinds: NewKinds(), keys: deps.Keys} }

// Operations returns the module's rows.
func (m *Module) Operations() []operation.Row {
	tags := []operation.Row{m.reveal(), m.disclose(), m.tags(http.MethodPost), m.tags(http.MethodDelete)}
	return slices.Concat(tags, crud.Rows(m.Contacts.Resource, m.options()), m.definitions())
}

// options returns how contacts are served.
func (m *Module) options() crud.Options {
	return crud.Options{
		Path: "/api/contacts", Things: "Contacts", Search: []string{
			"email", "first_name", "last_name", "phone",
		}, Keys: m.keys,
		Read: operation.Needs(tenants.Contacts), Write: operation.Needs(tenants.Contacts), Each: serverFull(), Bulk: true, Export: true,
	}
}

type tagInput struct {
	Tags []string `json:"tags" rule:"required max=200 each=100 format=line" doc:"The tags." example:"[\"press\"]"`
}

// tags returns the row that adds tags to a contact or removes them. Concurrent calls do not undo each other's changes.
func (m *Module) tags(method string) operation.Row {
	action, verb, adds := "untag", "Untag", method == http.MethodPost
	summary, description := "Remove tags from a contact", "Removes those of the tags that the contact has; its other tags stay."
	if adds {
		action, verb, summary = "tag", "Tag", "Add tags to a contact"
		description = "Adds those of the tags that the contact does not have; its other tags stay."
	}
	return crud.Act(m.Contacts, m.options(), action, method, "tags", crud.Action{
		Docs: operation.Docs{Summary: summary, Verb: verb, Description: description + " Answers the contact."},
	}, func(c *Contact, in tagInput) {
		had := c.Tags
		c.Tags = slices.DeleteFunc(slices.Clone(had), func(tag string) bool { return slices.Contains(in.Tags, tag) })
		if adds {
			c.Tags = slices.Clone(had)
			for _, tag := range in.Tags {
				if !slices.Contains(had, tag) {
					c.Tags = append(c.Tags, tag)
				}
			}
		}
	})
}

// ListRow returns a row that lists contacts; crud.Only narrows it.
func (m *Module) ListRow() operation.Row {
	row := crud.List(m.Contacts.Resource, m.options())
	row.Params = slices.DeleteFunc(row.Params, func(p operation.Param) bool {
		return p.Name == "deleted" // campaigns do not address deleted contacts
	})
	return row
}

// Count returns how many contacts match, among those that the workspace shows.
func (m *Module) Count(ctx context.Context, ws *store.Workspace, f store.Filter) (int64, error) {
	n, err := m.Contacts.In(ws).Count(ctx, f)
	if err != nil {
		return 0, fmt.Errorf("count contacts: %w", err)
	}
	return n, nil
}

// Names returns the display name of each contact: first and last name, or else the e-mail address. Contacts that do
// not exist, or that the workspace does not show, are left out. It sends one query, for at most store.MaxLimit
// contacts; more are an error.
func (m *Module) Names(ctx context.Context, ws *store.Workspace, ids []string) (map[string]string, error) {
	names := map[string]string{}
	wanted := make([]string, 0, len(ids))
	for _, id := range ids {
		if _, seen := names[id]; !seen && store.ValidID(id) {
			names[id] = ""
			wanted = append(wanted, id)
		}
	}
	clear(names)
	if len(wanted) == 0 {
		return names, nil
	}
	if len(wanted) > store.MaxLimit {
		return nil, fmt.Errorf("read names of contacts: %d identifiers, at most %d are allowed", len(wanted), store.MaxLimit)
	}
	rows, _, err := m.Contacts.Table(ws).Select(ctx,
		[]store.Field{store.F("id"), store.F("first_name"), store.F("last_name"), store.F("email")},
		store.Query{
			Filter: store.In("id", wanted...), Sort: []store.Order{store.Asc("id")}, Limit: len(wanted), LeaveOut: true,
		})
	if err != nil {
		return nil, fmt.Errorf("read names of contacts: %w", err)
	}
	for _, row := range rows {
		if row == nil {
			continue
		}
		id, _ := row[0].(string)
		first, _ := row[1].(string)
		last, _ := row[2].(string)
		email, _ := row[3].(string)
		names[id] = displayName(first, last, email)
	}
	return names, nil
}

func displayName(first, last, email string) string {
	if name := strings.TrimSpace(first + " " + last); name != "" {
		return name
	}
	return email
}
