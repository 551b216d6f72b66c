package contract

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/modules/audit"
	"tenantry/tenants"
)

// read decodes the data of an answer.
func read[T any](t *testing.T, a *gatewaytest.Answer) (out T) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.DataJSON()), &out); a.Code != http.StatusOK || err != nil {
		t.Fatalf("got %d %s, %v", a.Code, a.Text(), err)
	}
	return out
}

// treeOf returns the tree of a head that a key verifies, by the text alone.
func treeOf(t *testing.T, head, key string) (tree tlog.Tree) {
	t.Helper()
	verifier, err := note.NewVerifier(key)
	if err != nil {
		t.Fatal(err)
	}
	opened, err := note.Open([]byte(head), note.VerifierList(verifier))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(opened.Text, "\n")
	if err := json.Unmarshal([]byte(lines[1]), &tree.N); err != nil {
		t.Fatal(err)
	}
	if tree.Hash, err = tlog.ParseHash(lines[2]); err != nil || lines[0] != verifier.Name() {
		t.Fatalf("got %q, %v", lines, err)
	}
	return tree
}

// parsed returns the hashes of a proof.
func parsed(t *testing.T, all []string) (hashes []tlog.Hash) {
	t.Helper()
	for _, text := range all {
		hash, err := tlog.ParseHash(text)
		if err != nil {
			t.Fatal(err)
		}
		hashes = append(hashes, hash)
	}
	return hashes
}

// TestHeadsOverHTTP checks that a head covers the records of the last half minute, that a record is proven by the line of
// an export and by public means alone, and that an earlier head is continued until records are gone.
func TestHeadsOverHTTP(t *testing.T) {
	t.Parallel()
	clock := &fixture.Clock{}
	g := gatewaytest.Start(t, clock.Option)
	acme := g.Org(t, "acme", tenants.FeatureTeams)
	key := acme.Key(t, tenants.ViewAudit)
	reader := fixture.As(acme, gatewaytest.WithKey(key))
	writer := fixture.As(acme, gatewaytest.WithKey(acme.Key(t, tenants.ManageCampaigns)))
	if none := read[audit.Head](t, acme.Get(t, key, "/api/audit/head")); none.Head != nil || none.Size != 0 || len(none.Keys) != 1 {
		t.Errorf("got %+v, want no head yet", none)
	}
	made := writer.Create(t, "/api/campaigns", `{"name":"Spring <&> é"}`)
	id := acme.Get(t, key, "/api/audit?filters[records]="+made).Field("results").([]any)[0].(map[string]any)["id"].(string)
	reader.Want(t, http.MethodGet, "/api/audit/"+id+"/proof", "", 409, "The record is not in the tree yet; records enter it within a minute")
	g.App.SignHeads(t.Context()) // the record is too new, and is not forgotten
	clock.Advance(audit.HeadGrace + time.Second)
	g.App.SignHeads(t.Context())

	first := read[audit.Head](t, acme.Get(t, key, "/api/audit/head"))
	tree := treeOf(t, *first.Head, first.Keys[0])
	if tree.N != first.Size || tree.Hash.String() != *first.Root || first.Size < 1 {
		t.Errorf("got %+v, which says %+v", first, tree)
	}
	answer := acme.Get(t, key, "/api/audit/"+id+"/proof")
	proof := read[audit.Proof](t, answer)
	line := bytes.TrimSuffix(acme.Get(t, key, "/api/audit/export?filters[id]="+id).Body, []byte("\n"))
	leaf := sha256.Sum256(append([]byte{0}, line...))
	if base64.StdEncoding.EncodeToString(leaf[:]) != proof.Leaf || proof.Head != *first.Head || len(answer.Body) > 2048 {
		t.Errorf("got %s, which is not the hash of %s", answer.Text(), line)
	}
	if err := tlog.CheckRecord(parsed(t, proof.Hashes), tree.N, tree.Hash, proof.Index, leaf); err != nil {
		t.Error(err)
	}

	writer.Want(t, http.MethodPut, "/api/campaigns/"+made, `{"name":"Summer"}`, 200, "")
	clock.Advance(time.Hour)
	g.App.SignHeads(t.Context())
	extension := func() audit.Extension {
		t.Helper()
		return read[audit.Extension](t, acme.Get(t, key, "/api/audit/extension?head="+url.QueryEscape(*first.Head)))
	}
	one := extension()
	now := treeOf(t, *one.Head, first.Keys[0])
	if !one.Extends || one.Earlier != tree.N || now.N <= tree.N ||
		tlog.CheckTree(parsed(t, one.Hashes), now.N, now.Hash, tree.N, tree.Hash) != nil {
		t.Errorf("got %+v, want an extension", one)
	}

	compare := func(in control.HeadToCompare) error {
		_, err := control.Call[audit.Comparison](t.Context(), g.Commands, "audit.compare", in)
		return err
	}
	log := control.Log{Org: "acme"}
	for _, against := range []string{"", *first.Head, answerWith(t, *first.Head), `{"head":` + quoted(t, *first.Head) + `}`} {
		if err := compare(control.HeadToCompare{Log: log, Against: against}); err != nil {
			t.Errorf("against %q: %v", against, err)
		}
	}
	for against, want := range map[string]string{
		"x": "not a head", "{}": "the file has no head", strings.Replace(*first.Head, "\n", "\n1", 1): "not a head",
	} {
		if err := compare(control.HeadToCompare{Log: log, Against: against}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("against %q: got %v, want an error with %q", against, err, want)
		}
	}
	for query, want := range map[string]string{
		"": "Validation failed: head is required", "?head=x": "Validation failed: head must be a head that this installation signed for this log",
	} {
		reader.Want(t, http.MethodGet, "/api/audit/extension"+query, "", 422, want)
	}
	for _, path := range []string{"/api/audit/head", "/api/audit/" + id + "/proof", "/api/audit/extension?head=x"} {
		writer.Want(t, http.MethodGet, path, "", 403, "Lacking necessary permission view_audit")
	}
	reader.Want(t, http.MethodGet, "/api/audit/665f1c2ab4d3e2f1a0b9c8e1/proof", "", 404, "Audit Record not found")
}

func quoted(t *testing.T, text string) string {
	t.Helper()
	raw, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// answerWith returns the answer of the API that has a head.
func answerWith(t *testing.T, head string) string {
	t.Helper()
	return `{"status":"ok","message":"Audit Head found","data":{"head":` + quoted(t, head) + `}}`
}

// TestHeadsOfTheInstallation checks that the log of the installation has heads too, made by the hourly round and by the
// command, and that keys can be rotated.
func TestHeadsOfTheInstallation(t *testing.T) {
	t.Parallel()
	clock := &fixture.Clock{}
	g := gatewaytest.Start(t, clock.Option)
	g.Org(t, "acme")
	call := func(name string, in any) audit.Head {
		t.Helper()
		head, err := control.Call[audit.Head](t.Context(), g.Commands, name, in)
		if err != nil {
			t.Fatal(err)
		}
		return head
	}
	clock.Advance(2 * time.Hour)
	fixture.EmptyTrash(t, g.App)
	head := call("audit.head", control.Log{})
	if head.Size != 1 || !strings.Contains(*head.Head, "/installation\n") {
		t.Errorf("got %+v, want a head of one record", head)
	}
	if keys := call("audit.rotate", struct{}{}).Keys; len(keys) != 2 || keys[1] != head.Keys[0] {
		t.Errorf("got %v, want another key before %v", keys, head.Keys)
	}
	clock.Advance(time.Minute)
	if rotated := call("audit.head", control.Log{}); rotated.Size != 2 || strings.Count(*rotated.Head, "— ") != 2 {
		t.Errorf("got %+v, want a head of two records with two signatures", rotated)
	}
	_, err := control.Call[audit.Comparison](t.Context(), g.Commands, "audit.compare", control.HeadToCompare{Against: *head.Head})
	if err != nil {
		t.Error(err)
	}
}
