package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// signals sorts what the process is told while a command runs. The first SIGINT, SIGTERM or SIGHUP ends the context of
// the command, and the next one the process. A server reads its settings again at SIGHUP, and the second of the others
// only ends its wait of timeouts.drain.
type signals struct {
	stop    context.CancelCauseFunc
	serving atomic.Bool   // the command is a server
	reload  chan struct{} // gets SIGHUP
	hurry   chan struct{} // closed by the second signal to stop
}

func newSignals(stop context.CancelCauseFunc) *signals {
	return &signals{stop: stop, reload: make(chan struct{}, 1), hurry: make(chan struct{})}
}

// watch handles signals until over is closed.
func (s *signals) watch(over <-chan struct{}, got <-chan os.Signal) {
	for stops := 0; ; {
		var sig os.Signal
		select {
		case <-over:
			return
		case sig = <-got:
		}
		serving := s.serving.Load()
		if serving && sig == syscall.SIGHUP {
			select {
			case s.reload <- struct{}{}:
			default: // one is waiting already
			}
			continue
		}
		switch stops++; stops {
		case 1:
			s.stop(fmt.Errorf("%s signal received", sig))
		case 2:
			close(s.hurry)
		}
		if stops == 2 || !serving {
			signal.Reset(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP) // the next one ends the process
		}
	}
}
