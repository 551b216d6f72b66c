// Package config reads the settings from a YAML file, TENANTRY_ variables and flags; the later override the earlier.
// Unknown settings are refused, and all faults are reported together.
package config

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tenantry/crypto/secret"
	"tenantry/internal/rate"
)

// Config has all settings. Durations are written like 10s or 2h. A running gateway reads those with the tag reload
// again, see Reload; docs/operating.md names them too.
type Config struct {
	// Data is the folder that holds the databases and the keyring.
	Data string `yaml:"data"`
	// Listen is the address of the gateway, AdminListen that of health, metrics and profiles. An empty AdminListen
	// switches these off.
	Listen      string `yaml:"listen"`
	AdminListen string `yaml:"admin_listen"`
	Admin       Admin  `yaml:"admin"`
	// BaseDomain is the domain that must follow the organization's slug in the host name. If it is empty, Load takes it
	// from a PublicURL whose first label is {slug}.
	BaseDomain string `yaml:"base_domain"`
	// PublicURL is the form of an organization's address in links; {slug} stands for its slug.
	PublicURL string `yaml:"public_url"`
	// TrustedProxies are the networks whose X-Forwarded-Host, X-Forwarded-For and Forwarded are trusted.
	TrustedProxies []string `yaml:"trusted_proxies"`
	// Keyring is the path of the keyring file; empty: keyring.json in the data folder.
	Keyring string `yaml:"keyring"`
	// FileHost is the address that serves file bytes; empty: the organization's own address.
	FileHost string `yaml:"file_host"`

	// Backends are the places for documents, by name. Store names the backend of new organizations, Control that of the
	// control data: organizations, people and keys.
	Backends map[string]Backend `yaml:"backends"`
	Store    string             `yaml:"store"`
	Control  string             `yaml:"control"`
	// Warnings are settings that work but are seldom intended. Load finds them.
	Warnings []Warning `yaml:"-" json:"-"`
	// Engines are the engines that a backend may name. They are part of the program; no source sets them.
	Engines map[string]Engine `yaml:"-" json:"-"`

	Files     Files     `yaml:"files"`
	Log       Log       `yaml:"log"`
	Redis     Redis     `yaml:"redis"`
	SQLite    SQLite    `yaml:"sqlite"`
	Timeouts  Timeouts  `yaml:"timeouts"`
	Limits    Limits    `yaml:"limits"`
	Memory    Memory    `yaml:"memory"`
	Telemetry Telemetry `yaml:"telemetry"`
	Trash     Trash     `yaml:"trash"`
	Backup    Backup    `yaml:"backup"`
	Events    Events    `yaml:"events"`
	Mail      Mail      `yaml:"mail"`
	Webhooks  Webhooks  `yaml:"webhooks"`
}

// Telemetry says where traces and metrics are sent.
type Telemetry struct {
	// Endpoint is the address of an OpenTelemetry collector that accepts OTLP over HTTP; empty: nothing is sent.
	Endpoint string `yaml:"endpoint"`
	// Token is sent to the collector as a bearer token.
	Token secret.String `yaml:"token"`
	// SamplePercent is the percentage of requests that are traced.
	SamplePercent int `yaml:"sample_percent"`
}

// Memory bounds the memory of the process.
type Memory struct {
	// Garbage is how many MiB of unused memory accumulate at least before they are collected.
	Garbage int `yaml:"garbage"`
	// Limit is how many MiB the process tries to stay below; 0: no limit except that of GOMEMLIMIT.
	Limit int `yaml:"limit"`
	// Organizations is the number of cached organizations; others are read on demand.
	Organizations int `yaml:"organizations"`
}

const (
	minMemoryLimit   = 64 // MiB that the process needs besides the garbage
	minOrganizations = 64
)

// Trash says how long deleted records and organizations are kept.
type Trash struct {
	// Keep is how long deleted records can be restored; 0: forever.
	Keep time.Duration `yaml:"keep" reload:"true"`
	// Organizations is how long a deleted organization can be undeleted; 0: until a command erases it.
	Organizations time.Duration `yaml:"organizations" reload:"true"`
}

// Events says what is kept of what happened.
type Events struct {
	// Keep is how long event logs go back, and how long one goes on that nobody reads.
	Keep time.Duration `yaml:"keep" reload:"true"`
}

// Webhooks says where events may be sent.
type Webhooks struct {
	// AllowNetworks are networks besides the internet to which events may be sent, also without TLS.
	AllowNetworks []string `yaml:"allow_networks"`
}

// Networks returns the networks of AllowNetworks.
func (w Webhooks) Networks() []netip.Prefix {
	var all []netip.Prefix
	for _, text := range w.AllowNetworks {
		if p, err := ParseNetwork(text); err == nil { // checked by Load
			all = append(all, p)
		}
	}
	return all
}

// minEventsKeep leaves those who follow changes time for an outage.
const minEventsKeep = 24 * time.Hour

// minTrashKeep leaves people enough time to notice an accidental deletion.
const minTrashKeep = time.Hour

// Limits are the limits of organizations and keys that have none of their own. Limits on requests are written like
// 100/s, 6000/m, 100000/d, or off.
type Limits struct {
	Organization      rate.Limit `yaml:"organization" reload:"true"`
	OrganizationQuota rate.Limit `yaml:"organization_quota" reload:"true"`
	Key               rate.Limit `yaml:"key" reload:"true"`
	KeyQuota          rate.Limit `yaml:"key_quota" reload:"true"`
	// Address and AddressQuota are those of each network address of callers without an accepted credential.
	Address      rate.Limit `yaml:"address" reload:"true"`
	AddressQuota rate.Limit `yaml:"address_quota" reload:"true"`
	// Visitor and VisitorQuota are those of each network address that uses a browser key.
	Visitor      rate.Limit `yaml:"visitor" reload:"true"`
	VisitorQuota rate.Limit `yaml:"visitor_quota" reload:"true"`
	// Documents and Bytes are how much an organization may store; 0: no limit.
	Documents int64 `yaml:"documents"`
	Bytes     int64 `yaml:"bytes"`
	// FileSize is how many bytes an uploaded file may have. FileBytes is how many bytes of files an organization may
	// store, each file counted once however often it was uploaded; 0: no limit.
	FileSize  int64 `yaml:"file_size"`
	FileBytes int64 `yaml:"file_bytes"`
	// InFlight is the total weight of the calls that this process answers at the same time.
	InFlight int `yaml:"in_flight"`
}

// Set returns the request limits by what they count.
func (l Limits) Set() rate.Set {
	return rate.Set{
		Organization: rate.Pair{Rate: l.Organization, Quota: l.OrganizationQuota},
		Key:          rate.Pair{Rate: l.Key, Quota: l.KeyQuota},
		Address:      rate.Pair{Rate: l.Address, Quota: l.AddressQuota},
		Visitor:      rate.Pair{Rate: l.Visitor, Quota: l.VisitorQuota},
	}
}

// Stored returns the limits on stored records, by the names that an organization's own limits have.
func (l Limits) Stored() map[string]int64 {
	return map[string]int64{"documents": l.Documents, "bytes": l.Bytes, "file_size": l.FileSize, "file_bytes": l.FileBytes}
}

// Admin says which requests the listener of health, metrics and profiles answers.
type Admin struct {
	// Hosts are the host names that it answers to, besides those of this machine.
	Hosts []string `yaml:"hosts" reload:"true"`
	// Token is the bearer token of callers. It is required if AdminListen can be reached from other machines.
	Token secret.String `yaml:"token" reload:"true"`
	// Pprof switches the profiles on.
	Pprof bool `yaml:"pprof"`
}

// minAdminToken is the number of characters of a token that cannot be guessed.
const minAdminToken = 16

func (c *Config) checkAdmin(fault func(name, format string, args ...any)) {
	if n := len(c.Admin.Token.Reveal()); n > 0 && n < minAdminToken {
		fault("admin.token", "is shorter than %d characters; make one with: openssl rand -hex 24", minAdminToken)
	}
	for _, name := range c.Admin.Hosts {
		if name == "" || strings.ContainsAny(name, "/:@ *") {
			fault("admin.hosts", "%q is not a host name; give it without scheme, port and path", name)
		}
	}
	host, _, err := net.SplitHostPort(c.AdminListen)
	if err == nil && !isLoopback(host) && c.Admin.Token.IsZero() {
		fault("admin.token", "admin_listen %s can be reached from other machines: set a token, or listen on 127.0.0.1",
			c.AdminListen)
	}
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// Log says what is logged and how.
type Log struct {
	Level  string `yaml:"level" reload:"true"` // debug, info, warn, error
	Format string `yaml:"format"`              // json, text
	// Requests switches the line per request on.
	Requests bool `yaml:"requests"`
}

// Redis names the Redis servers. Without addresses a Redis inside the process is used.
type Redis struct {
	Addrs      []string      `yaml:"addrs"`
	MasterName string        `yaml:"master_name"` // of a Sentinel set
	Username   string        `yaml:"username"`
	Password   secret.String `yaml:"password"`
	DB         int           `yaml:"db"`
	PoolSize   int           `yaml:"pool_size"` // connections to each server; 0: ten for each processor

	// The credentials of the sentinels themselves.
	SentinelUsername string        `yaml:"sentinel_username"`
	SentinelPassword secret.String `yaml:"sentinel_password"`

	TLS           bool   `yaml:"tls"`
	TLSCAFile     string `yaml:"tls_ca_file"`     // PEM; empty: the authorities of the system
	TLSCertFile   string `yaml:"tls_cert_file"`   // PEM; the gateway's own certificate
	TLSKeyFile    string `yaml:"tls_key_file"`    // PEM; its key
	TLSServerName string `yaml:"tls_server_name"` // expected in the servers' certificates; empty: the host of the address
}

// SQLite tunes the embedded engine.
type SQLite struct {
	MaxOpenFiles int           `yaml:"max_open_files"` // databases open at once in each backend; 0: as the system allows
	Readers      int           `yaml:"readers"`        // connections for short queries of each database
	Cache        int           `yaml:"cache"`          // MiB for the pages of all databases
	QueryTimeout time.Duration `yaml:"query_timeout"`
}

// Timeouts bound how long clients, queries and the shutdown may take.
type Timeouts struct {
	ReadHeader time.Duration `yaml:"read_header"`
	Read       time.Duration `yaml:"read"`
	Write      time.Duration `yaml:"write"`
	Idle       time.Duration `yaml:"idle"`
	// Drain is how long a gateway that was told to stop still answers requests while it says that it is not ready.
	// Unless it is set, Load sets DefaultDrain, or 0 if only this machine reaches the gateway.
	Drain    time.Duration `yaml:"drain" reload:"true"`
	Shutdown time.Duration `yaml:"shutdown" reload:"true"` // for the requests that are running then
	Query    time.Duration `yaml:"query"`                  // of one query to MongoDB
}

// DefaultDrain is longer than load balancers take to notice that a gateway is not ready: they ask every few seconds.
const DefaultDrain = 5 * time.Second

// Default returns the settings that apply unless a source sets others.
func Default() Config {
	return Config{
		Data: "./tenantry-data", Listen: "127.0.0.1:8080", AdminListen: "127.0.0.1:9090",
		TrustedProxies: []string{}, Admin: Admin{Hosts: []string{}},
		Engines:  Engines(),
		Backends: map[string]Backend{DefaultBackend: {Engine: EngineSQLite, Isolation: IsolationShared}},
		Store:    DefaultBackend, Control: DefaultBackend,
		Files:  Files{Store: FilesFolder, LinkLife: time.Hour, Reserve: 256},
		Log:    Log{Level: "info", Format: "json", Requests: true},
		Redis:  Redis{Addrs: []string{}},
		SQLite: SQLite{Readers: 4, Cache: 256, QueryTimeout: 10 * time.Second},
		Timeouts: Timeouts{
			ReadHeader: 5 * time.Second, Read: 30 * time.Second, Write: 60 * time.Second,
			Idle: 2 * time.Minute, Shutdown: 10 * time.Second, Query: 10 * time.Second,
		},
		Limits: Limits{
			Organization: rate.PerSecond(1000), OrganizationQuota: rate.Unlimited(),
			Key: rate.PerSecond(500), KeyQuota: rate.Unlimited(),
			Address: rate.PerSecond(50), AddressQuota: rate.Unlimited(),
			Visitor: rate.PerSecond(5), VisitorQuota: rate.PerHour(1000), InFlight: 256, FileSize: 1 << 30,
		},
		Memory:    Memory{Garbage: 64, Organizations: 16_384},
		Telemetry: Telemetry{SamplePercent: 100},
		Trash:     Trash{Keep: 30 * 24 * time.Hour, Organizations: 30 * 24 * time.Hour},
		Backup:    Backup{At: []string{"03:00"}, Keep: 14},
		Events:    Events{Keep: 7 * 24 * time.Hour},
		Mail:      Mail{PerOrganization: 1000, PerAddress: 60},
		Webhooks:  Webhooks{AllowNetworks: []string{}},
	}
}

// check reports settings that cannot be used. descriptors is how many files and sockets the process may open.
func (c *Config) check(descriptors uint64, fault func(name, format string, args ...any)) {
	if strings.TrimSpace(c.Data) == "" {
		fault("data", "name the folder that holds the data")
	}
	c.checkPaths(fault)
	address := func(name, value, which string) {
		if _, _, err := net.SplitHostPort(value); err != nil {
			fault(name, "%sis not an address like 127.0.0.1:8080", which)
		}
	}
	address("listen", c.Listen, "")
	if c.AdminListen != "" {
		address("admin_listen", c.AdminListen, "")
		if c.AdminListen == c.Listen && !strings.HasSuffix(c.Listen, ":0") {
			fault("admin_listen", "must differ from listen")
		}
	}
	c.checkAdmin(fault)
	if c.BaseDomain != "" && (strings.ContainsAny(c.BaseDomain, "/:@ _") || strings.HasPrefix(c.BaseDomain, ".") ||
		net.ParseIP(c.BaseDomain) != nil) {
		fault("base_domain", "is not a domain like example.com")
	}

	if c.PublicURL != "" {
		u, err := url.Parse(strings.ReplaceAll(c.PublicURL, "{slug}", "slug"))
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" ||
			!strings.Contains(c.PublicURL, "{slug}") {
			fault("public_url", "is not an address like https://{slug}.example.com")
		}
	}
	if c.FileHost != "" {
		if u, err := url.Parse(c.FileHost); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			fault("file_host", "is not an address like https://files.example.com")
		}
	}

	c.Telemetry.Endpoint = strings.TrimSuffix(c.Telemetry.Endpoint, "/")
	switch u, err := url.Parse(c.Telemetry.Endpoint); {
	case c.Telemetry.Endpoint == "":
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "":
		fault("telemetry.endpoint", "is not an address like http://127.0.0.1:4318; a token has a setting of its own")
	case u.Scheme == "http" && !isLoopback(u.Hostname()) && !c.Telemetry.Token.IsZero():
		fault("telemetry.token", "would go to %s unencrypted: use https in telemetry.endpoint, or a collector on this machine",
			u.Host)
	}
	if c.Telemetry.SamplePercent < 0 || c.Telemetry.SamplePercent > 100 {
		fault("telemetry.sample_percent", "must be from 0 to 100")
	}
	for _, p := range c.TrustedProxies {
		if _, err := ParseNetwork(p); err != nil {
			fault("trusted_proxies", "%q is not a network like 10.0.0.0/8", p)
		}
	}
	for _, p := range c.Webhooks.AllowNetworks {
		if _, err := ParseNetwork(p); err != nil {
			fault("webhooks.allow_networks", "%q is not a network like 10.0.0.0/8", p)
		}
	}
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, c.Log.Level) {
		fault("log.level", "must be debug, info, warn or error")
	}
	if !slices.Contains([]string{"json", "text"}, c.Log.Format) {
		fault("log.format", "must be json or text")
	}
	for _, a := range c.Redis.Addrs {
		address("redis.addrs", a, fmt.Sprintf("%q ", a[strings.LastIndex(a, "@")+1:])) // a password may stand before
	}
	c.Redis.check(fault)
	c.Files.check(fault)
	c.Mail.check(fault)
	c.checkBackends(fault)
	most := descriptors / (minDescriptors * uint64(max(1, c.BackendsOf(EngineSQLite))))
	if c.SQLite.MaxOpenFiles < 2 || c.SQLite.MaxOpenFiles > 10_000 {
		fault("sqlite.max_open_files", "must be from 2 to 10000, or 0 for what the system allows")
	} else if uint64(c.SQLite.MaxOpenFiles) > most {
		fault("sqlite.max_open_files",
			"must be at most %d: a database takes at least %d of the %d descriptors that this process may open (ulimit -n)",
			most, minDescriptors, descriptors)
	}
	if c.SQLite.Readers < 1 || c.SQLite.Readers > 64 {
		fault("sqlite.readers", "must be from 1 to 64")
	}
	if c.SQLite.Cache < 16 || c.SQLite.Cache > 1<<20 {
		fault("sqlite.cache", "must be from 16 to %d MiB", 1<<20)
	}
	for name, d := range map[string]time.Duration{
		"sqlite.query_timeout": c.SQLite.QueryTimeout,
		"timeouts.read_header": c.Timeouts.ReadHeader, "timeouts.read": c.Timeouts.Read, "timeouts.write": c.Timeouts.Write,
		"timeouts.idle": c.Timeouts.Idle, "timeouts.shutdown": c.Timeouts.Shutdown, "timeouts.query": c.Timeouts.Query,
	} {
		if d <= 0 || d > time.Hour {
			fault(name, "must be more than 0 and at most 1h")
		}
	}
	if d := c.Timeouts.Drain; d < 0 || d > time.Hour {
		fault("timeouts.drain", "must be from 0 to 1h")
	}
	if keep := c.Trash.Keep; keep != 0 && keep < minTrashKeep {
		fault("trash.keep", "must be at least 1h, like 720h for 30 days, or 0 to keep deleted records forever")
	}
	if keep := c.Trash.Organizations; keep != 0 && keep < minTrashKeep {
		fault("trash.organizations",
			"must be at least 1h, like 720h for 30 days, or 0 to keep deleted organizations until a command erases them")
	}
	if c.Events.Keep < minEventsKeep {
		fault("events.keep", "must be at least 24h, like 168h for 7 days")
	}
	c.Backup.check(fault)
	if c.Memory.Garbage < 0 || c.Memory.Garbage > 16<<10 {
		fault("memory.garbage", "must be from 0 to %d MiB", 16<<10)
	}
	if n := c.Memory.Organizations; n < minOrganizations || n > 1<<20 {
		fault("memory.organizations", "must be from %d to %d", minOrganizations, 1<<20)
	}
	if l := c.Memory.Limit; l != 0 && l < c.Memory.Garbage+minMemoryLimit {
		fault("memory.limit", "must be 0, for none, or at least %d MiB more than memory.garbage", minMemoryLimit)
	}
	if c.Limits.InFlight < 16 || c.Limits.InFlight > 1<<20 {
		fault("limits.in_flight", "must be from 16 to %d", 1<<20)
	}
	for name, n := range c.Limits.Stored() {
		if n < 0 || n > 1<<53-1 {
			fault("limits."+name, "must be from 1 to %d, or 0 for no limit", int64(1<<53-1))
		}
	}
	for name, l := range map[string]rate.Limit{
		"limits.organization": c.Limits.Organization, "limits.organization_quota": c.Limits.OrganizationQuota,
		"limits.key": c.Limits.Key, "limits.key_quota": c.Limits.KeyQuota,
		"limits.address": c.Limits.Address, "limits.address_quota": c.Limits.AddressQuota,
		"limits.visitor": c.Limits.Visitor, "limits.visitor_quota": c.Limits.VisitorQuota,
	} {
		if !l.IsSet() {
			fault(name, "write it like 100/s, 6000/m, 100000/d, or off")
		}
	}
}

// ParseNetwork reads a CIDR network or a single address.
func ParseNetwork(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not a network", text)
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 { // callers' addresses are compared as IPv4
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}

// checkPaths reports paths that begin with ~, which would be a folder of that name in the working directory.
func (c *Config) checkPaths(fault func(name, format string, args ...any)) {
	paths := map[string]string{
		"data": c.Data, "keyring": c.Keyring, "files.folder": c.Files.Folder, "mail.tls_ca_file": c.Mail.TLSCAFile,
	}
	for name, b := range c.Backends {
		paths["backends."+name+".dir"] = b.Dir
	}
	for _, setting := range slices.Sorted(maps.Keys(paths)) {
		if strings.HasPrefix(paths[setting], "~") {
			fault(setting, "begins with ~, which only a shell replaces: write the whole path")
		}
	}
}

// KeyringPath returns the path of the keyring file.
func (c *Config) KeyringPath() string {
	if c.Keyring != "" {
		return c.Keyring
	}
	return filepath.Join(c.Data, "keyring.json")
}

// OrganizationURL returns the address of an organization. port is the port that the gateway listens on; it is used if
// neither PublicURL nor BaseDomain is set.
func (c *Config) OrganizationURL(slug, port string) string {
	switch {
	case c.PublicURL != "":
		return strings.TrimSuffix(strings.ReplaceAll(c.PublicURL, "{slug}", slug), "/")
	case c.BaseDomain != "":
		return "https://" + slug + "." + c.BaseDomain
	}
	return "http://" + slug + ".localhost:" + port
}
