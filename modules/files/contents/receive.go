package contents

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"

	"tenantry/backends/blobs"
	"tenantry/internal/deliver"
	"tenantry/internal/diskroom"
	"tenantry/internal/fault"
	"tenantry/internal/picture"
	"tenantry/tenants"
)

const (
	copyBuffer = 64 << 10 // bytes of an upload in memory
	firstBytes = 1 << 10  // that show the type
)

// Receive reads bytes of an organization into a temporary file until src ends. What is arriving in this process counts
// with what is stored against the limit of the organization, until the Arrival is closed; t is nil for bytes that count
// already. Errors: those of src, *store.QuotaError, blobs.ErrFull, store.ErrUnavailable.
func (k *Keeper) Receive(ctx context.Context, t *tenants.Tenant, src io.Reader) (*Arrival, error) {
	a, cut, err := k.ReceiveSome(ctx, t, src)
	if err == nil && cut != nil {
		_ = a.Close()
		return nil, cut
	}
	return a, err
}

// ReceiveSome is Receive for bytes of which a beginning is of use: cut is the error of src that ended them.
func (k *Keeper) ReceiveSome(ctx context.Context, t *tenants.Tenant, src io.Reader) (_ *Arrival, cut, err error) {
	if err := os.MkdirAll(k.Incoming, 0o700); err != nil {
		return nil, nil, full(err)
	}
	file, err := os.CreateTemp(k.Incoming, "file-*")
	if err != nil {
		return nil, nil, full(err)
	}
	a := &Arrival{file: file}
	defer func() {
		if err != nil {
			_ = a.Close()
		}
	}()
	to, err := k.counted(ctx, t, a, diskroom.Reserve{Folder: k.Incoming, Bytes: k.Reserve}.Writer(file))
	if err == nil {
		cut, err = a.read(ctx, src, to)
	}
	if err != nil {
		return nil, nil, full(err)
	}
	a.plain, _, err = picture.Plain(file, a.Size)
	if errors.Is(err, picture.ErrUnsupported) || errors.Is(err, picture.ErrBroken) || errors.Is(err, picture.ErrTooLarge) {
		err = nil // no picture that could be shown to the public without its metadata
	}
	return a, cut, err
}

// read copies src to a writer, and notes size, sum and type of the bytes. cut is an error of src or the context, err one
// of the writer.
func (a *Arrival) read(ctx context.Context, src io.Reader, to io.Writer) (cut, err error) {
	sum, first, from := sha256.New(), &head{}, &source{ctx: ctx, Reader: src}
	a.Size, err = io.CopyBuffer(writeOnly{io.MultiWriter(to, sum, first)}, from, make([]byte, copyBuffer))
	if from.err != nil {
		err = nil
	}
	sum.Sum(a.Sum[:0])
	a.Media = deliver.Sniff(first.bytes)
	return from.err, err
}

// source reads until the context ends, and keeps the error that ends it. It has no methods by which io.CopyBuffer would
// avoid its buffer.
type source struct {
	ctx context.Context //nolint:containedctx // of the copy
	io.Reader
	err error
}

func (s *source) Read(p []byte) (n int, err error) {
	if s.ctx.Err() != nil {
		s.err = context.Cause(s.ctx)
		return 0, s.err
	}
	if n, err = s.Reader.Read(p); err != nil && err != io.EOF { // io.Reader returns it as it is
		s.err = err
	}
	return n, err
}

type writeOnly struct{ io.Writer }

// head keeps the first bytes that are written.
type head struct{ bytes []byte }

func (h *head) Write(p []byte) (int, error) {
	h.bytes = append(h.bytes, p[:min(len(p), firstBytes-len(h.bytes))]...)
	return len(p), nil
}

// full makes an error of the file system that says it is full a blobs.ErrFull.
func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return errors.Join(blobs.ErrFull, err)
	}
	return err
}

// CheckDigest returns a fault unless a Content-Digest (RFC 9530) is one that Arrival.CheckDigest can compare, or empty.
func CheckDigest(header string) error {
	if header == "" {
		return nil
	}
	_, err := parseDigest(header)
	return err
}

// parseDigest returns the SHA-256 in a Content-Digest.
func parseDigest(header string) ([]byte, error) {
	for one := range strings.SplitSeq(header, ",") {
		algorithm, value, _ := strings.Cut(strings.TrimSpace(one), "=")
		if !strings.EqualFold(algorithm, "sha-256") {
			continue
		}
		value, colons := strings.CutPrefix(value, ":")
		value, closed := strings.CutSuffix(value, ":")
		sum, err := base64.StdEncoding.DecodeString(value)
		if !colons || !closed || err != nil || len(sum) != sha256.Size {
			return nil, fault.One("Content-Digest", fault.Format, "Content-Digest must be like sha-256=:<base64 of 32 bytes>:")
		}
		return sum, nil
	}
	return nil, fault.One("Content-Digest", fault.Unknown, "Content-Digest must have a sha-256 digest; others are not checked")
}

// Digest returns a digest of the bytes as the fields Content-Digest and Repr-Digest of RFC 9530 have it.
func Digest(sum []byte) string { return "sha-256=:" + base64.StdEncoding.EncodeToString(sum) + ":" }
