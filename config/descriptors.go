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
	// Each connection, the writer's too, has the file and its log open; they share the log's index. Those for long
	// questions come from one stock for all files.
	each := 2*(uint64(min(max(readers, 1), 64))+1) + 1
	forSockets := min(descriptors/4, 4096)
	const long = 2 * LongConnections
	backends = max(backends, 1)
	n := (int(min(descriptors-forSockets, 1<<40))/backends - long) / int(each)
	return min(max(n, leastOpenFiles), mostOpenFiles)
}
