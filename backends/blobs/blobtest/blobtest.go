// Package blobtest is the conformance suite of buckets: it tests what blobs.Bucket guarantees.
package blobtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tenantry/backends/blobs"
)

// Fault is a known wrong answer of a server for tests. The cases that depend on that answer are skipped by name.
type Fault string

// LostDirectories: an object cannot be stored while the last other object with the same beginning is deleted, because
// the server removes their directory.
const LostDirectories Fault = "an object cannot be stored while the last other one of its directory is deleted"

// Run runs the suite. Every case calls open for a bucket without objects, which nothing else uses meanwhile. Known lists
// the faults of a server.
func Run(t *testing.T, open func(t *testing.T) blobs.Bucket, known ...Fault) {
	t.Helper()
	for name, run := range map[string]func(*testing.T, blobs.Bucket){
		"put and open": putAndOpen, "empty": empty, "large": large, "seek": seek, "absent": absent,
		"delete": remove, "list": list, "list ends early": listEndsEarly, "delete all": deleteAll,
		"concurrent": concurrent, "concurrent deletions": concurrentDeletions, "hostile names": hostileNames, "cancelled": cancelled, "same again": sameAgain,
		"position of the file": position, "long name": longName,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "concurrent deletions" && slices.Contains(known, LostDirectories) {
				t.Skipf("known fault of the server: %s", LostDirectories)
			}
			run(t, open(t))
		})
	}
}

// TempFile returns an open file with the content, which is closed at the end of the test.
func TempFile(t testing.TB, content []byte) *os.File {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(t.TempDir(), "upload"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	if _, err := file.Write(content); err != nil {
		t.Fatal(err)
	}
	return file
}

// Put stores an object.
func Put(t testing.TB, b blobs.Bucket, name string, content []byte) {
	t.Helper()
	if err := b.Put(t.Context(), name, TempFile(t, content)); err != nil {
		t.Fatalf("Put(%s): %v", name, err)
	}
}

// Read returns the content of an object.
func Read(t testing.TB, b blobs.Bucket, name string) []byte {
	t.Helper()
	o := openObject(t, b, name)
	content, err := io.ReadAll(o)
	if err != nil {
		t.Fatalf("read %s: %v", name, err)
	}
	if int64(len(content)) != o.Size() {
		t.Errorf("%s: read %d bytes, but Size() = %d", name, len(content), o.Size())
	}
	return content
}

// Names returns the names that List yields.
func Names(t testing.TB, b blobs.Bucket, prefix string) []string {
	t.Helper()
	names := []string{}
	for info, err := range b.List(t.Context(), prefix) {
		if err != nil {
			t.Fatalf("List(%q): %v", prefix, err)
		}
		names = append(names, info.Name)
	}
	return names
}

func openObject(t testing.TB, b blobs.Bucket, name string) blobs.Object {
	t.Helper()
	o, err := b.Open(t.Context(), name)
	if err != nil {
		t.Fatalf("Open(%s): %v", name, err)
	}
	t.Cleanup(func() { _ = o.Close() })
	return o
}

// noise returns bytes that are the same for each size.
func noise(size int) []byte {
	content := make([]byte, size)
	_, _ = rand.NewChaCha8(sha256.Sum256([]byte("blobtest"))).Read(content)
	return content
}

func putAndOpen(t *testing.T, b blobs.Bucket) {
	before := time.Now()
	Put(t, b, "org/a1/b2.txt", []byte("hello"))
	if got := Read(t, b, "org/a1/b2.txt"); string(got) != "hello" {
		t.Errorf("read %q, want hello", got)
	}
	for info, err := range b.List(t.Context(), "") {
		if err != nil || info.Name != "org/a1/b2.txt" || info.Size != 5 || info.Stored.Sub(before).Abs() > time.Hour {
			t.Errorf("listed %+v, %v, want the object of 5 bytes, stored now", info, err)
		}
	}
}

func empty(t *testing.T, b blobs.Bucket) {
	if names := Names(t, b, ""); len(names) != 0 {
		t.Errorf("listed %v in a new bucket, want nothing", names)
	}
	Put(t, b, "a/empty", nil)
	if got := Read(t, b, "a/empty"); len(got) != 0 {
		t.Errorf("read %d bytes, want none", len(got))
	}
	o := openObject(t, b, "a/empty")
	if n, err := o.Read(make([]byte, 8)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("Read = %d, %v, want 0, EOF", n, err)
	}
}

func large(t *testing.T, b blobs.Bucket) {
	content := noise(20<<20 + 17)
	Put(t, b, "a/large", content)
	if !bytes.Equal(Read(t, b, "a/large"), content) {
		t.Error("read other bytes than were stored")
	}
	o := openObject(t, b, "a/large")
	at := int64(17<<20 + 3)
	if _, err := o.Seek(at, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	part := make([]byte, 2<<20)
	if _, err := io.ReadFull(o, part); err != nil || !bytes.Equal(part, content[at:at+int64(len(part))]) {
		t.Errorf("read other bytes at %d than were stored (%v)", at, err)
	}
}

func seek(t *testing.T, b blobs.Bucket) {
	content := noise(100_000)
	Put(t, b, "a/b", content)
	o := openObject(t, b, "a/b")
	for i, step := range []struct {
		offset int64
		whence int
		want   int64 // -1: an error
		read   int
	}{
		{0, io.SeekEnd, 100_000, 0}, {0, io.SeekStart, 0, 10}, {0, io.SeekCurrent, 10, 5}, {-5, io.SeekEnd, 99_995, 5},
		{50_000, io.SeekStart, 50_000, 20_000}, {-20_000, io.SeekCurrent, 50_000, 1}, {-1, io.SeekStart, -1, 0},
		{0, io.SeekCurrent, 50_001, 1}, {200_000, io.SeekStart, 200_000, 0}, {-100_001, io.SeekEnd, -1, 0},
		{99_999, io.SeekStart, 99_999, 1}, {0, 7, -1, 0},
	} {
		at, err := o.Seek(step.offset, step.whence)
		if (err != nil) != (step.want < 0) || err == nil && at != step.want {
			t.Errorf("step %d: Seek(%d, %d) = %d, %v, want %d", i, step.offset, step.whence, at, err, step.want)
		}
		if step.read > 0 {
			got := make([]byte, step.read)
			if _, err := io.ReadFull(o, got); err != nil || !bytes.Equal(got, content[step.want:][:step.read]) {
				t.Errorf("step %d: read other bytes at %d than were stored (%v)", i, step.want, err)
			}
		}
	}
	for _, beyond := range []int64{100_000, 100_001, 1 << 40} {
		if _, err := o.Seek(beyond, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if n, err := o.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("Read at %d = %d, %v, want 0, EOF", beyond, n, err)
		}
	}
	if err := o.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
	if _, err := o.Seek(0, io.SeekStart); err == nil {
		if _, err := o.Read(make([]byte, 1)); err == nil {
			t.Error("Read after Close = no error, want one")
		}
	}
}

func absent(t *testing.T, b blobs.Bucket) {
	Put(t, b, "a/b/c", []byte("x"))
	for _, name := range []string{"a/b/d", "x", "a/b", "a", "a/b/c/d", "A/B/C2"} {
		if o, err := b.Open(t.Context(), name); !errors.Is(err, blobs.ErrNotFound) || o != nil {
			t.Errorf("Open(%s) = %v, %v, want ErrNotFound", name, o, err)
		}
		if err := b.Delete(t.Context(), name); err != nil {
			t.Errorf("Delete(%s) = %v, want no error", name, err)
		}
	}
	for _, prefix := range []string{"x/", "a/b/c/", "a/c/"} {
		if names := Names(t, b, prefix); len(names) != 0 {
			t.Errorf("List(%s) = %v, want nothing", prefix, names)
		}
		if err := b.DeleteAll(t.Context(), prefix); err != nil {
			t.Errorf("DeleteAll(%s) = %v, want no error", prefix, err)
		}
	}
	if got := Read(t, b, "a/b/c"); string(got) != "x" {
		t.Errorf("read %q, want the object unharmed", got)
	}
}

func remove(t *testing.T, b blobs.Bucket) {
	Put(t, b, "a/b/c", []byte("1"))
	Put(t, b, "a/b/d", []byte("2"))
	for range 2 {
		if err := b.Delete(t.Context(), "a/b/c"); err != nil {
			t.Fatal(err)
		}
	}
	if o, err := b.Open(t.Context(), "a/b/c"); !errors.Is(err, blobs.ErrNotFound) {
		t.Errorf("Open = %v, %v, want ErrNotFound", o, err)
	}
	if names := Names(t, b, ""); !slices.Equal(names, []string{"a/b/d"}) {
		t.Errorf("listed %v, want a/b/d", names)
	}
	if err := b.Delete(t.Context(), "a/b/d"); err != nil {
		t.Fatal(err)
	}
	Put(t, b, "a/b/e", []byte("3"))
	if got := Read(t, b, "a/b/e"); string(got) != "3" {
		t.Errorf("read %q, want 3", got)
	}
}

func list(t *testing.T, b blobs.Bucket) {
	want := []string{
		"A/x", "a-b/x", "a.b/x", "a.txt", "a/-", "a/.b", "a/0/z", "a/B", "a/b-c/1", "a/b.c", "a/b/c/d", "a/b/d", "a/b0", "a/bb/1",
		"a/c", "a0", "ab/x", "b/x", "z",
	}
	for i, name := range rand.New(rand.NewPCG(1, 2)).Perm(len(want)) {
		Put(t, b, want[name], []byte(strings.Repeat("x", i)))
	}
	if names := Names(t, b, ""); !slices.Equal(names, want) {
		t.Errorf("listed\n%q, want\n%q", names, want)
	}
	for _, prefix := range []string{"a/", "a/b/", "a/b/c/", "a-b/", "z/", "b/"} {
		within := slices.DeleteFunc(slices.Clone(want), func(name string) bool { return !strings.HasPrefix(name, prefix) })
		if names := Names(t, b, prefix); !slices.Equal(names, within) {
			t.Errorf("List(%s) = %q, want %q", prefix, names, within)
		}
	}
}

func listEndsEarly(t *testing.T, b blobs.Bucket) {
	for i := range 5 {
		Put(t, b, fmt.Sprintf("a/%d/x", i), nil)
	}
	seen := 0
	for _, err := range b.List(t.Context(), "a/") {
		if err != nil {
			t.Fatal(err)
		}
		if seen++; seen == 2 {
			break
		}
	}
	if seen != 2 {
		t.Errorf("got %d objects, want 2", seen)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for _, err := range b.List(ctx, "a/") {
		cancel()
		last = err
	}
	if !errors.Is(last, context.Canceled) { // a list that is cut short must not look complete
		t.Errorf("after the context was cancelled: got %v, want context.Canceled", last)
	}
}

func deleteAll(t *testing.T, b blobs.Bucket) {
	for _, name := range []string{"a/b/1", "a/b/c/2", "a/b/c/d/3", "a/bb/4", "a/b-/5", "ab/6"} {
		Put(t, b, name, []byte(name))
	}
	for range 2 {
		if err := b.DeleteAll(t.Context(), "a/b/"); err != nil {
			t.Fatal(err)
		}
	}
	if names := Names(t, b, ""); !slices.Equal(names, []string{"a/b-/5", "a/bb/4", "ab/6"}) {
		t.Errorf("left %v, want a/b-/5, a/bb/4 and ab/6", names)
	}
	Put(t, b, "a/b/1", []byte("again"))
	if got := Read(t, b, "a/b/1"); string(got) != "again" {
		t.Errorf("read %q, want again", got)
	}
	if err := b.DeleteAll(t.Context(), "a/"); err != nil {
		t.Fatal(err)
	}
	if names := Names(t, b, ""); !slices.Equal(names, []string{"ab/6"}) {
		t.Errorf("left %v, want ab/6", names)
	}
}

const workers, each = 8, 12

// concurrent stores objects of the same directories at the same time.
func concurrent(t *testing.T, b blobs.Bucket) {
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := range each {
				name := fmt.Sprintf("a/%d/%d", i%3, w*each+i)
				if err := b.Put(t.Context(), name, TempFile(t, []byte(strings.Repeat(name, 100)))); err != nil {
					t.Errorf("Put(%s): %v", name, err)
				}
			}
		})
	}
	all.Wait()
	names := Names(t, b, "")
	if len(names) != workers*each {
		t.Errorf("listed %d objects, want %d", len(names), workers*each)
	}
	for _, name := range names {
		if got := Read(t, b, name); string(got) != strings.Repeat(name, 100) {
			t.Errorf("%s: read %.40q, want its own content", name, got)
		}
	}
}

// concurrentDeletions stores and deletes the only objects of directories at the same time.
func concurrentDeletions(t *testing.T, b blobs.Bucket) {
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := range each {
				name := fmt.Sprintf("a/%d/%d", i%3, w)
				if err := b.Put(t.Context(), name, TempFile(t, []byte(name))); err != nil {
					t.Errorf("Put(%s): %v", name, err)
				}
				if err := b.Delete(t.Context(), name); err != nil {
					t.Errorf("Delete(%s): %v", name, err)
				}
			}
		})
	}
	all.Wait()
	if names := Names(t, b, ""); len(names) != 0 {
		t.Errorf("left %v, want nothing", names)
	}
}

func hostileNames(t *testing.T, b blobs.Bucket) {
	Put(t, b, "a/b", []byte("x"))
	long := strings.Repeat("n", 201)
	for _, name := range []string{
		"", "/", ".", "..", "../x", "a/../../x", "a/..", "a/./b", "/etc/passwd", "a//b", "a/", `a\b`, `..\x`, "a b", "a\x00b", "a\nb",
		"C:/x", "a:b", "é", "a%2fb", "on-the-way+", "on-the-way+/x", "~", "~/x", "a/~b", "a*", "a?b", "a#b", "a&b", long, "a\n", "\u202ea", "a/\xff",
	} {
		ctx := t.Context()
		o, openErr := b.Open(ctx, name)
		if o != nil {
			t.Errorf("Open(%.30q) = an object", name)
		}
		errs := map[string]error{
			"Put": b.Put(ctx, name, TempFile(t, []byte("hostile"))), "Open": openErr, "Delete": b.Delete(ctx, name),
			"DeleteAll(name/)": b.DeleteAll(ctx, name+"/"),
		}
		for _, err := range b.List(ctx, name+"/") {
			errs["List(name/)"] = err
		}
		if name == "a/" { // as a prefix it is valid
			errs["DeleteAll(name)"] = blobs.ErrName
		} else if errs["DeleteAll(name)"] = b.DeleteAll(ctx, name); name != "" {
			errs["List(name)"] = nil
			for _, err := range b.List(ctx, name) {
				errs["List(name)"] = err
			}
		}
		for call, err := range errs {
			if !errors.Is(err, blobs.ErrName) {
				t.Errorf("%s, name %.30q: got %v, want ErrName", call, name, err)
			}
		}
	}
	for _, prefix := range []string{"a", "a/b", "../"} { // prefixes are whole segments
		if err := b.DeleteAll(t.Context(), prefix); !errors.Is(err, blobs.ErrName) {
			t.Errorf("DeleteAll(%q) = %v, want ErrName", prefix, err)
		}
	}
	if names := Names(t, b, ""); !slices.Equal(names, []string{"a/b"}) {
		t.Errorf("listed %v, want only a/b", names)
	}
}

func cancelled(t *testing.T, b blobs.Bucket) {
	Put(t, b, "a/b", []byte("x"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, openErr := b.Open(ctx, "a/b")
	errs := map[string]error{
		"Put": b.Put(ctx, "a/c", TempFile(t, []byte("y"))), "Open": openErr, "Delete": b.Delete(ctx, "a/b"),
		"DeleteAll": b.DeleteAll(ctx, "a/"), "List": nil,
	}
	for _, err := range b.List(ctx, "") {
		errs["List"] = err
	}
	for call, err := range errs {
		if !errors.Is(err, context.Canceled) || errors.Is(err, blobs.ErrUnavailable) {
			t.Errorf("%s: got %v, want context.Canceled", call, err)
		}
	}
	if names := Names(t, b, ""); !slices.Equal(names, []string{"a/b"}) {
		t.Errorf("listed %v, want a/b", names)
	}
}

func sameAgain(t *testing.T, b blobs.Bucket) {
	for range 2 {
		Put(t, b, "a/b", []byte("same"))
	}
	if got := Read(t, b, "a/b"); string(got) != "same" {
		t.Errorf("read %q, want same", got)
	}
}

// position checks that the whole file is stored, whatever was read of it before.
func position(t *testing.T, b blobs.Bucket) {
	file := TempFile(t, []byte("all of it"))
	if _, err := file.Seek(4, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if err := b.Put(t.Context(), "a/b", file); err != nil {
		t.Fatal(err)
	}
	if got := Read(t, b, "a/b"); string(got) != "all of it" {
		t.Errorf("read %q, want all of it", got)
	}
}

func longName(t *testing.T, b blobs.Bucket) {
	for _, name := range []string{strings.Repeat("n", 200), strings.Repeat("n/", 99) + "nn", "..a/b..", "-", "_"} {
		Put(t, b, name, []byte(name))
		if got := Read(t, b, name); string(got) != name {
			t.Errorf("%.20s…: read %.20q, want its name", name, got)
		}
	}
}
