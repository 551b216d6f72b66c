package sqlite

import (
	"fmt"

	"tenantry/backends/driver"
)

// workspace is a handle on a workspace in a file, with the tables of its collections.
type workspace struct {
	engine *Engine
	file   *file
	space  *space
	*schema
}

// Part implements driver.Parted. Workspaces in shared files are scheduled separately already.
func (w *workspace) Part(party string) driver.Workspace {
	if w.shared {
		return w
	}
	part := *w
	part.space = w.file.parts.GetOrPut(party, func() *space {
		s := &space{name: party, party: w.file.parties.Add(1)}
		s.initLanes(w.engine)
		return s
	})
	return &part
}

func (w *workspace) table(c *driver.Collection) (*table, error) {
	if t := w.byCollection[c]; t != nil {
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
