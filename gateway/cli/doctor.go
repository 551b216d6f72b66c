package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"tenantry/gateway/control"
)

func (p *program) doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Short: "Look at everything the gateway depends on, and say what to mend", Args: cobra.NoArgs,
		Long: "Look at the settings, the keyring, every backend with its indexes, Redis, and organizations that are being moved.\n" +
			"It changes nothing, and fails where something is wrong.",
	}
	cmd.RunE = run(func(ctx context.Context, _ []string) error {
		return p.with(ctx, how{command: name(cmd)}, func(ctx context.Context, c *control.Client) error {
			found, err := c.Diagnose(ctx)
			if err != nil {
				return err
			}
			wrong := 0
			for _, f := range found.Items {
				if f.Verdict == control.Wrong {
					wrong++
				}
			}
			err = p.print(found.Items, func() grid {
				g := grid{header: []string{"WHAT", "VERDICT", "SAYS"}}
				for _, f := range found.Items {
					says := f.Says
					if f.Advice != "" {
						says += "; " + f.Advice
					}
					g.add(f.What, string(f.Verdict), says)
				}
				return g
			})
			if err == nil && wrong > 0 {
				err = fmt.Errorf("doctor looked at %d things; wrong: %d", len(found.Items), wrong)
			}
			return err
		})
	})
	return cmd
}
