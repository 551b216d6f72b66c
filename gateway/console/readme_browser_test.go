package console_test

import (
	"net"
	"testing"
	"time"

	"tenantry/gateway/demo"
	"tenantry/gateway/gatewaytest"
)

// TestBrowserReadmePictures takes the pictures of the README, of the organization that `go run . demo` makes. To renew
// them, run it with -run BrowserReadmePictures and TENANTRY_TEST_SCREENSHOTS set to the folder docs/pictures.
func TestBrowserReadmePictures(t *testing.T) {
	t.Parallel()
	b := launch(t)
	g := gatewaytest.Start(t)
	tour, err := demo.Begin(t.Context(), g.Commands)
	if err != nil {
		t.Fatalf("demo.Begin: %v", err)
	}
	_, port, err := net.SplitHostPort(g.App.Addr().String())
	if err != nil {
		t.Fatalf("the address of the gateway: %v", err)
	}
	tour.BaseURL = "http://" + demo.Slug + ".localhost:" + port
	if err := g.App.PutUsage(t.Context(), demo.Slug, demo.Usage(time.Now())); err != nil {
		t.Fatalf("PutUsage: %v", err)
	}
	if err := tour.FindReports(t.Context(), g.App.Addr().String()); err != nil {
		t.Fatalf("FindReports: %v", err)
	}
	link, err := g.App.SignInLink(t.Context(), demo.Slug, tour.SignIn.Email, tour.BaseURL, time.Hour)
	if err != nil {
		t.Fatalf("SignInLink: %v", err)
	}

	p := b.tab(size{"readme", 1100, 780, false})
	p.do("Emulation.setScrollbarsHidden", map[string]any{"hidden": true}, nil)
	p.visit(tour.OpenReport)
	p.wait("document.querySelector('svg[role=img]')")
	fits(p)
	p.picture("readme-report")
	p.visit(link)
	p.click("form[action='/enter'] button")
	p.arrives("/", "Overview")
	fits(p)
	p.picture("readme-console")
	b.quiet()
}
