package localredis_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"tenantry/internal/maintest"
	"tenantry/tenants/localredis"
	"tenantry/tenants/redisconn"
)

func TestMain(m *testing.M) { maintest.Leakless(m) }

func start(t *testing.T) (*localredis.Server, redis.UniversalClient) {
	t.Helper()
	server, err := localredis.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	client, err := localredis.Dial(server, redisconn.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return server, client
}

func TestKeysExpireByThemselves(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	began := time.Now()
	if err := client.Set(t.Context(), "long", "x", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.Set(t.Context(), "short", "x", 500*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.Set(t.Context(), "dated", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.PExpireAt(t.Context(), "dated", time.Now().Add(500*time.Millisecond)).Err(); err != nil {
		t.Fatal(err)
	}
	entries := func() int64 { return client.DBSize(t.Context()).Val() }
	if n := entries(); n != 3 && time.Since(began) < 500*time.Millisecond {
		t.Fatalf("%d entries before their time, want 3", n)
	}
	deadline := began.Add(30 * time.Second)
	for entries() != 1 {
		if time.Now().After(deadline) {
			t.Fatalf("%d entries left after 30 s, want 1", entries())
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := client.Get(t.Context(), "long").Err(); err != nil {
		t.Errorf("an entry with an hour to live: %v", err)
	}
	if rest := client.PTTL(t.Context(), "long").Val(); rest > time.Hour-300*time.Millisecond {
		t.Errorf("the hour did not run down: %v left", rest)
	}
}

func TestPublishedMessagesArrive(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	sub := client.Subscribe(t.Context(), "news")
	defer sub.Close()
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := client.Publish(t.Context(), "news", "hello").Err(); err != nil {
		t.Fatal(err)
	}
	select {
	case m := <-sub.Channel():
		if m.Payload != "hello" {
			t.Errorf("received %q", m.Payload)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("no message after 3 s")
	}
}

func TestLargePipelinesAndScripts(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	big := strings.Repeat("x", 10_000)
	pipe := client.Pipeline()
	for range 200 {
		pipe.Set(t.Context(), "big", big, time.Minute)
		pipe.Get(t.Context(), "big")
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	n, err := client.Eval(t.Context(), `return redis.call('INCR', KEYS[1])`, []string{"n"}).Int()
	if err != nil || n != 1 {
		t.Errorf("script: %d, %v", n, err)
	}
}

func TestNoSocketListens(t *testing.T) {
	before := listening(t)
	_, client := start(t)
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if after := listening(t); after != before {
		t.Errorf("%d listening sockets with the server, %d without", after, before)
	}
}

// listening counts the listening TCP sockets and the unix sockets of this process' view.
func listening(t *testing.T) int {
	t.Helper()
	own := map[string]bool{}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("needs /proc")
	}
	for _, fd := range fds {
		if link, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil {
			if inode, ok := strings.CutPrefix(link, "socket:["); ok {
				own[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
	return len(own)
}

func TestCloseEndsEverything(t *testing.T) {
	t.Parallel()
	server, err := localredis.Start()
	if err != nil {
		t.Fatal(err)
	}
	client, err := localredis.Dial(server, redisconn.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := server.Close(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := client.Ping(ctx).Err(); err == nil {
		t.Error("a closed server answers")
	}
	if _, err := server.Client(redisconn.Options{}); !errors.Is(err, localredis.ErrClosed) {
		t.Errorf("client of a closed server: %v", err)
	}
}
