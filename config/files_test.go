package config_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenantry/config"
)

func TestFilesSettings(t *testing.T) {
	t.Parallel()
	const (
		secretText = "hunter2-hunter2"
		server     = "files: {store: s3, s3: {endpoint: 'https://s3.example.com', bucket: tenantry, access_key: k, secret_key: " + secretText
	)
	for _, test := range []struct {
		yaml string
		want []string // beginnings of the lines of the error
	}{
		{"files: {store: folder, folder: /srv/files}", nil},
		{server + "}}", nil},
		{server + ", region: eu-central-1, prefix: apps/tenantry/, path_style: true}}", nil},
		{server + ", endpoint: 'http://127.0.0.1:9000/'}}", []string{"files.s3: endpoint is set twice"}},
		{"files: {store: disk}", []string{"files.store: must be folder or s3"}},
		{"files: {store: ''}", []string{"files.store: must be folder or s3"}},
		{"files: {s3: {bucket: x}}", []string{"files.s3: needs files.store: s3"}},
		{"files: {s3: {secret_key: " + secretText + "}}", []string{"files.s3: needs files.store: s3"}},
		{strings.Replace(server, "store: s3", "store: s3, folder: /srv", 1) + "}}", []string{"files.folder: needs files.store: folder"}},
		{server + ", prefix: ../x}}", []string{"files.s3.prefix: must be like"}},
		{server + ", prefix: a//b}}", []string{"files.s3.prefix: must be like"}},
		{server + ", prefix: " + strings.Repeat("p", 201) + "}}", []string{"files.s3.prefix: must be like"}},
		{"files: {store: s3}", []string{
			"files.s3.access_key: name", "files.s3.bucket: name", "files.s3.endpoint: is not set", "files.s3.secret_key: set"}},
	} {
		_, err := loadYAML(t, test.yaml)
		var lines []string
		if err != nil {
			lines = strings.Split(err.Error(), "\n")
			if strings.Contains(err.Error(), secretText) {
				t.Errorf("%s: got the secret in %v", test.yaml, err)
			}
		}
		good := len(lines) == len(test.want)
		for i := range min(len(lines), len(test.want)) {
			good = good && strings.HasPrefix(lines[i], test.want[i])
		}
		if !good {
			t.Errorf("%s: got %q, want %q", test.yaml, lines, test.want)
		}
	}
	for setting, tt := range map[string]struct{ good, bad []string }{
		"files.s3.endpoint": {[]string{"http://127.0.0.1:9000/", "https://s3.eu-central-1.amazonaws.com"}, []string{
			"s3.example.com", "ftp://s3.example.com", "https://", "https://k:s@h", "https://h/bucket", "https://h?x=1", "https://h#x", "https://[::1"}},
		"files.s3.bucket": {[]string{"abc", "a.b-c", strings.Repeat("a", 63)}, []string{"ab", "Abc", "-ab", "ab.", "a/b", strings.Repeat("a", 64)}},
	} {
		for want, values := range map[bool][]string{true: tt.good, false: tt.bad} {
			for _, value := range values {
				_, err := loadYAML(t, server+"}}", "TENANTRY_"+strings.ToUpper(strings.ReplaceAll(setting, ".", "__"))+"="+value)
				if (err == nil) != want || err != nil && !strings.HasPrefix(err.Error(), setting+": ") {
					t.Errorf("%s %q: got %v, want (err == nil) = %v", setting, value, err, want)
				}
			}
		}
	}
}

func TestFilesFromVariables(t *testing.T) {
	t.Parallel()
	c, err := loadYAML(t, "data: d", "TENANTRY_FILES__STORE=s3", "TENANTRY_FILES__S3__ENDPOINT=https://h", "TENANTRY_FILES__S3__BUCKET=abc",
		"TENANTRY_FILES__S3__ACCESS_KEY=k", "TENANTRY_FILES__S3__SECRET_KEY=s", "TENANTRY_FILES__S3__PATH_STYLE=true")
	if err != nil {
		t.Fatal(err)
	}
	if c.Files.S3.SecretKey.Reveal() != "s" || !c.Files.S3.PathStyle {
		t.Errorf("got %+v, want the values of the variables", c.Files)
	}
	for folder, want := range map[string]string{"": filepath.Join("/data", "files"), "/srv/files": "/srv/files"} {
		c := config.Config{Data: "/data", Files: config.Files{Folder: folder}}
		if diff := cmp.Diff(want, c.FilesDir()); diff != "" {
			t.Errorf("folder %q: %s", folder, diff)
		}
	}
}
