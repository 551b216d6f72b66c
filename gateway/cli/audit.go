package cli

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tenantry/gateway/control"
)

func (p *program) auditCommand() *cobra.Command {
	var page control.Page
	cmd := &cobra.Command{
		Use: "audit --org SLUG", Short: "Show the audit log of an organization, the latest first", Args: cobra.NoArgs,
		Long: "Show the audit log of an organization, the latest first: who did what, to which record, from which address, and how it ended.\n" +
			"Subjects are key:ID, user:NUMBER, anonymous, or the command line.",
	}
	pageFlags(cmd, &page)
	cmd.RunE = run(func(ctx context.Context, _ []string) error {
		return p.withOrg(ctx, how{command: name(cmd)}, page.Org, func(ctx context.Context, c *control.Client) error {
			found, err := c.ListAudit(ctx, page)
			if err != nil {
				return err
			}
			p.more(found.More, page, len(found.Items))
			return p.print(found.Items, func() grid {
				g := grid{header: []string{"AT", "OPERATION", "SUBJECT", "ACCOUNT", "ADDRESS", "OUTCOME", "FACTS"}}
				for _, r := range found.Items {
					var facts []string
					for _, fact := range slices.Sorted(maps.Keys(r.Facts)) {
						facts = append(facts, fact+"="+r.Facts[fact])
					}
					g.add(moment(&r.At), r.Operation, r.Subject, cmp.Or(r.Account, "-"), cmp.Or(r.Address, "-"), r.Outcome, strings.Join(facts, " "))
				}
				return g
			})
		})
	})
	return cmd
}
