package config_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"tenantry/config"
)

// TestReload checks that only the settings with the tag change, and that the others are named.
func TestReload(t *testing.T) {
	t.Parallel()
	load := func(text string) config.Config {
		c, err := config.Load(config.Source{File: write(t, text)})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	old := load("listen: 0.0.0.0:80\nadmin_listen: 0.0.0.0:90\nadmin: {token: 0123456789abcdef}\n")
	next := load("listen: 127.0.0.1:80\nadmin_listen: 0.0.0.0:90\nadmin: {token: fedcba9876543210, hosts: [a]}\n" +
		"limits: {key: 7/s, in_flight: 99}\ntrash: {keep: 5h}\nbackends: {other: {engine: sqlite}}\nstore: other\n")
	merged, changed, remaining, err := old.Reload(next)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(changed, " "), "admin.hosts admin.token limits.key timeouts.drain trash.keep"; got != want {
		t.Errorf("changed = %s, want %s", got, want)
	}
	if got, want := strings.Join(remaining, " "), "backends limits.in_flight listen sqlite.max_open_files store"; got != want {
		t.Errorf("remaining = %s, want %s", got, want)
	}
	if merged.Listen != old.Listen || merged.Limits.InFlight != old.Limits.InFlight || merged.Trash.Keep != 5*time.Hour ||
		merged.Limits.Key != next.Limits.Key || merged.Admin.Token.Reveal() != "fedcba9876543210" || old.Trash.Keep == 5*time.Hour {
		t.Errorf("got %+v, want the old settings with those that changed", merged)
	}
	if _, changed, remaining, err := old.Reload(old); len(changed)+len(remaining) > 0 || err != nil {
		t.Errorf("nothing new: %v %v %v, want nothing", changed, remaining, err)
	}
	// Its address for operations is safe without a token, the one in use is not.
	if _, _, _, err := old.Reload(load("admin_listen: 127.0.0.1:90")); err == nil || !strings.Contains(err.Error(), "admin.token") {
		t.Errorf("a token that is taken away: %v, want an error about admin.token", err)
	}
}

// TestReloadableAreDocumented compares the tags with the list of the manual.
func TestReloadableAreDocumented(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile("../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?s)reads these settings again at SIGHUP: (.*?)\.\s+See`).FindSubmatch(manual)
	if list == nil {
		t.Fatal("docs/operating.md has no list")
	}
	var names []string
	for _, m := range regexp.MustCompile("`([a-z._]+)`").FindAllSubmatch(list[1], -1) {
		names = append(names, string(m[1]))
	}
	if want := config.Reloadable(); !slices.Equal(names, want) {
		t.Errorf("docs/operating.md names %q, want %q", names, want)
	}
}

// TestDrainDependsOnTheAddress: only a gateway that others reach waits for load balancers.
func TestDrainDependsOnTheAddress(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"listen: 127.0.0.1:80": 0, "listen: localhost:80": 0, "listen: '[::1]:80'": 0, "listen: ':80'": config.DefaultDrain,
		"listen: 10.0.0.1:80": config.DefaultDrain, "listen: ':80'\ntimeouts: {drain: 0s}": 0, "timeouts: {drain: 2s}": 2 * time.Second,
	} {
		c, err := config.Load(config.Source{File: write(t, text)})
		if err != nil || c.Timeouts.Drain != want {
			t.Errorf("%s: %s %v, want %s", text, c.Timeouts.Drain, err, want)
		}
	}
	if _, err := config.Load(config.Source{File: write(t, "timeouts: {drain: -1s}")}); err == nil {
		t.Error("a negative wait was accepted")
	}
}
