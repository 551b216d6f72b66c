package redisconn_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tenantry/crypto/secret"
	"tenantry/tenants/redisconn"
	"tenantry/tenants/redistest"
	"tenantry/tenants/sessions"
	"tenantry/tenants/tenantstest"
)

// The documented user may run every command that the program uses, and may not access other keys.
func TestDocumentedUserSuffices(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile(filepath.Join("..", "..", "docs", "operating.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(manual), "    user tenantry on ><password> ")
	if !found {
		t.Fatal("docs/operating.md describes no user")
	}
	rules, _, _ := strings.Cut(rest, "\n")
	if script, err := os.ReadFile(filepath.Join("..", "..", "deploy", "redis", "start.sh")); err != nil || !strings.Contains(string(script), rules+"\n") {
		t.Errorf("the example deployment gives its user other rights: %v", err)
	}
	user := append([]string{"--user", "tenantry", "on", ">hunter2"}, strings.Fields(rules)...)
	o := redisconn.Options{Username: "tenantry", Password: secret.New("hunter2")}
	server := redistest.Start(t, redistest.Args(append(user, "--user", "default", "on", "nopass", "+@all", "~*", "&*")...), redistest.Credentials(o))
	admin := redistest.Open(t, redisconn.Options{Addrs: []string{server.Addr}})

	w := tenantstest.New(t, tenantstest.Options{Local: true})
	w.Redis, w.RedisHook = server.Open(t), &tenantstest.RedisHook{}
	w.Redis.AddHook(w.RedisHook)
	options := tenantstest.Options{Sessions: sessions.Options{Throttle: sessions.Throttle{Free: 2}}}
	w.Second(t, options)
	tenant := w.Tenant(t, "acme")
	useKeys(t, w, options, "acme", tenant)
	useSessions(t, w, "acme", tenant)

	for command, allowed := range map[string]bool{
		"ping": true, "cluster slots": true, "cluster shards": true, "script load return(1)": true, "hello 3": true, "readonly": true,
		"subscribe tnt:{i}:changed": true, "publish tnt:{i}:changed x": true, "evalsha 0123456789012345678901234567890123456789 1 tnt:{1}:x": true,
		"subscribe other": false, "publish other x": false, "get other": false, "set other x": false, "flushall": false, "keys *": false,
		"config get *": false, "acl list": false, "shutdown": false, "debug sleep 1": false, "client kill 1.2.3.4:5": false,
		"evalsha 0123456789012345678901234567890123456789 1 other": false,
	} {
		args := []any{"acl", "dryrun", "tenantry"}
		for _, word := range strings.Fields(command) {
			args = append(args, word)
		}
		answer, err := admin.Do(t.Context(), args...).Text()
		if err != nil && strings.Contains(err.Error(), "unknown subcommand") {
			t.Skip("the installed redis-server cannot try commands of a user")
		}
		if (err == nil && answer == "OK") != allowed {
			t.Errorf("%s: %s, %v; want it allowed: %v", command, answer, err, allowed)
		}
	}
}
