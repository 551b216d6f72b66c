package cli

import (
	"cmp"
	"context"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"tenantry/gateway"
)

// Build identifies the build of the program.
type Build struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
	SQLite  string `json:"sqlite"`
}

func version() Build {
	b := Build{Version: "devel", Commit: "unknown", Go: runtime.Version(), SQLite: gateway.SQLiteVersion}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	built := map[string]string{}
	for _, s := range info.Settings {
		built[s.Key] = s.Value
	}
	b.Commit = cmp.Or(built["vcs.revision"], b.Commit)
	if built["vcs.modified"] == "true" {
		b.Commit += "-modified"
	}
	return b
}

func (p *program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the version, commit, Go and SQLite of this program", Args: noArgs,
		RunE: p.run(func(context.Context, []string) error {
			return p.print(version(), "version, commit, go, sqlite", false)
		}),
	}
}
