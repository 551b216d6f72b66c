package cli

import (
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"tenantry/gateway/transfer"
)

// bar shows the progress of long work to people; elsewhere it shows nothing. Safe for
// concurrent use.
type bar struct {
	mu    sync.Mutex
	p     *program
	phase string
	total int64
	bar   *progressbar.ProgressBar
	bytes int64
}

const phaseSending = "sending"

// newBar returns a bar for work on size bytes; 0 where that is not known.
func (p *program) newBar(size int64) *bar {
	b := &bar{total: size}
	if terminal(p.stderr) {
		b.p = p
	}
	return b
}

func (b *bar) show(phase string, bytes, total int64) {
	if b.p == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if phase != b.phase {
		b.clear()
		if total <= 0 {
			total = -1 // a spinner
		}
		b.phase = phase
		b.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(b.p.stderr), progressbar.OptionSetDescription(phase), progressbar.OptionShowBytes(true),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish())
	}
	_ = b.bar.Set64(bytes) // a bar that cannot be drawn must not stop the work
}

func (b *bar) clear() {
	if b.bar != nil {
		_ = b.bar.Clear()
		b.bar = nil
	}
}

func (b *bar) sent(n int64) { b.show(phaseSending, n, b.total) }

func (b *bar) at(p transfer.Progress) { b.show(p.Phase, p.Bytes, p.Total) }

// Write counts what is written.
func (b *bar) Write(data []byte) (int, error) {
	b.bytes += int64(len(data))
	b.show(transfer.PhaseWriting, b.bytes, b.total)
	return len(data), nil
}

func (b *bar) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clear()
}
