package files

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

const tusPath = "/api/files/tus"

// transfer is a resumable upload.
type transfer struct {
	*archive

	path string
}

// metadata returns the header Upload-Metadata of names and values in pairs.
func metadata(pairs ...string) string {
	var all []string
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, pairs[i]+" "+base64.StdEncoding.EncodeToString([]byte(pairs[i+1])))
	}
	return strings.Join(all, ",")
}

// create asks for a resumable upload.
func (a *archive) create(t *testing.T, length int, headers ...string) *gatewaytest.Answer {
	t.Helper()
	headers = append(headers, "Tus-Resumable", "1.0.0", "Upload-Length", strconv.Itoa(length))
	return a.Do(t, http.MethodPost, tusPath, append(pairs(headers), gatewaytest.WithKey(a.key))...)
}

// begin begins a resumable upload.
func (a *archive) begin(t *testing.T, length int, meta ...string) *transfer {
	t.Helper()
	if !slices.Contains(meta, "filename") {
		meta = append(meta, "filename", "a.bin")
	}
	answer := a.create(t, length, "Upload-Metadata", metadata(meta...))
	at, err := url.Parse(answer.Header.Get("Location"))
	if answer.Code != http.StatusCreated || err != nil || !strings.HasPrefix(at.Path, tusPath+"/") {
		t.Fatalf("got %d %s %v, want an upload", answer.Code, answer.Text(), answer.Header)
	}
	return &transfer{a, at.Path}
}

// send sends bytes that begin at an offset.
func (u *transfer) send(t *testing.T, offset int, body string, headers ...string) *gatewaytest.Answer {
	t.Helper()
	headers = append(headers, "Tus-Resumable", "1.0.0", "Upload-Offset", strconv.Itoa(offset))
	return u.Do(t, http.MethodPatch, u.path, append(pairs(headers), gatewaytest.WithKey(u.key), gatewaytest.Body("application/offset+octet-stream", body))...)
}

// head asks how much has arrived; -1: there is no such upload.
func (u *transfer) head(t *testing.T) (offset int, file string) {
	t.Helper()
	answer := u.Do(t, http.MethodHead, u.path, gatewaytest.WithKey(u.key), gatewaytest.Header("Tus-Resumable", "1.0.0"))
	if answer.Code == http.StatusNotFound {
		return -1, ""
	}
	offset, err := strconv.Atoi(answer.Header.Get("Upload-Offset"))
	if err != nil || answer.Code != http.StatusOK || !strings.Contains(answer.Header.Get("Cache-Control"), "no-store") || answer.Header.Get("Tus-Resumable") != "1.0.0" {
		t.Fatalf("got %d %v, want an offset", answer.Code, answer.Header)
	}
	return offset, answer.Header.Get("X-File-Id")
}

// hold begins a request for bytes at an offset, and sends the first ones of them. framing is its Content-Length or
// Transfer-Encoding.
func (u *transfer) hold(t *testing.T, offset int, framing, body string) net.Conn {
	t.Helper()
	conn := fixture.Dial(t, u.App.Addr())
	fixture.Send(t, conn, fmt.Sprintf("PATCH %s HTTP/1.1\r\nHost: %s\r\nX-Service-Token: %s\r\nTus-Resumable: 1.0.0\r\n"+
		"Upload-Offset: %d\r\nContent-Type: application/offset+octet-stream\r\n%s\r\n\r\n%s", u.path, u.Host, u.key, offset, framing, body))
	return conn
}

func length(n int) string { return "Content-Length: " + strconv.Itoa(n) }

// answered reads the code of the answer.
func answered(t *testing.T, conn net.Conn) int {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body) // of no interest
	return resp.StatusCode
}

// cut sends bytes at an offset, of which the connection is cut after some, and waits until they are kept.
func (u *transfer) cut(t *testing.T, offset int, body string, after int) {
	t.Helper()
	conn := u.hold(t, offset, length(len(body)), body[:after])
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	at := -1
	fixture.Await(t, "what has arrived is kept", func() bool { at, _ = u.head(t); return at == offset+after })
}

// wantFile checks that the upload has become a file with these bytes.
func (u *transfer) wantFile(t *testing.T, want string) file {
	t.Helper()
	at, id := u.head(t)
	if at != len(want) || id == "" {
		t.Fatalf("got the offset %d and the file %q, want a file of %d bytes", at, id, len(want))
	}
	f := u.read(t, id)
	if f.Checksum != sumOf(want) || *f.Size != int64(len(want)) {
		t.Errorf("got %+v, want the checksum %s", f, sumOf(want))
	}
	return f
}

// TestTus checks the protocol as its specification has it.
func TestTus(t *testing.T) {
	t.Parallel()
	a := open(t)
	answer := a.Do(t, http.MethodOptions, tusPath)
	for name, want := range map[string]string{"Tus-Resumable": "1.0.0", "Tus-Version": "1.0.0", "Tus-Extension": "creation,expiration,termination"} {
		if answer.Code != http.StatusNoContent || answer.Header.Get(name) != want {
			t.Errorf("OPTIONS: got %d %v, want %s: %s", answer.Code, answer.Header, name, want)
		}
	}
	u := a.begin(t, 10, "filename", "Übung.txt", "filetype", "text/x-demo", "type", "note", "teams", north+","+south, "relativePath", "null")
	expires := func(answer *gatewaytest.Answer) {
		t.Helper()
		at, err := http.ParseTime(answer.Header.Get("Upload-Expires"))
		if left := time.Until(at); err != nil || left < 23*time.Hour || left > 25*time.Hour {
			t.Errorf("got Upload-Expires %s, want a day from now", answer.Header.Get("Upload-Expires"))
		}
	}
	if at, id := u.head(t); at != 0 || id != "" {
		t.Errorf("got the offset %d, want 0", at)
	}
	answer = u.send(t, 0, "01234")
	if answer.Code != http.StatusNoContent || answer.Header.Get("Upload-Offset") != "5" || answer.Header.Get("Tus-Resumable") != "1.0.0" {
		t.Errorf("got %d %v, want the offset 5", answer.Code, answer.Header)
	}
	expires(answer)
	for _, wrong := range []int{0, 4, 6} {
		if answer = u.send(t, wrong, "56789"); answer.Code != http.StatusConflict || answer.Header.Get("Upload-Offset") != "5" {
			t.Errorf("got %d %v for the offset %d, want 409", answer.Code, answer.Header, wrong)
		}
	}
	if answer = u.send(t, 5, "567890"); answer.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("got %d %s, want 413 for a byte too many", answer.Code, answer.Text())
	}
	as := []gatewaytest.Request{gatewaytest.WithKey(a.key), gatewaytest.Header("Upload-Offset", "5")}
	answer = u.Do(t, http.MethodPatch, u.path, append(as, gatewaytest.Header("Tus-Resumable", "1.0.0"), gatewaytest.Body("text/plain", "5"))...)
	if answer.Code != http.StatusUnsupportedMediaType {
		t.Errorf("got %d %s, want 415", answer.Code, answer.Text())
	}
	answer = u.Do(t, http.MethodPatch, u.path, append(as, gatewaytest.Header("Tus-Resumable", "0.2.2"), gatewaytest.Body("application/offset+octet-stream", "5"))...)
	if answer.Code != http.StatusPreconditionFailed || answer.Header.Get("Tus-Version") != "1.0.0" {
		t.Errorf("got %d %v, want 412 with Tus-Version", answer.Code, answer.Header)
	}
	if answer = u.send(t, 5, "56789"); answer.Code != http.StatusNoContent || answer.Header.Get("Upload-Offset") != "10" {
		t.Errorf("got %d %v, want the offset 10", answer.Code, answer.Header)
	}
	f := u.wantFile(t, "0123456789")
	if f.Filename != "Übung.txt" || f.Mimetype != "text/x-demo" || f.Type != "note" || len(f.Teams) != 2 || answer.Header.Get("X-File-Id") != f.ID {
		t.Errorf("got %+v %v, want what was sent", f, answer.Header)
	}
	if answer = u.send(t, 10, ""); answer.Code != http.StatusNoContent || answer.Header.Get("X-File-Id") != f.ID {
		t.Errorf("got %d %v, want a repetition to name the same file", answer.Code, answer.Header)
	}
	remove := func(u *transfer, code int) {
		t.Helper()
		answer := u.Do(t, http.MethodDelete, u.path, gatewaytest.WithKey(a.key), gatewaytest.Header("Tus-Resumable", "1.0.0"))
		if at, _ := u.head(t); answer.Code != code || at != -1 {
			t.Errorf("got %d %s and the offset %d, want %d and no upload", answer.Code, answer.Text(), at, code)
		}
	}
	remove(u, http.StatusNoContent)
	remove(u, http.StatusNotFound)
	a.wantBytes(t, f.URL, "0123456789")
	u = a.begin(t, 0)
	u.wantFile(t, "")
	before := a.state(t)
	u = a.begin(t, 10)
	u.send(t, 0, "x")
	remove(u, http.StatusNoContent)
	a.wantSame(t, before)
	if answer = u.send(t, 1, "x"); answer.Code != http.StatusNotFound {
		t.Errorf("got %d %s after a DELETE, want 404", answer.Code, answer.Text())
	}
}

// TestTus_Refused: what could not become a file is refused before its bytes are sent.
func TestTus_Refused(t *testing.T) {
	t.Parallel()
	a := open(t, func(c *config.Config, _ *gateway.Options) { c.Limits.FileSize = 1000 })
	a.upload(t, "first.txt", "text/plain", "first")
	before := a.state(t)
	limited := *a
	limited.key = a.limitedKey(t, north)
	named := metadata("filename", "a")
	for _, tt := range []struct {
		name   string
		as     *archive
		length int
		meta   string
		code   int
	}{
		{"too large", a, 1001, named, 413},
		{"negative", a, -1, named, 400},
		{"no name", a, 1, "", 422},
		{"no base64", a, 1, "filename !", 400},
		{"twice", a, 1, named + "," + named, 400},
		{"empty pair", a, 1, named + ",,", 400},
		{"long", a, 1, metadata("filename", strings.Repeat("a", 9000)), 400},
		{"unknown folder", a, 1, metadata("filename", "a", "folder_id", fixture.DocID(9)), 422},
		{"malformed digest", a, 1, metadata("filename", "a", "digest", "sha-256=x"), 422},
		{"another team", &limited, 1, metadata("filename", "a", "teams", south), 422},
	} {
		if answer := tt.as.create(t, tt.length, "Upload-Metadata", tt.meta); answer.Code != tt.code || answer.Header.Get("Location") != "" {
			t.Errorf("%s: got %d %s, want %d", tt.name, answer.Code, answer.Text(), tt.code)
		}
	}
	a.limit(t, tenants.LimitFileBytes, 1500)
	a.begin(t, 900)
	if answer := a.create(t, 900, "Upload-Metadata", named); answer.Code != http.StatusInsufficientStorage {
		t.Errorf("got %d %s, want 507, because another upload has the room", answer.Code, answer.Text())
	}
	u := a.begin(t, 100, "digest", digest("other"))
	if answer := u.send(t, 0, filler(1, 100)); answer.Code != http.StatusUnprocessableEntity {
		t.Errorf("got %d %s, want 422 for a wrong digest", answer.Code, answer.Text())
	}
	if answer := u.send(t, 0, filler(1, 101)); answer.Code != http.StatusRequestEntityTooLarge || !strings.Contains(answer.Text(), "larger than 100 bytes, the rest of the upload") {
		t.Errorf("got %d %s, want 413 for more than was announced", answer.Code, answer.Text())
	}
	if at, id := u.head(t); at == 100 || id != "" {
		t.Errorf("got the offset %d, want less than all, because there is no file", at)
	}
	a.wantSame(t, before)
}

// TestTus_BeginTogether: of uploads that begin at the same time, only those for which there is room do.
func TestTus_BeginTogether(t *testing.T) {
	t.Parallel()
	a := open(t)
	for most := 1; most <= 10; most++ {
		a.limit(t, tenants.LimitFileBytes, int64(most)*900)
		codes := fixture.Concurrently(16, func(int) int { return a.create(t, 900, "Upload-Metadata", metadata("filename", "a")).Code })
		if codes[http.StatusCreated] != 1 || codes[http.StatusInsufficientStorage] != 15 {
			t.Fatalf("got %v with room for one, want one 201 and fifteen 507", codes)
		}
	}
}

// TestTus_Teams: callers who do not see the file do not see its upload either.
func TestTus_Teams(t *testing.T) {
	t.Parallel()
	a := open(t)
	ours, theirs := *a, *a
	ours.key, theirs.key = a.limitedKey(t, north), a.limitedKey(t, south)
	u := ours.begin(t, 10, "teams", north)
	other := transfer{&theirs, u.path}
	if at, _ := other.head(t); at != -1 {
		t.Errorf("got the offset %d, want nothing for another team", at)
	}
	if answer := other.send(t, 0, "x"); answer.Code != http.StatusNotFound {
		t.Errorf("got %d %s, want 404", answer.Code, answer.Text())
	}
	if at, _ := u.head(t); at != 0 {
		t.Errorf("got the offset %d, want 0", at)
	}
	for what, u := range map[string]*transfer{"given": u, "of the caller": ours.begin(t, 10)} {
		all := transfer{a, u.path}
		if answer := all.send(t, 0, "0123456789"); answer.Code != http.StatusNoContent {
			t.Fatalf("got %d %s, want the file", answer.Code, answer.Text())
		}
		_, id := u.head(t)
		if f := a.read(t, id); len(f.Teams) != 1 || f.Teams[0] != north {
			t.Errorf("teams %s: got %v, want those with which the upload began", what, f.Teams)
		}
		if answer := theirs.Get(t, theirs.key, "/api/files/"+id); answer.Code != http.StatusNotFound {
			t.Errorf("teams %s: got %d, want nothing for another team", what, answer.Code)
		}
	}
}

// TestTus_Cut cuts the connection at every byte. The upload continues there.
func TestTus_Cut(t *testing.T) {
	t.Parallel()
	a := open(t)
	const size = 300
	step := 1
	if testing.Short() {
		step = 23
	}
	fixture.Concurrently(6, func(worker int) string {
		for at := worker * step; at < size && !t.Failed(); at += 6 * step {
			text := filler(at, size)
			u := a.begin(t, size, "digest", digest(text))
			u.cut(t, 0, text, at)
			if answer := u.send(t, at, text[at:]); answer.Code != http.StatusNoContent {
				t.Errorf("cut at %d: got %d %s, want 204", at, answer.Code, answer.Text())
			}
			u.wantFile(t, text)
		}
		return ""
	})
	if s := a.state(t); slices.ContainsFunc(s.Objects, func(name string) bool { return strings.Contains(name, "parts/") }) {
		t.Errorf("got %+v, want no parts left", s)
	}
}

// TestTus_ManyParts checks that many small requests leave few parts, in order.
func TestTus_ManyParts(t *testing.T) {
	t.Parallel()
	for name, part := range map[string]func(n int) int{
		"equal": func(int) int { return 1 }, "falling": func(n int) int { return 60 - n }, "rising": func(n int) int { return 1 + n },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := open(t)
			const parts, bound = 60, 8
			size := 0
			for n := range parts {
				size += part(n)
			}
			text := filler(1, size)
			u := a.begin(t, size, "digest", digest(text))
			for n, at, most := 0, 0, 0; n < parts; n++ {
				if answer := u.send(t, at, text[at:at+part(n)]); answer.Code != http.StatusNoContent {
					t.Fatalf("at %d: got %d %s, want 204", at, answer.Code, answer.Text())
				}
				at += part(n)
				if most = max(most, len(a.state(t).Objects)); most > bound {
					t.Fatalf("got %d objects after %d parts, want at most %d", most, n+1, bound)
				}
			}
			u.wantFile(t, text)
		})
	}
}

// TestTus_CutLarge cuts an upload of several parts 40 times.
func TestTus_CutLarge(t *testing.T) {
	t.Parallel()
	size, cuts := 70_000_000, 40
	if testing.Short() {
		size, cuts = 35_000_000, 3
	}
	a := open(t)
	text := filler(1, size)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	var at []int
	for range cuts {
		at = append(at, random.IntN(size))
	}
	slices.Sort(at)
	u, from := a.begin(t, size, "digest", digest(text)), 0
	for _, to := range at {
		u.cut(t, from, text[from:], to-from)
		from = to
	}
	if answer := u.send(t, from, text[from:]); answer.Code != http.StatusNoContent {
		t.Fatalf("got %d %s, want 204", answer.Code, answer.Text())
	}
	f := u.wantFile(t, text)
	if got := a.fetch(t, f.URL); got.Code != http.StatusOK || sumOf(got.Text()) != f.Checksum {
		t.Errorf("got %d with %d bytes, want all", got.Code, len(got.Body))
	}
}

// TestTus_MalformedEnd: a request whose framing is broken after the last byte of the file leaves either a file or an
// upload that can be continued.
func TestTus_MalformedEnd(t *testing.T) {
	t.Parallel()
	a := open(t)
	u := a.begin(t, 5)
	conn := u.hold(t, 0, "Transfer-Encoding: chunked", "5\r\nhelloXX")
	answered(t, conn)
	at, id := u.head(t)
	if at == 5 && id == "" {
		t.Error("got the offset 5 and no file, want either less or a file")
	}
	if answer := u.send(t, at, "hello"[at:]); answer.Code != http.StatusNoContent {
		t.Errorf("got %d %s, want 204", answer.Code, answer.Text())
	}
	u.wantFile(t, "hello")
}

// TestTus_AtOnce: of two requests for the same bytes one is carried out. The other one is told so, whatever has become of
// the upload meanwhile.
func TestTus_AtOnce(t *testing.T) {
	t.Parallel()
	text := filler(1, 300)
	for name, tt := range map[string]struct {
		begin, hold int // bytes that were sent before; that the request which waits has sent
		meanwhile   func(t *testing.T, u *transfer)
		codes       []int
	}{
		"other part":             {0, 100, func(t *testing.T, u *transfer) { t.Helper(); u.send(t, 0, text[:150]) }, []int{409}},
		"other end":              {100, 199, func(t *testing.T, u *transfer) { t.Helper(); u.send(t, 100, text[100:]) }, []int{409}},
		"other end of the whole": {0, 299, func(t *testing.T, u *transfer) { t.Helper(); u.send(t, 0, text) }, []int{409}},
		"ended": {100, 199, func(t *testing.T, u *transfer) {
			t.Helper()
			u.Do(t, http.MethodDelete, u.path, gatewaytest.WithKey(u.key), gatewaytest.Header("Tus-Resumable", "1.0.0"))
		}, []int{404}},
		"ended, in part": {0, 100, func(t *testing.T, u *transfer) {
			t.Helper()
			u.Do(t, http.MethodDelete, u.path, gatewaytest.WithKey(u.key), gatewaytest.Header("Tus-Resumable", "1.0.0"))
		}, []int{404}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := open(t)
			u := a.begin(t, len(text))
			if tt.begin > 0 {
				u.send(t, 0, text[:tt.begin])
			}
			size := len(text) - tt.begin
			if strings.HasPrefix(name, "ended, in part") || name == "other part" {
				size = tt.hold + 1
			}
			conn := u.hold(t, tt.begin, length(size), text[tt.begin:tt.begin+tt.hold])
			fixture.Await(t, "the bytes are arriving", func() bool { return len(a.temporary(t)) > 0 })
			tt.meanwhile(t, u)
			fixture.Send(t, conn, text[tt.begin+tt.hold:tt.begin+size])
			if code := answered(t, conn); !slices.Contains(tt.codes, code) {
				t.Errorf("got %d, want %v; the log says %s", code, tt.codes, a.Log)
			}
			at, id := u.head(t)
			if at >= 0 && at < len(text) {
				u.send(t, at, text[at:])
				at, id = u.head(t)
			}
			if at >= 0 {
				u.wantFile(t, text)
			}
			s := a.state(t)
			if want := min(int64(len(id)), 1); s.Records != want || len(s.Objects) != int(want) || len(s.Incoming) > 0 {
				t.Errorf("got %+v, want one file unless the upload was ended", s)
			}
		})
	}
	a := open(t)
	var stored atomic.Int64
	for range 10 {
		u := a.begin(t, len(text))
		u.send(t, 0, text[:100])
		fixture.Concurrently(4, func(int) int {
			code := u.send(t, 100, text[100:]).Code
			if code == http.StatusNoContent {
				stored.Add(1)
			} else if code != http.StatusConflict {
				t.Errorf("got %d, want 204 or 409; the log says %s", code, a.Log)
			}
			return code
		})
		u.wantFile(t, text)
	}
	if s := a.state(t); s.Records != 10 {
		t.Errorf("got %+v and %d successes, want 10 files", s, stored.Load())
	}
}

// TestTus_RightsEnd: what arrives after the rights of the sender have ended is not kept.
func TestTus_RightsEnd(t *testing.T) {
	t.Parallel()
	a := open(t)
	for _, whole := range []bool{false, true} {
		issued := a.KeyWith(t, func(k *control.NewKey) { k.Permissions = []string{string(tenants.ManageFiles)} })
		sender := *a
		sender.key = issued.Token
		u := sender.begin(t, 300)
		u.send(t, 0, filler(1, 100))
		conn := u.hold(t, 100, length(200), filler(2, 150))
		fixture.Await(t, "the bytes are arriving", func() bool { return len(a.temporary(t)) > 0 })
		if _, err := control.Call[control.Key](t.Context(), a.Commands, "key.revoke", control.KeyRef{Org: a.Slug, ID: issued.ID}); err != nil {
			t.Fatal(err)
		}
		if whole {
			_, _ = io.WriteString(conn, filler(3, 50)) // it may be closed already
		}
		fixture.Await(t, "the request ends", func() bool { return len(a.temporary(t)) == 0 })
		u.archive = a
		if at, id := u.head(t); at != 100 || id != "" {
			t.Errorf("got the offset %d, want what had arrived before", at)
		}
		_ = conn.Close()
	}
	if s := a.state(t); s.Records != 0 {
		t.Errorf("got %+v, want no file", s)
	}
}

// TestTus_Expired: uploads that nobody continues are removed with their parts after a day.
func TestTus_Expired(t *testing.T) {
	t.Parallel()
	a := open(t)
	before := a.state(t)
	u := a.begin(t, 300)
	u.send(t, 0, filler(1, 100))
	a.clock.Advance(20 * time.Hour)
	u.send(t, 100, filler(1, 100)) // from now on, it has another day
	a.clock.Advance(20 * time.Hour)
	fixture.EmptyTrash(t, a.App)
	if at, _ := u.head(t); at != 200 {
		t.Errorf("got the offset %d, want 200", at)
	}
	a.clock.Advance(5 * time.Hour)
	if at, _ := u.head(t); at != -1 {
		t.Errorf("got the offset %d, want none", at)
	}
	if answer := u.send(t, 200, filler(1, 100)); answer.Code != http.StatusNotFound {
		t.Errorf("got %d %s, want 404", answer.Code, answer.Text())
	}
	fixture.EmptyTrash(t, a.App)
	a.wantSame(t, before)
}

// TestTus_LeftParts: parts that a process which was killed has left of an upload that is gone are removed, but not those
// of other uploads.
func TestTus_LeftParts(t *testing.T) {
	t.Parallel()
	a := open(t)
	a.upload(t, "first.txt", "text/plain", "first")
	u := a.begin(t, 300)
	u.send(t, 0, filler(1, 100))
	before := a.state(t)
	left := filepath.Join(a.Config.FilesDir(), fmt.Sprint(a.Tenant(t).Org.OrgID), "parts", fixture.DocID(7), "0123456789ab")
	if err := errors.Join(os.MkdirAll(filepath.Dir(left), 0o700), os.WriteFile(left, []byte("left"), 0o600)); err != nil {
		t.Fatal(err)
	}
	fixture.EmptyTrash(t, a.App)
	a.wantSame(t, before)
	u.send(t, 100, filler(1, 300)[100:])
	u.wantFile(t, filler(1, 300))
}
