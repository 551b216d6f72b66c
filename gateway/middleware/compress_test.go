package middleware

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// reportRows returns bytes that compress like the rows of a report.
func reportRows(seed, size int) []byte {
	var b bytes.Buffer
	for n := uint32(seed); b.Len() < size; n = n*1664525 + 1013904223 {
		fmt.Fprintf(&b, `["person%d@example.com","%x",%d,"2026-%02d-%02dT09:30:00.000Z"],`, n%100_000, n, n%5_000, 1+n%12, 1+n%28)
	}
	return b.Bytes()[:size]
}

func gunzip(t testing.TB, packed []byte) []byte {
	t.Helper()
	gz, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(gz)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func gzipRequest(t testing.TB) *http.Request {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.Header.Set("Accept-Encoding", "gzip")
	return r
}

// TestCompressor_KeepsAnswersApart: answers that are compressed at the same time share writers and buffers, but no
// bytes.
func TestCompressor_KeepsAnswersApart(t *testing.T) {
	t.Parallel()
	p := newCompressor()
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for round := range 20 {
				body := reportRows(worker*1000+round, 2000*(round+1))
				rec := httptest.NewRecorder()
				n := p.send(rec, gzipRequest(t), http.StatusOK, body)
				got := rec.Body.Bytes()
				if n != len(got) {
					t.Errorf("send = %d, want %d", n, len(got))
				}
				if rec.Header().Get("Content-Encoding") == "gzip" {
					got = gunzip(t, got)
				}
				if !bytes.Equal(got, body) {
					t.Error("an answer differs from its body")
				}
			}
		})
	}
	wg.Wait()
}

// TestCompressor_IsBounded: if all slots are taken, an answer is sent uncompressed at once.
func TestCompressor_IsBounded(t *testing.T) {
	t.Parallel()
	p := newCompressor()
	send := func() *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		p.send(rec, gzipRequest(t), http.StatusOK, reportRows(1, 5000))
		return rec
	}
	for range cap(p.slots) {
		p.slots <- struct{}{}
	}
	busy := send()
	plain := bytes.Equal(busy.Body.Bytes(), reportRows(1, 5000))
	if busy.Header().Get("Content-Encoding") != "" || !plain || busy.Header().Get("Vary") != "Accept-Encoding" {
		t.Errorf("busy: %v", busy.Header())
	}
	for range cap(p.slots) {
		<-p.slots
	}
	for range 3 * cap(p.slots) { // every one leaves room for the next
		if free := send(); free.Header().Get("Content-Encoding") != "gzip" {
			t.Fatalf("free: %v", free.Header())
		}
	}
}

// TestCompressor_SkipsIncompressible: a body that compression does not make smaller is sent as it is, and so is one
// that has an encoding.
func TestCompressor_SkipsIncompressible(t *testing.T) {
	t.Parallel()
	var noise bytes.Buffer
	gz := gzip.NewWriter(&noise)
	_, _ = gz.Write(reportRows(7, 20_000))
	_ = gz.Close()
	rec := httptest.NewRecorder()
	newCompressor().send(rec, gzipRequest(t), http.StatusOK, noise.Bytes())
	if rec.Header().Get("Content-Encoding") != "" || !bytes.Equal(rec.Body.Bytes(), noise.Bytes()) {
		t.Errorf(`got %v, want rec.Header().Get("Content-Encoding") = ""`, rec.Header())
	}
	encoded := httptest.NewRecorder()
	encoded.Header().Set("Content-Encoding", "gzip") // set by the handler
	if n := newCompressor().send(encoded, gzipRequest(t), http.StatusOK, reportRows(7, 20_000)); n != 20_000 {
		t.Errorf("send of an encoded body = %d bytes, want 20,000", n)
	}
}

// keeper is an http.ResponseWriter that keeps the slice that was written, without a copy.
type keeper struct {
	http.ResponseWriter
	body []byte
}

func (k *keeper) Write(body []byte) (int, error) {
	k.body = body
	return len(body), nil
}

// TestStatic_IsCompressedOnce: answers share the same memory.
func TestStatic_IsCompressedOnce(t *testing.T) {
	t.Parallel()
	body := []byte(strings.Repeat("a { b: c }\n", 1000))
	h := Static("text/css", func() []byte { return body })
	get := func(r *http.Request) []byte {
		k := &keeper{ResponseWriter: httptest.NewRecorder()}
		h.ServeHTTP(k, r)
		return k.body
	}
	first, second := get(gzipRequest(t)), get(gzipRequest(t))
	if &first[0] != &second[0] || !bytes.Equal(gunzip(t, first), body) {
		t.Error("the second answer was compressed again, or differs from the content")
	}
	if plain := get(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)); &plain[0] != &body[0] {
		t.Error("the uncompressed answer is a copy")
	}
}

// BenchmarkCompress compresses an answer of 64 KB.
func BenchmarkCompress(b *testing.B) {
	p, body := newCompressor(), reportRows(1, 64<<10)
	var buf bytes.Buffer
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		buf.Reset()
		if !p.compress(&buf, body) {
			b.Fatal("no smaller")
		}
	}
	b.ReportMetric(float64(buf.Len()), "bytes/answer")
}
