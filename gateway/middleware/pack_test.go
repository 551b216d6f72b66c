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

// rowsOf returns a report's rows, or much like them.
func rowsOf(seed, size int) []byte {
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

func taking(t testing.TB) *http.Request {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.Header.Set("Accept-Encoding", "gzip")
	return r
}

// TestPacker_KeepsAnswersApart: answers that are compressed at the same time share writers
// and buffers, and no byte.
func TestPacker_KeepsAnswersApart(t *testing.T) {
	t.Parallel()
	p := newPacker()
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for round := range 20 {
				body := rowsOf(worker*1000+round, 2000*(round+1))
				rec := httptest.NewRecorder()
				n := p.send(rec, taking(t), http.StatusOK, body)
				got := rec.Body.Bytes()
				if n != len(got) {
					t.Errorf("%d bytes sent, %d said", len(got), n)
				}
				if rec.Header().Get("Content-Encoding") == "gzip" {
					got = gunzip(t, got)
				}
				if !bytes.Equal(got, body) {
					t.Error("an answer is not what was to be sent")
				}
			}
		})
	}
	wg.Wait()
}

// TestPacker_IsBounded: where as many as may are at it, an answer goes plain and at once.
func TestPacker_IsBounded(t *testing.T) {
	t.Parallel()
	p := newPacker()
	send := func() *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		p.send(rec, taking(t), http.StatusOK, rowsOf(1, 5000))
		return rec
	}
	for range cap(p.slots) {
		p.slots <- struct{}{}
	}
	if busy := send(); busy.Header().Get("Content-Encoding") != "" || !bytes.Equal(busy.Body.Bytes(), rowsOf(1, 5000)) || busy.Header().Get("Vary") != "Accept-Encoding" {
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

// TestPacker_WhatGetsNoSmaller goes as it is, and so does what has an encoding.
func TestPacker_WhatGetsNoSmaller(t *testing.T) {
	t.Parallel()
	var noise bytes.Buffer
	gz := gzip.NewWriter(&noise)
	_, _ = gz.Write(rowsOf(7, 20_000))
	_ = gz.Close()
	rec := httptest.NewRecorder()
	newPacker().send(rec, taking(t), http.StatusOK, noise.Bytes())
	if rec.Header().Get("Content-Encoding") != "" || !bytes.Equal(rec.Body.Bytes(), noise.Bytes()) {
		t.Errorf(`got %v, want rec.Header().Get("Content-Encoding") = ""`, rec.Header())
	}
	encoded := httptest.NewRecorder()
	encoded.Header().Set("Content-Encoding", "gzip") // by who wrote it
	if n := newPacker().send(encoded, taking(t), http.StatusOK, rowsOf(7, 20_000)); n != 20_000 {
		t.Errorf("compressed twice: %d bytes", n)
	}
}

// keeper keeps what was written, not a copy.
type keeper struct {
	http.ResponseWriter
	body []byte
}

func (k *keeper) Write(body []byte) (int, error) {
	k.body = body
	return len(body), nil
}

// TestStatic_IsCompressedOnce: two answers are the same memory.
func TestStatic_IsCompressedOnce(t *testing.T) {
	t.Parallel()
	body := []byte(strings.Repeat("a { b: c }\n", 1000))
	h := Static("text/css", func() []byte { return body })
	get := func(r *http.Request) []byte {
		k := &keeper{ResponseWriter: httptest.NewRecorder()}
		h.ServeHTTP(k, r)
		return k.body
	}
	first, second := get(taking(t)), get(taking(t))
	if &first[0] != &second[0] || !bytes.Equal(gunzip(t, first), body) {
		t.Error("compressed again, or wrong")
	}
	if plain := get(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)); &plain[0] != &body[0] {
		t.Error("plain is another")
	}
}

// BenchmarkPack compresses an answer of 64 KB.
func BenchmarkPack(b *testing.B) {
	p, body := newPacker(), rowsOf(1, 64<<10)
	var buf bytes.Buffer
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		buf.Reset()
		if !p.pack(&buf, body) {
			b.Fatal("no smaller")
		}
	}
	b.ReportMetric(float64(buf.Len()), "bytes/answer")
}
