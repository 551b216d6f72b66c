package config_test

import (
	"encoding"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"

	"tenantry/config"
	"tenantry/crypto/secret"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tenantry.yaml")
	if text == "" {
		text = "# nothing\n" // an empty file is refused
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestEmptyFile: an empty file is a mistake of whoever writes it, and would be taken for the defaults.
func TestEmptyFile(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", " \n\n"} {
		path := filepath.Join(t.TempDir(), "tenantry.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := config.Load(config.Source{File: path}); err == nil || !strings.Contains(err.Error(), path+": it is empty") {
			t.Errorf("a file of %q: %v, want an error", text, err)
		}
	}
}

// equal compares settings. Secrets are compared by their values; engines are ignored, because they contain functions.
var equal = cmp.Options{cmp.Comparer(secret.String.Equal), cmpopts.IgnoreTypes(config.Engine{})}

func TestEmptySourcesGiveTheDefault(t *testing.T) {
	t.Parallel()
	for name, src := range map[string]config.Source{
		"nothing": {}, "comment": {File: write(t, "# later\n")},
		"other variables": {Environ: []string{"HOME=/x", "TENANTRY_TEST_REDIS_URL=redis://x", "NOT_TENANTRY_DATA=/y", "BROKEN"}},
	} {
		c, err := config.Load(src)
		if err != nil {
			t.Errorf("%s: got %v, want no error", name, err)
		}
		c.SQLite.MaxOpenFiles = 0 // see TestOpenFilesFollowTheSystem
		if diff := cmp.Diff(config.Default(), c, equal); diff != "" {
			t.Errorf("%s: difference:\n%s", name, diff)
		}
	}
}

// TestLaterSourcesWin: a file, then the environment, then flags.
func TestLaterSourcesWin(t *testing.T) {
	t.Parallel()
	src := config.Source{
		File: write(t, `
data: /from/file
listen: 127.0.0.1:1
admin_listen: 127.0.0.1:2
base_domain: file.example
redis:
  addrs: [a:1, b:2]
  password: from-file
log: {level: debug, requests: false}
timeouts: {read: 7s}
`),
		Environ: []string{"TENANTRY_LISTEN=127.0.0.1:3", "TENANTRY_ADMIN_LISTEN=127.0.0.1:4", "TENANTRY_REDIS__PASSWORD=from-env", "TENANTRY_LOG__LEVEL=warn", "TENANTRY_TIMEOUTS__WRITE=1m30s"},
		Flags:   map[string]string{"admin_listen": "127.0.0.1:5", "log.level": "error"},
	}
	c, err := config.Load(src)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.Data, want.Listen, want.AdminListen, want.BaseDomain = "/from/file", "127.0.0.1:3", "127.0.0.1:5", "file.example"
	want.Redis.Addrs, want.Redis.Password = []string{"a:1", "b:2"}, secret.New("from-env")
	want.Log = config.Log{Level: "error", Format: "json", Requests: false}
	want.SQLite.MaxOpenFiles = c.SQLite.MaxOpenFiles
	want.Timeouts.Read, want.Timeouts.Write = 7*time.Second, 90*time.Second
	if diff := cmp.Diff(want, c, equal); diff != "" {
		t.Errorf("mismatch (-want +got):\n%s", diff)
	}
}

// TestEveryFaultAtOnce checks that all faults of a file are reported together.
func TestEveryFaultAtOnce(t *testing.T) {
	t.Parallel()
	_, err := config.Load(config.Source{
		File: write(t, `
data: " "
listen: 8080
admin_listen: nowhere
base_domain: https://example.com
public_url: https://example.com
trusted_proxies: [10.0.0.0/33, loadbalancer]
file_host: files.example.com
log: {level: loud, format: xml, colour: true}
redis: {addrs: [localhost], db: -1}
sqlite: {max_open_files: 1, readers: 0, cache: 15, query_timeout: 0s}
timeouts: {read: 2h, write: -1s}
colour: blue
`),
		Environ: []string{"TENANTRY_LISTEN_ADDRESS=:80", "TENANTRY_LOG_LEVEL=info"},
		Flags:   map[string]string{"verbose": "true"},
	})
	if err == nil {
		t.Fatal("got no error, want the faults")
	}
	lines := strings.Split(err.Error(), "\n")
	for _, want := range []string{
		"data: name the folder", `listen: is not an address`, `admin_listen: is not an address`, "base_domain: is not a domain",
		`public_url: is not an address like https://{slug}.example.com`, `trusted_proxies: "10.0.0.0/33" is not a network`,
		`trusted_proxies: "loadbalancer" is not a network`, "file_host: is not an address", "log.level: must be debug, info, warn or error",
		"log.format: must be json or text", `redis.addrs: "localhost" is not an address`, "redis.db: must not be negative", "sqlite.max_open_files: must be from 2",
		"sqlite.readers: must be from 1", "sqlite.cache: must be from 16", "sqlite.query_timeout: must be more than 0", "timeouts.read: must be more than 0 and at most 1h", "timeouts.write: must be more than 0",
		"colour: there is no such setting", "log.colour: there is no such setting", "listen_address: there is no such setting",
		"log_level: there is no such setting", "verbose: there is no such setting",
	} {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, want) }) {
			t.Errorf("got no line that begins with %q:\n%s", want, err)
		}
	}
	if len(lines) != 23 {
		t.Errorf("got %d faults, want 23:\n%s", len(lines), err)
	}
}

func TestTypes(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a limit without a period": "limits: {key: 100}", "a limit of nothing": "limits: {organization: 0/s}", "no limit": "limits: {key_quota: fast}", "an empty limit": "limits: {key: ''}",
		"a list where a text belongs": "data: [a, b]", "a map where a text belongs": "data: {a: b}", "a text where a number belongs": "sqlite: {readers: many}",
		"a text where a duration belongs": "timeouts: {read: soon}", "a text where a section belongs": "timeouts: soon", "a list where a section belongs": "redis: [a]",
		"a map where a list belongs": "redis: {addrs: {a: b}}", "a fraction where a number belongs": "redis: {db: 1.5}", "a text where a switch belongs": "log: {requests: maybe}",
		"a duration without unit": "timeouts: {read: '30'}", "a number of nanoseconds": "timeouts: {read: 30}",
		"the placeholder as password": "redis: {password: '[redacted]'}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c, err := config.Load(config.Source{File: write(t, text)}); err == nil {
				t.Errorf("%s: got %+v, want an error", text, c)
			}
		})
	}
	c, err := config.Load(config.Source{Environ: []string{
		"TENANTRY_REDIS__ADDRS=a:1, b:2", "TENANTRY_LOG__REQUESTS=false", "TENANTRY_SQLITE__READERS=8", "TENANTRY_TRUSTED_PROXIES=10.0.0.0/8,::1", "TENANTRY_REDIS__TLS=1",
	}})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.Redis.Addrs, []string{"a:1", "b:2"}) || c.Log.Requests || c.SQLite.Readers != 8 || !c.Redis.TLS || !slices.Equal(c.TrustedProxies, []string{"10.0.0.0/8", "::1"}) {
		t.Errorf("got %+v, want every variable converted to the type of its setting", c)
	}
}

// TestFaultsInWords checks that each fault names the setting, where it was set, its value unless that may be a secret,
// and the expected format, in plain words.
func TestFaultsInWords(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		file    string
		environ string
		flags   map[string]string
		want    []string // all lines; FILE is the path
	}{
		{file: "timeouts: {read: soon}", want: []string{`timeouts.read: must be a duration such as 30s or 720h (FILE line 1 says "soon")`}},
		{file: "data: d\ntimeouts:\n  read: 30\n", want: []string{`timeouts.read: must be a duration such as 30s or 720h (FILE line 3 says "30")`}},
		{environ: "TENANTRY_TIMEOUTS__READ=30", want: []string{`timeouts.read: must be a duration such as 30s or 720h (TENANTRY_TIMEOUTS__READ says "30")`}},
		{file: "timeouts: {read: 2h}", want: []string{`timeouts.read: must be more than 0 and at most 1h (FILE line 1 says "2h")`}},
		{file: "sqlite: {readers: many, max_open_files: 1.5}", want: []string{
			`sqlite.max_open_files: must be a whole number (FILE line 1 says "1.5")`, `sqlite.readers: must be a whole number (FILE line 1 says "many")`}},
		{environ: "TENANTRY_SQLITE__READERS=0", want: []string{`sqlite.readers: must be from 1 to 64 (TENANTRY_SQLITE__READERS says "0")`}},
		{file: "memory: {garbage: -1, limit: 63}", want: []string{
			`memory.garbage: must be from 0 to 16384 MiB (FILE line 1 says "-1")`}},
		{file: "memory: {garbage: 64, limit: 127}", want: []string{`memory.limit: must be 0, for none, or at least 64 MiB more than memory.garbage (FILE line 1 says "127")`}},
		{file: "log: {requests: maybe}", want: []string{`log.requests: must be true or false (FILE line 1 says "maybe")`}},
		{file: "data: [a, b]", want: []string{"data: must be a text (FILE line 1)"}},
		{file: "trusted_proxies: {a: b}", want: []string{"trusted_proxies: must be a list of texts (FILE line 1)"}},
		{file: "trusted_proxies: [[a]]", want: []string{`trusted_proxies: must be a list of texts (FILE line 1)`}},
		{file: "limits: {key: 100, key_quota: ''}", want: []string{
			`limits.key: "100" is not a limit; write it like 100/s, 6000/m, 20000/h, 100000/d, or off (FILE line 1)`, `limits.key_quota: write it like 100/s, 6000/m, 100000/d, or off (FILE line 1)`}},
		{file: "limits: {documents: -1}", want: []string{`limits.documents: must be from 1 to 9007199254740991, or 0 for no limit (FILE line 1 says "-1")`}},
		{file: "timeouts: soon", want: []string{"timeouts: is a section, not a value; set one of its settings, such as timeouts.drain (FILE line 1)"}},
		{environ: "TENANTRY_LIMITS=off", want: []string{"limits: is a section, not a value; set one of its settings, such as limits.address (TENANTRY_LIMITS)"}},
		{file: "- data\n", want: []string{"the settings: is a section, not a value; set one of its settings, such as admin (FILE line 1)"}},
		{file: "data: a\ndata: b\n", want: []string{"the settings: data is set twice (FILE line 1)"}},
		{file: "redis: {pasword: " + hidden + "}", want: []string{"redis.pasword: there is no such setting; did you mean redis.password? (FILE line 1)"}},
		{file: "timeout:\n  read: 3s\n", want: []string{"timeout: there is no such setting; did you mean timeouts? (FILE line 2)"}},
		{file: "colour: blue", want: []string{"colour: there is no such setting (FILE line 1)"}},
		{file: "data: {folder: x}", want: []string{"data: must be a text (FILE line 1)"}},
		{environ: "TENANTRY_LOG_LEVEL=debug", want: []string{"log_level: there is no such setting; did you mean TENANTRY_LOG__LEVEL? (TENANTRY_LOG_LEVEL)"}},
		{environ: "TENANTRY_REDIS__PASWORD=" + hidden, want: []string{"redis.pasword: there is no such setting; did you mean TENANTRY_REDIS__PASSWORD? (TENANTRY_REDIS__PASWORD)"}},
		{file: "data: ~/a\nkeyring: ~/b\nfiles: {folder: ~/c}\nbackends: {eu: {engine: sqlite, dir: ~/d}}\nbackup: {to: ~/e}\n", want: []string{
			`backends.eu.dir: begins with ~, which only a shell replaces: write the whole path (FILE line 4 says "~/d")`,
			`backup.to: must be the whole path of a folder, s3://bucket/prefix, or empty (FILE line 5 says "~/e")`,
			`data: begins with ~, which only a shell replaces: write the whole path (FILE line 1 says "~/a")`,
			`files.folder: begins with ~, which only a shell replaces: write the whole path (FILE line 3 says "~/c")`,
			`keyring: begins with ~, which only a shell replaces: write the whole path (FILE line 2 says "~/b")`}},
		{environ: "TENANTRY_DATA__FOLDER=x", want: []string{"data.folder: there is no such setting (TENANTRY_DATA__FOLDER)"}},
		{file: "backends: {eu: {engine: mongo, uri: 'mongodb://h', max_pool: big}}", environ: "TENANTRY_BACKENDS_EU_URI=" + hidden, want: []string{
			`backends.eu.max_pool: must be a whole number (FILE line 1 says "big")`, "backends_eu_uri: there is no such setting; did you mean TENANTRY_BACKENDS__EU__URI? (TENANTRY_BACKENDS_EU_URI)"}},
		{file: "backends: {eu: '" + hidden + "'}", want: []string{"backends.eu.engine: must be sqlite or mongo", "backends.eu: is a section, not a value; set one of its settings, such as backends.eu.database (FILE line 1)"}},
		{file: "backends: '" + hidden + "'", want: []string{"backends: is a section, not a value; set one of its settings, such as backends.NAME (FILE line 1)"}},
		{file: "redis: {addrs: ['redis://u:" + hidden + "@h']}", want: []string{`redis.addrs: "h" is not an address like 127.0.0.1:8080 (FILE line 1)`}},
		{environ: "TENANTRY_REDIS__ADDRS=a:1,redis://u:" + hidden + "@h", want: []string{`redis.addrs: "h" is not an address like 127.0.0.1:8080 (TENANTRY_REDIS__ADDRS)`}},
		{file: "redis: {addrs: [a:1], password: [" + hidden + "]}", want: []string{"redis.password: must be a text (FILE line 1)"}},
		{file: "admin: {token: hunter2}", want: []string{"admin.token: is shorter than 16 characters; make one with: openssl rand -hex 24 (FILE line 1)"}},
		{flags: map[string]string{"admin_listen": "nowhere"}, want: []string{`admin_listen: is not an address like 127.0.0.1:8080 (--admin-listen says "nowhere")`}},
		// A later source overrides faults of an earlier one.
		{file: "listen: nowhere", flags: map[string]string{"listen": "8080"}, want: []string{`listen: is not an address like 127.0.0.1:8080 (--listen says "8080")`}},
		{file: "timeouts: {read: soon}", environ: "TENANTRY_TIMEOUTS__READ=3s"},
		{file: "sqlite: {readers: many}\ncolour: blue\nlog: {level: loud}\n", environ: "TENANTRY_LOGG__LEVEL=x", flags: map[string]string{"listen": "8080"}, want: []string{
			"colour: there is no such setting (FILE line 2)", `listen: is not an address like 127.0.0.1:8080 (--listen says "8080")`, `log.level: must be debug, info, warn or error (FILE line 3 says "loud")`,
			"logg.level: there is no such setting; did you mean TENANTRY_LOG__LEVEL? (TENANTRY_LOGG__LEVEL)", `sqlite.readers: must be a whole number (FILE line 1 says "many")`}},
	} {
		path := write(t, test.file)
		_, err := config.Load(config.Source{File: path, Environ: []string{test.environ}, Flags: test.flags})
		got := ""
		if err != nil {
			got = strings.ReplaceAll(err.Error(), path, "FILE")
		}
		if diff := cmp.Diff(strings.Join(test.want, "\n"), got); diff != "" {
			t.Errorf("%s %s %v: %s", test.file, test.environ, test.flags, diff)
		}
	}
}

// hidden is a secret in a place where people put secrets, possibly by mistake.
const hidden = "mongodb://u:hunter2-hunter2@h"

func TestFile(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "none.yaml")
	for _, path := range []string{missing, write(t, "data: [unclosed"), write(t, "- a\n- b\n"), write(t, "data: a\ndata: b\n"), t.TempDir()} {
		_, err := config.Load(config.Source{File: path})
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("got %v, want an error that names %s", err, path)
		}
	}
}

// TestPasswordIsRedacted checks that no way of printing the settings shows a secret.
func TestPasswordIsRedacted(t *testing.T) {
	t.Parallel()
	const password = "hunter2-hunter2"
	c, err := config.Load(config.Source{Environ: []string{"TENANTRY_REDIS__PASSWORD=" + password, "TENANTRY_REDIS__ADDRS=a:1"}})
	if err != nil {
		t.Fatal(err)
	}
	if c.Redis.Password.Reveal() != password {
		t.Fatalf("password = %q, want %q", c.Redis.Password.Reveal(), password)
	}
	raw, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(raw), fmt.Sprintf("%v %+v %#v", c, c, c), fmt.Sprintf("%+v", &c)} {
		if strings.Contains(text, password) {
			t.Errorf("got the password in:\n%s", text)
		}
	}
	if !strings.Contains(string(raw), "[redacted]") || !strings.Contains(string(raw), "query_timeout: 10s") {
		t.Errorf("got YAML:\n%s\nwant [redacted] and query_timeout: 10s", raw)
	}
	// The printed settings can be loaded again together with the secret.
	again, err := config.Load(config.Source{File: write(t, string(raw)), Environ: []string{"TENANTRY_REDIS__PASSWORD=" + password}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, again, equal); diff != "" {
		t.Errorf("difference:\n%s", diff)
	}
	// An error about another setting repeats no secret.
	_, err = config.Load(config.Source{File: write(t, "redis: {password: "+password+", db: x}\n")})
	if err == nil || strings.Contains(err.Error(), password) {
		t.Errorf("got %v, want an error", err)
	}
}

func TestBaseDomainAndPublicURL(t *testing.T) {
	t.Parallel()
	for value, good := range map[string]bool{
		"example.com": true, "app.example.com": true, "localhost": true, ".example.com": false, "example.com:8080": false, "a b": false,
		"a_b.example": false, "10.0.0.1": false, "https://x": false, "x@y": false,
	} {
		if _, err := config.Load(config.Source{Flags: map[string]string{"base_domain": value}}); (err == nil) != good {
			t.Errorf("base_domain %q: got %v, want (err == nil) = %v", value, err, good)
		}
	}
	for value, good := range map[string]bool{
		"https://{slug}.example.com": true, "http://{slug}.localhost:8080/": true, "https://example.com/{slug}": true,
		"https://example.com": false, "{slug}.example.com": false, "ftp://{slug}.example.com": false, "https://{slug}.example.com?x=1": false, "https:///{slug}": false, "https://": false, ":": false,
	} {
		if _, err := config.Load(config.Source{Flags: map[string]string{"public_url": value}}); (err == nil) != good {
			t.Errorf("public_url %q: got %v, want (err == nil) = %v", value, err, good)
		}
	}
	for _, test := range []struct{ public, base, want string }{
		{"", "", "http://acme.localhost:8080"}, {"", "example.com", "https://acme.example.com"},
		{"https://{slug}.example.org/", "example.com", "https://acme.example.org"}, {"http://{slug}.localhost:9000", "", "http://acme.localhost:9000"},
	} {
		c := config.Config{PublicURL: test.public, BaseDomain: test.base}
		if got := c.OrganizationURL("acme", "8080"); got != test.want {
			t.Errorf("%+v: OrganizationURL = %s, want %s", test, got, test.want)
		}
	}
}

func TestListeners(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		public, admin, token string
		good                 bool
	}{
		{"127.0.0.1:0", "127.0.0.1:0", "", true}, {"127.0.0.1:8080", "127.0.0.1:8080", "", false}, {"127.0.0.1:8080", "", "", true},
		{"", "127.0.0.1:9090", "", false}, {"127.0.0.1", "127.0.0.1:9090", "", false},
		{"[::1]:8080", "[::1]:9090", "", true}, {":8080", "localhost:9090", "", true}, {":8080", "127.1.2.3:9090", "", true},
		// A listener that other machines can reach needs a token.
		{":8080", ":9090", "", false}, {":8080", "0.0.0.0:9090", "", false}, {":8080", "10.0.0.1:9090", "", false}, {":8080", "gateway:9090", "", false},
		{":8080", ":9090", "letmein", false}, {":8080", "127.0.0.1:9090", "letmein", false}, {":8080", ":9090", "sixteen letters.", true},
	} {
		_, err := config.Load(config.Source{Flags: map[string]string{"listen": test.public, "admin_listen": test.admin, "admin.token": test.token}})
		if test.token != "" && err != nil && strings.Contains(err.Error(), test.token) {
			t.Errorf("got %v, want an error without the token", err)
		}
		if (err == nil) != test.good {
			t.Errorf("%+v: got %v, want (err == nil) = %v", test, err, test.good)
		}
	}
}

// TestBounds checks for each setting the extreme values that are accepted, and the next ones, which are refused.
func TestBounds(t *testing.T) {
	t.Parallel()
	for setting, tt := range map[string]struct{ good, bad []string }{
		"admin.hosts":              {[]string{"admin.example.com", "localhost", "a,b"}, []string{"a,,b", "https://a", "a:8080", "u@a", "a b", "*.example.com"}},
		"file_host":                {[]string{"https://files.example.com", "http://files:8080"}, []string{"files", "ftp://files.example.com", "https://", "https:///files", "https://[::1"}},
		"telemetry.endpoint":       {[]string{"https://collector:4318", "http://127.0.0.1:4318/"}, []string{"collector:4318", "ftp://collector", "https://", "https://u:p@collector", "https://collector?key=x", "https://[::1"}},
		"telemetry.sample_percent": {[]string{"0", "100"}, []string{"-1", "101"}},
		"sqlite.max_open_files":    {[]string{"2"}, []string{"1", "10001"}},
		"sqlite.readers":           {[]string{"1", "64"}, []string{"0", "65"}},
		"sqlite.cache":             {[]string{"16"}, []string{"15", "1048577"}},
		"sqlite.query_timeout":     {[]string{"1ms", "1h"}, []string{"0s", "-1s", "1h0m1s"}},
		"trash.keep":               {[]string{"0s", "1h"}, []string{"59m59s", "-1h"}},
		"trash.organizations":      {[]string{"0s", "1h"}, []string{"59m59s", "-1h"}},
		"backup.to":                {[]string{"", "/backup"}, []string{"backup", "./backup", "s3://bucket/without-a-server"}},
		"backup.keep":              {[]string{"0", "10000"}, []string{"-1", "10001"}},
		"backup.log":               {[]string{"0s"}, []string{"59m", "-1h", "168h"}}, // without backup.to
		"backup.at":                {[]string{"00:00", "23:59,03:00"}, []string{"24:00", "3", "03:00:00"}},
		"backup.recipient":         {[]string{"", "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"}, []string{"age1", "AGE-SECRET-KEY-1QQQQ", "ssh-ed25519 AAAA"}},
		"memory.garbage":           {[]string{"0", "16384"}, []string{"-1", "16385"}},
		"memory.organizations":     {[]string{"64", "1048576"}, []string{"0", "63", "1048577"}},
		"memory.limit":             {[]string{"0", "128"}, []string{"127", "-1"}},
		"limits.in_flight":         {[]string{"16", "1048576"}, []string{"15", "1048577"}},
		"limits.documents":         {[]string{"0", "9007199254740991"}, []string{"-1", "9007199254740992"}},
	} {
		for want, values := range map[bool][]string{true: tt.good, false: tt.bad} {
			for _, value := range values {
				_, err := config.Load(config.Source{Flags: map[string]string{setting: value}})
				if (err == nil) != want || err != nil && !strings.HasPrefix(err.Error(), setting+": ") {
					t.Errorf("%s %q: got %v, want (err == nil) = %v", setting, value, err, want)
				}
			}
		}
	}
}

func TestParseNetwork(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"10.1.2.3": "10.1.2.3/32", "10.1.2.3/8": "10.0.0.0/8", "::1": "::1/128", "2001:db8::1/32": "2001:db8::/32", "::ffff:10.1.2.3": "10.1.2.3/32", "::ffff:10.1.2.3/104": "10.0.0.0/8",
		"": "", "10.0.0.0/33": "", "localhost": "", "10.0.0": "", "10.0.0.0/8 ": "",
	} {
		p, err := config.ParseNetwork(text)
		if (err == nil) != (want != "") || (err == nil && p.String() != want) {
			t.Errorf("%q: got %v %v, want (err == nil) = %v", text, p, err, (want != ""))
		}
	}
}

func TestKeyringPath(t *testing.T) {
	t.Parallel()
	c := config.Config{Data: "/data"}
	if got := c.KeyringPath(); got != filepath.Join("/data", "keyring.json") {
		t.Errorf("KeyringPath() = %q, want %q", got, filepath.Join("/data", "keyring.json"))
	}
	c.Keyring = "/keys/ring"
	if got := c.KeyringPath(); got != "/keys/ring" {
		t.Errorf(`KeyringPath() = %q, want "/keys/ring"`, got)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	c, err := config.Load(config.Source{
		File:    write(t, "limits: {organization: 100/s, organization_quota: 1000000/d, key: off, in_flight: 64, documents: 5, visitor: 2/s}"),
		Environ: []string{"TENANTRY_LIMITS__KEY_QUOTA=5000/h", "TENANTRY_LIMITS__ADDRESS=7/s", "TENANTRY_LIMITS__BYTES=7"},
	})
	if err != nil {
		t.Fatal(err)
	}
	shown, err := yaml.Marshal(c.Limits)
	if want := "organization: 100/s\norganization_quota: 1000000/d\nkey: \"off\"\nkey_quota: 5000/h\naddress: 7/s\naddress_quota: \"off\"\nvisitor: 2/s\nvisitor_quota: 1000/h\ndocuments: 5\nbytes: 7\nfile_size: 1073741824\nfile_bytes: 0\nin_flight: 64\n"; err != nil || string(shown) != want {
		t.Errorf("shown as\n%s%v, want\n%s", shown, err, want)
	}
	set := c.Limits.Set()
	if set.Organization.Rate.String() != "100/s" || set.Organization.Quota.String() != "1000000/d" || set.Key.Rate.String() != "off" || set.Key.Quota.String() != "5000/h" || set.Address.Rate.String() != "7/s" {
		t.Errorf("Set() = %+v, want organization 100/s and 1000000/d, key off and 5000/h, address 7/s", set)
	}
}

// TestEverySettingIsRead sets every setting, because one of a type that Load does not read would be ignored.
func TestEverySettingIsRead(t *testing.T) {
	t.Parallel()
	var walk func(name string, at reflect.Type)
	walk = func(name string, at reflect.Type) {
		_, isText := reflect.New(at).Interface().(encoding.TextUnmarshaler)
		switch {
		case at.Kind() == reflect.Struct && !isText:
			for f := range at.Fields() {
				if label := f.Tag.Get("yaml"); label != "-" {
					walk(strings.TrimPrefix(name+"."+label, "."), f.Type)
				}
			}
		case at.Kind() == reflect.Map:
			walk(name+".a", at.Elem())
		default:
			_, err := config.Load(config.Source{Flags: map[string]string{name: "1"}})
			if err != nil && strings.Contains(err.Error(), "cannot be set") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	walk("", reflect.TypeFor[config.Config]())
}
