package cli

import (
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"tenantry/gateway/control"
)

// bar shows the progress of long work: as a bar on a terminal, elsewhere as lines for the steps that say they are
// worth one. Safe for concurrent use.
type bar struct {
	mu    sync.Mutex // guards step and bar
	p     *program
	shown bool
	step  string
	bar   *progressbar.ProgressBar // nil between steps
}

func (p *program) newBar() *bar { return &bar{p: p, shown: terminal(p.stderr)} }

func (b *bar) update(now control.Progress) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Note != "" {
		b.clear()
		b.p.note("%s", plain(now.Note))
		return
	}
	if now.Step != b.step {
		b.clear()
		b.step = now.Step
		if now.Told && !b.shown {
			b.p.note("%s", now.Step)
		}
	}
	if !b.shown {
		return
	}
	if b.bar == nil {
		total := now.Total
		if total <= 0 {
			total = -1 // a spinner
		}
		b.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(b.p.stderr), progressbar.OptionSetDescription(now.Step),
			progressbar.OptionShowBytes(now.Bytes), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish())
	}
	if now.Detail != "" {
		b.bar.Describe(now.Step + ": " + now.Detail)
	}
	_ = b.bar.Set64(now.Done) // a bar that cannot be drawn must not stop the work
}

func (b *bar) clear() {
	if b.bar != nil {
		_ = b.bar.Clear()
		b.bar = nil
	}
}

func (b *bar) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clear()
}

// counter is a writer that shows on a bar how much was written to it.
type counter struct {
	bar *bar
	now control.Progress
}

func (c *counter) Write(data []byte) (int, error) {
	c.now.Done += int64(len(data))
	c.bar.update(c.now)
	return len(data), nil
}
