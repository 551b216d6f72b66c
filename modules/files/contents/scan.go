package contents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
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
	client := &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       scanTime,
	}
	return func(ctx context.Context, t *tenants.Tenant, a *Arrival) error {
		file, err := a.File()
		if err != nil {
			return err
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, io.NopCloser(file)) // Close would close the file
		if err != nil {
			return err
		}
		r.ContentLength = a.Size
		if a.Size == 0 {
			r.Body = http.NoBody
		}
		r.Header.Set("Content-Type", a.Media)
		r.Header.Set("X-Organization", strconv.FormatInt(t.Org.OrgID, 10))
		if !token.IsZero() {
			r.Header.Set("Authorization", "Bearer "+token.Reveal())
		}
		answer, err := client.Do(r)
		if err != nil {
			return unscanned(err)
		}
		defer func() { _ = answer.Body.Close() }()
		_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, copyBuffer)) // so that the connection can be used again
		switch answer.StatusCode {
		case http.StatusForbidden, http.StatusNotAcceptable, http.StatusConflict, http.StatusUnprocessableEntity:
			return ErrRefused
		}
		if answer.StatusCode/100 == 2 {
			return nil
		}
		return unscanned(fmt.Errorf("it answered %s", answer.Status))
	}
}

// unscanned explains that a file was not judged.
func unscanned(err error) error {
	problem := operation.Unavailable(errors.Join(errUnscanned, err))
	problem.Reason = "the scanner of files does not answer"
	problem.Message = "The file could not be scanned, so nothing of it was stored. Please retry later"
	return problem
}

var errUnscanned = errors.New("the scanner of files does not answer")
