package cli_test

import (
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// tour is the output of tenantry demo.
type tour struct {
	values map[string]string // by the label in front
	curls  []string
}

func readTour(t *testing.T, p *process) tour {
	t.Helper()
	d := tour{values: map[string]string{}}
	for len(d.curls) < 5 {
		text := p.line(t)
		if strings.HasPrefix(text, "  curl ") {
			d.curls = append(d.curls, strings.TrimSpace(text))
			continue
		}
		if name, value, ok := strings.Cut(strings.TrimSpace(text), "  "); ok {
			d.values[name] = strings.TrimSpace(value)
		}
		if later, ok := strings.CutPrefix(strings.TrimSpace(text), "signs in once; later "); ok {
			d.values["signs in once; later"] = later
		}
		if login, ok := strings.CutPrefix(strings.TrimSpace(text), "as "); ok {
			email, password, _ := strings.Cut(login, " with the password ")
			d.values["email"], d.values["password"] = email, password
		}
	}
	return d
}

func TestDemo(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	p := launch(t, "demo", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	d := readTour(t, p)
	base, err := url.Parse(d.values["Address"])
	if err != nil || base.Hostname() != "acme.localhost" {
		t.Fatalf("the address is %q (%v)", d.values["Address"], err)
	}
	addr := net.JoinHostPort("127.0.0.1", base.Port())
	t.Run("curl", func(t *testing.T) { tryCurls(t, d) })
	t.Run("sign-in", func(t *testing.T) { trySignIn(t, addr, d) })
	t.Run("usage", func(t *testing.T) { tryUsage(t, addr, d) })
	t.Run("link", func(t *testing.T) { tryLink(t, addr, d) })
	pages := map[string]string{
		"Open": "<form", "signs in once; later": "<form", "Shared report": "Hamburg", "Open report": "country",
	}
	for name, want := range pages {
		page, err := url.Parse(d.values[name])
		if err != nil || page.Host != base.Host {
			t.Errorf("%s: %q is not an address on %s (%v)", name, d.values[name], base.Host, err)
			continue
		}
		code, body := ask(t, addr, "acme", page.RequestURI(), "")
		if code != 200 || !strings.Contains(strings.ToLower(body), strings.ToLower(want)) {
			t.Errorf("%s: got %d, want 200 and %q in:\n%s", name, code, want, body)
		}
	}
	if code := p.end(t); code != 0 {
		t.Errorf("demo: exit %d, want 0: %s", code, p.stderr)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("the demo left %v in the temporary folder (%v), want nothing", left, err)
	}
}

// tryUsage checks that a person who signs in sees the usage of the days before.
func tryUsage(t *testing.T, addr string, d tour) {
	do := func(method, path, body string, cookies []*http.Cookie) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "acme.localhost"
		req.Header.Set("Content-Type", "application/json")
		for _, c := range cookies {
			req.AddCookie(c)
		}
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = answer.Body.Close() })
		return answer
	}
	signedIn := do(http.MethodPost, "/auth/sign-in", `{"email":"`+d.values["email"]+`","password":"`+d.values["password"]+`"}`, nil)
	var answer struct{ Data struct{ Count int } }
	if err := json.NewDecoder(do(http.MethodGet, "/api/usage", "", signedIn.Cookies()).Body).Decode(&answer); err != nil || answer.Data.Count < 14 {
		t.Errorf("got %d days of usage (%v), want at least 14", answer.Data.Count, err)
	}
}

// tryLink signs in by the link twice. The second attempt is refused.
func tryLink(t *testing.T, addr string, d tour) {
	_, token, _ := strings.Cut(d.values["Open"], "#")
	for _, want := range []int{200, 403} {
		if code, body := send(t, http.MethodPost, addr, "acme", "/auth/link", "", `{"token":"`+token+`"}`); code != want {
			t.Errorf("POST /auth/link = %d, want %d: %s", code, want, body)
		}
	}
}

// tryCurls runs the printed curl commands in a shell.
func tryCurls(t *testing.T, d tour) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl")
	}
	want := []string{`"name":"Catalogue"`, `"title":"Contacts by country"`, `"count":`, `"field_value":"X`, `"name":"wheel"`}
	for i, line := range d.curls {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", line).Output()
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		var answer struct {
			Status string          `json:"status"`
			Data   json.RawMessage `json:"data"`
		}
		if err := json.Unmarshal(out, &answer); err != nil || answer.Status != "ok" || !strings.Contains(string(answer.Data), want[i]) {
			t.Errorf("%s\nanswers %s, want %s", line, out, want[i])
		}
	}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", d.curls[2]).Output()
	if err != nil || strings.Contains(string(out), `"count":0`) || strings.Contains(string(out), `"count":36`) {
		t.Errorf("count = %s (%v), want some of the contacts, neither none nor all", out, err)
	}
}

func trySignIn(t *testing.T, addr string, d tour) {
	for password, want := range map[string]int{d.values["password"]: http.StatusOK, "wrong-wrong-wrong": http.StatusForbidden} {
		body, err := json.Marshal(map[string]string{"email": d.values["email"], "password": password})
		if err != nil {
			t.Fatal(err)
		}
		if code, answer := send(t, http.MethodPost, addr, "acme", "/auth/sign-in", "", string(body)); code != want {
			t.Errorf("signing in: %d, want %d: %s", code, want, answer)
		}
	}
}

func TestDemo_TakenAddresses(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	a := run(t, "", "demo", "--listen", taken.Addr().String(), "--admin-listen", "127.0.0.1:0")
	if err := contains(a.stderr, "in use", "--listen"); err != nil || a.code != 1 {
		t.Errorf("a given address that is taken: exit %d, want 1: %v", a.code, err)
	}
	// The default address is taken by this listener, unless another process has it already.
	if usual, err := net.Listen("tcp", "127.0.0.1:8080"); err == nil {
		defer usual.Close()
	}
	p := launch(t, "demo", "--admin-listen", "127.0.0.1:0")
	d := readTour(t, p)
	if strings.HasSuffix(d.values["Address"], ":8080") || !strings.Contains(p.stderr.String(), "127.0.0.1:8080 is taken") {
		t.Errorf("the address is %q; standard error: %s", d.values["Address"], p.stderr)
	}
}
