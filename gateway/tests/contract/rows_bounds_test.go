package contract

import (
	"maps"
	"math/big"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
)

// rowBound is a value at, or just beyond, a limit that a row declares.
type rowBound struct {
	name   string
	value  any
	beyond bool
}

// boundsOf returns the values to try, those beyond a limit first, because a valid value can use up what the call needs.
func boundsOf(b operation.Bounds, enum []string, shape operation.Shape) []rowBound {
	var beyond, within []rowBound
	number := func(name string, at, past int64) {
		within = append(within, rowBound{name, big.NewInt(at), false})
		beyond = append(beyond, rowBound{name, new(big.Int).Add(big.NewInt(at), big.NewInt(past)), true})
	}
	text := func(n int) string { return strings.Repeat("a", n) }
	if b.Least != 0 {
		number("minimum", b.Least, -1)
	}
	if b.Most != 0 {
		number("maximum", b.Most, 1)
	}
	if b.MinLength != 0 {
		within = append(within, rowBound{"minLength", text(b.MinLength), false})
		beyond = append(beyond, rowBound{"minLength", text(b.MinLength - 1), true})
	}
	if b.MaxLength != 0 {
		within = append(within, rowBound{"maxLength", text(b.MaxLength), false})
		beyond = append(beyond, rowBound{"maxLength", text(b.MaxLength + 1), true})
	}
	if b.Pattern != "" {
		pattern := regexp.MustCompile(b.Pattern)
		for _, candidate := range []string{"aa", "a1", "a_", "z", "Aa", "a b", "ä", "a\x01", "a\x9f", " ", "1a", "a\n"} {
			beyond = append(beyond, rowBound{"pattern", candidate, !pattern.MatchString(candidate)})
		}
	}
	for _, value := range enum {
		within = append(within, rowBound{"enum", value, false})
	}
	if len(enum) > 0 {
		beyond = append(beyond, rowBound{"enum", enum[0] + "x", true}, rowBound{"enum", "", true})
	}
	if shape == operation.Integer {
		beyond = append(beyond, rowBound{"type", "x", true}, rowBound{"type", "1.5", true})
	}
	return append(beyond, within...)
}

// TestDeclaredBoundsHold checks that the gateway enforces exactly the bounds of parameters and fields in the OpenAPI
// document.
func TestDeclaredBoundsHold(t *testing.T) {
	t.Parallel()
	p := fixture.NewWorld(t).A
	worded := []string{"sort", "at", "time_zone", "color", "after", "pid", "class", "visual", "operation", "subject", "source", "url", "call", "field", "columns", "present_password", "public_key", "proof", "proof_of_work", "head", "kinds", "changed_after", "since", "thanks_url"} // which words they take is no matter of bounds
	calls := map[string]clientCall{}
	given, _ := clientCalls(t, p)
	for _, c := range given {
		calls[c.ID] = c
	}
	tried := map[string]int{}
	for _, op := range p.App.Operations() {
		for i, path := range op.Paths() {
			c, called := calls[op.ID(i)]
			if !called {
				continue
			}
			for _, param := range op.Params {
				if param.In == operation.InPath && !strings.Contains(path, "{"+param.Name+"}") {
					continue
				}
				for _, b := range boundsOf(param.Bounds, param.Enum, param.Shape) {
					if !b.beyond && slices.Contains(worded, param.Name) {
						continue
					}
					changed := c
					if changed.Params, changed.Query = maps.Clone(c.Params), maps.Clone(c.Query); param.In == operation.InPath {
						changed.Params[param.Name] = b.value
					} else {
						changed.Query[param.Name] = b.value
					}
					tryBound(t, p, changed, param.Name, b, param.In == operation.InPath)
					tried[b.name]++
				}
			}
			for _, f := range op.Body {
				for _, b := range boundsOf(f.Bounds, nil, f.Shape) {
					if !b.beyond && slices.Contains(worded, f.Name) {
						continue
					}
					if !b.beyond && op.Resource != "" && (f.Name == "email" || f.Name == "type" || f.Name == "mimetype") {
						continue // a long one has a form, too
					}
					changed := c
					changed.Body = maps.Clone(c.Body)
					changed.Body[f.Name] = b.value
					tryBound(t, p, changed, f.Name, b, false)
					tried[b.name]++
				}
			}
		}
	}
	for _, name := range []string{"minimum", "maximum", "minLength", "maxLength", "pattern", "enum", "type"} {
		if tried[name] < 2 {
			t.Errorf("%s was tried %d times, want at least 2", name, tried[name])
		}
	}
}

// tryBound makes the call. A value beyond a bound gets a 422 that names the parameter or field, or is a missing record
// if it is an identifier. A value at a bound is not refused for its size.
func tryBound(t *testing.T, p *fixture.Party, c clientCall, name string, b rowBound, identifier bool) {
	t.Helper()
	text := func(v any) string {
		switch v := v.(type) {
		case *big.Int:
			return v.String()
		case int:
			return strconv.Itoa(v)
		case bool:
			return strconv.FormatBool(v)
		}
		s, _ := v.(string)
		return s
	}
	target := c.Path
	for param, v := range c.Params {
		target = strings.ReplaceAll(target, "{"+param+"}", url.PathEscape(text(v)))
	}
	query := url.Values{}
	for param, v := range c.Query {
		switch v := v.(type) {
		case map[string]any:
			for member, value := range v {
				query.Set(member, text(value))
			}
		case []string:
			query[param] = v
		default:
			query.Set(param, text(v))
		}
	}
	var changes []gatewaytest.Request
	for header, v := range c.Headers {
		changes = append(changes, gatewaytest.Header(header, v))
	}
	if c.Body != nil {
		changes = append(changes, gatewaytest.JSON(c.Body))
	}
	a := p.Do(t, c.Method, target+"?"+query.Encode(), changes...)
	refused := identifier && a.Code == http.StatusNotFound
	errs, _ := a.Field("errors").([]any)
	for _, e := range errs {
		m, _ := e.(map[string]any)
		refused = refused || a.Code == http.StatusUnprocessableEntity && m["field"] == name
	}
	if identifier && !b.beyond {
		refused = false // it leads to nothing; what matters is that its like is looked for
	}
	if refused != b.beyond || a.Code >= 500 || a.Code == http.StatusTooManyRequests {
		t.Errorf("%s with %s %q, of its %s: got %d %.300s, want %v, a code below 500 and a code other than 429",
			c.ID, name, text(b.value), b.name, a.Code, a.Body, b.beyond)
	}
}
