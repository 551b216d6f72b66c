package ask

import (
	"net/http"
	"net/url"
	"strings"

	"tenantry/operation"
)

// mostCopied is how long a command may be that is shown, in bytes: nobody copies a longer one, and each of its
// quotation marks takes sixteen on a page.
const mostCopied = 16 << 10

// Curl returns the command that makes the same call with the credential that it takes: a key rather than a session.
// Empty: it would be too long.
func (c *Client) Curl(slug string, q Call) string {
	quote := func(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
	parts := []string{"curl", "-g"}
	switch {
	case q.Row.Credentials&operation.Key != 0:
		parts = append(parts, "-H", `"x-service-token: $KEY"`)
	case q.Row.Credentials&operation.Session != 0:
		parts = append(parts, "-b", `"`+c.Cookie+`=$SESSION"`)
	}
	if q.Row.Method != http.MethodGet {
		parts = append(parts, "-X", q.Row.Method)
	}
	if q.IfMatch != "" && q.Row.Conditional() {
		parts = append(parts, "-H", quote("If-Match: "+q.IfMatch))
	}
	if q.Body != nil || q.Raw != nil {
		shown, _ := q.body() // texts, numbers, lists and objects of them: cannot fail
		if len(shown) > mostCopied {
			return ""
		}
		parts = append(parts, "-H", quote("Content-Type: application/json"), "-d", quote(string(shown)))
	}
	target := q.Target()
	if len(target) > mostCopied {
		return ""
	}
	if path, query, found := strings.Cut(target, "?"); found {
		if readable, err := url.QueryUnescape(query); err == nil && !strings.ContainsAny(readable, " %+#'\"\\") && strings.Count(readable, "&") == strings.Count(query, "&") {
			target = path + "?" + readable
		}
	}
	return strings.Join(append(parts, quote(c.BaseURL(slug)+target)), " ")
}

// SampleBody returns a body with what the operation requires, as the rows give examples of it; nil where it takes none.
func SampleBody(row *operation.Row) map[string]any {
	if row.Body == nil {
		return nil
	}
	body := map[string]any{}
	for _, f := range row.Body {
		if f.Required && f.Example != nil {
			body[f.Name] = f.Example
		}
	}
	return body
}
