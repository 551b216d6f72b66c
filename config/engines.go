package config

import (
	"cmp"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
)

// LongConnections is how many connections for long queries an SQLite backend has at most.
const LongConnections = 64

// The engines of a backend.
const (
	EngineSQLite = "sqlite"
	EngineMongo  = "mongo"
)

// Engines returns the settings of the engines there are, by the name that a backend gives.
func Engines() map[string]Engine {
	return map[string]Engine{EngineSQLite: embedded(), EngineMongo: mongoDB()}
}

// Engine says which settings a backend of one engine has. Package gateway opens it.
type Engine struct {
	// Takes are the settings of a Backend that belong to the engine; others are refused.
	Takes []string
	// Complete fills in what the settings leave out, Check reports what cannot be used. Both may be nil.
	Complete func(b *Backend)
	Check    func(b *Backend, fault func(setting, format string, args ...any))
	// Place is where the documents lie, which no two backends may share; Taken says so of the
	// setting PlacedBy, with the name of the other. Nil: each backend has a place of its own.
	Place           func(c *Config, name string) string
	PlacedBy, Taken string
	// Shared says that every replica reaches the same documents.
	Shared bool
}

// engineNames lists the engines, those within the process first.
func (c *Config) engineNames() []string {
	key := func(name string) string { return strconv.FormatBool(c.Engines[name].Shared) + name }
	return slices.SortedFunc(maps.Keys(c.Engines), func(a, b string) int { return cmp.Compare(key(a), key(b)) })
}

func embedded() Engine {
	return Engine{
		Takes:    []string{"dir", "isolation"},
		Complete: func(b *Backend) { b.Isolation = cmp.Or(b.Isolation, IsolationShared) },
		Check:    func(b *Backend, fault func(setting, format string, args ...any)) { isolation(b, IsolationFile, fault) },
		Place:    func(c *Config, name string) string { return filepath.Clean(c.BackendDir(name)) },
		PlacedBy: "dir", Taken: "is the folder of backend %s already",
	}
}

// isolation reports one that is neither shared nor the other that the engine knows.
func isolation(b *Backend, other string, fault func(setting, format string, args ...any)) {
	if b.Isolation != IsolationShared && b.Isolation != other {
		fault("isolation", "must be shared or %s", other)
	}
}

func mongoDB() Engine {
	return Engine{
		Takes: []string{"uri", "database", "isolation", "max_pool"},
		Complete: func(b *Backend) {
			b.Isolation = cmp.Or(b.Isolation, IsolationShared)
			b.Database = cmp.Or(b.Database, "tenantry")
		},
		Check: func(b *Backend, fault func(setting, format string, args ...any)) {
			if b.URI.IsZero() {
				fault("uri", "say where MongoDB is, like mongodb://host:27017/?replicaSet=rs0")
			}
			isolation(b, IsolationDatabase, fault)
			if b.MaxPool < 0 || b.MaxPool > 10_000 {
				fault("max_pool", "must be from 0 to 10000")
			}
		},
		Place: func(c *Config, name string) string {
			return c.Backends[name].URI.Reveal() + " " + c.Backends[name].Database
		},
		PlacedBy: "database", Taken: "is that of backend %s already",
		Shared: true,
	}
}
