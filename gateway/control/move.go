package control

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"tenantry/operation"
	"tenantry/tenants"
)

// MoveRequest asks for an organization to be moved to another backend. It also continues a move that was interrupted.
type MoveRequest struct {
	Slug string `json:"slug" rule:"ref=organization" arg:"the organization's slug"`
	To   string `json:"to" doc:"the <name> of the backend"`
}

// MoveReport is the result of a move.
type MoveReport struct {
	Slug string `json:"slug"`
	tenants.MoveReport
	HeldSeconds float64 `json:"held_seconds"` // how long writes waited
}

// progressInterval bounds how often a move reports its progress.
const progressInterval = 100 * time.Millisecond

func (s *Server) orgMove() Command {
	return command(Command{
		Line: "org move SLUG --to BACKEND", Short: "Move an organization's documents to another backend while it serves",
		Long: "Move an organization's documents to another backend while it serves.\n" +
			"Writes wait for a few seconds at the end. The old copy stays until --finish removes it.\n" +
			"A move that was interrupted goes on when the command is repeated; --rollback undoes it.",
		Example: "  tenantry org move acme --to eu\n  tenantry org move acme --finish\n  tenantry org move acme --rollback",
		Audit:   operation.AuditAlways, Nothing: "give one of --to BACKEND, --finish and --rollback",
		Hint: "the organization keeps serving, and tenantry org show says from where: " +
			"repeat the command to go on with the move, or undo it with --rollback",
	}, s.move)
}

func (s *Server) finishMove(ctx context.Context, c *call, in Slug) (Organization, error) {
	if o := &c.Tenant.Org; o.Move == nil && o.Former == "" {
		return Organization{}, fail(CodeConflict, "organization %s has no old copy; there is nothing to finish", in.Slug)
	}
	return s.changeHandler(s.Directory.FinishMove)(ctx, c, in)
}

func (s *Server) rollBackMove(ctx context.Context, c *call, in Slug) (Organization, error) {
	if c.Tenant.Org.Restoring() {
		c.Note("of", "org.restore")
	}
	return s.changeHandler(s.Directory.RollBackMove)(ctx, c, in)
}

func (s *Server) move(ctx context.Context, c *call, in MoveRequest) (*MoveReport, error) {
	var last tenants.MoveProgress
	var lastAt time.Time
	moved, err := s.Directory.Move(ctx, in.Slug, in.To, func(p tenants.MoveProgress) {
		if p.Step == last.Step && p.Kind == last.Kind && time.Since(lastAt) < progressInterval {
			return
		}
		if p.Step != last.Step && p.Note != "" {
			c.Progress(Progress{Step: p.Step, Note: p.Step + ": " + p.Note})
		}
		last, lastAt = p, time.Now()
		c.Progress(Progress{Step: p.Step, Detail: p.Kind, Done: p.Compared, Told: p.Note == ""})
	})
	if err != nil {
		s.Log.WarnContext(ctx, "a move of an organization ended",
			"organization", in.Slug, "to", in.To, "ok", false, "error", err)
		return nil, err
	}
	report := &MoveReport{Slug: in.Slug, MoveReport: *moved, HeldSeconds: moved.Held.Seconds()}
	s.Log.InfoContext(ctx, "a move of an organization ended",
		"organization", in.Slug, "to", in.To, "ok", true, "held_seconds", report.HeldSeconds)
	c.AuditNote = map[string]string{
		"from": moved.From, "to": moved.To, "held_seconds": strconv.FormatFloat(report.HeldSeconds, 'f', 2, 64),
	}
	c.addNote(fmt.Sprintf("%[1]s lives on %[2]s now; writes waited %.1[3]f s. "+
		"Its old copy on %[4]s stays until tenantry org move %[1]s --finish",
		in.Slug, moved.To, report.HeldSeconds, moved.From))
	return report, s.setTenant(ctx, c, in.Slug)
}
