package ask

import (
	"net/http"
	"net/url"
	"strings"

	"tenantry/operation"
)

// maxCommand bounds the body and the target of a command that is shown, in bytes, because each quotation mark takes
// sixteen bytes on a page.
const maxCommand = 16 << 10

// Curl returns the curl command that makes the same call, with a key if the operation takes one and with a session
// otherwise. It returns "" if the command would be too long.
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
		body, _ := q.body() // cannot fail: the values are texts, numbers, and lists and objects of them
		if len(body) > maxCommand {
			return ""
		}
		parts = append(parts, "-H", quote("Content-Type: application/json"), "-d", quote(string(body)))
	}
	target := q.Target()
	if len(target) > maxCommand {
		return ""
	}
	if path, query, found := strings.Cut(target, "?"); found {
		readable, err := url.QueryUnescape(query)
		if err == nil && !strings.ContainsAny(readable, " %+#'\"\\") &&
			strings.Count(readable, "&") == strings.Count(query, "&") {
			target = path + "?" + readable
		}
	}
	return strings.Join(append(parts, quote(c.BaseURL(slug)+target)), " ")
}

// SampleBody returns a body of the required fields with the examples of the row; nil if the operation takes no body.
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
