package contract

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenantry/crypto/sealing"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/tenants"
)

// TestWalkthrough runs an organization through the API as the document says, and imports it into another one, which is
// then the same.
func TestWalkthrough(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/walkthrough.md")
	if err != nil {
		t.Fatal(err)
	}
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme", tenants.FeatureTeams)
	acme.Person(t, "ada@example.com", func(u *control.NewUser) { u.Name, u.Roles = "Ada", []string{"admin"} })
	w := &walk{org: acme, jars: map[string]*http.Cookie{}, known: map[string]string{"{password}": gatewaytest.Password}}
	blocks := httpCalls.FindAllStringSubmatch(string(text), -1)
	for _, block := range blocks {
		x := w.plain(t, block[1])
		for _, wrong := range w.differs(x, w.ask(t, x)) {
			t.Errorf("%s: %s, want the answer in the document", x.call, wrong)
		}
	}
	if len(blocks) < 40 {
		t.Errorf("got %d calls, want at least 40", len(blocks))
	}
	w.importElsewhere(t, g.Org(t, "birch", tenants.FeatureTeams))
}

// importElsewhere imports the bundle into another organization and compares both, except for their own people and keys
// and the encryption of secrets.
func (w *walk) importElsewhere(t *testing.T, birch *gatewaytest.Org) {
	t.Helper()
	_, cookie := birch.Person(t, "bob@example.com", func(u *control.NewUser) { u.Name, u.Roles = "Bob", []string{"admin"} })
	private, err := sealing.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	sealed := w.org.Do(t, http.MethodGet, "/api/export?public_key="+url.QueryEscape(private.Public().TransferText()), gatewaytest.Cookie(w.jars["session"])).Text()
	admin := gatewaytest.Cookie(cookie)
	a := birch.Do(t, http.MethodPost, "/api/import", admin, gatewaytest.Body("application/x-ndjson", sealed), gatewaytest.Header("x-transfer-key", private.Text().Reveal()))
	for deadline := time.Now().Add(time.Minute); a.Field("state") == "running" && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		a = birch.Do(t, http.MethodGet, fmt.Sprint("/api/import/", a.Field("id")), admin)
	}
	if a.Field("state") != "done" {
		t.Fatalf(`got %d %s, want a.Field("state") = "done"`, a.Code, a.Body)
	}
	key := gatewaytest.WithKey(birch.Key(t, tenants.Contacts))
	if a := birch.Do(t, http.MethodGet, "/api/contacts/"+w.known["{lin}"]+"/reveal-secret?field=passport", key); a.Field("field_value") != "C01X00T47" {
		t.Errorf("the secret in the other organization: got %s, want field_value C01X00T47", a.Body)
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
	if diff := cmp.Diff(lines(w.org, w.jars["session"]), lines(birch, cookie)); diff != "" {
		t.Errorf("difference (-want +got):\n%s", diff)
	}
}

// changing matches what differs in another organization: numbers of people, and encrypted values.
var changing = regexp.MustCompile(`"id":[0-9]+,|"enc":"[^"]*"|,"updated_at":"[^"]*"`)
