package control

import "context"

// Verdict is what a Finding comes to.
type Verdict string

// The verdicts. What is Wrong keeps something from working, a Warning will, or may.
const (
	Good    Verdict = "ok"
	Warning Verdict = "warning"
	Wrong   Verdict = "wrong"
)

// Finding is one thing that was looked at.
type Finding struct {
	What    string  `json:"what"`
	Verdict Verdict `json:"verdict"`
	Says    string  `json:"says"`
	// Advice is what to do about it.
	Advice string `json:"advice,omitempty"`
}

// After names the organization that the ones asked for follow, by slug; empty: from the first.
type After struct {
	Slug string `json:"slug"`
}

// Examined is what came of opening organizations one after another.
type Examined struct {
	Items         []Finding `json:"items"` // of those with something to mend
	Organizations int       `json:"organizations"`
	Documents     int64     `json:"documents"`
	Next          string    `json:"next"` // the last one; empty: there is none left
}

func (h *handler) diagnoseEach(ctx context.Context, r *After) (Examined, error) {
	found := h.ExamineEach(ctx, r.Slug)
	found.Items = list(found.Items)
	return found, nil
}

// DiagnoseEach opens organizations one after another, for a few seconds, and looks whether their
// data is whole. It is called again with Next until that is empty.
func (c *Client) DiagnoseEach(ctx context.Context, after string) (Examined, error) {
	return call[Examined](ctx, c, "doctor/organizations", After{after})
}

func (h *handler) diagnose(ctx context.Context, _ *None) (List[Finding], error) {
	return List[Finding]{Items: h.Examine(ctx)}, nil
}

// Diagnose looks at everything the gateway depends on.
func (c *Client) Diagnose(ctx context.Context) (List[Finding], error) {
	return call[List[Finding]](ctx, c, "doctor", None{})
}
