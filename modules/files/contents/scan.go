package contents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"tenantry/crypto/secret"
	"tenantry/operation"
	"tenantry/tenants"
)

// scanTime bounds one judgement of a scanner.
const scanTime = 2 * time.Minute

// ScanBy returns an Options.Scan that asks a scanner over HTTP: it posts the bytes, and a 2xx accepts them, a 403, 406,
// 409 or 422 refuses them. Any other answer, and none, is an outage: nothing is stored without a judgement. The scanner
// learns size, type and organization, not the name of the file. Redirects are not followed.
func ScanBy(address string, token secret.String) func(context.Context, *tenants.Tenant, *Arrival) error {
	s := newScanner(address, token)
	return func(ctx context.Context, t *tenants.Tenant, a *Arrival) error {
		file, err := a.File()
		if err != nil {
			return err
		}
		accepted, err := s.judge(ctx, file, a.Size, a.Media, strconv.FormatInt(t.Org.OrgID, 10))
		switch {
		case err != nil:
			return unscanned(err)
		case !accepted:
			return ErrRefused
		}
		return nil
	}
}

// ReachScanner has a scanner judge an empty text, and returns an error unless it does.
func ReachScanner(ctx context.Context, address string, token secret.String) error {
	s := newScanner(address, token)
	defer s.client.CloseIdleConnections()
	_, err := s.judge(ctx, strings.NewReader(""), 0, "text/plain", "")
	if err != nil {
		err = fmt.Errorf("%w: %w", errUnscanned, err)
	}
	return err
}

type scanner struct {
	address string
	token   secret.String
	client  *http.Client
}

func newScanner(address string, token secret.String) *scanner {
	return &scanner{address, token, &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       scanTime,
	}}
}

// judge reports whether the scanner accepts the bytes. It returns an error if the scanner did not say.
func (s *scanner) judge(ctx context.Context, src io.Reader, size int64, media, org string) (accepted bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.address, io.NopCloser(src)) // Close would close the file
	if err != nil {
		return false, err
	}
	r.ContentLength = size
	if size == 0 {
		r.Body = http.NoBody
	}
	r.Header.Set("Content-Type", media)
	if org != "" {
		r.Header.Set("X-Organization", org)
	}
	if !s.token.IsZero() {
		r.Header.Set("Authorization", "Bearer "+s.token.Reveal())
	}
	answer, err := s.client.Do(r)
	if err != nil {
		return false, err
	}
	defer func() { _ = answer.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, copyBuffer)) // so that the connection can be used again
	switch answer.StatusCode {
	case http.StatusForbidden, http.StatusNotAcceptable, http.StatusConflict, http.StatusUnprocessableEntity:
		return false, nil
	}
	if answer.StatusCode/100 != 2 {
		return false, fmt.Errorf("it answered %s", answer.Status)
	}
	return true, nil
}

// unscanned explains that a file was not judged.
func unscanned(err error) error {
	problem := operation.Unavailable(errors.Join(errUnscanned, err))
	problem.Reason = fmt.Sprintf("%v: %v", errUnscanned, err)
	problem.Message = "The file could not be scanned, so nothing of it was stored. Please retry later"
	return problem
}

var errUnscanned = errors.New("the scanner of files does not answer")
