package gateway_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tenantry/crypto/sealing"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/tenants"

	"github.com/google/go-cmp/cmp"
)

// A walk sends the calls of a document, in its order, to one organization.
type walk struct {
	org    *gatewaytest.Org
	cookie *http.Cookie
	known  map[string]string // what names in braces stand for
}

var (
	calls = regexp.MustCompile("(?s)\n```http\n(.*?)\n```\n")
	named = regexp.MustCompile(`\{[a-z_]+\}`)
	alone = regexp.MustCompile(`^\{[a-z_]+\}$`)
)

// fill puts in what names stand for.
func (w *walk) fill(text string) string {
	return named.ReplaceAllStringFunc(text, func(name string) string {
		if value, ok := w.known[name]; ok {
			return value
		}
		return name
	})
}

// send makes the call of a block and holds its answer against what the block says.
func (w *walk) send(t *testing.T, block string) {
	t.Helper()
	call, answer, _ := strings.Cut(block, "\n\n")
	lines := strings.Split(call, "\n")
	method, path, _ := strings.Cut(lines[0], " ")
	var with []gatewaytest.Request
	if w.cookie != nil && !strings.Contains(call, "\nx-service-token: ") {
		with = append(with, gatewaytest.Cookie(w.cookie))
	}
	media, body := "application/json", []string(nil)
	for _, line := range lines[1:] {
		name, value, header := strings.Cut(line, ": ")
		switch {
		case !header || strings.HasPrefix(line, "{"):
			body = append(body, w.fill(line))
		case name == "content-type":
			media = value
		default:
			with = append(with, gatewaytest.Header(name, w.fill(value)))
		}
	}
	if body != nil {
		with = append(with, gatewaytest.Body(media, strings.Join(body, "\n")))
	}
	a := w.org.Do(t, method, w.fill(path), with...)
	for deadline := time.Now().Add(time.Minute); method == http.MethodGet && a.Field("state") == "running" && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		a = w.org.Do(t, method, w.fill(path), with...)
	}
	for _, c := range (&http.Response{Header: a.Header}).Cookies() {
		w.cookie = c
	}
	status, want, _ := strings.Cut(answer, "\n")
	code, message, _ := strings.Cut(status, " ")
	if strconv.Itoa(a.Code) != code {
		t.Errorf("%s: %d %s, want %s", lines[0], a.Code, a.Body, status)
		return
	}
	if message == "" {
		w.compare(t, lines[0], want, a.Text())
		return
	}
	var envelope struct {
		Message string
		Data    any
	}
	var wanted any
	if err := json.Unmarshal(a.Body, &envelope); err != nil {
		t.Fatal(err)
	}
	if alone.MatchString(want) {
		wanted = want
	} else if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatalf("%s: %v in %s", lines[0], err, want)
	}
	w.compare(t, lines[0], message, envelope.Message)
	w.compare(t, lines[0], wanted, envelope.Data)
}

// compare notes where what was answered is not what was to be. What the latter does not name may be there too.
func (w *walk) compare(t *testing.T, at string, want, got any) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		is, ok := got.(map[string]any)
		if !ok {
			t.Errorf("%s: %v, want %v", at, got, want)
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if _, there := is[name]; ok && !there {
				t.Errorf("%s: no %s in %v", at, name, is)
				continue
			}
			w.compare(t, at+" "+name, want[name], is[name])
		}
	case []any:
		is, _ := got.([]any)
		if len(is) != len(want) {
			t.Errorf("%s: %v, want %v", at, got, want)
			return
		}
		for i := range want {
			w.compare(t, fmt.Sprintf("%s[%d]", at, i), want[i], is[i])
		}
	case string:
		if _, ok := w.known[want]; !ok && alone.MatchString(want) {
			w.known[want] = fmt.Sprint(got)
		}
		if w.fill(want) != fmt.Sprint(got) {
			t.Errorf("%s: %v, want %s", at, got, w.fill(want))
		}
	default:
		if fmt.Sprint(want) != fmt.Sprint(got) {
			t.Errorf("%s: %v, want %v", at, got, want)
		}
	}
}

// TestWalkthrough: an organization is run by calls alone, as the document says, and another one that imports
// it has the same.
func TestWalkthrough(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/walkthrough.md")
	if err != nil {
		t.Fatal(err)
	}
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme", tenants.FeatureTeams)
	acme.Person(t, "ada@example.com", func(u *control.NewUser) { u.Name, u.Roles = "Ada", []string{"admin"} })
	w := &walk{org: acme, known: map[string]string{"{password}": gatewaytest.Password}}
	blocks := calls.FindAllStringSubmatch(string(text), -1)
	for _, block := range blocks {
		w.send(t, block[1])
	}
	if len(blocks) < 40 {
		t.Errorf("%d calls only", len(blocks))
	}
	w.takeAlong(t, g.Org(t, "birch", tenants.FeatureTeams))
}

// takeAlong imports the bundle into another organization, whose own is then the same: but for the people and
// keys that each has already, and for what is told of a secret.
func (w *walk) takeAlong(t *testing.T, birch *gatewaytest.Org) {
	t.Helper()
	_, cookie := birch.Person(t, "bob@example.com", func(u *control.NewUser) { u.Name, u.Roles = "Bob", []string{"admin"} })
	private, err := sealing.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	sealed := w.org.Do(t, http.MethodGet, "/api/export?public_key="+url.QueryEscape(private.Public().TransferText()), gatewaytest.Cookie(w.cookie)).Text()
	admin := gatewaytest.Cookie(cookie)
	a := birch.Do(t, http.MethodPost, "/api/import", admin, gatewaytest.Body("application/x-ndjson", sealed), gatewaytest.Header("x-transfer-key", private.Text().Reveal()))
	for deadline := time.Now().Add(time.Minute); a.Field("state") == "running" && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		a = birch.Do(t, http.MethodGet, fmt.Sprint("/api/import/", a.Field("id")), admin)
	}
	if a.Field("state") != "done" {
		t.Fatalf("%d %s", a.Code, a.Body)
	}
	key := gatewaytest.WithKey(birch.Key(t, tenants.Contacts))
	if a := birch.Do(t, http.MethodGet, "/api/contacts/"+w.known["{lin}"]+"/reveal-secret?field=passport", key); a.Field("field_value") != "C01X00T47" {
		t.Errorf("the secret in the other organization: %s", a.Body)
	}
	lines := func(of *gatewaytest.Org, as *http.Cookie) []string {
		var kept []string
		for line := range strings.Lines(of.Do(t, http.MethodGet, "/api/export", gatewaytest.Cookie(as)).Text()) {
			var is struct{ Kind, Email, Name string }
			if err := json.Unmarshal([]byte(line), &is); err != nil {
				t.Error(err)
			}
			if own := is.Kind == "service_account" && is.Name != "Integration" || is.Email == "bob@example.com"; !own {
				kept = append(kept, changing.ReplaceAllString(line, ""))
			}
		}
		return kept
	}
	if diff := cmp.Diff(lines(w.org, w.cookie), lines(birch, cookie)); diff != "" {
		t.Error(diff)
	}
}

// changing is what another organization has otherwise: numbers of people, and how a secret is encrypted.
var changing = regexp.MustCompile(`"id":[0-9]+,|"enc":"[^"]*"|,"updated_at":"[^"]*"`)
