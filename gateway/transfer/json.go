package transfer

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"tenantry/backends/api"
)

// shape tells what a JSON value is.
type shape byte

const (
	null shape = iota
	truth
	falsehood
	number
	text
	array
	object
)

// value is a parsed JSON value. Strings are parts of the line they came from.
type value struct {
	is      shape
	text    string // of text: decoded; of number: as written
	items   []value
	members []member
}

type member struct {
	name  string
	value value
}

// parser reads one JSON value strictly: it takes exactly what api.CheckJSON takes, at a
// fraction of the cost. It is reused from line to line and not safe for concurrent use.
type parser struct {
	src   string
	at    int
	depth int

	members []member // members of the objects being read
	items   []value  // items of the arrays being read
}

// parse returns the value of a line. The error is for the author of the line.
func (p *parser) parse(src string) (value, error) {
	p.src, p.at, p.depth = src, 0, 0
	p.members, p.items = p.members[:0], p.items[:0]
	if utf8.ValidString(src) {
		p.space()
		v, ok := p.value()
		p.space()
		if ok && p.at == len(src) {
			return v, nil
		}
	}
	err := api.CheckJSON([]byte(src))
	if err == nil { // the two readers disagree; trust neither
		err = api.BadRequest("The body is not valid JSON, at byte %d", p.at+1)
	}
	return value{}, err
}

func (p *parser) space() {
	for p.at < len(p.src) {
		switch p.src[p.at] {
		case ' ', '\t', '\r', '\n':
			p.at++
		default:
			return
		}
	}
}

func (p *parser) value() (value, bool) {
	if p.at >= len(p.src) {
		return value{}, false
	}
	switch c := p.src[p.at]; c {
	case '{':
		return p.object()
	case '[':
		return p.array()
	case '"':
		s, ok := p.string()
		return value{is: text, text: s}, ok
	case 't':
		return value{is: truth}, p.word("true")
	case 'f':
		return value{is: falsehood}, p.word("false")
	case 'n':
		return value{is: null}, p.word("null")
	}
	return p.number()
}

func (p *parser) word(w string) bool {
	if !strings.HasPrefix(p.src[p.at:], w) {
		return false
	}
	p.at += len(w)
	return true
}

func (p *parser) open() bool {
	p.at++
	p.depth++
	p.space()
	return p.depth <= api.MaxDepth
}

// next steps over a comma (true) or the closing byte (false).
func (p *parser) next(closing byte) (more, ok bool) {
	p.space()
	if p.at >= len(p.src) {
		return false, false
	}
	c := p.src[p.at]
	p.at++
	if c == closing {
		p.depth--
		return false, true
	}
	p.space()
	return true, c == ','
}

func (p *parser) object() (value, bool) {
	if !p.open() {
		return value{}, false
	}
	v := value{is: object}
	if p.at < len(p.src) && p.src[p.at] == '}' {
		p.at++
		p.depth--
		return v, true
	}
	mark := len(p.members)
	for more := true; more; {
		if p.at >= len(p.src) || p.src[p.at] != '"' {
			return v, false
		}
		name, ok := p.string()
		p.space()
		if !ok || p.at >= len(p.src) || p.src[p.at] != ':' {
			return v, false
		}
		p.at++
		p.space()
		inner, ok := p.value()
		if !ok {
			return v, false
		}
		p.members = append(p.members, member{name, inner})
		if more, ok = p.next('}'); !ok {
			return v, false
		}
	}
	v.members = slices.Clone(p.members[mark:])
	p.members = p.members[:mark]
	return v, distinct(v.members)
}

// distinct reports whether no name is given twice.
func distinct(members []member) bool {
	if len(members) > 32 {
		seen := make(map[string]struct{}, len(members))
		for i := range members {
			seen[members[i].name] = struct{}{}
		}
		return len(seen) == len(members)
	}
	for i := range members {
		for j := range i {
			if members[i].name == members[j].name {
				return false
			}
		}
	}
	return true
}

func (p *parser) array() (value, bool) {
	if !p.open() {
		return value{}, false
	}
	v := value{is: array}
	if p.at < len(p.src) && p.src[p.at] == ']' {
		p.at++
		p.depth--
		return v, true
	}
	mark := len(p.items)
	for more := true; more; {
		inner, ok := p.value()
		if !ok {
			return v, false
		}
		p.items = append(p.items, inner)
		if more, ok = p.next(']'); !ok {
			return v, false
		}
	}
	v.items = slices.Clone(p.items[mark:])
	p.items = p.items[:mark]
	return v, true
}

func (p *parser) string() (string, bool) {
	start, escaped := p.at, false
	for i := start + 1; i < len(p.src); i++ {
		switch c := p.src[i]; {
		case c == '"':
			p.at = i + 1
			if !escaped {
				return p.src[start+1 : i], true
			}
			var s string
			err := json.Unmarshal([]byte(p.src[start:p.at]), &s)
			return s, err == nil && strings.IndexByte(s, 0) < 0
		case c == '\\':
			escaped = true
			i++
		case c < 0x20:
			return "", false
		}
	}
	return "", false
}

func (p *parser) digits() bool {
	start := p.at
	for p.at < len(p.src) && p.src[p.at] >= '0' && p.src[p.at] <= '9' {
		p.at++
	}
	return p.at > start
}

func (p *parser) has(chars string) bool {
	if p.at < len(p.src) && strings.IndexByte(chars, p.src[p.at]) >= 0 {
		p.at++
		return true
	}
	return false
}

func (p *parser) number() (value, bool) {
	start := p.at
	p.has("-")
	if !p.has("0") && !p.digits() {
		return value{}, false
	}
	if p.has(".") && !p.digits() {
		return value{}, false
	}
	if p.has("eE") {
		p.has("+-")
		if !p.digits() {
			return value{}, false
		}
	}
	return value{is: number, text: p.src[start:p.at]}, true
}

// any returns the value as encoding/json would decode it, numbers as json.Number.
func (v value) any() any {
	switch v.is {
	case truth, falsehood:
		return v.is == truth
	case number:
		return json.Number(v.text)
	case text:
		return v.text
	case array:
		list := make([]any, len(v.items))
		for i := range v.items {
			list[i] = v.items[i].any()
		}
		return list
	case object:
		return v.table()
	}
	return nil
}

func (v value) table() map[string]any {
	m := make(map[string]any, len(v.members))
	for i := range v.members {
		m[v.members[i].name] = v.members[i].value.any()
	}
	return m
}

// get returns the member of that name; null where there is none.
func (v value) get(name string) value {
	for i := range v.members {
		if v.members[i].name == name {
			return v.members[i].value
		}
	}
	return value{}
}

// appendCanonical writes the value without blanks and with names in order, so that the
// same content always has the same bytes. Members for which leave returns true are left out.
func (v value) appendCanonical(dst []byte, leave func(name string) bool) []byte {
	switch v.is {
	case null:
		return append(dst, "null"...)
	case truth, falsehood:
		return strconv.AppendBool(dst, v.is == truth)
	case number:
		return append(dst, v.text...)
	case text:
		return appendText(dst, v.text)
	case array:
		dst = append(dst, '[')
		for i := range v.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = v.items[i].appendCanonical(dst, leave)
		}
		return append(dst, ']')
	}
	members := v.members
	if !slices.IsSortedFunc(members, byName) {
		members = slices.Clone(members)
		slices.SortFunc(members, byName)
	}
	dst = append(dst, '{')
	first := true
	for i := range members {
		if leave != nil && leave(members[i].name) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = appendText(dst, members[i].name)
		dst = append(dst, ':')
		dst = members[i].value.appendCanonical(dst, leave)
	}
	return append(dst, '}')
}

func byName(a, b member) int { return strings.Compare(a.name, b.name) }

// raw returns the value as JSON.
func (v value) raw() json.RawMessage { return v.appendCanonical(nil, nil) }

const hexDigits = "0123456789abcdef"

// appendText writes a JSON string; only what must be escaped is.
func appendText(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		start = i + 1
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}
