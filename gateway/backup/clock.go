package backup

import (
	"os"
	"strings"
	"time"
)

const (
	// clockSlack is how far the times of a log may be ahead of the clock.
	clockSlack = 5 * time.Second
	// aheadSuffix ends the names of files of the log that were written while the clock was ahead. They are not read.
	aheadSuffix = ".ahead"
)

// turnBack begins a new chain if the last cut is ahead of a time, because the clock was. A number is left out, so that
// no backup from before is completed beyond. Hours that are not yet are set aside: the log would end in them, and they
// would be written to when their time comes.
func (l *Log) turnBack(at time.Time) error {
	if l.state.Last.Sub(at) <= clockSlack {
		return nil
	}
	hours, err := logHours(l.Folder)
	if err != nil {
		return err
	}
	if l.out != nil && l.hour != hourOf(l.Folder, at) {
		if err := l.out.Close(); err != nil {
			return err
		}
		l.out, l.hour = nil, ""
	}
	for _, path := range hours {
		if beganAt(path).After(at) {
			if err := os.Rename(path, strings.TrimSuffix(path, logSuffix)+aheadSuffix); err != nil {
				return err
			}
		}
	}
	l.state.Sequence++
	l.state.Last, l.state.Broken = at, at
	return nil
}
