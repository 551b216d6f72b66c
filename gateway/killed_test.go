package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/gatewaytest"
	"tenantry/tenants"
)

const folderVariable = "TENANTRY_TEST_FOLDER"

// TestD5_KilledAndSentAgain: a process that is killed at any moment has carried a request out together with its
// answer and its audit record, or not at all. Who sends it again is answered the same, and it is there once.
func TestD5_KilledAndSentAgain(t *testing.T) {
	t.Parallel()
	addressFile := func(folder string) string { return filepath.Join(folder, "address") }
	if folder := os.Getenv(folderVariable); folder != "" {
		g := gatewaytest.Start(t, inFolder(folder))
		written := addressFile(folder) + ".new"
		if err := os.WriteFile(written, []byte(g.App.Addr().String()), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(written, addressFile(folder)); err != nil {
			t.Fatal(err)
		}

		time.Sleep(time.Minute) // it is killed long before
		return
	}
	folder := t.TempDir()
	var ahead clock
	start := func() *gatewaytest.Org {
		return &gatewaytest.Org{Gateway: gatewaytest.Start(t, inFolder(folder), ahead.option()), Slug: "acme", Host: "acme.localhost"}
	}
	acme := start()
	acme.Gateway.Org(t, "acme")
	key := acme.Key(t, tenants.ManageCustomObjects, tenants.ViewAudit)
	acme.Stop(t)

	answered := map[string]string{} // by name; "" where nobody heard the answer
	names := []string{}
	for round := range 3 {
		if err := os.RemoveAll(addressFile(folder)); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=2m")
		cmd.Env = append(os.Environ(), folderVariable+"="+folder)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var address string
		inTime(t, "the address of the process to be killed", time.Minute, func() bool {
			text, err := os.ReadFile(addressFile(folder))
			address = string(text)
			return err == nil
		})
		var mu sync.Mutex
		var senders sync.WaitGroup
		heard := 0
		enough := make(chan struct{})
		for sender := range 4 {
			senders.Go(func() {
				for n := 0; ; n++ {
					name := fmt.Sprintf("o%d_%d_%d", round, sender, n)
					mu.Lock()
					names = append(names, name)
					mu.Unlock()
					code, body, err := sendObject(t, address, key, name)
					for code == http.StatusServiceUnavailable { // it has just begun
						time.Sleep(20 * time.Millisecond)
						code, body, err = sendObject(t, address, key, name)
					}
					if err != nil {
						return // it was killed
					}
					mu.Lock()
					answered[name] = body
					if heard++; heard == 20+7*round {
						close(enough)
					}
					mu.Unlock()
				}
			})
		}
		<-enough
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		senders.Wait()
		_ = cmd.Wait() // it says that it was killed
	}

	ahead.advance(time.Minute) // nobody is carrying anything out any more
	acme = start()
	export, carried := exportOf(t, acme), 0
	audited := acme.Get(t, key, "/api/audit?filters[operation]=objects.create&per_page=1000").Text()
	for _, name := range names {
		stored := strings.Count(export, fmt.Sprintf(`"name":%q`, name))
		a := acme.Do(t, http.MethodPost, objectsPath, gatewaytest.WithKey(key), object(name), again(name))
		if a.Status != "ok" || replayed(a) != (stored == 1) || answered[name] != "" && answered[name] != a.Text() {
			t.Errorf("%s, stored %d times and answered %q, is answered %d %s again", name, stored, answered[name], a.Code, a.Body)
		}
		carried += stored
	}
	if n := strings.Count(audited, `"outcome":"ok"`); n != carried {
		t.Errorf("%d objects were stored, and %d records tell of that", carried, n)
	}
	after := exportOf(t, acme)
	for _, name := range names {
		if n := strings.Count(after, fmt.Sprintf(`"name":%q`, name)); n != 1 {
			t.Errorf("%s is there %d times", name, n)
		}
	}
	if carried < len(answered) || len(names) == len(answered) {
		t.Errorf("%d sent, %d answered, %d carried out", len(names), len(answered), carried)
	}
}

// sendObject makes an object at a process that may be gone.
func sendObject(t *testing.T, address, key, name string) (code int, answer string, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+objectsPath, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	r.Host = "acme.localhost"
	for _, change := range []gatewaytest.Request{gatewaytest.WithKey(key), object(name), again(name)} {
		change(r)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // it was read, or the process is gone
	if err == nil && resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%s: %d %s", name, resp.StatusCode, body)
	}
	return resp.StatusCode, string(body), err
}

// TestAChangeIsOneWrite: on an engine with transactions a change, its audit record and its kept answer reach the
// disk together, which is waited for once; besides, the key is claimed before.
func TestAChangeIsOneWrite(t *testing.T) {
	t.Parallel()
	var writes atomic.Int64
	acme := gatewaytest.Start(t, gatewaytest.Embedded, func(_ *config.Config, o *gateway.Options) {
		o.Observe = func(c store.Call) {
			if c.Operation == "write" && c.Collection != "organizations" { // the first calls make it a data key
				writes.Add(1)
			}
		}
	}).Org(t, "acme")
	acme.Import(t, `{"kind":"folder","id":"`+docID(1)+`","name":"Plans"}`, `{"kind":"file","id":"`+docID(2)+`","filename":"a.txt","mimetype":"text/plain","folder_id":"`+docID(1)+`"}`)
	key := acme.Key(t, tenants.ManageCustomObjects, tenants.ManageFiles)
	for i, row := range []struct{ method, path, body, again string }{
		{http.MethodPost, objectsPath, `{"name":"tree","label":"Tree","label_plural":"Trees","schema":{}}`, ""},
		{http.MethodPost, objectsPath, `{"name":"bush","label":"Bush","label_plural":"Bushes","schema":{}}`, "k1"},
		{http.MethodPost, "/api/custom/objects/tree/records", `{"values":{}}`, ""},
		{http.MethodPost, "/api/files/folders", `{"name":"Notes"}`, "k2"},
		{http.MethodPut, "/api/files/folders/" + docID(1), `{"name":"Drawings"}`, ""},
		{http.MethodPut, "/api/files/folders/" + docID(1), `{"name":"Sketches"}`, "k3"},
		{http.MethodDelete, "/api/files/" + docID(2), "", ""},
		{http.MethodPost, "/api/files/" + docID(2) + "/restore", "", "k4"},
		{http.MethodDelete, "/api/files/" + docID(2) + "/purge", "", "k5"},
	} {
		changes, want := []gatewaytest.Request{gatewaytest.WithKey(key)}, int64(1)
		if row.body != "" {
			changes = append(changes, jsonText(row.body))
		}
		if row.again != "" {
			changes, want = append(changes, again(row.again)), 2
		}
		before := writes.Load()
		a := acme.Do(t, row.method, row.path, changes...)
		if got := writes.Load() - before; a.Status != "ok" || got != want {
			t.Errorf("%d: %s %s: %d %s, with %d writes and not %d", i, row.method, row.path, a.Code, a.Body, got, want)
		}
	}
}
