package campaigns_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tenantry/modules/contacts"
	"tenantry/tenants"
)

// claim is one condition as this test understands it.
type claim struct {
	field, op string
	values    []string
}

func (c claim) query(prefix string) []string {
	path := url.QueryEscape(fmt.Sprintf("%s[%s][%s]", prefix, c.field, c.op))
	out := make([]string, len(c.values))
	for i, v := range c.values {
		out[i] = path + "=" + url.QueryEscape(v)
	}
	return out
}

// holds evaluates the condition on a contact, plainly and from the stated rules alone.
func (c claim) holds(p contacts.Contact) bool {
	var have []any // no element: missing
	switch c.field {
	case "country":
		have = textOf(p.Country)
	case "city":
		have = textOf(p.City)
	case "tags":
		for _, tag := range p.Tags {
			have = append(have, tag)
		}
	default:
		if v, ok := p.Fields[c.field]; ok {
			have = []any{v}
		}
	}
	if c.op == "exists" {
		return (len(have) > 0) == (c.values[0] == "true")
	}
	matches := func(op string) bool {
		return slices.ContainsFunc(have, func(v any) bool {
			return slices.ContainsFunc(c.values, func(w string) bool { return compare(c.field, op, v, w) })
		})
	}
	switch c.op {
	case "ne", "nin":
		return !matches("eq")
	case "in":
		return matches("eq")
	case "contains":
		if c.field == "tags" {
			return matches("eq")
		}
	}
	return matches(c.op)
}

func textOf(s string) []any {
	if s == "" {
		return nil
	}
	return []any{s}
}

func compare(field, op string, have any, want string) bool {
	order := 0
	switch v := have.(type) {
	case bool:
		return fmt.Sprint(v) == want
	case json.Number:
		a, _ := v.Float64()
		b, _ := json.Number(want).Float64()
		order = int(min(max((a-b)*10, -1), 1))
	case string:
		if field == "birthday" && op == "eq" {
			return v == want
		}
		switch op {
		case "contains_exact":
			return strings.Contains(v, want)
		case "starts_with_exact":
			return strings.HasPrefix(v, want)
		case "contains", "starts_with": // some part, or the first one, is equal to it but for case
			for from := range len(v) + 1 {
				for to := from; to <= len(v); to++ {
					if strings.EqualFold(v[from:to], want) {
						return true
					}
				}
				if op == "starts_with" {
					break
				}
			}
			return false
		}
		order = strings.Compare(v, want)
	}
	switch op {
	case "eq":
		return order == 0
	case "gt":
		return order > 0
	case "gte":
		return order >= 0
	case "lt":
		return order < 0
	case "lte":
		return order <= 0
	}
	return false
}

func words() []string   { return []string{"A", "B", "Ab", "aB", "ß", "ẞa", "K", "\u212a", "a%", "_"} }
func numbers() []string { return []string{"-1", "0", "0.5", "1", "2", "10"} }
func dates() []string   { return []string{"2023-12-31", "2024-01-01", "2024-02-29", "2024-03-01"} }

func drawClaim(t *rapid.T) claim {
	order := []string{"eq", "ne", "in", "nin", "exists", "gt", "gte", "lt", "lte"}
	field := rapid.SampledFrom([]string{"country", "city", "tags", "age", "vip", "birthday", "note"}).Draw(t, "field")
	values, ops := words(), append(order, "contains", "contains_exact", "starts_with", "starts_with_exact")
	switch field {
	case "tags":
		ops = []string{"eq", "ne", "in", "nin", "exists", "contains"}
	case "age":
		values, ops = numbers(), order
	case "vip":
		values, ops = []string{"true", "false"}, []string{"eq", "ne", "in", "nin", "exists"}
	case "birthday":
		values, ops = dates(), order
	}
	c := claim{field: field, op: rapid.SampledFrom(ops).Draw(t, "op")}
	switch c.op {
	case "exists":
		c.values = []string{rapid.SampledFrom([]string{"true", "false"}).Draw(t, "exists")}
	case "in", "nin":
		c.values = rapid.SliceOfNDistinct(rapid.SampledFrom(values), 1, min(3, len(values)), rapid.ID).Draw(t, "values")
	default:
		c.values = []string{rapid.SampledFrom(values).Draw(t, "value")}
	}
	return c
}

func drawClaims(t *rapid.T, least, most int) []claim {
	return rapid.SliceOfNDistinct(rapid.Custom(drawClaim), least, most, func(c claim) string { return c.field + c.op }).Draw(t, "claims")
}

func drawContact(t *rapid.T) contacts.Contact {
	maybe := func(label string, values []string) string {
		return rapid.SampledFrom(append([]string{""}, values...)).Draw(t, label)
	}
	p := contacts.Contact{
		Country: maybe("country", words()), City: maybe("city", words()), Fields: map[string]any{},
		Tags: rapid.SliceOfNDistinct(rapid.SampledFrom(words()), 0, 3, rapid.ID).Draw(t, "tags"),
	}
	if note := maybe("note", words()); note != "" {
		p.Fields["note"] = note
	}
	if birthday := maybe("birthday", dates()); birthday != "" {
		p.Fields["birthday"] = birthday
	}
	if age := maybe("age", numbers()); age != "" {
		p.Fields["age"] = json.Number(age)
	}
	if vip := maybe("vip", []string{"true", "false"}); vip != "" {
		p.Fields["vip"] = vip == "true"
	}
	if team := maybe("team", []string{teamA, teamB}); team != "" {
		p.Teams = []string{team}
	}
	return p
}

func TestPropertyCountIsWhatTheRulesSay(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var everybody []contacts.Contact
	for i := range 60 {
		everybody = append(everybody, rapid.Custom(drawContact).Example(i))
	}
	f.add(t, f.tenant, everybody...)
	nonTrivial := 0
	rapid.Check(t, func(rt *rapid.T) {
		all := drawClaims(rt, 0, 2)
		var alternatives [][]claim
		for range rapid.IntRange(0, 3).Draw(rt, "alternatives") {
			alternatives = append(alternatives, drawClaims(rt, 1, 2))
		}
		caller := rapid.SampledFrom([]*tenants.Principal{caller(), caller(teamA), caller(teamA, teamB)}).Draw(rt, "caller")
		var parts []string
		for _, c := range all {
			parts = append(parts, c.query("filters")...)
		}
		for i, group := range alternatives {
			for _, c := range group {
				parts = append(parts, c.query(fmt.Sprintf("filters[or][%d]", i))...)
			}
		}
		want := int64(0)
		for _, p := range everybody {
			seen := len(caller.Teams) == 0 || len(p.Teams) == 0 || slices.Contains(caller.Teams, p.Teams[0])
			holds := func(c claim) bool { return c.holds(p) }
			either := len(alternatives) == 0
			for _, group := range alternatives {
				either = either || !slices.ContainsFunc(group, func(c claim) bool { return !c.holds(p) })
			}
			if seen && either && !slices.ContainsFunc(all, func(c claim) bool { return !holds(c) }) {
				want++
			}
		}
		if want > 0 && want < int64(len(everybody)) {
			nonTrivial++
		}
		query := strings.Join(parts, "&")
		got, p := f.count(rt, f.tenant, caller, "", query)
		if p != nil || got != want {
			rt.Fatalf("%s as %v: %d, %v; want %d", query, caller.Teams, got, p, want)
		}
	})
	if nonTrivial == 0 {
		t.Error("no filter matched some contacts and not others")
	}
}
