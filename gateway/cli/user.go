package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"tenantry/gateway/control"
)

func (p *program) userCommand() *cobra.Command {
	return group("user", "Make and change the people of an organization",
		p.userCreate(), p.userList(), p.userShow(), p.userUpdate(), p.userDeactivate())
}

// userFlags are the flags that say what a person shall be.
type userFlags struct {
	org, name, email          string
	roles, permissions, teams []string
	passwordStdin             bool
}

func orgFlag(cmd *cobra.Command, org *string) {
	cmd.Flags().StringVar(org, "org", "", "the organization's `slug`")
}

func (f *userFlags) add(cmd *cobra.Command) {
	orgFlag(cmd, &f.org)
	flags := cmd.Flags()
	flags.StringVar(&f.name, "name", "", "the person's `name`")
	flags.StringVar(&f.email, "email", "", "the e-mail `address` the person signs in with")
	flags.StringSliceVar(&f.roles, "role", nil, "a `role`, such as admin; may be repeated")
	flags.StringSliceVar(&f.permissions, "permission", nil, "a `permission` besides those of the roles; may be repeated")
	flags.StringSliceVar(&f.teams, "team", nil, "the `id` of a team the person is limited to; may be repeated")
	flags.BoolVar(&f.passwordStdin, "password-stdin", false, "read the password from standard input")
}

const maxPasswordInput = 8 << 10

// password reads the password from standard input, without the line end.
func (p *program) password() (string, error) {
	raw, err := io.ReadAll(io.LimitReader(p.stdin, maxPasswordInput+1))
	if err != nil {
		return "", fmt.Errorf("reading the password: %w", err)
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(raw), "\n"), "\r")
	switch {
	case text == "":
		return "", usagef("--password-stdin: standard input holds no password")
	case len(raw) > maxPasswordInput:
		return "", usagef("--password-stdin: standard input holds more than a password")
	}
	return text, nil
}

func (p *program) userCreate() *cobra.Command {
	var f userFlags
	cmd := &cobra.Command{
		Use: "create --org SLUG --email ADDRESS --name NAME", Short: "Make a person; without a password a single-use link to choose one is printed", Args: cobra.NoArgs,
		Example: "  tenantry user create --org acme --email ada@example.com --name \"Ada Example\" --role admin",
	}
	f.add(cmd)
	required(cmd, "email", "name")
	cmd.RunE = run(func(ctx context.Context, _ []string) error {
		return p.withOrg(ctx, how{command: name(cmd)}, f.org, func(ctx context.Context, c *control.Client) error {
			n := control.NewUser{Org: f.org, Name: f.name, Email: f.email, Roles: f.roles, Permissions: f.permissions, Teams: f.teams}
			if f.passwordStdin {
				var err error
				if n.Password, err = p.password(); err != nil {
					return err
				}
			}
			u, err := c.CreateUser(ctx, n)
			if err != nil {
				return err
			}
			return p.printUser(u.User, &u)
		})
	})
	return cmd
}

// printUser shows a person; made tells of a link, where there is one.
func (p *program) printUser(u control.User, made *control.Invited) error {
	result := any(u)
	if made != nil {
		p.notes(made.Notes)
		result = *made
	}
	err := p.print(result, func() grid {
		g := grid{}
		g.add("id", strconv.FormatInt(u.ID, 10))
		g.add("name", u.Name)
		g.add("email", u.Email)
		g.add("roles", words(u.Roles))
		g.add("permissions", words(u.Permissions))
		g.add("teams", words(u.Teams))
		g.add("active", yesNo(u.Active))
		if made != nil && made.Link != "" {
			g.add("link", made.Link)
			g.add("link expires", moment(made.LinkExpiresAt))
		}
		return g
	})
	if made != nil && made.Link != "" {
		p.note("Whoever opens the link first chooses the password; it works once.")
	}
	return err
}

func (p *program) userList() *cobra.Command {
	var page control.Page
	cmd := &cobra.Command{Use: "list --org SLUG", Short: "List people, by number", Args: cobra.NoArgs}
	pageFlags(cmd, &page)
	cmd.RunE = run(func(ctx context.Context, _ []string) error {
		return p.withOrg(ctx, how{command: name(cmd)}, page.Org, func(ctx context.Context, c *control.Client) error {
			found, err := c.ListUsers(ctx, page)
			if err != nil {
				return err
			}
			p.more(found.More, page, len(found.Items))
			return p.print(found.Items, func() grid {
				g := grid{header: []string{"ID", "NAME", "EMAIL", "ROLES", "PERMISSIONS", "ACTIVE"}}
				for _, u := range found.Items {
					g.add(strconv.FormatInt(u.ID, 10), u.Name, u.Email, words(u.Roles), words(u.Permissions), yesNo(u.Active))
				}
				return g
			})
		})
	})
	return cmd
}

func pageFlags(cmd *cobra.Command, page *control.Page) {
	orgFlag(cmd, &page.Org)
	cmd.Flags().IntVar(&page.Limit, "limit", 100, "at most `n`")
	cmd.Flags().IntVar(&page.Offset, "offset", 0, "leave out the first `n`")
}

func (p *program) more(is bool, page control.Page, shown int) {
	if is {
		p.note("There are more; go on with --offset %d", page.Offset+shown)
	}
}

func (p *program) userShow() *cobra.Command {
	var ref control.UserRef
	cmd := &cobra.Command{Use: "show USER --org SLUG", Short: "Show a person", Args: oneArg("the person's number or e-mail address")}
	orgFlag(cmd, &ref.Org)
	cmd.RunE = run(func(ctx context.Context, args []string) error {
		ref.User = args[0]
		return p.withOrg(ctx, how{command: name(cmd)}, ref.Org, func(ctx context.Context, c *control.Client) error {
			u, err := c.ShowUser(ctx, ref)
			if err != nil {
				return err
			}
			return p.printUser(u, nil)
		})
	})
	return cmd
}

func (p *program) userUpdate() *cobra.Command {
	var f userFlags
	var active, link bool
	cmd := &cobra.Command{
		Use: "update USER --org SLUG", Short: "Change a person; what no flag names stays as it is",
		Args:    oneArg("the person's number or e-mail address"),
		Example: "  tenantry user update ada@example.com --org acme --role admin --role editor",
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&active, "active", true, "whether the person may sign in")
	cmd.Flags().BoolVar(&link, "link", false, "print a new single-use link to choose a password")
	cmd.RunE = run(func(ctx context.Context, args []string) error {
		given := cmd.Flags().Changed
		if !changesAny(cmd, "name", "email", "role", "permission", "team", "active", "link", "password-stdin") {
			return usagef("say what to change; tenantry user update --help names the flags")
		}
		change := control.UserChange{UserRef: control.UserRef{Org: f.org, User: args[0]}, Invite: link}
		if given("name") {
			change.Name = &f.name
		}
		if given("email") {
			change.Email = &f.email
		}
		if given("role") {
			change.Roles = &f.roles
		}
		if given("permission") {
			change.Permissions = &f.permissions
		}
		if given("team") {
			change.Teams = &f.teams
		}
		if given("active") {
			change.Active = &active
		}
		return p.withOrg(ctx, how{command: name(cmd)}, f.org, func(ctx context.Context, c *control.Client) error {
			if f.passwordStdin {
				var err error
				if change.Password, err = p.password(); err != nil {
					return err
				}
			}
			u, err := c.UpdateUser(ctx, change)
			if err != nil {
				return err
			}
			return p.printUser(u.User, &u)
		})
	})
	return cmd
}

func (p *program) userDeactivate() *cobra.Command {
	var ref control.UserRef
	cmd := &cobra.Command{
		Use: "deactivate USER --org SLUG", Short: "End a person's access at once", Args: oneArg("the person's number or e-mail address"),
	}
	orgFlag(cmd, &ref.Org)
	cmd.RunE = run(func(ctx context.Context, args []string) error {
		ref.User = args[0]
		return p.withOrg(ctx, how{command: name(cmd)}, ref.Org, func(ctx context.Context, c *control.Client) error {
			u, err := c.DeactivateUser(ctx, ref)
			if err != nil {
				return err
			}
			return p.printUser(u, nil)
		})
	})
	return cmd
}
