package config_test

import (
	"fmt"
	"strings"
	"testing"

	"tenantry/config"
)

// TestOpenFilesFollowTheSystem checks that the number of open databases follows the limit of the system and leaves room
// for sockets.
func TestOpenFilesFollowTheSystem(t *testing.T) {
	t.Parallel()
	const two = "backends: {default: {engine: sqlite}, cold: {engine: sqlite}}\n"
	for _, c := range []struct {
		text        string
		descriptors uint64
		want        int
		fault       string
	}{
		{"", 256, 16, ""},
		{"", 1024, 58, ""},
		{"", 20_000, 1434, ""},
		{"", 65_536, 2000, ""},
		{"", 1 << 63, 2000, ""},
		{"", 64, 16, ""},
		{two, 20_000, 711, ""},
		{"sqlite: {readers: 1}", 4096, 588, ""},
		{"sqlite: {max_open_files: 0}", 1024, 58, ""},
		{"sqlite: {max_open_files: 300}", 1024, 300, ""},
		{"sqlite: {max_open_files: 400}", 1024, 0, "must be at most 341: a database takes at least 3 of the 1024 descriptors"},
		{two + "sqlite: {max_open_files: 300}", 1024, 0, "must be at most 170"},
		{"sqlite: {max_open_files: -1}", 1024, 0, "must be from 2 to 10000"},
	} {
		t.Run(fmt.Sprint(c.descriptors, c.text), func(t *testing.T) {
			t.Parallel()
			got, err := config.Load(config.Source{File: write(t, c.text), Descriptors: c.descriptors})
			switch {
			case c.fault != "":
				if err == nil || !strings.Contains(err.Error(), "sqlite.max_open_files: "+c.fault) {
					t.Errorf("got %v, want an error with %q", err, c.fault)
				}
			case err != nil || got.SQLite.MaxOpenFiles != c.want:
				t.Errorf("got %d databases, %v, want %d", got.SQLite.MaxOpenFiles, err, c.want)
			}
		})
	}
	if got, err := config.Load(config.Source{}); err != nil || got.SQLite.MaxOpenFiles < 16 || got.SQLite.MaxOpenFiles > 2000 {
		t.Errorf("on this system: got %d databases, %v, want 16 to 2000", got.SQLite.MaxOpenFiles, err)
	}
}
