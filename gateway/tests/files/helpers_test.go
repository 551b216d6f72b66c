package files

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
	"tenantry/tenants"
)

const (
	uploadPath = "/api/files/upload"
	north      = "aaaaaaaaaaaaaaaaaaaaaaaa"
	south      = "bbbbbbbbbbbbbbbbbbbbbbbb"
)

// archive is an organization with a key that may do everything with files.
type archive struct {
	*gatewaytest.Org

	clock *fixture.Clock
	key   string
}

// open starts a gateway with an organization that has teams.
func open(t *testing.T, options ...gatewaytest.Option) *archive {
	t.Helper()
	a := &archive{clock: &fixture.Clock{}}
	a.Org = gatewaytest.Start(t, append([]gatewaytest.Option{a.clock.Option}, options...)...).Org(t, "acme", tenants.FeatureTeams)
	a.Import(t, `{"kind":"team","id":"`+north+`","name":"North"}`, `{"kind":"team","id":"`+south+`","name":"South"}`)
	a.key = a.Key(t, tenants.ManageFiles, tenants.Contacts)
	return a
}

// limitedKey returns a key that is limited to a team.
func (a *archive) limitedKey(t *testing.T, team string) string {
	t.Helper()
	return a.KeyWith(t, func(k *control.NewKey) {
		k.Permissions, k.Teams = []string{string(tenants.ManageFiles)}, []string{team}
	}).Token
}

// set changes limits and settings of the organization.
func (a *archive) set(t *testing.T, fields control.OrganizationFields) {
	t.Helper()
	change := control.OrganizationChange{Slug: a.Slug, OrganizationFields: fields}
	if _, err := control.Call[control.Organization](t.Context(), a.Commands, "org.update", change); err != nil {
		t.Fatal(err)
	}
}

func (a *archive) limit(t *testing.T, name string, value int64) {
	t.Helper()
	a.set(t, control.OrganizationFields{Limits: map[string]int64{name: value}})
}

// file is a file as answers describe it.
type file struct {
	ID        string   `json:"id"`
	PID       string   `json:"pid"`
	URL       string   `json:"url"`
	Filename  string   `json:"filename"`
	Mimetype  string   `json:"mimetype"`
	FolderID  string   `json:"folder_id"`
	ContactID string   `json:"contact_id"`
	Type      string   `json:"type"`
	Teams     []string `json:"teams"`
	Size      *int64   `json:"size"`
	Detected  string   `json:"detected"`
	Checksum  string   `json:"checksum"`
	Thumbnail string   `json:"thumbnail"`
}

// decode reads the data of an answer.
func decode[T any](t *testing.T, a *gatewaytest.Answer) (data T) {
	t.Helper()
	if a.Status != "ok" {
		t.Fatalf("answered %d %s, want a success", a.Code, a.Text())
	}
	if err := json.Unmarshal([]byte(a.DataJSON()), &data); err != nil {
		t.Fatalf("%s: %v", a.Text(), err)
	}
	return data
}

// files reads the answer to an upload.
func filesOf(t *testing.T, a *gatewaytest.Answer) []file {
	t.Helper()
	out := decode[struct {
		Count   int
		Results []file
	}](t, a)
	if out.Count != len(out.Results) {
		t.Errorf("got the count %d of %d files", out.Count, len(out.Results))
	}
	return out.Results
}

// post sends bytes with the key of the archive.
func (a *archive) post(t *testing.T, path, media, body string, more ...gatewaytest.Request) *gatewaytest.Answer {
	t.Helper()
	return a.Do(t, http.MethodPost, path, append([]gatewaytest.Request{gatewaytest.WithKey(a.key), gatewaytest.Body(media, body)}, more...)...)
}

// upload stores one file. query follows its name.
func (a *archive) upload(t *testing.T, name, media, body string, query ...string) file {
	t.Helper()
	answer := a.post(t, uploadPath+"?"+strings.Join(append([]string{"filename=" + url.QueryEscape(name)}, query...), "&"), media, body)
	found := filesOf(t, answer)
	if len(found) != 1 {
		t.Fatalf("got %d files, want 1", len(found))
	}
	return found[0]
}

// read reads a file again.
func (a *archive) read(t *testing.T, id string) file {
	t.Helper()
	return decode[file](t, a.Get(t, a.key, "/api/files/"+id))
}

// call calls an operation on JSON, which must succeed.
func (a *archive) call(t *testing.T, method, path, body string) *gatewaytest.Answer {
	t.Helper()
	return fixture.As(a.Org, gatewaytest.WithKey(a.key)).Want(t, method, path, body, http.StatusOK, `"status":"ok"`)
}

// folder makes a folder and returns its identifier.
func (a *archive) folder(t *testing.T, body string) string {
	t.Helper()
	return fixture.As(a.Org, gatewaytest.WithKey(a.key)).Create(t, "/api/files/folders", body)
}

// fetch gets an address as answers have it, without a credential.
func (a *archive) fetch(t *testing.T, address string, headers ...string) *gatewaytest.Answer {
	t.Helper()
	return a.fetchBy(t, http.MethodGet, address, headers...)
}

func (a *archive) fetchBy(t *testing.T, method, address string, headers ...string) *gatewaytest.Answer {
	t.Helper()
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	if host, _, _ := strings.Cut(at.Host, ":"); host != a.Host || !strings.HasPrefix(at.Path, operation.ContentPath) {
		t.Fatalf("got the address %s, want one of %s", address, a.Host)
	}
	return a.Do(t, method, at.RequestURI(), pairs(headers)...)
}

// pairs sets headers, each a name and a value.
func pairs(headers []string) (changes []gatewaytest.Request) {
	for i := 0; i < len(headers); i += 2 {
		changes = append(changes, gatewaytest.Header(headers[i], headers[i+1]))
	}
	return changes
}

// wantBytes checks what is read at an address.
func (a *archive) wantBytes(t *testing.T, address, want string) {
	t.Helper()
	if got := a.fetch(t, address); got.Code != http.StatusOK || got.Text() != want {
		t.Errorf("%s: got %d with %d bytes %.100s, want %d bytes", address, got.Code, len(got.Body), got.Body, len(want))
	}
}

// wantCode checks that an address answers no bytes.
func (a *archive) wantCode(t *testing.T, address string, code int) {
	t.Helper()
	if got := a.fetch(t, address); got.Code != code {
		t.Errorf("%s: got %d %.200s, want %d", address, got.Code, got.Body, code)
	}
}

// state is what an organization has.
type state struct {
	Records   int64 // files in any state, with versions left out
	Objects   []string
	Incoming  []string // temporary files
	Stored    int64    // bytes, as counted
	Different int64    // contents, as counted
}

// state returns what the organization has, and checks that nothing is damaged.
func (a *archive) state(t *testing.T) state {
	t.Helper()
	k, tenant := a.App.Contents(), a.Tenant(t)
	damage, err := k.Examine(t.Context(), tenant)
	if err != nil || len(damage.Missing)+damage.Orphans > 0 || damage.Lost != 0 {
		t.Errorf("got the damage %+v, %v, want none", damage, err)
	}
	sum, err := k.Storage(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	list := a.Get(t, a.key, "/api/files?per_page=1")
	var page struct {
		Count int64 `json:"count"`
		Total int64 `json:"total"`
	}
	if err := json.Unmarshal([]byte(list.DataJSON()), &page); err != nil {
		t.Fatal(err)
	}
	return state{
		Records: max(page.Count, page.Total), Stored: sum.Bytes, Different: sum.Files,
		Objects: names(t, filepath.Join(a.Config.FilesDir(), fmt.Sprint(tenant.Org.OrgID))), Incoming: a.temporary(t),
	}
}

// temporary returns the files that are arriving.
func (a *archive) temporary(t *testing.T) []string {
	t.Helper()
	return names(t, filepath.Join(a.Config.Data, "incoming"))
}

// names returns the paths of the files in a folder, without those of small pictures that are being made.
func names(t *testing.T, folder string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			all = append(all, strings.TrimPrefix(path, folder+"/"))
		}
		if err != nil && strings.Contains(err.Error(), "no such file") {
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// wantSame checks that nothing was added and nothing is left since a state.
func (a *archive) wantSame(t *testing.T, before state) {
	t.Helper()
	if after := a.state(t); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("got the state\n%+v\nwant it as before\n%+v", after, before)
	}
}

// form is the body of a form, whose parts are made by part and field.
type form struct {
	bytes.Buffer
	*multipart.Writer
}

func newForm() *form {
	f := &form{}
	f.Writer = multipart.NewWriter(&f.Buffer)
	return f
}

// field adds a field.
func (f *form) field(name, value string) *form {
	_ = f.WriteField(name, value)
	return f
}

// file adds a file in a part of that name, with further headers in pairs.
func (f *form) file(part, name, media, body string, headers ...string) *form {
	h := textproto.MIMEHeader{}
	h.Set("Content-Disposition", fmt.Sprintf(`form-data; name=%q; filename=%q`, part, name))
	if media != "" {
		h.Set("Content-Type", media)
	}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	w, _ := f.CreatePart(h) // a buffer takes everything
	_, _ = io.WriteString(w, body)
	return f
}

// end returns the whole body.
func (f *form) end() string {
	_ = f.Close()
	return f.Buffer.String()
}

func (a *archive) postForm(t *testing.T, path string, f *form, more ...gatewaytest.Request) *gatewaytest.Answer {
	t.Helper()
	return a.post(t, path, f.FormDataContentType(), f.end(), more...)
}

// chunked leaves out the length of a body.
func chunked(r *http.Request) { r.ContentLength = -1 }

// sumOf returns the SHA-256 of a text, hexadecimal.
func sumOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// digest returns a Content-Digest of a text.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// filler returns that many bytes, others for each seed.
func filler(seed, size int) string {
	var block [8]byte
	out := make([]byte, 0, size+len(block))
	for n := uint64(seed)*0x9E3779B97F4A7C15 + 1; len(out) < size; {
		n ^= n << 13
		n ^= n >> 7
		n ^= n << 17
		for i := range block {
			block[i] = byte(n >> (8 * i))
		}
		out = append(out, block[:]...)
	}
	return string(out[:size])
}
