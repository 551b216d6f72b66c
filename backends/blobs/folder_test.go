package blobs_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tenantry/backends/blobs"
	"tenantry/backends/blobs/blobtest"
)

func folder(t *testing.T) (blobs.Bucket, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "files")
	b, err := blobs.Folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	return b, dir
}

func TestFolder(t *testing.T) {
	t.Parallel()
	blobtest.Run(t, func(t *testing.T) blobs.Bucket {
		t.Helper()
		b, _ := folder(t)
		return b
	})
}

// TestFolderIsShared runs the suite on a folder that two processes use: each call is made by the other one.
func TestFolderIsShared(t *testing.T) {
	t.Parallel()
	blobtest.Run(t, func(t *testing.T) blobs.Bucket {
		t.Helper()
		first, dir := folder(t)
		second, err := blobs.Folder(dir)
		if err != nil {
			t.Fatal(err)
		}
		return &inTurns{buckets: [2]blobs.Bucket{first, second}}
	})
}

// inTurns is a Bucket that uses two others in turns.
type inTurns struct {
	buckets [2]blobs.Bucket
	calls   atomic.Int64
}

func (b *inTurns) next() blobs.Bucket { return b.buckets[b.calls.Add(1)%2] }

func (b *inTurns) Put(ctx context.Context, name string, file *os.File) error {
	return b.next().Put(ctx, name, file)
}

func (b *inTurns) Open(ctx context.Context, name string) (blobs.Object, error) {
	return b.next().Open(ctx, name)
}

func (b *inTurns) Delete(ctx context.Context, name string) error { return b.next().Delete(ctx, name) }

func (b *inTurns) List(ctx context.Context, prefix string) iter.Seq2[blobs.Info, error] {
	return b.next().List(ctx, prefix)
}

func (b *inTurns) DeleteAll(ctx context.Context, prefix string) error {
	return b.next().DeleteAll(ctx, prefix)
}

// TestFolderTakesFilesOfOtherDevices checks that a file which cannot be moved is copied.
func TestFolderTakesFilesOfOtherDevices(t *testing.T) {
	t.Parallel()
	b, dir := folder(t)
	elsewhere := otherDevice(t, dir)
	file, err := os.CreateTemp(elsewhere, "upload-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close(); _ = os.Remove(file.Name()) })
	content := bytes.Repeat([]byte("0123456789"), 200_000)
	if _, err := file.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := b.Put(t.Context(), "a/b", file); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(blobtest.Read(t, b, "a/b"), content) {
		t.Error("read other bytes than were stored")
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "on-the-way+")); err != nil || len(entries) != 0 {
		t.Errorf("left %v, %v, want no copies", entries, err)
	}
	ctx := &endingContext{Context: t.Context(), after: 3}
	if err := b.Put(ctx, "a/c", file); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled in the middle of a copy: got %v, want context.Canceled", err)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "on-the-way+")); err != nil || len(entries) != 0 {
		t.Errorf("cancelled: left %v, %v, want no copies", entries, err)
	}
}

// endingContext is cancelled when Err has been called a number of times.
type endingContext struct {
	context.Context
	after int
}

func (c *endingContext) Err() error {
	if c.after--; c.after < 0 {
		return context.Canceled
	}
	return nil
}

// otherDevice returns a folder from which files cannot be renamed into dir.
func otherDevice(t *testing.T, dir string) string {
	t.Helper()
	for _, candidate := range []string{"/dev/shm", "/var/tmp", "."} {
		probe, err := os.CreateTemp(candidate, "tenantry-probe-*")
		if err != nil {
			continue
		}
		target := filepath.Join(dir, "probe")
		err = os.Rename(probe.Name(), target)
		_ = probe.Close()
		_, _ = os.Remove(probe.Name()), os.Remove(target)
		if errors.Is(err, syscall.EXDEV) {
			return candidate
		}
	}
	t.Skip("this machine has no other device for temporary files: neither /dev/shm nor /var/tmp is one")
	return ""
}

// TestFolderIsPrivate checks the modes of what a folder makes.
func TestFolderIsPrivate(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such modes")
	}
	b, dir := folder(t)
	file := blobtest.TempFile(t, []byte("x"))
	if err := file.Chmod(0o666); err != nil {
		t.Fatal(err)
	}
	if err := b.Put(t.Context(), "a/b/c", file); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]fs.FileMode{".": 0o700, "a": 0o700, "a/b": 0o700, "a/b/c": 0o600} {
		if stat, err := os.Stat(filepath.Join(dir, path)); err != nil || stat.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v, want %v", path, stat.Mode().Perm(), err, want)
		}
	}
}

// TestFolderLeavesNothing checks that leftovers of killed processes are not listed, and are removed in time.
func TestFolderLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, aside := range []string{"on-the-way+", "~"} { // of now, and of earlier versions
		t.Run(aside, func(t *testing.T) {
			t.Parallel()
			leavesNothing(t, aside)
		})
	}
}

func leavesNothing(t *testing.T, aside string) {
	t.Helper()
	b, dir := folder(t)
	blobtest.Put(t, b, "a/b", []byte("x"))
	part := func(name string, age time.Duration) {
		path := filepath.Join(dir, aside, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	part("part-1", 25*time.Hour)
	part("part-2", 23*time.Hour)
	part("deleted-3/objects/x", time.Minute) // DeleteAll was killed
	if names := blobtest.Names(t, b, ""); !slices.Equal(names, []string{"a/b"}) {
		t.Errorf("listed %v, want only a/b", names)
	}
	left, err := filepath.Glob(filepath.Join(dir, aside, "*"))
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != "part-2" {
		t.Errorf("left %v, %v, want the recent part-2", left, err)
	}
	if err := os.Remove(filepath.Join(dir, aside, "part-2")); err != nil {
		t.Fatal(err)
	}
	part("deleted-4/objects/y", time.Minute)
	if err := b.DeleteAll(t.Context(), "gone/"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, aside, "deleted-4")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a repeated DeleteAll: got %v, want the deleted objects removed", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "~")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder ~: got %v, want none", err)
	}
}

// TestFolderRemovesEmptyDirectories checks that deleted objects leave no directories.
func TestFolderRemovesEmptyDirectories(t *testing.T) {
	t.Parallel()
	b, dir := folder(t)
	blobtest.Put(t, b, "a/b/c/1", nil)
	blobtest.Put(t, b, "a/d/2", nil)
	blobtest.Put(t, b, "e/f/3", nil)
	if err := b.Delete(t.Context(), "a/b/c/1"); err != nil {
		t.Fatal(err)
	}
	if err := b.DeleteAll(t.Context(), "e/f/"); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"a": true, "a/d/2": true, "a/b": false, "e": false} {
		if _, err := os.Stat(filepath.Join(dir, path)); (err == nil) != want {
			t.Errorf("%s: got %v, want that it exists: %v", path, err, want)
		}
	}
}

// TestFolderThatIsGone checks that an unmounted folder is unavailable, and that its objects are not absent.
func TestFolderThatIsGone(t *testing.T) {
	t.Parallel()
	b, dir := folder(t)
	blobtest.Put(t, b, "a/b", []byte("x"))
	if err := os.Rename(dir, dir+"-gone"); err != nil {
		t.Fatal(err)
	}
	_, openErr := b.Open(t.Context(), "a/b")
	errs := map[string]error{"Open": openErr}
	for _, err := range b.List(t.Context(), "") {
		errs["List"] = err
	}
	for call, err := range errs {
		if !errors.Is(err, blobs.ErrUnavailable) || errors.Is(err, blobs.ErrNotFound) {
			t.Errorf("%s: got %v, want ErrUnavailable", call, err)
		}
	}
	if len(errs) != 2 {
		t.Error("List yielded nothing, want ErrUnavailable")
	}
}

// TestFolderIgnoresWhatIsNoObject checks that links, pipes and foreign names are neither listed nor opened.
func TestFolderIgnoresWhatIsNoObject(t *testing.T) {
	t.Parallel()
	b, dir := folder(t)
	blobtest.Put(t, b, "a/b", []byte("x"))
	if err := os.Symlink("/etc/hosts", filepath.Join(dir, "a", "link")); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a", "lost+found"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if names := blobtest.Names(t, b, ""); !slices.Equal(names, []string{"a/b"}) {
		t.Errorf("listed %v, want only a/b", names)
	}
	if o, err := b.Open(t.Context(), "a/link"); !errors.Is(err, blobs.ErrNotFound) {
		t.Errorf("Open(a/link) = %v, %v, want ErrNotFound", o, err)
	}
}

func TestFolderThatCannotBeMade(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{path, filepath.Join(path, "files")} {
		if _, err := blobs.Folder(dir); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("Folder(%s) = %v, want an error with the path", dir, err)
		}
	}
}

// TestKernelCanSendObjects checks that a connection gets the file itself, which the kernel sends without a copy.
func TestKernelCanSendObjects(t *testing.T) {
	t.Parallel()
	b, _ := folder(t)
	blobtest.Put(t, b, "a/b", []byte("hello"))
	o, err := b.Open(t.Context(), "a/b")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if _, is := o.(syscall.Conn); !is { // net.TCPConn.ReadFrom requires this
		t.Errorf("%T is not a syscall.Conn", o)
	}
	if f, is := o.(*blobs.File); !is || f.File == nil {
		t.Errorf("got a %T, want a *blobs.File with the file", o)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			_, _ = io.Copy(conn, o)
			_ = conn.Close()
		}
	}()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "hello" {
		t.Errorf("received %q, %v, want hello", got, err)
	}
}
