// Package objects keeps custom objects: kinds of records that an organization defines.
package objects

import (
	"net/http"
	"slices"

	"tenantry/backends/record/schema"
	"tenantry/internal/fault"
	"tenantry/operation"
	"tenantry/operation/crud"
	"tenantry/tenants"
	"tenantry/tenants/secrets"
)

// Module serves the definitions of custom objects and their records. It is immutable once it serves and safe for
// concurrent use.
type Module struct {
	Kinds
	// Reports, if set, says which reports a change breaks. It must be set before the module serves.
	Reports schema.Dependents
	keys    secrets.Keys
}

// New returns the module. The keys seal values of encrypted fields.
func New(keys secrets.Keys) *Module { return &Module{Kinds: NewKinds(), keys: keys} }

// Created is the answer to a creation.
type Created struct {
	ID          string `json:"id" doc:"Identifier of the definition."`
	Name        string `json:"name" doc:"Singular identifier."`
	Label       string `json:"label" doc:"Singular label."`
	LabelPlural string `json:"label_plural" doc:"Plural label."`
}

// Schema holds field definitions.
type Schema struct {
	Schema schema.Fields `json:"schema" doc:"Fields by identifier."`
}

const (
	tag        = "Custom objects"
	missing    = "Custom Object not found"
	externalID = "external_id"
	exampleID  = "665f1c2ab4d3e2f1a0b9c8d7"
)

// Common returns the fields of records of every custom object.
func Common() schema.Fields {
	return schema.Fields{externalID: {Title: "External ID", Type: schema.Text, Locked: true}}
}

// Operations returns the module's rows.
func (m *Module) Operations() []operation.Row {
	records := crud.Rows(m.Records.Resource, crud.Options{
		Path: "/api/custom/objects/{name}/records", Things: "Records", Within: "Custom Object",
		Read: operation.Needs(tenants.ManageCustomObjects), Write: operation.Needs(tenants.ManageCustomObjects), Keys: m.keys, Bulk: true, Export: true, Search: []string{
			"external_id", "values",
		},
	})
	return slices.Concat([]operation.Row{m.createRow(), m.schemaRow()}, records, m.definitionRows())
}

func (m *Module) createRow() operation.Row {
	return operation.Row{
		Name: "objects.create", Method: http.MethodPost, Path: "/api/custom/objects",
		Policy: operation.Policy{
			Credentials: operation.Key | operation.Session, Kinds: operation.ServerFull,
			Rule: operation.Needs(tenants.ManageCustomObjects), Audit: operation.AuditAlways,
			Weight: operation.Heavy,
		},
		Request: operation.Request{
			Contract: true,
			Teams:    true,
			Body: []operation.Field{
				{
					Name: "name", Shape: operation.Text, Required: true, Bounds: schema.NameBounds(),
					Description: "Singular identifier: 1 to 64 lower-case letters, digits or _, a letter first.",
					Ask: operation.Ask{
						Label: "Short name",
						Hint:  "For addresses and files: lower-case letters, digits and _, such as bike.",
					},
					Example: "tree",
				},
				{
					Name: "label", Shape: operation.Text, Required: true, Bounds: schema.LabelBounds(),
					Description: "Singular label, at most 200 characters.",
					Ask:         operation.Ask{Label: "Name", Hint: "Such as Bike."}, Example: "Tree",
				},
				{
					Name: "label_plural", Shape: operation.Text, Required: true, Bounds: schema.LabelBounds(),
					Description: "Plural label, at most 200 characters.",
					Ask:         operation.Ask{Label: "Name of several", Hint: "Such as Bikes."}, Example: "Trees",
				},
				{
					Name: "schema", Shape: operation.Object, Type: schema.Numbered{},
					Description: "At most 500 fields by identifier (1 to 64 letters, digits, _ or -), each with title (at most 200 " +
						"characters), type (StudlyCase) and, optionally, required. An array defines fields named 0, 1, 2.", Ask: operation.Ask{Label: "Fields"},
					Example: map[string]any{
						"species": map[string]any{"title": "Species", "type": schema.Text, "required": true},
						"height":  map[string]any{"title": "Height (m)", "type": schema.Number},
					},
				},
			},
			BodyLimit: schema.BodyLimit,
		},
		Response: operation.Response{
			Failure: generic,
			Data:    Created{}, Message: "Custom Object created",
			Example: Created{ID: exampleID, Name: "tree", Label: "Tree", LabelPlural: "Trees"},
			Failures: []operation.Failure{
				operation.Refuses(http.StatusUnprocessableEntity, "the body is unacceptable; every problem is named", "label", fault.Required, "label is required"),
				operation.Refuses(http.StatusConflict, "another custom object has the same name, label or plural label; each "+
					"one is named", "name", fault.Duplicate, "name is already in use"),
				{
					Code:    http.StatusServiceUnavailable,
					Message: "The service is temporarily unavailable, please retry later",
					When:    "the store cannot take it now", Data: map[string]any{},
				},
			},
		},
		Target: operation.Target{Action: operation.CreateAction, Revised: true},
		Docs: operation.Docs{
			Tag:     tag,
			Summary: "Create a custom object", Verb: "Create",
			Description: "Name, label and plural label must each be unique in the organization. A key named fields is " +
				"ignored, next to schema and inside it; " +
				"definitions belong into schema. An unknown type is stored, and its values are not validated.",
		},
		Handler: m.create,
	}
}

func (m *Module) schemaRow() operation.Row {
	return operation.Typed(operation.Row{
		Name: "objects.schema", Method: http.MethodGet, Path: "/api/custom/objects/schema",
		Policy: operation.Policy{
			Credentials: operation.Key | operation.Session, Kinds: operation.ServerKeys,
			Rule: operation.Needs(tenants.ManageCustomObjects),
		},
		Request: operation.Request{Teams: true},
		Response: operation.Response{
			Message: "Custom Object schema",
			Example: Schema{Common().With(schema.Fields{"species": {
				Title: "Species", Type: schema.Text, Required: true,
			}})},
			Failures: []operation.Failure{
				{Code: http.StatusNotFound, Message: missing, When: "no such custom object in this organization"},
			},
		},
		Docs: operation.Docs{
			Aside: true, IDs: []string{"getObjectSchema"}, Tag: tag,
			Summary: "Get the fields of custom objects", Title: "Fields of custom objects",
			Description: "Without a parameter, the fields of records of every custom object. With id or name, also those of that custom object; " +
				"if both are given, both must match. Its own field takes precedence over a common one with the same identifier.",
		},
	}, m.schema)
}
