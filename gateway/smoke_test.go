package gateway

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"testing"
	"time"

	"tenantry/config"
	"tenantry/reports"
	"tenantry/tenants"
)

func TestSmoke(t *testing.T) {
	cfg := config.Default()
	cfg.Data, cfg.Listen, cfg.AdminListen = t.TempDir(), "127.0.0.1:0", "127.0.0.1:0"
	began := time.Now()
	app, err := New(t.Context(), cfg, Options{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("new", time.Since(began))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- app.Run(ctx) }()
	ten, err := app.directory.Create(ctx, tenants.NewOrganization{Slug: "acme", Name: "Acme", Features: map[string]bool{"teams": true}})
	if err != nil {
		t.Fatal(err)
	}
	rep := &reports.Report{PID: reports.NewPID(), Title: "T", Class: "Contacts"}
	if err := app.kinds.reports.Reports.In(ten.Workspace()).Insert(ctx, rep); err != nil {
		t.Fatal(err)
	}
	get := func(path string) {
		req, _ := http.NewRequestWithContext(ctx, "GET", "http://"+app.Addr().String()+path, nil)
		req.Host = "acme.localhost"
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Println(path, resp.StatusCode, resp.Header, string(b[:min(len(b), 400)]))
	}
	get("/api/custom-reports/" + rep.ID)
	get("/api/reports/shared/" + rep.PID + "?data=1")
	get("/api/nothing")
	get("/shared/reports/" + rep.PID)
	get("/api/openapi.json")
	cancel()
	fmt.Println(<-done, app.Close())
}
