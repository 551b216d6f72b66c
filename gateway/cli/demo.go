package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/demo"
)

func (p *program) demoCommand() *cobra.Command {
	cfg := config.Default()
	cmd := &cobra.Command{
		Use: "demo", Short: "Run the gateway with an example organization, until Ctrl-C", Args: noArgs,
		Long: "Run the gateway with the example organization acme on a temporary data folder, which is deleted at the end,\n" +
			"and print the addresses and credentials to try it with. Configuration and environment are not read.",
	}
	flags := cmd.Flags()
	flags.StringVar(&cfg.Listen, "listen", cfg.Listen, "the `address` of the gateway")
	flags.StringVar(&cfg.AdminListen, "admin-listen", cfg.AdminListen, "the `address` of health, metrics and profiles")
	cmd.RunE = p.run(func(ctx context.Context, _ []string) error {
		if p.data != "" || p.configFile != "" {
			return usagef("demo has a data folder and settings of its own; --data and --config are for tenantry serve")
		}
		if !flags.Changed("listen") {
			cfg.Listen = p.freeAddress(ctx, cfg.Listen)
		}
		if !flags.Changed("admin-listen") {
			cfg.AdminListen = p.freeAddress(ctx, cfg.AdminListen)
		}
		cfg.Log = config.Log{Level: "warn", Format: "text"}
		return p.demo(ctx, cfg)
	})
	return cmd
}

// freeAddress returns the address, or the same host with port 0 if the port is taken.
func (p *program) freeAddress(ctx context.Context, address string) string {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err == nil {
		_ = l.Close() // nothing was accepted on it
		return address
	}
	p.note("%s is taken; using another port.", address)
	host, _, _ := net.SplitHostPort(address)
	return net.JoinHostPort(host, "0")
}

func (p *program) demo(ctx context.Context, cfg config.Config) (err error) {
	if cfg.Data, err = os.MkdirTemp("", "tenantry-demo-"); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(cfg.Data)) }()
	ready := func(ctx context.Context, app *gateway.App) error {
		tour, err := demo.Begin(ctx, app.Commands())
		if err != nil {
			return fmt.Errorf("demo: %w", err)
		}
		_, port, _ := net.SplitHostPort(app.Addr().String())
		tour.BaseURL = cfg.OrganizationURL(demo.Slug, port)
		tour.SignIn.URL = tour.BaseURL + "/sign-in"
		tour.SignIn.Link, err = app.SignInLink(ctx, demo.Slug, tour.SignIn.Email, tour.BaseURL, linkLifetime)
		if err == nil {
			err = app.PutUsage(ctx, demo.Slug, demo.Usage(time.Now()))
		}
		if err == nil {
			err = tour.FindReports(ctx, app.Addr().String())
		}
		if err == nil {
			err = p.showTour(tour)
		}
		return err
	}
	return p.runGateway(ctx, service{
		cfg: cfg, options: gateway.Options{Holder: "tenantry demo", Init: true}, ready: ready,
	})
}

// linkLifetime is how long the sign-in link of the demo works: a working day, because people return to it.
const linkLifetime = 12 * time.Hour

func (p *program) showTour(t *demo.Tour) error {
	if p.output == outputJSON {
		return p.print(t, "", false)
	}
	auth := fmt.Sprintf("-H 'x-service-token: %s'", t.Key)
	_, err := fmt.Fprintf(p.stdout, `Tenantry runs with the example organization %[1]s. Ctrl-C ends it and deletes its data.

  Open           %[14]s
                 signs in once; later %[4]s
                 as %[5]s with the password %[6]s
  Address        %[2]s
  API key        %[3]s
  Shared report  %[7]s
  Open report    %[8]s

Read a folder with its children:
  curl -s %[9]s '%[2]s/api/files/folders/%[10]s'
Read a custom report:
  curl -s %[9]s '%[2]s/api/custom-reports/%[11]s'
Count the contacts in Germany over 30:
  curl -s -G %[9]s --data-urlencode 'filters[country]=DE' --data-urlencode 'filters[age][gt]=30' '%[2]s/api/campaigns/count'
Reveal an encrypted field of a contact:
  curl -s -G %[9]s -d field=%[12]s '%[2]s/api/contacts/%[13]s/reveal-secret'
Create a custom object:
  curl -s %[9]s -H 'Content-Type: application/json' -d '{"name": "wheel", "label": "Wheel", "label_plural": "Wheels", "schema": {"size": {"title": "Size", "type": "Number"}}}' '%[2]s/api/custom/objects'
`, demo.Slug, t.BaseURL, t.Key, t.SignIn.URL, t.SignIn.Email, t.SignIn.Password, t.SharedReport, t.OpenReport,
		auth, demo.FolderID, demo.PlainReportID, demo.SecretField, demo.ContactID, t.SignIn.Link)
	if err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}
