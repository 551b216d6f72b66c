package cli

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"tenantry/gateway/control"
	"tenantry/tenants"
)

func (p *program) orgMove() *cobra.Command {
	to, finish, rollback := "", false, false
	cmd := &cobra.Command{
		Use: "move SLUG --to BACKEND", Short: "Move an organization's documents to another backend while it serves",
		Args: oneArg("the organization's slug"),
		Long: "Move an organization's documents to another backend while it serves.\n" +
			"Writes wait for a few seconds at the end. The old copy stays until --finish removes it.\n" +
			"A move that was interrupted goes on when the command is repeated; --rollback undoes it.",
		Example: "  tenantry org move acme --to eu\n  tenantry org move acme --finish\n  tenantry org move acme --rollback",
	}
	flags := cmd.Flags()
	flags.StringVar(&to, "to", "", "the `name` of the backend")
	flags.BoolVar(&finish, "finish", false, "remove the copy that the move left on the old backend")
	flags.BoolVar(&rollback, "rollback", false, "undo a move that has not switched yet")
	cmd.RunE = run(func(ctx context.Context, args []string) error {
		given := 0
		for _, f := range []string{"to", "finish", "rollback"} {
			if flags.Changed(f) {
				given++
			}
		}
		if given != 1 {
			return usagef("give one of --to BACKEND, --finish and --rollback")
		}
		return p.with(ctx, how{command: name(cmd)}, func(ctx context.Context, c *control.Client) error {
			switch {
			case finish, rollback:
				do := c.FinishMove
				if rollback {
					do = c.RollBackMove
				}
				o, err := do(ctx, args[0])
				if err != nil {
					return err
				}
				return p.printOrg(o)
			}
			return p.move(ctx, c, control.MoveRequest{Slug: args[0], To: to})
		})
	})
	return cmd
}

func (p *program) move(ctx context.Context, c *control.Client, r control.MoveRequest) error {
	bar := &moveBar{p: p, shown: terminal(p.stderr)}
	report, err := c.Move(ctx, r, bar.at)
	bar.end()
	if err != nil {
		return err
	}
	p.note("%s lives on %s now; writes waited %.1f s. Its old copy on %s stays until tenantry org move %s --finish", r.Slug, report.To, report.HeldSeconds, report.From, r.Slug)
	return p.print(report, func() grid {
		g := grid{header: []string{"KIND", "DOCUMENTS", "CHECKSUM"}}
		for _, s := range report.Sums {
			if s.Documents > 0 {
				g.add(s.Kind, strconv.FormatInt(s.Documents, 10), s.Checksum[:16])
			}
		}
		return g
	})
}

// moveBar shows the progress of a move: a bar on a terminal, a line for each step elsewhere.
type moveBar struct {
	mu    sync.Mutex
	p     *program
	shown bool
	step  string
	bar   *progressbar.ProgressBar
}

func (b *moveBar) at(m tenants.MoveProgress) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.Step != b.step {
		b.step = m.Step
		if m.Note != "" {
			b.clear()
			b.p.note("%s: %s", m.Step, plain(m.Note))
			return
		}
		if !b.shown {
			b.p.note("%s", m.Step)
			return
		}
		b.clear()
		b.bar = progressbar.NewOptions64(-1, progressbar.OptionSetWriter(b.p.stderr), progressbar.OptionSetDescription(m.Step), progressbar.OptionClearOnFinish())
	}
	if b.bar != nil {
		if m.Kind != "" {
			b.bar.Describe(fmt.Sprintf("%s: %s", m.Step, m.Kind))
		}
		_ = b.bar.Set64(m.Compared) // a bar that cannot be drawn must not stop the work
	}
}

func (b *moveBar) clear() {
	if b.bar != nil {
		_ = b.bar.Clear()
		b.bar = nil
	}
}

func (b *moveBar) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clear()
}
