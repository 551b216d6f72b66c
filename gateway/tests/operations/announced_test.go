package operations

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
)

// TestChangesAreAnnouncedOverRedis checks that a gateway with a Redis server announces its changes and shows
// in its metrics that it receives announcements.
func TestChangesAreAnnouncedOverRedis(t *testing.T) {
	t.Parallel()
	mini, option := fixture.OwnRedis(t)
	client := redis.NewClient(&redis.Options{Addr: mini.Addr()})
	defer client.Close()
	heard := client.PSubscribe(t.Context(), "tnt:{*}:changed")
	defer heard.Close()
	if _, err := heard.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := gatewaytest.Start(t, option)
	g.Org(t, "acme")
	if _, err := heard.ReceiveTimeout(t.Context(), 30*time.Second); err != nil {
		t.Fatalf("nothing was announced: got %v, want no error", err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		figures := metricsOf(t, g)
		if strings.Contains(figures, "tenantry_announcements_connected 1") && strings.Contains(figures, `tenantry_announcements_total{event="published"} `) && !strings.Contains(figures, `{event="published"} 0`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("got no announcement in the metrics, want one:\n%s", figures)
		}
	}
	if figures := metricsOf(t, gatewaytest.Start(t, gatewaytest.Embedded)); strings.Contains(figures, "announcements") {
		t.Error("got metrics of announcements without a Redis server, want none")
	}
}

func metricsOf(t *testing.T, g *gatewaytest.Gateway) string {
	t.Helper()
	_, _, body := fixture.CallAdmin(t, g, http.MethodGet, "/metrics")
	return body
}
