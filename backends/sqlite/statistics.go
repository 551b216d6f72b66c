package sqlite

import (
	"fmt"
	"strconv"
	"strings"

	"zombiezen.com/go/sqlite"
)

// The planner chooses between indexes by statistics of the data. Without them a count by first name and status may read
// every third contact instead of a hundred.

const (
	// analyzeEvery is the number of written documents after which the statistics are updated. SQLite then decides which
	// tables have changed enough to be analyzed again.
	analyzeEvery = 10_000
	// analysisLimit bounds the entries of an index that are read, so that an analysis takes milliseconds whatever the
	// size.
	analysisLimit = "PRAGMA analysis_limit = 2000"
	optimize      = analysisLimit + "; PRAGMA optimize = 0x10002"
)

// countWrites counts written documents and updates the statistics from time to time. The caller holds the writer. After
// a failure, which does not affect writes, the next call tries again.
func (db *database) countWrites(n int) {
	if db.unanalyzed += n; db.unanalyzed < analyzeEvery {
		return
	}
	if !db.updateStatistics() {
		return
	}
	db.commits.Add(1)
	// A connection reads the statistics with the schema, when it is opened, so readers must reconnect.
	db.statistics.Add(1)
}

// updateStatistics updates the statistics, and reports whether it did. It is also called before a file is closed,
// because it may grow too slowly for analyzeEvery. The caller holds the writer.
func (db *database) updateStatistics() bool {
	if db.unanalyzed == 0 || db.writer == nil {
		return false
	}
	db.followBeforeWrite()
	defer db.noteCommit()
	if db.writer.script(optimize) != nil || db.shared && db.writer.equalize() != nil {
		return false
	}
	db.unanalyzed = 0
	return true
}

// assumedRows is the number of rows of a shared table in the statistics before its first analysis.
const assumedRows = 1_000_000

// equalize changes the statistics of a shared file as if each workspace had all rows. With the average size of many
// small workspaces, the planner would read all documents of a large one, because it expects few.
func (c *conn) equalize() error {
	stats := map[[2]string]string{}
	measured, err := c.number("SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_stat1'")
	if err != nil {
		return err
	}
	if measured == 0 {
		if err := c.script("ANALYZE workspaces"); err != nil { // this creates the table of statistics
			return err
		}
	}
	// The statistics of a primary key have the table's name.
	if err := c.each("SELECT s.tbl_name, s.name, stat FROM sqlite_schema AS s"+
		" LEFT JOIN sqlite_stat1 AS t ON t.tbl = s.tbl_name AND t.idx = s.name"+
		" WHERE s.type <> 'trigger' AND s.tbl_name GLOB '[ces]:*' AND s.sql IS NOT NULL", nil, func(row *sqlite.Stmt) {
		stats[[2]string{row.ColumnText(0), row.ColumnText(1)}] = row.ColumnText(2)
	}); err != nil {
		return err
	}
	for at, stat := range stats {
		if stat == "" {
			stat = fmt.Sprint(assumedRows, " ", assumedRows)
			if err := c.exec("INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES (?1, ?2, ?3)", at[0], at[1], stat); err != nil {
				return err
			}
			continue
		}
		parts := strings.SplitN(stat, " ", 3) // the number of all rows, the average per workspace, the rest
		if _, err := strconv.Atoi(parts[0]); err != nil || len(parts) < 2 || parts[0] == parts[1] {
			continue
		}
		parts[1] = parts[0]
		stat = strings.Join(parts, " ")
		if err := c.exec("UPDATE sqlite_stat1 SET stat = ?3 WHERE tbl = ?1 AND idx = ?2", at[0], at[1], stat); err != nil {
			return err
		}
	}
	return nil
}
