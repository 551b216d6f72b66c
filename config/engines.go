package config

import (
	"cmp"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
)

// LongConnections is the maximum number of connections for long queries of a SQLite backend.
const LongConnections = 64

// The engines of a backend.
const (
	EngineSQLite = "sqlite"
	EngineMongo  = "mongo"
)

// Engines returns the engines of the program by the name that a backend uses.
func Engines() map[string]Engine {
	return map[string]Engine{EngineSQLite: sqliteEngine(), EngineMongo: mongoEngine()}
}

// Engine describes the settings of an engine's backends. Package gateway opens them.
type Engine struct {
	// Takes are the settings of a Backend that the engine has; others are refused.
	Takes []string
	// Complete fills in settings that were left empty, Check reports settings that cannot be used. Both may be nil.
	Complete func(b *Backend)
	Check    func(b *Backend, fault func(setting, format string, args ...any))
	// Place returns where the documents are. No two backends may share a place: Taken is the fault of the setting
	// PlacedBy, with the name of the other backend. Nil: each backend has a place of its own.
	Place           func(c *Config, name string) string
	PlacedBy, Taken string
	// Shared says that all replicas reach the same documents.
	Shared bool
}

// engineNames lists the engines, embedded ones first.
func (c *Config) engineNames() []string {
	key := func(name string) string { return strconv.FormatBool(c.Engines[name].Shared) + name }
	return slices.SortedFunc(maps.Keys(c.Engines), func(a, b string) int { return cmp.Compare(key(a), key(b)) })
}

func sqliteEngine() Engine {
	return Engine{
		Takes:    []string{"dir", "isolation"},
		Complete: func(b *Backend) { b.Isolation = cmp.Or(b.Isolation, IsolationShared) },
		Check: func(b *Backend, fault func(setting, format string, args ...any)) {
			checkIsolation(b, IsolationFile, fault)
		},
		Place:    func(c *Config, name string) string { return filepath.Clean(c.BackendDir(name)) },
		PlacedBy: "dir", Taken: "is already the folder of backend %s",
	}
}

// checkIsolation reports an isolation that is neither shared nor the engine's other one.
func checkIsolation(b *Backend, other string, fault func(setting, format string, args ...any)) {
	if b.Isolation != IsolationShared && b.Isolation != other {
		fault("isolation", "must be shared or %s", other)
	}
}

func mongoEngine() Engine {
	return Engine{
		Takes: []string{"uri", "database", "isolation", "max_pool"},
		Complete: func(b *Backend) {
			b.Isolation = cmp.Or(b.Isolation, IsolationShared)
			b.Database = cmp.Or(b.Database, "tenantry")
		},
		Check: func(b *Backend, fault func(setting, format string, args ...any)) {
			if b.URI.IsZero() {
				fault("uri", "is required: the address of MongoDB, like mongodb://host:27017/?replicaSet=rs0")
			}
			checkIsolation(b, IsolationDatabase, fault)
			if b.MaxPool < 0 || b.MaxPool > 10_000 {
				fault("max_pool", "must be from 0 to 10000")
			}
		},
		Place: func(c *Config, name string) string {
			return c.Backends[name].URI.Reveal() + " " + c.Backends[name].Database
		},
		PlacedBy: "database", Taken: "is already that of backend %s",
		Shared: true,
	}
}
