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
		Long: "Look at the settings, the keyring, every backend with its indexes, Redis, organizations that are being moved, and\n" +
			"whether the data of each organization is whole: that reads all of it, and --quick leaves it out.\n" +
			"It changes nothing, and fails where something is wrong.",
	}
	quick := false
	cmd.Flags().BoolVar(&quick, "quick", false, "do not read the data of the organizations")
	cmd.RunE = run(func(ctx context.Context, _ []string) error {
		return p.with(ctx, how{command: name(cmd)}, func(ctx context.Context, c *control.Client) error {
			found, err := c.Diagnose(ctx)
			if err == nil && !quick {
				err = p.diagnoseEach(ctx, c, &found)
			}
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

// diagnoseEach adds what is found in the organizations themselves.
func (p *program) diagnoseEach(ctx context.Context, c *control.Client, found *control.List[control.Finding]) error {
	organizations, documents, wrong := 0, int64(0), 0
	for after := ""; ; {
		some, err := c.DiagnoseEach(ctx, after)
		if err != nil {
			return err
		}
		organizations, documents, wrong = organizations+some.Organizations, documents+some.Documents, wrong+len(some.Items)
		found.Items = append(found.Items, some.Items...)
		if after = some.Next; after == "" {
			break
		}
		fmt.Fprintf(p.stderr, "read organizations up to %s: %d, with something to mend: %d\n", after, organizations, wrong)
	}
	if wrong == 0 {
		found.Items = append(found.Items, control.Finding{What: "data", Verdict: control.Good,
			Says: fmt.Sprintf("every organization (%d) is whole and opens with the keyring; documents: %d", organizations, documents)})
	}
	return nil
}
