package config

const maxRedisPool = 10_000

// check reports settings that contradict each other, because the client would ignore them silently.
func (r *Redis) check(fault func(name, format string, args ...any)) {
	if r.DB < 0 {
		fault("redis.db", "must not be negative")
	}
	if r.DB > 0 && len(r.Addrs) > 1 && r.MasterName == "" {
		fault("redis.db", "several addresses without redis.master_name are a cluster, which has database 0 only")
	}
	if r.PoolSize < 0 || r.PoolSize > maxRedisPool {
		fault("redis.pool_size", "must be from 0 (ten for each processor) to %d", maxRedisPool)
	}
	if r.Username != "" && r.Password.Len() == 0 {
		fault("redis.username", "needs redis.password")
	}
	if r.SentinelUsername != "" && r.SentinelPassword.Len() == 0 {
		fault("redis.sentinel_username", "needs redis.sentinel_password")
	}
	if r.MasterName == "" && (r.SentinelUsername != "" || r.SentinelPassword.Len() > 0) {
		fault("redis.sentinel_password", "is for sentinels, which need redis.master_name")
	}
	for _, s := range []struct{ name, value string }{
		{"redis.tls_ca_file", r.TLSCAFile}, {"redis.tls_cert_file", r.TLSCertFile},
		{"redis.tls_key_file", r.TLSKeyFile}, {"redis.tls_server_name", r.TLSServerName},
	} {
		if s.value != "" && !r.TLS {
			fault(s.name, "needs redis.tls: true")
		}
	}
	if (r.TLSCertFile == "") != (r.TLSKeyFile == "") {
		fault("redis.tls_cert_file", "and redis.tls_key_file must be set together")
	}
	if len(r.Addrs) == 0 && (r.MasterName != "" || r.TLS || r.Username != "" || r.Password.Len() > 0) {
		fault("redis.addrs",
			"name the servers; without them a Redis inside the process is used, to which the other settings do not apply")
	}
}
