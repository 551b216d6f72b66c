package backup

import (
	"os"
	"path/filepath"
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

// pruneAhead removes files that were set aside longer ago than logs are kept.
func (l *Log) pruneAhead(now time.Time) error {
	found, err := filepath.Glob(filepath.Join(l.Folder, logFolder, "[0-9]*", "[0-9][0-9]"+aheadSuffix))
	if err != nil {
		return err
	}
	for _, path := range found {
		if info, err := os.Stat(path); err != nil || now.Sub(info.ModTime()) < l.Keep {
			continue
		}
		if err := os.Remove(path); err != nil {
			return err
		}
		_ = os.Remove(filepath.Dir(path)) // if that was its last hour
	}
	return nil
}
