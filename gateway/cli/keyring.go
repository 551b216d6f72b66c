package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"tenantry/gateway/control"
)

func (p *program) keyringCommand() *cobra.Command {
	return group("keyring", "List, rotate and retire encryption keys", p.keyringList(), p.keyringRotate(), p.keyringRetire())
}

func (p *program) keyringList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List encryption keys, by version", Args: cobra.NoArgs}
	cmd.RunE = run(func(ctx context.Context, _ []string) error {
		return p.with(ctx, how{command: name(cmd)}, func(ctx context.Context, c *control.Client) error {
			found, err := c.ListKeyring(ctx)
			if err != nil {
				return err
			}
			return p.print(found.Items, func() grid {
				g := grid{header: []string{"VERSION", "STATE", "CREATED"}}
				for _, k := range found.Items {
					g.add(strconv.Itoa(k.Version), k.State, moment(&k.CreatedAt))
				}
				return g
			})
		})
	})
	return cmd
}

func (p *program) keyringRotate() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rotate", Short: "Make a new primary encryption key and wrap all data keys under it", Args: cobra.NoArgs,
		Long: "Make a new primary encryption key and wrap all data keys under it. The data itself does not change.\n" +
			"Back up the keyring afterwards; without it encrypted values are lost.",
	}
	cmd.RunE = run(func(ctx context.Context, _ []string) error {
		return p.with(ctx, how{command: name(cmd)}, func(ctx context.Context, c *control.Client) error {
			r, err := c.RotateKeyring(ctx)
			if err != nil {
				return err
			}
			p.note("Back up the keyring: without it encrypted values are lost.")
			return p.print(r, func() grid {
				return grid{rows: [][]string{{"version", strconv.Itoa(r.Version)}, {"data keys wrapped anew", strconv.Itoa(r.Rewrapped)}}}
			})
		})
	})
	return cmd
}

func (p *program) keyringRetire() *cobra.Command {
	cmd := &cobra.Command{
		Use: "retire VERSION", Short: "Take a former encryption key out of use", Args: oneArg("the version"),
		Long: "Take a former encryption key out of use. Data keys still wrapped under it are wrapped under the primary first.\n" +
			"Backups from before then need the retired version.",
	}
	cmd.RunE = run(func(ctx context.Context, args []string) error {
		version, err := strconv.Atoi(args[0])
		if err != nil || version < 1 {
			return usagef("%q is no version; tenantry keyring list shows them", args[0])
		}
		return p.with(ctx, how{command: name(cmd)}, func(ctx context.Context, c *control.Client) error {
			r, err := c.RetireFromKeyring(ctx, version)
			if err != nil {
				return err
			}
			return p.print(map[string]any{"version": r.Version, "state": "retired"}, func() grid {
				return grid{rows: [][]string{{"version", strconv.Itoa(r.Version)}, {"state", "retired"}}}
			})
		})
	})
	return cmd
}
