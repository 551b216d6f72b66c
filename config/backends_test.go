package config_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tenantry/config"
)

func loadYAML(t *testing.T, text string, environ ...string) (config.Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load(config.Source{File: path, Environ: environ})
}

func TestBackends(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, yaml string
		environ    []string
		want       string // names with engines
		store      string
	}{
		{"no settings", "data: d", nil, "default:sqlite", "default"},
		{"one next to the default", "backends: {eu: {engine: mongo, uri: 'mongodb://h'}}", nil, "default:sqlite eu:mongo", "default"},
		{"another for everything", "store: eu\ncontrol: eu\nbackends: {eu: {engine: mongo, uri: 'mongodb://h'}}", nil, "eu:mongo", "eu"},
		{"the default is MongoDB", "backends: {default: {engine: mongo, uri: 'mongodb://h'}}", nil, "default:mongo", "default"},
		{"two folders", "backends: {default: {engine: sqlite}, archive: {engine: sqlite}}", nil, "archive:sqlite default:sqlite", "default"},
		{"address as a variable", "backends: {eu: {engine: mongo}}", []string{"TENANTRY_BACKENDS__EU__URI=mongodb://u:p@h"}, "default:sqlite eu:mongo", "default"},
		{"all as variables", "data: d", []string{"TENANTRY_STORE=eu", "TENANTRY_CONTROL=eu", "TENANTRY_BACKENDS__EU__ENGINE=mongo", "TENANTRY_BACKENDS__EU__URI=mongodb://h"}, "eu:mongo", "eu"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := loadYAML(t, tt.yaml, tt.environ...)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, name := range slices.Sorted(maps.Keys(c.Backends)) {
				b := c.Backends[name]
				got = append(got, name+":"+b.Engine)
				if b.Engine == config.EngineMongo && (b.URI.IsZero() || b.Database != "tenantry" || b.Isolation != config.IsolationShared) {
					t.Errorf("%s: got %+v, want an address, the database tenantry and isolation shared", name, b)
				}
				if strings.Contains(b.String(), "//") {
					t.Errorf("%s: String() = %q, want no address in it", name, b)
				}
			}
			if strings.Join(got, " ") != tt.want || c.Store != tt.store {
				t.Errorf("got backends %q and store %q, want %q and %q", strings.Join(got, " "), c.Store, tt.want, tt.store)
			}
		})
	}
}

func TestBackendFolders(t *testing.T) {
	t.Parallel()
	c, err := loadYAML(t, "data: d\nbackends: {default: {engine: sqlite}, archive: {engine: sqlite}, far: {engine: sqlite, dir: /mnt/far}}")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"default": "d/db", "archive": "d/db-archive", "far": "/mnt/far"} {
		if got := c.BackendDir(name); got != want {
			t.Errorf("BackendDir(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestBackendFaults(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range 33 {
		fmt.Fprintf(&many, "b%d: {engine: sqlite}, ", i)
	}
	for _, tt := range []struct{ yaml, want string }{
		{"store: eu", `store: there is no such backend`},
		{"control: eu\nbackends: {default: {engine: sqlite}}", `control: there is no such backend; there are: default`},
		{"backends: {eu: {engine: mongo}}", "backends.eu.uri: is required: the address of MongoDB"},
		{"backends: {eu: {}}", "backends.eu.engine: must be sqlite or mongo"},
		{"backends: {eu: {engine: postgres}}", "backends.eu.engine: must be sqlite or mongo"},
		{"backends: {eu: {engine: mongo, uri: 'mongodb://h', isolation: some}}", "backends.eu.isolation: must be shared or database"},
		{"backends: {eu: {engine: mongo, uri: 'mongodb://h', dir: x}}", "backends.eu.dir: belongs to the engine sqlite"},
		{"backends: {eu: {engine: sqlite, uri: 'mongodb://h'}}", "backends.eu: uri, database and max_pool belong to the engine mongo"},
		{"backends: {eu: {engine: sqlite, isolation: database}}", "backends.eu.isolation: must be shared or file"},
		{"backends: {a: {engine: mongo, uri: 'mongodb://h'}, b: {engine: mongo, uri: 'mongodb://h'}}", "backends.b.database: is already that of backend a"},
		{"backends: {a: {engine: sqlite, dir: x}, b: {engine: sqlite, dir: ./x}}", "backends.b.dir: is already the folder of backend a"},
		{"backends: {a: {engine: mongo, uri: 'mongodb://h', max_pool: -1}}", "backends.a.max_pool: must be from 0 to 10000"},
		{"backends: {'a-b': {engine: sqlite}}", "the name of a backend is"},
		{"backends: {eu: {engine: sqlite, size: 3}}", "backends.eu.size: there is no such setting"},
		{"backends: {a: {engine: mongo, uri: 'mongodb://h', max_pool: 10001}}", "backends.a.max_pool: must be from 0 to 10000"},
		{"backends: {" + many.String() + "}", "at most 32 are allowed"},
		{"timeouts: {query: 0s}", "timeouts.query: must be more than 0"},
	} {
		_, err := loadYAML(t, tt.yaml)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", tt.yaml, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), "mongodb://h ") {
			t.Errorf("%s: got %v, want an error without the address", tt.yaml, err)
		}
	}
}
