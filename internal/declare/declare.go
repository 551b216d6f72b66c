// Package declare reads what the tags of a struct's fields declare of them: names, rules, uses and
// documentation. A record is described by its struct, an input by its struct, and nowhere else.
//
//	Name string `json:"name" rule:"required max=200" use:"filter" doc:"Name of the folder." example:"Contracts"`
package declare

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Field is one field of a struct.
type Field struct {
	Name    string // its JSON name
	Index   []int  // for reflect.Value.FieldByIndex
	Type    reflect.Type
	Doc     string // for the reference
	Ask     Ask    // for people who are asked for it
	Example string // as JSON, or a text that stands for itself
	Default string // as it would be written in a query; empty: there is none
	Flag    string // its name in a command line; empty: Name, with hyphens
	Rule    Rule
	Use     Use
	Tag     reflect.StructTag // for what other packages declare
}

// Ask is how a form asks people for a field: what stands beside it, and what helps to fill it in. Empty: its name will
// do, and nothing more need be said.
type Ask struct {
	Label, Hint string
	Kind        string // what is asked for, where the type of the field does not say it
}

// The kinds of what is asked for.
const (
	Span   = "span"   // of a number: seconds, which people say in larger units
	Inputs = "inputs" // values of a report's inputs, by their names
	Locked = "locked" // the same, of those that its readers may not set
	Rows   = "rows"   // what the rows of a file become
	Visual = "visual" // how rows are drawn
	Kind   = "type"   // the type of a field that is defined
)

// AskOf reads a tag: the label, and behind bars the hint and the kind.
func AskOf(tag string) Ask {
	parts := append(strings.SplitN(tag, "|", 3), "", "")
	return Ask{parts[0], parts[1], parts[2]}
}

// Rule says which values a field takes.
type Rule struct {
	Required bool // it is there, and not blank
	Unique   bool // no two records of an organization have the same
	// Min and Max bound a number, the characters of a text or the elements of a list; Each bounds the
	// characters of every element. Zero Max and Each bound nothing; Min is 0 unless it is given.
	Min, Max, Each int64
	Enum           []string
	Format         string // of a text: what a package that knows the name checks
	Ref            string // the resource that it refers to
	Within         string // Unique: only among those that have the same of this field
}

// Bounds say which values of an input are taken; a zero member bounds nothing.
type Bounds struct {
	Least, Most          int64 // of a whole number
	MinLength, MaxLength int   // of a text, in characters; MinLength says that it must not be blank
	Pattern              string
}

// Use says what a field is for. The zero value is shown, set when a record is created and updated,
// and travels in bundles.
type Use uint16

// The uses.
const (
	Filter   Use = 1 << iota // callers filter and sort by it
	Once                     // set on create, never on update
	Computed                 // never set by callers of operations; a bundle sets it
	Hidden                   // no answer shows it
	Local                    // does not travel in bundles
	Secret                   // shown to nobody, never logged
	Merge                    // of an object: names that are not given keep their values
	Always                   // travels also where it is empty
	Silent                   // does not make two records different
	Identity                 // Unique: it says which record is meant, whatever else is given
	Named                    // Unique: it says which record is meant where no identifier is given
	Scope                    // says who sees the record: the teams, or that it is deleted
)

var uses = []string{"filter", "once", "computed", "hidden", "local", "secret", "merge", "always", "silent", "identity", "named", "scope"}

// Has reports whether the field has the use.
func (u Use) Has(one Use) bool { return u&one != 0 }

// Of returns the fields of a struct type that have a JSON name, those of embedded structs among
// them. An error is a fault of the program.
func Of(t reflect.Type) ([]Field, error) {
	var fields []Field
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || !f.IsExported() || name == "" || name == "-" {
			continue
		}
		d := Field{
			Name: name, Index: f.Index, Type: f.Type, Doc: f.Tag.Get("doc"), Ask: AskOf(f.Tag.Get("ask")), Example: f.Tag.Get("example"),
			Default: f.Tag.Get("default"), Flag: f.Tag.Get("flag"), Tag: f.Tag,
		}
		if d.Flag == "" {
			d.Flag = strings.ReplaceAll(name, "_", "-")
		}
		var err error
		if d.Ask.Kind != "" && !slices.Contains([]string{Span, Inputs, Locked, Rows, Visual, Kind}, d.Ask.Kind) {
			return nil, fmt.Errorf("field %s of %s: nothing is asked for as %q", f.Name, t, d.Ask.Kind)
		}
		if d.Rule, err = parseRule(f.Tag.Get("rule")); err == nil {
			d.Use, err = parseUse(f.Tag.Get("use"))
		}
		if err != nil {
			return nil, fmt.Errorf("field %s of %s: %w", f.Name, t, err)
		}
		fields = append(fields, d)
	}
	return fields, nil
}

func parseRule(text string) (r Rule, err error) {
	for word := range strings.FieldsSeq(text) {
		name, value, given := strings.Cut(word, "=")
		number := func(into *int64) {
			if *into, err = strconv.ParseInt(value, 10, 64); err != nil {
				err = fmt.Errorf("rule %s: %w", word, err)
			}
		}
		switch name {
		case "required":
			r.Required = true
		case "unique":
			r.Unique = true
		case "min":
			number(&r.Min)
		case "max":
			number(&r.Max)
		case "each":
			number(&r.Each)
		case "enum":
			r.Enum = strings.Split(value, "|")
		case "format":
			r.Format = value
		case "ref":
			r.Ref = value
		case "within":
			r.Within = value
		default:
			return r, fmt.Errorf("rule %q is not known", word)
		}
		if wants := name != "required" && name != "unique"; wants != given {
			return r, fmt.Errorf("rule %q: value missing, or one too many", word)
		}
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

func parseUse(text string) (u Use, err error) {
	for word := range strings.FieldsSeq(text) {
		at := slices.Index(uses, word)
		if at < 0 {
			return u, fmt.Errorf("use %q is not known", word)
		}
		u |= 1 << at
	}
	return u, nil
}

// Most returns Max, or where that bounds nothing the largest number there is.
func (r Rule) Most() int64 {
	if r.Max == 0 {
		return math.MaxInt64
	}
	return r.Max
}
