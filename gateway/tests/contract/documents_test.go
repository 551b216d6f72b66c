package contract

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/internal/goldentest"
	"tenantry/modules/audit"
	"tenantry/tenants"
)

// exchange is a call in a document with the answer that the document shows.
type exchange struct {
	call         string // in one line, for messages
	method, path string
	with         []gatewaytest.Request
	jar          string // where the session of its caller is kept, if it has one
	code         int
	header       []string // as "Name: value"
	want         any      // a text, or what JSON holds
	whole        bool     // whether nothing else is answered, but where "…" stands
}

// walk sends the calls of documents in order to one organization.
type walk struct {
	org   *gatewaytest.Org
	jars  map[string]*http.Cookie
	known map[string]string // what was answered where a document shows this
	shell map[string]string // variables of the shell
}

// standIns match values that differ each time. A value in a document stands for the value that was answered, in later
// calls too. "…" and times are not remembered.
var standIns = []struct {
	shown   string
	learned bool
}{
	{`\{[a-z_]+\}`, true}, // stands for whatever is answered there
	{`…`, false},          // so does this
	{`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`, false},
	{aDay, false},            // this one, or today
	{`file=[\w-]{22}`, true}, // of the address of a file
	{`until=\d{10}`, true},
	{`key=[\w-]{22}`, true},
	{`\b[0-9a-f]{40}\b`, true},
	{`\b1[78]\d{8}\b`, false}, // seconds
	{`tnt_(?:server_full|server_read|browser)_\w+`, true},
	{`eyJ[\w-]+(?:\.[\w-]+\.[\w-]+)?`, true},    // a share's token, where a list goes on
	{`[A-Z2-7]{26}\.\d+\.[\w-]{43}`, false},     // what is random of a form's challenge
	{`\b(?:inv_|sin_|att_|0-)[\w-]{20,}`, true}, // an invitation, a share
	{`"\d+-\w+"`, true},                         // an ETag
	{`\b[0-9a-f]{24}\.[A-Z2-7]{26}\b`, true},    // the token of an uploaded file
	{`\b[0-9a-f]{24}\b`, true},
	{`\b[a-z2-7]{10}-\d+\b`, true}, // an event
	{`whsec_[\w+/=]+`, true},       // the secret of a webhook
	{`test-[a-z2-7]{26}`, true},    // the event of a test
}

const aDay = `\b20\d\d-\d\d-\d\d\b`

var standIn = func() *regexp.Regexp {
	var shown []string
	for _, s := range standIns {
		shown = append(shown, "("+s.shown+")")
	}
	return regexp.MustCompile(strings.Join(shown, "|"))
}()

// fill replaces values of the document by the answered ones.
func (w *walk) fill(text string) string {
	var pairs []string
	for _, shown := range slices.SortedFunc(maps.Keys(w.known), longestFirst) {
		pairs = append(pairs, shown, w.known[shown])
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// longestFirst orders texts by length, because one may be the prefix of another.
func longestFirst(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) }

// same reports whether a text may be answered in place of the one in a document, and remembers it.
func (w *walk) same(shown, answered string) bool {
	pattern, at := "^", 0
	var names []string
	for _, m := range standIn.FindAllStringSubmatchIndex(shown, -1) {
		pattern += regexp.QuoteMeta(w.fill(shown[at:m[0]]))
		at = m[1]
		name := shown[m[0]:m[1]]
		if value, ok := w.known[name]; ok {
			pattern += regexp.QuoteMeta(value)
			continue
		}
		for i, s := range standIns {
			if m[2*i+2] < 0 {
				continue
			}
			is := s.shown
			switch {
			case i < 2:
				is = "(?s:.*)"
			case is == aDay:
				now := time.Now().UTC()
				is = fmt.Sprintf("(?:%s|%s|%s)", name, now.Format(time.DateOnly), now.AddDate(0, 0, -1).Format(time.DateOnly))
			}
			if s.learned {
				is, names = "("+is+")", append(names, name)
			}
			pattern += is
		}
	}
	found := regexp.MustCompile(pattern + regexp.QuoteMeta(w.fill(shown[at:])) + "$").FindStringSubmatch(answered)
	if found == nil {
		return false
	}
	for i, name := range names {
		w.known[name] = found[i+1]
	}
	return true
}

// ask makes the call, and repeats it while the result is in progress.
func (w *walk) ask(t *testing.T, x exchange) *gatewaytest.Answer {
	t.Helper()
	if cookie := w.jars[x.jar]; cookie != nil {
		x.with = append(x.with, gatewaytest.Cookie(cookie))
	}
	a := w.org.Do(t, x.method, x.path, x.with...)
	for deadline := time.Now().Add(time.Minute); x.method == http.MethodGet && a.Field("state") == "running" && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		a = w.org.Do(t, x.method, x.path, x.with...)
	}
	for _, c := range (&http.Response{Header: a.Header}).Cookies() {
		w.jars[x.jar] = c
	}
	return a
}

// differs describes where the answer differs from the document.
func (w *walk) differs(x exchange, a *gatewaytest.Answer) (wrong []string) {
	if a.Code != x.code {
		return []string{fmt.Sprintf("%d %s, want %d", a.Code, a.Body, x.code)}
	}
	for _, line := range x.header {
		name, want, _ := strings.Cut(line, ": ")
		if got := strings.Join(a.Header.Values(name), ", "); !w.same(want, got) {
			wrong = append(wrong, fmt.Sprintf("%s: %s, want %s", name, got, w.fill(want)))
		}
	}
	if text, ok := x.want.(string); ok {
		if !w.same(text, strings.TrimSuffix(a.Text(), "\n")) {
			wrong = append(wrong, fmt.Sprintf("%s, want %s", a.Body, w.fill(text)))
		}
		return wrong
	}
	var got any
	if err := decodeNumbers(a.Text(), &got); err != nil {
		return append(wrong, err.Error())
	}
	return append(wrong, w.compare("", x.whole, x.want, got)...)
}

// decodeNumbers is json.Unmarshal that keeps numbers as they are written.
func decodeNumbers(text string, into any) error {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	return dec.Decode(into)
}

// measured are members whose numbers differ each time.
var measured = []string{"store_ms", "sent_bytes", "documents", "bytes", "took_us", "index", "reads_everything"}

const left = "…" // a member or an element that stands for those that a document leaves out

func (w *walk) compare(at string, whole bool, want, got any) (wrong []string) {
	switch want := want.(type) {
	case map[string]any:
		is, ok := got.(map[string]any)
		if !ok {
			return []string{fmt.Sprintf("%s: %v, want %v", at, got, want)}
		}
		_, cut := want[left]
		for _, name := range slices.Sorted(maps.Keys(want)) {
			value, there := is[name]
			if there && name == "pid" { // which looks like any other text
				w.known[fmt.Sprint(want[name])] = fmt.Sprint(value)
			}
			if slices.Contains(measured, name) && there {
				continue
			}
			if there {
				wrong = append(wrong, w.compare(at+" "+name, whole, want[name], value)...)
			} else if name != left {
				wrong = append(wrong, fmt.Sprintf("%s: no %s in %v", at, name, is))
			}
		}
		for name, value := range is {
			if _, shown := want[name]; whole && !cut && !shown {
				wrong = append(wrong, fmt.Sprintf("%s: %s is not shown: %v", at, name, value))
			}
		}
	case []any:
		is, _ := got.([]any)
		if n := len(want) - 1; n >= 0 && want[n] == left && len(is) > n {
			want, is = want[:n], is[:n]
		}
		if len(is) != len(want) {
			return []string{fmt.Sprintf("%s: %v, want %v", at, got, want)}
		}
		for i := range want {
			wrong = append(wrong, w.compare(fmt.Sprintf("%s[%d]", at, i), whole, want[i], is[i])...)
		}
	default:
		if !w.same(fmt.Sprint(want), fmt.Sprint(got)) {
			wrong = append(wrong, fmt.Sprintf("%s: %v, want %s", at, got, w.fill(fmt.Sprint(want))))
		}
	}
	return wrong
}

var (
	httpCalls = regexp.MustCompile("(?s)\n```http\n(.*?)\n```\n")
	curlCalls = regexp.MustCompile("(?s)\n```sh\n((?:[A-Z]+=[^\n]*\n)*)(curl .*?)\n```\n+```[a-z]+\n(.*?)\n```\n")
	shellWord = regexp.MustCompile(`'[^']*'|"[^"]*"|\\\n|\s+|[^\s'"\\]+`)
	variable  = regexp.MustCompile(`\$[A-Z]+`)
)

// plain parses a call in the form of HTTP, followed by an empty line and the code, message and data of its answer.
func (w *walk) plain(t *testing.T, block string) exchange {
	t.Helper()
	call, answer, _ := strings.Cut(block, "\n\n")
	lines := strings.Split(w.fill(call), "\n")
	x := exchange{call: lines[0]}
	if !strings.Contains(call, "\nx-service-token: ") {
		x.jar = "session"
	}
	x.method, x.path, _ = strings.Cut(lines[0], " ")
	media, body := "application/json", []string(nil)
	for _, line := range lines[1:] {
		name, value, header := strings.Cut(line, ": ")
		switch {
		case !header || strings.HasPrefix(line, "{"):
			body = append(body, line)
		case name == "content-type":
			media = value
		default:
			x.with = append(x.with, gatewaytest.Header(name, value))
		}
	}
	if body != nil {
		x.with = append(x.with, gatewaytest.Body(media, strings.Join(body, "\n")))
	}
	status, want, _ := strings.Cut(answer, "\n")
	x.status(t, status)
	if _, message, named := strings.Cut(status, " "); named {
		var data any
		if decodeNumbers(want, &data) != nil {
			data = want
		}
		x.want = map[string]any{"message": message, "data": data}
	} else {
		x.want = want
	}
	return x
}

func (x *exchange) status(t *testing.T, line string) {
	t.Helper()
	var err error
	if x.code, err = strconv.Atoi(strings.Fields(line)[0]); err != nil {
		t.Fatalf("%s: got %v, want no error", x.call, err)
	}
}

// curl parses a command and its printed answer: the answer alone or, with -i, code, headers and answer.
func (w *walk) curl(t *testing.T, command, printed string) exchange {
	t.Helper()
	command, body, piped := strings.Cut(command, " <<'END'\n")
	x := exchange{call: command, method: http.MethodGet, code: http.StatusOK, whole: true}
	x.with = append(x.with, gatewaytest.Header("User-Agent", "curl/8.14.1"))
	var query []string
	var shown, get bool
	send := func(method, media, content string) {
		x.method = method
		x.with = append(x.with, gatewaytest.Body(media, content))
	}
	args := w.words(command)
	next := func() (value string) {
		if len(args) == 0 {
			t.Fatalf("%s: an argument is missing, want at least 1", x.call)
		}
		value, args = args[0], args[1:]
		return value
	}
	method, media := "", "application/x-www-form-urlencoded"
	for next(); len(args) > 0; {
		switch arg := next(); arg {
		case "-X":
			method = next()
		case "-H":
			name, value, _ := strings.Cut(next(), ": ")
			if strings.EqualFold(name, "Content-Type") {
				media = value
				continue
			}
			x.with = append(x.with, gatewaytest.Header(name, value))
		case "--json":
			send(http.MethodPost, "application/json", next())
		case "--data-binary":
			if content := next(); !piped || content != "@-" {
				t.Fatalf("%s: got piped input, want the body in the document", x.call)
			}
			send(http.MethodPost, media, strings.TrimSuffix(body, "END"))
		case "-G":
			get = true
		case "-d":
			query = append(query, next())
		case "--data-urlencode":
			name, value, _ := strings.Cut(next(), "=")
			query = append(query, name+"="+strings.ReplaceAll(url.QueryEscape(value), "+", "%20"))
		case "-b", "-c":
			x.jar = next()
		case "-i":
			shown = true
		default:
			path, ok := strings.CutPrefix(arg, w.shell["$URL"])
			if !ok || x.path != "" || strings.ContainsAny(path, "[]{} ") || get != (query != nil) {
				t.Fatalf("%s: got the argument %s, want one that curl takes in this form", x.call, arg)
			}
			x.path = path
		}
	}
	if method != "" {
		x.method = method
	}
	if query != nil {
		x.path += "?" + strings.Join(query, "&")
	}
	if shown {
		head, content, _ := strings.Cut(printed, "\n\n")
		lines := strings.Split(head, "\n")
		x.status(t, strings.TrimPrefix(lines[0], "HTTP/1.1 "))
		x.header, printed = lines[1:], content
	}
	if err := decodeNumbers(printed, &x.want); err != nil || !strings.HasPrefix(printed, "{\"status\"") && !strings.HasPrefix(printed, "{\n") {
		x.want = printed
	}
	return x
}

// words splits a command like a shell and fills in known values.
func (w *walk) words(command string) (words []string) {
	apart := true
	for _, part := range shellWord.FindAllString(command, -1) {
		text := part
		if strings.ContainsAny(part[:1], `'"`) {
			text = part[1 : len(part)-1]
		}
		if strings.TrimSpace(strings.TrimPrefix(part, "\\\n")) == "" {
			apart = true
			continue
		}
		if part[0] != '\'' {
			text = variable.ReplaceAllStringFunc(text, func(name string) string { return w.shell[name] })
		}
		if text = w.fill(text); apart {
			words = append(words, text)
		} else {
			words[len(words)-1] += text
		}
		apart = false
	}
	return words
}

// layout formats JSON as documents show it: on one line if there is room.
func layout(t *testing.T, raw json.RawMessage, indent string) string {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	open, err := dec.Token()
	if err != nil {
		t.Fatal(err)
	}
	if _, nests := open.(json.Delim); !nests {
		return string(raw)
	}
	var line, lines []string
	for dec.More() {
		name := ""
		if open == json.Delim('{') {
			key, _ := dec.Token()
			name = strconv.Quote(key.(string)) + ": "
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			t.Fatal(err)
		}
		line = append(line, name+layout(t, value, ""))
		lines = append(lines, indent+"  "+name+layout(t, value, indent+"  "))
	}
	begin, end := fmt.Sprint(open), string(raw[len(raw)-1])
	one := begin + strings.Join(line, ", ") + end
	if len(indent)+len(one) <= 110 || len(lines) == 0 {
		return one
	}
	return begin + "\n" + strings.Join(lines, ",\n") + "\n" + indent + end
}

// TestPages checks that the index of the API and its pages, in the order of the index, show calls of every operation
// with their real answers. With TENANTRY_TEST_GOLDEN it writes changed answers into the pages.
func TestPages(t *testing.T) {
	t.Parallel()
	clock := &fixture.Clock{}
	g := gatewaytest.Start(t, clock.Option, fixture.ShortLeases, func(c *config.Config, _ *gateway.Options) {
		c.PublicURL, c.Limits = "http://{slug}.localhost:8080", config.Default().Limits
	})
	acme := g.Org(t, "acme", tenants.FeatureTeams)
	acme.Person(t, "ada@example.com", func(u *control.NewUser) { u.Name, u.Roles = "Ada", []string{"admin"} })
	w := &walk{org: acme, jars: map[string]*http.Cookie{}, known: map[string]string{}, shell: map[string]string{}}
	index, err := os.ReadFile("../../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	pages := []string{"../../../docs/api.md"}
	for _, link := range regexp.MustCompile(`(?m)^\| \[.*?\]\((api/\w+\.md)\)`).FindAllStringSubmatch(string(index), -1) {
		pages = append(pages, "../../../docs/"+link[1])
	}
	if kept, err := filepath.Glob("../../../docs/api/*.md"); err != nil || len(kept) != len(pages)-1 {
		t.Errorf("the index names %d pages, want %d", len(pages)-1, len(kept))
	}
	rows, uncalled := map[string]*regexp.Regexp{}, map[string]bool{}
	for _, op := range g.App.Operations() {
		for _, path := range op.Paths() {
			uncalled[op.Method+" "+path] = true
			rows[op.Method+" "+path] = regexp.MustCompile("^" + op.Method + " " + regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(regexp.QuoteMeta(path), `[^/?]+`) + `(\?|$)`)
		}
	}
	for _, page := range pages {
		g.App.FlushUsage(t.Context()) // what is counted is written down once a minute
		if strings.HasSuffix(page, "/audit.md") {
			clock.Advance(audit.HeadGrace + time.Second)
			g.App.SignHeads(t.Context())
		}
		w.walkPage(t, page, func(x exchange) {
			called := ""
			for name, pattern := range rows {
				if pattern.MatchString(x.method+" "+x.path) && (called == "" || strings.Count(name, "{") < strings.Count(called, "{")) {
					called = name
				}
			}
			delete(uncalled, called)
		})
	}
	for _, name := range slices.Sorted(maps.Keys(uncalled)) {
		t.Errorf("no page calls %s, want at least one", name)
	}
}

// walkPage makes the calls of a page and reports each operation.
func (w *walk) walkPage(t *testing.T, page string, called func(exchange)) {
	t.Helper()
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text, record := string(raw), os.Getenv(goldentest.Variable) != ""
	for _, block := range curlCalls.FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(block[1]) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			w.shell["$"+name] = w.fill(value)
		}
		x := w.curl(t, block[2], block[3])
		a := w.ask(t, x)
		called(x)
		wrong := w.differs(x, a)
		if len(wrong) > 0 && record {
			text = strings.Replace(text, block[0], strings.Replace(block[0], "\n"+block[3]+"\n", "\n"+w.shown(t, x, a)+"\n", 1), 1)
		} else if len(wrong) > 0 {
			t.Errorf("%s: got %s\n%s\nwant len(wrong) <= 0", page, x.call, strings.Join(wrong, "\n"))
		}
	}
	if !record {
		return
	}
	text = regexp.MustCompile(standIns[0].shown).ReplaceAllStringFunc(text, func(name string) string { return cmp.Or(w.known[name], name) })
	if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// shown returns an answer in the form in which a page shows it.
func (w *walk) shown(t *testing.T, x exchange, a *gatewaytest.Answer) string {
	t.Helper()
	text := a.Text()
	if a.Status != "" {
		text = layout(t, a.Body, "")
	}
	if x.header != nil || a.Code != http.StatusOK {
		head := fmt.Sprintf("HTTP/1.1 %d %s\n", a.Code, http.StatusText(a.Code))
		for _, line := range x.header {
			name, _, _ := strings.Cut(line, ":")
			head += name + ": " + strings.Join(a.Header.Values(name), ", ") + "\n"
		}
		text = head + "\n" + text
	}
	var pairs []string
	for _, shown := range slices.SortedFunc(maps.Keys(w.known), longestFirst) {
		if !strings.HasPrefix(shown, "{") {
			pairs = append(pairs, w.known[shown], shown)
		}
	}
	return strings.TrimSpace(strings.NewReplacer(pairs...).Replace(text))
}
