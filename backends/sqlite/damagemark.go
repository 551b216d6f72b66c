package sqlite

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"tenantry/backends/driver"
	"tenantry/internal/durable"
)

// markSuffix ends the name of the mark next to a damaged file.
const markSuffix = ".damaged"

// Mark implements driver.Examiner. When it returns, the mark survives a loss of power; before, none or the complete
// mark does.
func (e *Engine) Mark(m driver.Mark) (err error) {
	path := m.File + markSuffix
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w: mark %s as damaged: %w", driver.ErrUnavailable, m.File, err)
		}
	}()
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(e.opts.Dir, ".mark-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return durable.SyncDir(e.opts.Dir)
}

// Marks implements driver.Examiner. A mark that cannot be read is returned with that as its reason.
func (e *Engine) Marks() (all []driver.Mark, err error) {
	entries, err := os.ReadDir(e.opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	for _, entry := range entries {
		file, is := strings.CutSuffix(entry.Name(), markSuffix)
		name, db := strings.CutSuffix(file, ".db")
		if !is || !db || !isShared(name) && driver.CheckName(name) != nil {
			continue
		}
		var m driver.Mark
		path := filepath.Join(e.opts.Dir, entry.Name())
		data, err := os.ReadFile(filepath.Clean(path))
		if err == nil {
			err = json.Unmarshal(data, &m)
		}
		if err != nil {
			m = driver.Mark{Reason: fmt.Sprintf("%s exists, but cannot be read: %v", path, err)}
		}
		m.File = filepath.Join(e.opts.Dir, file)
		all = append(all, m)
	}
	return all, nil
}

// unmark removes the mark of a file that is intact or was removed. The removal is not synced: if a loss of power brings
// the mark back, the file is examined again.
func unmark(path string) error {
	if err := os.Remove(path + markSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return nil
}
