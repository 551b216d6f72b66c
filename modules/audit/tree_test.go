package audit

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"

	"tenantry/backends/enginetest"
	"tenantry/backends/store"
	"tenantry/tenants/tenantstest"
)

// naive returns the Merkle tree hash of RFC 6962 of leaf hashes, as section 2.1 defines it.
func naive(leaves []tlog.Hash) tlog.Hash {
	if len(leaves) == 1 {
		return leaves[0]
	}
	k := 1
	for k*2 < len(leaves) {
		k *= 2
	}
	left, right := naive(leaves[:k]), naive(leaves[k:])
	return sha256.Sum256(append(append([]byte{1}, left[:]...), right[:]...))
}

// documented follows the steps of docs/api/audit.md and returns the hash to which they lead.
func documented(leaf tlog.Hash, index, size int64, hashes []tlog.Hash) tlog.Hash {
	node := func(left, right tlog.Hash) tlog.Hash {
		return sha256.Sum256(append(append([]byte{1}, left[:]...), right[:]...))
	}
	fn, sn, hash := index, size-1, leaf
	for _, other := range hashes {
		if fn%2 == 1 || fn == sn {
			hash = node(other, hash)
			for fn%2 == 0 && fn != 0 {
				fn, sn = fn/2, sn/2
			}
		} else {
			hash = node(hash, other)
		}
		fn, sn = fn/2, sn/2
	}
	return hash
}

// grown adds records to a tree in memory, and returns their hashes.
func grown(t *rapid.T, g *growth, n int) (all []tlog.Hash) {
	for range n {
		rec := &Record{Operation: "contacts.update", Subject: strconv.FormatInt(g.size, 10)}
		hash, err := rec.leafHash()
		if err == nil {
			err = g.add(rec)
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, hash)
	}
	return all
}

// TestTree_AgreesWithTheDefinition: the root, the proof of a record and the proof of an extension are those of RFC 6962,
// however the tree grew.
func TestTree_AgreesWithTheDefinition(t *testing.T) {
	t.Parallel()
	kinds := newTreeKinds()
	empty := store.New(store.Options{
		Engine: enginetest.OpenSQLite(t, t.TempDir()), Control: []*store.Spec{kinds.leaves.Spec(), kinds.tiles.Spec()},
	})
	ws, err := empty.Control(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		g := &growth{tiles: kinds.open(ws)}
		var leaves []tlog.Hash
		var sum frontier
		var before tlog.Tree
		for range rapid.IntRange(1, 4).Draw(rt, "steps") {
			added := grown(rt, g, rapid.IntRange(1, 700).Draw(rt, "records"))
			leaves = append(leaves, added...)
			for _, hash := range added {
				sum.add(hash)
			}
			if err := g.derive(t.Context(), before.N); err != nil {
				rt.Fatal(err)
			}
			now, proof, err := g.extends(t.Context(), g.size, before)
			if err != nil {
				rt.Fatal(err)
			}
			if want := naive(leaves); now.Hash != want || sum.root() != want || now.N != int64(len(leaves)) {
				rt.Fatalf("%d leaves have the root %s, and %s by the frontier, want %s", now.N, now.Hash, sum.root(), want)
			}
			if before.N > 0 && tlog.CheckTree(proof, now.N, now.Hash, before.N, before.Hash) != nil {
				rt.Fatalf("from %d to %d: the proof is wrong", before.N, now.N)
			}
			at := rapid.Int64Range(0, now.N-1).Draw(rt, "leaf")
			of, err := tlog.ProveRecord(now.N, at, g.reader(t.Context()))
			if err != nil || tlog.CheckRecord(of, now.N, naive(leaves), at, leaves[at]) != nil {
				rt.Fatalf("the proof of leaf %d of %d is wrong: %v", at, now.N, err)
			}
			if got := documented(leaves[at], at, now.N, of); got != now.Hash {
				rt.Fatalf("the documented steps lead from leaf %d of %d to %s, want %s", at, now.N, got, now.Hash)
			}
			before = now
		}
	})
}

// TestLateReadingStaysBehind: the second reading of a log leaves records to the first that this has not seen, or they
// would have two leaves.
func TestLateReadingStaysBehind(t *testing.T) {
	t.Parallel()
	log := New()
	w := tenantstest.New(t, tenantstest.Options{Control: log.Specs()})
	h, ws := NewHeads(log, w.Directory, w.Clock.Now), w.Directory.Own().Workspace()
	var all []*Record
	for i := range int64(3) {
		all = append(all, &Record{Meta: store.Meta{CreatedAt: 1000 + i}, Operation: "contacts.update", Outcome: OK})
	}
	if err := log.kind.In(ws).Insert(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
	g, err := log.tree.grow(t.Context(), ws)
	if err == nil {
		err = g.add(all[1])
	}
	if err != nil {
		t.Fatal(err)
	}
	g.last.Until, g.last.UntilID = all[1].CreatedAt, all[1].ID
	if _, err := h.readLate(t.Context(), ws, g, stepRecords); err != nil {
		t.Fatal(err)
	}
	if want := []string{all[1].ID, all[0].ID}; !slices.Equal(g.last.Records, want) || g.last.Late != all[1].CreatedAt {
		t.Errorf("the tree has %v up to %d, want %v up to %d", g.last.Records, g.last.Late, want, all[1].CreatedAt)
	}
}

// TestProofIsSmall: the proof of any record is under 2 KB, as it is answered, with the signatures of two keys and up to
// a billion records.
func TestProofIsSmall(t *testing.T) {
	t.Parallel()
	read := tlog.HashReaderFunc(func(at []int64) ([]tlog.Hash, error) { return make([]tlog.Hash, len(at)), nil })
	origin := "tenantry/" + strings.Repeat("f", 32) + "/123456"
	var keys []*headKey
	for _, material := range []string{"one", "two", "three"} {
		key, err := newHeadKey(origin, []byte(material))
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	for _, size := range []int64{1, 1000, 1_000_000, 1 << 20, 1_048_577, 1 << 30} {
		head, err := signHead(origin, tlog.Tree{N: size}, keys)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int64{0, size / 2, size - 1} {
			hashes, err := tlog.ProveRecord(size, at, read)
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(Proof{
				Record: strings.Repeat("a", 24), Index: at, Size: size, Leaf: tlog.Hash{}.String(), Hashes: base64s(hashes), Head: head,
			})
			if err != nil || len(text) > 2000 {
				t.Errorf("the proof of record %d of %d has %d bytes (%v), want at most 2000", at, size, len(text), err)
			}
		}
	}
}

// signedText returns a text with the signature of a key.
func signedText(t *testing.T, text string, key *headKey) string {
	t.Helper()
	signed, err := note.Sign(&note.Note{Text: text}, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(signed)
}

// TestOpenHead: only a head that a key of the log has signed is one, and it says what was signed.
func TestOpenHead(t *testing.T) {
	t.Parallel()
	const origin = "tenantry/a/7"
	key := func(origin, material string) *headKey {
		k, err := newHeadKey(origin, []byte(material))
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	tree := tlog.Tree{N: 12, Hash: tlog.RecordHash([]byte("x"))}
	former, newest := key(origin, "former"), key(origin, "newest")
	signed := func(as string, by ...*headKey) string {
		text, err := signHead(as, tree, by)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	good := signed(origin, newest, former)
	for name, tt := range map[string]struct {
		text       string
		ok, newest bool
	}{
		"signed by both":          {good, true, true},
		"by the former key":       {signed(origin, former), true, false},
		"by another key":          {signed(origin, key(origin, "other")), false, false},
		"of another log":          {signed("tenantry/a/8", key("tenantry/a/8", "newest")), false, false},
		"that names another log":  {signed("tenantry/a/8", newest), false, false},
		"with another size":       {strings.Replace(good, "\n12\n", "\n13\n", 1), false, false},
		"with a size of zeros":    {signedText(t, origin+"\n012\n"+tree.Hash.String()+"\n", newest), false, false},
		"of nothing":              {signedText(t, origin+"\n0\n"+tree.Hash.String()+"\n", newest), false, false},
		"with a short hash":       {signedText(t, origin+"\n12\nAAAA\n", newest), false, false},
		"with a further line":     {signedText(t, origin+"\n12\n"+tree.Hash.String()+"\nmore\n", newest), false, false},
		"without its signature":   {origin + "\n12\n" + tree.Hash.String() + "\n\n", false, false},
		"empty":                   {"", false, false},
		"with Windows line ends":  {strings.ReplaceAll(good, "\n", "\r\n"), false, false},
		"cut within the text":     {good[:20], false, false},
		"with text before origin": {"x" + good, false, false},
	} {
		got, isNewest, err := openHead(tt.text, origin, []*headKey{newest, former})
		if (err == nil) != tt.ok || isNewest != tt.newest || tt.ok && got != tree {
			t.Errorf("a head %s: got %+v, %v, %v; want %v, %v", name, got, isNewest, err, tt.ok, tt.newest)
		}
	}
}

// FuzzOpenHead: no text makes openHead panic, and what it accepts is what was signed.
func FuzzOpenHead(f *testing.F) {
	const origin = "tenantry/a/7"
	key, err := newHeadKey(origin, []byte("key"))
	if err != nil {
		f.Fatal(err)
	}
	tree := tlog.Tree{N: 12, Hash: tlog.RecordHash([]byte("x"))}
	good, err := signHead(origin, tree, []*headKey{key})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(strings.TrimSuffix(good, "\n"))
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		if got, _, err := openHead(text, origin, []*headKey{key}); err == nil && got != tree {
			t.Errorf("%q opens as %+v", text, got)
		}
	})
}
