// Package declare reads the tags of a struct's fields. Records and inputs are described by their structs and nowhere
// else.
//
//	Name string `json:"name" rule:"required max=200" use:"filter" doc:"Name of the folder." example:"Contracts"`
//
// These are all tags, with the packages that read them.
//
// Records, and inputs of operations and commands:
//
//	json     name; omitempty leaves an empty value out (everywhere)
//	doc      description (gateway/openapi, gateway/cli); of a field named _ that of its struct
//	example  value for documents, as JSON or plain text (operation/crud, gateway/openapi)
//	ask      "Label|Hint|kind" of the control in a form; see the kinds of controls (gateway/console)
//	rule     words with blanks between them (backends/record/field):
//	             required, min=N, max=N, each=N, enum=A|B; see Rule
//	             format=id, time, email, key, name, line, label or media
//	             ref=RESOURCE, unique, within=FIELD (backends/record makes references and unique indexes)
//	use      words with blanks between them; see Use (backends/record, operation/crud)
//
// Records alone:
//
//	as       name for callers and in bundles, if it is not the stored one (backends/record)
//	store    custom: values of defined fields; time: milliseconds that can be filtered (backends/store, backends/record)
//	alias    other headings of its column in files, separated by | (backends/record, for modules/imports/tabular)
//	report   title in reports; without it, reports cannot name the field (reports)
//
// Inputs alone:
//
//	default  value if the field is not given (operation, gateway/cli)
//	flag     name on the command line; by default that of json with hyphens (gateway/cli)
//	arg      what the argument of the command is, instead of a flag (gateway/cli, gateway/control)
//	without  flag that it excludes (gateway/cli)
//	least    smallest duration (gateway/cli)
//	read     stdin or file: the flag says where the value is read from (gateway/cli)
//	bare     value of a map's name that is given without one (gateway/cli)
//	write    how entries of a map are written, for a refusal (gateway/cli)
//
// Answers alone:
//
//	enum     values, separated by commas (gateway/openapi, gateway/console)
//	format   format in the schema (gateway/openapi)
//	model    of a field named _: name of the struct's schema (gateway/openapi)
//	from     name of the record's field, "-" for none (gateway/control)
//
// Settings alone:
//
//	reload   true: a running gateway can change it (config)
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
	Ask     Ask    // for forms
	Example string // as JSON, or a plain text
	Default string // as written in a query; empty: none
	Flag    string // its name on the command line; by default Name with hyphens
	Rule    Rule
	Use     Use
	Tag     reflect.StructTag // for declarations of other packages
}

// Ask is how a form presents a field: its label and a hint. Empty: the form uses the field's name and no hint.
type Ask struct {
	Label, Hint string
	Kind        string // the kind of control, if the type of the field does not determine it
}

// The kinds of controls.
const (
	Span   = "span"   // a number of seconds, entered in larger units
	Inputs = "inputs" // values of a report's inputs, by their names
	Locked = "locked" // values of the inputs that readers may not set
	Rows   = "rows"   // the kind of record that the rows of a file become
	Visual = "visual" // how rows are drawn
	Kind   = "type"   // the type of a defined field
	Key    = "key"    // keys of fields that the record defines
)

// AskOf reads a tag: label, hint and kind, separated by bars.
func AskOf(tag string) Ask {
	parts := append(strings.SplitN(tag, "|", 3), "", "")
	return Ask{parts[0], parts[1], parts[2]}
}

// Rule says which values a field takes.
type Rule struct {
	Required bool // present and not blank
	Unique   bool // no two records of an organization have the same value
	// Min and Max bound a number, the characters of a text or the elements of a list; Each bounds the characters of
	// every element. Max and Each of 0 bound nothing.
	Min, Max, Each int64
	Enum           []string
	Format         string // of a text: the name of a format that package field checks
	Ref            string // the resource that the field refers to
	Within         string // Unique only among records with the same value of this field
}

// Bounds says which values of an input are accepted; a zero member bounds nothing.
type Bounds struct {
	Least, Most          int64 // of a whole number
	MinLength, MaxLength int   // of a text, in characters; with MinLength it must not be blank
	Pattern              string
}

// Use says how a field is used. A field with the zero value is shown, can be set when a record is created and updated,
// and is part of bundles.
type Use uint16

// The uses.
const (
	Filter   Use = 1 << iota // callers filter by it; lists are sorted by it if an index begins with it
	Once                     // set on create, never on update
	Computed                 // never set by callers of operations; a bundle sets it
	Hidden                   // no answer shows it
	Local                    // not part of bundles
	Secret                   // never shown and never logged
	Merge                    // of an object: members that are not given keep their values
	Always                   // part of bundles even if it is empty
	Silent                   // ignored when two records are compared
	Identity                 // Unique: it identifies the record, whatever else is given
	Named                    // Unique: it identifies the record if no identifier is given
	Scope                    // determines who sees the record: its teams, or whether it is deleted
)

// useNames returns the names of the uses in tags, in the order of the constants.
func useNames() []string {
	return []string{
		"filter", "once", "computed", "hidden", "local", "secret", "merge", "always", "silent", "identity", "named", "scope",
	}
}

// Has reports whether the field has the use.
func (u Use) Has(one Use) bool { return u&one != 0 }

// Of returns the fields of a struct type that have a JSON name, including those of embedded structs. An error is a
// mistake in the program.
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
		if d.Ask.Kind != "" && !slices.Contains([]string{Span, Inputs, Locked, Rows, Visual, Kind, Key}, d.Ask.Kind) {
			return nil, fmt.Errorf("field %s of %s: unknown kind of control %q", f.Name, t, d.Ask.Kind)
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
			return r, fmt.Errorf("rule %q is unknown", word)
		}
		if wants := name != "required" && name != "unique"; wants != given {
			return r, fmt.Errorf("rule %q: value missing or not allowed", word)
		}
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

func parseUse(text string) (u Use, err error) {
	for word := range strings.FieldsSeq(text) {
		at := slices.Index(useNames(), word)
		if at < 0 {
			return u, fmt.Errorf("use %q is unknown", word)
		}
		u |= 1 << at
	}
	return u, nil
}

// Most returns Max, or the largest number if Max bounds nothing.
func (r Rule) Most() int64 {
	if r.Max == 0 {
		return math.MaxInt64
	}
	return r.Max
}
