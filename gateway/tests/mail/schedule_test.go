package mail

import (
	"bytes"
	"fmt"
	"image/png"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/modules/mail"
	"tenantry/tenants"
)

// weekly makes a report about contacts and a schedule of it, and returns the identifiers of both.
func (b *mailbox) weekly(t *testing.T, report, schedule string) (reportID, scheduleID, account string) {
	t.Helper()
	as := fixture.As(b.Org, gatewaytest.WithKey(b.key))
	for i := range 7 {
		as.Create(t, "/api/contacts", fmt.Sprintf(`{"first_name":"P%d","country":%q,"status":"=1+1"}`, i, []string{"DE", "FR", "DE"}[i%3]))
	}
	reportID = as.Create(t, "/api/custom-reports", `{"title":"Contacts by country","class":"Contacts","visual":"bar","exportable":true,`+
		`"query":{"group_by":[{"field":"country"}],"measures":[{"op":"count"}]}`+report+`}`)
	account = as.Create(t, "/api/service-accounts", `{"name":"reporter","permissions":["manage_reports"]}`)
	scheduleID = as.Create(t, "/api/report-schedules", `{"name":"Weekly","report":"`+reportID+`","account":"`+account+`",`+
		`"recipients":["ada@example.com","Bob@example.com","ADA@example.com"],"csv":true`+schedule+`}`)
	return reportID, scheduleID, account
}

// atNoon returns a clock that shows noon of tomorrow: schedules of these tests are due in the morning.
func atNoon() *fixture.Clock {
	clock := new(fixture.Clock)
	clock.Advance(time.Until(time.Now().UTC().Truncate(24 * time.Hour).Add(36 * time.Hour)))
	return clock
}

// TestReportsComeOnTime: a report is mailed to each address when its schedule is due, once, with its picture, its rows, a
// file and a link, on behalf of an account; whoever opens the link sees the same.
func TestReportsComeOnTime(t *testing.T) {
	t.Parallel()
	clock := atNoon()
	server := newServer(t).start()
	g := gatewaytest.Start(t, fixture.ShortLeases, server.withMail(), clock.Option)
	acme := open(t, g, "acme")
	as := fixture.As(acme.Org, gatewaytest.WithKey(acme.key))
	report, schedule, account := acme.weekly(t, "", "")
	run := func() {
		t.Helper()
		if err := acme.App.MailReports(t.Context()); err != nil {
			t.Fatal(err)
		}
		acme.send(t)
	}
	run()
	server.none()
	clock.Advance(24 * time.Hour)
	run()
	to := map[string]received{}
	for range 2 {
		m := server.next()
		to[m.To] = m
	}
	run()
	server.none()
	m, is := to["ada@example.com"]
	if _, both := to["Bob@example.com"]; !is || !both {
		t.Fatalf("mailed to %v, want both", to)
	}
	parts := m.Parts
	if m.Subject != "Weekly: Contacts by country" || !strings.Contains(string(parts["text/csv"]), "DE,5") || !strings.Contains(m.HTML, "DE") {
		t.Errorf("got %q with the file %q and %s", m.Subject, parts["text/csv"], m.HTML)
	}
	if picture, err := png.Decode(bytes.NewReader(parts["image/png"])); err != nil || picture.Bounds().Dx() < 600 {
		t.Errorf("the picture: %v", err)
	}
	link := regexp.MustCompile(`https?://[^\s"]+/shared/reports/[^\s"]+`).FindString(m.Text)
	at, err := url.Parse(link)
	if err != nil || at.Host != acme.Host && !strings.HasPrefix(at.Host, "acme.") {
		t.Fatalf("the link is %q: %v", link, err)
	}
	open := "/api" + strings.Replace(at.Path, "/shared/reports/", "/reports/shared/", 1) + "?data=1&" + at.RawQuery
	anybody := fixture.As(acme.Org, func(*http.Request) {})
	anybody.Want(t, http.MethodGet, open, "", 200, `["DE",5]`)
	list := as.Want(t, http.MethodGet, "/api/report-schedules/"+schedule+"/runs", "", 200, `"state":"mailed"`)
	if n := list.Field("count"); fmt.Sprint(n) != "1" {
		t.Errorf("there are %v runs, want 1", n)
	}
	as.Want(t, http.MethodGet, "/api/custom-reports/"+report+"/shares", "", 200, "schedule:"+schedule)

	as.Want(t, http.MethodPost, "/api/report-schedules/"+schedule+"/pause", "", 200, `"state":"paused"`)
	clock.Advance(48 * time.Hour)
	run()
	server.none()
	as.Want(t, http.MethodPost, "/api/report-schedules/"+schedule+"/run", "", 200, `"state":"mailed"`)
	acme.send(t)
	server.next()
	server.next()
	as.Want(t, http.MethodPost, "/api/report-schedules/"+schedule+"/resume", "", 200, `"state":"active"`)
	run()
	server.none()

	as.Want(t, http.MethodPut, "/api/service-accounts/"+account, `{"permissions":[]}`, 200, "")
	clock.Advance(24 * time.Hour)
	run()
	server.none()
	as.Want(t, http.MethodGet, "/api/report-schedules/"+schedule, "", 200, `"state":"failing"`)
	as.Want(t, http.MethodGet, "/api/report-schedules/"+schedule+"/runs", "", 200, "lacks manage_reports")
}

// TestReportsAreMailedOnce: a server that was stopped for days mails the last report that was due, and processes that take
// turns at once mail it once.
func TestReportsAreMailedOnce(t *testing.T) {
	t.Parallel()
	clock := atNoon()
	server := newServer(t).start()
	g := gatewaytest.Start(t, fixture.ShortLeases, server.withMail(), clock.Option)
	acme := open(t, g, "acme")
	_, schedule, _ := acme.weekly(t, "", `,"on":"working_days","at":"07:30","time_zone":"Europe/Berlin"`)
	clock.Advance(15 * 24 * time.Hour)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := acme.App.MailReports(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	acme.send(t)
	server.next()
	server.next()
	server.none()
	as := fixture.As(acme.Org, gatewaytest.WithKey(acme.key))
	if n := as.Want(t, http.MethodGet, "/api/report-schedules/"+schedule+"/runs", "", 200, "").Field("count"); fmt.Sprint(n) != "1" {
		t.Errorf("there are %v runs, want 1", n)
	}
}

// TestReportsWaitForRoom: a report that is due while no more mails are taken is mailed once when there is room again, with
// one run. If that lasts, its run has failed.
func TestReportsWaitForRoom(t *testing.T) {
	t.Parallel()
	clock := atNoon()
	server := newServer(t).start()
	g := gatewaytest.Start(t, fixture.ShortLeases, server.withMail(), clock.Option)
	acme := open(t, g, "acme")
	_, schedule, _ := acme.weekly(t, "", "")
	as := fixture.As(acme.Org, gatewaytest.WithKey(acme.key))
	run := func(after time.Duration) {
		t.Helper()
		clock.Advance(after)
		if err := acme.App.MailReports(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	shown := "/api/report-schedules/" + schedule
	runs := func(count int, contains string) {
		t.Helper()
		a := as.Want(t, http.MethodGet, shown+"/runs", "", 200, contains)
		if n := a.Field("count"); fmt.Sprint(n) != fmt.Sprint(count) {
			t.Errorf("there are %v runs, want %d: %s", n, count, a.Text())
		}
	}
	empty := acme.fill(t, 10_000, mail.FormAlert)
	run(24 * time.Hour)
	runs(0, "")
	as.Want(t, http.MethodGet, shown, "", 200, `"last_run":null`)
	empty()
	for range 2 { // the second finds nothing due
		run(time.Minute)
		acme.send(t)
	}
	if a, b := server.next(), server.next(); a.To == b.To {
		t.Errorf("mailed to %s twice", a.To)
	}
	server.none()
	runs(1, `"state":"mailed"`)
	as.Want(t, http.MethodGet, shown, "", 200, `"state":"active"`)

	empty = acme.fill(t, 10_000, mail.FormAlert)
	for _, after := range []time.Duration{24 * time.Hour, time.Minute, 2 * time.Minute, 4 * time.Minute} {
		run(after)
		runs(1, "")
	}
	run(8 * time.Minute)
	as.Want(t, http.MethodGet, shown, "", 200, `"state":"failing"`)
	runs(2, `"state":"failed","reason":"It could not be run in time`)
	runs(2, `"rows":0,"recipients":0,"token_id":""`)
	empty()
	run(time.Minute)
	acme.send(t)
	server.none()
}

// TestSchedulesAskForRights: nobody has a report mailed that the account, or the caller, could not share.
func TestSchedulesAskForRights(t *testing.T) {
	t.Parallel()
	server := newServer(t).start()
	g := gatewaytest.Start(t, fixture.ShortLeases, server.withMail())
	acme := open(t, g, "acme")
	acme.Org = g.Org(t, "teams", tenants.FeatureTeams)
	acme.Import(t, fixture.TeamLines()...)
	all := fixture.As(acme.Org, gatewaytest.WithKey(acme.Key(t, tenants.AllPermissions()...)))
	make := func(title, more string) string {
		return all.Create(t, "/api/custom-reports", `{"title":"`+title+`","class":"Contacts","query":{"fields":["first_name"]}`+more+`}`)
	}
	whole, own, hidden := make("All", ""), make("Own", `,"teams":["`+fixture.TeamA+`"]`), make("Hidden", `,"shareable":false`)
	account := func(name, more string) string {
		return all.Create(t, "/api/service-accounts", `{"name":"`+name+`"`+more+`}`)
	}
	limited := account("limited", `,"permissions":["manage_reports"],"teams":["`+fixture.TeamA+`"]`)
	weak, strong := account("weak", ""), account("strong", `,"permissions":["manage_reports","contacts"]`)
	body := func(report, account, more string) string {
		return `{"name":"n","report":"` + report + `","account":"` + account + `","recipients":["a@example.com"]` + more + `}`
	}
	for _, one := range []struct{ body, want string }{
		{body(whole, limited, ""), "shows more than the teams of the service account"},
		{body(whole, weak, ""), "lacks manage_reports"},
		{body(hidden, strong, ""), "not to be shareable"},
		{body(whole, strong, `,"csv":true`), "not to be exportable"},
		{body(whole, strong, `,"at":"25:00"`), "at must be a time of day"},
		{body(whole, strong, `,"time_zone":"Mars/Base"`), "time_zone must be"},
		{body(whole, strong, `,"at":"8","time_zone":"Berlin"`), "such as 08:00; time_zone must be"},
		{strings.Replace(body(whole, strong, ""), "a@example.com", `a@example.com\r\nBcc: b@example.com`, 1), "recipients"},
	} {
		all.Want(t, http.MethodPost, "/api/report-schedules", one.body, 422, one.want)
	}
	reporter := fixture.As(acme.Org, gatewaytest.WithKey(acme.Key(t, tenants.ManageReports)))
	reporter.Want(t, http.MethodPost, "/api/report-schedules", body(whole, strong, ""), 422, "the caller lacks contacts")
	id := all.Create(t, "/api/report-schedules", body(own, limited, ""))
	strongID := all.Create(t, "/api/report-schedules", strings.Replace(body(whole, strong, ""), `"n"`, `"s"`, 1))
	for _, path := range []string{"/run", "/pause", "/resume"} {
		reporter.Want(t, http.MethodPost, "/api/report-schedules/"+strongID+path, "", 403, "The caller lacks contacts")
	}
	reporter.Want(t, http.MethodGet, "/api/report-schedules/"+strongID+"/runs", "", 403, "The caller lacks contacts")
	all.Want(t, http.MethodPost, "/api/report-schedules/"+id+"/run", "", 200, `"state":"mailed"`)
	acme.send(t)
	if m := server.next(); !strings.Contains(m.Text, "Own") {
		t.Errorf("got %+v", m)
	}
}

// TestLeavingAReport: a recipient ends the mails of a schedule with the link in them.
func TestLeavingAReport(t *testing.T) {
	t.Parallel()
	server := newServer(t).start()
	g := gatewaytest.Start(t, fixture.ShortLeases, server.withMail())
	acme := open(t, g, "acme")
	_, schedule, _ := acme.weekly(t, "", "")
	as := fixture.As(acme.Org, gatewaytest.WithKey(acme.key))
	run := func() {
		t.Helper()
		as.Want(t, http.MethodPost, "/api/report-schedules/"+schedule+"/run", "", 200, `"state":"mailed"`)
		acme.send(t)
	}
	run()
	first, second := server.next(), server.next()
	token, err := url.QueryUnescape(regexp.MustCompile(`unsubscribe\?token=([^\s"]+)`).FindStringSubmatch(first.Text)[1])
	if err != nil {
		t.Fatal(err)
	}
	fixture.As(acme.Org, func(*http.Request) {}).Want(t, http.MethodPost, "/auth/unsubscribe", fmt.Sprintf(`{"token":%q}`, token), 200, `"report":"Weekly"`)
	run()
	if m := server.next(); m.To != second.To {
		t.Errorf("mailed to %s, who has left, want %s alone", m.To, second.To)
	}
	server.none()
}

// TestWaitingReportsEndWithTheirRight: a mail that waits for the mail server is not sent once its recipient has left, or
// the account may not share the report any more, or the link was revoked.
func TestWaitingReportsEndWithTheirRight(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, as fixture.Client, report, schedule, account string){
		"recipient": func(t *testing.T, as fixture.Client, _, schedule, _ string) {
			as.Want(t, http.MethodPut, "/api/report-schedules/"+schedule, `{"recipients":["other@example.com"]}`, 200, "")
		},
		"schedule": func(t *testing.T, as fixture.Client, _, schedule, _ string) {
			as.Want(t, http.MethodDelete, "/api/report-schedules/"+schedule, "", 200, "")
		},
		"account": func(t *testing.T, as fixture.Client, _, _, account string) {
			as.Want(t, http.MethodPut, "/api/service-accounts/"+account, `{"active":false}`, 200, "")
		},
		"right": func(t *testing.T, as fixture.Client, _, _, account string) {
			as.Want(t, http.MethodPut, "/api/service-accounts/"+account, `{"permissions":[]}`, 200, "")
		},
		"report": func(t *testing.T, as fixture.Client, report, _, _ string) {
			as.Want(t, http.MethodPut, "/api/custom-reports/"+report, `{"shareable":false}`, 200, "")
		},
		"link": func(t *testing.T, as fixture.Client, report, _, _ string) {
			as.Want(t, http.MethodDelete, "/api/custom-reports/"+report+"/shares", "", 200, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var clock fixture.Clock
			server := newServer(t).start()
			server.refusing(func(step, _ string) error {
				if step == "RCPT" {
					return &smtp.SMTPError{Code: 451, Message: "later"}
				}
				return nil
			})
			acme := open(t, gatewaytest.Start(t, fixture.ShortLeases, server.withMail(), clock.Option), "acme")
			report, schedule, account := acme.weekly(t, "", "")
			as := fixture.As(acme.Org, gatewaytest.WithKey(acme.key))
			as.Want(t, http.MethodPost, "/api/report-schedules/"+schedule+"/run", "", 200, `"state":"mailed"`)
			fixture.Await(t, "both mails refused for now", func() bool {
				acme.send(t)
				all := acme.list(t)
				return len(all) == 2 && all[0].Code == 451 && all[1].Code == 451
			})
			end(t, as, report, schedule, account)
			server.refusing(nil)
			fixture.Await(t, "no mail that waits", func() bool {
				clock.Advance(3 * time.Minute) // the sender may have tried a mail meanwhile
				acme.send(t)
				return !slices.ContainsFunc(acme.list(t), func(m told) bool { return m.Topic == mail.ReportTopic })
			})
			server.none()
		})
	}
}

// TestSchedulesAreMasked: callers who lack rights of the account see neither the addresses of a schedule nor the path of a
// webhook.
func TestSchedulesAreMasked(t *testing.T) {
	t.Parallel()
	server := newServer(t).start()
	acme := open(t, gatewaytest.Start(t, fixture.ShortLeases, server.withMail()), "acme")
	all := fixture.As(acme.Org, gatewaytest.WithKey(acme.key))
	report := all.Create(t, "/api/custom-reports", `{"title":"All","class":"Contacts","query":{"fields":["first_name"]}}`)
	account := all.Create(t, "/api/service-accounts", `{"name":"strong","permissions":["manage_reports","contacts"]}`)
	all.Create(t, "/api/report-schedules", `{"name":"n","report":"`+report+`","account":"`+account+`","recipients":["hidden@example.com"]}`)
	all.Create(t, "/api/webhooks", `{"name":"n","url":"https://hooks.example.com/hidden","account":"`+account+`"}`)
	weak := fixture.As(acme.Org, gatewaytest.WithKey(acme.Key(t, tenants.ManageReports, tenants.ManageWebhooks)))
	for path, masked := range map[string]string{"/api/report-schedules": "h***@example.com", "/api/webhooks": "https://hooks.example.com/…"} {
		for _, at := range []string{path, path + "/n"} {
			all.Want(t, http.MethodGet, at, "", 200, "hidden")
			if a := weak.Want(t, http.MethodGet, at, "", 200, masked); strings.Contains(a.Text(), "hidden") {
				t.Errorf("%s shows %s", at, a.Text())
			}
		}
	}
}
