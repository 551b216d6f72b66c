// Package goldentest compares the output of a test with an earlier output in a file under testdata/golden. A change of
// such a file is a change that users see.
package goldentest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Variable names the environment variable that, if set, makes Want write the files instead of comparing.
const Variable = "TENANTRY_TEST_GOLDEN"

// Want compares a text with a file. It reports up to 20 lines that differ, each with the request before it, which is a
// line that begins with "> ".
func Want(t testing.TB, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if os.Getenv(Variable) != "" {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, have := strings.Split(string(raw), "\n"), strings.Split(got, "\n")
	asked := ""
	for i, shown := 0, 0; i < max(len(want), len(have)) && shown < 20; i++ {
		var was, is string
		if i < len(want) {
			was = want[i]
		}
		if i < len(have) {
			is = have[i]
		}
		if strings.HasPrefix(was, "> ") {
			asked = was
		}
		if was != is {
			shown++
			t.Errorf("%s:%d: %.300s\n got  %.2000s\n want %.2000s", name, i+1, asked, is, was)
		}
	}
}

// Blanks replaces values that differ in each run, equal values by equal ones.
type Blanks struct {
	known []string // prefixes of identifiers that are the same in each run
	seen  map[string]string
}

// NewBlanks returns Blanks that keep identifiers with these prefixes.
func NewBlanks(known ...string) *Blanks { return &Blanks{known, map[string]string{}} }

var (
	newToken = regexp.MustCompile(`eyJ[\w-]+\.[\w-]+\.[\w-]+|\b(?:inv|ses|sin)_[\w-]{16,}|` +
		`(\btnt_(?:server_full|server_read|browser)_)\w+|\b0-\w{20,}|(tenantry_session=)[\w.-]{16,}`)
	newSealed = regexp.MustCompile(`(enc\.v1\.1\.|"field_value":"|sealed:|"pub":"|"sealed":")[A-Za-z0-9+/=_.:-]{20,}`)
	newOrigin = regexp.MustCompile(`("installation": "|^installation +)[0-9a-f]{32}\b`)
	newID     = regexp.MustCompile(`\b[0-9a-f]{24}\b`)
	newExpiry = regexp.MustCompile(`(; Expires=)[A-Z][^;]*20\d\d [\d:]+ GMT`)
	newTime   = regexp.MustCompile(`\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z| UTC)?|\b1[6-9]\d{8}(\d{3})?\b`)
)

// Fill returns the text with placeholders for values that differ in each run.
func (b *Blanks) Fill(text string) string {
	text = strings.ToValidUTF8(text, `\xff`)
	text = newSealed.ReplaceAllString(text, "$1<sealed>")
	text = newToken.ReplaceAllString(text, "$1$2<token>")
	text = newOrigin.ReplaceAllString(text, "$1<identity>")
	text = newID.ReplaceAllStringFunc(text, func(id string) string {
		known := slices.ContainsFunc(b.known, func(prefix string) bool { return strings.HasPrefix(id, prefix) })
		if known || strings.Trim(id, id[:1]) == "" {
			return id
		}
		if b.seen[id] == "" {
			b.seen[id] = fmt.Sprintf("<id %d>", len(b.seen)+1)
		}
		return b.seen[id]
	})
	text = newExpiry.ReplaceAllString(text, "$1<time>")
	return newTime.ReplaceAllStringFunc(text, func(at string) string {
		var when time.Time
		name := "<time>"
		switch n, err := strconv.ParseInt(at, 10, 64); {
		case err == nil && len(at) > 10:
			name, when = "<milliseconds>", time.UnixMilli(n)
		case err == nil:
			name, when = "<seconds>", time.Unix(n, 0)
		default:
			when, err = time.Parse(time.DateOnly, at[:len(time.DateOnly)])
			if err != nil {
				return at
			}
		}
		if time.Since(when).Abs() > 400*24*time.Hour {
			return at
		}
		return name
	})
}
