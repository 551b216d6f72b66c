package gateway

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tenantry/backends/blobs/blobtest"
	"tenantry/config"
	"tenantry/crypto/secret"
)

// bucketOf opens the bucket of the settings, and returns what was logged.
func bucketOf(t *testing.T, files config.Files, data string) (*Services, string, error) {
	t.Helper()
	var logged strings.Builder
	s := &Services{cfg: config.Config{Data: data, Files: files}, log: slog.New(slog.NewTextHandler(&logged, nil))}
	err := s.openBucket(t.Context())
	t.Cleanup(func() {
		if err := s.closeBucket(); err != nil {
			t.Errorf("closeBucket() = %v", err)
		}
	})
	return s, logged.String(), err
}

func TestOpenFolderOfFiles(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	s, _, err := bucketOf(t, config.Files{Store: config.FilesFolder}, data)
	if err != nil {
		t.Fatal(err)
	}
	blobtest.Put(t, s.bucket, "a/b", []byte("x"))
	if got, err := os.ReadFile(filepath.Join(data, "files", "a", "b")); err != nil || string(got) != "x" {
		t.Errorf("read %q, %v, want the object in the folder files", got, err)
	}
	file := blobtest.TempFile(t, nil).Name()
	if _, _, err := bucketOf(t, config.Files{Store: config.FilesFolder, Folder: file}, data); err == nil ||
		!strings.Contains(err.Error(), "files.folder") || !strings.Contains(err.Error(), file) {
		t.Errorf("a file as the folder: got %v, want an error with the setting and the path", err)
	}
}

func TestOpenBucketOfServer(t *testing.T) {
	t.Parallel()
	const secretText = "canary-secret"
	refuse := func(status int, code string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "<Error><Code>"+code+"</Code></Error>")
		}
	}
	for name, test := range map[string]struct {
		answer http.HandlerFunc // nil: nobody listens
		err    string           // "": none, but a warning
	}{
		"no bucket": {refuse(http.StatusNotFound, "NoSuchBucket"), "create it"},
		"wrong key": {refuse(http.StatusForbidden, "SignatureDoesNotMatch"), "correct the access key"},
		"no server": {nil, ""},
		"broken":    {refuse(http.StatusInternalServerError, "InternalError"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(test.answer)
			t.Cleanup(server.Close)
			endpoint := server.URL
			if test.answer == nil {
				endpoint = "http://127.0.0.1:1"
			}
			s, logged, err := bucketOf(t, config.Files{Store: config.FilesS3, S3: config.S3{
				Endpoint: endpoint, Region: "us-east-1", Bucket: "tests", AccessKey: "k", SecretKey: secret.New(secretText),
			}}, t.TempDir())
			text := logged
			if err != nil {
				text = err.Error()
			}
			if (err == nil) != (test.err == "") || !strings.Contains(text, test.err) || !strings.Contains(text, endpoint) ||
				strings.Contains(text, secretText) {
				t.Errorf("got %v and the log %q, want %q with the endpoint", err, logged, test.err)
			}
			if err == nil && s.bucket == nil {
				t.Error("got no bucket")
			}
		})
	}
}
