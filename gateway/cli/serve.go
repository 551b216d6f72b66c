package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/handover"
	"tenantry/tenants/redisconn"
)

func (p *program) serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "serve", Short: "Run the gateway", Args: noArgs,
		Long: "Run the gateway until SIGINT or SIGTERM; running requests are finished first. SIGHUP reads settings again.\n" +
			"The gateway starts only on an existing installation, because a data folder that is mistyped or not mounted would\n" +
			"otherwise become a new one. --init creates an installation if there is none. --takeover replaces the server that\n" +
			"uses the data folder, such as after an upgrade of the program: its clients wait for a moment, and none is refused.\n\n" +
			"Settings come from the file of --config, from TENANTRY_ variables (TENANTRY_LOG__LEVEL is log.level) and from flags;\n" +
			"variables override the file, and flags override both. The sockets of systemd override the addresses.",
		Example: "  tenantry serve --init --data /srv/tenantry\n" +
			"  tenantry serve --config /etc/tenantry/settings.yaml\n" +
			"  tenantry serve --config /etc/tenantry/settings.yaml --takeover",
	}
	flags := cmd.Flags()
	flags.String("listen", "", "the `address` of the gateway; port 0 picks one (default \"127.0.0.1:8080\")")
	flags.String("admin-listen", "",
		"the `address` of health, metrics and profiles; empty switches it off (default \"127.0.0.1:9090\")")
	init := flags.Bool("init", false, "create an installation if there is none, which is an error otherwise")
	takeover := flags.Bool("takeover", false, "take over from the server that uses the data folder, if there is one")
	printConfig := flags.Bool("print-config", false, "print the settings in force, without secrets, and exit")
	cmd.RunE = p.run(func(ctx context.Context, _ []string) error {
		sockets, err := handover.Activated(p.environ)
		if err != nil {
			return err
		}
		defer func() { _ = sockets.Close() }()
		given := map[string]string{}
		for _, name := range []string{"listen", "admin-listen"} {
			if flags.Changed(name) {
				given[strings.ReplaceAll(name, "-", "_")] = cmd.Flag(name).Value.String()
			}
		}
		for name, socket := range sockets { // so that the checks of addresses apply to them
			given[map[string]string{handover.HTTP: "listen", handover.Admin: "admin_listen"}[name]] = socket.Address
		}
		cfg, err := p.load(given)
		if err != nil {
			return err
		}
		if *printConfig {
			return p.printConfig(cfg)
		}
		defer runtime.KeepAlive(applyMemory(cfg.Memory))
		p.signals.serving.Store(true)
		return p.runGateway(ctx, service{
			cfg: cfg,
			options: gateway.Options{
				Holder: "tenantry serve", Init: *init, Inherited: handover.Estate{Sockets: sockets},
			},
			takeover: *takeover,
			reload:   func() (config.Config, error) { return p.load(given) },
			ready: func(_ context.Context, app *gateway.App) error {
				if app.Made() {
					p.noteNewInstallation(cfg)
				}
				line := "tenantry is ready on http://" + app.Addr().String()
				if a := app.AdminAddr(); a != nil {
					line += " (operations on http://" + a.String() + ")"
				}
				fmt.Fprintln(p.stdout, line)
				return nil
			},
		})
	})
	return cmd
}

func (p *program) printConfig(cfg config.Config) error {
	enc := yaml.NewEncoder(p.stdout)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(cfg), enc.Close()); err != nil {
		return fmt.Errorf("printing the settings: %w", err)
	}
	return nil
}

// applyMemory applies the memory settings to the process. The caller must keep the returned ballast alive: it counts as
// heap, so garbage is collected less often, but it is never written and so takes no physical memory.
func applyMemory(c config.Memory) []byte {
	if c.Limit > 0 {
		debug.SetMemoryLimit(int64(c.Limit+c.Garbage) << 20)
	}
	if os.Getenv("GOGC") != "" || c.Garbage == 0 {
		return nil
	}
	return make([]byte, c.Garbage<<20)
}

// Setup configures the process, once, before Main: messages that the Redis client logs itself become warnings in the
// format of the log.
func Setup(stderr io.Writer) { redisconn.LogTo(slog.New(slog.NewJSONHandler(stderr, nil))) }
