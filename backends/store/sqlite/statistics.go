package sqlite

// The planner chooses between indexes by statistics of the data: without them a count by
// first name and status may walk every third contact instead of a hundred.

const (
	// analyzeEvery is how many written documents make the statistics worth a look.
	// SQLite itself then tells whether a table has grown enough to be measured again.
	analyzeEvery = 10_000
	// A measurement looks at this many entries of an index at most, so that it takes
	// milliseconds whatever the size.
	analyze = "PRAGMA analysis_limit = 2000; PRAGMA optimize = 0x10002"
)

// wrote counts documents and renews the statistics now and then. The writer is held. A
// failure spoils no write: the next one tries again.
func (db *database) wrote(n int) {
	if db.unmeasured += n; db.unmeasured < analyzeEvery {
		return
	}
	if !db.measure() {
		return
	}
	db.commits.Add(1)
	// A connection reads the statistics when it reads the schema, so readers open anew.
	db.statistics.Add(1)
}

// measure renews the statistics. It is also called before a file is closed, for those
// that grow slowly.
func (db *database) measure() bool {
	if db.unmeasured == 0 || db.writer == nil || db.writer.script(analyze) != nil {
		return false
	}
	db.unmeasured = 0
	return true
}
