package input

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// datetimeLocal is the format of an input of type datetime-local. Browsers add seconds unless they are zero.
const datetimeLocal = "2006-01-02T15:04"

// ToDatetimeLocal converts a time of RFC 3339 into the value of an input of type datetime-local, in UTC. Other texts
// are returned unchanged.
func ToDatetimeLocal(text string) string {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return strings.TrimSuffix(t.UTC().Format(datetimeLocal+":05.999"), ":00")
	}
	return text
}

// IsDatetimeLocal reports whether an input of type datetime-local can show the text. It can be empty.
func IsDatetimeLocal(text string) bool { return text == "" || FromDatetimeLocal(text) != text }

// FromDatetimeLocal converts the value of an input of type datetime-local, in UTC, into a time of RFC 3339. Other texts
// are returned unchanged.
func FromDatetimeLocal(text string) string {
	for _, layout := range []string{datetimeLocal, datetimeLocal + ":05"} { // the second accepts fractions of a second
		if t, err := time.Parse(layout, text); err == nil {
			return t.Format(time.RFC3339Nano)
		}
	}
	return text
}

// WithDatetimes redirects a query with values of datetime-local inputs to the address with times of RFC 3339:
// utc[day]=2024-05-17T10:00 becomes params[day]=2024-05-17T10:00:00Z.
func WithDatetimes(page http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		query, err := url.ParseQuery(r.URL.RawQuery)
		converted := url.Values{}
		for name, values := range query {
			if rest, found := strings.CutPrefix(name, "utc["); found && len(values) == 1 {
				converted.Set("params["+rest, FromDatetimeLocal(values[0]))
				query.Del(name)
			}
		}
		if err != nil || len(converted) == 0 {
			page(w, r)
			return
		}
		maps.Copy(query, converted)
		address := r.URL.EscapedPath() + "?" + query.Encode()
		http.Redirect(w, r, address, http.StatusSeeOther) //nolint:gosec // ServeHTTP refuses paths with two slashes
	}
}
