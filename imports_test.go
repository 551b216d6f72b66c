package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// floors are the folders of the program from top to bottom. A package imports packages of the floors below its own. Its
// rule says which packages of its own floor it may import.
var floors = []struct {
	folders []string
	within  rule
}{
	{[]string{""}, alone}, // package main
	{[]string{"gateway"}, together},
	{[]string{"reports"}, together},
	{[]string{"modules"}, alone},
	{[]string{"operation"}, together},
	{[]string{"tenants"}, together},
	{[]string{"backends"}, together},
	{[]string{"config", "crypto"}, together},
	{[]string{"internal"}, together},
}

// A rule says which packages of a floor may import each other.
type rule uint8

const (
	together rule = iota // all
	alone                // only those of the same folder: modules/forms may not import modules/files
)

// fenced are packages and libraries that only some packages may import.
var fenced = []struct {
	what string
	by   []string
}{
	{"github.com/gin-gonic/gin", []string{"gateway"}},
	{"go.opentelemetry.io/", []string{"gateway/telemetry", "gateway/middleware"}},
	{"github.com/redis/", []string{"tenants/redisconn", "tenants/localredis", "tenants/redistest", "tenants/tenantstest"}},
	{"zombiezen.com/", []string{"backends/sqlite"}},
	{"go.mongodb.org/", []string{"backends/mongo"}},
	{"github.com/minio/", []string{"backends/blobs/s3"}},
	{"golang.org/x/image", []string{"internal/picture", "gateway/console/chart"}},
	{"filippo.io/", []string{"gateway/backup"}},
	{"tenantry/backends/blobs/s3", []string{"gateway", "backends/blobs/s3"}},
	{"golang.org/x/mod", []string{"modules/audit"}},
	{"github.com/wneessen/", []string{"modules/mail"}},
	{"github.com/emersion/", []string{"gateway/tests/mail"}}, // a mail server for tests
	{"tenantry/backends/sqlite", []string{"gateway", "backends/enginetest", "tenants/tenantstest"}},
	{"tenantry/backends/mongo", []string{"gateway", "backends/mongo", "backends/enginetest", "tenants/tenantstest"}},
	{"tenantry/backends/driver", []string{"backends", "tenants/tenantstest"}},
}

// maxPackages bounds the packages of libraries in the program, including the standard library, because the first build
// on a machine compiles all of them.
const maxPackages = 570

// unbuilt are libraries that only tests use, or that libraries import for features the program does not use.
var unbuilt = []string{
	"github.com/getkin/kin-openapi", "google.golang.org/grpc", "go.opentelemetry.io/otel/sdk/metric", "github.com/Shopify/toxiproxy",
	"github.com/bytedance/sonic", "github.com/goccy/go-json", "encoding/gob", "testing",
	"github.com/go-playground/locales/de",
}

// TestProgramHasFewDependencies checks that no unneeded library is compiled into the program.
func TestProgramHasFewDependencies(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	packages := slices.DeleteFunc(strings.Fields(string(out)), func(name string) bool { return under(name, "tenantry") })
	if len(packages) > maxPackages {
		t.Errorf("the program is built of %d packages of libraries, want at most %d", len(packages), maxPackages)
	}
	for _, name := range packages {
		if under(name, unbuilt...) {
			t.Errorf("the program is built of %s, which it does not use", name)
		}
	}
}

// under reports whether a package, named without the module, is in one of the folders or below.
func under(name string, folders ...string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return name == f || f != "" && strings.HasPrefix(name, f+"/") })
}

// mayImport reports whether the floors let a package of the program import another.
func mayImport(from, to string) bool {
	floor := func(name string) int {
		for i, f := range floors {
			if under(name, f.folders...) {
				return i
			}
		}
		return -1 // a new folder stands on a floor only when it is named here
	}
	a, b := floor(from), floor(to)
	switch {
	case a < 0 || b < 0:
		return false
	case a != b:
		return a < b
	case floors[a].within == alone:
		return folder(from) == folder(to)
	}
	return true
}

// folder returns the first two parts of a package's name: modules/imports for modules/imports/bundle.
func folder(name string) string {
	parts := strings.SplitN(name, "/", 3)
	return strings.Join(parts[:min(2, len(parts))], "/")
}

// TestImportsGoDown checks that imports go down the floors and never up, and that only wrappers import their libraries.
func TestImportsGoDown(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	packages := 0
	for dec := json.NewDecoder(bytes.NewReader(out)); ; packages++ {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		from := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, "tenantry"), "/")
		for _, imported := range p.Imports {
			if to, ours := strings.CutPrefix(imported, "tenantry/"); ours && !mayImport(from, to) {
				t.Errorf("%s imports %s, want only packages below it", from, to)
			}
			for _, f := range fenced {
				if strings.HasPrefix(imported, f.what) && !under(from, f.by...) {
					t.Errorf("%s imports %s, want that only in %v", from, imported, f.by)
				}
			}
		}
	}
	if packages < 50 {
		t.Errorf("go list named %d packages, want at least 50", packages)
	}
}
