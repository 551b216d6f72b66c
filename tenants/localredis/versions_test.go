package localredis

import (
	"fmt"
	"testing"
	"time"

	"tenantry/tenants/redisconn"
)

// TestVersionsOfRemovedNamesAreEvicted evicts as many names as anonymous callers like to make, and none of those
// that exist.
func TestVersionsOfRemovedNamesAreEvicted(t *testing.T) {
	t.Parallel()
	s, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	client, err := Dial(s, redisconn.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Set(t.Context(), "stays", "x", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	kept := func() int {
		s.mini.Lock()
		defer s.mini.Unlock()
		return len(*s.versions)
	}
	const many = maxNames + 1024
	for n := 0; n < many; n += 1024 {
		pipe := client.Pipeline()
		for i := range 1024 {
			pipe.Eval(t.Context(), `return redis.call('SET', KEYS[1], 'x', 'PX', 100)`, []string{fmt.Sprint("e-mail ", n+i)})
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(time.Minute); kept() >= maxNames || client.DBSize(t.Context()).Val() > 1; time.Sleep(tick) {
		if time.Now().After(deadline) {
			t.Fatalf("%d names are kept of %d, %d are there", kept(), many, client.DBSize(t.Context()).Val())
		}
	}
	if err := client.Incr(t.Context(), "counted").Err(); err != nil {
		t.Error(err)
	}
	if got, rest := client.Get(t.Context(), "stays").Val(), client.TTL(t.Context(), "stays").Val(); got != "x" || rest < time.Minute {
		t.Errorf("what stays is %q for %v", got, rest)
	}
	if err := client.Do(t.Context(), "WATCH", "stays").Err(); err == nil {
		t.Error("counts that are dropped can be watched")
	}
}
