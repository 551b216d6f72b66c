package s3_test

import (
	"strings"
	"testing"

	"tenantry/backends/blobs"
	"tenantry/backends/blobs/blobtest"
	"tenantry/backends/blobs/s3"
	"tenantry/backends/blobs/s3/s3test"
	"tenantry/crypto/secret"
	"tenantry/internal/maintest"
)

func TestMain(m *testing.M) { maintest.Leakless(m) }

// variable names the bucket of a server for tests.
func open(t *testing.T, o s3.Options) *s3.Bucket {
	t.Helper()
	b, err := s3.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func TestServer(t *testing.T) {
	t.Parallel()
	s3test.Server(t)
	blobtest.Run(t, func(t *testing.T) blobs.Bucket {
		t.Helper()
		return open(t, s3test.Server(t))
	}, blobtest.LostDirectories) // of VersityGW, which .ci/s3/start starts
}

func TestCheckServer(t *testing.T) {
	t.Parallel()
	o := s3test.Server(t)
	b := open(t, o)
	if err := b.Check(t.Context()); err != nil {
		t.Errorf("Check() = %v, want no error", err)
	}
	if names := blobtest.Names(t, b, ""); len(names) != 0 {
		t.Errorf("Check left %v, want nothing", names)
	}
	for name, test := range map[string]struct {
		change func(o *s3.Options)
		want   []string
	}{
		"no such bucket": {func(o *s3.Options) { o.Bucket = "no-such-bucket" }, []string{`"no-such-bucket"`, "does not exist", "create it"}},
		"other secret":   {func(o *s3.Options) { o.SecretKey = secret.New("canary-secret") }, []string{"the secret key"}},
		"other key":      {func(o *s3.Options) { o.AccessKey = "stranger" }, []string{"the access key"}},
		"other region":   {func(o *s3.Options) { o.Region = "eu-north-9" }, []string{"region"}},
	} {
		wrong := o
		test.change(&wrong)
		err := open(t, wrong).Check(t.Context())
		if err == nil {
			t.Errorf("%s: Check() = nil, want an error", name)
			continue
		}
		for _, want := range append(test.want, o.Endpoint, wrong.Bucket) {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %q, want %q in it", name, err, want)
			}
		}
		if strings.Contains(err.Error(), wrong.SecretKey.Reveal()) {
			t.Errorf("%s: got the secret in %q", name, err)
		}
	}
}
