package operation

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"tenantry/backends/store"
	"tenantry/internal/fault"
)

// Limits of a query string.
const (
	maxQueryBytes = 128 << 10
	maxQueryPairs = 1000
	maxBrackets   = 6
)

// Pair is one name=value of a query string. Path is the name split at its brackets: filters[age][gt] is filters, age,
// gt; teams[] is teams and "".
type Pair struct {
	Name  string
	Path  []string
	Value string
}

// Query is a query string, read strictly. The zero value is an empty one.
type Query struct{ pairs []Pair }

// ParseQuery reads a raw query string. A part that does not parse is a 400, because a dropped parameter could widen
// the answer.
func ParseQuery(raw string) (Query, error) {
	var q Query
	if len(raw) > maxQueryBytes {
		return q, BadRequest("The query string is longer than %d bytes", maxQueryBytes)
	}
	if raw == "" {
		return q, nil
	}
	if n := strings.Count(raw, "&") + 1; n > maxQueryPairs {
		return q, BadRequest("The query string has more than %d parameters", maxQueryPairs)
	}
	for i, part := range strings.Split(raw, "&") {
		if part == "" {
			continue
		}
		if strings.Contains(part, ";") {
			return Query{}, BadRequest(
				"Parameter %d of the query string contains a semicolon; write %%3B for one in a value", i+1,
			)
		}
		rawName, rawValue, _ := strings.Cut(part, "=")
		name, err := unescape(rawName)
		if err != nil {
			return Query{}, BadRequest("The name of parameter %d of the query string %s", i+1, err)
		}
		value, err := unescape(rawValue)
		if err != nil {
			return Query{}, BadRequest("The value of parameter %d of the query string %s", i+1, err)
		}
		path, err := brackets(name)
		if err != nil {
			return Query{}, BadRequest("The name of parameter %d of the query string %s", i+1, err)
		}
		q.pairs = append(q.pairs, Pair{Name: name, Path: path, Value: value})
	}
	return q, nil
}

func unescape(raw string) (string, error) {
	text, err := url.QueryUnescape(raw)
	if err != nil {
		return "", fmt.Errorf("has a malformed percent-encoding")
	}
	if !utf8.ValidString(text) {
		return "", fmt.Errorf("is not valid UTF-8")
	}
	if strings.ContainsRune(text, 0) {
		return "", fmt.Errorf("contains a NUL character")
	}
	return text, nil
}

func brackets(name string) ([]string, error) {
	root, rest, found := strings.Cut(name, "[")
	if strings.Contains(root, "]") || (root == "" && found) {
		return nil, fmt.Errorf("has unbalanced brackets")
	}
	path := []string{root}
	for found {
		key, after, closed := strings.Cut(rest, "]")
		if !closed || strings.Contains(key, "[") {
			return nil, fmt.Errorf("has unbalanced brackets")
		}
		if path = append(path, key); len(path) > maxBrackets {
			return nil, fmt.Errorf("has more than %d brackets", maxBrackets-1)
		}
		if after == "" {
			return path, nil
		}
		if after[0] != '[' {
			return nil, fmt.Errorf("has unbalanced brackets")
		}
		rest = after[1:]
	}
	return path, nil
}

// Bind checks the query against the operation's parameters. A scalar that is given twice is a 400. An unknown
// parameter is ignored, but one with brackets, other than teams[], is always a 400, because it would have narrowed the
// answer.
func (c *Call) Bind(q Query) error {
	c.Query = q
	seen := map[string]bool{}
	for _, p := range q.pairs {
		root := p.Path[0]
		if root == "teams" && c.Operation.Teams && (len(p.Path) == 1 || p.Path[1] == "") && len(p.Path) <= 2 {
			continue
		}
		declared, ok := c.Operation.queryParam(root)
		switch {
		case !ok && len(p.Path) > 1 && p.Name != "teams[]":
			return c.untaken(p.Name)
		case !ok:
			c.Ignore(p.Name)
		case declared.Shape == Tree:
		case len(p.Path) > 1:
			if declared.Shape != List || len(p.Path) > 2 || p.Path[1] != "" {
				return BadRequest("Parameter %s takes no brackets", root)
			}
		case declared.Shape == List:
		case seen[root]:
			return BadRequest("Parameter %s is given twice", root)
		default:
			seen[root] = true
		}
	}
	return nil
}

// Has reports whether the parameter is present, in any form.
func (q Query) Has(name string) bool {
	for _, p := range q.pairs {
		if p.Path[0] == name {
			return true
		}
	}
	return false
}

// Text returns the scalar parameter; "" if it is absent.
func (q Query) Text(name string) string {
	for _, p := range q.pairs {
		if p.Name == name {
			return p.Value
		}
	}
	return ""
}

// Tree returns the pairs whose name begins with root, in the order given.
func (q Query) Tree(root string) []Pair {
	var found []Pair
	for _, p := range q.pairs {
		if p.Path[0] == root {
			found = append(found, p)
		}
	}
	return found
}

// Bool returns the parameter as a boolean (true, false, 1, 0), or the fallback if it is absent. Any other value is
// noted in errs.
func (q Query) Bool(errs *fault.List, name string, fallback bool) bool {
	if !q.Has(name) {
		return fallback
	}
	switch q.Text(name) {
	case "true", "1":
		return true
	case "false", "0":
		return false
	}
	errs.Add(name, "type", "%s must be true or false", name)
	return fallback
}

// Teams returns the team identifiers that the request names. teams[] takes precedence over plain teams, of which the
// last counts, and both take precedence over teams in the body. Values that are not identifiers are ignored; with
// strict handling they are a 400.
func (c *Call) Teams() ([]string, error) {
	var bracketed, plain []string
	for _, p := range c.Query.pairs {
		switch {
		case p.Path[0] != "teams":
		case len(p.Path) == 2 && p.Path[1] == "":
			bracketed = append(bracketed, p.Value)
		case len(p.Path) == 1:
			plain = []string{p.Value}
		}
	}
	var named []string
	if c.Operation.bodyField("teams").Name == "" { // otherwise they are a field of the record
		named = c.Body.teams()
	}
	invalid := func(team string) bool { return !store.ValidID(team) }
	if c.Strict && slices.ContainsFunc(slices.Concat(bracketed, plain, named), invalid) { // even if they are not used
		return nil, BadRequest("A value of teams[] is not a team identifier (24 lower-case hexadecimal digits)")
	}
	if plain != nil {
		named = plain
	}
	if bracketed != nil {
		named = bracketed
	}
	var valid []string
	for _, team := range named {
		if !invalid(team) {
			valid = append(valid, team)
		}
	}
	return valid, nil
}
