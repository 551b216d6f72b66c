package openapi_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"time"

	"tenantry/operation"
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

// files is either a list or a page of a list.
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

// rows returns operations that use all parts of rows.
func rows() []operation.Row {
	made := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	when := "2026-03-04T05:06:07.000Z"
	return []operation.Row{
		{
			Name: "folders.get", Method: http.MethodGet, Path: "/api/folders/{id}",
			Policy: operation.Policy{
				Credentials: operation.Key | operation.Session, Kinds: operation.ServerKeys | operation.Browser,
				Rule: operation.AnyCaller(),
			},
			Request: operation.Request{
				Contract: true,
				Teams:    true,
				Params: []operation.Param{
					{Name: "id", In: operation.InPath, Shape: operation.Text, Description: "The folder.", Example: "64b7f0c2a1d3e4f5a6b7c8d9"},
					{Name: "schema", In: operation.InQuery, Shape: operation.Text, Default: "full", Enum: []string{"full", "basic"}},
					{Name: "page", In: operation.InQuery, Shape: operation.Integer, Default: "1", Example: "2"},
					{Name: "deleted", In: operation.InQuery, Shape: operation.Boolean, Default: "false"},
					{Name: "tags", In: operation.InQuery, Shape: operation.List, Example: "new"},
				},
			},
			Response: operation.Response{
				Data: folder{}, Message: "Folder found",
				Example: folder{
					ID: "64b7f0c2a1d3e4f5a6b7c8d9", OrgID: 1, Files: files{list: []file{{"a", "image"}}}, stamps: stamps{when, when},
					Folders: []folder{{ID: "b", FolderID: pointerTo("a"), Files: files{list: []file{}, paged: true}, Folders: []folder{}, stamps: stamps{when, when}}},
				},
				Failures: []operation.Failure{{Code: 404, Message: "Folder not found", When: "No folder has the identifier"}},
			},
			Docs: operation.Docs{
				Tag: "files", Summary: "Get a folder",
				Description: "Returns one folder with its children.",
			},
		},
		{
			Name: "files.delete", Method: http.MethodDelete, Path: "/api/files/{id}",
			Policy: operation.Policy{
				Credentials: operation.Key, Kinds: operation.ServerFull, Rule: operation.Needs(tenants.ManageFiles),
				Audit: operation.AuditAlways,
			},
			Request: operation.Request{
				Contract: true,
				Params:   []operation.Param{{Name: "id", In: operation.InPath, Shape: operation.Text}},
			},
			Response: operation.Response{
				Data: idOnly{}, Message: "File record deleted", Example: idOnly{"a"},
				Failures: []operation.Failure{
					{Code: 200, Message: "File not found", When: "No file has the identifier"},
					{Code: 200, Message: "File is locked", When: "Another program works on it", Data: map[string]any{"detail": "locked", "since": 12}},
				},
			},
			Docs: operation.Docs{Tag: "files", Summary: "Delete a file"},
		},
		{
			Name: "reports.shared", Method: http.MethodGet, Path: "/api/shared/{pid}",
			Aliases: []string{"/api/shared/{pid}/{report_id}", "/api/s/{pid}"},
			Policy: operation.Policy{
				Credentials: operation.Open, Rule: operation.AnyCaller(), Timeout: 30 * time.Second,
				AnyHost: true,
			},
			Request: operation.Request{
				Contract: true,
				Params: []operation.Param{
					{Name: "pid", In: operation.InPath, Shape: operation.Text}, {Name: "report_id", In: operation.InPath, Shape: operation.Text},
					{Name: "token", In: operation.InQuery, Shape: operation.Text, Secret: true},
					{Name: "filters", In: operation.InQuery, Shape: operation.Tree, Description: "Conditions.", Example: "filters[country]=DE&filters[age][gt]=30&filters[tag][]=b"},
				},
			},
			Response: operation.Response{
				Data: &report{}, Message: "Shared Report found",
				Example: report{
					Visual: "bar", Columns: map[string]*column{"count": {"Count", []string{"sortable"}}, "none": nil}, Raw: json.RawMessage(`[1]`),
					Made: made, Parent: &report{Visual: "table", Period: pointerTo("day"), Columns: map[string]*column{}, Made: made},
				},
				Failures: []operation.Failure{{Code: 200, Message: "Shared Report not found", When: "No report has the address"}},
			},
			Docs: operation.Docs{Tag: "reports", Summary: "Get a shared report"},
		},
		{
			Name: "objects.create", Method: http.MethodPost, Path: "/api/objects",
			Policy: operation.Policy{
				Credentials: operation.Key | operation.Session, Kinds: operation.ServerFull,
				Rule: operation.NeedsOneOf(tenants.ManageCustomObjects, tenants.ManageForms),
			},
			Request: operation.Request{
				Teams: true, BodyLimit: 64 << 10,
				Body: []operation.Field{
					{Name: "name", Shape: operation.Text, Required: true, Description: "Its name.", Example: "cars"},
					{Name: "schema", Shape: operation.Object, Example: map[string]any{"speed": map[string]string{"title": "Speed", "type": "Number"}}},
					{Name: "count", Shape: operation.Integer}, {Name: "tags", Shape: operation.List}, {Name: "secret", Shape: operation.Text, Secret: true},
				},
			},
			Response: operation.Response{
				Data: idOnly{}, Message: "Custom Object created", Example: idOnly{"a"},
				Failure: func(p *operation.Problem) *operation.Problem {
					if p.Code == http.StatusServiceUnavailable {
						p.Data = map[string]any{}
					}
					return p
				},
				Failures: []operation.Failure{
					{Code: 422, Message: "Validation failed: label is required", When: "the body is unacceptable", Data: map[string]any{
						"errors": []operation.FieldError{{Field: "label", Code: "required", Message: "label is required"}},
					}},
				},
			},
			Docs: operation.Docs{Tag: "objects", Summary: "Create a custom object"},
		},
		{
			Name: "compliance.schema", Method: http.MethodGet, Path: "/api/compliance/schema",
			Policy: operation.Policy{
				Credentials: operation.Key | operation.Session, Kinds: operation.ServerKeys,
				Rule: operation.AdminOnly("Manage Compliance"),
			},
			Response: operation.Response{
				Data: map[string]map[string]any{}, Message: "Compliance configuration schema",
				Example: map[string]any{"schema": map[string]any{}},
				Failures: []operation.Failure{
					{Code: 403, Message: "Manage Compliance", When: "the caller is no administrator", Data: map[string]string{"permission": "Manage Compliance"}},
					{Code: 422, Message: "Validation failed: no", When: "the settings disagree"},
				},
			},
			Docs: operation.Docs{Tag: "compliance", Summary: "Get the definitions"},
		},
		{
			Name: "folders.update", Method: http.MethodPut, Path: "/api/folders/{id}",
			Policy: operation.Policy{Credentials: operation.Session, Rule: operation.HandlerDecides()},
			Request: operation.Request{
				Params: []operation.Param{{Name: "id", In: operation.InPath, Shape: operation.Text}},
				Body:   []operation.Field{{Name: "name", Shape: operation.Text}},
			},
			Response: operation.Response{
				Data: idOnly{}, Message: "Folder updated", Example: idOnly{"a"},
				Failures: []operation.Failure{{Code: 403, Message: "Permission Denied", When: "The caller may not see it"}},
			},
			Docs: operation.Docs{Tag: "files", Summary: "Update a folder"},
		},
	}
}
