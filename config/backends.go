package config

import (
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"tenantry/crypto/secret"
)

// DefaultBackend is the backend that exists if the settings name no other one: SQLite in the data folder.
const DefaultBackend = "default"

// How a backend keeps organizations apart.
const (
	IsolationShared   = "shared"   // one database or a few files; every key and index begins with the organization
	IsolationDatabase = "database" // MongoDB: a database for each organization
	IsolationFile     = "file"     // SQLite: a file for each organization
)

// Backend is a place for documents.
type Backend struct {
	Engine string `yaml:"engine"` // one of Config.Engines
	// Dir is the folder of a SQLite backend; empty: db, or db-<name>, in the data folder.
	Dir string `yaml:"dir"`
	// Isolation says how organizations are kept apart; empty: shared. On SQLite it applies to new organizations;
	// existing ones stay where they are.
	Isolation string `yaml:"isolation"`
	// URI and Database are the address and the database of a MongoDB backend. MaxPool is the number of connections to
	// each of its servers; 0: 64.
	URI      secret.String `yaml:"uri"`
	Database string        `yaml:"database"`
	MaxPool  int           `yaml:"max_pool"`
}

var backendName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)

const maxBackends = 32

// complete fills in settings that were left empty. descriptors is how many files and sockets the process may open.
func (c *Config) complete(descriptors uint64) {
	if _, rest, ok := strings.Cut(c.PublicURL, "://{slug}."); ok && c.BaseDomain == "" {
		if u, err := url.Parse("//" + rest); err == nil {
			c.BaseDomain = u.Hostname()
		}
	}
	all := maps.Clone(c.Backends)
	_, ok := all[DefaultBackend]
	if !ok && (len(all) == 0 || c.Store == DefaultBackend || c.Control == DefaultBackend) {
		if all == nil {
			all = map[string]Backend{}
		}
		all[DefaultBackend] = Backend{Engine: EngineSQLite}
	}
	for name, b := range all {
		if fill := c.Engines[b.Engine].Complete; fill != nil {
			fill(&b)
		}
		all[name] = b
	}
	c.Backends = all
	if c.SQLite.MaxOpenFiles == 0 {
		c.SQLite.MaxOpenFiles = openFiles(descriptors, c.SQLite.Readers, c.BackendsOf(EngineSQLite))
	}
}

// BackendsOf returns how many backends have that engine.
func (c *Config) BackendsOf(engine string) (n int) {
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

func (c *Config) checkBackends(fault func(name, format string, args ...any)) {
	if len(c.Backends) > maxBackends {
		fault("backends", "there are %d; at most %d are allowed", len(c.Backends), maxBackends)
		return
	}
	places := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c.Backends)) {
		b := c.Backends[name]
		setting := "backends." + name
		if !backendName.MatchString(name) {
			fault(setting, "the name of a backend is 1 to 32 of a-z, 0-9 and _, and begins with a letter")
		}
		engine, known := c.Engines[b.Engine]
		if !known {
			fault(setting+".engine", "must be %s", enumerate(c.engineNames(), "or"))
			continue
		}
		c.foreignSettings(&b, setting, engine.Takes, fault)
		if engine.Check != nil {
			engine.Check(&b, func(name, format string, args ...any) { fault(setting+"."+name, format, args...) })
		}
		if engine.Place != nil {
			at := b.Engine + " " + engine.Place(c, name)
			if other, twice := places[at]; twice {
				fault(setting+"."+engine.PlacedBy, engine.Taken, other)
			}
			places[at] = name
		}
	}
	for _, s := range []struct{ setting, name string }{{"store", c.Store}, {"control", c.Control}} {
		if _, ok := c.Backends[s.name]; !ok {
			names := strings.Join(slices.Sorted(maps.Keys(c.Backends)), ", ")
			fault(s.setting, "there is no such backend; there are: %s", names)
		}
	}
}

// foreignSettings reports settings of a backend that belong only to other engines. takes are those of its own engine.
func (c *Config) foreignSettings(
	b *Backend, setting string, takes []string, fault func(name, format string, args ...any),
) {
	given := map[string]bool{}
	for name, value := range fields(reflect.ValueOf(b).Elem()) {
		given[name] = !value.IsZero()
	}
	for _, other := range c.engineNames() {
		theirs := slices.DeleteFunc(slices.Clone(c.Engines[other].Takes), func(name string) bool {
			return slices.Contains(takes, name)
		})
		switch {
		case !slices.ContainsFunc(theirs, func(name string) bool { return given[name] }):
		case len(theirs) == 1:
			fault(setting+"."+theirs[0], "belongs to the engine %s", other)
		default:
			fault(setting, "%s belong to the engine %s", enumerate(theirs, "and"), other)
		}
	}
}

// enumerate joins words with commas, and the last with the given conjunction.
func enumerate(words []string, last string) string {
	n := len(words) - 1
	if n < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:n], ", ") + " " + last + " " + words[n]
}

// Shared reports whether replicas can share the control data.
func (c *Config) Shared() bool { return c.EngineOf(c.Control).Shared }

// EngineOf returns the engine of a backend.
func (c *Config) EngineOf(backend string) Engine { return c.Engines[c.Backends[backend].Engine] }

// String describes the backend in messages, without its address.
func (b Backend) String() string {
	if b.Isolation != "" {
		return fmt.Sprintf("%s (%s)", b.Engine, b.Isolation)
	}
	return b.Engine
}
