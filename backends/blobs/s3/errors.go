package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/minio/minio-go/v7"

	"tenantry/backends/blobs"
)

// maxReason bounds the bytes of a server's message in an error.
const maxReason = 300

// translate turns an error of the library into one of package blobs. Its cause is not wrapped, because its context
// errors are not those of the caller.
func (b *Bucket) translate(ctx context.Context, err error) error {
	code, status := codeOf(err)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, blobs.ErrNotFound):
		return err
	case code == minio.NoSuchKey:
		return blobs.ErrNotFound
	case isFull(code), status == http.StatusInsufficientStorage:
		return fmt.Errorf("%w: %s: %s", blobs.ErrFull, b, reason(err))
	}
	return fmt.Errorf("%w: %s: %s", blobs.ErrUnavailable, b, reason(err))
}

// isFull reports whether a server has no room, by its disk or a quota.
func isFull(code string) bool {
	switch code {
	case "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "QuotaExceeded", "InsufficientStorage",
		"InsufficientCapacity", "StorageFull":
		return true
	}
	return false
}

// codeOf returns the code and the status of a server's answer; empty and 0: it did not answer.
func codeOf(err error) (code string, status int) {
	var answer minio.ErrorResponse
	if errors.As(err, &answer) {
		return answer.Code, answer.StatusCode
	}
	return "", 0
}

// reason returns the cause of an error in one line, without addresses of requests.
func reason(err error) string {
	code, status := codeOf(err)
	if code != "" {
		return fmt.Sprintf("%.100s: %.*q, status %d", code, maxReason, err.Error(), status)
	}
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errSilent) {
		return errSilent.Error()
	}
	return fmt.Sprintf("%.*s", maxReason, err.Error())
}
