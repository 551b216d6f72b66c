package sqlite

import (
	"fmt"

	"tenantry/backends/store/driver"
)

// workspace is a handle on a file and on what its collections look like as tables.
type workspace struct {
	engine *Engine
	file   *file
	space  *space
	*schema
}

func (w *workspace) table(c *driver.Collection) (*table, error) {
	if t := w.known[c]; t != nil {
		return t, nil
	}
	if c == nil {
		return nil, fmt.Errorf("a call on workspace %s names no collection", w.file.name)
	}
	if t := w.tables[c.Name]; t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("workspace %s was opened without collection %q", w.file.name, c.Name)
}
