package config

import (
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"tenantry/crypto/secret"
)

// DefaultBackend is the backend there is where the settings name no other: SQLite in the
// data folder.
const DefaultBackend = "default"

// The engines of a backend.
const (
	EngineSQLite = "sqlite"
	EngineMongo  = "mongo"
)

// How a MongoDB backend keeps organizations apart.
const (
	IsolationShared   = "shared"   // one database, every document and index led by the organization
	IsolationDatabase = "database" // a database for each organization
)

// Backend is a place for documents.
type Backend struct {
	Engine string `yaml:"engine"` // sqlite or mongo
	// Dir is the folder of a SQLite backend; empty: db, or db-<name>, in the data folder.
	Dir string `yaml:"dir"`
	// URI, Database and Isolation say where a MongoDB backend is, MaxPool how many
	// connections to each of its servers a gateway may have (0: 64).
	URI       secret.String `yaml:"uri"`
	Database  string        `yaml:"database"`
	Isolation string        `yaml:"isolation"`
	MaxPool   int           `yaml:"max_pool"`
}

var backendName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)

const maxBackends = 32

// complete fills in what the settings leave out.
func (c *Config) complete(descriptors uint64) {
	if _, rest, ok := strings.Cut(c.PublicURL, "://{slug}."); ok && c.BaseDomain == "" {
		if u, err := url.Parse("//" + rest); err == nil {
			c.BaseDomain = u.Hostname()
		}
	}
	all := map[string]Backend{}
	for name, b := range c.Backends {
		if b.Engine == EngineMongo {
			if b.Isolation == "" {
				b.Isolation = IsolationShared
			}
			if b.Database == "" {
				b.Database = "tenantry"
			}
		}
		all[name] = b
	}
	if _, ok := all[DefaultBackend]; !ok && (len(all) == 0 || c.Store == DefaultBackend || c.Control == DefaultBackend) {
		all[DefaultBackend] = Backend{Engine: EngineSQLite}
	}
	c.Backends = all
	if c.SQLite.MaxOpenFiles == 0 {
		c.SQLite.MaxOpenFiles = openFiles(descriptors, c.SQLite.Readers, c.backendsOf(EngineSQLite))
	}
}

func (c *Config) backendsOf(engine string) (n int) {
	for _, b := range c.Backends {
		if b.Engine == engine {
			n++
		}
	}
	return n
}

// BackendDir returns the folder of a SQLite backend.
func (c *Config) BackendDir(name string) string {
	switch b := c.Backends[name]; {
	case b.Dir != "":
		return b.Dir
	case name == DefaultBackend:
		return filepath.Join(c.Data, "db")
	}
	return filepath.Join(c.Data, "db-"+name)
}

func (c *Config) backendFaults(fault func(name, format string, args ...any)) {
	if len(c.Backends) > maxBackends {
		fault("backends", "there are %d, at most %d can be", len(c.Backends), maxBackends)
		return
	}
	folders, databases := map[string]string{}, map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c.Backends)) {
		b := c.Backends[name]
		setting := "backends." + name
		if !backendName.MatchString(name) {
			fault(setting, "the name of a backend is 1 to 32 of a-z, 0-9 and _, and begins with a letter")
		}
		if b.MaxPool < 0 || b.MaxPool > 10_000 {
			fault(setting+".max_pool", "must be from 0 to 10000")
		}
		switch b.Engine {
		case EngineSQLite:
			if !b.URI.IsZero() || b.Database != "" || b.Isolation != "" || b.MaxPool != 0 {
				fault(setting, "uri, database, isolation and max_pool belong to the engine mongo")
			}
			dir := filepath.Clean(c.BackendDir(name))
			if other, twice := folders[dir]; twice {
				fault(setting+".dir", "is the folder of backend %s already", other)
			}
			folders[dir] = name
		case EngineMongo:
			if b.Dir != "" {
				fault(setting+".dir", "belongs to the engine sqlite")
			}
			if b.URI.IsZero() {
				fault(setting+".uri", "say where MongoDB is, like mongodb://host:27017/?replicaSet=rs0")
			}
			if b.Isolation != IsolationShared && b.Isolation != IsolationDatabase {
				fault(setting+".isolation", "must be shared or database")
			}
			at := b.URI.Reveal() + " " + b.Database
			if other, twice := databases[at]; twice {
				fault(setting+".database", "is that of backend %s already", other)
			}
			databases[at] = name
		default:
			fault(setting+".engine", "must be sqlite or mongo")
		}
	}
	for _, s := range []struct{ setting, name string }{{"store", c.Store}, {"control", c.Control}} {
		if _, ok := c.Backends[s.name]; !ok {
			fault(s.setting, "there is no such backend; there are: %s", strings.Join(slices.Sorted(maps.Keys(c.Backends)), ", "))
		}
	}
}

// Shared reports whether what the gateway knows of organizations is kept where other
// replicas can share it.
func (c *Config) Shared() bool { return c.Backends[c.Control].Engine != EngineSQLite }

// String names the backend in messages, without its address.
func (b Backend) String() string {
	if b.Engine == EngineMongo {
		return fmt.Sprintf("%s (%s)", b.Engine, b.Isolation)
	}
	return b.Engine
}
