package schema_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"tenantry/backends/record/schema"
	"tenantry/internal/fault"
)

const (
	fileA = "665f1c2ab4d3e2f1a0b9c8d7"
	fileB = "665f1c2ab4d3e2f1a0b9c8d8"
)

func TestFileMembers(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][]string{
		`{"title":"F","type":"File","accept":["image/*","Application/PDF"],"max_size":1000,"max_files":10,"folder_id":"` + fileA + `"}`: nil,
		`{"title":"F","type":"File","accept":[]}`:                         nil,
		`{"title":"F","type":"File","accept":"image/*"}`:                  {"schema.f.accept type"},
		`{"title":"F","type":"File","accept":["*/*"]}`:                    {"schema.f.accept format"},
		`{"title":"F","type":"File","accept":["image"]}`:                  {"schema.f.accept format"},
		`{"title":"F","type":"File","accept":["image/"]}`:                 {"schema.f.accept format"},
		`{"title":"F","type":"File","accept":["image/png,text/html"]}`:    {"schema.f.accept format"},
		`{"title":"F","type":"File","accept":["image/png; a=b"]}`:         {"schema.f.accept format"},
		`{"title":"F","type":"File","accept":["image/p*"]}`:               {"schema.f.accept format"},
		`{"title":"F","type":"File","accept":[1]}`:                        {"schema.f.accept format"},
		`{"title":"F","type":"File","max_size":0}`:                        {"schema.f.max_size range"},
		`{"title":"F","type":"File","max_size":1.5}`:                      {"schema.f.max_size range"},
		`{"title":"F","type":"File","max_size":"1"}`:                      {"schema.f.max_size range"},
		`{"title":"F","type":"File","max_size":1e300}`:                    {"schema.f.max_size range"},
		`{"title":"F","type":"File","max_files":11}`:                      {"schema.f.max_files range"},
		`{"title":"F","type":"File","folder_id":"x"}`:                     {"schema.f.folder_id format"},
		`{"title":"F","type":"Text","accept":["image/png"]}`:              {"schema.f.accept forbidden"},
		`{"title":"F","type":"Text","max_files":2,"max_size":1}`:          {"schema.f.max_files forbidden", "schema.f.max_size forbidden"},
		`{"title":"F","type":"Text","folder_id":"` + fileA + `"}`:         {"schema.f.folder_id forbidden"},
		`{"title":"F","type":"File","accept":["image/*"],"max_files":-1}`: {"schema.f.max_files range"},
	} {
		var errs fault.List
		fields, ignored := parseJSON(&errs, "schema", []byte(`{"f":`+in+`}`))
		if got := fieldsOf(errs); !slices.Equal(got, want) && len(got)+len(want) > 0 || len(ignored) > 0 {
			t.Errorf("%s: problems %q, ignored %q, want %q and none", in, got, ignored, want)
		}
		if want != nil {
			continue
		}
		text, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		var again schema.Fields
		if err := json.Unmarshal(text, &again); err != nil || !reflect.DeepEqual(again, fields) {
			t.Errorf("%s is stored as %s and read as %v, %v", in, text, again, err)
		}
	}
}

func TestFileValues(t *testing.T) {
	t.Parallel()
	one, several := schema.Field{Type: schema.File}, schema.Field{Type: schema.File, MaxFiles: 2}
	required := several
	required.Required = true
	for _, tt := range []struct {
		field schema.Field
		value any
		want  any // nil: refused
	}{
		{one, fileA, fileA},
		{one, []any{fileA}, nil},
		{several, []any{fileA, fileB}, []any{fileA, fileB}},
		{several, []string{fileA, fileB}, []string{fileA, fileB}},
		{several, fileA, []any{fileA}},
		{several, []any{}, []any{}},
		{several, []any{fileA, fileA}, nil},
		{several, []any{fileA, fileB, "665f1c2ab4d3e2f1a0b9c8d9"}, nil},
		{several, []any{fileA, 1}, nil},
		{several, map[string]any{}, nil},
		{required, []any{}, nil},
		{required, []any{fileA}, []any{fileA}},
	} {
		var errs fault.List
		got := schema.CheckValue(&errs, "f", tt.field, tt.value)
		if refused := len(errs) > 0; refused != (tt.want == nil) || !refused && !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%+v of %v: got %v, %v, want %v", tt.field, tt.value, got, errs, tt.want)
		}
	}
}

// TestFieldTakesFiles: the declared type and the one that the bytes show must both be accepted.
func TestFieldTakesFiles(t *testing.T) {
	t.Parallel()
	const docx = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
	for _, tt := range []struct {
		accept, declared, detected string
		want                       bool
	}{
		{"", "text/html", "application/zip", true},
		{"image/*", "image/png", "image/png", true},
		{"image/*", "IMAGE/PNG; x=y", "image/gif", true},
		{"image/*", "image/png", "text/html; charset=utf-8", false},
		{"image/*", "image/svg+xml", "image/svg+xml", false},
		{"image/svg+xml", "image/svg+xml", "image/svg+xml", true},
		{"text/*", "text/html", "text/html; charset=utf-8", false},
		{"text/*", "text/plain", "text/plain; charset=utf-8", true},
		{"image/*", "text/html", "image/gif", false}, // bytes that are a picture and a page
		{"image/*", "imagery/png", "imagery/png", false},
		{"image/*", "", "image/png", false},
		{"image/png", "image/gif", "image/png", false},
		{"image/png", "image/png", "image/gif", false},
		{"application/pdf", "application/pdf", "application/octet-stream", false},
		{"application/pdf", "application/pdf", "application/zip", false},
		{"text/csv", "text/csv", "text/plain; charset=utf-8", true},
		{"text/csv", "text/csv", "text/html", false},
		{"text/csv", "text/plain", "text/plain", false},
		{docx, docx, "application/zip", true},
		{docx, docx, "application/octet-stream", false},
		{"application/msword", "application/msword", "application/octet-stream", true},
		{"application/msword", "application/msword", "text/html", false},
	} {
		f := schema.Field{Type: schema.File, Accept: schema.Accept(tt.accept)}
		if got := f.Takes(tt.declared, tt.detected); got != tt.want {
			t.Errorf("%q takes %q that shows %q = %t, want %t", tt.accept, tt.declared, tt.detected, got, tt.want)
		}
	}
}
