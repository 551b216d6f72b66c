package console_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Variables that these tests read.
const (
	chromiumVariable    = "TENANTRY_TEST_CHROMIUM"    // the browser's binary; without it these tests are skipped
	screenshotsVariable = "TENANTRY_TEST_SCREENSHOTS" // a folder for pictures of the pages
)

// browser is a headless Chromium that is controlled over its debugging pipe.
type browser struct {
	t    *testing.T
	out  *os.File
	mu   sync.Mutex
	next int
	open map[int]chan reply
	// complaints are what the console of a page reported: blocked scripts, failed loads, exceptions.
	complaints []string
}

type reply struct {
	Result json.RawMessage `json:"result"`
	Error  *struct{ Message string }
}

// launch starts the browser, or skips the test if the variable does not name one.
func launch(t *testing.T) *browser {
	t.Helper()
	binary := os.Getenv(chromiumVariable)
	if binary == "" {
		t.Skipf("set %s to the path of Chromium to run this test", chromiumVariable)
	}
	commandR, commandW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	answerR, answerW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 9*time.Minute)
	cmd := exec.CommandContext(ctx, binary, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--force-device-scale-factor=1", "--user-data-dir="+t.TempDir(), "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{commandR, answerW} // descriptors 3 and 4
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = commandR.Close(), answerW.Close() // the browser's ends
	b := &browser{t: t, out: commandW, open: map[int]chan reply{}}
	var reading sync.WaitGroup
	reading.Go(func() { b.read(answerR) })
	t.Cleanup(func() {
		_ = commandW.Close() // Chromium ends with its pipe
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = cmd.Wait() // how it ends says nothing
		}()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			cancel()
			<-done
		}
		cancel()
		_ = answerR.Close()
		reading.Wait()
	})
	return b
}

func (b *browser) read(answers *os.File) {
	scanner := bufio.NewScanner(answers)
	scanner.Buffer(nil, 64<<20)
	scanner.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		if i := bytes.IndexByte(data, 0); i >= 0 {
			return i + 1, data[:i], nil
		}
		return 0, nil, nil
	})
	for scanner.Scan() {
		var message struct {
			ID     int
			Method string
			Params json.RawMessage
			reply
		}
		if json.Unmarshal(scanner.Bytes(), &message) != nil {
			continue
		}
		b.mu.Lock()
		switch answer := b.open[message.ID]; {
		case answer != nil:
			delete(b.open, message.ID)
			answer <- message.reply
		case message.Method == "Log.entryAdded" && !bytes.Contains(message.Params, []byte(`"level":"verbose"`)) || message.Method == "Runtime.exceptionThrown":
			b.complaints = append(b.complaints, string(message.Params))
		}
		b.mu.Unlock()
	}
}

func (b *browser) call(session, method string, params, result any) {
	b.t.Helper()
	if refused := b.ask(session, method, params, result); refused != "" {
		b.t.Fatalf("%s: %s", method, refused)
	}
}

// ask makes a call that the browser may refuse, and returns the message of the refusal.
func (b *browser) ask(session, method string, params, result any) (refused string) {
	b.t.Helper()
	b.mu.Lock()
	b.next++
	id, answer := b.next, make(chan reply, 1)
	b.open[id] = answer
	raw, err := json.Marshal(map[string]any{"id": id, "method": method, "params": params, "sessionId": session})
	if session == "" {
		raw, err = json.Marshal(map[string]any{"id": id, "method": method, "params": params})
	}
	if err == nil {
		_, err = b.out.Write(append(raw, 0))
	}
	b.mu.Unlock()
	if err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	select {
	case r := <-answer:
		if r.Error != nil {
			return r.Error.Message
		}
		if result != nil {
			if err := json.Unmarshal(r.Result, result); err != nil {
				b.t.Fatalf("%s: %v", method, err)
			}
		}
	case <-time.After(30 * time.Second):
		b.t.Fatalf("%s: no answer", method)
	}
	return ""
}

// tab is one page of a browser.
type tab struct {
	*browser
	session string
}

// size is the size of a screen.
type size struct {
	name          string
	width, height int
	phone         bool
}

func screens() []size {
	return []size{{"desktop", 1280, 800, false}, {"phone", 390, 844, true}}
}

func (b *browser) tab(s size) *tab {
	b.t.Helper()
	var created struct{ TargetID string }
	b.call("", "Target.createTarget", map[string]any{"url": "about:blank"}, &created)
	var attached struct{ SessionID string }
	b.call("", "Target.attachToTarget", map[string]any{"targetId": created.TargetID, "flatten": true}, &attached)
	p := &tab{b, attached.SessionID}
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		p.do(domain+".enable", map[string]any{}, nil)
	}
	p.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": s.width, "height": s.height, "deviceScaleFactor": 1, "mobile": s.phone}, nil)
	p.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": "light"}}}, nil)
	return p
}

func (p *tab) do(method string, params, result any) {
	p.t.Helper()
	p.call(p.session, method, params, result)
}

// value evaluates an expression and returns its value as text.
func (p *tab) value(expression string) string {
	p.t.Helper()
	value, refused := p.evaluate(expression)
	if refused != "" {
		p.t.Fatalf("%s: %s", expression, refused)
	}
	return value
}

func (p *tab) evaluate(expression string) (value, refused string) {
	p.t.Helper()
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails any
	}
	refused = p.ask(p.session, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	if refused == "" && r.ExceptionDetails != nil {
		refused = fmt.Sprint(r.ExceptionDetails)
	}
	return fmt.Sprint(r.Result.Value), refused
}

// patience bounds the wait for what a page must show. It does not affect the result of a test that passes.
const patience = 60 * time.Second

// wait returns once the expression is true. It tries again if the expression cannot be evaluated, because the browser
// is between two pages.
func (p *tab) wait(expression string) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		value, refused := p.evaluate("Boolean(" + expression + ")")
		if value == "true" && refused == "" {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s stays false (%s) at %s:\n%s", expression, refused, p.value("location.href"), p.value("document.body.innerText"))
		}
	}
}

// visit opens a page and returns once it has loaded, scripts included.
func (p *tab) visit(address string) {
	p.t.Helper()
	p.value("window.before = true") // the page that is left stays 'complete' until the next one comes
	p.do("Page.navigate", map[string]any{"url": address}, nil)
	p.wait("!window.before && document.readyState === 'complete' && location.href !== 'about:blank'")
}

// write types into the field with that id once it has the focus.
func (p *tab) write(field, text string) {
	p.t.Helper()
	p.wait("document.activeElement?.id === '" + field + "'")
	p.do("Input.insertText", map[string]any{"text": text}, nil)
}

func (p *tab) press(key string, code int) {
	p.t.Helper()
	text := ""
	if key == "Enter" {
		text = "\r"
	}
	p.do("Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text}, nil)
	p.do("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": code}, nil)
}

func (p *tab) tabulator() { p.t.Helper(); p.press("Tab", 9) }
func (p *tab) enter()     { p.t.Helper(); p.press("Enter", 13) }

// picture stores a screenshot if the variable names a folder.
func (p *tab) picture(name string) {
	p.t.Helper()
	folder := os.Getenv(screenshotsVariable)
	if folder == "" {
		return
	}
	var shot struct{ Data string }
	p.do("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	raw, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, name+".png"), raw, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// quiet fails the test if a page has logged anything that is not expected.
func (b *browser) quiet(expected ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
next:
	for _, complaint := range b.complaints {
		for _, e := range expected {
			if strings.Contains(complaint, e) {
				continue next
			}
		}
		b.t.Errorf("a page logged %s", complaint)
	}
}
