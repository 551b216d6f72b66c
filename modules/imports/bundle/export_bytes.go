package bundle

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"tenantry/backends/store"
)

// hashLen is the length of a hash of bytes that are kept here.
const hashLen = 20

// hashMemory is the memory that an export with files takes for each of them.
const hashMemory = 2 * hashLen

// hashSet are the hashes of the bytes that exported records have, in any order.
type hashSet struct{ all [][hashLen]byte }

// note adds the hash of a record that has bytes.
func (h *hashSet) note(rec any) {
	if h == nil {
		return
	}
	held, is := rec.(holder)
	if !is {
		return
	}
	if hash, _, _, sum := held.Content(); sum != "" && len(hash) == 2*hashLen {
		var one [hashLen]byte
		if _, err := hex.Decode(one[:], []byte(hash)); err == nil {
			h.all = append(h.all, one)
		}
	}
}

// sorted returns each hash once, in order.
func (h *hashSet) sorted() [][hashLen]byte {
	slices.SortFunc(h.all, func(a, b [hashLen]byte) int { return bytes.Compare(a[:], b[:]) })
	h.all = slices.Compact(h.all)
	return h.all
}

// archiveTime is the time of every entry, so that exports of the same records are equal.
func archiveTime() time.Time { return time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC) }

// newEntry begins an entry of an archive that is written as a stream.
func newEntry(z *zip.Writer, name string) (io.Writer, error) {
	return z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store, Modified: archiveTime()})
}

// namedAtOnce is how many contents are looked up together.
const namedAtOnce = 500

// MissingBytesError says that the bytes of a file cannot be exported.
type MissingBytesError struct {
	File string // identifier and name of a file that has them
	Hash string
	Err  error
}

func (e *MissingBytesError) Error() string {
	return fmt.Sprintf("the bytes of file %s (files/%s) cannot be exported: %v; restore them, or leave such files out with --skip-missing",
		e.File, e.Hash, e.Err)
}

// Unwrap returns the cause.
func (e *MissingBytesError) Unwrap() error { return e.Err }

// writeBytes writes the bytes of all files that were exported. Errors: *MissingBytesError, unless o.SkipMissing is set;
// those of w.
func (s *session) writeBytes(ctx context.Context, z *zip.Writer, o ExportOptions, out *ExportReport) error {
	for part := range slices.Chunk(s.hashes.sorted(), namedAtOnce) {
		names := make([]string, len(part))
		for i := range part {
			names[i] = hex.EncodeToString(part[i][:])
		}
		have, err := s.deps.Bytes.Named(ctx, s.tenant, names)
		if err != nil {
			return err
		}
		for _, hash := range names {
			size, err := s.writeFile(ctx, z, hash, have[hash], o.SkipMissing)
			var missing *MissingBytesError
			switch {
			case errors.As(err, &missing) && o.SkipMissing:
				out.Missing++
				if len(out.MissingFiles) < maxWarnings {
					out.MissingFiles = append(out.MissingFiles, missing.File)
				}
			case errors.Is(err, errPurged): // since its line was written
			case err != nil:
				return err
			default:
				out.Files++
				out.Bytes += size
			}
		}
	}
	return nil
}

var (
	// errOther: an object has other bytes than were stored.
	errOther = errors.New("they are not those that were stored")
	// errPurged: no record has the bytes any more.
	errPurged = errors.New("all files with these bytes were purged meanwhile")
)

// writeFile writes the bytes of a hash as an entry. With checkFirst it reads them before, so that bytes that are not
// whole are found before the entry begins. Errors: *MissingBytesError; errPurged, before the entry begins.
func (s *session) writeFile(
	ctx context.Context, z *zip.Writer, hash string, c Content, checkFirst bool,
) (size int64, err error) {
	missing := func(err error) error {
		if ctx.Err() != nil || errors.Is(err, store.ErrUnavailable) {
			return err
		}
		file, e := s.fileWith(ctx, hash)
		switch {
		case e != nil:
			return e
		case file == "":
			return errPurged
		}
		return &MissingBytesError{File: file, Hash: hash, Err: err}
	}
	if c.Checksum == "" {
		return 0, missing(ErrNoBytes)
	}
	if checkFirst {
		if err := s.copyBytes(ctx, io.Discard, hash, c); err != nil {
			return 0, missing(err)
		}
	}
	r, found, err := s.deps.Bytes.Open(ctx, s.tenant, hash)
	if err != nil {
		return 0, missing(err)
	}
	_ = r.Close() // before the entry begins, only whether there are bytes counts
	if found != c.Size {
		return 0, missing(fmt.Errorf("%w: %d bytes instead of %d", errOther, found, c.Size))
	}
	w, err := newEntry(z, filesFolder+hash)
	if err != nil {
		return 0, err
	}
	to := &noteWriter{Writer: w}
	if err := s.copyBytes(ctx, to, hash, c); err != nil {
		if to.err != nil {
			return 0, to.err
		}
		if err = missing(err); errors.Is(err, errPurged) { // the entry cannot be taken back
			err = errors.New("files/" + hash + ": " + errPurged.Error() + "; export again")
		}
		return 0, err
	}
	return c.Size, nil
}

// copyBytes writes the bytes of a hash. Errors: those of w and of Bytes.Open, errOther.
func (s *session) copyBytes(ctx context.Context, w io.Writer, hash string, c Content) error {
	r, _, err := s.deps.Bytes.Open(ctx, s.tenant, hash)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // it was only read
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(w, sum), contextReader{ctx, io.LimitReader(r, c.Size+1)}); err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != c.Checksum {
		return errOther
	}
	return nil
}

// noteWriter keeps the error of its writer.
type noteWriter struct {
	io.Writer
	err error
}

func (n *noteWriter) Write(p []byte) (int, error) {
	written, err := n.Writer.Write(p)
	if err != nil {
		n.err = err
	}
	return written, err
}

// fileWith returns the identifier and name of a file with those bytes, for people; empty: there is none.
func (s *session) fileWith(ctx context.Context, hash string) (string, error) {
	for _, k := range s.kinds {
		if !k.holds() {
			continue
		}
		found, err := k.Records.Find(ctx, s.workspace(k.Resource), store.Query{
			Filter: store.Eq(hashField, hash), State: store.Either, Limit: 1,
		})
		if err != nil {
			return "", err
		}
		if len(found) > 0 {
			return fmt.Sprintf("%s %q", k.Meta(found[0]).ID, k.displayName(found[0])), nil
		}
	}
	return "", nil
}
