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

// TestImportsRunOneWay holds the direction of imports: main knows gateway, gateway knows
// every part, modules know tenants, store, crypto and the vocabulary of operations, and
// nothing else of the project.
func TestImportsRunOneWay(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	dec := json.NewDecoder(bytes.NewReader(out))
	packages := 0
	for {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		packages++
		from := strings.TrimPrefix(p.ImportPath, "tenantry/")
		for _, imported := range p.Imports {
			if to, ours := strings.CutPrefix(imported, "tenantry/"); ours && !mayImport(from, to) {
				t.Errorf("%s must not import %s", from, to)
			}
			for library, by := range fenced {
				if strings.HasPrefix(imported, library) && !slices.Contains(by, from) {
					t.Errorf("%s must not import %s", from, imported)
				}
			}
		}
	}
	if packages < 20 {
		t.Fatalf("go list named %d packages only", packages)
	}
}

// fenced are libraries that one place alone may know.
var fenced = map[string][]string{
	"github.com/gin-gonic/gin": {"gateway"},
	"zombiezen.com/":           {"backends/store/sqlite"},
	"modernc.org/sqlite":       {"backends/store/sqlite"},
	"go.mongodb.org/":          {"backends/store/mongo", "backends/store/mongo/mongotest"},
	"go.opentelemetry.io/":     {"gateway/telemetry", "gateway/middleware"},
}

// fixtures start the real thing for tests.
var fixtures = []string{"gateway/gatewaytest", "tenants/tenantstest", "backends/store/enginetest", "backends/store/storetest", "backends/store/mongo/mongotest"}

func mayImport(from, to string) bool {
	within := func(path string, roots ...string) bool {
		return slices.ContainsFunc(roots, func(root string) bool { return path == root || strings.HasPrefix(path, root+"/") })
	}
	allowed := func(roots ...string) bool { return within(to, roots...) }
	switch {
	case within(from, fixtures...):
		return true
	case !within(from, "backends/store") && strings.HasPrefix(to, "backends/store/"):
		// Engines are known to the settings alone, which list them, and what they implement to none
		// but package store: everything else works on whatever engine there is.
		return from == "config" && to != "backends/store/driver" && !strings.HasSuffix(to, "test")
	case from == "tenantry": // main
		return allowed("gateway/cli")
	case from == "gateway" || within(from, "gateway/cli", "gateway/control", "gateway/demo"):
		return true
	case from == "gateway/rows" && to == "backends/export": // what it reads was written there
		return true
	case from == "gateway/middleware" && to == "gateway/logging":
		return true
	case within(from, "gateway/transfer", "gateway/rows"): // they know resources, and no module
		return allowed("gateway/transfer", "tenants", "backends/store", "backends/resource", "backends/field", "backends/schema", "backends/secrets", "crypto", "internal")
	case within(from, "backends/api"):
		return allowed("tenants", "backends/store", "backends/field", "internal")
	case within(from, "backends/resource", "backends/field", "backends/schema"): // below the operations: what people are is described too
		return within(to, from) || within(from, "backends/schema/schematest", "backends/resource/resourcetest") || allowed("backends/store", "backends/schema", "backends/field", "internal")
	case within(from, "gateway/bundles"):
		return allowed("gateway/transfer", "gateway/rows", "gateway/audit", "tenants", "backends/api", "backends/crud", "backends/resource", "backends/store", "crypto/sealing", "internal")
	case within(from, "gateway/audit") && (to == "backends/secrets" || to == "crypto/fields"): // with which it seals
		return true
	case within(from, "gateway/audit", "gateway/usage"):
		return allowed("tenants", "backends/api", "backends/crud", "backends/resource", "backends/store", "internal")
	case within(from, "gateway/telemetry"):
		return allowed("config", "backends/store")
	case within(from, "gateway/logging"):
		return to == "config"
	case within(from, "gateway/repeats"):
		return allowed("backends/api", "backends/secrets", "tenants", "backends/store", "internal")
	case within(from, "gateway/console") && to == "backends/schema": // which types a defined field can have
		return true
	case within(from, "gateway"):
		return within(to, from) || allowed("backends/api", "gateway/audit", "gateway/repeats", "gateway/usage", "gateway/openapi", "tenants", "backends/store", "reports", "crypto", "internal")
	case within(from, "backends/store/driver"):
		return false
	case strings.HasPrefix(from, "backends/store/"): // engines do not know each other
		return allowed("backends/store/driver", "crypto/secret", "internal/beside", "internal/bounded", "internal/fair", "internal/texts")
	case from == "internal/bench": // a command: it gives commands to the server that it measures, and knows how that is set
		return allowed("gateway/control", "config")
	case within(from, "internal"):
		return allowed("internal/texts")
	case within(from, "backends/store"):
		return allowed("backends/store/driver", "internal/bounded", "internal/request", "internal/texts", "internal/together")
	case within(from, "tenants"):
		return allowed("tenants", "backends/store", "backends/resource", "backends/schema", "crypto", "internal")
	case within(from, "backends") || within(from, "reports"):
		return within(to, from) || allowed("tenants", "backends/store", "backends/resource", "backends/schema", "backends/field", "backends/filters", "backends/crud", "backends/export", "backends/secrets", "crypto", "backends/api", "internal")
	case within(from, "crypto"):
		return allowed("crypto", "internal/strictjson", "internal/texts")
	}
	if from == "config" {
		return allowed("crypto/secret", "tenants/limits", "internal") || to == "backends/store"
	}
	return false // what is new stands alone until it is named here
}
