package load

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// outputDemands returns the most expensive answers: many long texts as pages, reports and exports.
func outputDemands() []demand {
	get := func(name, path string, as ...string) demand {
		return demand{name, storeLongTexts, func(ctx context.Context, at *bound) error {
			var header []string
			for _, who := range as {
				switch who {
				case "key":
					header = append(header, "x-service-token", at.key)
				case "session":
					header = append(header, "Cookie", at.cookie.Name+"="+at.cookie.Value)
				default:
					header = append(header, "Accept-Encoding", who)
				}
			}
			return answered(at.send(ctx, http.MethodGet, path, nil, header...))
		}}
	}
	const records = "/api/custom/objects/long/records"
	return []demand{
		get("a page of long texts", records+"?per_page=1000", "key"),
		get("a sorted page of long texts, compressed", records+"?per_page=1000&sort=-text", "key", "gzip"),
		get("words in long texts", records+"?per_page=1000&q=ab", "key"),
		get("an explained page of long texts", "/api/store/explain?call="+url.QueryEscape(records+"?per_page=1000&sort=-text"), "key"),
		get("a report's rows", "/api/custom-reports/"+fixture.DocID(longList)+"/run?per_page=1000", "key"),
		get("a report's groups", "/api/custom-reports/"+fixture.DocID(longGroups)+"/run?per_page=1000", "key"),
		get("an open report, by nobody", "/api/reports/shared/"+longPID+"?data=1"),
		get("an open report's groups, by nobody", "/api/reports/shared/"+longPID+"/"+fixture.DocID(longGroups)+"?data=1", "gzip"),
		get("an open report's page", "/shared/reports/"+longPID),
		get("an open report's file", "/api/reports/shared/"+longPID+"/export?format=csv"),
		get("a file of records", records+"/export?format=csv", "key"),
		get("a page of the console", "/custom/objects/long/records?per_page=1000", "session"),
		{"a bundle, read slowly", storeLongTexts, readWithPauses("/api/export")},
		{"a bundle of large records", storeLargeContacts, func(ctx context.Context, at *bound) error {
			return answered(at.send(ctx, http.MethodGet, "/api/export", nil, "Cookie", at.cookie.Name+"="+at.cookie.Value))
		}},
	}
}

const (
	longList   = 0xa1
	longGroups = 0xa2
	longPID    = "open-report-of-long-texts"
	longText   = 200_000 // bytes of each
)

// storeLongTexts calls longTexts once in an organization.
func storeLongTexts(t *testing.T, at *bound) {
	t.Helper()
	if at.left["long texts"] != "" {
		return
	}
	at.left["long texts"] = "stored"
	many := 100
	if os.Getenv("TENANTRY_TEST_LONG") != "" {
		many = 400
	}
	longTexts(t, at.org, many)
}

// longTexts stores records with long texts, and reports of them.
func longTexts(t *testing.T, in *gatewaytest.Org, many int) {
	t.Helper()
	report := func(id int, more string) string {
		return `{"kind":"custom_report","id":"` + fixture.DocID(id) + `","title":"Long","class":"Records","source":"long","secure":false,"exportable":true,` + more + `}`
	}
	lines := []string{
		`{"kind":"custom_object","name":"long","label":"Long","label_plural":"Longs","schema":{"text":{"title":"Text","type":"LongText"}}}`,
		report(longGroups, `"query":{"group_by":[{"field":"text"}],"measures":[{"op":"count"},{"op":"max","field":"text"}],"limit":10000}`),
		report(longList, `"pid":"`+longPID+`","query":{"fields":["text"],"limit":10000},"child_reports":["`+fixture.DocID(longGroups)+`"]`),
	}
	random := rand.NewChaCha8([32]byte{1})
	text := make([]byte, longText/2)
	for range many {
		_, _ = random.Read(text)
		lines = append(lines, `{"kind":"record","object":"long","values":{"text":"`+hex.EncodeToString(text)+`"}}`)
	}
	in.Import(t, lines...)
}

// readWithPauses reads an answer with pauses, like a client that keeps a connection open.
func readWithPauses(path string) func(context.Context, *bound) error {
	return func(ctx context.Context, at *bound) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.base+path, http.NoBody)
		if err != nil {
			return err
		}
		r.Host = at.host
		r.AddCookie(at.cookie)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		first, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		for pause := 0; err == nil && pause < 20; pause++ {
			time.Sleep(100 * time.Millisecond)
			_, err = io.CopyN(io.Discard, resp.Body, 1<<20)
		}
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		if err = answered(resp.StatusCode, first, err); err != nil {
			return fmt.Errorf("read slowly: %w", err)
		}
		return nil
	}
}

// TestLargeAnswersEndEarly checks that pages and runs of large records end early and say so, that the next page has the
// rest, and that exports are complete.
func TestLargeAnswersEndEarly(t *testing.T) {
	if gatewaytest.Raced {
		t.Skip("a report runs for 5 seconds, in which the race detector does not get through so much")
	}
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme")
	const many = 45 // of which some 20 fit
	longTexts(t, acme, many)
	key := acme.Key(t, tenants.AllPermissions()...)
	const records = "/api/custom/objects/long/records"
	ids := map[string]bool{}
	collect := func(a *gatewaytest.Answer) (next string, early bool) {
		t.Helper()
		if a.Code != http.StatusOK || a.Field("count") != json.Number(strconv.Itoa(many)) || len(a.Body) > 6<<20 {
			t.Fatalf("got %d, count %v, %d bytes, want 200, all records counted and at most 6 MiB: %.300s",
				a.Code, a.Field("count"), len(a.Body), a.Text())
		}
		next, _ = a.Field("next").(string)
		for _, r := range a.Field("results").([]any) {
			ids[r.(map[string]any)["id"].(string)] = true
		}
		return next, a.Header.Get("X-Warning") != ""
	}
	for _, sort := range []string{"", "&sort=-text", "&sort=created_at", "&q=ab"} {
		clear(ids)
		first := records + "?per_page=1000" + sort
		next, early := collect(acme.Get(t, key, first))
		if next == "" || !early {
			t.Errorf("%s: next = %q, want one and the warning that the page ends early", first, next)
		}
		for parts := 1; next != ""; parts++ {
			if next, _ = collect(acme.Get(t, key, first+"&after="+url.QueryEscape(next))); parts > 100 {
				t.Fatal("got more than 100 parts, want an end")
			}
		}
		if len(ids) != many {
			t.Errorf("%s: %d of %d records are on its parts, want %v", first, len(ids), many, many)
		}
	}
	if next, early := collect(acme.Get(t, key, records+"?per_page=5")); next != "" || early {
		t.Errorf("a page that fits: next = %q, want none and no warning", next)
	}
	for _, path := range []string{
		"/api/custom-reports/" + fixture.DocID(longList) + "/run?per_page=1000", "/api/custom-reports/" + fixture.DocID(longGroups) + "/run?per_page=1000",
		fixture.SharedPath + longPID + "?data=1", fixture.SharedPath + longPID + "/" + fixture.DocID(longGroups) + "?data=1",
	} {
		a := acme.Get(t, map[bool]string{true: key}[strings.Contains(path, "/run")], path)
		if a.Code != http.StatusOK || !strings.Contains(a.Text(), `"truncated":true`) || len(a.Body) > 6<<20 {
			t.Errorf("%s: got %d, %d bytes, want 200, truncated and at most 6 MiB: %.200s",
				path, a.Code, len(a.Body), a.Text())
		}
	}
	for _, path := range []string{records + "/export", "/api/custom-reports/" + fixture.DocID(longList) + "/export", fixture.SharedPath + longPID + "/export"} {
		a := acme.Page(t, path, gatewaytest.WithKey(key))
		if n := strings.Count(a.Text(), "\n"); a.Code != http.StatusOK || n != many {
			t.Errorf("%s: got %d with %d rows, want 200 with %d", path, a.Code, n, many)
		}
	}
	if a := acme.Get(t, "", fixture.SharedPath+longPID+"/"+fixture.DocID(longGroups)+"/export"); a.Code != http.StatusUnprocessableEntity {
		t.Errorf("a file of more groups than are read: got %d, want 422", a.Code)
	}
	_, cookie := acme.Person(t, "root@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
	page := acme.Page(t, "/custom/objects/long/records?per_page=1000", gatewaytest.Cookie(cookie))
	if page.Code != http.StatusOK || !regexp.MustCompile(`href="[^"]*after=`).MatchString(page.Text()) {
		t.Errorf("the console's page: got %d, want 200 and a link to the next part", page.Code)
	}
}
