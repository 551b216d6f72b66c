package sqlite

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"tenantry/backends/driver"
)

// Layouts implements driver.Upgrader. Files that are empty, damaged or of another program are not counted.
func (e *Engine) Layouts(
	ctx context.Context, of func(workspace string) []*driver.Collection,
) (all driver.Layouts, err error) {
	entries, err := os.ReadDir(e.opts.Dir)
	if err != nil {
		return all, errors.Join(driver.ErrUnavailable, err)
	}
	for _, entry := range entries { // sorted
		name, is := strings.CutSuffix(entry.Name(), ".db")
		info, err := entry.Info()
		if !is || err != nil || info.Size() == 0 {
			continue
		}
		if ctx.Err() != nil {
			return all, ctx.Err()
		}
		s, err := e.schema(of(name), isShared(name))
		if err != nil {
			return all, err
		}
		current := true
		if e.inspect(filepath.Join(e.opts.Dir, entry.Name()), func(_ *conn, stored map[string]string) error {
			for _, t := range s.tables {
				current = current && stored[t.name] == t.spec
			}
			return nil
		}) != nil {
			continue // opening it tells why
		}
		if current {
			all.Current++
		} else {
			all.Others = append(all.Others, name)
		}
	}
	return all, nil
}
