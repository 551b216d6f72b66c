package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/logging"
	"tenantry/tenants/redisconn"
)

func (p *program) serveCommand() *cobra.Command {
	var listen, adminListen string
	printConfig := false
	cmd := &cobra.Command{
		Use: "serve", Short: "Run the gateway", Args: cobra.NoArgs,
		Long: "Run the gateway until it is told to stop (SIGINT or SIGTERM); running requests are finished first.\n\n" +
			"Settings come from the file of --config, from TENANTRY_ variables (TENANTRY_LOG__LEVEL is log.level) and from flags, the later over the earlier.",
	}
	flags := cmd.Flags()
	flags.StringVar(&listen, "listen", "", "the `address` of the gateway; port 0 picks one (default \"127.0.0.1:8080\")")
	flags.StringVar(&adminListen, "admin-listen", "", "the `address` of health, metrics and profiles; empty switches it off (default \"127.0.0.1:9090\")")
	flags.BoolVar(&printConfig, "print-config", false, "print the settings in force, without secrets, and end")
	cmd.RunE = p.run(func(ctx context.Context, _ []string) error {
		given := map[string]string{}
		if flags.Changed("listen") {
			given["listen"] = listen
		}
		if flags.Changed("admin-listen") {
			given["admin_listen"] = adminListen
		}
		cfg, err := p.load(given)
		if err != nil {
			return err
		}
		if printConfig {
			return p.printConfig(cfg)
		}
		return p.serve(ctx, cfg)
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

func (p *program) serve(ctx context.Context, cfg config.Config) error {
	log, written := logging.New(p.stderr, cfg.Log)
	defer func() { _ = written.Close() }() // a log that cannot be written has nobody to tell
	_, missing := os.Stat(cfg.Data)
	app, err := p.start(ctx, cfg, log)
	if err != nil {
		return opening(cfg, err)
	}
	if errors.Is(missing, fs.ErrNotExist) && !cfg.Shared() {
		p.began(cfg)
	}
	line := "tenantry is ready on http://" + app.Addr().String()
	if a := app.AdminAddr(); a != nil {
		line += " (operations on http://" + a.String() + ")"
	}
	fmt.Fprintln(p.stdout, line)
	defer runtime.KeepAlive(collectRarely(cfg.Memory))
	return errors.Join(app.Run(ctx), app.Close()) //nolint:contextcheck // it ends after ctx
}

// collectRarely applies the settings to the process. What it returns must be kept: Go collects once the
// heap has doubled, and this is memory that counts as heap, is never touched and so takes no room.
func collectRarely(c config.Memory) []byte {
	if c.Limit > 0 {
		debug.SetMemoryLimit(int64(c.Limit+c.Garbage) << 20)
	}
	if os.Getenv("GOGC") != "" || c.Garbage == 0 {
		return nil
	}
	return make([]byte, c.Garbage<<20)
}

// storeWait is how long the server waits at its start for a database server that may be
// starting beside it.
const storeWait = 30 * time.Second

// start waits for short commands that use the data folder, not for another server.
func (p *program) start(ctx context.Context, cfg config.Config, log *slog.Logger) (*gateway.App, error) {
	options := gateway.Options{Log: log, Version: version().Version, Holder: "tenantry serve", WaitForStore: storeWait}
	return whileInUse(ctx, func() (*gateway.App, error) { return gateway.New(ctx, cfg, options) }, func(h gateway.Holder) bool { return h.Control == "" })
}

// Setup does what concerns the whole process, once, before Main: what the Redis client says
// by itself becomes warnings in the form of the log.
func Setup(stderr io.Writer) { redisconn.LogTo(slog.New(slog.NewJSONHandler(stderr, nil))) }
