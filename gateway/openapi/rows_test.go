package openapi_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"time"

	"tenantry/backends/api"
	"tenantry/tenants"
)

type stamps struct {
	CreatedAt string `json:"created_at" format:"date-time" doc:"When it was created."`
	UpdatedAt string `json:"updated_at" format:"date-time"`
}

type folder struct {
	_        struct{} `doc:"A folder with its children."`
	ID       string   `json:"id"`
	OrgID    int64    `json:"org_id"`
	FolderID *string  `json:"folder_id" doc:"The parent; null at top level."`
	Teams    []string `json:"teams,omitempty"`
	Files    files    `json:"files"`
	Folders  []folder `json:"folders"`
	stamps
}

type file struct {
	ID   string `json:"id"`
	Kind string `json:"kind" enum:"image,text"`
}

// files is either a list or a page of one.
type files struct {
	list  []file
	paged bool
}

func (files) OpenAPISchema() map[string]any {
	return map[string]any{"oneOf": []any{
		reflect.TypeFor[[]file](),
		map[string]any{
			"type": "object", "additionalProperties": false, "required": []string{"page", "results"},
			"properties": map[string]any{"page": map[string]any{"type": "integer"}, "results": reflect.TypeFor[[]file]()},
		},
	}}
}

func (f files) MarshalJSON() ([]byte, error) {
	if f.paged {
		return json.Marshal(map[string]any{"page": 1, "results": f.list})
	}
	return json.Marshal(f.list)
}

type report struct {
	Visual  string             `json:"visual" enum:"table,bar"`
	Parent  *report            `json:"parent,omitempty"`
	Period  *string            `json:"period" enum:"day,week"`
	Columns map[string]*column `json:"columns"`
	Raw     json.RawMessage    `json:"raw"`
	Any     any                `json:"any"`
	Made    time.Time          `json:"made"`
	Range   [2]float64         `json:"range"`
	Big     int64              `json:"big,string"`
	Hidden  string             `json:"-"`
}

type column struct {
	Title string   `json:"title"`
	Flags []string `json:"flags" enum:"sortable,hidden" doc:"What can be done with it."`
}

type idOnly struct {
	ID string `json:"id"`
}

func pointerTo[T any](v T) *T { return &v }

// rows are operations that use every part of the vocabulary.
func rows() []api.Operation {
	made := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	when := "2026-03-04T05:06:07.000Z"
	return []api.Operation{
		{
			Name: "folders.get", Contract: true, Method: http.MethodGet, Path: "/api/folders/{id}", Tag: "files", Summary: "Get a folder",
			Description: "Returns one folder with its children.",
			Credentials: api.Key | api.Session, Kinds: api.ServerKeys | api.Browser, Rule: api.AnyCaller(), Teams: true,
			Params: []api.Param{
				{Name: "id", In: api.InPath, Shape: api.Text, Description: "The folder.", Example: "64b7f0c2a1d3e4f5a6b7c8d9"},
				{Name: "schema", In: api.InQuery, Shape: api.Text, Default: "full", Enum: []string{"full", "basic"}},
				{Name: "page", In: api.InQuery, Shape: api.Integer, Default: "1", Example: "2"},
				{Name: "deleted", In: api.InQuery, Shape: api.Boolean, Default: "false"},
				{Name: "tags", In: api.InQuery, Shape: api.List, Example: "new"},
			},
			Data: folder{}, Message: "Folder found",
			Example: folder{
				ID: "64b7f0c2a1d3e4f5a6b7c8d9", OrgID: 1, Files: files{list: []file{{"a", "image"}}}, stamps: stamps{when, when},
				Folders: []folder{{ID: "b", FolderID: pointerTo("a"), Files: files{list: []file{}, paged: true}, Folders: []folder{}, stamps: stamps{when, when}}},
			},
			Failures: []api.Failure{{Code: 404, Message: "Folder not found", When: "No folder has the identifier"}},
		},
		{
			Name: "files.delete", Contract: true, Method: http.MethodDelete, Path: "/api/files/{id}", Tag: "files", Summary: "Delete a file",
			Credentials: api.Key, Kinds: api.ServerFull, Rule: api.Needs(tenants.ManageFiles), Audit: api.AuditAlways,
			Params: []api.Param{{Name: "id", In: api.InPath, Shape: api.Text}},
			Data:   idOnly{}, Message: "File record deleted", Example: idOnly{"a"},
			Failures: []api.Failure{
				{Code: 200, Message: "File not found", When: "No file has the identifier"},
				{Code: 200, Message: "File is locked", When: "Another program works on it", Data: map[string]any{"detail": "locked", "since": 12}},
			},
		},
		{
			Name: "reports.shared", Contract: true, Method: http.MethodGet, Path: "/api/shared/{pid}", Aliases: []string{"/api/shared/{pid}/{report_id}", "/api/s/{pid}"},
			Tag: "reports", Summary: "Get a shared report", Credentials: api.Open, Rule: api.AnyCaller(), Timeout: 30 * time.Second,
			Params: []api.Param{
				{Name: "pid", In: api.InPath, Shape: api.Text}, {Name: "report_id", In: api.InPath, Shape: api.Text},
				{Name: "token", In: api.InQuery, Shape: api.Text, Secret: true},
				{Name: "filters", In: api.InQuery, Shape: api.Tree, Description: "Conditions.", Example: "filters[country]=DE&filters[age][gt]=30&filters[tag][]=b"},
			},
			AnyHost: true, Data: &report{}, Message: "Shared Report found",
			Example: report{
				Visual: "bar", Columns: map[string]*column{"count": {"Count", []string{"sortable"}}, "none": nil}, Raw: json.RawMessage(`[1]`),
				Made: made, Parent: &report{Visual: "table", Period: pointerTo("day"), Columns: map[string]*column{}, Made: made},
			},
			Failures: []api.Failure{{Code: 200, Message: "Shared Report not found", When: "No report has the address"}},
		},
		{
			Name: "objects.create", Method: http.MethodPost, Path: "/api/objects", Tag: "objects", Summary: "Create a custom object",
			Credentials: api.Key | api.Session, Kinds: api.ServerFull, Teams: true, BodyLimit: 64 << 10,
			Rule: api.NeedsOneOf(tenants.ManageCustomObjects, tenants.ManageForms),
			Body: []api.Field{
				{Name: "name", Shape: api.Text, Required: true, Description: "Its name.", Example: "cars"},
				{Name: "schema", Shape: api.Object, Example: map[string]any{"speed": map[string]string{"title": "Speed", "type": "Number"}}},
				{Name: "count", Shape: api.Integer}, {Name: "tags", Shape: api.List}, {Name: "secret", Shape: api.Text, Secret: true},
			},
			Data: idOnly{}, Message: "Custom Object created", Example: idOnly{"a"},
			Failure: func(p *api.Problem) *api.Problem {
				if p.Code == http.StatusServiceUnavailable {
					p.Data = map[string]any{}
				}
				return p
			},
			Failures: []api.Failure{
				{Code: 422, Message: "Validation failed: label is required", When: "the body is unacceptable", Data: map[string]any{
					"errors": []api.FieldError{{Field: "label", Code: "required", Message: "label is required"}},
				}},
			},
		},
		{
			Name: "compliance.schema", Method: http.MethodGet, Path: "/api/compliance/schema", Tag: "compliance", Summary: "Get the definitions",
			Credentials: api.Key | api.Session, Kinds: api.ServerKeys, Rule: api.AdminOnly("Manage Compliance"),
			Data: map[string]map[string]any{}, Message: "Compliance configuration schema", Example: map[string]any{"schema": map[string]any{}},
			Failures: []api.Failure{
				{Code: 403, Message: "Manage Compliance", When: "the caller is no administrator", Data: map[string]string{"permission": "Manage Compliance"}},
				{Code: 422, Message: "Validation failed: no", When: "the settings disagree"},
			},
		},
		{
			Name: "folders.update", Method: http.MethodPut, Path: "/api/folders/{id}", Tag: "files", Summary: "Update a folder",
			Credentials: api.Session, Rule: api.HandlerDecides(),
			Params: []api.Param{{Name: "id", In: api.InPath, Shape: api.Text}},
			Body:   []api.Field{{Name: "name", Shape: api.Text}},
			Data:   idOnly{}, Message: "Folder updated", Example: idOnly{"a"},
			Failures: []api.Failure{{Code: 403, Message: "Permission Denied", When: "The caller may not see it"}},
		},
	}
}
