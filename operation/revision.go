package operation

import (
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"tenantry/internal/fault"
)

// Tags are the entity tags of a header that makes a request conditional (RFC 9110, 13.1). The zero value stands for a
// request without the header.
type Tags struct {
	any  bool // "*"
	list []entityTag
}

type entityTag struct {
	opaque string
	weak   bool
}

// given reports whether the request has the header.
func (t Tags) given() bool { return t.any || len(t.list) > 0 }

// parseTags reads the values of a header of that name. A value other than a list of entity tags or * is a 400.
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

// Matching returns the tag of If-None-Match that matches tag; "" if there is none. Weak tags match, and so do those of
// the same answer in another encoding.
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

// PackedTag ends the tag of a compressed answer, before the closing quote, because a strong tag must differ when the
// bytes do.
const PackedTag = "-gzip"

// Conditional reports whether the operation honours If-Match, because it acts on an existing record.
func (o *Row) Conditional() bool {
	return o.Revised && (o.Method != http.MethodPost || o.OnRecord)
}

// conditions reads the headers that make the call conditional. A header that the operation would ignore is refused,
// or else the caller would rely on it to prevent a change. Those of a row with Content are for whoever sends the bytes.
func (c *Call) conditions(header http.Header) (err error) {
	if c.Operation.Content != nil {
		return nil
	}
	if c.match, err = parseTags("If-Match", header["If-Match"]); err != nil {
		return err
	}
	if c.NoneMatch, err = parseTags("If-None-Match", header["If-None-Match"]); err != nil {
		return err
	}
	switch {
	case c.match.given() && !c.Operation.Conditional():
		return BadRequest("The operation does not take the header If-Match: it does not act on an existing record with a revision")
	case c.Operation.Upload != nil && header["Idempotency-Key"] != nil:
		return BadRequest("The operation does not take the header Idempotency-Key: the same file can be sent again instead")
	case c.NoneMatch.given() && c.Operation.Method != http.MethodGet:
		return BadRequest("The operation does not take the header If-None-Match: only a GET does")
	}
	return nil
}

// Current returns nil if the request may act on a record of that revision: it has no If-Match, or one that names the
// revision. Otherwise it returns a 412. A handler that changes a record must call it in the same step that decides
// about the change, so that no other change comes between. Handlers that only read need not call it.
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

// Stale is the 412 of a request made for another revision of the record.
func Stale() *Problem {
	return Refusal(
		http.StatusPreconditionFailed, "If-Match", fault.Stale,
		"The record was changed meanwhile; read it again before you change it",
	)
}
