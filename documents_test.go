package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"tenantry/gateway/cli"
)

// block is a command in a document with the lines that it prints.
type block struct{ line, prints string }

// code returns the commands of a document, in order.
func code(t *testing.T, path string) (all []block) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	joined := regexp.MustCompile(`\\\n\s*`).ReplaceAllString(string(text), "")
	asked := false
	for line := range strings.Lines(joined) {
		line, indented := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ")
		command, typed := strings.CutPrefix(line, "$ ")
		switch {
		case indented && (typed || regexp.MustCompile(`^(\./)?tenantry |^go `).MatchString(line)):
			all, asked = append(all, block{line: command}), typed
		case indented && asked:
			all[len(all)-1].prints += line + "\n"
		default:
			asked = false
		}
	}
	return all
}

// newUser is a shell in a folder with the program and the files that the README mentions.
type newUser struct {
	dir         string
	port        string // of the last server
	token       string // of the last key
	environment []string
}

func (u *newUser) shell(ctx context.Context, line string) *exec.Cmd {
	line = strings.ReplaceAll(line, "acme.localhost:8080", "acme.localhost:"+u.port)
	cmd := exec.CommandContext(ctx, "sh", "-c", "exec "+strings.ReplaceAll(line, "tnt_server_full_…", u.token))
	cmd.Dir, cmd.Env = u.dir, u.environment
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	return cmd
}

// TestREADME runs the commands of the README in order, as a new user would.
func TestREADME(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	u := newUser{dir: t.TempDir(), environment: append(os.Environ(), asCommand+"=1", "TMPDIR="+t.TempDir())}
	if err := os.Symlink(self, filepath.Join(u.dir, "tenantry")); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"people.csv": "Name,Town,email\nSmith,Oslo,smith@example.com\n", "corrected.csv": "email,last_name\nsmith@example.com,Smythe\n",
		"folders.csv": "Name,deleted\nLetters,no\n", "runways.csv": "code,length\n18L,3000\n", "movies.json": `[{"title": "Metropolis", "year": 1927}]`,
		"leute.csv": "email;last_name;Datum\nmueller@example.com;M\xfcller;31.12.1980\n",
	} {
		if err := os.WriteFile(filepath.Join(u.dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ran := 0
	for _, b := range code(t, "README.md") {
		line := strings.Replace(b.line, "go run . ", "./tenantry ", 1)
		line, _, _ = strings.Cut(line, "  ")
		switch {
		case strings.HasPrefix(line, "go "): // this test runs the built program
			continue
		case strings.HasPrefix(line, "curl "):
			if _, err := exec.LookPath("curl"); err != nil {
				continue
			}
		case line == "./tenantry demo" || line == "./tenantry serve":
			u.start(ctx, t, line)
			ran++
			continue
		}
		var stderr bytes.Buffer
		cmd := u.shell(ctx, line)
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%s: got %v, want no error\n%s%s", line, err, out, stderr.String())
		}
		if b.prints != "" && strings.TrimSpace(string(out)) != strings.TrimSpace(b.prints) {
			t.Errorf("%s\ngot  %s\nwant %s", line, out, b.prints)
		}
		u.copyToken(string(out))
		ran++
	}
	if ran < 12 {
		t.Errorf("the README has %d commands, want at least 12", ran)
	}
	u.callAll(ctx, t)
}

// callAll calls every path that the README lists with the key that it creates. The key has rights for some of them.
func (u *newUser) callAll(ctx context.Context, t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := regexp.MustCompile("`(/api/|…/)([^`]+)`").FindAllSubmatch(text, -1)
	if len(listed) < 20 {
		t.Errorf("the README lists %d paths, want at least 20", len(listed))
	}
	before, answered := "", 0 // before is the path that "…" stands for
	for _, m := range listed {
		full := before + "/" + string(m[2])
		if string(m[1]) != "…/" {
			full = string(m[1]) + string(m[2])
			before = full
		}
		path := regexp.MustCompile(`\{\w+\}`).ReplaceAllString(full, "66f0000000000000000000aa")
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+u.port+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "acme.localhost"
		req.Header = http.Header{"X-Service-Token": {u.token}}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusMethodNotAllowed || bytes.Contains(body, []byte("No such route")) {
			t.Errorf("GET %s: got %d %s, want a route", path, resp.StatusCode, body)
		}
		if resp.StatusCode == http.StatusOK && bytes.Contains(body, []byte(`"status":"ok"`)) {
			answered++
		}
	}
	if answered < 6 {
		t.Errorf("%d of the paths in the README answer its key, want at least 6", answered)
	}
}

// start runs a server until the test ends.
func (u *newUser) start(ctx context.Context, t *testing.T, line string) {
	t.Helper()
	cmd := u.shell(ctx, line+" --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // the context of the test has ended
	for said := bufio.NewScanner(stdout); said.Scan(); {
		u.copyToken(said.Text())
		if found := regexp.MustCompile(`http://[\w.]+:(\d+)`).FindStringSubmatch(said.Text()); found != nil {
			u.port = found[1]
		}
		if regexp.MustCompile(`^ *curl | is ready on `).MatchString(said.Text()) {
			return
		}
	}
	t.Fatalf("%s ended, want a running server: %s", line, stderr.String())
}

// copyToken stores the key that a command printed.
func (u *newUser) copyToken(text string) {
	if found := regexp.MustCompile(`tnt_server_full_\w+`).FindString(text); found != "" {
		u.token = found
	}
}

// TestDocumentedCommands checks that the commands and flags in the documents exist.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	help := func(words ...string) (string, int) {
		var stdout, stderr bytes.Buffer
		code := cli.Main(t.Context(), append(words, "--help"), strings.NewReader(""), &stdout, &stderr, nil, nil)
		return stdout.String() + stderr.String(), code
	}
	listed, _ := help()
	var commands []string
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z]+) `).FindAllStringSubmatch(listed, -1) {
		commands = append(commands, m[1])
	}
	var documents []string
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, found...)
	}
	named := 0
	for _, path := range append(documents, "README.md", "deploy/README.md") {
		var lines []string
		for _, b := range code(t, path) {
			line, _, _ := strings.Cut(b.line, "  #")
			lines = append(lines, strings.TrimPrefix(line, "./"))
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text = regexp.MustCompile("(?s)\n```(?:http|sh|json)\n.*?\n```\n").ReplaceAll(text, nil) // calls over HTTP
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllSubmatch(text, -1) {
			lines = append(lines, string(m[1]))
		}
		for _, line := range lines {
			words := regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`).FindAllString(line, -1)
			if len(words) > 0 && words[0] == "tenantry" {
				words = words[1:]
			}
			if len(words) == 0 || !slices.Contains(commands, words[0]) {
				continue
			}
			named++
			// The help of a group of commands does not report an unknown subcommand.
			said, code := help(words...)
			full, _, _ := strings.Cut(strings.Join(words, " "), " -")
			if code != 0 || strings.Contains(said, "Available Commands:") && !strings.Contains(said, "\n  tenantry "+full+" [command]") {
				t.Errorf("%s: got %s: %.200s, want 0", path, line, said)
			}
		}
	}
	if named < 40 {
		t.Errorf("the documents name %d commands, want at least 40", named)
	}
}
