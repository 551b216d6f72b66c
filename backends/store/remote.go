package store

// remote is an engine whose calls may wait for another machine.
type remote interface{ Remote() bool }

// Remote reports whether calls of the workspace may wait for another machine. Then it pays
// to make those at the same time that do not need each other's answers. A call within the
// process is over before another goroutine has begun.
func (w *Workspace) Remote() bool {
	backend := w.store.controlAt
	if w.home != nil {
		backend = w.home.at.Load().backend()
	}
	e, ok := w.store.backends[backend].(remote)
	return ok && e.Remote()
}
