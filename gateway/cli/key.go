package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"tenantry/gateway/control"
)

func (p *program) keyCommand() *cobra.Command {
	return group("key", "Make and end API keys", p.keyCreate(), p.keyList(), p.keyLimits(), p.keyRevoke(), p.keyRotate())
}

func (p *program) keyCreate() *cobra.Command {
	var n control.NewKey
	cmd := &cobra.Command{
		Use: "create --org SLUG --name NAME --kind KIND", Short: "Make an API key; its token is printed this once", Args: cobra.NoArgs,
		Long: "Make an API key and print {\"id\", \"token\", \"kind\", \"account\", \"expires_at\"}. The token cannot be had again.\n\n" +
			"Kinds: server_full (server only, full API), server_read (server only, reading), browser (from its origins, marked operations).",
		Example: "  tenantry key create --org acme --name crm --kind server_full --permission contacts,manage_forms --expires 720h",
	}
	orgFlag(cmd, &n.Org)
	flags := cmd.Flags()
	flags.StringVar(&n.Name, "name", "", "the key's `name`")
	flags.StringVar(&n.Kind, "kind", "", "the key's `kind`: server_full, server_read or browser")
	flags.StringVar(&n.Account, "account", "", "the service `account` it belongs to (default the one of the key's name, made where there is none)")
	flags.StringSliceVar(&n.Permissions, "permission", nil, "a `permission`: of a new account, or what the key of an existing one is narrowed to")
	flags.StringSliceVar(&n.Teams, "team", nil, "the `id` of a team the key is narrowed to; may be repeated")
	flags.DurationVar(&n.Expires, "expires", 0, "how long it lasts, such as 720h (default until it is revoked)")
	flags.StringSliceVar(&n.AllowIPs, "allow-ip", nil, "a network it may be used from, such as 192.0.2.0/24; may be repeated")
	flags.StringSliceVar(&n.Origins, "origin", nil, "a web `origin` a browser key may be used from; may be repeated")
	flags.StringVar(&n.Rate, "rate", "", "the `limit` of its requests against bursts, such as 20/s (default the organization's for keys)")
	flags.StringVar(&n.Quota, "quota", "", "the `limit` of its requests over a longer period, such as 100000/d (default the organization's for keys)")
	required(cmd, "name", "kind")
	cmd.RunE = run(func(ctx context.Context, _ []string) error {
		if flags.Changed("expires") && n.Expires < time.Second {
			return usagef("--expires %s: it must be at least 1s", n.Expires)
		}
		return p.withOrg(ctx, how{command: name(cmd)}, n.Org, func(ctx context.Context, c *control.Client) error {
			made, err := c.CreateKey(ctx, n)
			if err != nil {
				return err
			}
			for _, text := range made.Notes {
				p.note("Note: %s", text)
			}
			return p.printIssued(made.Key)
		})
	})
	return cmd
}

func (p *program) printIssued(k control.IssuedKey) error {
	return p.print(k, func() grid {
		return grid{rows: [][]string{
			{"id", k.ID}, {"token", k.Token}, {"kind", k.Kind}, {"account", k.Account}, {"expires", moment(k.ExpiresAt)},
		}}
	})
}

func (p *program) keyList() *cobra.Command {
	var page control.Page
	cmd := &cobra.Command{Use: "list --org SLUG", Short: "List API keys, the oldest first", Args: cobra.NoArgs}
	pageFlags(cmd, &page)
	cmd.RunE = run(func(ctx context.Context, _ []string) error {
		return p.withOrg(ctx, how{command: name(cmd)}, page.Org, func(ctx context.Context, c *control.Client) error {
			found, err := c.ListKeys(ctx, page)
			if err != nil {
				return err
			}
			p.more(found.More, page, len(found.Items))
			return p.print(found.Items, func() grid {
				g := grid{header: []string{"ID", "NAME", "KIND", "ACCOUNT", "BEGINS", "STATE", "PERMISSIONS", "EXPIRES", "LAST USED"}}
				for _, k := range found.Items {
					g.add(k.ID, k.Name, k.Kind, k.Account, k.Hint, k.State, words(k.Effective), moment(k.ExpiresAt), moment(k.LastUsedAt))
				}
				return g
			})
		})
	})
	return cmd
}

func (p *program) keyRevoke() *cobra.Command {
	var ref control.KeyRef
	cmd := &cobra.Command{Use: "revoke ID --org SLUG", Short: "End an API key at once", Args: oneArg("the key's identifier")}
	orgFlag(cmd, &ref.Org)
	cmd.RunE = run(func(ctx context.Context, args []string) error {
		ref.ID = args[0]
		return p.withOrg(ctx, how{command: name(cmd)}, ref.Org, func(ctx context.Context, c *control.Client) error {
			k, err := c.RevokeKey(ctx, ref)
			if err != nil {
				return err
			}
			return p.print(k, func() grid {
				return grid{rows: [][]string{{"id", k.ID}, {"name", k.Name}, {"state", k.State}, {"revoked", moment(k.RevokedAt)}}}
			})
		})
	})
	return cmd
}

func (p *program) keyRotate() *cobra.Command {
	var ref control.KeyRef
	cmd := &cobra.Command{
		Use: "rotate ID --org SLUG", Short: "Make a successor of an API key; the old key ends, with --overlap later",
		Args: oneArg("the key's identifier"),
	}
	orgFlag(cmd, &ref.Org)
	cmd.Flags().DurationVar(&ref.Overlap, "overlap", 0, "how long the old key goes on, such as 24h (default not at all)")
	cmd.RunE = run(func(ctx context.Context, args []string) error {
		if ref.Overlap < 0 {
			return usagef("--overlap %s: it must not be negative", ref.Overlap)
		}
		ref.ID = args[0]
		return p.withOrg(ctx, how{command: name(cmd)}, ref.Org, func(ctx context.Context, c *control.Client) error {
			k, err := c.RotateKey(ctx, ref)
			if err != nil {
				return err
			}
			p.notes(k.Notes)
			return p.printIssued(k)
		})
	})
	return cmd
}
