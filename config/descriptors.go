package config

const (
	// minDescriptors are those of a database with one connection: its file, the log, the index of the log.
	minDescriptors = 3
	maxOpenFiles   = 2000
	minOpenFiles   = 16
)

// openFiles returns how many databases each SQLite backend may have open at once if all their connections together are
// to leave room for sockets.
func openFiles(descriptors uint64, readers, backends int) int {
	// Each connection, including the writer's, has the file and its log open; they share the log's index. Connections
	// for long queries are bounded for all files together.
	each := 2*(uint64(min(max(readers, 1), 64))+1) + 1
	forSockets := min(descriptors/4, 4096)
	const long = 2 * LongConnections
	backends = max(backends, 1)
	n := (int(min(descriptors-forSockets, 1<<40))/backends - long) / int(each)
	return min(max(n, minOpenFiles), maxOpenFiles)
}
