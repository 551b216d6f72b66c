package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestThreatsHaveTests checks that docs/threats.md names at least one test for each threat, and only tests that exist.
func TestThreatsHaveTests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/threats.md")
	if err != nil {
		t.Fatalf("reading the document: %v", err)
	}
	files, err := exec.CommandContext(t.Context(), "go", "list", "-f",
		`{{$d := .Dir}}{{range .TestGoFiles}}{{$d}}/{{.}} {{end}}{{range .XTestGoFiles}}{{$d}}/{{.}} {{end}}`, "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	exist, coded := map[string]bool{}, regexp.MustCompile(`^(Test|Benchmark|Fuzz)([A-Z][0-9]+)+_`)
	function := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w*)\(`)
	for _, path := range strings.Fields(string(files)) {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatalf("reading the tests: %v", err)
		}
		for _, m := range function.FindAllSubmatch(source, -1) {
			name := string(m[1])
			if exist[name] = true; coded.MatchString(name) {
				t.Errorf("%s: %s begins with a code, want a name that says what it shows", path, name)
			}
		}
	}
	named := regexp.MustCompile("`(Test\\w+)`")
	threats := strings.Split(string(text), "\n- **")[1:]
	if len(threats) < 50 {
		t.Errorf("docs/threats.md has %d threats, want at least 50", len(threats))
	}
	for _, threat := range threats {
		threat, _, _ = strings.Cut(threat, "\n#")
		title, _, closed := strings.Cut(threat, "**")
		tests := named.FindAllStringSubmatch(threat, -1)
		if !closed || len(tests) == 0 {
			t.Errorf("docs/threats.md: the threat %q names no test, want at least one", title)
		}
		for _, m := range tests {
			if !exist[m[1]] {
				t.Errorf("docs/threats.md: the threat %q names %s, want a test that exists", title, m[1])
			}
		}
	}
}
