package config_test

import (
	"path/filepath"
	"strings"
	"testing"

	"tenantry/config"
)

// The settings of the example deployment are ones that there are, and hold no secrets.
func TestSettingsOfTheExampleDeployment(t *testing.T) {
	t.Parallel()
	src := config.Source{File: filepath.Join("..", "deploy", "tenantry.yaml")}
	if _, err := config.Load(src); err == nil || !strings.Contains(err.Error(), "backends.mongo.uri") {
		t.Errorf("without an address: %v", err)
	}
	src.Environ = []string{
		"TENANTRY_BACKENDS__MONGO__URI=mongodb://tenantry:secret@mongo:27017/?replicaSet=rs0&authSource=admin",
		"TENANTRY_REDIS__PASSWORD=secret", "TENANTRY_PUBLIC_URL=http://{slug}.localhost:8080", "TENANTRY_TRUSTED_PROXIES=172.30.90.0/24",
	}
	c, err := config.Load(src)
	if err != nil {
		t.Fatal(err)
	}
	mongo := c.Backends["mongo"]
	if c.Store != "mongo" || c.Control != "mongo" || mongo.Engine != config.EngineMongo || !strings.HasPrefix(mongo.URI.Reveal(), "mongodb://") ||
		mongo.Isolation != config.IsolationShared || len(c.Redis.Addrs) != 1 || c.Redis.Password.Reveal() != "secret" || c.KeyringPath() != "/keyring/keyring.json" {
		t.Errorf("%+v", c)
	}
}
