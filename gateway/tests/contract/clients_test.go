package contract

import (
	"bufio"
	"cmp"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
)

// clientsVariable names the programs that TestClients runs, listed as in PATH.
const clientsVariable = "TENANTRY_TEST_CLIENTS"

// clientCall is a call that succeeds once, in terms of the OpenAPI document.
type clientCall struct {
	ID      string            `json:"id"` // the operationId
	Method  string            `json:"method"`
	Path    string            `json:"path"` // the template
	Params  map[string]any    `json:"params"`
	Query   map[string]any    `json:"query"`
	Header  map[string]any    `json:"header"` // parameters in the header
	Body    map[string]any    `json:"body,omitempty"`
	Headers map[string]string `json:"headers"` // the credential
	Code    int               `json:"code"`    // of its answer
	Streams bool              `json:"streams"` // it answers with lines or with bytes
}

// TestClients runs each program on a gateway of its own, with a file that has the gateway's address and a call for
// every operation of the document. The program must succeed, and by the gateway's log every operation must have
// succeeded and none must have failed internally.
func TestClients(t *testing.T) {
	t.Parallel()
	programs := os.Getenv(clientsVariable)
	if programs == "" {
		t.Skip(clientsVariable + " names no programs; .ci/clients/run does")
	}
	for _, program := range filepath.SplitList(programs) {
		t.Run(filepath.Base(program), func(t *testing.T) {
			t.Parallel()
			// Programs name themselves in X-Forwarded-For, because sign-ins from one address are throttled.
			w := fixture.NewWorld(t, func(cfg *config.Config, _ *gateway.Options) { cfg.TrustedProxies = []string{"127.0.0.0/8"} })
			g, p := w.Gateway, w.A
			p.Import(t, fixture.LessonObject)
			folder := t.TempDir()
			file := filepath.Join(folder, "calls.json")
			calls, left := clientCalls(t, p)
			raw, err := json.Marshal(map[string]any{"url": g.URL(""), "host": p.Host, "calls": calls, "left_out": left})
			if err == nil {
				err = os.WriteFile(file, raw, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			before := len(g.Log.String())
			cmd := exec.CommandContext(t.Context(), program, file)
			cmd.Dir, cmd.Env = folder, append(os.Environ(), "CGO_ENABLED=0")
			output, err := cmd.CombinedOutput()
			t.Logf("%s", output)
			if err != nil {
				t.Errorf("%s: got %v, want no error", program, err)
			}
			// schemathesis calls what it has deleted, so only the rest is checked.
			wantSuccess(t, g.App.Operations(), g.Log.String()[before:], filepath.Base(program) != "schemathesis.sh")
		})
	}
}

// wantSuccess compares a log with the rows: no operation failed internally and, with every, each one succeeded.
func wantSuccess(t *testing.T, operations []operation.Row, log string, every bool) {
	t.Helper()
	succeeded, failed := map[string]int{}, map[string]int{}
	for lines := bufio.NewScanner(strings.NewReader(log)); lines.Scan(); {
		var line struct {
			Operation, Status string
			Code              int
		}
		if json.Unmarshal(lines.Bytes(), &line) != nil || line.Operation == "" {
			continue
		}
		if line.Status == operation.StatusOK && line.Code < http.StatusMultipleChoices {
			succeeded[line.Operation]++
			continue
		}
		failed[line.Operation]++
		if line.Code >= http.StatusInternalServerError || line.Code == http.StatusTooManyRequests {
			t.Errorf("got %s, want line.Code < %v", lines.Text(), http.StatusInternalServerError)
		}
	}
	for _, op := range operations {
		t.Logf("%-22s succeeded %5d, failed %5d", op.Name, succeeded[op.Name], failed[op.Name])
		if every && succeeded[op.Name] == 0 && op.Upload == nil && op.Feeds == "" {
			t.Errorf("%s: got no success, want at least one", op.Name)
		}
	}
}

// clientCalls returns a call for every path of every operation, made from the samples, in an order in which all
// succeed. Uploads are left out, because generators differ on them; it returns their operationIds.
func clientCalls(t testing.TB, p *fixture.Party) (calls []clientCall, left []string) {
	t.Helper()
	apart := map[string]*http.Cookie{} // whoever calls these is signed out elsewhere
	for _, name := range []string{"passwords.change", "sessions.end_others"} {
		_, apart[name] = p.Person(t, name+"@example.com", nil)
	}
	given := func(shape operation.Shape, v any) any {
		if r, ok := v.(fixture.Ref); ok {
			v = p.IDs[r]
		}
		text, ok := v.(string)
		if !ok {
			return v
		}
		switch shape {
		case operation.Integer:
			n, _ := strconv.Atoi(text)
			return n
		case operation.Boolean:
			return text == "true"
		}
		return strings.ReplaceAll(text, "{n}", strconv.Itoa(len(calls)+1))
	}
	rows := p.App.Operations()
	slices.SortStableFunc(rows, func(a, b operation.Row) int { // who signs out has no session any more
		return strings.Compare(firstSessions(a.Name), firstSessions(b.Name))
	})
	for _, op := range rows {
		if op.Upload != nil || op.Feeds != "" {
			for i := range op.Paths() {
				left = append(left, op.ID(i))
			}
			continue
		}
		s := fixture.SampleFor(&op)
		for i, path := range op.Paths() {
			c := clientCall{
				ID: op.ID(i), Method: op.Method, Path: path, Params: map[string]any{}, Query: map[string]any{},
				Headers: map[string]string{}, Header: map[string]any{},
				Code: cmp.Or(op.Code, http.StatusOK), Streams: op.Streams != nil || op.Content != nil,
			}
			for _, param := range op.Params {
				if param.In == operation.InPath {
					if strings.Contains(path, "{"+param.Name+"}") {
						c.Params[param.Name] = given(param.Shape, s.Path[param.Name])
					}
					continue
				}
				if v, ok := s.Header[param.Name]; ok && param.In == operation.InHeader {
					c.Header[param.Name] = given(param.Shape, v)
				}
				at := slices.IndexFunc(s.Query, func(v fixture.QueryValue) bool { return fixture.ParamRoot(v.Name) == param.Name })
				if at < 0 || param.Name == "public_key" && op.Streams != nil {
					continue // page, where after is given; who opens an export is not known here
				}
				switch v := s.Query[at]; param.Shape {
				case operation.List:
					c.Query[param.Name+"[]"] = []any{given(operation.Text, v.Is)}
				case operation.Tree:
					c.Query[cmp.Or(param.Document, param.Name)] = map[string]any{v.Name: given(param.Shape, v.Is)}
				default:
					c.Query[param.Name] = given(param.Shape, v.Is)
				}
			}
			if op.Teams && op.Method == http.MethodGet {
				c.Query["teams[]"] = []string{p.IDs[fixture.RefTeam]}
			}
			for _, f := range op.Body {
				if c.Body == nil {
					c.Body = map[string]any{}
				}
				v, ok := s.Body[f.Name]
				if _, refers := v.(fixture.Ref); refers && f.Shape == operation.List {
					c.Body[f.Name] = []any{given(operation.Text, v)}
				} else if ok {
					c.Body[f.Name] = given(f.Shape, v)
				}
			}
			switch {
			case op.Credentials == operation.Open:
			case apart[op.Name] != nil:
				c.Headers["Cookie"] = apart[op.Name].Name + "=" + apart[op.Name].Value
			case op.Rule.IsAdminOnly(), strings.HasPrefix(op.Path, "/api/me/"):
				c.Headers["Cookie"] = p.AdminCookie.Name + "=" + p.AdminCookie.Value
			case op.Credentials&operation.Key == 0:
				c.Headers["Cookie"] = p.MemberCookie.Name + "=" + p.MemberCookie.Value
			default:
				c.Headers[fixture.KeyHeader] = p.FullKey
			}
			calls = append(calls, c)
		}
	}
	return calls, left
}
