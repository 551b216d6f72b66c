// Package blobs stores the bytes of files as objects in a bucket: a folder (Folder), or a bucket of an S3-compatible
// server (package s3). All pass the suite in package blobtest.
package blobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"regexp"
	"strings"
	"time"
)

// The errors that methods of a Bucket return, wrapped. Test with errors.Is. Other errors are those of the context and
// of the file that is stored.
var (
	// ErrNotFound: the bucket has no such object.
	ErrNotFound = errors.New("no such object")
	// ErrFull: there is no room for the object, on the disk, in its quota or on the server.
	ErrFull = errors.New("no room for the object")
	// ErrUnavailable: the bucket cannot answer now; the same call may succeed later. The text has the reason.
	ErrUnavailable = errors.New("the store of files is unavailable")
	// ErrName: the name or prefix is not one that CheckName or CheckPrefix accepts. It is a bug in the program.
	ErrName = errors.New("invalid name of an object")
)

// Bucket is a place for objects: bytes that never change. The name of an object is never given to another one, is not
// also the beginning of others ("a" and "a/b"), and differs from others by more than case. All methods are safe for
// concurrent use. They return ErrName for a name or prefix that is not valid, and the error of a context that has ended.
type Bucket interface {
	// Put stores the content of the file as an object, durable when it returns. It may move the file, which remains
	// open. The content must not change meanwhile. Storing the same object again is no error. Errors: ErrFull,
	// ErrUnavailable.
	Put(ctx context.Context, name string, file *os.File) error
	// Open returns an object for reading, and the caller must close it. Reads end with ctx. Errors: ErrNotFound,
	// ErrUnavailable.
	Open(ctx context.Context, name string) (Object, error)
	// Delete removes an object for good; one that does not exist is no error. Errors: ErrUnavailable.
	Delete(ctx context.Context, name string) error
	// List yields the objects whose names begin with the prefix, in the order of the bytes of their names, and reads on
	// as the caller consumes. The prefix is empty, for all objects, or whole segments like "a/b/". An error is the last
	// element. Errors: ErrUnavailable.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]
	// DeleteAll removes all objects whose names begin with the prefix, which must not be empty, and what interrupted
	// calls of Put have left of such objects. After an error a further call continues. Errors: ErrUnavailable.
	DeleteAll(ctx context.Context, prefix string) error
}

// Object is the content of an object at a position, at first its beginning. It is not safe for concurrent use. Seek
// reads nothing. Errors of Read, besides io.EOF: ErrUnavailable, or ErrNotFound if the object was deleted meanwhile.
type Object interface {
	io.ReadSeekCloser
	// Size returns the size in bytes.
	Size() int64
}

// Info describes an object.
type Info struct {
	Name   string
	Size   int64     // in bytes
	Stored time.Time // when it was stored; if it was moved into a folder, when its file was last written
}

// maxName is the greatest length of a name in bytes.
const maxName = 200

var validName = regexp.MustCompile(`^[a-zA-Z0-9_.-]+(/[a-zA-Z0-9_.-]+)*$`)

// CheckName returns ErrName unless the name is 1 to 200 bytes long and consists of segments of a-z, A-Z, 0-9, "_", "."
// and "-", joined by "/", of which none is "." or "..".
func CheckName(name string) error {
	if len(name) > maxName || !validName.MatchString(name) {
		return fmt.Errorf("%w: %.220q", ErrName, name)
	}
	for segment := range strings.SplitSeq(name, "/") {
		if segment == "." || segment == ".." {
			return fmt.Errorf("%w: %q", ErrName, name)
		}
	}
	return nil
}

// CheckPrefix returns ErrName unless the prefix is empty, or a name followed by "/".
func CheckPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	name, ok := strings.CutSuffix(prefix, "/")
	if !ok {
		return fmt.Errorf("%w: the prefix %.220q does not end with /", ErrName, prefix)
	}
	return CheckName(name)
}

// CheckErasure returns ErrName unless CheckPrefix accepts the prefix and it is not empty.
func CheckErasure(prefix string) error {
	if prefix == "" {
		return fmt.Errorf("%w: the empty prefix would delete all objects", ErrName)
	}
	return CheckPrefix(prefix)
}
