package files

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// TestKilled kills the process at random moments of uploads, replacements and purges. Every acknowledged file is readable
// afterwards, no record lacks its bytes, and what is garbage is found, and removed a day later.
func TestKilled(t *testing.T) {
	t.Parallel()
	if fixture.ServeAsVictim(t) {
		return
	}
	kills := 50
	if testing.Short() {
		kills = 5
	}
	folder, clock := t.TempDir(), &fixture.Clock{}
	start := func() *archive {
		g := gatewaytest.Start(t, fixture.InFolder(folder), clock.Option)
		return &archive{Org: &gatewaytest.Org{Gateway: g, Slug: "acme", Host: "acme.localhost"}, clock: clock}
	}
	a := start()
	a.Gateway.Org(t, a.Slug)
	a.key = a.Key(t, tenants.ManageFiles)
	key := a.key
	a.Stop(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := &sender{key: key, client: &http.Client{Timeout: time.Minute}, known: map[string]string{}, unsure: map[string]bool{}}
	for round := range kills {
		victim := fixture.StartVictim(t, folder)
		s.address = victim.Addr
		heard, enough := atomic.Int64{}, make(chan struct{})
		want := 1 + random.Int64N(12)
		var senders sync.WaitGroup
		for n := range 4 {
			of := rand.New(rand.NewPCG(seed, uint64(round*4+n+1)))
			senders.Go(func() {
				for s.step(of) {
					if heard.Add(1) == want {
						close(enough)
					}
				}
			})
		}
		<-enough
		time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond) // in the midst of something
		victim.Kill()
		senders.Wait()
		victim.Wait()
		s.client.CloseIdleConnections()
	}
	if s.refused.Load() != nil {
		t.Errorf("got %s, want success", *s.refused.Load())
	}
	a = start()
	a.key = key
	s.check(t, a)
	k, tenant := a.App.Contents(), a.Tenant(t)
	damage, err := k.Examine(t.Context(), tenant)
	if err != nil || len(damage.Missing) > 0 || damage.Lost != 0 {
		t.Errorf("got the damage %+v, %v, want no record without bytes, and all counted", damage, err)
	}
	if left := a.temporary(t); len(left) > 0 {
		t.Errorf("got %v, want no temporary files after a start", left)
	}
	t.Logf("%d kills, %d files acknowledged, %d objects without a record", kills, len(s.known), damage.Orphans)
	clock.Advance(49 * time.Hour)
	fixture.EmptyTrash(t, a.App)
	clock.Advance(2 * time.Hour)
	fixture.EmptyTrash(t, a.App)
	state := a.state(t)
	if int64(len(state.Objects)) != state.Different {
		t.Errorf("got %d objects of %d contents, want the garbage removed", len(state.Objects), state.Different)
	}
	s.check(t, a)
}

// sender sends random calls to a process that may be killed, and notes what was acknowledged. Safe for concurrent use.
type sender struct {
	key     string
	client  *http.Client
	address string // of the process
	refused atomic.Pointer[string]

	mu     sync.Mutex
	known  map[string]string // checksums by identifier, guarded by mu
	unsure map[string]bool   // files of which a change was not answered, guarded by mu
}

// call calls an operation. ok reports whether it was answered at all.
func (s *sender) call(method, path, media string, body []byte, headers ...string) (id, location string, ok bool) {
	r, err := http.NewRequest(method, "http://"+s.address+path, bytes.NewReader(body))
	if err != nil {
		return "", "", false
	}
	r.Host = "acme.localhost"
	r.Header.Set("X-Service-Token", s.key)
	if media != "" {
		r.Header.Set("Content-Type", media)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.client.Do(r)
	if err != nil {
		return "", "", false
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // it was read, or the process is gone
	if err != nil {
		return "", "", false
	}
	if resp.StatusCode == http.StatusServiceUnavailable { // it has just begun
		time.Sleep(20 * time.Millisecond)
		return s.call(method, path, media, body, headers...)
	}
	if resp.StatusCode >= 300 {
		told := fmt.Sprintf("%s %s: %d %s", method, path, resp.StatusCode, text)
		s.refused.Store(&told)
	}
	var answer struct {
		Data struct {
			ID      string
			Results []struct{ ID string }
		}
	}
	_ = json.Unmarshal(text, &answer) // some are empty
	if len(answer.Data.Results) > 0 {
		answer.Data.ID = answer.Data.Results[0].ID
	}
	if stored := resp.Header.Get("X-File-Id"); stored != "" {
		answer.Data.ID = stored
	}
	return answer.Data.ID, resp.Header.Get("Location"), true
}

// take removes a file of those that are known, and returns its identifier; empty: there is none.
func (s *sender) take(random *rand.Rand) (id, sum string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) == 0 {
		return "", ""
	}
	ids := slices.Sorted(maps.Keys(s.known))
	id = ids[random.IntN(len(ids))]
	sum = s.known[id]
	delete(s.known, id)
	s.unsure[id] = true
	return id, sum
}

func (s *sender) note(id, sum string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[id] = sum
	delete(s.unsure, id)
}

// step makes one random call, and reports whether it was answered.
func (s *sender) step(random *rand.Rand) bool {
	text := filler(random.IntN(1<<30), []int{0, 100, 5000, 100_000, 3_000_000}[random.IntN(5)])
	switch random.IntN(6) {
	case 0, 1:
		id, _, ok := s.call(http.MethodPost, uploadPath+"?filename=raw", "text/plain", []byte(text))
		if ok {
			s.note(id, sumOf(text))
		}
		return ok
	case 2:
		f := newForm().file("file", "form", "text/plain", text).file("file", "other", "text/plain", text[:len(text)/2])
		id, _, ok := s.call(http.MethodPost, uploadPath, f.FormDataContentType(), []byte(f.end()))
		if ok {
			s.note(id, sumOf(text))
		}
		return ok
	case 3:
		_, location, ok := s.call(http.MethodPost, tusPath, "", nil, "Tus-Resumable", "1.0.0", "Upload-Length", strconv.Itoa(len(text)), "Upload-Metadata", metadata("filename", "tus"))
		at, err := url.Parse(location)
		if !ok || err != nil {
			return false
		}
		if random.IntN(4) == 0 {
			_, _, ok = s.call(http.MethodDelete, at.Path, "", nil, "Tus-Resumable", "1.0.0")
			return ok
		}
		id, half := "", len(text)/2
		for _, from := range []int{0, half} {
			to := map[bool]int{true: half, false: len(text)}[from == 0 && half > 0]
			id, _, ok = s.call(http.MethodPatch, at.Path, "application/offset+octet-stream", []byte(text[from:to]), "Tus-Resumable", "1.0.0", "Upload-Offset", strconv.Itoa(from))
			if !ok || to == len(text) {
				break
			}
		}
		if ok {
			s.note(id, sumOf(text))
		}
		return ok
	case 4:
		id, _ := s.take(random)
		if id == "" {
			return true
		}
		_, _, ok := s.call(http.MethodPost, "/api/files/"+id+"/content", "text/plain", []byte(text))
		if ok {
			s.note(id, sumOf(text))
		}
		return ok
	default:
		id, _ := s.take(random)
		if id == "" {
			return true
		}
		_, _, ok := s.call(http.MethodDelete, "/api/files/"+id, "", nil)
		if ok {
			_, _, ok = s.call(http.MethodDelete, "/api/files/"+id+"/purge", "", nil)
		}
		return ok
	}
}

// check reads every file that was acknowledged, and every other one that there is.
func (s *sender) check(t *testing.T, a *archive) {
	t.Helper()
	for id, sum := range s.known {
		f := a.read(t, id)
		got := a.fetch(t, f.URL)
		if f.Checksum != sum || got.Code != http.StatusOK || sumOf(got.Text()) != sum {
			t.Errorf("%s: got %d with %d bytes and the checksum %s, want %s", id, got.Code, len(got.Body), f.Checksum, sum)
		}
	}
	for page := 1; ; page++ {
		list := decode[struct{ Results []file }](t, a.Get(t, a.key, fmt.Sprint("/api/files?per_page=100&page=", page)))
		for _, f := range list.Results {
			if got := a.fetch(t, f.URL); got.Code != http.StatusOK || sumOf(got.Text()) != f.Checksum {
				t.Errorf("%s: got %d with %d bytes, want those of the checksum", f.ID, got.Code, len(got.Body))
			}
		}
		if len(list.Results) < 100 {
			return
		}
	}
}
