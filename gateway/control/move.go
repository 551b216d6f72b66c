package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"tenantry/gateway/audit"
	"tenantry/tenants"
)

// Moving is an organization's move to another backend while it goes on.
type Moving struct {
	To    string    `json:"to"`
	Phase string    `json:"phase"`
	Began time.Time `json:"began"`
}

func moveOf(m *tenants.Move) *Moving {
	if m == nil {
		return nil
	}
	return &Moving{To: m.To, Phase: string(m.Phase), Began: when(m.Began)}
}

// MoveRequest asks for an organization to be moved to another backend, or for a move that
// was interrupted to go on.
type MoveRequest struct {
	Slug string `json:"slug"`
	To   string `json:"to"`
}

// MoveReport is what came of a move.
type MoveReport struct {
	Slug string `json:"slug"`
	tenants.MoveReport
	HeldSeconds float64 `json:"held_seconds"` // how long writes waited
}

// moveEvent is one line of the answer to a move. The last one holds the report or the error.
type moveEvent struct {
	Progress *tenants.MoveProgress `json:"progress,omitempty"`
	Report   *MoveReport           `json:"report,omitempty"`
	Error    *Error                `json:"error,omitempty"`
}

// progressEvery bounds how often a move tells of its progress.
const progressEvery = 100 * time.Millisecond

func (h *handler) serveMove(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	var req MoveRequest
	if err := decode(http.MaxBytesReader(w, r.Body, maxRequest), &req); err != nil {
		writeError(w, &Error{Code: CodeInvalid, Message: fmt.Sprintf("command org move: the request cannot be read: %v", err)})
		return
	}
	if _, err := h.tenant(ctx, req.Slug); err != nil {
		writeError(w, errorOf(err))
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := &events{enc: json.NewEncoder(w), w: http.NewResponseController(w)}
	if err := out.send(moveEvent{}); err != nil {
		return // the client is gone
	}
	stop := out.beat()
	report, err := h.move(ctx, req, out)
	stop()
	last := moveEvent{Report: report}
	if err != nil {
		last.Error = errorOf(err)
		h.Log.WarnContext(ctx, "a move of an organization ended", "organization", req.Slug, "to", req.To, "ok", false, "error", err)
	} else {
		h.Log.InfoContext(ctx, "a move of an organization ended", "organization", req.Slug, "to", req.To, "ok", true, "held_seconds", report.HeldSeconds)
	}
	_ = out.send(last) // a client that is gone cannot be told
}

func (h *handler) move(ctx context.Context, req MoveRequest, out *events) (*MoveReport, error) {
	var told tenants.MoveProgress
	var at time.Time
	moved, err := h.Directory.Move(ctx, req.Slug, req.To, func(p tenants.MoveProgress) {
		if p.Step == told.Step && p.Kind == told.Kind && time.Since(at) < progressEvery {
			return
		}
		told, at = p, time.Now()
		_ = out.send(moveEvent{Progress: &p}) // a client that is gone ends ctx
	})
	if err != nil {
		return nil, err
	}
	report := &MoveReport{Slug: req.Slug, MoveReport: *moved, HeldSeconds: moved.Held.Seconds()}
	t, err := h.tenant(ctx, req.Slug)
	if err == nil {
		err = h.Audit.Write(ctx, t.Workspace(), audit.Record{Operation: "org.move", Subject: subject, Outcome: audit.OK, Facts: map[string]string{
			"from": moved.From, "to": moved.To, "held_seconds": strconv.FormatFloat(report.HeldSeconds, 'f', 2, 64),
		}})
	}
	if err != nil {
		return nil, fmt.Errorf("%s lives on %s now, but that could not be written to the audit log: %w", req.Slug, req.To, err)
	}
	return report, nil
}

func (h *handler) rollBackMove(ctx context.Context, r *Slug) (Organization, error) {
	return h.changeState(ctx, r.Slug, "org.move.rollback", h.Directory.RollBackMove)
}

func (h *handler) finishMove(ctx context.Context, r *Slug) (Organization, error) {
	return h.changeState(ctx, r.Slug, "org.move.finish", h.Directory.FinishMove)
}

// Move moves an organization and tells of the progress, which may be nil. Where it is
// interrupted the same call goes on with it.
func (c *Client) Move(ctx context.Context, r MoveRequest, progress func(tenants.MoveProgress)) (*MoveReport, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(importSilence, func() {
		cancel(fmt.Errorf("nothing came from the server for %s", importSilence))
	})
	defer silence.Stop()
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("command org move: %w", err)
	}
	resp, err := c.post(ctx, "org/move", nil, nil, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	dec := json.NewDecoder(resp.Body)
	for {
		var e moveEvent
		if err := dec.Decode(&e); err != nil {
			what := "the server went away before it told the end of the move"
			if cause := context.Cause(ctx); cause != nil {
				what, err = "the move was interrupted", cause
			}
			return nil, fmt.Errorf("%s (%w); the organization goes on, tenantry org show %s says where: repeat the command to go on with the move, or undo it with --rollback", what, err, r.Slug)
		}
		silence.Reset(importSilence)
		switch {
		case e.Progress != nil && progress != nil:
			progress(*e.Progress)
		case e.Error != nil:
			return nil, e.Error
		case e.Report != nil:
			return e.Report, nil
		}
	}
}

// RollBackMove undoes a move that was interrupted.
func (c *Client) RollBackMove(ctx context.Context, slug string) (Organization, error) {
	return call[Organization](ctx, c, "org/move/rollback", Slug{slug})
}

// FinishMove removes the copy that a move left on the old backend.
func (c *Client) FinishMove(ctx context.Context, slug string) (Organization, error) {
	return call[Organization](ctx, c, "org/move/finish", Slug{slug})
}
