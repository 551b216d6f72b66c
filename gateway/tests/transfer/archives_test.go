package transfer

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/modules/imports/bundle"
	"tenantry/tenants"
)

// library is an organization with files.
type library struct {
	*gatewaytest.Org
	key string
}

func newLibrary(t *testing.T, g *gatewaytest.Gateway, slug string, features ...string) library {
	t.Helper()
	org := g.Org(t, slug, features...)
	return library{org, org.Key(t, tenants.ManageFiles)}
}

// upload stores a file and returns its identifier.
func (l library) upload(t *testing.T, name, content string) string {
	t.Helper()
	a := l.Do(t, http.MethodPost, "/api/files/upload?filename="+url.QueryEscape(name), gatewaytest.WithKey(l.key), gatewaytest.Body("text/plain", content))
	if a.Code != http.StatusOK {
		t.Fatalf("upload %s: got %d %s", name, a.Code, a.Body)
	}
	var data struct{ Results []struct{ ID string } }
	if err := json.Unmarshal([]byte(a.DataJSON()), &data); err != nil || len(data.Results) != 1 {
		t.Fatalf("upload %s: got %s, %v", name, a.Body, err)
	}
	return data.Results[0].ID
}

// read returns the bytes of a file, or how they are refused.
func (l library) read(t *testing.T, id string) string {
	t.Helper()
	at, err := url.Parse(fmt.Sprint(l.Get(t, l.key, "/api/files/"+id).Field("url")))
	if err != nil {
		t.Fatal(err)
	}
	a := l.Get(t, "", at.RequestURI())
	if a.Code != http.StatusOK {
		return fmt.Sprint(a.Code)
	}
	return a.Text()
}

// objects returns the names and sizes of the objects that the organization has.
func (l library) objects(t *testing.T) (found []string) {
	t.Helper()
	root := filepath.Join(l.Config.Data, "files", fmt.Sprint(l.Tenant(t).Org.OrgID))
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && d.Type().IsRegular() {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// export returns an export of the organization.
func (l library) export(t *testing.T, o bundle.ExportOptions) ([]byte, bundle.ExportReport) {
	t.Helper()
	var out bytes.Buffer
	report, err := l.App.Transfer().Export(t.Context(), l.Tenant(t), &out, o)
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), report
}

// take imports a file and returns its report.
func (l library) take(t *testing.T, file []byte, o bundle.ImportOptions) (bundle.Report, error) {
	t.Helper()
	src, remove, err := bundle.Spool(t.Context(), bytes.NewReader(file), t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := remove(); err != nil {
			t.Error(err)
		}
	}()
	return l.App.Transfer().Import(t.Context(), l.Tenant(t), src, o)
}

// mustTake imports a file whose lines are all good.
func (l library) mustTake(t *testing.T, file []byte) bundle.Report {
	t.Helper()
	report, err := l.take(t, file, bundle.ImportOptions{})
	if err != nil {
		t.Fatalf("import into %s: %v %v", l.Slug, err, report.Problems)
	}
	return report
}

// filed returns the lines of files and folders of a bundle.
func filed(lines []byte) []byte {
	var out []byte
	for line := range bytes.Lines(lines) {
		if bytes.HasPrefix(line, []byte(`{"kind":"file"`)) || bytes.HasPrefix(line, []byte(`{"kind":"folder"`)) {
			out = append(out, line...)
		}
	}
	return out
}

// entry is an entry of an archive that a test writes.
type entry struct {
	name, content string
	method        uint16
}

// unzip returns the entries of an archive.
func unzip(t *testing.T, archive []byte) (all []entry) {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
		all = append(all, entry{f.Name, string(content), f.Method})
	}
	return all
}

// pack returns an archive of the entries.
func pack(t testing.TB, all ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, e := range all {
		w, err := z.CreateHeader(&zip.FileHeader{Name: e.name, Method: e.method})
		if err == nil {
			_, err = io.WriteString(w, e.content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestArchive checks that an export with files imports elsewhere and back with the same bytes, that importing it again
// changes nothing, and what an import of the lines alone does.
func TestArchive(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme, birch, cedar := newLibrary(t, g, "acme"), newLibrary(t, g, "birch"), newLibrary(t, g, "cedar")
	content := map[string]string{}
	for name, text := range map[string]string{"one.txt": "Hello.\n", "same.txt": "Hello.\n", "other.txt": strings.Repeat("other ", 40_000), "empty.txt": ""} {
		content[acme.upload(t, name, text)] = text
	}
	acme.Import(t, `{"kind":"file","id":"`+fixture.DocID(9)+`","filename":"elsewhere.pdf","mimetype":"application/pdf","hash":"abc123"}`)
	trashed := acme.upload(t, "trashed.txt", "in the trash\n")
	if a := acme.Do(t, http.MethodDelete, "/api/files/"+trashed, gatewaytest.WithKey(acme.key)); a.Status != "ok" {
		t.Fatalf("delete: got %s", a.Body)
	}

	lines, report := acme.export(t, bundle.ExportOptions{})
	if !slices.ContainsFunc(report.LeftOut, func(s string) bool { return strings.Contains(s, "bytes of files (4)") }) {
		t.Errorf("an export of lines says %q, want that the bytes of 4 contents are left out", report.LeftOut)
	}
	archive, report := acme.export(t, bundle.ExportOptions{Files: true})
	again, _ := acme.export(t, bundle.ExportOptions{Files: true})
	if !bytes.Equal(archive, again) {
		t.Error("two exports differ, want them equal")
	}
	all := unzip(t, archive)
	if report.Files != 4 || len(all) != 5 || all[0] != (entry{"bundle.ndjson", string(lines), zip.Store}) || all[1].method != zip.Store {
		t.Errorf("got %d files in %d entries, the first %.80s, want the lines and 4 files", report.Files, len(all), all[0].content)
	}

	// Elsewhere: the same bytes under the names of the other organization.
	moved := pack(t, slices.Insert(all[1:], 0, entry{"bundle.ndjson", string(filed(lines)), zip.Deflate})...)
	if r := birch.mustTake(t, moved); r.Created != 6 || r.FilesWithout != 0 {
		t.Errorf("elsewhere: got %+v, want 6 records with their bytes", r)
	}
	if n := len(birch.objects(t)); n != 4 {
		t.Errorf("elsewhere: got %d objects, want 4", n)
	}
	theirs, _ := birch.export(t, bundle.ExportOptions{Files: true})
	for _, e := range unzip(t, theirs)[1:] {
		if slices.ContainsFunc(all, func(other entry) bool { return other.name == e.name }) {
			t.Errorf("%s is named alike in two organizations, want names of their own", e.name)
		}
	}
	for id, want := range content {
		if got := birch.read(t, id); got != want {
			t.Errorf("elsewhere %s: got %.40q, want %.40q", id, got, want)
		}
	}

	// Again, by each way: nothing changes.
	before, _ := birch.export(t, bundle.ExportOptions{})
	for name, file := range map[string][]byte{"the archive": moved, "the lines": filed(lines), "its own lines": filed(before)} {
		if r := birch.mustTake(t, file); r.Unchanged != r.Lines || r.FilesWithout != 0 {
			t.Errorf("%s again: got %+v, want nothing changed", name, r)
		}
	}
	if after, _ := birch.export(t, bundle.ExportOptions{}); !bytes.Equal(before, after) || len(birch.objects(t)) != 4 {
		t.Error("an import of the same changed something")
	}

	// The lines alone elsewhere: records that say so.
	if r := cedar.mustTake(t, filed(lines)); r.Created != 6 || r.FilesWithout != 5 {
		t.Errorf("without bytes: got %+v, want 6 records, 5 without their bytes", r)
	}
	for id := range content {
		if a := cedar.Get(t, cedar.key, "/api/files/"+id); a.Field("size") != nil || a.Field("checksum") != nil && a.Field("checksum") != "" {
			t.Errorf("without bytes: got %s, want neither a size nor a checksum", a.Body)
		}
	}
	if r := cedar.mustTake(t, moved); r.Updated != 5 || r.Unchanged != 1 || r.FilesWithout != 0 {
		t.Errorf("with bytes: got %+v, want 5 records updated", r)
	}
	for id, want := range content {
		if got := cedar.read(t, id); got != want {
			t.Errorf("with bytes %s: got %.40q, want %.40q", id, got, want)
		}
	}

	// Back: what was purged returns with its bytes.
	for id := range content {
		if a := acme.Do(t, http.MethodDelete, "/api/files/"+id+"/purge", gatewaytest.WithKey(acme.key)); a.Status != "ok" {
			t.Fatalf("purge: got %d %s", a.Code, a.Body)
		}
	}
	if r := acme.mustTake(t, archive); r.Created != 4 {
		t.Errorf("back: got %+v, want 4 records created", r)
	}
	if after, _ := acme.export(t, bundle.ExportOptions{}); !bytes.Equal(filed(after), filed(lines)) {
		t.Errorf("back: got\n%s, want\n%s", filed(after), filed(lines))
	}
	if n := len(acme.objects(t)); n != 4 {
		t.Errorf("back: got %d objects, want 4", n)
	}
}

// TestImport_ClaimsNoBytes checks that a line alone gives a file no other bytes than the organization has under its hash.
func TestImport_ClaimsNoBytes(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	const sum = "a2c064616af4c66c576821616646bdfad5556a263b4b007847605118971f4389"
	for name, c := range map[string]struct {
		line    string // ID and HASH stand for those of an uploaded file
		says    string
		size    any // of the file with the identifier after it
		without int
	}{
		"the hash and another checksum":   {line: `{"kind":"file","filename":"b","mimetype":"text/plain","hash":"HASH","checksum":"00"}`, says: "other bytes under this hash", size: "7"},
		"the hash of another":             {line: `{"kind":"file","id":"NEW","filename":"b","mimetype":"text/plain","hash":"HASH"}`, size: nil},
		"the hash of another, all of it":  {line: `{"kind":"file","id":"NEW","filename":"b","mimetype":"text/plain","hash":"HASH","size":9,"detected":"image/png","checksum":"` + sum + `"}`, size: "7"},
		"only a checksum":                 {line: `{"kind":"file","id":"NEW","filename":"b","mimetype":"text/plain","size":7,"checksum":"` + sum + `"}`, size: nil},
		"only another checksum":           {line: `{"kind":"file","id":"ID","mimetype":"text/plain","filename":"c","size":9,"detected":"image/png","checksum":"00"}`, size: "7"},
		"its checksum and a foreign hash": {line: `{"kind":"file","id":"ID","mimetype":"text/plain","filename":"c","hash":"abc","checksum":"` + sum + `"}`, size: "7"},
		"a foreign hash":                  {line: `{"kind":"file","id":"NEW","filename":"b","mimetype":"text/plain","hash":"abc","size":7,"checksum":"` + sum + `"}`, size: nil, without: 1},
		"another foreign hash":            {line: `{"kind":"file","id":"ID","mimetype":"text/plain","filename":"e","hash":"abc","checksum":"00"}`, size: nil, without: 1},
		"no hash":                         {line: `{"kind":"file","id":"ID","mimetype":"text/plain","filename":"e","hash":null}`, size: nil},
		"no field of the bytes":           {line: `{"kind":"file","id":"ID","mimetype":"text/plain","filename":"d"}`, size: "7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			acme := newLibrary(t, g, "to-"+strings.ReplaceAll(strings.ReplaceAll(name, " ", "-"), ",", ""))
			id, added := acme.upload(t, "a.txt", "Hello.\n"), fixture.DocID(7)
			lines, _ := acme.export(t, bundle.ExportOptions{})
			_, hash, _ := strings.Cut(string(filed(lines)), `"hash":"`)
			text := strings.NewReplacer("NEW", added, "ID", id, "HASH", hash[:40]).Replace(c.line)
			if !strings.Contains(c.line, "NEW") {
				added = id
			}
			report, err := acme.take(t, []byte(text), bundle.ImportOptions{})
			if said := fmt.Sprint(report.Problems); (err != nil) != (c.says != "") || !strings.Contains(said, c.says) || report.FilesWithout != c.without {
				t.Fatalf("got %v %s and %d without bytes, want %q and %d", err, said, report.FilesWithout, c.says, c.without)
			}
			a := acme.Get(t, acme.key, "/api/files/"+added)
			if size := a.Field("size"); (size == nil) != (c.size == nil) || size != nil && fmt.Sprint(size) != c.size {
				t.Errorf("got %s, want the size %v", a.Body, c.size)
			}
			if c.size != nil && a.Field("checksum") != sum {
				t.Errorf("got %s, want the checksum %s", a.Body, sum)
			}
			if got := acme.read(t, added); c.size != nil && got != "Hello.\n" {
				t.Errorf("got %q, want the bytes", got)
			}
			if found := fixture.FileFindings(t, g); strings.Contains(found, acme.Slug+": bytes") {
				t.Errorf("doctor: got %s, want no record without bytes", found)
			}
		})
	}
}

// line returns the line of a file with those bytes.
func line(n int, hash, content string) string {
	sum := sha256.Sum256([]byte(content))
	return fmt.Sprintf(`{"kind":"file","id":"%s","pid":"pid-%d","filename":"f%d.txt","mimetype":"text/plain","hash":"%s","size":%d,"checksum":"%s"}`+"\n",
		fixture.DocID(n), n, n, hash, len(content), hex.EncodeToString(sum[:]))
}

// raw returns an archive whose only file announces a size and a checksum that its bytes do not have.
func raw(t *testing.T, lines, name, content string, size uint64) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	w, err := z.Create("bundle.ndjson")
	if err == nil {
		_, err = io.WriteString(w, lines)
	}
	if err == nil {
		w, err = z.CreateRaw(&zip.FileHeader{
			Name: name, Method: zip.Store, CRC32: crc32.ChecksumIEEE([]byte(content)),
			CompressedSize64: uint64(len(content)), UncompressedSize64: size,
		})
	}
	if err == nil {
		_, err = io.WriteString(w, content)
	}
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestArchive_Refused checks that nothing is stored of an archive that is not good, and that the refusal says why.
func TestArchive_Refused(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	const good = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	file := entry{name: "files/" + good, content: "Hello.\n"}
	lines := entry{name: "bundle.ndjson", content: line(1, good, "Hello.\n")}
	whole := pack(t, lines, file)
	huge := strings.Repeat("\x00", 3<<20)
	bomb := entry{"files/" + good, huge, zip.Deflate}
	damaged := bytes.Replace(whole, []byte("Hello.\n"), []byte("Hallo.\n"), 1)
	many := make([]entry, 0, 1000)
	for i := range cap(many) {
		many = append(many, entry{name: fmt.Sprintf("files/%040d", i), content: "never named"})
	}
	for name, c := range map[string]struct {
		archive []byte
		says    string // in the error or a problem
		stored  int    // objects
		partial bool
	}{
		"good":                         {archive: whole, stored: 1},
		"entries that no line names":   {archive: pack(t, append(many, lines, file)...), stored: 1},
		"names that lead out":          {archive: pack(t, lines, file, entry{name: "../../evil", content: "x"}, entry{name: "/etc/evil", content: "x"}, entry{name: "files/../../evil", content: "x"}), stored: 1},
		"a line that names a way out":  {archive: pack(t, entry{name: "bundle.ndjson", content: line(1, "../../evil", "x")}, entry{name: "files/../../evil", content: "x"}), says: "hash must be"},
		"truncated":                    {archive: whole[:len(whole)-30], says: "damaged or incomplete"},
		"only its beginning":           {archive: whole[:10], says: "damaged or incomplete"},
		"no lines":                     {archive: pack(t, file), says: "it has no bundle.ndjson"},
		"two lines":                    {archive: pack(t, lines, lines, file), says: "two entries named bundle.ndjson"},
		"two files of one name":        {archive: pack(t, lines, file, file), says: "two entries named files/" + good},
		"damaged bytes":                {archive: damaged, says: "files/" + good + " in the archive is damaged"},
		"other bytes":                  {archive: pack(t, lines, entry{name: file.name, content: "Hallo.\n"}), says: "files/" + good + " in the archive has other bytes"},
		"more bytes":                   {archive: pack(t, lines, entry{name: file.name, content: "Hello.\n!"}), says: "has 8 bytes, but size is 7"},
		"a bomb":                       {archive: pack(t, lines, bomb), says: "has 3145728 bytes, but size is 7"},
		"a bomb with a line":           {archive: pack(t, entry{name: "bundle.ndjson", content: line(1, good, huge)}, bomb), says: "the archive adds files of 3145728 bytes or more"},
		"fewer bytes than announced":   {archive: raw(t, lines.content, file.name, "Hello", 7), says: "damaged"},
		"more bytes than announced":    {archive: raw(t, lines.content, file.name, "Hello.\nand more", 7), says: "damaged"},
		"the second of two is bad":     {archive: pack(t, entry{name: "bundle.ndjson", content: lines.content + line(2, "b", "b")}, file, entry{name: "files/b", content: "c"}), says: "files/b in the archive has other bytes"},
		"the second, with partial":     {archive: pack(t, entry{name: "bundle.ndjson", content: lines.content + line(2, "b", "b")}, file, entry{name: "files/b", content: "c"}), says: "files/b in the archive has other bytes", partial: true, stored: 1},
		"damaged lines":                {archive: bytes.Replace(whole, []byte(`"filename":"f1`), []byte(`"filename":"g1`), 1), says: "bundle.ndjson is damaged"},
		"one name with two checksums":  {archive: pack(t, entry{name: "bundle.ndjson", content: lines.content + line(2, good, "Hallo.\n")}, file), says: "files/" + good + " in the archive has other bytes"},
		"too many entries are claimed": {archive: claim(whole, 0xfffe), says: "damaged or incomplete"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := newLibrary(t, g, "to-"+strings.ReplaceAll(strings.ReplaceAll(name, " ", "-"), ",", ""))
			_, err := control.Call[control.Organization](t.Context(), g.Commands, "org.update", control.OrganizationChange{
				Slug: to.Slug, OrganizationFields: control.OrganizationFields{Limits: map[string]int64{tenants.LimitFileBytes: 1 << 20}},
			})
			if err != nil {
				t.Fatal(err)
			}
			var bad bytes.Buffer
			report, err := to.take(t, c.archive, bundle.ImportOptions{Partial: c.partial, Bad: &bad})
			said := fmt.Sprint(err, report.Problems)
			if (err != nil) != (c.says != "" && !c.partial) || !strings.Contains(said, c.says) {
				t.Errorf("got %s, want %q", said, c.says)
			}
			after, _ := to.export(t, bundle.ExportOptions{})
			if objects, files := len(to.objects(t)), bytes.Count(after, []byte(`{"kind":"file"`)); objects != c.stored || files != c.stored {
				t.Errorf("got %d objects and %d files, want %d of each", objects, files, c.stored)
			}
			for _, folder := range []string{"incoming", "imports"} {
				if left, err := os.ReadDir(filepath.Join(g.Config.Data, folder)); err == nil && len(left) > 30 {
					t.Errorf("%d files are left in %s", len(left), folder)
				}
			}
		})
	}
	if found, err := filepath.Glob(filepath.Join(g.Config.Data, "*evil*")); err != nil || len(found) > 0 {
		t.Errorf("got %v, %v, want nothing outside of the folder", found, err)
	}
}

// claim makes the end of an archive announce that many entries.
func claim(archive []byte, n uint16) []byte {
	out := slices.Clone(archive)
	at := bytes.LastIndex(out, []byte("PK\x05\x06"))
	out[at+8], out[at+9], out[at+10], out[at+11] = byte(n), byte(n>>8), byte(n), byte(n>>8)
	return out
}

// TestArchive_Directory checks that the memory for the directory of an archive sent over HTTP is bounded, whatever its end
// announces.
func TestArchive_Directory(t *testing.T) {
	t.Parallel()
	acme := newLibrary(t, gatewaytest.Start(t), "acme")
	lines := entry{name: "bundle.ndjson", content: `{"kind":"team","name":"North"}`}
	many := make([]entry, 200_000)
	for i := range many {
		many[i].name = fmt.Sprintf("files/%040d", i)
	}
	large := pack(t, append(many, lines)...)
	for name, archive := range map[string][]byte{
		"large": large, "said to be small": claim(large, 1), "said to be large": claimZip64(pack(t, lines), 1<<24),
	} {
		_, err := acme.take(t, archive, bundle.ImportOptions{Bounded: true})
		if !errors.Is(err, bundle.ErrArchive) || !strings.Contains(err.Error(), "too many entries") {
			t.Errorf("%s: got %v, want too many entries", name, err)
		}
	}
	if _, err := acme.take(t, large, bundle.ImportOptions{}); err != nil {
		t.Errorf("by the operator: got %v, want it imported", err)
	}
}

// claimZip64 makes the end of an archive announce that many entries, in a record for large archives.
func claimZip64(archive []byte, n uint64) []byte {
	at := bytes.LastIndex(archive, []byte("PK\x05\x06"))
	end := slices.Clone(archive[at:])
	for i := 8; i < 20; i++ { // numbers and sizes are in the other record
		end[i] = 0xff
	}
	large := append([]byte("PK\x06\x06"), make([]byte, 52)...)
	binary.LittleEndian.PutUint64(large[4:], 44)
	binary.LittleEndian.PutUint64(large[24:], n)
	binary.LittleEndian.PutUint64(large[32:], n)
	locator := append([]byte("PK\x06\x07"), make([]byte, 16)...)
	binary.LittleEndian.PutUint64(locator[8:], uint64(at))
	binary.LittleEndian.PutUint32(locator[16:], 1)
	return slices.Concat(archive[:at], large, locator, end)
}

// TestArchive_Missing checks that bytes that are missing or damaged fail an export, which names the file, and that an
// operator can leave them out.
func TestArchive_Missing(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(path string) error{
		"missing": os.Remove,
		"shorter": func(path string) error { return errors.Join(os.Chmod(path, 0o600), os.Truncate(path, 3)) },
		"other": func(path string) error {
			return errors.Join(os.Remove(path), os.WriteFile(path, []byte("Hallo.\n"), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			acme := newLibrary(t, gatewaytest.Start(t), "acme")
			lost := acme.upload(t, "lost.txt", "Hello.\n")
			object := acme.objects(t)[0]
			acme.upload(t, "stays.txt", "stays\n")
			if err := harm(object); err != nil {
				t.Fatal(err)
			}
			run := func(skip bool) (string, []byte, error) {
				var out bytes.Buffer
				answer, err := acme.Commands.Do(t.Context(), "export", control.ExportRequest{Org: "acme", WithFiles: true, SkipMissing: skip}, control.Streams{Output: &out})
				return fmt.Sprint(answer), out.Bytes(), err
			}
			_, cut, err := run(false)
			if err == nil || !strings.Contains(err.Error(), "the bytes of file "+lost+` "lost.txt"`) {
				t.Errorf("got %v, want the file named", err)
			}
			if _, err := zip.NewReader(bytes.NewReader(cut), int64(len(cut))); err == nil {
				t.Error("what was written can be opened, want it to be no archive")
			}
			notes, archive, err := run(true)
			if err != nil || !strings.Contains(notes, "left out: "+lost) {
				t.Fatalf("left out: got %s, %v, want a note that names the file", notes, err)
			}
			if all := unzip(t, archive); len(all) != 2 || all[1].content != "stays\n" {
				t.Errorf("left out: got %d entries, want the lines and the other file", len(all))
			}
		})
	}
}

// TestArchive_Mends checks that bytes that are missing or of another size come back with an archive, and with an upload
// of the same bytes, and that doctor says so before.
func TestArchive_Mends(t *testing.T) {
	t.Parallel()
	acme := newLibrary(t, gatewaytest.Start(t), "acme")
	kept, lost, cut := acme.upload(t, "kept.txt", "kept\n"), "", ""
	before := acme.objects(t)
	lost = acme.upload(t, "lost.txt", "lost\n")
	lostAt := slices.DeleteFunc(acme.objects(t), func(name string) bool { return slices.Contains(before, name) })[0]
	before = acme.objects(t)
	cut = acme.upload(t, "cut.txt", "was cut\n")
	cutAt := slices.DeleteFunc(acme.objects(t), func(name string) bool { return slices.Contains(before, name) })[0]
	archive, _ := acme.export(t, bundle.ExportOptions{Files: true})
	harm := func() {
		t.Helper()
		if err := errors.Join(os.Remove(lostAt), os.Chmod(cutAt, 0o600), os.Truncate(cutAt, 3)); err != nil {
			t.Fatal(err)
		}
	}
	if says := fixture.FileFindings(t, acme.Gateway); says != "" {
		t.Errorf("whole: got %s, want nothing", says)
	}
	harm()
	says := fixture.FileFindings(t, acme.Gateway)
	for _, want := range []string{"wrong: acme: ", "(2)", lost + ` "lost.txt`, cut + ` "cut.txt`} {
		if !strings.Contains(says, want) {
			t.Errorf("damaged: got %s, want %q", says, want)
		}
	}
	if r := acme.mustTake(t, archive); r.Updated != 2 {
		t.Errorf("got %+v, want two files mended", r)
	}
	for id, want := range map[string]string{kept: "kept\n", lost: "lost\n", cut: "was cut\n"} {
		if got := acme.read(t, id); got != want {
			t.Errorf("%s: got %q, want %q", id, got, want)
		}
	}
	if says := fixture.FileFindings(t, acme.Gateway); says != "warning: acme: objects that no file uses: 1 of 3 bytes\n" {
		t.Errorf("mended: got %s, want only the object that is of no use", says)
	}
	if r := acme.mustTake(t, archive); r.Updated != 0 {
		t.Errorf("again: got %+v, want nothing changed", r)
	}

	now := acme.objects(t)
	for _, name := range now {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	acme.upload(t, "again.txt", "lost\n")
	if got := acme.read(t, lost); got != "lost\n" {
		t.Errorf("uploaded again: got %q, want the bytes back", got)
	}
}

// TestArchive_Full checks that an archive that would exceed a quota stores nothing.
func TestArchive_Full(t *testing.T) {
	t.Parallel()
	acme := newLibrary(t, gatewaytest.Start(t), "acme")
	var all []entry
	var lines strings.Builder
	for i := range 3 {
		content := strings.Repeat(fmt.Sprint(i), 500)
		lines.WriteString(line(i, fmt.Sprintf("%040d", i), content))
		all = append(all, entry{name: fmt.Sprintf("files/%040d", i), content: content})
	}
	archive := pack(t, append(all, entry{name: "bundle.ndjson", content: lines.String()})...)
	limit := func(name string, n int64) {
		t.Helper()
		_, err := control.Call[control.Organization](t.Context(), acme.Commands, "org.update", control.OrganizationChange{
			Slug: "acme", OrganizationFields: control.OrganizationFields{Limits: map[string]int64{name: n}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	limit(tenants.LimitFileBytes, 1400)
	if _, err := acme.take(t, archive, bundle.ImportOptions{}); errors.As(err, new(*bundle.NoRoomError)) == false {
		t.Errorf("got %v, want a *bundle.NoRoomError", err)
	}
	limit(tenants.LimitFileBytes, 1500)
	limit(tenants.LimitFileSize, 499)
	if r, err := acme.take(t, archive, bundle.ImportOptions{Bounded: true}); err == nil || !strings.Contains(fmt.Sprint(r.Problems), "the limit file_size of the organization is 499") {
		t.Errorf("got %v %v, want the limit of one file", err, r.Problems)
	}
	if n := len(acme.objects(t)); n != 0 {
		t.Errorf("got %d objects, want none", n)
	}
	if r, err := acme.take(t, archive, bundle.ImportOptions{}); err != nil || r.Created != 3 {
		t.Errorf("by the operator: got %v %+v, want all of them", err, r)
	}
}

// TestArchive_OverHTTP checks that an administrator can export an archive and import it elsewhere, and that nothing goes
// on once the right has ended.
func TestArchive_OverHTTP(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme, birch := newLibrary(t, g, "acme"), newLibrary(t, g, "birch")
	id := acme.upload(t, "one.txt", "Hello.\n")
	admin := func(l library) gatewaytest.Request {
		_, cookie := l.Person(t, "ada@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
		return gatewaytest.Cookie(cookie)
	}
	from, to := admin(acme), admin(birch)
	a := acme.Do(t, http.MethodGet, "/api/export?files=true", from)
	if a.Code != http.StatusOK || a.Header.Get("Content-Type") != "application/zip" || !strings.Contains(a.Header.Get("Content-Disposition"), "acme.zip") {
		t.Fatalf("got %d %v, want an archive", a.Code, a.Header)
	}
	all := unzip(t, a.Body)
	all[0].content = string(filed([]byte(all[0].content)))
	for query, body := range map[string]string{"refused": string(pack(t, all...))[:200], "done": string(pack(t, all...))} {
		a := birch.Do(t, http.MethodPost, "/api/import", to, gatewaytest.Body("application/zip", body))
		if a.Code != http.StatusOK {
			t.Fatalf("import: got %d %s", a.Code, a.Body)
		}
		if a = fixture.AwaitImport(t, birch.Org, to, a.Field("id").(string)); a.Field("state") != query {
			t.Errorf("import: got %s, want it %s", a.Body, query)
		}
	}
	if got := birch.read(t, id); got != "Hello.\n" {
		t.Errorf("got %q, want the bytes", got)
	}
	if a := acme.Do(t, http.MethodGet, "/api/export?files=maybe", from); a.Code != http.StatusUnprocessableEntity {
		t.Errorf("files=maybe: got %d, want 422", a.Code)
	}
}

// TestArchive_Ends checks that an export ends with its context, between two pieces of a file.
func TestArchive_Ends(t *testing.T) {
	t.Parallel()
	acme := newLibrary(t, gatewaytest.Start(t), "acme")
	acme.upload(t, "long.txt", strings.Repeat("long ", 1<<20))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &stopWriter{after: 1 << 20, stop: cancel}
	_, err := acme.App.Transfer().Export(ctx, acme.Tenant(t), out, bundle.ExportOptions{Files: true})
	if !errors.Is(err, context.Canceled) || out.n > 2<<20 {
		t.Errorf("got %v after %d bytes, want %v soon after %d", err, out.n, context.Canceled, out.after)
	}
}

// stopWriter calls stop once it has taken some bytes.
type stopWriter struct {
	n, after int
	stop     func()
}

func (s *stopWriter) Write(p []byte) (int, error) {
	if s.n += len(p); s.n >= s.after {
		s.stop()
	}
	return len(p), nil
}

// TestArchive_Placeholders: a record that names bytes of others by their hash gets them by no export and import, and an
// archive with it can be imported elsewhere.
func TestArchive_Placeholders(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme, birch := newLibrary(t, g, "acme", tenants.FeatureTeams), newLibrary(t, g, "birch", tenants.FeatureTeams)
	acme.Import(t, fixture.TeamLines()...)
	limited := acme.KeyWith(t, func(k *control.NewKey) {
		k.Permissions, k.Teams, k.Name = []string{string(tenants.ManageFiles)}, []string{fixture.TeamA}, "limited"
	}).Token
	secret := acme.upload(t, "secret.txt", "secret")
	address := acme.Get(t, acme.key, "/api/files/"+secret).Field("url").(string)
	acme.Do(t, http.MethodPut, "/api/files/"+secret, gatewaytest.WithKey(acme.key), gatewaytest.JSON(map[string]any{"teams": []string{fixture.TeamB}}))
	planted := fixture.PostJSON(t, acme.Org, limited, "/api/files", `{"filename":"plant.txt","mimetype":"text/plain","url":"`+address+`"}`).Field("id").(string)
	archive, report := acme.export(t, bundle.ExportOptions{Files: true})
	if report.Files != 1 {
		t.Errorf("got %+v, want the bytes of one file", report)
	}
	lines, _ := acme.export(t, bundle.ExportOptions{})
	for name, file := range map[string][]byte{"the archive": archive, "the lines": filed(lines)} {
		if r := acme.mustTake(t, file); r.Unchanged != r.Lines {
			t.Errorf("%s again: got %+v, want nothing changed", name, r)
		}
	}
	if a := acme.Get(t, limited, "/api/files/"+planted); a.Code != http.StatusOK || a.Field("size") != nil {
		t.Errorf("got %d %s, want a record without bytes", a.Code, a.Body)
	}
	birch.mustTake(t, archive)
	if a := birch.Get(t, birch.key, "/api/files/"+planted); a.Code != http.StatusOK || a.Field("size") != nil {
		t.Errorf("elsewhere: got %d %s, want a record without bytes", a.Code, a.Body)
	}
	if got := birch.read(t, secret); got != "secret" {
		t.Errorf("elsewhere: got %q, want the bytes of the other file", got)
	}
}

// TestArchive_PurgedMeanwhile: an export leaves out the bytes of files that are purged while it runs.
func TestArchive_PurgedMeanwhile(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme, birch := newLibrary(t, g, "acme"), newLibrary(t, g, "birch")
	var ids, hashes []string
	for i := range 2 {
		id := acme.upload(t, fmt.Sprint(i), strings.Repeat(fmt.Sprint(i), 1<<18))
		at := acme.Get(t, acme.key, "/api/files/"+id).Field("url").(string)
		_, hash, _ := strings.Cut(at, "/content/")
		ids, hashes = append(ids, id), append(hashes, hash[:40])
	}
	last, first := 1, 0 // contents are written in the order of their hashes
	if hashes[0] > hashes[1] {
		last, first = 0, 1
	}
	var out bytes.Buffer
	purge := sync.OnceFunc(func() {
		acme.Do(t, http.MethodDelete, "/api/files/"+ids[last]+"/purge", gatewaytest.WithKey(acme.key))
	})
	writer := writerFunc(func(p []byte) (int, error) {
		if bytes.Contains(p, []byte("files/"+hashes[first])) {
			purge()
		}
		return out.Write(p)
	})
	report, err := g.App.Transfer().Export(t.Context(), acme.Tenant(t), writer, bundle.ExportOptions{Files: true})
	if err != nil || report.Files != 1 {
		t.Fatalf("got %+v %v, want one file", report, err)
	}
	if r := birch.mustTake(t, out.Bytes()); r.FilesWithout != 1 {
		t.Errorf("got %+v, want one file without bytes", r)
	}
	if got := birch.read(t, ids[first]); len(got) != 1<<18 {
		t.Errorf("got %d bytes, want those of the other file", len(got))
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
