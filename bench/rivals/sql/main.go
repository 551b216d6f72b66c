// Command sql answers the queries of the benchmarks with hand-written statements over a table made for them.
package main

import (
	"database/sql"
	"net/http"
	"os"
	"path/filepath"

	"github.com/gin-gonic/gin"
	_ "modernc.org/sqlite"

	"tenantry/bench/rivals/rival"
)

func main() { rival.Exit(run(os.Args[1], os.Args[2])) }

const schema = `
CREATE TABLE contacts (
	id TEXT PRIMARY KEY, email TEXT, first_name TEXT, last_name TEXT, country TEXT, city TEXT, status TEXT, fields TEXT
) WITHOUT ROWID;
CREATE INDEX by_country ON contacts (country);
CREATE INDEX by_tier ON contacts (fields->>'$.tier');`

// queries returns the statement for each path; each takes the parameter v.
func queries() map[string]string {
	return map[string]string{
		"/count/tier":        `SELECT count(*) FROM contacts WHERE fields->>'$.tier' = ?`,
		"/count/seats-equal": `SELECT count(*) FROM contacts WHERE fields->>'$.seats' = CAST(? AS REAL)`,
		"/count/seats":       `SELECT count(*) FROM contacts WHERE fields->>'$.seats' > CAST(? AS REAL)`,
		"/count/contains":    `SELECT count(*) FROM contacts WHERE instr(last_name, ?) > 0`,
	}
}

const report = `SELECT country, count(*) FROM contacts WHERE country <> ? GROUP BY country ORDER BY 2 DESC`

func run(folder, bundle string) error {
	db, err := open(filepath.Join(folder, "sql.db"), bundle)
	if err != nil {
		return err
	}
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	for path, query := range queries() {
		asked, err := db.Prepare(query)
		if err != nil {
			return err
		}
		engine.GET(path, func(c *gin.Context) {
			var n int64
			err := asked.QueryRowContext(c, c.Query("v")).Scan(&n)
			answer(c, gin.H{"count": n}, err)
		})
	}
	grouped, err := db.Prepare(report)
	if err != nil {
		return err
	}
	engine.GET("/report", func(c *gin.Context) {
		rows, err := group(c, grouped)
		answer(c, gin.H{"columns": []string{"country", "count"}, "rows": rows}, err)
	})
	l, err := rival.Listen()
	if err == nil {
		err = rival.Ready(l, "")
	}
	if err != nil {
		return err
	}
	return http.Serve(l, engine)
}

func group(c *gin.Context, grouped *sql.Stmt) ([][2]any, error) {
	found, err := grouped.QueryContext(c, c.Query("v"))
	if err != nil {
		return nil, err
	}
	defer found.Close()
	var rows [][2]any
	for found.Next() {
		var country string
		var n int64
		if err := found.Scan(&country, &n); err != nil {
			return nil, err
		}
		rows = append(rows, [2]any{country, n})
	}
	return rows, found.Err()
}

func answer(c *gin.Context, data any, err error) {
	if err != nil {
		c.JSON(http.StatusInternalServerError, gin.H{"status": "failed", "message": err.Error(), "data": nil})
		return
	}
	c.JSON(http.StatusOK, gin.H{"status": "ok", "message": "success", "data": data})
}

// open creates the table with the contacts of the bundle.
func open(path, bundle string) (*sql.DB, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=cache_size(-32000)&_pragma=temp_store(MEMORY)")
	if err != nil {
		return nil, err
	}
	if _, err := db.Exec(schema); err != nil {
		return nil, err
	}
	tx, err := db.Begin()
	if err != nil {
		return nil, err
	}
	insert, err := tx.Prepare(`INSERT INTO contacts VALUES (?, ?, ?, ?, ?, ?, ?, json_object('tier', ?, 'seats', ?))`)
	if err != nil {
		return nil, err
	}
	err = rival.Read(bundle, func(l rival.Line) error {
		if l.Kind != "contact" {
			return nil
		}
		_, err := insert.Exec(l.ID, l.Email, l.FirstName, l.LastName, l.Country, l.City, l.Status, l.Fields.Tier, l.Fields.Seats)
		return err
	})
	if err == nil {
		err = tx.Commit()
	}
	if err == nil {
		_, err = db.Exec(`ANALYZE`)
	}
	return db, err
}
