package operation

import (
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"tenantry/internal/fault"
)

// Tags are the entity-tags of a header that makes a request conditional (RFC 9110, 13.1). The zero
// value is that of a request without it.
type Tags struct {
	any  bool // "*"
	list []entityTag
}

type entityTag struct {
	opaque string
	weak   bool
}

// given reports whether the request bears the header.
func (t Tags) given() bool { return t.any || len(t.list) > 0 }

// parseTags reads the lines of a header of that name. What is no list of entity-tags, or *, is a 400.
func parseTags(name string, lines []string) (Tags, error) {
	if len(lines) == 0 {
		return Tags{}, nil
	}
	rest := strings.Trim(strings.Join(lines, ","), " \t")
	if rest == "*" {
		return Tags{any: true}, nil
	}
	var tags Tags
	for rest != "" {
		strong, weak := strings.CutPrefix(rest, "W/")
		opened, quoted := strings.CutPrefix(strong, `"`)
		opaque, after, closed := strings.Cut(opened, `"`)
		after = strings.TrimLeft(after, " \t")
		if !quoted || !closed || strings.ContainsAny(opaque, " \t") || after != "" && after[0] != ',' || !utf8.ValidString(opaque) {
			break
		}
		tags.list = append(tags.list, entityTag{opaque, weak})
		rest = strings.TrimLeft(after, ", \t")
	}
	if rest != "" || !tags.given() {
		return Tags{}, BadRequest(`The header %s must be * or tags as ETag gives them, separated by commas, each in double quotes`, name)
	}
	return tags, nil
}

// Matching returns what If-None-Match has of a tag, "" where it does not name it. Weak tags count,
// and those of the same answer in another encoding.
func (t Tags) Matching(tag string) string {
	if t.any {
		return tag
	}
	for _, one := range t.list {
		if quoted := `"` + one.opaque + `"`; strings.Replace(quoted, PackedTag, "", 1) == tag {
			return quoted
		}
	}
	return ""
}

// PackedTag ends the tag of an answer that is sent compressed, before the closing quote: other bytes, other tag.
const PackedTag = "-gzip"

// Conditional reports whether the operation honours If-Match: it is about a record that is there.
func (o *Row) Conditional() bool {
	return o.Revised && (o.Method != http.MethodPost || o.OnRecord)
}

// conditions reads the headers that make the call conditional. One that would be ignored where it
// keeps a change from being made is refused.
func (c *Call) conditions(header http.Header) (err error) {
	if c.match, err = parseTags("If-Match", header["If-Match"]); err != nil {
		return err
	}
	if c.NoneMatch, err = parseTags("If-None-Match", header["If-None-Match"]); err != nil {
		return err
	}
	switch {
	case c.match.given() && !c.Operation.Conditional():
		return BadRequest("The operation does not take the header If-Match: what it answers is no record that has a revision, or is not there before")
	case c.Operation.Upload != nil && header["Idempotency-Key"] != nil:
		return BadRequest("The operation does not take the header Idempotency-Key: what it reads can be sent again as it is")
	case c.NoneMatch.given() && c.Operation.Method != http.MethodGet:
		return BadRequest("The operation does not take the header If-None-Match, which is for reading")
	}
	return nil
}

// Current returns nil where the request may act on a record of that revision: it bears no If-Match,
// or one that names it. Else it is a 412. A handler that changes a record calls it where it decides
// about the change, so that nobody comes between; reading needs no call.
func (c *Call) Current(rev int64) error {
	if !c.match.given() || c.match.any {
		return nil
	}
	for _, tag := range c.match.list {
		named, _, _ := strings.Cut(tag.opaque, "-")
		if !tag.weak && named == strconv.FormatInt(rev, 10) {
			return nil
		}
	}
	return Stale()
}

// Stale is the 412 of a request that was made for another revision of the record.
func Stale() *Problem {
	return Refusal(http.StatusPreconditionFailed, "If-Match", fault.Stale, "The record was changed meanwhile; read it again and decide anew")
}
