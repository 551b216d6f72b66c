package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"tenantry/gateway/control"
)

// groupKind are the commands of service accounts, roles or teams, which have five each.
type groupKind[T control.Account | control.Role | control.Team] struct {
	name, short, one string
	flags            []string // of create and update, besides name
	header           []string
	row              func(T) []string
}

func (p *program) accountCommand() *cobra.Command {
	return groupKind[control.Account]{
		name: "account", short: "Make and change service accounts, which own API keys", one: "a service account",
		flags: []string{"permission", "team", "active"}, header: []string{"ID", "NAME", "PERMISSIONS", "TEAMS", "ACTIVE"},
		row: func(a control.Account) []string {
			return []string{a.ID, a.Name, words(a.Permissions), words(a.Teams), yesNo(a.Active)}
		},
	}.command(p)
}

func (p *program) roleCommand() *cobra.Command {
	return groupKind[control.Role]{
		name: "role", short: "Make and change roles, which people hold", one: "a role",
		flags: []string{"label", "permission"}, header: []string{"NAME", "LABEL", "PERMISSIONS"},
		row: func(r control.Role) []string { return []string{r.Name, r.Label, words(r.Permissions)} },
	}.command(p)
}

func (p *program) teamCommand() *cobra.Command {
	return groupKind[control.Team]{
		name: "team", short: "Make and change teams", one: "a team", header: []string{"ID", "NAME"},
		row: func(t control.Team) []string { return []string{t.ID, t.Name} },
	}.command(p)
}

// groupFlags are the flags that say what it shall be.
type groupFlags struct {
	org, name, label   string
	permissions, teams []string
	active             bool
}

func (k groupKind[T]) addFlags(cmd *cobra.Command, f *groupFlags) {
	orgFlag(cmd, &f.org)
	flags := cmd.Flags()
	for _, name := range k.flags {
		switch name {
		case "label":
			flags.StringVar(&f.label, "label", "", "the `label` people read (default the name)")
		case "permission":
			flags.StringSliceVar(&f.permissions, "permission", nil, "a `permission` it holds; may be repeated")
		case "team":
			flags.StringSliceVar(&f.teams, "team", nil, "the `id` of a team it is limited to; may be repeated")
		case "active":
			flags.BoolVar(&f.active, "active", true, "whether its keys are accepted")
		}
	}
}

func (f *groupFlags) change(cmd *cobra.Command) control.GroupChange {
	c := control.GroupChange{Ref: control.Ref{Org: f.org}}
	given := cmd.Flags().Changed
	if given("name") {
		c.Name = &f.name
	}
	if given("label") {
		c.Label = &f.label
	}
	if given("permission") {
		c.Permissions = &f.permissions
	}
	if given("team") {
		c.Teams = &f.teams
	}
	if given("active") {
		c.Active = &f.active
	}
	return c
}

func (k groupKind[T]) command(p *program) *cobra.Command {
	return group(k.name, k.short, k.create(p), k.list(p), k.show(p), k.update(p), k.remove(p))
}

func (k groupKind[T]) print(p *program, v T) error {
	return p.print(v, func() grid { return grid{header: k.header, rows: [][]string{k.row(v)}} })
}

func (k groupKind[T]) create(p *program) *cobra.Command {
	var f groupFlags
	cmd := &cobra.Command{Use: "create --org SLUG --name NAME", Short: "Make " + k.one, Args: cobra.NoArgs}
	k.addFlags(cmd, &f)
	cmd.Flags().StringVar(&f.name, "name", "", "its `name`")
	required(cmd, "name")
	cmd.RunE = run(func(ctx context.Context, _ []string) error {
		return p.withOrg(ctx, how{command: name(cmd)}, f.org, func(ctx context.Context, c *control.Client) error {
			made, err := control.ChangeGroup[T](ctx, c, k.name, "create", f.change(cmd))
			if err != nil {
				return err
			}
			return k.print(p, made)
		})
	})
	return cmd
}

func (k groupKind[T]) list(p *program) *cobra.Command {
	var page control.Page
	cmd := &cobra.Command{Use: "list --org SLUG", Short: "List them, by name", Args: cobra.NoArgs}
	pageFlags(cmd, &page)
	cmd.RunE = run(func(ctx context.Context, _ []string) error {
		return p.withOrg(ctx, how{command: name(cmd)}, page.Org, func(ctx context.Context, c *control.Client) error {
			found, err := control.ListGroups[T](ctx, c, k.name, page)
			if err != nil {
				return err
			}
			p.more(found.More, page, len(found.Items))
			return p.print(found.Items, func() grid {
				g := grid{header: k.header}
				for _, item := range found.Items {
					g.add(k.row(item)...)
				}
				return g
			})
		})
	})
	return cmd
}

func (k groupKind[T]) show(p *program) *cobra.Command {
	var ref control.Ref
	cmd := &cobra.Command{Use: "show NAME --org SLUG", Short: "Show " + k.one, Args: oneArg("its name or identifier")}
	orgFlag(cmd, &ref.Org)
	cmd.RunE = run(func(ctx context.Context, args []string) error {
		ref.Ref = args[0]
		return p.withOrg(ctx, how{command: name(cmd)}, ref.Org, func(ctx context.Context, c *control.Client) error {
			found, err := control.ShowGroup[T](ctx, c, k.name, ref)
			if err != nil {
				return err
			}
			return k.print(p, found)
		})
	})
	return cmd
}

func (k groupKind[T]) update(p *program) *cobra.Command {
	var f groupFlags
	cmd := &cobra.Command{
		Use: "update NAME --org SLUG", Short: "Change " + k.one + "; what no flag names stays as it is", Args: oneArg("its name or identifier"),
	}
	k.addFlags(cmd, &f)
	flags := k.flags
	if k.name != "role" { // people hold roles by name
		cmd.Flags().StringVar(&f.name, "name", "", "its new `name`")
		flags = append([]string{"name"}, flags...)
	}
	cmd.RunE = run(func(ctx context.Context, args []string) error {
		if !changesAny(cmd, flags...) {
			return usagef("say what to change; %s --help names the flags", name(cmd))
		}
		change := f.change(cmd)
		change.Ref.Ref = args[0]
		return p.withOrg(ctx, how{command: name(cmd)}, f.org, func(ctx context.Context, c *control.Client) error {
			changed, err := control.ChangeGroup[T](ctx, c, k.name, "update", change)
			if err != nil {
				return err
			}
			return k.print(p, changed)
		})
	})
	return cmd
}

func (k groupKind[T]) remove(p *program) *cobra.Command {
	var ref control.Ref
	short := "Delete " + k.one + " that nothing uses"
	if k.name == "account" {
		short = "Delete a service account; its keys end at once"
	}
	cmd := &cobra.Command{Use: "delete NAME --org SLUG", Short: short, Args: oneArg("its name or identifier")}
	orgFlag(cmd, &ref.Org)
	cmd.RunE = run(func(ctx context.Context, args []string) error {
		ref.Ref = args[0]
		return p.withOrg(ctx, how{command: name(cmd)}, ref.Org, func(ctx context.Context, c *control.Client) error {
			gone, err := c.DeleteGroup(ctx, k.name, ref)
			if err != nil {
				return err
			}
			return p.print(gone, func() grid {
				return grid{rows: [][]string{{"deleted", gone.Deleted}, {"keys revoked", fmt.Sprint(gone.Keys)}}}
			})
		})
	})
	return cmd
}
