package cli

import (
	"context"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"tenantry/config"
)

// Build tells which program this is.
type Build struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
	SQLite  string `json:"sqlite"`
}

func version() Build {
	b := Build{Version: "devel", Commit: "unknown", Go: runtime.Version(), SQLite: config.Engines()[config.EngineSQLite].Version}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	dirty := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			dirty = s.Value == "true"
		}
	}
	if dirty {
		b.Commit += "-modified"
	}
	return b
}

func (p *program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the version, commit, Go and SQLite of this program", Args: cobra.NoArgs,
		RunE: p.run(func(context.Context, []string) error {
			b := version()
			return p.print(b, grid{{"version", b.Version}, {"commit", b.Commit}, {"go", b.Go}, {"sqlite", b.SQLite}})
		}),
	}
}
