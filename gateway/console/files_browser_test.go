package console_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"tenantry/gateway/gatewaytest"
)

// hold writes files into a new folder and returns their paths in the order of the names.
func hold(t *testing.T, content map[string]string, names ...string) (paths []string) {
	t.Helper()
	folder := t.TempDir()
	for _, name := range names {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content[name]), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

// chooses selects files in a field.
func (p *tab) chooses(selector string, paths ...string) {
	p.t.Helper()
	var root struct{ Root struct{ NodeID int } }
	p.do("DOM.getDocument", map[string]any{}, &root)
	var node struct{ NodeID int }
	p.do("DOM.querySelector", map[string]any{"nodeId": root.Root.NodeID, "selector": selector}, &node)
	p.do("DOM.setFileInputFiles", map[string]any{"files": paths, "nodeId": node.NodeID}, nil)
}

// drops drops files on an element.
func (p *tab) drops(selector string, paths ...string) {
	p.t.Helper()
	at := p.value(`(() => { const e = document.querySelector(` + quoted(selector) + `); e.scrollIntoView({block: "center"}); const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2].join(" ") })()`)
	x, y, _ := strings.Cut(at, " ")
	for _, kind := range []string{"dragEnter", "dragOver", "drop"} {
		p.do("Input.dispatchDragEvent", map[string]any{
			"type": kind, "x": number(x), "y": number(y),
			"data": map[string]any{"items": []any{}, "files": paths, "dragOperationsMask": 1},
		}, nil)
	}
}

// number returns the whole part of a number.
func number(text string) (n int) {
	for _, digit := range strings.Split(text, ".")[0] {
		n = 10*n + int(digit-'0')
	}
	return n
}

// saidOf returns an expression for what the page says of the upload of a file.
func saidOf(name string) string {
	return `[...document.querySelectorAll("#uploads li")].findLast((l) => l.firstChild.textContent === ` + quoted(name) + `)?.querySelector("p.said").textContent`
}

// network is a network that passes a number of bytes to the gateway and then none, until it is cut.
type network struct {
	t      *testing.T
	to     string
	listen net.Listener
	whole  chan struct{} // closed when it passes all bytes

	mu    sync.Mutex
	left  int
	conns []net.Conn
}

// newNetwork returns a network to an organization that passes so many bytes.
func newNetwork(t *testing.T, o *gatewaytest.Org, most int) *network {
	t.Helper()
	listen, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &network{t: t, to: o.App.Addr().String(), listen: listen, whole: make(chan struct{}), left: most}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			from, err := listen.Accept()
			if err != nil {
				return // closed
			}
			all.Go(func() { l.join(from) })
		}
	})
	t.Cleanup(func() {
		_ = listen.Close()
		l.cut()
		all.Wait()
	})
	return l
}

// join passes bytes of a connection until either end closes it.
func (l *network) join(from net.Conn) {
	to, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", l.to)
	if err != nil {
		_ = from.Close()
		return
	}
	l.mu.Lock()
	l.conns = append(l.conns, from, to)
	l.mu.Unlock()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(from, to)
		_ = from.Close()
	})
	for buf := make([]byte, 32<<10); ; {
		n, err := from.Read(buf)
		l.mu.Lock()
		l.left -= n
		held := l.left < 0
		l.mu.Unlock()
		if held {
			<-l.whole
		}
		if _, wrong := to.Write(buf[:n]); err != nil || wrong != nil {
			break
		}
	}
	_ = to.Close()
	back.Wait()
}

// cut closes all connections. Those that follow pass all bytes.
func (l *network) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
	select {
	case <-l.whole:
	default:
		close(l.whole)
	}
}

// address returns the address of a path through the network.
func (l *network) address(o *gatewaytest.Org, path string) string {
	_, port, _ := net.SplitHostPort(l.listen.Addr().String()) // cannot fail: the system made it
	return "http://" + o.Host + ":" + port + path
}

// slow makes the browser send so many bytes a second; 0: none at all.
func (p *tab) slow(bytes int) {
	p.t.Helper()
	p.do("Network.enable", map[string]any{}, nil)
	p.do("Network.emulateNetworkConditions", map[string]any{"offline": bytes == 0, "latency": 0, "downloadThroughput": -1, "uploadThroughput": bytes}, nil)
}

// TestBrowserPagesOfFiles drops files on the page of a folder and looks at their pages, on both screens.
func TestBrowserPagesOfFiles(t *testing.T) {
	t.Parallel()
	b := launch(t)
	_, acme, cookie := rich(t, nil)
	keeper := person{t, acme, cookie}
	for _, screen := range both() {
		name := func(text string) string { return screen.name + " " + text }
		content := map[string]string{
			name("a.png"): picturePNG(t), name("z.png"): picturePNG(t), name("b.txt"): "Hello.\n", name("c.pdf"): "%PDF-1.4\n%%EOF\n", name("d.bin"): "\x00\x01",
			name("evil.png"): "<!doctype html><script>top.ran = 1; parent.ran = 1</script><h1>Hello</h1>",
			name("wave.wav"): "RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x40\x1f\x00\x00\x01\x00\x08\x00data\x00\x00\x00\x00",
		}
		p := b.signedIn(screen, acme)
		p.visit(address(t, acme, spring))
		fits(p)
		accessible(p)
		p.picture("folder-empty-" + screen.name)
		p.drops(".zone", hold(t, content, name("a.png"), name("b.txt"))...)
		p.wait(`document.querySelector("#stored").innerText.includes(` + quoted(name("b.txt")) + `) && document.querySelector("#stored").innerText.includes(` + quoted(name("a.png")) + `)`)
		p.wait(`document.querySelector("#uploads-said").textContent === "2 of 2 files were uploaded."`)
		p.chooses("#files", hold(t, content, name("c.pdf"), name("d.bin"), name("evil.png"), name("wave.wav"), name("z.png"))...)
		p.wait(`document.querySelector("#uploads-said").textContent === "7 of 7 files were uploaded." && document.querySelector("#stored").innerText.includes("evil.png")`)
		p.value(`document.querySelector("#stored img.thumb").scrollIntoView()`) // they load when they are seen
		p.wait(`[...document.querySelectorAll("#stored img.thumb")].some((i) => i.complete && i.naturalWidth > 0)`)
		fits(p)
		accessible(p)
		p.picture("folder-uploaded-" + screen.name)
		for _, theme := range []string{"dark", "light"} {
			p.theme(theme)
			accessible(p, "color-contrast")
		}
		for file, want := range map[string]string{
			"a.png": `document.querySelector(".content img").naturalWidth > 0`, "b.txt": `document.querySelector("iframe.shown[sandbox]")`,
			"c.pdf": `document.querySelector("iframe.shown")`, "d.bin": `document.body.innerText.includes("not shown here")`,
			"evil.png": `document.querySelector(".content .error").innerText.includes("looks like text/html")`,
			"wave.wav": `document.querySelector("audio.shown").readyState > 0`,
		} {
			p.visit(address(t, acme, "/files/"+keeper.fileNamed(name(file))["id"].(string)))
			p.wait(want)
			if p.value(`String(window.ran)`) != "undefined" {
				t.Errorf("%s has run a script", file)
			}
			fits(p)
			if file != "c.pdf" { // whose frame is the browser's own page
				accessible(p)
			}
			p.picture("file-" + file + "-" + screen.name)
		}
		evil := keeper.fileNamed(name("evil.png"))["url"].(string)
		a := acme.Page(t, evil[strings.Index(evil, "/files/"):])
		if h := a.Header; !strings.HasPrefix(h.Get("Content-Disposition"), "attachment") || !strings.Contains(h.Get("Content-Security-Policy"), "sandbox") {
			t.Errorf("at its own address, a page that is named as a picture is served with %v", h)
		}
		for _, element := range []string{"img", "iframe", "video"} { // somebody may show it on a page of their own
			p.value(`(() => { const e = document.createElement("` + element + `"); e.src = ` + quoted(evil) + `; document.body.append(e) })()`)
		}
		p.visit(address(t, acme, "/files/"+keeper.fileNamed(name("a.png"))["id"].(string)))
		p.value(`[...document.querySelectorAll("details.action")].find((d) => d.innerText.includes("Replace")).open = true`)
		content[name("new.txt")] = "New."
		p.chooses("#file", hold(t, content, name("new.txt"))...)
		p.click("form[action='/do/files.replace'] button")
		p.arrives("/files/", "File replaced.")
		p.wait(`document.body.innerText.includes("Earlier versions") && document.querySelector("h1").textContent === ` + quoted(name("new.txt")))
		fits(p)
		accessible(p)
		p.whole(screen, "file-replaced-"+screen.name)
		p.visit(address(t, acme, "/files"))
		p.wait(`document.querySelector("#stored img.thumb")`)
		if screen.width >= 1280 && p.value(`(() => { const s = document.querySelector("#stored .scroll"); return s.scrollWidth > s.clientWidth })()`) == "true" {
			t.Error("the list of files is wider than its place")
		}
		fits(p)
		accessible(p)
		p.picture("files-" + screen.name)
	}
	b.quiet("ERR_BLOCKED_BY_CLIENT")
}

// TestBrowserSmallPicturesComeLater: pages ask again for a small picture that they could not get.
func TestBrowserSmallPicturesComeLater(t *testing.T) {
	t.Parallel()
	b := launch(t)
	_, acme, cookie := rich(t, nil)
	keeper := person{t, acme, cookie}
	p := b.signedIn(screens()[0], acme)
	p.visit(address(t, acme, spring))
	p.drops(".zone", hold(t, map[string]string{"later.png": picturePNG(t)}, "later.png")...)
	p.wait(`document.querySelector("#stored").innerText.includes("later.png")`)
	p.do("Network.enable", map[string]any{}, nil)
	file := "/files/" + keeper.fileNamed("later.png")["id"].(string)
	for path, image := range map[string]string{file: ".content img", spring: "#stored img.thumb"} {
		p.do("Network.setCacheDisabled", map[string]any{"cacheDisabled": true}, nil)
		p.do("Network.setBlockedURLs", map[string]any{"urls": []string{"*thumbnail=true*"}}, nil)
		p.visit(address(t, acme, path))
		p.value(`document.querySelector("` + image + `").scrollIntoView()`)
		p.wait(`(() => { const i = document.querySelector("` + image + `"); return i.complete && i.currentSrc && !i.naturalWidth })()`)
		p.do("Network.setBlockedURLs", map[string]any{"urls": []string{}}, nil)
		p.wait(`document.querySelector("` + image + `").naturalWidth > 0`)
	}
	b.quiet("ERR_BLOCKED_BY_CLIENT")
}

// TestBrowserUploadResumes cuts the network in the middle of an upload, which goes on where it was, and cancels another.
func TestBrowserUploadResumes(t *testing.T) {
	t.Parallel()
	b := launch(t)
	_, acme, cookie := rich(t, nil)
	keeper := person{t, acme, cookie}
	p := b.signedIn(screens()[0], acme)
	cable := newNetwork(t, acme, 3_000_000)
	p.visit(cable.address(acme, catalogue))
	p.value(`window.offsets = []; const set = XMLHttpRequest.prototype.setRequestHeader; XMLHttpRequest.prototype.setRequestHeader = function (name, value) { if (name === "Upload-Offset") offsets.push(value); set.call(this, name, value) }; 1`)
	content := map[string]string{"large.bin": strings.Repeat("0123456789abcdef", 1_000_000), "other.bin": strings.Repeat("x", 4_000_000), "huge.bin": "", "gone.bin": "x"}
	paths := hold(t, content, "large.bin", "other.bin")
	p.chooses("#files", paths...)
	p.wait(saidOf("large.bin") + `?.match(/^[1-9][\d.]* (kB|MB) of 16 MB$/)`)
	accessible(p)
	p.picture("uploading")
	p.click(`button[aria-label="Cancel: other.bin"]`)
	p.wait(saidOf("other.bin") + ` === "Cancelled."`)
	p.slow(0)
	cable.cut()
	p.wait(saidOf("large.bin") + `.startsWith("The connection was cut at ")`)
	p.picture("upload-cut")
	accessible(p)
	p.slow(-1)
	p.wait(`document.querySelector("#uploads-said").textContent === "1 of 2 files were uploaded."`)
	if p.value(`String(offsets.some((o) => o > 0))`) != "true" {
		t.Errorf("the upload has begun again: %s", p.value(`offsets.join(" ")`))
	}
	p.wait(`document.querySelector("#stored").innerText.includes("large.bin")`)
	file := keeper.fileNamed("large.bin")
	got := acme.Page(t, file["url"].(string)[strings.Index(file["url"].(string), "/files/"):])
	if !bytes.Equal(got.Body, []byte(content["large.bin"])) {
		t.Errorf("%d bytes arrived, want %d", len(got.Body), len(content["large.bin"]))
	}
	requests := acme.Do(t, http.MethodGet, "/api/audit?filters[operation]=uploads.create", gatewaytest.Cookie(cookie)).Field("count")
	if fmt.Sprint(requests) != "2" {
		t.Errorf("%v uploads were begun, want that the one that was cut goes on", requests)
	}
	if found := keeper.api(http.MethodGet, "/api/files?filters[filename]=other.bin", nil).Field("count"); fmt.Sprint(found) != "0" {
		t.Errorf("%v files were stored of an upload that was cancelled", found)
	}

	// What the server refuses is told beside the file, and can be tried again.
	p.value(`document.querySelector(".zone").dataset.folder = "66f0ffffffffffffffffffff"`)
	p.chooses("#files", hold(t, content, "gone.bin")...)
	p.wait(`document.querySelector("#uploads .error")?.textContent.includes("older")`)
	p.picture("upload-refused")
	accessible(p)
	p.value(`document.querySelector(".zone").dataset.folder = ""`)
	p.click(`button[aria-label="Try again: gone.bin"]:not([hidden])`)
	p.wait(`document.querySelector("#uploads-said").textContent === "2 of 3 files were uploaded." && !document.querySelector("#uploads .error")`)
	p.value(`document.querySelector(".zone").dataset.most = "3"`)
	p.chooses("#files", paths[0])
	p.wait(`[...document.querySelectorAll("#uploads .error")].some((e) => e.textContent.includes("larger than"))`)

	p.visit(address(t, acme, catalogue))
	p.drops("h1", t.TempDir())
	p.wait(`document.querySelector("#uploads .error").textContent === "This is a folder. Choose the files in it."`)
	p.value(`(() => { // a part of the page that is dragged, which browsers offer as a file if it is a picture
		const data = new DataTransfer(), at = document.querySelector("h1"), send = (kind) => at.dispatchEvent(new DragEvent(kind, {dataTransfer: data, bubbles: true, cancelable: true}));
		data.items.add(new File(["x"], "own.png"));
		send("dragstart"); send("drop"); send("dragend");
		return 1 })()`)
	if p.value(`document.querySelectorAll("#uploads li").length`) != "1" {
		t.Error("a part of the page that is dropped on it is uploaded")
	}
	b.quiet("ERR_INTERNET_DISCONNECTED", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION", "status of 409", "status of 422", "ERR_NETWORK_CHANGED")
}

// TestBrowserUploadByKeyboard uploads a file with the keyboard alone: the control for files has the focus in the order of
// the page, and its button opens the chooser.
func TestBrowserUploadByKeyboard(t *testing.T) {
	t.Parallel()
	b := launch(t)
	_, acme, _ := rich(t, nil)
	p := b.signedIn(screens()[0], acme)
	p.visit(address(t, acme, catalogue))
	p.value(`window.opened = 0; document.querySelector("#files").addEventListener("click", (e) => { e.preventDefault(); opened++ }); 1`)
	for range 60 {
		if p.tabulator(); p.value("document.activeElement.id") == "files" {
			break
		}
	}
	p.wait(`document.activeElement.id === "files"`)
	p.press(" ", 32)
	p.enter()
	p.wait("opened > 0")
	p.picture("upload-focus")
	p.slow(200_000)
	p.chooses("#files", hold(t, map[string]string{"k.bin": strings.Repeat("x", 3_000_000)}, "k.bin")...)
	p.wait(`document.querySelector("#uploads button:not([hidden])")`)
	for range 6 {
		if p.tabulator(); p.value("document.activeElement.textContent") == "Cancel" {
			break
		}
	}
	p.enter()
	p.wait(saidOf("k.bin") + ` === "Cancelled." && document.activeElement.matches("#uploads li")`)
	b.quiet()
}

// TestBrowserUploadWithoutScripts uploads two files with the form of a folder.
func TestBrowserUploadWithoutScripts(t *testing.T) {
	t.Parallel()
	b := launch(t)
	_, acme, _ := rich(t, nil)
	p := b.signedIn(both()[1], acme)
	p.do("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
	p.visit(address(t, acme, catalogue))
	content := map[string]string{"one.txt": "1", "two.txt": "2"}
	p.chooses("#files", hold(t, content, "one.txt", "two.txt")...)
	p.picture("upload-without-scripts")
	p.click(".zone button")
	p.arrives("/files/folders/", "Files stored.")
	p.wait(`document.querySelector("#stored").innerText.includes("one.txt") && document.querySelector("#stored").innerText.includes("two.txt")`)
	b.quiet()
}
