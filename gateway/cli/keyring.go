package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"tenantry/crypto/sealing"
	"tenantry/gateway/control"
)

func (p *program) keyringCommand() *cobra.Command {
	return group("keyring", "List, rotate and retire encryption keys; make a key for transfers", p.keyringList(), p.keyringRotate(), p.keyringRetire(), p.keyringTransferKey())
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

func (p *program) keyringTransferKey() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use: "transfer-key --out FILE", Short: "Make a key under which encrypted values travel to another organization", Args: cobra.NoArgs,
		Long: "Make a key under which encrypted values travel to another organization. FILE gets the private half, readable by you alone:\n" +
			"make it where values are imported and keep it there. FILE.pub gets the public half, for tenantry export --secrets.",
	}
	cmd.Flags().StringVarP(&path, "out", "o", "", "the `file` of the private half, which must not be there")
	_ = cmd.MarkFlagRequired("out") // fails for flags that are not there
	cmd.RunE = run(func(context.Context, []string) error {
		key, err := sealing.NewPrivateKey()
		if err != nil {
			return err
		}
		if err := writeNew(path, key.Text().Reveal(), 0o600); err != nil {
			return err
		}
		if err := writeNew(path+".pub", key.Public().TransferText(), 0o644); err != nil {
			return errors.Join(err, os.Remove(path))
		}
		made := map[string]string{"private": path, "public": path + ".pub", "key_id": key.Public().KeyID()}
		return p.print(made, func() grid {
			return grid{rows: [][]string{{"private half", made["private"]}, {"public half", made["public"]}, {"key", made["key_id"]}}}
		})
	})
	return cmd
}

// writeNew writes a line into a file that must not be there.
func writeNew(path, line string, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return fmt.Errorf("keyring transfer-key: %w", err)
	}
	if _, err := f.WriteString(line + "\n"); err != nil {
		return errors.Join(fmt.Errorf("keyring transfer-key: %w", err), f.Close(), os.Remove(path))
	}
	return f.Close()
}
