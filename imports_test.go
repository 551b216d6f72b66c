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
			if strings.HasPrefix(imported, "github.com/gin-gonic/gin") && from != "gateway" {
				t.Errorf("%s must not import the HTTP framework", from)
			}
			if strings.HasPrefix(imported, "zombiezen.com/") && from != "backends/store/sqlite" && from != "gateway" {
				t.Errorf("%s must not import the SQLite library", from)
			}
		}
	}
	if packages < 20 {
		t.Fatalf("go list named %d packages only", packages)
	}
}

func mayImport(from, to string) bool {
	within := func(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }
	allowed := func(roots ...string) bool {
		return slices.ContainsFunc(roots, func(root string) bool { return within(to, root) })
	}
	switch {
	case from == "tenantry": // main
		return allowed("gateway/cli")
	case from == "gateway" || within(from, "gateway/cli") || within(from, "gateway/control") || within(from, "gateway/transfer") || within(from, "gateway/demo"):
		return !within(to, "backends/store/driver") && (from == "gateway" || !within(to, "backends/store/sqlite"))
	case within(from, "gateway/api"):
		return allowed("tenants", "backends/store") && to != "backends/store/driver" && to != "backends/store/sqlite"
	case within(from, "gateway/logging"):
		return to == "config"
	case within(from, "gateway/gatewaytest") || within(from, "tenants/tenantstest") || within(from, "backends/store/enginetest"): // start the real thing
		return true
	case within(from, "gateway"):
		return allowed("gateway/api", "gateway/audit", "gateway/openapi", "tenants", "backends/store", "reports", "crypto", "internal") && !within(to, "backends/store/sqlite")
	case within(from, "backends/store/sqlite") || within(from, "backends/store/storetest"):
		return allowed("backends/store/driver")
	case within(from, "backends/store/mongo"):
		return allowed("backends/store/driver", "crypto/secret") || within(to, "backends/store/storetest")
	case within(from, "backends/store/driver"):
		return false
	case within(from, "internal"):
		return false
	case within(from, "backends/store"):
		return allowed("backends/store/driver", "internal/bounded")
	case within(from, "tenants"):
		return allowed("tenants", "backends/store", "crypto", "internal/bounded") && !allowed("backends/store/driver", "backends/store/sqlite")
	case within(from, "backends") || within(from, "reports"):
		return (within(to, from) || allowed("tenants", "backends/store", "backends/schema", "backends/filters", "crypto", "gateway/api", "internal")) &&
			!allowed("backends/store/driver", "backends/store/sqlite")
	case within(from, "crypto"):
		return allowed("crypto")
	}
	if from == "config" {
		return allowed("crypto/secret", "tenants/limits", "internal")
	}
	return false // what is new stands alone until it is named here
}
