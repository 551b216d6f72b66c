package cli_test

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tenantry/backends/sqlite"
	"tenantry/backends/store"
	"tenantry/gateway/cli"
	"tenantry/gateway/control"
	"tenantry/modules/audit"
	"tenantry/modules/imports/bundle"
)

const bundleLines = `{"kind":"contact_field","key":"pin","title":"PIN","type":"Encrypted"}
{"kind":"contact","id":"66a000000000000000000001","email":"a@example.com","fields":{"pin":"canary-4711"}}
{"kind":"contact","id":"66a000000000000000000002","email":"b@example.com"}
`

const badLine = `{"kind":"contact","id":"66a000000000000000000003","email":"nonsense"}` + "\n"

func write(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestImportAndExport(t *testing.T) {
	t.Parallel()
	for _, served := range []bool{false, true} {
		t.Run(map[bool]string{false: "alone", true: "served"}[served], func(t *testing.T) {
			t.Parallel()
			tmp := t.TempDir()
			dir := filepath.Join(tmp, "data")
			var stop func()
			if served {
				p, _, _ := serve(t, dir)
				stop = func() { p.end(t) }
			}
			beginOrg(t, dir, "acme")
			imports(t, tmp, dir)
			exports(t, tmp, dir)
			if stop != nil {
				stop()
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "imports", "*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			audited(t, dir)
		})
	}
}

// TestOrgCreateFrom makes organizations from a file, with a server and without. They answer at once.
func TestOrgCreateFrom(t *testing.T) {
	t.Parallel()
	for _, served := range []bool{false, true} {
		t.Run(map[bool]string{false: "alone", true: "served"}[served], func(t *testing.T) {
			t.Parallel()
			tmp := t.TempDir()
			dir, addr := filepath.Join(tmp, "data"), ""
			if served {
				var p *process
				p, addr, _ = serve(t, dir)
				defer p.end(t)
			}
			var lines strings.Builder
			for i := range 120 {
				fmt.Fprintf(&lines, `{"slug":"o%d","name":"Organization %d"}`+"\n", i, i)
			}
			file := write(t, filepath.Join(tmp, "new.ndjson"), lines.String())
			if r := must[bundle.Report](t, "", "org", "create", "--from", file, "--dry-run", "--data", dir); r.Created != 120 || !r.DryRun {
				t.Errorf("dry run: %+v", r)
			}
			if r := must[bundle.Report](t, "", "org", "create", "--from", file, "--data", dir); r.Created != 120 || r.DryRun {
				t.Errorf("created: %+v", r)
			}
			key := must[control.IssuedKey](t, "", "key", "create", "--org", "o119", "--name", "k", "--kind", "server_full", "--permission", "contacts", "--data", dir)
			if served {
				if code, body := ask(t, addr, "o119", "/api/campaigns/count", key.Token); code != 200 {
					t.Errorf("the last one answers %d %s", code, body)
				}
			}
			a := run(t, "", "org", "create", "--from", file, "--data", dir, "--output", "table")
			if err := contains(a.stdout+a.stderr, "organization  120    0        0        0          0        120", `line 1 (organization): the slug "o0" belongs or belonged`, "... and 100 more lines with problems", "120 of 120 lines were refused; nothing was created"); err != nil || a.code != 1 {
				t.Errorf("again: exit %d: %v", a.code, err)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "imports", "*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
	a := run(t, "", "org", "create", "--from", filepath.Join(t.TempDir(), "none"), "--data", t.TempDir())
	if err := contains(a.stderr, "no such file"); err != nil || a.code != 1 {
		t.Errorf("a file that is not there: exit %d: %v", a.code, err)
	}
}

func imports(t *testing.T, tmp, dir string) {
	t.Helper()
	file := write(t, filepath.Join(tmp, "bundle.ndjson"), bundleLines)
	do := func(args ...string) bundle.Report {
		t.Helper()
		return must[bundle.Report](t, bundleLines, append([]string{"import", "--org", "acme", "--data", dir}, args...)...)
	}
	if r := do(file, "--dry-run"); r.Created != 3 || !r.DryRun {
		t.Errorf("dry run: %+v", r)
	}
	if r := do("-"); r.Created != 3 || r.DryRun {
		t.Errorf("from standard input: %+v", r)
	}
	if r := do(file); r.Created != 0 || r.Unchanged != 3 {
		t.Errorf("again: %+v", r)
	}

	mixed := write(t, filepath.Join(tmp, "mixed.ndjson"), strings.ReplaceAll(bundleLines, "0002", "0004")+badLine)
	a := run(t, "", "import", "--org", "acme", "--data", dir, mixed)
	if err := contains(a.stderr, "line 4 (contact): email", "nothing was imported", "--partial"); err != nil || a.code != 1 {
		t.Errorf("a bad line: exit %d: %v", a.code, err)
	}
	bad := mixed + ".bad.ndjson"
	if _, err := os.Stat(bad); err == nil {
		t.Error("bad lines were written without --partial")
	}
	r := do(mixed, "--partial")
	if r.Created != 1 || r.Failed != 1 {
		t.Errorf("partial: %+v", r)
	}
	info, err := os.Stat(bad)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the file of bad lines: %v %v", info, err)
	}
	if content, err := os.ReadFile(bad); err != nil || string(content) != badLine {
		t.Errorf("the file of bad lines holds %q (%v)", content, err)
	}
	again := run(t, "", "import", "--org", "acme", "--data", dir, mixed, "--partial")
	if err := contains(again.stderr, bad, "move it away"); err != nil || again.code != 1 {
		t.Errorf("a file of bad lines that is there: exit %d: %v", again.code, err)
	}

	rows := write(t, filepath.Join(tmp, "people.csv"), "Mail,Town,Worth\nc@example.com,Oslo,\"1.234,50\"\nd@example.com,Rome,\"12,5\"\n")
	r = do(rows, "--as", "contacts", "--map", "Mail=email,Worth=worth:1.234,56", "--map", "Town=city")
	if r.Created != 2 || len(r.Columns) != 3 || r.Columns[0].Field != "email" || r.Columns[2].Field != "worth" {
		t.Errorf("rows: %+v", r)
	}
	if r = do(write(t, filepath.Join(tmp, "bikes.json"), `[{"model":"Elbe","price":900}]`), "--as", "records:bike"); r.Kinds["record"].Created != 1 {
		t.Errorf("records: %+v", r)
	}
	if r = do(write(t, filepath.Join(tmp, "folders.csv"), "Name;Deleted\nLetters;no\nOld;yes\n"), "--as", "folders"); r.Kinds["folder"].Created != 2 {
		t.Errorf("folders: %+v", r)
	}
	for _, c := range []struct {
		args   []string
		stderr string
	}{
		{[]string{"--org", "acme", "--as", "submissions:nothing", rows}, `no form collection "nothing"`},
		{[]string{"--org", "acme", "--as", "bicycles", rows}, "rows can be imported as teams, roles, users"},
		{[]string{"--org", "nobody", file}, `"nobody"`},
		{[]string{"--org", "acme", file + ".missing"}, "no such file"},
		{[]string{"--org", "acme", "--as", "contacts", "--map", "Nothing=email", rows}, "Nothing"},
	} {
		a := run(t, "", append([]string{"import", "--data", dir}, c.args...)...)
		if err := contains(a.stderr, c.stderr); err != nil || a.code != 1 {
			t.Errorf("import %q: exit %d: %v", c.args, a.code, err)
		}
	}
}

func exports(t *testing.T, tmp, dir string) {
	t.Helper()
	a := run(t, "", "export", "--org", "acme", "--data", dir)
	if a.code != 0 || strings.Contains(a.stdout, "canary") {
		t.Errorf("export: exit %d %s\n%s", a.code, a.stderr, a.stdout)
	}
	if err := contains(a.stdout, `"kind":"contact"`, `{"enc":"`); err != nil {
		t.Error(err)
	}
	out := write(t, filepath.Join(tmp, "out.ndjson"), "old")
	if err := os.Chmod(out, 0o644); err != nil {
		t.Fatal(err)
	}
	report := must[bundle.ExportReport](t, "", "export", "--org", "acme", "--data", dir, "-o", out)
	content, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if report.Lines != bytes.Count(content, []byte("\n")) || string(content) != a.stdout {
		t.Errorf("the report tells of %d lines, the file is\n%s", report.Lines, content)
	}
	if info, err := os.Stat(out); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v (%v)", info.Mode(), err)
	}
	if r := must[bundle.Report](t, "", "import", "--org", "acme", "--data", dir, out); r.Created+r.Updated+r.Failed != 0 {
		t.Errorf("importing the export: %+v", r)
	}
	revealed := run(t, "", "export", "--org", "acme", "--data", dir, "--reveal-secrets")
	if err := contains(revealed.stdout, "canary-4711"); err != nil {
		t.Error(err)
	}
	if a := run(t, "", "export", "--org", "nobody", "--data", dir, "-o", filepath.Join(tmp, "none")); a.code != 1 || !strings.Contains(a.stderr, `"nobody"`) {
		t.Errorf("exit %d: %s", a.code, a.stderr)
	}
	if left, _ := filepath.Glob(filepath.Join(tmp, "*none*")); len(left) > 0 {
		t.Errorf("a failed export left %v", left)
	}
}

// TestExport_WithFiles checks that an archive imports and exports by command, and that the lines alone say what is missing.
func TestExport_WithFiles(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	dir := filepath.Join(tmp, "data")
	for _, slug := range []string{"acme", "birch"} {
		must[control.Organization](t, "", "org", "create", "--slug", slug, "--name", "A", "--data", dir)
	}
	var packed bytes.Buffer
	z := zip.NewWriter(&packed)
	for _, e := range [][2]string{
		{"bundle.ndjson", `{"kind":"file","id":"0000000000000000000000f1","filename":"a.txt","mimetype":"text/plain","hash":"a1",` +
			`"checksum":"a2c064616af4c66c576821616646bdfad5556a263b4b007847605118971f4389"}` + "\n"},
		{"files/a1", "Hello.\n"},
	} {
		w, err := z.Create(e[0])
		if err == nil {
			_, err = io.WriteString(w, e[1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if r := must[bundle.Report](t, packed.String(), "import", "--org", "acme", "--data", dir, "-"); r.Created != 1 {
		t.Errorf("import of an archive: %+v", r)
	}
	out := filepath.Join(tmp, "acme.zip")
	if r := must[bundle.ExportReport](t, "", "export", "--org", "acme", "--data", dir, "--with-files", "-o", out); r.Files != 1 || r.Bytes != 7 {
		t.Errorf("export of an archive: %+v", r)
	}
	if r := must[bundle.Report](t, "", "import", "--org", "acme", "--data", dir, out); r.Unchanged != r.Lines {
		t.Errorf("import of the export: %+v", r)
	}
	lines := run(t, "", "export", "--org", "acme", "--data", dir)
	if err := contains(lines.stderr, "The bytes of files (1) are not part of it"); err != nil {
		t.Error(err)
	}
	var file string
	for line := range strings.Lines(lines.stdout) {
		if strings.HasPrefix(line, `{"kind":"file"`) {
			file = line
		}
	}
	a := run(t, file, "import", "--org", "birch", "--data", dir, "-")
	if err := contains(a.stderr, "1 files came without their bytes"); a.code != 0 || err != nil {
		t.Errorf("import of the lines: exit %d, %v", a.code, err)
	}
	for _, c := range []struct{ stderr, args string }{
		{"damaged or incomplete", "import --org birch -"}, {"--with-files", "export --org birch --skip-missing"},
	} {
		a := run(t, packed.String()[:100], append(strings.Fields(c.args), "--data", dir)...)
		if err := contains(a.stderr, c.stderr); a.code != 1 || err != nil {
			t.Errorf("%s: exit %d, %v", c.args, a.code, err)
		}
	}
}

// audited checks the organization's audit log in a data folder that is no longer in use.
func audited(t *testing.T, dir string) {
	t.Helper()
	engine, err := sqlite.Open(t.Context(), sqlite.Options{Dir: filepath.Join(dir, "db")})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	log := audit.New()
	s := store.New(store.Options{Engine: engine, Tenant: []*store.Spec{log.Spec()}})
	there, err := s.Residents(t.Context(), store.DefaultBackend, func(int64, string) bool { return false })
	if err != nil || len(there) != 1 {
		t.Fatalf("got %v, %v, want no error and len(there) = 1", there, err)
	}
	ws, err := s.At(t.Context(), there[0].Org, store.Placement{Owner: there[0].Owner})
	if err != nil {
		t.Fatal(err)
	}
	found, err := log.Recent(t.Context(), ws, 100, 0)
	if err != nil {
		t.Fatal(err)
	}
	var records strings.Builder
	for _, r := range found {
		fmt.Fprintln(&records, r.Operation, r.Outcome, r.Subject, r.Facts)
	}
	err = contains(records.String(), "org.create ok command", "key.create ok command", "import ok command map[created:3",
		"export ok command map[reveal_secrets:false]", "export ok command map[reveal_secrets:true]")
	if err != nil {
		t.Error(err)
	}
	if strings.Contains(records.String(), "canary") {
		t.Error("the audit log holds a secret")
	}
}

func TestExport_FolderMustExist(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	must[control.Organization](t, "", "org", "create", "--slug", "acme", "--name", "Acme", "--data", dir)
	a := run(t, "", "export", "--org", "acme", "--data", dir, "-o", filepath.Join(dir, "no", "such", "folder"))
	if a.code != 1 || !strings.Contains(a.stderr, "no such file") {
		t.Errorf("exit %d: %s", a.code, a.stderr)
	}
}

// TestExport_Device exports to a pipe. A device is written to and never replaced: root would lose /dev/null.
func TestExport_Device(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	must[control.Organization](t, "", "org", "create", "--slug", "acme", "--name", "Acme", "--data", dir)
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	path := fmt.Sprintf("/dev/fd/%d", to.Fd())
	if _, err := os.Stat(path); err != nil {
		t.Skip(err)
	}
	a := run(t, "", "export", "--org", "acme", "--data", dir, "-o", path)
	_ = to.Close()
	if got, err := io.ReadAll(from); a.code != 0 || err != nil || !strings.HasPrefix(string(got), `{"kind":"organization","name":"Acme"`) {
		t.Errorf("exit %d: %s\n%s, %v", a.code, a.stderr, got, err)
	}
	if a := run(t, "", "export", "--org", "acme", "--data", dir, "-o", dir); a.code != 1 || !strings.Contains(a.stderr, "is a directory") {
		t.Errorf("a folder: exit %d: %s", a.code, a.stderr)
	}
	if a := run(t, "", "import", "--org", "acme", "--data", dir, dir); a.code != 1 || !strings.Contains(a.stderr, dir+" is a folder, not a file") {
		t.Errorf("an import of a folder: exit %d: %s", a.code, a.stderr)
	}
}

// TestExport_SecretsTravel moves encrypted values to another installation under a transfer key. An export without the
// key says what it leaves out.
func TestExport_SecretsTravel(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	from, to := filepath.Join(tmp, "from"), filepath.Join(tmp, "to")
	beginOrg(t, from, "acme")
	must[control.Organization](t, "", "org", "create", "--slug", "other", "--name", "Other", "--data", to)
	must[bundle.Report](t, bundleLines, "import", "--org", "acme", "--data", from, "-")

	key, out := filepath.Join(tmp, "transfer.key"), filepath.Join(tmp, "out.ndjson")
	made := must[map[string]string](t, "", "keyring", "transfer-key", "--out", key)
	if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 || made["public"] != key+".pub" {
		t.Fatalf(`got %v %v %v, want no error and info.Mode().Perm() = 0o600 and made["public"] = %v`,
			info, err, made, key+".pub")
	}
	if a := run(t, "", "keyring", "transfer-key", "--out", key); a.code != 1 || !strings.Contains(a.stderr, "exists") {
		t.Errorf("a key that is there: exit %d: %s", a.code, a.stderr)
	}
	a := run(t, "", "export", "--org", "acme", "--data", from, "-o", out)
	if err := contains(a.stderr, "Encrypted values (1)", "--secrets", "API keys"); err != nil || a.code != 0 {
		t.Errorf("exit %d: %v", a.code, err)
	}
	if err := contains(a.stdout, `"contact": 2`, `"left_out"`); err != nil || strings.Contains(a.stdout, "created") {
		t.Errorf("figures: %v\n%s", err, a.stdout)
	}
	a = run(t, "", "import", "--org", "other", "--data", to, out)
	if err := contains(a.stderr, "export with --secrets"); err != nil || a.code != 1 {
		t.Errorf("kept values elsewhere: exit %d: %v", a.code, err)
	}
	if a := run(t, "", "export", "--org", "acme", "--data", from, "--secrets", key); a.code != 1 || !strings.Contains(a.stderr, "private half") {
		t.Errorf("the private half: exit %d: %s", a.code, a.stderr)
	}
	report := must[bundle.ExportReport](t, "", "export", "--org", "acme", "--data", from, "-o", out, "--secrets", key+".pub")
	if strings.Contains(strings.Join(report.LeftOut, " "), "Encrypted") {
		t.Errorf("left out: %q", report.LeftOut)
	}
	if a := run(t, "", "import", "--org", "other", "--data", to, out, "--secrets", key+".pub"); a.code != 1 || !strings.Contains(a.stderr, "public half") {
		t.Errorf("the public half: exit %d: %s", a.code, a.stderr)
	}
	if r := must[bundle.Report](t, "", "import", "--org", "other", "--data", to, out, "--secrets", key); r.Failed > 0 || r.Kinds["contact"].Created != 2 {
		t.Errorf(`got %+v, want r.Failed <= 0 and r.Kinds["contact"].Created = 2`, r)
	}
	if err := contains(run(t, "", "export", "--org", "other", "--data", to, "--reveal-secrets").stdout, "canary-4711"); err != nil {
		t.Error(err)
	}
	records := run(t, "", "audit", "--org", "acme", "--data", from, "--output", "json").stdout
	if err := contains(records, `"secrets_sealed_to": "`+made["key_id"]); err != nil {
		t.Error(err)
	}
}

// TestImport_Interrupted checks that the error of an interrupted import says how to continue.
func TestImport_Interrupted(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	beginOrg(t, dir, "acme")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var stderr strings.Builder
	code := cli.Main(ctx, []string{"import", "--org", "acme", "-", "--data", dir}, stopping(stop), io.Discard, &stderr, nil, nil)
	if err := contains(stderr.String(), "command import was interrupted", "import the same file again to go on"); err != nil || code != 1 {
		t.Errorf("exit %d: %v", code, err)
	}
}

// stopping is an input that stops the command when it is read.
type stopping func()

func (s stopping) Read([]byte) (int, error) {
	s()
	return 0, io.EOF
}

// TestImport_Mirror checks that --mirror without --yes lists the records that would be removed and removes none, and
// that --yes removes them.
func TestImport_Mirror(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	dir := filepath.Join(tmp, "data")
	beginOrg(t, dir, "acme")
	must[bundle.Report](t, bundleLines, "import", "--org", "acme", "--data", dir, "-")
	out := filepath.Join(tmp, "acme.ndjson")
	must[bundle.ExportReport](t, "", "export", "--org", "acme", "--data", dir, "-o", out)
	must[bundle.Report](t, `{"kind":"contact","id":"66a000000000000000000009","email":"new@example.com"}`, "import", "--org", "acme", "--data", dir, "-")
	const removal = "removed: contact 66a000000000000000000009 new@example.com"
	for _, c := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{[]string{"--mirror"}, 1, "REMOVED", "would be " + removal},
		{[]string{"--mirror"}, 1, "REMOVED", "would create 0 records, update 0 and remove 1 for good; confirm with --yes"},
		{[]string{"--mirror", "--dry-run"}, 0, "REMOVED", "would be " + removal},
		{[]string{"--mirror", "--partial"}, 2, "", "partial"},
		{[]string{"--mirror", "--as", "contacts"}, 2, "", "--mirror is for bundles"},
		{[]string{"--yes"}, 2, "", "--yes confirms what --mirror removes"},
		{[]string{"--mirror", "--yes"}, 0, "REMOVED", "\n" + removal},
		{[]string{"--mirror", "--yes"}, 0, "UNCHANGED", ""},
	} {
		a := run(t, "", append([]string{"import", "--org", "acme", "--data", dir, "--output", "table", out}, c.args...)...)
		if a.code != c.code || !strings.Contains(a.stdout, c.stdout) || !strings.Contains("\n"+a.stderr, c.stderr) {
			t.Errorf("%q: exit %d\n%s\n%s", c.args, a.code, a.stdout, a.stderr)
		}
	}
	if again := must[bundle.Report](t, "", "import", "--org", "acme", "--data", dir, "--mirror", "--yes", out); again.Removed != 0 || again.Unchanged != again.Lines {
		t.Errorf("got %+v, want again.Removed = 0 and again.Unchanged = %v", again, again.Lines)
	}
}
