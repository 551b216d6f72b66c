package load

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"tenantry/backends/record"
	"tenantry/gateway/tests/fixture"
)

// bytesOf reads a head, a text that many times, and a tail.
func bytesOf(head, text string, times int, tail string) io.Reader {
	parts := []io.Reader{strings.NewReader(head)}
	for range times {
		parts = append(parts, strings.NewReader(text))
	}
	return io.MultiReader(append(parts, strings.NewReader(tail))...)
}

// inputDemands returns the most expensive accepted bodies and files.
func inputDemands() []demand {
	call := func(name, method, path string, body string) demand {
		return demand{name, storeInputs, func(ctx context.Context, at *bound) error {
			return answeredInput(at.send(ctx, method, path, strings.NewReader(body), "x-service-token", at.key, "content-type", "application/json"))
		}}
	}
	file := func(name, query, kind string, content func() io.Reader) demand {
		return demand{name, storeInputs, func(ctx context.Context, at *bound) error { return imported(ctx, at, query, kind, content()) }}
	}
	list := func(one string, n int) string { return "[" + strings.TrimSuffix(strings.Repeat(one+",", n), ",") + "]" }
	tags := make([]string, 200)
	for i := range tags {
		tags[i] = fmt.Sprintf(`"t%d"`, i)
	}
	tagged := `{"tags":[` + strings.Join(tags, ",") + `]}`
	var fields, cells strings.Builder
	for i := range 500 {
		fmt.Fprintf(&fields, `,"f%d":{"title":"F","type":"Text"}`, i)
	}
	for i := range 1000 {
		fmt.Fprintf(&cells, "c%d,", i)
	}
	header, row := strings.TrimSuffix(cells.String(), ",")+"\n", strings.Repeat(",", 999)+"\n"
	const mib = 1 << 20
	return []demand{
		call("a bulk of empty lists", http.MethodPost, "/api/contacts/bulk", `{"records":`+list("[]", 700_000)+`}`),
		call("a bulk of lists within a record", http.MethodPost, "/api/contacts/bulk", `{"records":[{"fields":{"any":`+list("[]", 65_000)+`}}]}`),
		call("a bulk of tags", http.MethodPost, "/api/contacts/bulk", `{"records":`+list(tagged, 1000)+`}`),
		call("a bulk of the largest records", http.MethodPost, "/api/contacts/bulk", `{"records":`+list(`{"fields":{"long":"`+strings.Repeat("x", record.MaxRecord-1<<10)+`"}}`, 3)+`}`),
		{"a bulk that names large records", storeLargeContacts, func(ctx context.Context, at *bound) error {
			return answeredInput(at.send(ctx, http.MethodPost, "/api/contacts/bulk", strings.NewReader(namingLarge()), "x-service-token", at.key, "content-type", "application/json"))
		}},
		call("a record of objects", http.MethodPost, "/api/custom/objects/large/records", `{"values":{"any":`+list(`{"a":1}`, 32_000)+`}}`),
		call("a custom object", http.MethodPost, "/api/custom/objects", `{"name":"x","label":"X","label_plural":"Xs","schema":`+list("1", 65_000)+`}`),
		call("a preview of a report", http.MethodPost, "/api/custom-reports/preview", `{"title":"T","class":"Contacts","query":{"where":`+list("[]", 16_000)+`}}`),
		{"a form that is shown again", storeInputs, func(ctx context.Context, at *bound) error {
			form := "_more=1&first_name=" + strings.Repeat("'", 1_000_000)
			return answered(at.send(ctx, http.MethodPost, "/do/contacts.create", strings.NewReader(form), "cookie", at.cookie.Name+"="+at.cookie.Value,
				"content-type", "application/x-www-form-urlencoded"))
		}},
		file("definitions of empty lists", "", "application/x-ndjson", func() io.Reader {
			return bytesOf("", `{"kind":"custom_object","name":"x","label":"X","label_plural":"Xs","schema":`+list("[]", 600_000)+"}\n", 16, "")
		}),
		file("definitions of many fields", "", "application/x-ndjson", func() io.Reader {
			var parts []io.Reader
			for i := range 400 {
				parts = append(parts, strings.NewReader(fmt.Sprintf(`{"kind":"custom_object","name":"d%d","label":"D %[1]d","label_plural":"Ds %[1]d","schema":{%s}}`+"\n", i, fields.String()[1:])))
			}
			return io.MultiReader(parts...)
		}),
		file("empty cells", "?as=contacts&dry_run=true", "text/csv", func() io.Reader { return bytesOf(header, row, 15*mib/len(row), "") }),
		file("cells of one letter", "?as=contacts&dry_run=true", "text/csv", func() io.Reader {
			return bytesOf(header, strings.ReplaceAll(row, ",", "a,"), 8*mib/(2*len(row)), "")
		}),
		file("rows of long texts", "?as=contacts&dry_run=true", "application/json", func() io.Reader {
			return bytesOf("[", `{"long":"`+strings.Repeat("x", mib/2)+`","blank":"`+strings.Repeat(" ", mib/3)+`"},`, 64, `{"long":"x"}]`)
		}),
		file("lines of many values", "?partial=true", "application/x-ndjson", func() io.Reader {
			return bytesOf("", `{"kind":"record","object":"large","values":{"any":`+list(`{"a":1}`, 32_000)+"}}\n", 100, "")
		}),
		file("many short lines", "?dry_run=true", "application/x-ndjson", func() io.Reader {
			var parts []io.Reader
			for i := range 600 {
				var lines strings.Builder
				for j := range 1000 {
					fmt.Fprintf(&lines, "{\"kind\":\"contact\",\"external_id\":\"%d\"}\n", i*1000+j)
				}
				parts = append(parts, strings.NewReader(lines.String()))
			}
			return io.MultiReader(parts...)
		}),
		{"changes of large records", storeLargeRecords, func(ctx context.Context, at *bound) error {
			var lines strings.Builder
			for i := range largeStored {
				fmt.Fprintf(&lines, "{\"kind\":\"record\",\"id\":\"%s\",\"object\":\"large\",\"external_id\":\"%d\"}\n",
					fixture.DocID(0xb000+i), time.Now().UnixNano())
			}
			return imported(ctx, at, "?partial=true", "application/x-ndjson", strings.NewReader(lines.String()))
		}},
	}
}

// storeInputs stores the definitions that inputs are about, once in an organization.
func storeInputs(t *testing.T, at *bound) {
	t.Helper()
	if at.left["inputs"] != "" {
		return
	}
	at.left["inputs"] = "stored"
	at.org.Import(t,
		`{"kind":"contact_field","key":"any","title":"Any","type":"Anything"}`,
		`{"kind":"contact_field","key":"long","title":"Long","type":"LongText"}`,
		`{"kind":"custom_object","name":"large","label":"Large","label_plural":"Larges","schema":`+
			`{"any":{"title":"Any","type":"Anything"},"long":{"title":"Long","type":"LongText"}}}`)
}

// largeStored is the number of large records of an organization that inputs change.
const largeStored = 100

// storeLargeRecords stores these records.
func storeLargeRecords(t *testing.T, at *bound) {
	t.Helper()
	storeInputs(t, at)
	var lines []string
	for i := range largeStored {
		lines = append(lines, fmt.Sprintf(`{"kind":"record","id":"%s","object":"large","values":{"long":"%s"}}`,
			fixture.DocID(0xb000+i), strings.Repeat("x", 400<<10)))
	}
	at.org.Import(t, lines...)
}

// largeContacts returns the number of large contacts that a bulk names and an export contains.
func largeContacts() int {
	if os.Getenv("TENANTRY_TEST_LONG") != "" {
		return 499
	}
	return 120
}

// storeLargeContacts stores contacts of nearly the maximum size, once in an organization.
func storeLargeContacts(t *testing.T, at *bound) {
	t.Helper()
	if at.left["large contacts"] != "" {
		return
	}
	at.left["large contacts"] = "stored"
	lines := []string{`{"kind":"contact_field","key":"large","title":"Large","type":"LongText"}`}
	for i := range largeContacts() {
		lines = append(lines, fmt.Sprintf(`{"kind":"contact","external_id":"large-%d","fields":{"large":"%s"}}`, i, strings.Repeat("x", 480<<10)))
	}
	at.org.Import(t, lines...)
}

// namingLarge returns a bulk of a few KB that names all of them.
func namingLarge() string {
	var records []string
	for i := range largeContacts() {
		records = append(records, fmt.Sprintf(`{"external_id":"large-%d","city":"Bonn"}`, i))
	}
	return `{"records":[` + strings.Join(records, ",") + `]}`
}

// answeredInput is answered for inputs, which may also be unreadable or conflict with another one.
func answeredInput(code int, body []byte, err error) error {
	if err == nil && slices.Contains([]int{http.StatusBadRequest, http.StatusConflict}, code) && len(body) > 0 {
		return nil
	}
	return answered(code, body, err)
}

// imported sends a file and waits until its import has ended.
func imported(ctx context.Context, at *bound, query, kind string, content io.Reader) error {
	session := at.cookie.Name + "=" + at.cookie.Value
	code, body, err := at.send(ctx, http.MethodPost, "/api/import"+query, content, "cookie", session, "content-type", kind)
	if err != nil || code != http.StatusOK {
		return answeredInput(code, body, err)
	}
	var began struct{ Data struct{ ID string } }
	if err := json.Unmarshal(body, &began); err != nil {
		return err
	}
	for {
		code, body, err := at.send(ctx, http.MethodGet, "/api/import/"+began.Data.ID, nil, "cookie", session)
		if err != nil || code != http.StatusOK && code != http.StatusTooManyRequests && code != http.StatusServiceUnavailable {
			return fmt.Errorf("asking for the import: %d %.200s: %w", code, body, err)
		}
		if code == http.StatusOK && !strings.Contains(string(body), `"state":"running"`) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}
