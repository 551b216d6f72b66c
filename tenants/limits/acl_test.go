package limits

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"tenantry/crypto/secret"
	"tenantry/tenants/redisconn"
	"tenantry/tenants/redistest"
)

// TestDocumentedUserMayCount holds the ACL user that operators are told to make.
func TestDocumentedUserMayCount(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^ +user tenantry on ><password> (.+)$`).FindSubmatch(page)
	if found == nil {
		t.Fatal("docs/operating.md names no ACL user")
	}
	rules := append([]string{"--user", "tenantry", "on", ">hunter2"}, strings.Fields(string(found[1]))...)
	who := redisconn.Options{Username: "tenantry", Password: secret.New("hunter2")}
	server := redistest.Start(t, redistest.Args(append(rules, "--user", "default", "off")...), redistest.Credentials(who))
	who.Addrs = []string{server.Addr}
	client := redistest.Open(t, who)
	l := patient(Options{Redis: redisconn.Of(client)})
	r := request(t, 1, Key("a"), "5/h", "off", "4/h")
	for left := int64(3); left >= 0; left-- {
		if d := l.Take(t.Context(), r); d.Refused || d.Remaining != left {
			t.Errorf("%+v, want %d left", d, left)
		}
	}
	l.Return(t.Context(), r)
	if d := l.Take(t.Context(), request(t, 1, Key("b"), "5/h", "off", "4/h")); d.Remaining != 1 {
		t.Errorf("%+v, want 1 left", d)
	}
	if l.Local() != 0 {
		t.Errorf("%d requests were not counted in Redis", l.Local())
	}
}
