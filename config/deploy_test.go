package config_test

import (
	"go/version"
	"os"
	"regexp"
	"testing"

	"tenantry/config"
)

// TestDeploySettings checks that the settings of the Compose file load, and that only hosts of the domain in PUBLIC_URL
// are answered.
func TestDeploySettings(t *testing.T) {
	t.Parallel()
	compose, err := os.ReadFile("../deploy/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	given := map[string]string{
		"MONGO_PASSWORD": "p", "REDIS_PASSWORD": "p", "ADMIN_TOKEN": "0123456789abcdef", "PUBLIC_URL": "https://{slug}.example.com", "SUBNET": "172.30.90.0/24",
	}
	var environ []string
	for _, m := range regexp.MustCompile(`(?m)^    (TENANTRY_[A-Z_]+): (.*)$`).FindAllSubmatch(compose, -1) {
		value := regexp.MustCompile(`\$\{([A-Z_]+):[^}]*\}`).ReplaceAllStringFunc(string(m[2]), func(text string) string {
			name := regexp.MustCompile(`[A-Z_]+`).FindString(text)
			if given[name] == "" {
				t.Errorf("compose.yaml uses the variable %s, which this test does not set", name)
			}
			return given[name]
		})
		environ = append(environ, string(m[1])+"="+regexp.MustCompile(`^"|"$`).ReplaceAllString(value, ""))
	}
	if len(environ) < 5 {
		t.Fatalf("got the settings %q, want at least 5", environ)
	}
	c, err := config.Load(config.Source{File: "../deploy/tenantry.yaml", Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range c.Warnings {
		t.Errorf("got the warning %+v, want none", w)
	}
	if c.BaseDomain != "example.com" || c.Admin.Token.Reveal() != given["ADMIN_TOKEN"] {
		t.Errorf("got base domain %q and token %q, want example.com and %q", c.BaseDomain, c.Admin.Token.Reveal(),
			given["ADMIN_TOKEN"])
	}
}

// TestDeployImages checks that images are named by digest, because the owner of a tag can change its image.
func TestDeployImages(t *testing.T) {
	t.Parallel()
	for path, pattern := range map[string]string{"../deploy/compose.yaml": `(?m)^    image: (.*)$`, "../deploy/Dockerfile": `(?m)^FROM (\S+)`} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		images := regexp.MustCompile(pattern).FindAllSubmatch(text, -1)
		if len(images) < 2 {
			t.Errorf("%s: got %d images, want at least 2", path, len(images))
		}
		for _, m := range images {
			if !regexp.MustCompile(`^[a-z0-9./-]+:[a-z0-9.-]+@sha256:[0-9a-f]{64}$`).Match(m[1]) {
				t.Errorf("%s: got image %s, want one named by digest", path, m[1])
			}
		}
	}
}

// TestOneGoVersion checks that the image, CI and the benchmarks use the version of Go that go.mod names.
func TestOneGoVersion(t *testing.T) {
	t.Parallel()
	find := func(path, pattern string) string {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(pattern).FindSubmatch(text)
		if m == nil {
			t.Fatalf("%s: got no match of %s", path, pattern)
		}
		return string(m[len(m)-1])
	}
	named := find("../go.mod", `(?m)^toolchain (go[0-9.]+)$`)
	if measured := find("../docs/benchmarks.md", `kernel \S+, Go ([0-9.]+),`); "go"+measured != named {
		t.Errorf("docs/benchmarks.md has Go %s, want %s as in go.mod", measured, named)
	}
	// With auto, an image with an older compiler downloads the one that go.mod names; a newer one would be used itself.
	image := "go" + find("../deploy/Dockerfile", `(?s)\nFROM golang:([0-9.]+)@[^\n]* AS build\n[^\n]*\n#[^\n]*\nENV GOTOOLCHAIN=auto\n`)
	if version.Compare(image, named) > 0 {
		t.Errorf("the image has %s, want at most %s as in go.mod", image, named)
	}
	find("../.ci/run", `(?m)^(GOTOOLCHAIN=\$\(sed -n 's/\^toolchain //p' go\.mod\))`)
}

func TestBaseDomainFollowsFromPublicURL(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ public, base, want string }{
		{"https://{slug}.example.com", "", "example.com"}, {"http://{slug}.localhost:8080", "", "localhost"}, {"https://{slug}.a.example.com/", "", "a.example.com"},
		{"https://{slug}.example.com", "other.example", "other.example"}, {"https://example.com/{slug}", "", ""}, {"https://x-{slug}.example.com", "", ""}, {"", "", ""},
	} {
		flags := map[string]string{"public_url": test.public}
		if test.base != "" {
			flags["base_domain"] = test.base
		}
		c, err := config.Load(config.Source{Flags: flags})
		if err != nil || c.BaseDomain != test.want {
			t.Errorf("%+v: got base domain %q, %v, want %q", test, c.BaseDomain, err, test.want)
		}
	}
}
