package config_test

import (
	"strings"
	"testing"

	"tenantry/config"
)

// TestTelemetryTokenStaysSecret checks that the collector's token is sent to other machines only over TLS.
func TestTelemetryTokenStaysSecret(t *testing.T) {
	t.Parallel()
	for endpoint, refused := range map[string]bool{
		"http://127.0.0.1:4318": false, "http://localhost:4318/": false, "http://[::1]:4318": false, "https://collector.example.com": false, "": false,
		"http://collector.example.com:4318": true, "http://10.0.0.7:4318": true, "http://127.0.0.1.example.com": true, "HTTP://collector.example.com": true,
	} {
		for _, token := range []string{"", "s3cr3t-token"} {
			_, err := config.Load(config.Source{Flags: map[string]string{"telemetry.endpoint": endpoint, "telemetry.token": token}})
			says := err != nil && strings.Contains(err.Error(), "telemetry.token: would go to ")
			if says != (refused && token != "") || err != nil && !says || err != nil && strings.Contains(err.Error(), "s3cr3t") {
				t.Errorf("%s with token %q: got %v, want refused = %v, without the token in the error", endpoint, token, err, refused && token != "")
			}
		}
	}
}
