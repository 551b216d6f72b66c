package contract

import (
	"net/http"
	"strings"
	"testing"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

func TestContract_Teams(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme, plain := g.Org(t, "acme", "teams"), g.Org(t, "plain")
	lines := append(fixture.TeamLines(), fixture.FolderLine(1, "Root", "null", ""), fixture.FolderLine(2, "Of B", "null", `,"teams":["`+fixture.TeamB+`"]`),
		fixture.FileLine(16, "a", fixture.DocID(1), `,"teams":["`+fixture.TeamA+`"]`), fixture.FileLine(17, "ab", fixture.DocID(1), `,"teams":["`+fixture.TeamA+`","`+fixture.TeamB+`"]`),
		fixture.FileLine(18, "b", fixture.DocID(1), `,"teams":["`+fixture.TeamB+`"]`), fixture.FileLine(19, "n", fixture.DocID(1), ""))
	acme.Import(t, lines...)
	plain.Import(t, lines...)
	all := acme.Key(t)
	onlyA := acme.KeyWith(t, func(k *control.NewKey) { k.Teams = []string{fixture.TeamA} }).Token
	off := plain.Key(t)
	const a, b = "A", "B"
	for _, row := range []struct {
		org        *gatewaytest.Org
		key, query string
		want       string
	}{
		{acme, all, "", "a ab b n"},
		{acme, all, "teams[]=A", "a ab n"},
		{acme, all, "teams%5B%5D=A", "a ab n"},
		{acme, all, "teams[]=A&teams[]=B", "a ab b n"},
		{acme, all, "teams=A", "a ab n"},
		{acme, all, "teams=A&teams=B", "ab b n"},
		{acme, all, "teams=B&teams=A", "a ab n"},
		{acme, all, "teams[]=A&teams=B", "a ab n"},
		{acme, all, "teams=B&teams[]=A", "a ab n"},
		{acme, all, "teams[]=nonsense", "a ab b n"},
		{acme, all, "teams=nonsense", "a ab b n"},
		{acme, all, "teams[]=", "a ab b n"},
		{acme, all, "teams[]=nonsense&teams[]=A", "a ab n"},
		{acme, all, "teams=A&teams=nonsense", "a ab b n"},
		{acme, all, "teams[]=nonsense&teams=A", "a ab b n"},
		{acme, all, "teams[]=" + strings.ToUpper(fixture.AbsentID), "a ab b n"},
		{acme, all, "teams[]=" + fixture.AbsentID, "n"},
		{acme, onlyA, "", "a ab n"},
		{acme, onlyA, "teams[]=B", "n"},
		{acme, onlyA, "teams[]=A&teams[]=B", "a ab n"},
		{acme, onlyA, "teams[]=nonsense", "a ab n"},
		{plain, off, "", "a ab b n"},
		{plain, off, "teams[]=A", "a ab b n"},
	} {
		query := strings.NewReplacer("="+a, "="+fixture.TeamA, "="+b, "="+fixture.TeamB).Replace(row.query)
		answer := row.org.Get(t, row.key, "/api/files/folders/"+fixture.DocID(1)+"?"+query)
		names := column(t, fixture.Member(t, answer.DataJSON(), "files"), "filename")
		if got := strings.Join(names, " "); got != row.want || fixture.Member(t, answer.DataJSON(), "files_count") != string('0'+rune(len(names))) {
			t.Errorf("%s %q shows %q (%s), want %q", row.org.Slug, row.query, got, fixture.Member(t, answer.DataJSON(), "files_count"), row.want)
		}
		wantIgnored(t, answer)
	}
	if text := plain.Get(t, off, "/api/files/folders/"+fixture.DocID(2)).Text(); strings.Contains(text, "teams") {
		t.Errorf("without the feature the answer carries teams: got %s, want it without teams", text)
	}
	_, person := acme.Person(t, "person@example.com", func(u *control.NewUser) { u.Teams = []string{fixture.TeamB} })
	for query, want := range map[string]string{"": "ab b n", "?teams[]=" + fixture.TeamA: "n", "?teams[]=nonsense": "ab b n"} {
		answer := acme.Do(t, http.MethodGet, "/api/files/folders/"+fixture.DocID(1)+query, gatewaytest.Cookie(person))
		if got := strings.Join(column(t, fixture.Member(t, answer.DataJSON(), "files"), "filename"), " "); got != want {
			t.Errorf("a person of team B sees %q with %q, want %q", got, query, want)
		}
	}
	withAll := []gatewaytest.Request{gatewaytest.WithKey(all)}
	checkRows(t, acme, []exactRow{
		{name: "a folder of another team", path: "/api/files/folders/" + fixture.DocID(2), with: []gatewaytest.Request{gatewaytest.WithKey(onlyA)}, code: 404, body: missingFolder},
		{name: "narrowed away", path: "/api/files/folders/" + fixture.DocID(2) + "?teams[]=" + fixture.TeamA, with: withAll, code: 404, body: missingFolder},
	})
	for _, query := range []string{"teams[]=nonsense", "teams=nonsense", "teams[]=" + fixture.TeamA + "&teams[]=nonsense"} {
		fixture.WantFailure(t, acme.Get(t, all, "/api/files/folders/"+fixture.DocID(1)+"?"+query, strict()), http.StatusBadRequest)
	}
}

// TestContract_TeamsInTheBody checks that a request with a body can have its team scope in the body.
func TestContract_TeamsInTheBody(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme", "teams")
	acme.Import(t, append(fixture.TeamLines(),
		`{"kind":"custom_report","id":"`+fixture.DocID(1)+`","title":"Of A","class":"Contacts","query":{"measures":[{"op":"count"}]},"visual":"number","teams":["`+fixture.TeamA+`"]}`)...)
	key := acme.Key(t, tenants.ManageReports)
	for _, row := range []struct {
		query, teams string
		code         int
	}{
		{"", `["` + fixture.TeamA + `"]`, 200},
		{"", `["` + fixture.TeamB + `"]`, 404},
		{"", `["` + fixture.TeamB + `","` + fixture.TeamA + `"]`, 200},
		{"", `["nonsense"]`, 400}, // beyond the contract nothing is ignored
		{"", `[]`, 200},
		{"", `null`, 200},
		{"teams[]=" + fixture.TeamA, `["` + fixture.TeamB + `"]`, 200}, // the query wins
		{"teams=" + fixture.TeamA, `["` + fixture.TeamB + `"]`, 200},
		{"teams[]=" + fixture.TeamA, `["nonsense"]`, 400}, // and what is wrong is so also where it would not count
		{"teams=nonsense&teams[]=" + fixture.TeamA, `[]`, 400},
		{"teams[]=" + fixture.TeamB, `["` + fixture.TeamA + `"]`, 404},
	} {
		a := acme.Do(t, http.MethodPost, "/api/custom-reports/"+fixture.DocID(1)+"/share?"+row.query, gatewaytest.WithKey(key), fixture.JSONText(`{"teams":`+row.teams+`}`))
		if a.Code != row.code {
			t.Errorf("query %q, body %s: %d %s, want %d", row.query, row.teams, a.Code, a.Text(), row.code)
		}
	}
	a := acme.Do(t, http.MethodPost, "/api/custom-reports/"+fixture.DocID(1)+"/share", gatewaytest.WithKey(key), strict(), fixture.JSONText(`{"teams":["nonsense"]}`))
	fixture.WantFailure(t, a, http.StatusBadRequest)
}
