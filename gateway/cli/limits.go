package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"tenantry/gateway/control"
)

const howLimits = "A limit is written like 100/s, 6000/m, 20000/h or 100000/d, off where there shall be none, or default.\n" +
	"Without a flag that changes something the limits that hold are shown."

func (p *program) orgLimits() *cobra.Command {
	var rate, quota, keyRate, keyQuota string
	change := control.LimitsChange{}
	cmd := &cobra.Command{
		Use: "limits SLUG", Short: "Show or set how many requests an organization and its keys may send",
		Args:    oneArg("the organization's slug"),
		Long:    "Show or set how many requests an organization may send, and each of its keys that has no limits of its own.\n\n" + howLimits,
		Example: "  tenantry org limits acme --rate 100/s --quota 100000/d --key-rate 20/s",
	}
	flags := cmd.Flags()
	flags.StringVar(&rate, "rate", "", "the `limit` of the whole organization against bursts")
	flags.StringVar(&quota, "quota", "", "the `limit` of the whole organization over a longer period")
	flags.StringVar(&keyRate, "key-rate", "", "the `limit` of each key, and of each person, against bursts")
	flags.StringVar(&keyQuota, "key-quota", "", "the `limit` of each key, and of each person, over a longer period")
	flags.BoolVar(&change.Reset, "reset", false, "begin with the defaults again")
	cmd.RunE = run(func(ctx context.Context, args []string) error {
		change.Org = args[0]
		change.Rate, change.Quota = given(cmd, "rate", &rate), given(cmd, "quota", &quota)
		change.KeyRate, change.KeyQuota = given(cmd, "key-rate", &keyRate), given(cmd, "key-quota", &keyQuota)
		return p.with(ctx, how{command: name(cmd)}, func(ctx context.Context, c *control.Client) error {
			held, err := c.LimitOrganization(ctx, change)
			if err != nil {
				return err
			}
			return p.print(held, func() grid {
				g := grid{}
				for _, row := range [][2]string{{"rate", held.Rate}, {"quota", held.Quota}, {"key_rate", held.KeyRate}, {"key_quota", held.KeyQuota}} {
					g.add(row[0], row[1], whose(held.Own, row[0]))
				}
				return g
			})
		})
	})
	return cmd
}

func (p *program) keyLimits() *cobra.Command {
	var rate, quota string
	change := control.LimitsChange{}
	cmd := &cobra.Command{
		Use: "limits ID --org SLUG", Short: "Show or set how many requests an API key may send", Args: oneArg("the key's identifier"),
		Long: "Show or set how many requests an API key may send.\n\n" + howLimits,
	}
	orgFlag(cmd, &change.Org)
	flags := cmd.Flags()
	flags.StringVar(&rate, "rate", "", "the `limit` against bursts")
	flags.StringVar(&quota, "quota", "", "the `limit` over a longer period")
	flags.BoolVar(&change.Reset, "reset", false, "begin with the organization's limits for keys again")
	cmd.RunE = run(func(ctx context.Context, args []string) error {
		change.Key = args[0]
		change.Rate, change.Quota = given(cmd, "rate", &rate), given(cmd, "quota", &quota)
		return p.withOrg(ctx, how{command: name(cmd)}, change.Org, func(ctx context.Context, c *control.Client) error {
			held, err := c.LimitKey(ctx, change)
			if err != nil {
				return err
			}
			return p.print(held, func() grid {
				g := grid{rows: [][]string{{"id", held.ID}, {"name", held.Name}}}
				g.add("rate", held.Rate, whose(held.Own, "rate"))
				g.add("quota", held.Quota, whose(held.Own, "quota"))
				return g
			})
		})
	})
	return cmd
}

// given returns the value of a flag that was set, else nil.
func given(cmd *cobra.Command, flag string, value *string) *string {
	if cmd.Flags().Changed(flag) {
		return value
	}
	return nil
}

func whose(own []string, limit string) string {
	if slices.Contains(own, limit) {
		return "own"
	}
	return "default"
}
