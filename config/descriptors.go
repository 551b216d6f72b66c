package config

const (
	// leastDescriptors are a database's with one connection: its file, the log, the index of the log.
	leastDescriptors = 3
	mostOpenFiles    = 2000
	leastOpenFiles   = 16
)

// openFiles returns how many databases each SQLite backend may have open at once, so that all
// their connections together leave room for sockets.
func openFiles(descriptors uint64, readers, backends int) int {
	// Each connection, the writer's too, has the file and its log open; they share the log's index.
	each := 2*(uint64(min(max(readers, 1), 64))+1) + 1
	forSockets := min(descriptors/4, 4096)
	n := (descriptors - forSockets) / each / uint64(max(backends, 1))
	return int(min(max(n, leastOpenFiles), mostOpenFiles))
}
