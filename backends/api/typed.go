package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"tenantry/internal/declare"
	"tenantry/internal/fault"
)

// Typed completes a row whose handler takes In, a struct whose tags declare its fields (see package
// declare), and answers with Out. From In come the parameters and the body as they are documented, and
// what is read, filled with defaults and checked before do is called: what the path names from there,
// the rest from the query of a GET and else from the body. What is wrong with In is a fault of the row.
func Typed[In, Out any](o Operation, do func(context.Context, *Call, In) (Out, error)) Operation {
	fields, err := declare.Of(reflect.TypeFor[In]())
	o.fault = err
	for i := range fields {
		o.declare(&fields[i])
	}
	o.Data = *new(Out)
	o.Handler = func(ctx context.Context, c *Call) (Result, error) {
		var in In
		if err := c.fill(reflect.ValueOf(&in).Elem(), fields); err != nil {
			return Result{}, err
		}
		out, err := do(ctx, c, in)
		return Result{Data: out}, err
	}
	return o
}

// shapeOf returns the shape of a type, of what it points to where it is a pointer.
func shapeOf(t reflect.Type) Shape {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t.Kind() == reflect.String:
		return Text
	case t.Kind() == reflect.Bool:
		return Boolean
	case t.Kind() == reflect.Slice:
		return List
	case reflect.Zero(t).CanInt():
		return Integer
	}
	return Object
}

// place returns where the row takes a field from; "": from the body.
func (o *Operation) place(name string) Place {
	switch {
	case slices.ContainsFunc(o.Paths(), func(path string) bool { return strings.Contains(path, "{"+name+"}") }):
		return InPath
	case o.Method == http.MethodGet && o.Credentials != Operator:
		return InQuery
	}
	return ""
}

// declare documents a field of In.
func (o *Operation) declare(f *declare.Field) {
	shape := shapeOf(f.Type)
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
			Bounds: bounds, Enum: f.Rule.Enum, Description: f.Doc, Example: f.Example,
		})
		return
	}
	field := Field{Name: f.Name, Shape: shape, Required: f.Rule.Required, Secret: secret, Bounds: bounds, Description: f.Doc}
	if shape == Object {
		field.Type = reflect.Zero(f.Type).Interface()
	}
	if f.Default != "" {
		field.Default = literal(f.Type, f.Default)
	}
	if f.Example != "" {
		field.Example = literal(f.Type, f.Example)
	}
	o.Body = append(o.Body, field)
}

// literal returns the JSON of a value that a tag, a path or a query writes as text.
func literal(t reflect.Type, text string) json.RawMessage {
	switch shapeOf(t) {
	case Text:
		raw, _ := json.Marshal(text) // texts can be written
		return raw
	case Boolean:
		if at := slices.Index([]string{"0", "1"}, text); at >= 0 {
			text = [...]string{"false", "true"}[at]
		}
	}
	return json.RawMessage(text)
}

// sent returns what the caller sent of a field, as JSON, and whether it was sent.
func (c *Call) sent(f *declare.Field) (json.RawMessage, bool) {
	var texts []string
	switch c.Operation.place(f.Name) {
	case InPath:
		texts = append(texts, c.Path(f.Name))
	case InQuery:
		for _, p := range c.Query.Tree(f.Name) {
			texts = append(texts, p.Value)
		}
	default:
		return c.Body.Raw(f.Name), c.Body.Has(f.Name)
	}
	switch {
	case len(texts) == 0:
		return nil, false
	case shapeOf(f.Type) == List:
		raw, _ := json.Marshal(texts)
		return raw, true
	}
	return literal(f.Type, texts[0]), true
}

// fill reads the fields of In into a struct. It returns all faults at once.
func (c *Call) fill(in reflect.Value, fields []declare.Field) error {
	var errs fault.List
	for i := range fields {
		f := &fields[i]
		raw, given := c.sent(f)
		if !given && f.Default != "" {
			raw, given = literal(f.Type, f.Default), true
		}
		if !given {
			if f.Rule.Required {
				errs.Add(f.Name, fault.Required, "%s is required", f.Name)
			}
			continue
		}
		to := in.FieldByIndex(f.Index)
		d := json.NewDecoder(bytes.NewReader(raw))
		d.DisallowUnknownFields()
		if string(raw) == "null" || d.Decode(to.Addr().Interface()) != nil {
			errs.Add(f.Name, fault.Type, "%s must be %s", f.Name, kindOf(f))
			continue
		}
		check(&errs, f, reflect.Indirect(to))
	}
	return errs.Err()
}

func kindOf(f *declare.Field) string {
	switch shapeOf(f.Type) {
	case Text:
		return "a string"
	case Integer:
		return "a whole number, " + span(&f.Rule)
	case Boolean:
		return "true or false"
	case List:
		return "a list"
	}
	return "an object"
}

// span returns the bounds of a rule in words.
func span(r *declare.Rule) string {
	if r.Max == 0 {
		return fmt.Sprintf("at least %d", r.Min)
	}
	return fmt.Sprintf("%d to %d", r.Min, r.Max)
}

// check notes what the rule of a field says against a value.
func check(errs *fault.List, f *declare.Field, v reflect.Value) {
	r := &f.Rule
	switch shapeOf(f.Type) {
	case Text:
		text := v.String()
		if n := int64(utf8.RuneCountInString(text)); (r.Required || r.Min > 0) && strings.TrimSpace(text) == "" {
			errs.Add(f.Name, fault.Required, "%s must not be empty", f.Name)
		} else if n < r.Min || n > r.Most() {
			errs.Add(f.Name, fault.Length, "%s must have %s characters", f.Name, span(r))
		}
		if len(r.Enum) > 0 && !slices.Contains(r.Enum, text) {
			errs.Add(f.Name, fault.Format, "%s must be %s", f.Name, strings.Join(r.Enum, " or "))
		}
	case Integer:
		if n := v.Int(); n < r.Min || n > r.Most() {
			errs.Add(f.Name, fault.Range, "%s must be %s", f.Name, kindOf(f))
		}
	case List:
		if n := int64(v.Len()); n < r.Min || n > r.Most() {
			errs.Add(f.Name, fault.Length, "%s must have %s elements", f.Name, span(r))
		}
		for i := 0; r.Each > 0 && i < v.Len(); i++ {
			if e := v.Index(i); e.Kind() == reflect.String && utf8.RuneCountInString(e.String()) > int(r.Each) {
				errs.Add(f.Name, fault.Length, "an element of %s must have at most %d characters", f.Name, r.Each)
				break
			}
		}
	}
}
