package declare_test

import (
	"reflect"
	"strings"
	"testing"

	"tenantry/internal/declare"
)

type base struct {
	CreatedAt int64 `json:"created_at" use:"silent"`
	Rev       int64 `json:"-"`
}

type folder struct {
	base
	Name   string   `json:"name" rule:"required min=1 max=200 unique" use:"filter once" doc:"Its name." example:"Contracts"`
	Teams  []string `json:"teams,omitempty" rule:"max=100 each=24 ref=team" flag:"team"`
	View   string   `json:"view_as" rule:"enum=full|basic format=word" default:"full"`
	hidden string   //nolint:unused // unexported fields are ignored
}

func TestOf(t *testing.T) {
	t.Parallel()
	fields, err := declare.Of(reflect.TypeFor[folder]())
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]declare.Field{}
	for _, f := range fields {
		byName[f.Name] = f
	}
	if len(byName) != 4 {
		t.Fatalf("got %d fields %v, want 4", len(byName), byName)
	}
	name, teams, view := byName["name"], byName["teams"], byName["view_as"]
	if want := (declare.Rule{Required: true, Unique: true, Min: 1, Max: 200}); !reflect.DeepEqual(name.Rule, want) || name.Doc != "Its name." || name.Example != "Contracts" {
		t.Errorf("name = %+v, want the rule %+v and its doc and example", name, want)
	}
	if !name.Use.Has(declare.Filter) || !name.Use.Has(declare.Once) || name.Use.Has(declare.Hidden) || !byName["created_at"].Use.Has(declare.Silent) {
		t.Errorf("uses = %b and %b, want filter and once, and silent", name.Use, byName["created_at"].Use)
	}
	if teams.Rule.Ref != "team" || teams.Rule.Each != 24 || teams.Rule.Most() != 100 || teams.Flag != "team" {
		t.Errorf("teams = %+v, want a reference to team with at most 100 of 24 characters and the flag team", teams)
	}
	if !reflect.DeepEqual(view.Rule.Enum, []string{"full", "basic"}) || view.Rule.Format != "word" || view.Default != "full" || view.Flag != "view-as" {
		t.Errorf("view = %+v, want full or basic, the format word, the default full and the flag view-as", view)
	}
	v := reflect.ValueOf(folder{base: base{CreatedAt: 5}})
	if got := v.FieldByIndex(byName["created_at"].Index).Int(); got != 5 {
		t.Errorf("created_at = %d, want 5", got)
	}
}

func TestMistakesInTags(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		of   any
		want string
	}{
		{struct {
			A string `json:"a" rule:"requird"`
		}{}, `rule "requird" is unknown`},
		{struct {
			A string `json:"a" rule:"max=many"`
		}{}, "rule max=many"},
		{struct {
			A string `json:"a" rule:"max"`
		}{}, `rule "max": value missing`},
		{struct {
			A string `json:"a" rule:"required=yes"`
		}{}, "not allowed"},
		{struct {
			A string `json:"a" use:"show"`
		}{}, `use "show" is unknown`},
	} {
		if _, err := declare.Of(reflect.TypeOf(tt.of)); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "field A of") {
			t.Errorf(`Of(%v) = %v, want an error with "field A of" and %q`, tt.of, err, tt.want)
		}
	}
}
