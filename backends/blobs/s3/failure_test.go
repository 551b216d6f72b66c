package s3_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"tenantry/backends/blobs"
	"tenantry/backends/blobs/blobtest"
	"tenantry/backends/blobs/s3"
	"tenantry/backends/blobs/s3/s3test"
	"tenantry/crypto/secret"
)

const (
	long  = time.Minute            // no test waits that long
	short = 200 * time.Millisecond // for a server that never answers
)

// fake returns a bucket on a server that answers as the handler says.
func fake(t *testing.T, wait time.Duration, handler http.HandlerFunc) *s3.Bucket {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return open(t, fakeOptions(server.URL, wait))
}

func fakeOptions(endpoint string, wait time.Duration) s3.Options {
	return s3.Options{
		Endpoint: endpoint, Region: "us-east-1", Bucket: "tests", AccessKey: "key", SecretKey: secret.New("canary-secret"),
		PathStyle: true, Wait: wait,
	}
}

// refuse answers with an error of the protocol.
func refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>because of %s</Message></Error>", code, code)
}

// every calls each method of the bucket.
func every(t *testing.T, b *s3.Bucket) map[string]error {
	t.Helper()
	o, openErr := b.Open(t.Context(), "a/b")
	if openErr == nil {
		_ = o.Close()
	}
	errs := map[string]error{
		"Put": b.Put(t.Context(), "a/b", blobtest.TempFile(t, []byte("x"))), "Open": openErr,
		"Delete": b.Delete(t.Context(), "a/b"), "DeleteAll": b.DeleteAll(t.Context(), "a/"), "Check": b.Check(t.Context()),
	}
	for _, err := range b.List(t.Context(), "") {
		errs["List"] = err
	}
	return errs
}

func TestOutages(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		wait   time.Duration
		answer http.HandlerFunc
		want   string // in the text of each error, but Open's, whose answer has no text
	}{
		"overloaded": {long, func(w http.ResponseWriter, _ *http.Request) { refuse(w, http.StatusServiceUnavailable, "SlowDown") }, "SlowDown"},
		"broken": {long, func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, http.StatusInternalServerError, "InternalError")
		}, "InternalError"},
		"a proxy": {long, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusBadGateway) }, "502"},
		"silent": {short, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // or the server does not notice that the client leaves
			<-r.Context().Done()
		}, ""},
		"hangs up": {long, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "closed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for call, err := range every(t, fake(t, test.wait, test.answer)) {
				if !errors.Is(err, blobs.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: got %v, want ErrUnavailable", call, err)
				} else if call != "Open" && !strings.Contains(err.Error(), test.want) {
					t.Errorf("%s: got %v, want %q in it", call, err, test.want)
				}
			}
		})
	}
}

// TestNobodyListens checks that an address without server is an outage that names it.
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	for call, err := range every(t, open(t, fakeOptions(server.URL, long))) {
		if !errors.Is(err, blobs.ErrUnavailable) || !strings.Contains(err.Error(), server.URL) ||
			strings.Contains(err.Error(), "canary-secret") {
			t.Errorf("%s: got %v, want ErrUnavailable with %s", call, err, server.URL)
		}
	}
}

// TestTriesAreBounded checks how often a request is sent that fails each time.
func TestTriesAreBounded(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]int64{503: 3, 403: 1} {
		var seen atomic.Int64
		b := fake(t, long, func(w http.ResponseWriter, _ *http.Request) { seen.Add(1); refuse(w, status, "Failure") })
		if err := b.Delete(t.Context(), "a/b"); !errors.Is(err, blobs.ErrUnavailable) {
			t.Errorf("status %d: got %v, want ErrUnavailable", status, err)
		}
		if seen.Load() != want {
			t.Errorf("status %d: %d requests, want %d", status, seen.Load(), want)
		}
	}
}

func TestFull(t *testing.T) {
	t.Parallel()
	for code, status := range map[string]int{
		"XMinioStorageFull": 507, "XMinioAdminBucketQuotaExceeded": 400, "QuotaExceeded": 403, "Other": 507,
	} {
		b := fake(t, long, func(w http.ResponseWriter, _ *http.Request) { refuse(w, status, code) })
		err := b.Put(t.Context(), "a/b", blobtest.TempFile(t, []byte("x")))
		if !errors.Is(err, blobs.ErrFull) || errors.Is(err, blobs.ErrUnavailable) || !strings.Contains(err.Error(), code) {
			t.Errorf("%s: got %v, want ErrFull with the code", code, err)
		}
	}
}

// TestCallerGivesUp checks that the error of a caller's context is not an outage.
func TestCallerGivesUp(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	b := fake(t, long, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or the server does not notice that the client leaves
		cancel()
		<-r.Context().Done()
	})
	if err := b.Put(ctx, "a/b", blobtest.TempFile(t, []byte("x"))); !errors.Is(err, context.Canceled) ||
		errors.Is(err, blobs.ErrUnavailable) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

// TestServerTakesNothing checks that sending ends if the server reads no more.
func TestServerTakesNothing(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		var conns []net.Conn
		for {
			conn, err := listener.Accept()
			if err != nil {
				break
			}
			conns = append(conns, conn)
		}
		for _, conn := range conns {
			_ = conn.Close()
		}
	})
	t.Cleanup(func() { _ = listener.Close(); accepting.Wait() })
	b := open(t, fakeOptions("http://"+listener.Addr().String(), short))
	err = b.Put(t.Context(), "a/b", blobtest.TempFile(t, make([]byte, 15<<20))) // more than the buffers of a socket
	if !errors.Is(err, blobs.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}

// TestEveryBodyIsHashed checks that the server gets the SHA-256 of each body that it stores.
func TestEveryBodyIsHashed(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var sizes []int
	b := fake(t, long, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sum := sha256.Sum256(body)
		if !r.URL.Query().Has("uploads") && // a request to begin has no body
			r.Header.Get("X-Amz-Content-Sha256") != hex.EncodeToString(sum[:]) {
			refuse(w, http.StatusBadRequest, "XAmzContentSHA256Mismatch")
			return
		}
		switch {
		case r.Method == http.MethodPut:
			mu.Lock()
			sizes = append(sizes, len(body))
			mu.Unlock()
			w.Header().Set("ETag", `"e`+strconv.Itoa(len(body))+`"`)
		case r.URL.Query().Has("uploads"):
			_, _ = io.WriteString(w, "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>")
		default:
			_, _ = io.WriteString(w, "<CompleteMultipartUploadResult><Bucket>tests</Bucket><ETag>e</ETag></CompleteMultipartUploadResult>")
		}
	})
	for _, size := range []int{0, 5, 16 << 20, 16<<20 + 1, 40 << 20} {
		if err := b.Put(t.Context(), "a/b", blobtest.TempFile(t, make([]byte, size))); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	want := []int{0, 5, 16 << 20, 16 << 20, 1, 16 << 20, 16 << 20, 8 << 20}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(sizes, want) {
		t.Errorf("got bodies of %v bytes, want %v", sizes, want)
	}
}

const content = "0123456789abcdefghij"

// serveContent answers to HEAD and GET of an object, and lets spoil change the answer to the n-th GET. It returns the bucket,
// and what tells the ranges that were asked for until now: a request that the bucket gave up may still arrive meanwhile.
func serveContent(
	t *testing.T, wait time.Duration, spoil func(n int, w http.ResponseWriter, r *http.Request) bool,
) (*s3.Bucket, func() []string) {
	t.Helper()
	var mu sync.Mutex
	var ranges []string
	b := fake(t, wait, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"e"`)
		if r.Method == http.MethodGet {
			mu.Lock()
			ranges = append(ranges, r.Header.Get("Range"))
			n := len(ranges)
			mu.Unlock()
			if spoil != nil && spoil(n, w, r) {
				return
			}
		}
		http.ServeContent(w, r, "", time.Unix(1, 0), strings.NewReader(content))
	})
	return b, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(ranges)
	}
}

// half sends half of the rest of the object, and hangs up.
func half(w http.ResponseWriter, r *http.Request) {
	at, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(r.Header.Get("Range"), "bytes="), fmt.Sprintf("-%d", len(content)-1)))
	rest := content[at:]
	w.Header().Set("Content-Length", strconv.Itoa(len(rest)))
	w.Header().Set("Last-Modified", time.Unix(1, 0).UTC().Format(http.TimeFormat))
	if at > 0 {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", at, len(content)-1, len(content)))
		w.WriteHeader(http.StatusPartialContent)
	}
	_, _ = io.WriteString(w, rest[:len(rest)/2])
	w.(http.Flusher).Flush()
}

func TestReadsByRanges(t *testing.T) {
	t.Parallel()
	b, ranges := serveContent(t, long, nil)
	o, err := b.Open(t.Context(), "a/b")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		offset int64
		whence int
	}{{0, io.SeekEnd}, {3, io.SeekStart}, {0, io.SeekStart}, {0, io.SeekEnd}, {10, io.SeekStart}} {
		if _, err := o.Seek(step.offset, step.whence); err != nil {
			t.Fatal(err)
		}
	}
	if got := ranges(); len(got) != 0 {
		t.Errorf("Seek asked for %v, want nothing", got)
	}
	part := make([]byte, 4)
	for _, want := range []string{"abcd", "efgh"} { // of one answer
		if _, err := io.ReadFull(o, part); err != nil || string(part) != want {
			t.Errorf("read %q, %v, want %q", part, err, want)
		}
	}
	if _, err := o.Seek(-5, io.SeekEnd); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(o); err != nil || string(got) != "fghij" {
		t.Errorf("read %q, %v, want fghij", got, err)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
	if n, err := o.Read(part); n != 0 || !errors.Is(err, os.ErrClosed) {
		t.Errorf("Read after Close = %d, %v, want os.ErrClosed", n, err)
	}
	if got, want := ranges(), []string{"bytes=10-19", "bytes=15-19"}; !slices.Equal(got, want) {
		t.Errorf("asked for %v, want %v", got, want)
	}
}

// TestInterruptedReadContinues checks that a lost connection, or a server that falls silent, is invisible to readers.
func TestInterruptedReadContinues(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		wait  time.Duration
		after func(r *http.Request)
	}{
		"hangs up":     {long, func(*http.Request) { panic(http.ErrAbortHandler) }},
		"falls silent": {short, func(r *http.Request) { <-r.Context().Done() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, ranges := serveContent(t, test.wait, func(n int, w http.ResponseWriter, r *http.Request) bool {
				if n <= 2 {
					half(w, r)
					test.after(r)
				}
				return n <= 2
			})
			if got := blobtest.Read(t, b, "a/b"); string(got) != content {
				t.Errorf("read %q, want %q", got, content)
			}
			if got, want := ranges(), []string{"", "bytes=10-19", "bytes=15-19"}; !slices.Equal(got, want) {
				t.Errorf("asked for %q, want %q", got, want)
			}
		})
	}
}

// TestReadEndsWithError checks that the tries to continue are bounded, and that wrong bytes are never returned.
func TestReadEndsWithError(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spoil func(n int, w http.ResponseWriter, r *http.Request) bool
		want  error
		got   string
	}{
		"always interrupted": {func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n == 1 {
				half(w, r)
			}
			panic(http.ErrAbortHandler)
		}, blobs.ErrUnavailable, content[:10]},
		"no ranges": {func(n int, w http.ResponseWriter, r *http.Request) bool {
			r.Header.Del("Range")
			if n == 1 {
				half(w, r)
				panic(http.ErrAbortHandler)
			}
			return false
		}, blobs.ErrUnavailable, content[:10]},
		"deleted meanwhile": {func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n == 1 {
				half(w, r)
				panic(http.ErrAbortHandler)
			}
			refuse(w, http.StatusNotFound, "NoSuchKey")
			return true
		}, blobs.ErrNotFound, content[:10]},
		"refused": {func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			refuse(w, http.StatusForbidden, "AccessDenied")
			return true
		}, blobs.ErrUnavailable, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, ranges := serveContent(t, long, test.spoil)
			o, err := b.Open(t.Context(), "a/b")
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			got, err := io.ReadAll(o)
			if !errors.Is(err, test.want) || string(got) != test.got {
				t.Errorf("read %q, %v, want %q and %v", got, err, test.got, test.want)
			}
			if n := len(ranges()); n > 12 {
				t.Errorf("%d requests, want few", n)
			}
		})
	}
}

// TestBucketIsGone checks that a missing bucket is an outage: its objects are not absent.
func TestBucketIsGone(t *testing.T) {
	t.Parallel()
	o := s3test.Server(t)
	o.Bucket = "no-such-bucket"
	for call, err := range every(t, open(t, o)) {
		if call == "Check" {
			continue // see TestCheckServer
		}
		if !errors.Is(err, blobs.ErrUnavailable) || errors.Is(err, blobs.ErrNotFound) {
			t.Errorf("%s: got %v, want ErrUnavailable", call, err)
		}
	}
}

// between puts a proxy between the client and the server for tests.
func between(t *testing.T, change func(w http.ResponseWriter, r *http.Request, forward http.Handler)) s3.Options {
	t.Helper()
	o := s3test.Server(t)
	target, err := url.Parse(o.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host // it is signed
		},
		Transport: transport, ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { change(w, r, proxy) }))
	t.Cleanup(func() { front.Close(); transport.CloseIdleConnections() })
	o.Endpoint = front.URL
	return o
}

// TestDamagedTransferFails flips a bit on the way to the server.
func TestDamagedTransferFails(t *testing.T) {
	t.Parallel()
	b := open(t, between(t, func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		if r.Method == http.MethodPut {
			body, _ := io.ReadAll(r.Body)
			body[len(body)/2] ^= 1
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		forward.ServeHTTP(w, r)
	}))
	for _, size := range []int{5, 17 << 20} {
		err := b.Put(t.Context(), "a/b", blobtest.TempFile(t, make([]byte, size)))
		if !errors.Is(err, blobs.ErrUnavailable) {
			t.Errorf("%d bytes: got %v, want ErrUnavailable", size, err)
		}
	}
	if names := blobtest.Names(t, b, ""); len(names) != 0 {
		t.Errorf("stored %v, want nothing", names)
	}
}

// TestLostAnswer loses the answer that a large object was stored. Asked again, the server does not know the upload any
// more: what matters then is whether it has the object.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	const size = 17 << 20
	for name, test := range map[string]struct {
		stored int // the size of the object on the server; 0: there is none
		want   error
	}{
		"stored": {size, nil}, "not stored": {0, blobs.ErrUnavailable}, "another object": {5, blobs.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var completed atomic.Int64
			b := fake(t, long, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("ETag", `"e"`)
				switch {
				case r.Method == http.MethodHead && test.stored == 0:
					w.WriteHeader(http.StatusNotFound)
				case r.Method == http.MethodHead:
					w.Header().Set("Content-Length", strconv.Itoa(test.stored))
					w.Header().Set("Last-Modified", time.Unix(1, 0).UTC().Format(http.TimeFormat))
				case r.Method == http.MethodPost && r.URL.Query().Has("uploads"):
					_, _ = io.WriteString(w, "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>")
				case r.Method == http.MethodPost && completed.Add(1) == 1:
					panic(http.ErrAbortHandler)
				case r.Method == http.MethodPost:
					refuse(w, http.StatusNotFound, "NoSuchUpload")
				}
			})
			err := b.Put(t.Context(), "a/b", blobtest.TempFile(t, make([]byte, size)))
			if !errors.Is(err, test.want) || completed.Load() != 2 {
				t.Errorf("got %v after %d attempts to complete, want %v after 2", err, completed.Load(), test.want)
			}
		})
	}
}

// uploads returns the keys of incomplete uploads.
func uploads(t *testing.T, o s3.Options) (keys []string) {
	t.Helper()
	client := library(t, o)
	for upload := range client.ListIncompleteUploads(t.Context(), o.Bucket, o.Prefix, true) {
		if upload.Err != nil {
			t.Fatal(upload.Err)
		}
		keys = append(keys, strings.TrimPrefix(upload.Key, o.Prefix+"/"))
	}
	return keys
}

func library(t *testing.T, o s3.Options) *minio.Core {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client, err := minio.NewCore(strings.TrimPrefix(o.Endpoint, "http://"), &minio.Options{
		Creds: credentials.NewStaticV4(o.AccessKey, o.SecretKey.Reveal(), ""), Region: o.Region, Transport: transport,
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// TestInterruptedUpload checks that a Put which ends early leaves nothing, and that what killed processes have left is
// removed.
func TestInterruptedUpload(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	o := between(t, func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		if r.URL.Query().Get("partNumber") == "2" {
			cancel()
		}
		forward.ServeHTTP(w, r)
	})
	b := open(t, o)
	if err := b.Put(ctx, "a/b", blobtest.TempFile(t, make([]byte, 33<<20))); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if got := uploads(t, o); len(got) != 0 {
		t.Errorf("left the uploads %v, want none", got)
	}

	client := library(t, o)
	for _, name := range []string{"a/killed", "ab/killed"} {
		if _, err := client.NewMultipartUpload(t.Context(), o.Bucket, o.Prefix+"/"+name, minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if names := blobtest.Names(t, b, ""); len(names) != 0 {
		t.Errorf("listed %v, want nothing", names)
	}
	if got := uploads(t, o); len(got) != 2 {
		t.Errorf("List left the uploads %v, want both, because they are recent", got)
	}
	if err := b.DeleteAll(t.Context(), "a/"); err != nil {
		t.Fatal(err)
	}
	if got := uploads(t, o); !slices.Equal(got, []string{"ab/killed"}) {
		t.Errorf("DeleteAll left the uploads %v, want ab/killed", got)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(o *s3.Options){
		"no endpoint": func(o *s3.Options) { o.Endpoint = "" }, "no scheme": func(o *s3.Options) { o.Endpoint = "s3.example.com" },
		"other scheme": func(o *s3.Options) { o.Endpoint = "ftp://s3.example.com" },
		"a path":       func(o *s3.Options) { o.Endpoint = "https://s3.example.com/bucket" },
		"credentials":  func(o *s3.Options) { o.Endpoint = "https://u:canary-secret@s3.example.com" },
		"a query":      func(o *s3.Options) { o.Endpoint = "https://s3.example.com?x=1" },
		"no key":       func(o *s3.Options) { o.AccessKey = "" }, "no secret": func(o *s3.Options) { o.SecretKey = secret.String{} },
		"a bad prefix": func(o *s3.Options) { o.Prefix = "../x" },
	} {
		o := fakeOptions("https://s3.example.com", 0)
		change(&o)
		if b, err := s3.Open(o); err == nil || strings.Contains(err.Error(), "canary-secret") {
			t.Errorf("%s: got %v, %v, want an error without secrets", name, b, err)
		}
	}
	b := open(t, fakeOptions("https://s3.example.com/", 0))
	if got, want := b.String(), `the bucket "tests" at https://s3.example.com`; got != want {
		t.Errorf("String() = %s, want %s", got, want)
	}
}
