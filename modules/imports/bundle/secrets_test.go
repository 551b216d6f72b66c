package bundle

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenantry/crypto/sealing"
)

// M: with a key, encrypted values import anywhere, and only where they belong.
func TestSecrets_TravelSealedToAKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	w.mustLoad(acme, complete)
	drift(t, w, acme.Workspace()) // some stand under fields that are not encrypted any more
	key, err := sealing.NewPrivateKey()
	check(t, err)
	stranger, err := sealing.NewPrivateKey()
	check(t, err)
	var out bytes.Buffer
	r, err := w.service.Export(t.Context(), acme, &out, ExportOptions{SealTo: key.Public()})
	check(t, err)
	bundle := out.String()
	if strings.Contains(bundle, "123-45-6789") || strings.Contains(bundle, `"enc":`) || strings.Count(bundle, `{"sealed":`) != 3 {
		t.Fatalf(`got %v, want nothing containing "123-45-6789" and nothing containing "\"enc\":"`, bundle)
	}
	if strings.Contains(strings.Join(r.LeftOut, " "), "Encrypted") {
		t.Errorf("left out: %q", r.LeftOut)
	}
	if r.Lines != strings.Count(bundle, "\n") || r.Kinds[kindContact] != 1 || r.AsIs != 5 || len(r.Problems) > 0 {
		t.Errorf("got %+v, want r.Lines = %v and r.Kinds[kindContact] = 1 and r.AsIs = 5 and len(r.Problems) <= 0",
			r, strings.Count(bundle, "\n"))
	}

	apart := newWorld(t)
	elsewhere := apart.org("other")
	for name, c := range map[string]struct {
		bundle string
		key    *sealing.PrivateKey
		says   string
	}{
		"no key":         {bundle, nil, "with --secrets"},
		"another key":    {bundle, stranger, "not sealed for this field of this record"},
		"another record": {strings.ReplaceAll(bundle, "0000000000000000000000b1", "0000000000000000000000b7"), key, "not sealed for this field of this record"},
		"another field":  {strings.ReplaceAll(bundle, `"ssn":{"sealed"`, `"age":{"sealed"`), key, "not sealed for this field of this record"},
	} {
		r, err := apart.load(elsewhere, c.bundle, ImportOptions{OpenWith: c.key})
		var refused *RefusedError
		if !errors.As(err, &refused) || !strings.Contains(r.Problems[0].String(), c.says) {
			t.Errorf("%s: got %v %v, want an error of the type of refused and containing %q", name, err, r.Problems, c.says)
		}
	}
	_, err = apart.load(elsewhere, bundle, ImportOptions{OpenWith: key})
	check(t, err)
	if diff := cmp.Diff(w.dump(acme, true), apart.dump(elsewhere, true)); diff != "" {
		t.Fatalf("difference:\n%s", diff)
	}
	again, err := apart.load(elsewhere, bundle, ImportOptions{OpenWith: key})
	check(t, err)
	if again.Unchanged != again.Lines {
		t.Errorf("importing again: %+v", again.Counts)
	}
}

// M: what an organization is set to travels, and so do its service accounts.
func TestExport_SettingsAndServiceAccounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	w.mustLoad(acme, `{"kind":"organization","request_limits":{"organization":{"rate":"100/s","quota":"off"},"key":{"rate":"5/m"}},"providers":["cache","live"],"limits":{"folder_children":7}}
{"kind":"team","id":"0000000000000000000000a1","name":"North"}
{"kind":"service_account","id":"0000000000000000000000a5","name":"crm","permissions":["contacts"],"teams":["0000000000000000000000a1"]}
{"kind":"service_account","name":"old","active":false}`)
	out := w.dump(acme, false)
	for _, part := range []string{
		`"request_limits":{"organization":{"rate":"100/s","quota":"off"},"key":{"rate":"5/m"}},"providers":["cache","live"]`,
		`"kind":"service_account","id":"0000000000000000000000a5","name":"crm","permissions":["contacts"],"teams":["0000000000000000000000a1"],"active":true`,
		`"name":"old","permissions":null,"teams":null,"active":false`,
	} {
		if !strings.Contains(out, part) {
			t.Errorf("missing %s in\n%s", part, out)
		}
	}
	apart := newWorld(t)
	elsewhere := apart.org("other")
	apart.mustLoad(elsewhere, out)
	if diff := cmp.Diff(out, apart.dump(elsewhere, false)); diff != "" {
		t.Fatalf("difference:\n%s", diff)
	}
	for _, line := range []string{
		`{"kind":"organization","request_limits":{"rate":"1/s"}}`, `{"kind":"organization","request_limits":{"key":{"rate":"fast"}}}`,
		`{"kind":"organization","providers":["a b"]}`, `{"kind":"service_account","name":"x","permissions":["everything"]}`,
		`{"kind":"service_account","name":"x","teams":["0000000000000000000000a9"]}`,
	} {
		if r, err := w.load(acme, line, ImportOptions{}); err == nil {
			t.Errorf("taken: %s %+v", line, r)
		}
	}
	rev := func() int64 {
		fresh, err := w.deps.Directory.BySlug(t.Context(), "acme")
		check(t, err)
		return fresh.Org.AccessRev
	}
	before := rev()
	w.mustLoad(acme, `{"kind":"service_account","name":"crm","permissions":[]}`)
	if rev() == before {
		t.Error("identities that are cached were not made void")
	}
	if !strings.Contains(w.dump(acme, false), `"name":"crm","permissions":null,"teams"`) {
		t.Error("the permission was not taken away")
	}
}
