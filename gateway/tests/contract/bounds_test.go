package contract

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/modules/imports/bundle"
)

// silentListener returns the address of a listener that must not be called.
func silentListener(t testing.TB) (addr string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			calls.Add(1)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
		if n := calls.Load(); n > 0 {
			t.Errorf("%d calls went out, want 0", n)
		}
	})
	return l.Addr().String()
}

func TestFileAddressesStayOnTheFileHost(t *testing.T) {
	t.Parallel()
	w := fixture.NewQuietWorld(t)
	p := w.A
	outside := silentListener(t)
	take := func(line string) error {
		_, err := w.App.Transfer().Import(t.Context(), p.Tenant(t), gatewaytest.Source([]byte(line+"\n")), bundle.ImportOptions{})
		return err
	}
	for n, hash := range []string{
		"http://" + outside + "/x", "//" + outside + "/x", "../../../etc/passwd", "..", ".", "javascript:alert(1)", "x?y=z#w", "a b", "%2e%2e/x", "\\\\" + outside + "\\x", "x@" + outside,
	} {
		raw, _ := json.Marshal(map[string]any{
			"kind": "file", "id": p.ID(400 + n), "pid": fmt.Sprintf("file%d", n), "filename": "f", "mimetype": "text/plain", "hash": hash, "folder_id": p.IDs[fixture.RefParent],
		})
		if take(string(raw)) == nil {
			t.Errorf("the hash %q: got no error, want one", hash)
		}
	}
	const hash = "d41d8cd98f00b204e9800998ecf8427e"
	if take(`{"kind":"file","id":"`+p.ID(499)+`","pid":"withurl","filename":"f","mimetype":"text/plain","folder_id":"`+p.IDs[fixture.RefParent]+`","url":"http://`+outside+`/url"}`) == nil {
		t.Error("a URL as the hash: got no error, want one")
	}
	if err := take(`{"kind":"file","id":"` + p.ID(498) + `","pid":"withhash","filename":"f","mimetype":"text/plain","folder_id":"` + p.IDs[fixture.RefParent] + `","hash":"` + hash + `"}`); err != nil {
		t.Fatal(err)
	}
	a := p.Get(t, p.FullKey, "/api/files/folders/"+p.IDs[fixture.RefParent])
	files, _ := a.Field("files").([]any)
	if len(files) != 1 {
		t.Fatalf("files: got %v, want 1", files)
	}
	m, _ := files[0].(map[string]any)
	text, _ := m["url"].(string)
	u, err := url.Parse(text)
	if err != nil || u.Hostname() != p.Host || u.Path != "/files/content/"+hash {
		t.Errorf("url = %q, %v, want the file host of the organization", text, err)
	}
}

func TestPageExtremes(t *testing.T) {
	t.Parallel()
	w := fixture.NewQuietWorld(t)
	p := w.A
	get := func(query string) *gatewaytest.Answer {
		return p.Get(t, p.FullKey, "/api/files/folders/"+p.IDs[fixture.RefFolder]+"?"+query)
	}
	for _, bad := range []string{"0", "-1", "-0.5", "1.5", "", "%201", "1%20", "0x1", "1e3", "1_000", "%EF%BC%91", "NaN", "Infinity", "null", "true", "1000000001", "9223372036854775807", "9223372036854775808", "-9223372036854775808", strings.Repeat("9", 1000)} {
		a := get("page=" + bad)
		if a.Code != http.StatusUnprocessableEntity {
			t.Errorf("page=%.30s: got %d %.200s, want 422", bad, a.Code, a.Body)
		}
		if strings.HasPrefix(bad, "1000000001") || bad == "9223372036854775807" {
			continue
		}
		if a := get("page=1&per_page=" + bad); a.Code != http.StatusUnprocessableEntity {
			t.Errorf("per_page=%.30s: got %d %.200s, want 422", bad, a.Code, a.Body)
		}
	}
	for _, query := range []string{"page=1000000000", "page=1000000000&per_page=4611686018427387904", "page=2&per_page=1000000"} {
		a := get(query)
		files, _ := a.Field("files").(map[string]any)
		if results, _ := files["results"].([]any); a.Code != http.StatusOK || files == nil || len(results) != 0 || fmt.Sprint(files["count"]) != "4" {
			t.Errorf(`%s: got %d %.300s, want %v and files other than nil and len(results) = 0 and fmt.Sprint(files["count"]) = "4"`,
				query, a.Code, a.Body, http.StatusOK)
		}
	}
}

func TestProviderIsANameNotAnAddress(t *testing.T) {
	t.Parallel()
	w := fixture.NewQuietWorld(t)
	p := w.A
	outside := silentListener(t)
	providers := []string{"other"}
	if _, err := control.Call[control.Organization](t.Context(), w.Commands, "org.update", control.OrganizationChange{Slug: p.Slug, OrganizationFields: control.OrganizationFields{Providers: providers}}); err != nil {
		t.Fatal(err)
	}
	for _, provider := range []string{
		"http://" + outside + "/", "https://" + outside + "/", "//" + outside, outside, "file:///etc/passwd", "/etc/passwd", "../store", "store/../x", "STORE", "store ", " store", "store\n", "other", "nobody", strings.Repeat("s", 10_000), "gopher://" + outside, "http://" + outside + "@store", "[::1]:80", "${store}", "redis://" + outside,
	} {
		fixture.WantRefused(t, "provider "+provider[:min(40, len(provider))], p.Get(t, "", "/api/reports/shared/"+p.IDs[fixture.RefPID]+"?data=1&provider="+url.QueryEscape(provider)))
	}
	if a := p.Get(t, "", "/api/reports/shared/"+p.IDs[fixture.RefPID]+"?data=1&provider=store"); a.Status != "ok" {
		t.Errorf("the built-in provider: got %d %.200s, want the status ok", a.Code, a.Body)
	}
}

func TestParallelCreatesOfOneNameMakeOne(t *testing.T) {
	t.Parallel()
	w := fixture.NewQuietWorld(t)
	p := w.A
	const callers = 32
	for round, body := range []func(int) map[string]any{
		func(int) map[string]any {
			return map[string]any{"name": "race", "label": "Race", "label_plural": "Races"}
		},
		func(i int) map[string]any {
			return map[string]any{"name": "same", "label": fmt.Sprintf("L%d", i), "label_plural": fmt.Sprintf("P%d", i)}
		},
		func(i int) map[string]any {
			return map[string]any{"name": fmt.Sprintf("n%d", i), "label": "Same label", "label_plural": fmt.Sprintf("Q%d", i)}
		},
	} {
		codes := make([]*gatewaytest.Answer, callers)
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for i := range callers {
			wg.Go(func() {
				<-begin
				codes[i] = p.Do(t, http.MethodPost, "/api/custom/objects", gatewaytest.WithKey(p.FullKey), gatewaytest.JSON(body(i)))
			})
		}
		close(begin)
		wg.Wait()
		made := 0
		for _, a := range codes {
			switch {
			case a.Code == http.StatusOK && a.Status == "ok":
				made++
			case a.Code != http.StatusConflict || !strings.Contains(a.Text(), `"code":"duplicate"`):
				t.Errorf("round %d: got %d %.200s, want 409 with %q", round, a.Code, a.Body, `"code":"duplicate"`)
			}
		}
		if made != 1 {
			t.Errorf("round %d: %d were created, want 1", round, made)
		}
	}
	exported := p.Export(t)
	if n := strings.Count(exported, `"kind":"custom_object"`); n != 4 {
		t.Errorf("got %d custom objects, want one and three", n)
	}
}
