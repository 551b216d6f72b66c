package gateway_test

import (
	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/gateway"
	"tenantry/operation"
	"tenantry/operation/crud"
	"tenantry/tenants"
)

// plant is a record of six fields, besides what every record has and who sees it. What is here is
// all there is of it: seven operations, bundle, rows of CSV, document and isolation samples follow.
type plant struct {
	store.Meta
	Name     string   `json:"name" rule:"required max=200 unique" use:"filter named" doc:"What people call it." example:"Old oak"`
	Species  string   `json:"species" rule:"required enum=oak|elm|ash" use:"filter" doc:"What it is." example:"oak"`
	Height   int64    `json:"height,omitempty" rule:"min=1 max=20000" use:"filter" doc:"In centimetres." example:"1850"`
	Notes    []string `json:"notes,omitempty" rule:"max=20 each=50" doc:"What was seen of it." example:"[\"hollow\"]"`
	FolderID string   `json:"folder_id,omitempty" rule:"format=id ref=folder" use:"filter" doc:"Folder with its pictures."`
	Felled   bool     `json:"felled" use:"filter" doc:"It is gone."`
	Teams    []string `json:"teams,omitempty" rule:"max=1000 format=id ref=team" use:"scope"`
	Deleted  bool     `json:"deleted" use:"scope"`
}

type plants struct{ *record.Of[plant] }

func newPlants() gateway.Module {
	return plants{record.Must(record.Options[plant]{
		Traits: record.Traits{Name: "plant"},
		Spec: store.Spec{
			Name:    "plants",
			Indexes: []store.Index{{Fields: []string{"deleted", "created_at"}}, {Fields: []string{"deleted", "height"}}},
			Access:  []store.Access{{Where: []string{"deleted"}, Sort: []string{"created_at"}}, {Where: []string{"deleted"}, Sort: []string{"height"}}},
		},
	})}
}

// Kept returns all that is kept.
func (p plants) Kept() []record.Kept { return []record.Kept{p.Of} }

// Operations returns the rows.
func (p plants) Operations() []operation.Row {
	return crud.Rows(p.Of.Resource, crud.Options{
		Path: "/api/plants", Things: "Plants", Search: []string{"name"},
		Read: operation.AnyCaller(), Write: operation.Needs(tenants.ManageFiles),
	})
}
