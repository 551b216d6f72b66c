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

func (h *handler) diagnose(ctx context.Context, _ *None) (List[Finding], error) {
	return List[Finding]{Items: h.Examine(ctx)}, nil
}

// Diagnose looks at everything the gateway depends on.
func (c *Client) Diagnose(ctx context.Context) (List[Finding], error) {
	return call[List[Finding]](ctx, c, "doctor", None{})
}
