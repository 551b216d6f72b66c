package input

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// wallClock is how browsers write a moment, and add seconds where there are any.
const wallClock = "2006-01-02T15:04"

// OnClock returns a moment as such a control takes it, in UTC; another text as it is.
func OnClock(text string) string {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return strings.TrimSuffix(t.UTC().Format(wallClock+":05.999"), ":00")
	}
	return text
}

// Clocked reports whether such a control shows the text: a moment on the clock, or none.
func Clocked(text string) bool { return text == "" || InUTC(text) != text }

// InUTC returns what such a control says, whose time is in UTC, as calls take it; another text as it is.
func InUTC(text string) string {
	for _, layout := range []string{wallClock, wallClock + ":05"} { // which takes parts of seconds, too
		if t, err := time.Parse(layout, text); err == nil {
			return t.Format(time.RFC3339Nano)
		}
	}
	return text
}

// WithMoments leads what a form says of moments on to the address of the page, whose inputs have them as calls do:
// utc[day]=2024-05-17T10:00, as browsers write it, is params[day]=2024-05-17T10:00:00Z.
func WithMoments(page http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		query, err := url.ParseQuery(r.URL.RawQuery)
		said := url.Values{}
		for name, values := range query {
			if rest, is := strings.CutPrefix(name, "utc["); is && len(values) == 1 {
				said.Set("params["+rest, InUTC(values[0]))
				query.Del(name)
			}
		}
		if err != nil || len(said) == 0 {
			page(w, r)
			return
		}
		maps.Copy(query, said)
		http.Redirect(w, r, r.URL.EscapedPath()+"?"+query.Encode(), http.StatusSeeOther) //nolint:gosec // the same page: ServeHTTP takes no path that begins with two slashes
	}
}
