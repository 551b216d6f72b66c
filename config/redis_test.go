package config_test

import (
	"slices"
	"strings"
	"testing"

	"tenantry/config"
)

func TestRedisSettingsThatContradictEachOther(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		redis string
		want  []string // how the lines begin
	}{
		"one server":     {"{addrs: [a:1], username: u, password: p, db: 3, pool_size: 20}", nil},
		"cluster":        {"{addrs: [a:1, b:2], password: p}", nil},
		"sentinels":      {"{addrs: [a:1, b:2], master_name: m, db: 2, sentinel_username: s, sentinel_password: q, username: u, password: p}", nil},
		"TLS":            {"{addrs: [a:1], tls: true, tls_ca_file: ca.pem, tls_cert_file: c.pem, tls_key_file: k.pem, tls_server_name: redis}", nil},
		"database":       {"{addrs: [a:1], db: -1}", []string{"redis.db: must not be negative"}},
		"cluster and db": {"{addrs: [a:1, b:2], db: 2}", []string{"redis.db: several addresses without redis.master_name are a cluster"}},
		"pool":           {"{addrs: [a:1], pool_size: -1}", []string{"redis.pool_size: must be from 0 (ten for each processor) to 10000"}},
		"large pool":     {"{addrs: [a:1], pool_size: 10001}", []string{"redis.pool_size: must be from 0"}},
		"user alone":     {"{addrs: [a:1], username: u}", []string{"redis.username: needs redis.password"}},
		"sentinel user":  {"{addrs: [a:1], master_name: m, sentinel_username: u}", []string{"redis.sentinel_username: needs redis.sentinel_password"}},
		"no sentinels":   {"{addrs: [a:1], sentinel_password: q}", []string{"redis.sentinel_password: is for sentinels"}},
		"user of no sentinels": {"{addrs: [a:1], sentinel_username: u}", []string{
			"redis.sentinel_username: needs redis.sentinel_password", "redis.sentinel_password: is for sentinels",
		}},
		"no TLS": {"{addrs: [a:1], tls_ca_file: ca.pem, tls_cert_file: c.pem, tls_key_file: k.pem, tls_server_name: redis}", []string{
			"redis.tls_ca_file: needs redis.tls: true", "redis.tls_cert_file: needs", "redis.tls_key_file: needs", "redis.tls_server_name: needs",
		}},
		"certificate alone": {"{addrs: [a:1], tls: true, tls_cert_file: c.pem}", []string{"redis.tls_cert_file: and redis.tls_key_file must be set together"}},
		"key alone":         {"{addrs: [a:1], tls: true, tls_key_file: c.pem}", []string{"redis.tls_cert_file: and redis.tls_key_file must be set together"}},
		"no server":         {"{tls: true, password: hunter2}", []string{"redis.addrs: name the servers"}},
		"sentinels nowhere": {"{master_name: m}", []string{"redis.addrs: name the servers"}},
		"TLS nowhere":       {"{tls: true}", []string{"redis.addrs: name the servers"}},
		"password nowhere":  {"{password: hunter2}", []string{"redis.addrs: name the servers"}},
		"user nowhere":      {"{username: u}", []string{"redis.username: needs redis.password", "redis.addrs: name the servers"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := config.Load(config.Source{File: write(t, "redis: "+tt.redis+"\n")})
			var lines []string
			if err != nil {
				lines = strings.Split(err.Error(), "\n")
			}
			if len(lines) != len(tt.want) {
				t.Errorf("got %d faults, want %d: %v", len(lines), len(tt.want), err)
			}
			for _, want := range tt.want {
				if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, want) }) {
					t.Errorf("got no line that begins with %q: %v", want, err)
				}
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("got %v, want an error without the password", err)
			}
		})
	}
}
