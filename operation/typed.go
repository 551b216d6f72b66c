package operation

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"tenantry/backends/record/field"
	"tenantry/internal/declare"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
)

// Typed completes a row whose handler takes In, a struct whose tags declare its fields (see package declare), and
// answers Out. In declares the parameters and the body for documents, and how a call is read: fields named in the path
// come from there, the others from the query of a GET, DELETE or upload and otherwise from the body. They are filled
// with defaults and checked before do is called. An Out that is a Result is returned unchanged, and the row must give
// its Data. An invalid In is a fault of the row; see Row.Validate.
func Typed[In, Out any](o Row, do func(context.Context, *Call, In) (Out, error)) Row {
	return On(o, func(context.Context, *Call) (none struct{}, err error) { return none, nil },
		func(ctx context.Context, c *Call, _ struct{}, in In) (Out, error) { return do(ctx, c, in) })
}

// On is Typed for an operation on a record. It calls find first, so that a missing record is reported before faults of
// the input.
func On[Rec, In, Out any](
	o Row, find func(context.Context, *Call) (Rec, error), do func(context.Context, *Call, Rec, In) (Out, error),
) Row {
	fields, err := field.Of(reflect.TypeFor[In]())
	o.fault = err
	for i := range fields {
		o.Declare(&fields[i])
	}
	if len(fields) > 0 {
		o.Joins, o.Bodiless = true, o.Method == http.MethodPost && !slices.ContainsFunc(o.Body, func(f Field) bool { return f.Required })
	}
	if _, whole := any(*new(Out)).(Result); !whole {
		o.Data = *new(Out)
	}
	o.Handler = func(ctx context.Context, c *Call) (Result, error) {
		rec, err := find(ctx, c)
		if err != nil {
			return Result{}, err
		}
		var in In
		if len(fields) > 0 {
			if err := c.fill(&in, fields); err != nil {
				return Result{}, err
			}
		}
		out, err := do(ctx, c, rec, in)
		if result, whole := any(out).(Result); whole {
			return result, err
		}
		return Result{Data: out}, err
	}
	return o
}

// shapeOf returns the shape of a field, or of the type that it points to.
func shapeOf(f *field.Field) Shape {
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t.Kind() == reflect.String, f.Rule.Format == "time":
		return Text
	case t.Kind() == reflect.Bool:
		return Boolean
	case t == reflect.TypeFor[json.RawMessage]():
		return Object
	case t.Kind() == reflect.Slice:
		return List
	case reflect.Zero(t).CanInt():
		return Integer
	}
	return Object
}

// place returns which part of a request holds a field; "": the body.
func (o *Row) place(name string) Place {
	switch {
	case slices.ContainsFunc(o.Paths(), func(path string) bool { return strings.Contains(path, "{"+name+"}") }):
		return InPath
	case (o.Method == http.MethodGet || o.Method == http.MethodDelete || o.Upload != nil) && o.Credentials != Operator:
		return InQuery
	}
	return ""
}

// Declare documents a field that the operation takes: from the path if that names it, otherwise from the query of a
// GET, a DELETE or an upload, otherwise from the body.
func (o *Row) Declare(f *field.Field) {
	shape := shapeOf(f)
	var bounds Bounds
	switch shape {
	case Integer:
		bounds = Bounds{Least: f.Rule.Min, Most: f.Rule.Max}
	case Text:
		bounds = Bounds{MinLength: int(f.Rule.Min), MaxLength: int(f.Rule.Max)}
	}
	secret := f.Use.Has(declare.Secret)
	if at := o.place(f.Name); at != "" {
		o.Params = append(o.Params, Param{
			Name: f.Name, In: at, Shape: shape, Required: f.Rule.Required || at == InPath, Secret: secret, Default: f.Default,
			Bounds: bounds, Enum: f.Rule.Enum, Ref: f.Rule.Ref, Description: f.Doc, Ask: f.Ask, Example: f.Example,
		})
		return
	}
	part := Field{
		Name: f.Name, Shape: shape, Required: f.Rule.Required, Secret: secret, Bounds: bounds, Enum: f.Rule.Enum, Ref: f.Rule.Ref,
		Elements: f.Elements(), Description: f.Doc, Ask: f.Ask,
	}
	if (shape == Object || shape == List) && f.Type != reflect.TypeFor[map[string]any]() && f.Type != reflect.TypeFor[json.RawMessage]() {
		part.Type = reflect.Zero(f.Type).Interface()
		if d, ok := part.Type.(Declarer); ok {
			part.Members = d.Declared()
		}
	}
	if f.Default != "" {
		part.Default = f.Literal(f.Default).Raw()
	}
	if f.Example != "" {
		part.Example = f.Literal(f.Example).Raw()
	}
	o.Body = append(o.Body, part)
}

// Redeclare documents a field of the body as an object of the type of as that may be absent but not null.
func (o *Row) Redeclare(name string, as any) {
	for i := range o.Body {
		if f := &o.Body[i]; f.Name == name {
			f.Type, f.Nullable = as, false
		}
	}
}

// SetMinLength documents how many characters a text of the body must have at least, if the handler checks that.
func (o *Row) SetMinLength(name string, characters int) {
	for i := range o.Body {
		if f := &o.Body[i]; f.Name == name {
			f.Bounds.MinLength = characters
		}
	}
}

// Sent returns the value that the caller sent for a field, and whether it was sent.
func (c *Call) Sent(f *field.Field) (v strictjson.Value, given bool) {
	switch c.Operation.place(f.Name) {
	case InPath:
		return f.Literal(c.Path(f.Name)), true
	case InQuery:
		v.Is = strictjson.Array
		for _, p := range c.Query.Tree(f.Name) {
			v.Items = append(v.Items, f.Literal(p.Value))
		}
		if len(v.Items) > 0 && shapeOf(f) != List {
			v = v.Items[0]
		}
		return v, c.Query.Has(f.Name)
	}
	return c.Body.Value(f.Name), c.Body.Has(f.Name)
}

// checker is an In with checks beyond its tags. Invalid fields have zero values when Check is called; faults that it
// notes of those are dropped.
type checker interface {
	Check(c *Call, errs *fault.List)
}

// fill reads the fields of In into the struct that in points to. It returns all faults at once.
func (c *Call) fill(in any, fields []field.Field) error {
	errs := slices.Clone(c.Unknown)
	for i := range fields {
		f := &fields[i]
		v, given := c.Sent(f)
		if !given && f.Default != "" {
			v, given = f.Literal(f.Default), true
		}
		if given {
			f.Read(v, in, &errs)
		}
		f.Demand(given, in, &errs)
	}
	if whole, ok := in.(checker); ok {
		var more fault.List
		whole.Check(c, &more)
		field.Join(&errs, more)
	}
	return errs.Err()
}
