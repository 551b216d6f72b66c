package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"tenantry/config"
	"tenantry/gateway/control"
)

// startWait is how long a program may take until it serves. Rivals load their data before that.
const startWait = 10 * time.Minute

// process is a program under load.
type process struct {
	cmd   *exec.Cmd
	input io.Closer // rivals exit when it is closed
	addr  string
	token string // the Authorization of a rival's callers
}

// stop terminates the program and waits for its end.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.input.Close()
	kill := time.AfterFunc(20*time.Second, func() { _ = p.cmd.Process.Kill() })
	_ = p.cmd.Wait() // its exit status does not matter
	kill.Stop()
}

// cpu returns the processor time that the program has used, 0 on systems other than Linux.
func (p *process) cpu() time.Duration {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(raw), ") ") // the name before may contain anything
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0
	}
	var ticks int64
	for _, field := range fields[11:13] { // of the user and of the system
		n, _ := strconv.ParseInt(field, 10, 64)
		ticks += n
	}
	return time.Duration(ticks) * (time.Second / 100) // USER_HZ is 100 wherever Go runs on Linux
}

// resident returns the program's resident memory in bytes, 0 on systems other than Linux.
func (p *process) resident() int64 {
	return kibibytes(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid), "VmRSS")
}

// descriptors returns the number of open files and sockets, 0 on systems other than Linux.
func (p *process) descriptors() int64 {
	open, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	return int64(len(open))
}

// procValue returns the value of a name in a file of /proc, or "".
func procValue(path, name string) string {
	raw, _ := os.ReadFile(path)
	for line := range strings.Lines(string(raw)) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func kibibytes(path, name string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSuffix(procValue(path, name), " kB"), 10, 64)
	return n << 10
}

// start runs a program with its log in a file and returns the first line that it prints. The program has its own
// process group, so that an interrupt from the terminal reaches only this process.
func (b *bench) start(ctx context.Context, name string, env []string, program string, args ...string) (*process, string, error) {
	log, err := os.Create(filepath.Join(b.dir, name+".log"))
	if err != nil {
		return nil, "", err
	}
	defer log.Close() // the program has its own descriptor
	// The method stop ends the program, not the context.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(b.dir, "bin", program), args...)
	cmd.Env, cmd.Stderr, cmd.SysProcAttr = append(os.Environ(), env...), log, &syscall.SysProcAttr{Setpgid: true}
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, "", err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	p := &process{cmd: cmd, input: input}
	b.running[name] = p
	line := make(chan string, 1)
	go func() {
		first, _ := bufio.NewReader(output).ReadString('\n')
		line <- first
	}()
	select {
	case first := <-line:
		if first != "" {
			return p, first, nil
		}
		return nil, "", fmt.Errorf("%s ended at once: %s", name, tail(log.Name()))
	case <-time.After(startWait):
		return nil, "", fmt.Errorf("%s was not ready after %s: %s", name, startWait, tail(log.Name()))
	case <-ctx.Done():
		return nil, "", ctx.Err()
	}
}

func tail(path string) string {
	raw, _ := os.ReadFile(path)
	return string(bytes.TrimSpace(raw[max(0, len(raw)-1000):]))
}

// rival starts one of the other programs under a name. Its data is in a folder of that name.
func (b *bench) rival(ctx context.Context, name, program string, args ...string) (*process, error) {
	if p := b.running[name]; p != nil {
		return p, nil
	}
	if _, err := memoize(b, "the rivals, which takes minutes the first time", func() (bool, error) {
		return true, b.compile(ctx, "bench/rivals", "./gin", "./pocketbase", "./sql", "./static")
	}); err != nil {
		return nil, err
	}
	b.say("starting %s", name)
	p, line, err := b.start(ctx, name, nil, program, args...)
	if err != nil {
		return nil, err
	}
	var ready struct{ Addr, Token string }
	if err := json.Unmarshal([]byte(line), &ready); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p.addr, p.token = ready.Addr, ready.Token
	return p, nil
}

// server is Tenantry on a data folder of its own.
type server struct {
	*process
	name, data string
	admin      string // the address of its metrics
	commands   *control.Client
}

// settings returns the settings that differ from the defaults: limits that are too high to refuse any load but still
// count each request, room for all connections at once, and garbage collection on demand for the memory figures.
func settings() []string {
	return []string{
		"TENANTRY_LIMITS__ORGANIZATION=100000000/s", "TENANTRY_LIMITS__KEY=100000000/s", "TENANTRY_LIMITS__ADDRESS=100000000/s",
		"TENANTRY_LIMITS__IN_FLIGHT=8192", "TENANTRY_ADMIN__PPROF=true", "TENANTRY_WEBHOOKS__ALLOW_NETWORKS=127.0.0.1", "GOGC=", // it would override memory.garbage
	}
}

// server returns the Tenantry of this name, and starts it if it is not running.
func (b *bench) server(ctx context.Context, name string) (*server, error) {
	if s := b.servers[name]; s != nil {
		return s, nil
	}
	b.say("starting tenantry on the data %q", name)
	s := &server{name: name, data: filepath.Join(b.dir, name)}
	p, line, err := b.start(ctx, "tenantry-"+name, settings(), "tenantry", "serve", "--init", "--data", s.data, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.process = p
	if _, err := fmt.Sscanf(strings.ReplaceAll(line, ")", ""), "tenantry is ready on http://%s (operations on http://%s", &p.addr, &s.admin); err != nil {
		return nil, fmt.Errorf("reading the first line of tenantry, %q: %w", line, err)
	}
	var holder struct{ Control string }
	raw, err := os.ReadFile(filepath.Join(s.data, "tenantry.json"))
	if err == nil {
		err = json.Unmarshal(raw, &holder)
	}
	if err == nil {
		s.commands, err = control.Dial(ctx, holder.Control)
	}
	if err != nil {
		return nil, err
	}
	b.servers[name] = s
	return s, nil
}

// stop stops the server of this name and keeps its data. The method server starts it again.
func (b *bench) stop(name string) {
	if s := b.servers[name]; s != nil {
		s.commands.Close()
		s.process.stop()
		delete(b.servers, name)
		delete(b.running, "tenantry-"+name)
	}
}

// command runs a tenantry command on the server's data, as an operator would, and returns its output.
func (b *bench) command(ctx context.Context, s *server, args ...string) ([]byte, error) {
	return b.commandOn(ctx, s.data, args...)
}

// commandOn is command on a data folder.
func (b *bench) commandOn(ctx context.Context, data string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(b.dir, "bin", "tenantry"), append([]string{"--data", data, "--output", "json"}, args...)...)
	out, err := cmd.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		err = fmt.Errorf("tenantry %s: %w: %s", strings.Join(args, " "), err, exit.Stderr)
	}
	return out, err
}

// figures returns the sum of a metric's values that have the labels.
func (s *server) figures(ctx context.Context, metric string, labels ...string) (sum float64, err error) {
	raw, err := s.ask(ctx, "http://"+s.admin+"/metrics")
	if err != nil {
		return 0, err
	}
	return sumOf(string(raw), metric, labels...)
}

func sumOf(metrics, metric string, labels ...string) (sum float64, err error) {
	for line := range strings.Lines(metrics) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || (name != metric && !strings.HasPrefix(name, metric+"{")) || slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(name, l) }) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s: %w", name, err)
		}
		sum += n
	}
	return sum, nil
}

// heap returns how many bytes of the heap are in use, without the memory that memory.garbage keeps free. It collects
// garbage twice, because pools keep their content through one collection, and cleanups free memory only in the next.
func (s *server) heap(ctx context.Context) (bytes float64, err error) {
	for range 2 {
		// The answer has the size right after its collection. By the time of a request for metrics there is new
		// garbage.
		raw, err := s.ask(ctx, "http://"+s.admin+"/debug/pprof/heap?gc=1&debug=1")
		if err != nil {
			return 0, err
		}
		if bytes, err = heapOf(string(raw)); err != nil {
			return 0, err
		}
	}
	return bytes - float64(config.Default().Memory.Garbage<<20), nil
}

func heapOf(profile string) (float64, error) {
	_, after, _ := strings.Cut(profile, "\n# HeapAlloc = ")
	figure, _, _ := strings.Cut(after, "\n")
	return strconv.ParseFloat(figure, 64)
}

func (s *server) ask(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return raw, err
}
