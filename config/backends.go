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

// DefaultBackend is the backend there is where the settings name no other: SQLite in the
// data folder.
const DefaultBackend = "default"

// How a backend keeps organizations apart.
const (
	IsolationShared   = "shared"   // one database, or a few files, every document and index led by the organization
	IsolationDatabase = "database" // MongoDB: a database for each organization
	IsolationFile     = "file"     // SQLite: a file for each organization
)

// Backend is a place for documents.
type Backend struct {
	Engine string `yaml:"engine"` // one of Config.Engines
	// Dir is the folder of a SQLite backend; empty: db, or db-<name>, in the data folder.
	Dir string `yaml:"dir"`
	// Isolation says how organizations are kept apart (shared). On SQLite it is about new ones: those that are
	// there stay where they are.
	Isolation string `yaml:"isolation"`
	// URI and Database say where a MongoDB backend is, MaxPool how many
	// connections to each of its servers a gateway may have (0: 64).
	URI      secret.String `yaml:"uri"`
	Database string        `yaml:"database"`
	MaxPool  int           `yaml:"max_pool"`
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
	all := maps.Clone(c.Backends)
	if _, ok := all[DefaultBackend]; !ok && (len(all) == 0 || c.Store == DefaultBackend || c.Control == DefaultBackend) {
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

func (c *Config) backendFaults(fault func(name, format string, args ...any)) {
	if len(c.Backends) > maxBackends {
		fault("backends", "there are %d, at most %d can be", len(c.Backends), maxBackends)
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
		c.strangers(&b, setting, engine.Takes, fault)
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
			fault(s.setting, "there is no such backend; there are: %s", strings.Join(slices.Sorted(maps.Keys(c.Backends)), ", "))
		}
	}
}

// strangers reports settings of a backend that belong to other engines than its own, which takes those.
func (c *Config) strangers(b *Backend, setting string, takes []string, fault func(name, format string, args ...any)) {
	given := map[string]bool{}
	for name, value := range fields(reflect.ValueOf(b).Elem()) {
		given[name] = !value.IsZero()
	}
	for _, other := range c.engineNames() {
		theirs := slices.DeleteFunc(slices.Clone(c.Engines[other].Takes), func(name string) bool { return slices.Contains(takes, name) })
		switch {
		case !slices.ContainsFunc(theirs, func(name string) bool { return given[name] }):
		case len(theirs) == 1:
			fault(setting+"."+theirs[0], "belongs to the engine %s", other)
		default:
			fault(setting, "%s belong to the engine %s", enumerate(theirs, "and"), other)
		}
	}
}

// enumerate writes a list as a sentence does.
func enumerate(words []string, last string) string {
	n := len(words) - 1
	if n < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:n], ", ") + " " + last + " " + words[n]
}

// Shared reports whether what the gateway knows of organizations is kept where other
// replicas can share it.
func (c *Config) Shared() bool { return c.EngineOf(c.Control).Shared }

// EngineOf returns the engine of a backend.
func (c *Config) EngineOf(backend string) Engine { return c.Engines[c.Backends[backend].Engine] }

// String names the backend in messages, without its address.
func (b Backend) String() string {
	if b.Isolation != "" {
		return fmt.Sprintf("%s (%s)", b.Engine, b.Isolation)
	}
	return b.Engine
}
