package localredis

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

func TestPipe(t *testing.T) {
	t.Parallel()
	a, b := newPipe()
	if _, err := a.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(b, got); err != nil || string(got) != "hello" {
		t.Fatalf("read %q, %v", got, err)
	}

	_ = b.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	_, err := b.Read(got)
	var netErr net.Error
	if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &netErr) || !netErr.Timeout() {
		t.Errorf("read past the deadline: %v", err)
	}
	_ = b.SetReadDeadline(time.Time{})

	done := make(chan error, 1)
	go func() {
		_, err := b.Read(got)
		done <- err
	}()
	_ = a.Close()
	select {
	case err := <-done:
		if !errors.Is(err, io.EOF) {
			t.Errorf("read after the other side closed: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("closing did not end a waiting read")
	}
	if _, err := b.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("write after close: %v", err)
	}
	if _, err := a.Write(make([]byte, 1)); err == nil {
		t.Error("a closed end writes")
	}
}

func TestPipeIsBounded(t *testing.T) {
	t.Parallel()
	a, b := newPipe()
	defer b.Close()
	if _, err := a.Write(make([]byte, maxBuffered)); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Write([]byte("x")); err == nil {
		t.Error("one byte more than the bound was taken")
	}
}
