package operation

import (
	"tenantry/internal/declare"
)

// Bounds say which values of a shape are valid. The OpenAPI document shows them.
type Bounds = declare.Bounds

// Ask is how forms ask people for a parameter or a field.
type Ask = declare.Ask

// Place is the part of a request that holds a parameter.
type Place string

// The places.
const (
	InPath   Place = "path"
	InQuery  Place = "query"
	InHeader Place = "header" // for values that must not appear in an address; see Call.RequestHeader
)

// Shape is the form of a parameter's or body field's value.
type Shape string

// The shapes. Tree is a parameter with brackets, name[a][b]=v. A List parameter may repeat.
const (
	Text    Shape = "string"
	Integer Shape = "integer"
	Boolean Shape = "boolean"
	Object  Shape = "object"
	List    Shape = "array"
	Tree    Shape = "tree"
)

// Param is a parameter of the path, the query or the header.
type Param struct {
	Name        string
	In          Place
	Shape       Shape
	Document    string // of a Tree: its name in the OpenAPI document, if client generators cannot use Name
	Required    bool
	Secret      bool // never logged
	Default     string
	Bounds      Bounds
	Enum        []string
	Ref         string   // the resource that it refers to
	Names       []string // of a parameter that names fields: the valid names
	Defined     bool     // it may also name fields that organizations define
	Description string
	Ask         Ask
	Example     string
}

// Field is a field of a JSON body.
type Field struct {
	Name        string
	Shape       Shape
	Required    bool
	Secret      bool
	Default     any
	Bounds      Bounds
	Type        any    // a value to show the type of an Object or List; nil: any members
	Members     any    // of an Object that takes any members: a struct that declares those with a meaning; see Declarer
	Elements    int    // of a List: how many it may have, if the handler refuses more; 0: any number
	Ref         string // the resource that it refers to
	Enum        []string
	Nullable    bool // null means that there is no value
	Description string
	Ask         Ask
	Example     any
}

// Declarer is implemented by the type of an object that takes any members. Declared returns a struct whose fields declare
// the members that have a meaning. Forms have controls for those.
type Declarer interface{ Declared() any }
