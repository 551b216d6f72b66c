package operations

import (
	"encoding/json"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/modules/imports/bundle"
)

// dial returns a client of the control socket of the gateway.
func dial(t *testing.T, g *gatewaytest.Gateway) *control.Client {
	t.Helper()
	holder, err := gateway.ReadHolder(g.Config.Data)
	if err != nil {
		t.Fatal(err)
	}
	client, err := control.Dial(t.Context(), holder.Control)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// TestRunningCommandsFinishBeforeTheStoreCloses: an import over the socket is read, stored and answered while the
// gateway stops.
func TestRunningCommandsFinishBeforeTheStoreCloses(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	g.Org(t, "acme")
	client := dial(t, g)
	in, out := io.Pipe()
	type answer struct {
		report *bundle.Report
		err    error
	}
	done := make(chan answer, 1)
	go func() {
		a, err := client.Do(t.Context(), "import", control.ImportRequest{Org: "acme"}, control.Streams{Input: in})
		var r *bundle.Report
		if err == nil {
			err = json.Unmarshal(a.Data, &r)
		}
		done <- answer{r, err}
	}()
	// This write returns when the server has begun to read.
	const lines = 500
	if _, err := fmt.Fprintf(out, `{"kind":"contact","external_id":"c-0","city":"Bonn"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		g.Stop(t)
	}()
	for i := 1; i < lines; i++ {
		if _, err := fmt.Fprintf(out, `{"kind":"contact","external_id":"c-%d","city":"Bonn"}`+"\n", i); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if a := <-done; a.err != nil || a.report.Created != lines {
		t.Errorf("import = %+v, %v, want %d created", a.report, a.err, lines)
	}
	<-closed
}

// TestCloseIsBounded: a store that hangs delays the shutdown for at most timeouts.shutdown.
func TestCloseIsBounded(t *testing.T) {
	t.Parallel()
	var hang atomic.Bool
	hanging, release := make(chan struct{}, 1), make(chan struct{})
	g := gatewaytest.Start(t, func(c *config.Config, o *gateway.Options) {
		c.Timeouts.Shutdown = time.Second
		c.Memory.Organizations = 1 // counts of a second one are stored at once, in the background
		o.Observe = func(c store.Call) {
			if hang.Load() && c.Collection == "usage" {
				select {
				case hanging <- struct{}{}:
				default:
				}
				<-release
			}
		}
	})
	for _, slug := range []string{"acme", "globex"} {
		o := g.Org(t, slug)
		key := o.Key(t)
		hang.Store(slug == "globex")
		o.Get(t, key, "/api/campaigns")
	}
	<-hanging
	stopped := make(chan struct{})
	go func() { g.Stop(t); close(stopped) }()
	select {
	case <-stopped:
	case <-time.After(30 * time.Second):
		t.Error("the gateway waits for the store that hangs")
	}
	close(release)
	<-stopped
}

// TestUsageIsStoredThoughACommandHangs: usage is stored even if a command runs until the end of the shutdown.
func TestUsageIsStoredThoughACommandHangs(t *testing.T) {
	t.Parallel()
	var stored atomic.Int32
	g := gatewaytest.Start(t, func(c *config.Config, o *gateway.Options) {
		c.Timeouts.Shutdown = 5 * time.Second
		o.Observe = func(c store.Call) {
			if c.Collection == "usage" && c.Err == nil {
				stored.Add(1)
			}
		}
	})
	acme := g.Org(t, "acme")
	acme.Get(t, acme.Key(t), "/api/campaigns")
	client := dial(t, g)
	in, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := client.Do(t.Context(), "import", control.ImportRequest{Org: "acme"}, control.Streams{Input: in})
		done <- err
	}()
	if _, err := fmt.Fprintln(out, `{"kind":"contact","external_id":"c-0"}`); err != nil { // the server is reading it
		t.Fatal(err)
	}
	before := stored.Load()
	g.Stop(t)
	if stored.Load() == before {
		t.Error("usage was not stored")
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if <-done == nil {
		t.Error("the interrupted import returned no error")
	}
}
