package declare_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
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

// TestTagsAreListed checks that the comment of the package lists every tag that a struct of the program has, because a
// misspelt tag has no effect. Tags of libraries are excepted.
func TestTagsAreListed(t *testing.T) {
	t.Parallel()
	listed := []string{"yaml", "bson"}
	files, root := token.NewFileSet(), os.DirFS("../..")
	own, err := parser.ParseFile(files, "declare.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range regexp.MustCompile(`(?m)^\t([a-z]+) `).FindAllStringSubmatch(own.Doc.Text(), -1) {
		listed = append(listed, line[1])
	}
	tag, tags := regexp.MustCompile(`^ *([^ :]+):"(?:[^"\\]|\\.)*"`), 0
	look := func(n ast.Node) bool {
		f, ok := n.(*ast.Field)
		if !ok || f.Tag == nil {
			return true
		}
		rest, _ := strconv.Unquote(f.Tag.Value)
		for m := tag.FindStringSubmatch(rest); m != nil; m = tag.FindStringSubmatch(rest) {
			rest, tags = rest[len(m[0]):], tags+1
			if !slices.Contains(listed, m[1]) {
				t.Errorf("%s: the comment of package declare does not list the tag %s", files.Position(f.Pos()), m[1])
			}
		}
		return true
	}
	err = fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "bench" || strings.HasPrefix(path.Base(name), ".") && name != "."):
			return fs.SkipDir
		case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(files, name, text, 0)
		if err == nil {
			ast.Inspect(file, look)
		}
		return err
	})
	if err != nil || tags < 500 {
		t.Errorf("%d tags were read, %v; want at least 500", tags, err)
	}
}
