package contract

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
)

func envelopeFailed(message string) string {
	return `{"status":"failed","message":"` + message + `","data":[]}`
}

func strict() gatewaytest.Request { return gatewaytest.Header("Prefer", "handling=strict") }

// exactRow is a request with the whole body of its answer.
type exactRow struct {
	name   string
	method string // GET where empty
	path   string
	with   []gatewaytest.Request
	code   int // 200 where 0
	body   string
}

func checkRows(t *testing.T, o *gatewaytest.Org, rows []exactRow) {
	t.Helper()
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			method, code := row.method, row.code
			if method == "" {
				method = http.MethodGet
			}
			if code == 0 {
				code = http.StatusOK
			}
			fixture.WantBody(t, o.Do(t, method, row.path, row.with...), code, row.body)
		})
	}
}

// column returns one string member of every object in a list.
func column(t *testing.T, list, name string) []string {
	t.Helper()
	var objects []map[string]any
	if err := json.Unmarshal([]byte(list), &objects); err != nil {
		t.Errorf("no list of objects: got %s, want no error", list)
		return nil
	}
	values := []string{}
	for _, o := range objects {
		text, _ := o[name].(string)
		values = append(values, text)
	}
	return values
}

// element returns an element of a JSON list as it is written, or "".
func element(t *testing.T, list string, i int) string {
	t.Helper()
	var elements []json.RawMessage
	if err := json.Unmarshal([]byte(list), &elements); err != nil || i >= len(elements) {
		t.Errorf("got %[2]s, want a list with an element %[1]d", i, list)
		return ""
	}
	return string(elements[i])
}

// ignored returns the names in the header X-Ignored, sorted.
func ignored(a *gatewaytest.Answer) []string {
	names := strings.FieldsFunc(strings.Join(a.Header.Values("X-Ignored"), ","), func(r rune) bool { return r == ',' || r == ' ' })
	slices.Sort(names)
	return names
}

func wantIgnored(t *testing.T, a *gatewaytest.Answer, names ...string) {
	t.Helper()
	slices.Sort(names)
	if got := ignored(a); !slices.Equal(got, names) {
		t.Errorf("X-Ignored names %q, want %q; the answer was %d %s", got, names, a.Code, a.Text())
	}
}
