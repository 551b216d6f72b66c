package operations

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/modules/imports/bundle"
	"tenantry/tenants"
)

// told returns the problems of a report, one text each.
func told(r *bundle.Report) (out []string) {
	for _, p := range r.Problems {
		for _, f := range p.Errors {
			out = append(out, fmt.Sprintf("%d %s %s", p.Line, f.Field, f.Code))
		}
	}
	return out
}

// TestCreateOrganizationsFromAFile checks that each line is checked like the command for one organization, and that a
// bad line is reported by number and does not affect the others.
func TestCreateOrganizationsFromAFile(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	g.Org(t, "there")
	lines := []struct{ text, want string }{
		{`{"slug":"one","name":"One","features":{"teams":true},"limits":{"folder_children":20},"settings":{"require_public_encryption_key":true},"providers":["maps"]}`, ""},
		{``, ""}, {"  \r", ""},
		{`{"slug":"two","name":"Two"}` + "\r", ""},
		{`nonsense`, "line format"},
		{`{"slug":"there","name":"Again"}`, "slug duplicate"},
		{`{"slug":"one","name":"Again"}`, "slug duplicate"},
		{`["slug"]`, "line format"}, {`null`, "line format"}, {`{"slug":"x","name":"X"} {}`, "line format"},
		{`{"slug":"x","slug":"y","name":"X"}`, "line format"},
		{"{\"slug\":\"x\",\"name\":\"\xff\"}", "line format"},
		{"\xef\xbb\xbf" + `{"slug":"x","name":"X"}`, "line format"},
		{`{"slug":"x","name":"` + strings.Repeat("x", 64<<10) + `"}`, "line length"},
		{`{"slug":"x","name":"X","Slug":"y"}`, "Slug unknown"},
		{`{"slug":"x","name":"X","state":"removed"}`, "state unknown"},
		{`{"slug":"x","name":"X","org_id":1}`, "org_id unknown"},
		{`{"slug":7,"name":"X"}`, "slug type"},
		{`{"slug":null,"name":"X"}`, "slug type"},
		{`{"slug":"x","name":"X","limits":{"folder_children":1e9}}`, "limits.folder_children type"},
		{`{"slug":"x","name":"X","limits":{"folder_children":0}}`, "limits.folder_children range"},
		{`{"slug":"x","name":"X","features":{"nothing":true}}`, "features.nothing unknown"},
		{`{"slug":"x","name":"X","backend":"nowhere"}`, "backend unknown"},
		{`{"slug":"admin","name":"X"}`, "slug forbidden"}, {`{"slug":"-x","name":"X"}`, "slug format"},
		{`{"name":"X"}`, "slug required"}, {`{"slug":"x"}`, "name required"},
		{`{"slug":"three","name":"Three"}`, ""}, // the last line has no end
	}
	var texts, want []string
	count := bundle.Counts{}
	for i, l := range lines {
		texts = append(texts, l.text)
		if strings.TrimSpace(l.text) == "" {
			continue
		}
		if count.Lines++; l.want == "" {
			count.Created++
		} else {
			count.Failed++
			want = append(want, fmt.Sprint(i+1, " ", l.want))
		}
	}
	file := strings.Join(texts, "\n")
	for _, dry := range []bool{true, false} {
		r, err := fixture.CreateOrganizations(t.Context(), t, g, strings.NewReader(file), dry, nil)
		if r == nil || err == nil || r.Counts != count || r.DryRun != dry || r.Kinds["organization"] != count {
			t.Fatalf("dry %t: %+v, %v, want %+v", dry, r, err, count)
		}
		if got := strings.Join(told(r), "\n"); got != strings.Join(want, "\n") {
			t.Errorf("dry %t: the lines are told as\n%s\nwant\n%s", dry, got, strings.Join(want, "\n"))
		}
		if there := len(organizations(t, g)); there != map[bool]int{true: 1, false: 4}[dry] {
			t.Errorf("dry %t: got %d organizations, want 1 if dry, else 4", dry, there)
		}
	}
	one, err := control.Call[control.Organization](t.Context(), g.Commands, "org.show", control.Slug{Slug: "one"})
	if err != nil || one.Name != "One" || !one.Features["teams"] || one.Limits["folder_children"] != 20 || !one.Settings["require_public_encryption_key"] || fmt.Sprint(one.Providers) != "[maps]" {
		t.Errorf(`got %+v, %v, want no error and one.Name = "One" and one.Limits["folder_children"] = 20 and fmt.Sprint(one.Providers) = "[maps]"`,
			one, err)
	}
	var alone string
	for _, slug := range []string{"there", "one", "two", "three"} {
		o := &gatewaytest.Org{Gateway: g, Slug: slug, Host: slug + ".localhost"}
		records, err := control.Call[[]control.AuditRecord](t.Context(), g.Commands, "audit", control.Page{Org: slug})
		if err != nil || len(records) != 1 {
			t.Fatalf("%s has the audit records %+v, %v, want no error and 1 record", slug, records, err)
		}
		said := fmt.Sprint(records[0].Operation, records[0].Subject, records[0].Outcome, records[0].Facts)
		if alone == "" {
			alone = said
		}
		if n := countOf(t, o, o.Key(t, tenants.Contacts)); n != "0" || said != alone {
			t.Errorf("%s counts %s, and its audit log is %s, want 0 and %s", slug, n, said, alone)
		}
	}
	r, err := fixture.CreateOrganizations(t.Context(), t, g, strings.NewReader(file+"\n"+`{"slug":"four","name":"Four"}`), false, nil)
	if err == nil || r.Created != 1 || r.Failed != count.Lines || !strings.Contains(strings.Join(told(r), "\n"), "4 slug duplicate") {
		t.Errorf("again, with another one: got %+v, %v, want 1 created, the others refused and an error", r, err)
	}
	if found := strayWorkspaces(t, g); len(found) > 0 {
		t.Errorf("left behind: got %q, want none", found)
	}
}

func organizations(t *testing.T, g *gatewaytest.Gateway) []control.Organization {
	t.Helper()
	found, err := control.Call[[]control.Organization](t.Context(), g.Commands, "org.list", control.OrganizationPage{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// strayWorkspaces returns doctor's findings about workspaces without an organization, on any engine.
func strayWorkspaces(t *testing.T, g *gatewaytest.Gateway) (found []string) {
	t.Helper()
	for _, f := range fixture.Findings(t, g, control.Examination{Quick: true}) {
		if strings.HasSuffix(f.What, " strays") {
			found = append(found, f.Says)
		}
	}
	return found
}

// repeated reads a text that many times.
type repeated struct {
	text  string
	times int
	rest  string
}

func (r *repeated) Read(p []byte) (int, error) {
	if r.rest == "" {
		if r.times--; r.times < 0 {
			return 0, io.EOF
		}
		r.rest = r.text
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// TestCreateOrganizationsFromAFile_Bounds checks that a file that is too large is refused before anything is created,
// and that the report of many bad lines is bounded.
func TestCreateOrganizationsFromAFile_Bounds(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	line := `{"slug":"one","name":"One"}` + "\n"
	for name, c := range map[string]struct {
		file io.Reader
		want string
	}{
		"nothing":        {nil, "no file"},
		"empty":          {strings.NewReader(""), "no line"},
		"blank":          {strings.NewReader("\n \r\n\n"), "no line"},
		"too many lines": {&repeated{text: line, times: 100_001}, "100000 lines"},
		"too long":       {io.MultiReader(strings.NewReader(line), &repeated{text: strings.Repeat(" ", 1<<20), times: 257}), "256 MiB"},
	} {
		if r, err := fixture.CreateOrganizations(t.Context(), t, g, c.file, false, nil); r != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %+v, %v, want r = nil and an error and containing %q", name, r, err, c.want)
		}
	}
	if there := organizations(t, g); len(there) > 0 {
		t.Errorf("made: got %+v, want none", there)
	}
	r, err := fixture.CreateOrganizations(t.Context(), t, g, &repeated{text: line, times: 3000}, false, nil)
	if err == nil || r.Created != 1 || r.Failed != 2999 || len(r.Problems) != 1000 || r.More != 1999 {
		t.Errorf("one slug 3,000 times: %d made, %d refused, %d told and %d more: got %v, want an error, Created 1, Failed 2999, 1000 Problems and More 1999",
			r.Created, r.Failed, len(r.Problems), r.More, err)
	}
	if _, err := g.Commands.Do(t.Context(), "import", control.ImportRequest{Org: "one"}, control.Streams{}); err == nil || !strings.Contains(err.Error(), "there is nothing to read") {
		t.Errorf("an import of nothing: got %v, want an error with %q", err, "there is nothing to read")
	}
}

// TestCreateOrganizationsFromAFile_Interrupted checks that an interrupted command leaves only whole organizations, and
// that the same file creates the rest.
func TestCreateOrganizationsFromAFile_Interrupted(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	var file strings.Builder
	const n = 110
	for i := range n {
		fmt.Fprintf(&file, `{"slug":"o%d","name":"O"}`+"\n", i)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := fixture.CreateOrganizations(ctx, t, g, strings.NewReader(file.String()), false, func(p control.Progress) {
		if p.Step == "creating" {
			cancel()
		}
	})
	if cut := new(control.InterruptedError); !errors.As(err, &cut) {
		t.Fatalf("the command that was given up: got %v, want a *control.InterruptedError", err)
	}
	r, err := fixture.CreateOrganizations(t.Context(), t, g, strings.NewReader(file.String()), false, nil)
	if r == nil || r.Failed < 100 || r.Created+r.Failed != n || err == nil {
		t.Errorf("again: got %+v, %v, want the missing ones created, the others refused and an error", r, err)
	}
	there := organizations(t, g)
	for _, o := range there {
		records, err := control.Call[[]control.AuditRecord](t.Context(), g.Commands, "audit", control.Page{Org: o.Slug})
		if err != nil || len(records) != 1 {
			t.Errorf("%s has the audit records %+v, %v, want no error and 1 record", o.Slug, records, err)
		}
	}
	if found := strayWorkspaces(t, g); len(found) > 0 || len(there) != n {
		t.Errorf("%d organizations, and left behind: got %q, want no found and %v there", len(there), found, n)
	}
}
