// Package s3test names the S3-compatible server that tests use.
package s3test

import (
	"crypto/rand"
	"net/url"
	"os"
	"strings"
	"testing"

	"tenantry/backends/blobs/s3"
	"tenantry/crypto/secret"
)

const variable = "TENANTRY_TEST_S3"

// IsSet reports whether there is a server.
func IsSet() bool { return os.Getenv(variable) != "" }

// Server returns the options of the bucket for tests, with a prefix of their own. It skips the test without a server.
func Server(t *testing.T) s3.Options {
	t.Helper()
	if !IsSet() {
		t.Skipf("%s is not set: start a server with .ci/s3/start, and set it to http://KEY:SECRET@HOST:PORT/BUCKET", variable)
	}
	u, err := url.Parse(os.Getenv(variable))
	if err != nil || u.User == nil {
		t.Fatalf("%s is not an address like http://KEY:SECRET@HOST:PORT/BUCKET", variable)
	}
	password, _ := u.User.Password()
	return s3.Options{
		Endpoint: u.Scheme + "://" + u.Host, Region: "us-east-1", Bucket: strings.Trim(u.Path, "/"),
		Prefix: "test-" + strings.ToLower(rand.Text()), AccessKey: u.User.Username(), SecretKey: secret.New(password), PathStyle: true,
	}
}
