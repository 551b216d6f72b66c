// Command bench compares Tenantry with other programs on this machine and prints a table:
//
//	go run -C bench .
//
// It builds Tenantry and, from a module of its own, PocketBase, a bare Gin and hand-written SQL. It loads the same data
// into each and measures both sides of every line in turns. The load comes from a separate process, wrk.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// bench is one run of the command.
type bench struct {
	out     io.Writer // progress
	root    string    // of the repository
	dir     string    // temporary, removed at the end
	wrk     string
	turns   int
	seconds float64
	long    bool
	small   int // divides all numbers of records

	running map[string]*process // by name
	servers map[string]*server  // by name
	made    map[string]made     // results by name, see memoize
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	b := &bench{out: os.Stderr, small: 1, running: map[string]*process{}, servers: map[string]*server{}, made: map[string]made{}}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	only := flags.String("only", "", "measure the lines whose names match this `expression`; they are: "+strings.Join(names(lines(1)), ", "))
	out := flags.String("out", "", "the `file` to write; an earlier output in it is replaced (default standard output)")
	small := flags.Bool("small", false, "use a hundredth of the data, to try the command; its figures mean nothing")
	flags.IntVar(&b.turns, "turns", 3, "how often each side is measured")
	flags.Float64Var(&b.seconds, "seconds", 3, "how long each measurement takes, in whole seconds")
	flags.BoolVar(&b.long, "long", false, "also measure a million contacts")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	chosen, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	if b.turns < 1 || b.seconds < 1 || flags.NArg() > 0 {
		return errors.New("-turns and -seconds must be at least 1, and arguments are not allowed")
	}
	if *small {
		b.small = 100
	}
	if b.wrk, err = exec.LookPath("wrk"); err != nil {
		return errors.New("wrk, which makes the load, is not installed: apt-get install wrk (Debian, Ubuntu), brew install wrk (macOS), or https://github.com/wg/wrk")
	}
	if b.dir, err = os.MkdirTemp("", "tenantry-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.cleanUp()) }()
	if err := b.build(ctx); err != nil {
		return err
	}
	var t table
	before := ""
	for _, l := range lines(b.small) {
		if (l.long && !b.long) || !chosen.MatchString(l.name) {
			continue
		}
		if l.name != before { // background work of other lines must not affect this one
			b.stopServers()
			before = l.name
		}
		b.say("measuring %s: %s", l.name, l.what)
		switch err := b.line(ctx, l, &t); {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil: // the other lines are still useful
			b.say("not measured: %v", err)
			t.failures = append(t.failures, fmt.Sprintf("%s (%s): %v", l.name, l.what, err))
		}
	}
	if len(t.failures) > 0 {
		err = fmt.Errorf("%d lines could not be measured", len(t.failures))
	}
	text := t.markdown(b.machine(ctx), b.how(*only))
	if *out == "" {
		_, e := io.WriteString(os.Stdout, text)
		return errors.Join(err, e)
	}
	return errors.Join(err, replace(*out, text))
}

// line measures one line.
func (b *bench) line(ctx context.Context, l line, t *table) error {
	if l.measure != nil {
		facts, err := l.measure(ctx, b)
		t.facts = append(t.facts, facts...)
		return err
	}
	sides, connections := make([]*traffic, 1+len(l.references)), []int{l.connections}
	var err error
	if sides[0], err = l.ours(ctx, b); err != nil {
		return err
	}
	for i, r := range l.references {
		if sides[i+1], err = r.from(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		if r.connections == 0 {
			r.connections = l.connections
		}
		connections = append(connections, r.connections)
	}
	results, err := b.compare(ctx, sides, connections)
	if err != nil {
		return err
	}
	t.add(l, results)
	return nil
}

// build builds Tenantry. Rivals are built when the first of them is started.
func (b *bench) build(ctx context.Context) error {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "tenantry").Output()
	if err != nil {
		return fmt.Errorf("go list: %w; run this command within the repository", err)
	}
	b.root = strings.TrimSpace(string(root))
	if err := os.WriteFile(filepath.Join(b.dir, "load.lua"), script, 0o600); err != nil {
		return err
	}
	b.say("building")
	if err := os.Mkdir(filepath.Join(b.dir, "bin"), 0o700); err != nil {
		return err
	}
	return b.compile(ctx, ".", ".")
}

// compile builds programs of a module within the repository.
func (b *bench) compile(ctx context.Context, in string, programs ...string) error {
	bin := filepath.Join(b.dir, "bin") + string(filepath.Separator)
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-o", bin}, programs...)...)
	cmd.Dir = filepath.Join(b.root, in)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w: %s", in, err, said)
	}
	return nil
}

// stopServers stops every Tenantry and keeps its data. Rivals keep running, because they would have to load their data
// again.
func (b *bench) stopServers() {
	for name := range b.servers {
		b.stop(name)
	}
}

// cleanUp stops all programs and removes the data.
func (b *bench) cleanUp() error {
	b.stopServers()
	for _, p := range b.running {
		p.stop()
	}
	return os.RemoveAll(b.dir)
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.out, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// how describes the run: the command, the day and the turns.
func (b *bench) how(only string) string {
	command := "go run -C bench ."
	for _, f := range []struct {
		text string
		set  bool
	}{
		{fmt.Sprintf(" -turns %d", b.turns), b.turns != 3}, {fmt.Sprintf(" -seconds %.0f", b.seconds), b.seconds != 3},
		{" -long", b.long}, {" -small", b.small != 1}, {" -only '" + only + "'", only != ""},
	} {
		if f.set {
			command += f.text
		}
	}
	return fmt.Sprintf("`%s`, %s: %d turns of %.0f s for each side.", command, time.Now().UTC().Format("2 January 2006"), b.turns, b.seconds)
}

// machine describes the machine of the run.
func (b *bench) machine(ctx context.Context) string {
	said := []string{fmt.Sprintf("%d processors", runtime.NumCPU()), runtime.GOOS + "/" + runtime.GOARCH}
	add := func(format, text string) {
		if text != "" {
			said = append(said, fmt.Sprintf(format, text))
		}
	}
	add("%s", procValue("/proc/cpuinfo", "model name"))
	if bytes := kibibytes("/proc/meminfo", "MemTotal"); bytes > 0 {
		add("%s GiB of memory", strconv.FormatInt(bytes>>30, 10))
	}
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	numbers, _, _ := strings.Cut(strings.TrimSpace(string(release)), "-") // the rest names the builder
	add("kernel %s", numbers)
	add("%s", strings.Replace(runtime.Version(), "go", "Go ", 1))
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", "github.com/pocketbase/pocketbase")
	cmd.Dir = filepath.Join(b.root, "bench/rivals")
	if version, err := cmd.Output(); err == nil {
		add("PocketBase %s", strings.TrimSpace(string(version)))
	}
	if each, err := syncTime(b.dir); err == nil {
		add("%s to append 4 KiB to a file and sync it", each.Round(time.Microsecond).String())
	}
	return strings.Join(said, ", ") + "."
}

// syncTime returns how long it takes to append a page to a file in the folder and sync it.
func syncTime(dir string) (time.Duration, error) {
	f, err := os.Create(filepath.Join(dir, "sync"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	const times = 100
	page := make([]byte, 4096)
	began := time.Now()
	for range times {
		if _, err := f.Write(page); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
	}
	return time.Since(began) / times, nil
}
