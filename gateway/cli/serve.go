package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/logging"
	"tenantry/tenants/redisconn"
)

func (p *program) serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "serve", Short: "Run the gateway", Args: noArgs,
		Long: "Run the gateway until SIGINT or SIGTERM; running requests are finished first.\n" +
			"The gateway starts only on an existing installation, because a data folder that is mistyped or not mounted would\n" +
			"otherwise become a new one. --init creates an installation if there is none.\n\n" +
			"Settings come from the file of --config, from TENANTRY_ variables (TENANTRY_LOG__LEVEL is log.level) and from flags;\n" +
			"variables override the file, and flags override both.",
	}
	flags := cmd.Flags()
	flags.String("listen", "", "the `address` of the gateway; port 0 picks one (default \"127.0.0.1:8080\")")
	flags.String("admin-listen", "",
		"the `address` of health, metrics and profiles; empty switches it off (default \"127.0.0.1:9090\")")
	init := flags.Bool("init", false, "create an installation if there is none, which is an error otherwise")
	printConfig := flags.Bool("print-config", false, "print the settings in force, without secrets, and exit")
	cmd.RunE = p.run(func(ctx context.Context, _ []string) error {
		given := map[string]string{}
		for _, name := range []string{"listen", "admin-listen"} {
			if flags.Changed(name) {
				given[strings.ReplaceAll(name, "-", "_")] = cmd.Flag(name).Value.String()
			}
		}
		cfg, err := p.load(given)
		if err != nil {
			return err
		}
		if *printConfig {
			return p.printConfig(cfg)
		}
		defer runtime.KeepAlive(applyMemory(cfg.Memory))
		options := gateway.Options{Holder: "tenantry serve", Init: *init}
		return p.runGateway(ctx, cfg, options, func(_ context.Context, app *gateway.App) error {
			if app.Made() {
				p.noteNewInstallation(cfg)
			}
			line := "tenantry is ready on http://" + app.Addr().String()
			if a := app.AdminAddr(); a != nil {
				line += " (operations on http://" + a.String() + ")"
			}
			fmt.Fprintln(p.stdout, line)
			return nil
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

// storeWait bounds the wait at the start for a database server that may be starting at the same time.
const storeWait = 30 * time.Second

// runGateway runs the gateway until ctx ends. It calls ready once the gateway accepts connections, and stops if ready
// fails. It waits for other commands that use the data folder, but not for another server.
func (p *program) runGateway(
	ctx context.Context, cfg config.Config, options gateway.Options, ready func(context.Context, *gateway.App) error,
) error {
	log, written := logging.New(p.stderr, cfg.Log)
	defer func() { _ = written.Close() }() // a failure to write the log cannot be reported
	options.Log, options.Version, options.WaitForStore = log, version().Version, storeWait
	app, err := waitWhileInUse(ctx,
		func() (*gateway.App, error) { return gateway.New(ctx, cfg, options) },
		func(h gateway.Holder) bool { return h.Control == "" })
	if err != nil {
		return explainOpenError(cfg, err)
	}
	log.InfoContext(ctx, "the gateway is ready", "version", options.Version, "listen", app.Addr().String())
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- app.Run(running) }()
	if err = ready(running, app); err != nil {
		stop()
	}
	err = errors.Join(err, <-ended, app.Close()) //nolint:contextcheck // it ends after ctx
	log.InfoContext(ctx, "the gateway has ended", "cause", fmt.Sprint(cmp.Or(err, context.Cause(ctx))))
	return err
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
