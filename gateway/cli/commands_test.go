package cli_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tenantry/gateway/control"
)

// step is one command of a sequence. Words in braces stand for values that earlier steps saved.
type step struct {
	args    string
	stdin   string
	code    int
	members string            // the result has exactly these, if the command succeeds
	values  map[string]string // some of them, as JSON
	save    map[string]string // member by the word it is saved under
	stderr  []string
}

func steps() []step {
	const org = "id slug name state features settings limits providers backend url created_at updated_at"
	const user = "id name email roles permissions teams active created_at"
	const limits, limited = "org rate quota key_rate key_quota visitor_rate visitor_quota own", "id name rate quota own"
	return []step{
		{args: "org create --slug acme --name Acme --feature teams --limit folder_children=1000 --setting require_public_encryption_key=true", members: org,
			values: map[string]string{"slug": `"acme"`, "state": `"active"`, "features": `{"teams":true}`, "limits": `{"folder_children":1000}`, "settings": `{"require_public_encryption_key":true}`}},
		{args: "org create --slug acme --name Again", code: 1, stderr: []string{`"acme"`, "never used twice"}},
		{args: "org create --slug Bad! --name X --limit folder_children=0 --feature nonsense", code: 1, stderr: []string{"slug: ", "limits.folder_children: ", "features.nonsense: "}},
		{args: "org create --slug other --name Other", members: org},
		{args: "org create --from - --dry-run", stdin: `{"slug":"third","name":"Third"}` + "\r\n", members: "lines created unchanged updated failed dry_run kinds problems", values: map[string]string{"created": "1", "failed": "0"}},
		{args: "org show acme", members: org + " used"},
		{args: "org show nobody", code: 1, stderr: []string{`"nobody"`, "org list"}},
		{args: "org update acme --name Better --feature teams=false", members: org, values: map[string]string{"name": `"Better"`, "features": `{"teams":false}`, "limits": `{"folder_children":1000}`}},
		{args: "org update nobody --name X", code: 1, stderr: []string{`"nobody"`}},
		{args: "org update acme", code: 2, stderr: []string{"what to change"}},
		{args: "org suspend acme", members: org, values: map[string]string{"state": `"suspended"`}},
		{args: "org suspend nobody", code: 1},
		{args: "org resume acme", members: org, values: map[string]string{"state": `"active"`}},
		{args: "org resume nobody", code: 1},

		{args: "org limits acme", members: limits, values: map[string]string{"rate": `"1000/s"`, "quota": `"off"`, "key_rate": `"500/s"`, "key_quota": `"off"`, "own": `[]`}},
		{args: "org limits acme --rate 100/s --quota off --key-rate 20/s --key-quota 100000/d", members: limits,
			values: map[string]string{"rate": `"100/s"`, "key_quota": `"100000/d"`, "own": `["rate","quota","key_rate","key_quota"]`}},
		{args: "org limits acme --rate default", members: limits, values: map[string]string{"rate": `"1000/s"`, "key_rate": `"20/s"`, "own": `["quota","key_rate","key_quota"]`}},
		{args: "org limits acme --rate fast --key-quota 1/w", code: 1, stderr: []string{"rate: ", "key_quota: "}},
		{args: "org limits nobody", code: 1, stderr: []string{`"nobody"`}},
		{args: "org limits", code: 2, stderr: []string{"slug"}},

		{args: "org move acme", code: 2, stderr: []string{"--to BACKEND, --finish and --rollback"}},
		{args: "org move acme --to default --finish", code: 2, stderr: []string{"give one of"}},
		{args: "org move acme --to default", code: 1, stderr: []string{"lives on default already"}},
		{args: "org move acme --to nowhere", code: 1, stderr: []string{`"nowhere"`, "default"}},
		{args: "org move nobody --to default", code: 1, stderr: []string{`"nobody"`}},
		{args: "org move acme --rollback", code: 1, stderr: []string{"nothing to roll back"}},
		{args: "org move acme --finish", code: 1, stderr: []string{"nothing to finish"}},

		{args: "user create --org acme --email ada@example.com --name Ada --role admin", members: user + " link link_expires_at", save: map[string]string{"link": "link"},
			values: map[string]string{"id": "1", "roles": `["admin"]`, "active": "true"}, stderr: []string{"works once"}},
		{args: "user create --org acme --email bob@example.com --name Bob --permission contacts,manage_forms --password-stdin", stdin: "correct horse battery\n", members: user,
			values: map[string]string{"permissions": `["contacts","manage_forms"]`}},
		{args: "user create --org acme --email ADA@example.com --name Twin", code: 1, stderr: []string{"has a user with the address"}},
		{args: "user create --org acme --email nonsense --name X --role no --permission fly", code: 1, stderr: []string{"email: ", "roles: ", "permissions: "}},
		{args: "user create --org acme --email c@example.com --name C --password-stdin", stdin: "short", code: 1, stderr: []string{"password"}},
		{args: "user create --org acme --email c@example.com --name C --password-stdin", stdin: "\n", code: 2, stderr: []string{"no password"}},
		{args: "user create --org nobody --email c@example.com --name C", code: 1, stderr: []string{`"nobody"`}},
		{args: "user create --email c@example.com --name C", code: 2, stderr: []string{"--org SLUG", "acme, other"}},
		{args: "user show BOB@example.com --org acme", members: user, values: map[string]string{"id": "2"}},
		{args: "user show 2 --org acme", members: user, values: map[string]string{"email": `"bob@example.com"`}},
		{args: "user show 99 --org acme", code: 1, stderr: []string{`no user "99"`}},
		{args: "user show bob@example.com --org other", code: 1, stderr: []string{"organization other has no user"}},
		{args: "user update 2 --org acme --role admin --permission contacts", members: user, values: map[string]string{"roles": `["admin"]`, "permissions": `["contacts"]`, "name": `"Bob"`}},
		{args: "user update 2 --org acme --email ada@example.com", code: 1, stderr: []string{"another user"}},
		{args: "user update 2 --org acme", code: 2},
		{args: "user update 2 --org acme --link", members: user + " link link_expires_at"},
		{args: "user deactivate 2 --org acme", members: user, values: map[string]string{"active": "false"}},
		{args: "user update 2 --org acme --active", members: user, values: map[string]string{"active": "true"}},
		{args: "user deactivate 99 --org acme", code: 1},

		{args: "key create --org acme --name crm --kind server_full --permission contacts,manage_files --expires 720h --allow-ip 127.0.0.0/8", members: "id token kind account expires_at",
			values: map[string]string{"kind": `"server_full"`, "account": `"crm"`}, save: map[string]string{"id": "key", "token": "token"}},
		{args: "key create --org acme --name crm2 --account crm --kind server_read --permission manage_reports", code: 1, stderr: []string{`"crm" lacks manage_reports`, "it has contacts, manage_files"}},
		{args: "user delete 3 --org acme", code: 2, stderr: []string{`unknown command "user delete"`, "did you mean deactivate?"}},
		{args: "user delete --org acme", code: 2, stderr: []string{`unknown command "user delete"`, "there are: create, deactivate,"}},
		{args: "team create --org acme --name North", members: "id name"},
		{args: "key create --org acme --name bare --kind server_full", members: "id token kind account expires_at", stderr: []string{"holds no permissions"}},
		{args: "key create --org acme --name x --kind best --permission fly --allow-ip home", code: 1, stderr: []string{"kind: ", "permissions: ", "allow_ips: "}},
		{args: "key create --org acme --name x --kind server_full --account nobody", code: 1, stderr: []string{"account: "}},
		{args: "key create --org acme --name x --kind browser", code: 1, stderr: []string{"origins: "}},
		{args: "key create --org acme --name x --kind browser --origin https://www.example.com", members: "id token kind account expires_at"},
		{args: "key create --org acme --name x --kind server_full --expires 0s", code: 2, stderr: []string{"at least 1s"}},
		{args: "key create --org acme --name x --kind server_full --rate 5/y --quota lots", code: 1, stderr: []string{"rate: ", "quota: ", "off"}},
		{args: "key limits {key} --org acme", members: limited, values: map[string]string{"rate": `"20/s"`, "quota": `"100000/d"`, "own": `[]`}},
		{args: "key limits {key} --org acme --rate 5/s --quota off", members: limited, values: map[string]string{"rate": `"5/s"`, "quota": `"off"`, "own": `["rate","quota"]`}},
		{args: "key limits {key} --org acme --rate default", members: limited, values: map[string]string{"rate": `"20/s"`, "own": `["quota"]`}},
		{args: "key limits {key} --org acme --reset", members: limited, values: map[string]string{"quota": `"100000/d"`, "own": `[]`}},
		{args: "key limits {key} --org acme --rate 0/s", code: 1, stderr: []string{"rate: ", "1 to 100000000"}},
		{args: "key limits {key} --org other", code: 1, stderr: []string{"no key"}},
		{args: "key limits", code: 2, stderr: []string{"identifier"}},
		{args: "key rotate {key} --org acme --overlap 24h", members: "id token kind account expires_at", values: map[string]string{"account": `"crm"`}},
		{args: "key rotate ffffffffffffffffffffffff --org acme", code: 1, stderr: []string{"no key ffff"}},
		{args: "key revoke {key} --org acme", members: "id name kind account hint state effective_permissions allow_ips created_at expires_at rotated revoked_at last_used_at", values: map[string]string{"state": `"revoked"`}},
		{args: "key revoke {key} --org other", code: 1, stderr: []string{"no key"}},
		{args: "key revoke {token} --org acme", code: 1, stderr: []string{"not by its text"}},
		{args: "key rotate {key} --org acme", code: 1, stderr: []string{"revoked"}},

		{args: "audit --org nobody", code: 1, stderr: []string{`"nobody"`}},
		{args: "audit --verify --org nobody", code: 1, stderr: []string{`"nobody"`}},
		{args: "audit --verify --limit 5", code: 2, stderr: []string{"--limit"}},
		{args: "audit --verify", members: "intact records from until faults unsealed next", values: map[string]string{"intact": "true"}},
		{args: "audit --verify --org acme", members: "intact records from until faults unsealed next", values: map[string]string{"intact": "true"}},
		{args: "keyring rotate", members: "version rewrapped", values: map[string]string{"version": "2"}, stderr: []string{"Back up"}},
		{args: "keyring retire 2", code: 1, stderr: []string{"primary"}},
		{args: "keyring retire 9", code: 1, stderr: []string{"no version 9"}},
		{args: "keyring retire x", code: 2},
		{args: "keyring retire 1", members: "version state"},

		{args: "org delete other", code: 2, stderr: []string{"--yes"}},
		{args: "org certificate other", code: 1, stderr: []string{"has not been deleted"}},
		{args: "org undelete other", code: 1, stderr: []string{"has not been deleted"}},
		{args: "org delete other --yes", members: "slug number state installation deleted_at due_at began_at erased_at documents bytes people data_keys places overwritten says", values: map[string]string{"state": `"deleted"`, "erased_at": "null"}},
		{args: "org resume other", code: 1, stderr: []string{"has been deleted"}},
		{args: "org undelete other", members: "id slug name state features settings limits providers backend url created_at updated_at"},
		{args: "org delete other --yes", members: "slug number state installation deleted_at due_at began_at erased_at documents bytes people data_keys places overwritten says"},
		{args: "org certificate other", members: "slug number state installation deleted_at due_at began_at erased_at documents bytes people data_keys places overwritten says", values: map[string]string{"state": `"deleted"`}},
		{args: "org delete other --yes --now", members: "slug number state installation deleted_at due_at began_at erased_at documents bytes people data_keys places overwritten says", values: map[string]string{"state": `"removed"`}},
		{args: "org undelete other", code: 1, stderr: []string{`"other"`}},
		{args: "org delete nobody --yes", code: 1, stderr: []string{`"nobody"`}},
		{args: "org show other", code: 1},
		{args: "org create --slug other --name Other", code: 1, stderr: []string{"never used twice"}},
		{args: "version", members: "version commit go sqlite"},
	}
}

// TestCommands runs the same commands on a data folder that is not in use and on one that a server has open. Both must
// give the same results.
func TestCommands(t *testing.T) {
	t.Parallel()
	for _, served := range []bool{false, true} {
		t.Run(map[bool]string{false: "alone", true: "served"}[served], func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			if served {
				serve(t, dir)
			}
			saved := map[string]string{}
			for _, s := range steps() {
				s.try(t, dir, saved)
			}
			if !strings.Contains(saved["{link}"], ".localhost:") || !strings.Contains(saved["{link}"], "/welcome#inv_") {
				t.Errorf("the link is %q", saved["{link}"])
			}
			lists(t, dir)
		})
	}
}

func (s *step) try(t *testing.T, dir string, saved map[string]string) {
	t.Helper()
	args := strings.Fields(s.args)
	for i := range args {
		if value, ok := saved[args[i]]; ok {
			args[i] = value
		}
	}
	a := run(t, s.stdin, append(args, "--data", dir)...)
	if a.code != s.code {
		t.Errorf("%s: exit %d, want %d\n%s%s", s.args, a.code, s.code, a.stdout, a.stderr)
		return
	}
	if err := contains(a.stderr, s.stderr...); err != nil {
		t.Errorf("%s: standard error: %v", s.args, err)
	}
	if token := saved["{token}"]; token != "" && strings.Contains(a.stdout+a.stderr, token) {
		t.Errorf("%s: the output shows the token of a key", s.args)
	}
	if s.code != 0 {
		if a.stdout != "" || a.stderr == "" {
			t.Errorf("%s: stdout = %q, stderr = %q, want a message on stderr only", s.args, a.stdout, a.stderr)
		}
		return
	}
	var result map[string]json.RawMessage
	if err := json.Unmarshal([]byte(a.stdout), &result); err != nil {
		t.Fatalf("%s: %v: %s", s.args, err, a.stdout)
	}
	want := strings.Fields(s.members)
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(result)); !slices.Equal(got, want) {
		t.Errorf("%s: the result has %v, want %v", s.args, got, want)
	}
	for member, value := range s.values {
		if got := compact(result[member]); got != value {
			t.Errorf("%s: %s is %s, want %s", s.args, member, got, value)
		}
	}
	for member, word := range s.save {
		var text string
		if err := json.Unmarshal(result[member], &text); err != nil {
			t.Fatal(err)
		}
		saved["{"+word+"}"] = text
	}
}

func compact(raw json.RawMessage) string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return string(raw)
	}
	out, _ := json.Marshal(v)
	return string(out)
}

// lists checks what the list commands show after steps.
func lists(t *testing.T, dir string) {
	t.Helper()
	orgs := must[[]control.Organization](t, "", "org", "list", "--data", dir)
	if len(orgs) != 2 || orgs[0].Slug != "acme" || orgs[1].State != "removed" {
		t.Errorf("org list: %+v", orgs)
	}
	users := must[[]control.User](t, "", "user", "list", "--org", "acme", "--data", dir)
	if len(users) != 2 || users[0].ID != 1 || users[1].Email != "bob@example.com" {
		t.Errorf("user list: %+v", users)
	}
	keys := must[[]control.Key](t, "", "key", "list", "--org", "acme", "--data", dir)
	if len(keys) != 3 || !slices.ContainsFunc(keys, func(k control.Key) bool { return k.State == "revoked" && k.Account == "crm" }) {
		t.Errorf("key list: %+v", keys)
	}
	ring := must[[]control.EncryptionKey](t, "", "keyring", "list", "--data", dir)
	if len(ring) != 2 || ring[0].State != "retired" || ring[1].State != "primary" {
		t.Errorf("keyring list: %+v", ring)
	}
	first := run(t, "", "user", "list", "--org", "acme", "--data", dir, "--limit", "1")
	if err := contains(first.stderr, "--offset 1"); err != nil {
		t.Error(err)
	}
	for _, args := range []string{"org list", "org show acme", "user list --org acme", "user show 1 --org acme", "key list --org acme", "audit --org acme --limit 2", "keyring list", "version"} {
		a := run(t, "", append(strings.Fields(args), "--data", dir, "--output", "table")...)
		if a.code != 0 || json.Valid([]byte(a.stdout)) || strings.Count(a.stdout, "\n") < 2 {
			t.Errorf("%s --output table: exit %d\n%s%s", args, a.code, a.stdout, a.stderr)
		}
	}
}

// TestGroups makes, changes and deletes a role, a team and a service account.
func TestGroups(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	for _, step := range []struct{ args, want string }{
		{"org create --slug acme --name Acme", `"acme"`},
		{"role create --org acme --name editor --permission contacts", `"label": "editor"`},
		{"role update editor --org acme --label Editor --permission manage_forms", `"label": "Editor"`},
		{"role show editor --org acme", `"manage_forms"`},
		{"role delete editor --org acme", `"deleted": "editor"`},
		{"team create --org acme --name North", `"North"`},
		{"team update North --org acme --name South", `"South"`},
		{"team delete South --org acme", `"deleted": "South"`},
		{"account create --org acme --name crm --permission contacts,manage_forms --active", `"active": true`},
		{"account update crm --org acme --active=false --permission contacts", `"active": false`},
		{"account show crm --org acme", `"contacts"`},
		{"account delete crm --org acme", `"keys_revoked": 0`},
		{"audit --org acme", `"changed": "active,permissions"`},
	} {
		a := run(t, "", append(strings.Fields(step.args), "--data", dir)...)
		if a.code != 0 || !strings.Contains(a.stdout, step.want) {
			t.Errorf("%s: exit %d, %s%s", step.args, a.code, a.stdout, a.stderr)
		}
	}
}

// TestNewInstallationIsNoted runs commands in several folders. Only those that make an installation say so, and where.
func TestNewInstallationIsNoted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const note = "Note: there was no installation in"
	for _, test := range []struct {
		folder, args string
		code         int
		noted        bool
	}{
		{"one", "org create --slug acme --name Acme", 0, true},
		{"one", "org create --slug other --name Other", 0, false},
		{"two", "org create --slug acme --name Acme", 0, true},
		{"three", "org list", 1, false},
		{"three", "user create --org acme --email a@example.com --name A", 1, false},
	} {
		folder := filepath.Join(dir, test.folder)
		a := run(t, "", append(strings.Fields(test.args), "--data", folder)...)
		if a.code != test.code || strings.Contains(a.stderr, note) != test.noted ||
			test.noted && !strings.Contains(a.stderr, note+" "+folder+", so a new one was created there") {
			t.Errorf("%s in %s: exit %d, stderr = %q, want exit %d and a note: %v",
				test.args, test.folder, a.code, a.stderr, test.code, test.noted)
		}
		if _, err := os.Stat(folder); (err == nil) != (test.code == 0) {
			t.Errorf("%s in %s: Stat = %v, want the folder to exist: %v", test.args, test.folder, err, test.code == 0)
		}
	}
	for folder, want := range map[string]bool{"one": false, "four": true} {
		p, _, _ := serve(t, filepath.Join(dir, folder))
		if got := strings.Contains(p.stderr.String(), note+" "+filepath.Join(dir, folder)); got != want {
			t.Errorf("serve in %s: stderr = %q, want a note: %v", folder, p.stderr, want)
		}
	}
}

// TestMissingOrganization runs commands without --org. The error names the only organization, or says how to make one.
func TestMissingOrganization(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	try := func(code int, stdin, want string, args ...string) {
		t.Helper()
		a := run(t, stdin, append(args, "--data", dir)...)
		if err := contains(a.stderr, want); err != nil || a.code != code {
			t.Errorf("%q: exit %d, want %d: %v", args, a.code, code, err)
		}
	}
	try(0, "", "", "org", "create", "--slug", "acme", "--name", "Acme")
	try(2, "", "name the organization: --org acme", "user", "list")
	try(2, strings.Repeat("x", 9<<10), "standard input holds more than a password", "user", "create", "--org", "acme", "--email", "a@example.com", "--name", "A", "--password-stdin")
	empty := write(t, filepath.Join(t.TempDir(), "key"), "\n")
	try(1, "", "is not a transfer key", "import", "--org", "acme", "--secrets", empty, empty)
	try(0, "", "", "org", "delete", "acme", "--yes", "--now")
	try(2, "", "tenantry org create creates one", "user", "list")
}

func TestUsage(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	for _, c := range []struct {
		args   string
		code   int
		stderr string
	}{
		{"", 2, "name a command"},
		{"nonsense", 2, `unknown command "nonsense"`},
		{"org create acme --name Acme", 2, `unexpected argument "acme"; this command takes flags only`},
		{"servee", 2, "did you mean serve?"},
		{"org", 2, "name a command"},
		{"org lisst", 2, "did you mean list?"},
		{"org list extra", 2, "extra"},
		{"org list --nonsense", 2, "--nonsense"},
		{"org list --output xml", 2, "json or table"},
		{"org create --slug x", 2, `"name"`},
		{"org create --slug x --name X --limit many", 2, "NAME=NUMBER"},
		{"org create --from - --slug x", 2, "--slug does not go with --from"},
		{"org restore acme --from /b --as then --dry-run", 2, "--dry-run does not go with --as"},
		{"org create --from - --feature teams", 2, "--feature does not go with --from"},
		{"org create --slug x --name X --dry-run", 2, "--dry-run is for --from alone"},
		{"org create --slug x --name X --setting a=maybe", 2, "NAME=true"},
		{"org show", 2, "slug"},
		{"org show a b", 2, "expected one argument (the organization's slug), got 2"},
		{"key create --org x --name y", 2, `"kind"`},
		{"key create --org x --name y --kind server_full --expires soon", 2, `--expires must be a duration such as 30s or 720h, not "soon"`},
		{"user list --org x --limit many", 2, `--limit must be a whole number, not "many"`},
		{"org restore acme --from /b --access both", 2, `--access "both": must be now or then`},
		{"org restore acme --from /b --at noon", 2, "write the second like"},
		{"org restore acme --from ~/b", 2, "--from ~/b begins with ~"},
		{"org restore acme --from b://b", 2, "name a folder by its path"},
		{"restore --from /b --at noon", 2, "write the second like"},
		{"restore --from b://b", 2, "name a folder by its path"},
		{"restore --from /b --identity ~/key", 2, "--identity ~/key begins with ~"},
		{"restore --from /b --data=~/b", 2, "--data ~/b begins with ~"},
		{"backup --to ~/b", 2, "--to ~/b begins with ~"},
		{"backup --to /b --keep -1", 2, "--keep -1: must be at least 0"},
		{"backup list --from ~/b", 2, "--from ~/b begins with ~"},
		{"doctor --quick=perhaps", 2, `--quick must be true or false, not "perhaps"`},
		{"serve --lisen 127.0.0.1:0", 2, "unknown flag: --lisen; did you mean --listen?"},
		{"org list --dta x", 2, "did you mean --data?"},
		{"import --org x", 2, "the file"},
		{"import --org x --map a=b f.csv", 2, "--map, --key, --format, --encoding and --delimiter are for rows"},
		{"import --org x --key email f.ndjson", 2, "--map, --key, --format, --encoding and --delimiter are for rows"},
		{"import --org x --format csv f.ndjson", 2, "--map, --key, --format, --encoding and --delimiter are for rows"},
		{"import --org x --as contacts --secrets k f.csv", 2, "--secrets is for bundles"},
		{"import --org x --as people f.csv", 2, "--as people"},
		{"import --org x --as records: f.csv", 2, "--as records:"},
		{"import --org x f.csv", 2, "f.csv holds rows; say what a row is"},
		{"import --org x --as contacts f.txt", 2, "--format"},
		{"import --org x --as contacts --map a f.csv", 2, "COLUMN=FIELD"},
		{"demo --data x", 2, "data folder"},
		{"demo --config x", 2, "data folder"},
		{"key rotate 665f1c2ab4d3e2f1a0b9c8d7 --org x --overlap -1h", 2, "must not be negative"},
		{"keyring retire 0", 2, `"0" is not a version`},
		{"org list", 1, "there is no installation in"},
		{"key list --org x", 1, "there is no installation in"},
		{"user list", 2, "--org SLUG"},
		{"help", 0, ""},
		{"key create --help", 0, ""},
		{"completion bash", 0, ""},
	} {
		args := strings.Fields(c.args)
		if c.code == 1 || c.args == "user list" {
			args = append(args, "--data", dir)
		}
		a := run(t, "", args...)
		if a.code != c.code {
			t.Errorf("%q: exit %d, want %d\n%s", c.args, a.code, c.code, a.stderr)
		}
		if err := contains(a.stderr, c.stderr); err != nil {
			t.Errorf("%q: %v", c.args, err)
		}
		if (a.stdout == "") == (c.code == 0) {
			t.Errorf("%q: standard output holds %q", c.args, a.stdout)
		}
	}
}
