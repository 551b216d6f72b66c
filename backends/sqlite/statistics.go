package sqlite

import (
	"fmt"
	"strconv"
	"strings"

	"zombiezen.com/go/sqlite"
)

// The planner chooses between indexes by statistics of the data: without them a count by
// first name and status may walk every third contact instead of a hundred.

const (
	// analyzeEvery is how many written documents make the statistics worth a look.
	// SQLite itself then tells whether a table has grown enough to be measured again.
	analyzeEvery = 10_000
	// A measurement looks at this many entries of an index at most, so that it takes
	// milliseconds whatever the size.
	sampled = "PRAGMA analysis_limit = 2000"
	analyze = sampled + "; PRAGMA optimize = 0x10002"
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
	if db.unmeasured == 0 || db.writer == nil || db.writer.script(analyze) != nil || db.shared && db.writer.level() != nil {
		return false
	}
	db.unmeasured = 0
	return true
}

// assumed is how many documents a shared table has as long as nobody has counted.
const assumed = 1_000_000

// level has the planner take every workspace of a shared file for one that has all of it. By the average of many
// small ones it would read all documents of a large one, for there seem to be a few.
func (c *conn) level() error {
	stats := map[[2]string]string{}
	measured, err := c.number("SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_stat1'")
	if err != nil {
		return err
	}
	if measured == 0 {
		if err := c.script("ANALYZE workspaces"); err != nil { // which makes the table
			return err
		}
	}
	// The key of a table goes by the table's name.
	if err := c.each("SELECT s.tbl_name, s.name, stat FROM sqlite_schema AS s LEFT JOIN sqlite_stat1 AS t ON t.tbl = s.tbl_name AND t.idx = s.name"+
		" WHERE s.type <> 'trigger' AND s.tbl_name GLOB '[ces]:*' AND s.sql IS NOT NULL", nil, func(row *sqlite.Stmt) {
		stats[[2]string{row.ColumnText(0), row.ColumnText(1)}] = row.ColumnText(2)
	}); err != nil {
		return err
	}
	for at, stat := range stats {
		if stat == "" {
			if err := c.exec("INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES (?1, ?2, ?3)", at[0], at[1], fmt.Sprint(assumed, " ", assumed)); err != nil {
				return err
			}
			continue
		}
		parts := strings.SplitN(stat, " ", 3) // all, of each workspace, of each value in it and so on
		if _, err := strconv.Atoi(parts[0]); err != nil || len(parts) < 2 || parts[0] == parts[1] {
			continue
		}
		parts[1] = parts[0]
		if err := c.exec("UPDATE sqlite_stat1 SET stat = ?3 WHERE tbl = ?1 AND idx = ?2", at[0], at[1], strings.Join(parts, " ")); err != nil {
			return err
		}
	}
	return nil
}
