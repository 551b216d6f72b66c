package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"tenantry/gateway/control"
	"tenantry/tenants"
)

func (p *program) orgCommand() *cobra.Command {
	return group("org", "Make and change organizations",
		p.orgCreate(), p.orgList(), p.orgShow(), p.orgUpdate(), p.orgLimits(),
		p.orgState("suspend", "Make an organization answer nobody; its data stays", (*control.Client).SuspendOrganization),
		p.orgState("resume", "End the suspension of an organization", (*control.Client).ResumeOrganization),
		p.orgMove(), p.orgDelete())
}

// orgFlags are the flags that say what an organization shall be.
type orgFlags struct {
	slug, name string
	features   []string
	settings   []string
	limits     []string
	providers  []string
}

func (f *orgFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.name, "name", "", "the `name` people read")
	flags.StringSliceVar(&f.features, "feature", nil, "a feature to switch on, or off with `NAME=false`: teams")
	flags.StringSliceVar(&f.settings, "setting", nil, "a setting, `NAME=true or false`: "+strings.Join(tenants.AllSettings(), ", "))
	flags.StringSliceVar(&f.limits, "limit", nil, "a limit, `NAME=NUMBER`: folder_children")
	flags.StringSliceVar(&f.providers, "provider", nil, "a report provider that shared reports may be asked from")
}

func (f *orgFlags) change(cmd *cobra.Command) (control.OrganizationChange, error) {
	c := control.OrganizationChange{Slug: f.slug, Features: map[string]bool{}, Settings: map[string]bool{}, Limits: map[string]int64{}}
	if cmd.Flags().Changed("name") {
		c.Name = &f.name
	}
	if cmd.Flags().Changed("provider") {
		c.Providers = &f.providers
	}
	for _, text := range f.features {
		name, value, given := strings.Cut(text, "=")
		on, err := strconv.ParseBool(value)
		if !given {
			on, err = true, nil
		}
		if err != nil {
			return c, usagef("--feature %s: write NAME, or NAME=false", text)
		}
		c.Features[name] = on
	}
	for _, text := range f.settings {
		name, value, _ := strings.Cut(text, "=")
		on, err := strconv.ParseBool(value)
		if err != nil {
			return c, usagef("--setting %s: write NAME=true or NAME=false", text)
		}
		c.Settings[name] = on
	}
	for _, text := range f.limits {
		name, value, _ := strings.Cut(text, "=")
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return c, usagef("--limit %s: write NAME=NUMBER", text)
		}
		c.Limits[name] = n
	}
	return c, nil
}

func (p *program) orgCreate() *cobra.Command {
	var f orgFlags
	cmd := &cobra.Command{
		Use: "create --slug SLUG --name NAME", Short: "Make an organization", Args: cobra.NoArgs,
		Example: "  tenantry org create --slug acme --name \"Acme Ltd\" --feature teams --limit folder_children=2000",
	}
	f.add(cmd)
	backend := ""
	cmd.Flags().StringVar(&backend, "backend", "", "the `name` of the backend for its documents (default the setting store)")
	cmd.Flags().StringVar(&f.slug, "slug", "", "the first `label` of its host name; it can never be changed or used again")
	required(cmd, "slug", "name")
	cmd.RunE = run(func(ctx context.Context, _ []string) error {
		change, err := f.change(cmd)
		if err != nil {
			return err
		}
		change.Backend = backend
		return p.with(ctx, how{command: name(cmd), begins: true}, func(ctx context.Context, c *control.Client) error {
			o, err := c.CreateOrganization(ctx, change)
			if err != nil {
				return err
			}
			return p.printOrg(o)
		})
	})
	return cmd
}

// required marks flags without which a command is wrong usage.
func required(cmd *cobra.Command, names ...string) {
	for _, n := range names {
		_ = cmd.MarkFlagRequired(n) // fails only for a flag that is not there
	}
}

func (p *program) orgList() *cobra.Command {
	var page control.OrganizationPage
	cmd := &cobra.Command{Use: "list", Short: "List organizations, by slug", Args: cobra.NoArgs}
	cmd.Flags().StringVar(&page.After, "after", "", "begin after this `slug`")
	cmd.Flags().IntVar(&page.Limit, "limit", 100, "at most `n`")
	cmd.RunE = run(func(ctx context.Context, _ []string) error {
		return p.with(ctx, how{command: name(cmd)}, func(ctx context.Context, c *control.Client) error {
			found, err := c.ListOrganizations(ctx, page)
			if err != nil {
				return err
			}
			err = p.print(found.Items, func() grid {
				g := grid{header: []string{"ID", "SLUG", "NAME", "STATE", "FEATURES", "URL"}}
				for _, o := range found.Items {
					g.add(strconv.FormatInt(o.ID, 10), o.Slug, o.Name, o.State, words(on(o.Features)), o.URL)
				}
				return g
			})
			if found.More {
				p.note("There are more; go on with --after %s", found.Items[len(found.Items)-1].Slug)
			}
			return err
		})
	})
	return cmd
}

// on returns the names that are true.
func on(m map[string]bool) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(m)), func(name string) bool { return !m[name] })
}

func (p *program) orgShow() *cobra.Command {
	cmd := &cobra.Command{Use: "show SLUG", Short: "Show an organization", Args: oneArg("the organization's slug")}
	cmd.RunE = run(func(ctx context.Context, args []string) error {
		return p.with(ctx, how{command: name(cmd)}, func(ctx context.Context, c *control.Client) error {
			o, err := c.ShowOrganization(ctx, args[0])
			if err != nil {
				return err
			}
			return p.printOrg(o)
		})
	})
	return cmd
}

func (p *program) printOrg(o control.Organization) error {
	return p.print(o, func() grid {
		g := grid{}
		g.add("id", strconv.FormatInt(o.ID, 10))
		g.add("slug", o.Slug)
		g.add("name", o.Name)
		g.add("state", o.State)
		g.add("features", words(on(o.Features)))
		g.add("settings", words(on(o.Settings)))
		var limits []string
		for _, name := range slices.Sorted(maps.Keys(o.Limits)) {
			limits = append(limits, fmt.Sprintf("%s=%d", name, o.Limits[name]))
		}
		g.add("limits", words(limits))
		g.add("providers", words(o.Providers))
		g.add("backend", o.Backend)
		if o.Move != nil {
			g.add("moving to", fmt.Sprintf("%s (%s, since %s)", o.Move.To, o.Move.Phase, moment(&o.Move.Began)))
		}
		if o.OldCopy != "" {
			g.add("old copy on", o.OldCopy)
		}
		g.add("url", o.URL)
		g.add("created", moment(&o.CreatedAt))
		return g
	})
}

func (p *program) orgUpdate() *cobra.Command {
	var f orgFlags
	cmd := &cobra.Command{
		Use: "update SLUG", Short: "Change an organization; what no flag names stays as it is", Args: oneArg("the organization's slug"),
	}
	f.add(cmd)
	cmd.RunE = run(func(ctx context.Context, args []string) error {
		if !changesAny(cmd, "name", "feature", "setting", "limit", "provider") {
			return usagef("say what to change, with --name, --feature, --setting, --limit or --provider")
		}
		f.slug = args[0]
		change, err := f.change(cmd)
		if err != nil {
			return err
		}
		return p.with(ctx, how{command: name(cmd)}, func(ctx context.Context, c *control.Client) error {
			o, err := c.UpdateOrganization(ctx, change)
			if err != nil {
				return err
			}
			return p.printOrg(o)
		})
	})
	return cmd
}

func changesAny(cmd *cobra.Command, names ...string) bool {
	return slices.ContainsFunc(names, cmd.Flags().Changed)
}

func (p *program) orgState(verb, short string, do func(*control.Client, context.Context, string) (control.Organization, error)) *cobra.Command {
	cmd := &cobra.Command{Use: verb + " SLUG", Short: short, Args: oneArg("the organization's slug")}
	cmd.RunE = run(func(ctx context.Context, args []string) error {
		return p.with(ctx, how{command: name(cmd)}, func(ctx context.Context, c *control.Client) error {
			o, err := do(c, ctx, args[0])
			if err != nil {
				return err
			}
			return p.printOrg(o)
		})
	})
	return cmd
}

func (p *program) orgDelete() *cobra.Command {
	yes := false
	cmd := &cobra.Command{
		Use: "delete SLUG --yes", Short: "Delete an organization with its people, keys and documents, for good",
		Args: oneArg("the organization's slug"),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm that everything is to be deleted")
	cmd.RunE = run(func(ctx context.Context, args []string) error {
		if !yes {
			return usagef("this deletes everything %s has, for good, and its slug can never be used again; confirm with --yes", args[0])
		}
		return p.with(ctx, how{command: name(cmd)}, func(ctx context.Context, c *control.Client) error {
			gone, err := c.DeleteOrganization(ctx, args[0])
			if err != nil {
				return err
			}
			return p.print(map[string]any{"slug": gone.Slug, "deleted": true}, func() grid {
				return grid{rows: [][]string{{"deleted", gone.Slug}}}
			})
		})
	})
	return cmd
}
