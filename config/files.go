package config

import (
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"tenantry/crypto/secret"
)

// Where the bytes of files are.
const (
	FilesFolder = "folder"
	FilesS3     = "s3"
)

// Files says where the bytes of files are stored.
type Files struct {
	Store string `yaml:"store"` // FilesFolder or FilesS3
	// Folder is the folder of the store folder; empty: files in the data folder.
	Folder string `yaml:"folder"`
	S3     S3     `yaml:"s3"`
	// LinkLife is how long an address of a file is valid at least; it may be up to twice as long.
	LinkLife time.Duration `yaml:"link_life"`
	// Reserve is how many MiB of the disk of the data folder uploads leave free; 0: none.
	Reserve int `yaml:"reserve"`
	// Scan is the address of a scanner that judges files before they are stored; empty: none does. ScanToken is sent to it
	// as a bearer token.
	Scan      string        `yaml:"scan"`
	ScanToken secret.String `yaml:"scan_token"`
}

// S3 names a bucket of an S3-compatible server.
type S3 struct {
	// Endpoint is the address of the server, like https://s3.eu-central-1.amazonaws.com.
	Endpoint string `yaml:"endpoint"`
	// Region is the region of the bucket; empty: the server is asked.
	Region string `yaml:"region"`
	Bucket string `yaml:"bucket"`
	// Prefix is put before the names of objects, followed by a slash.
	Prefix    string        `yaml:"prefix"`
	AccessKey string        `yaml:"access_key"`
	SecretKey secret.String `yaml:"secret_key"`
	// PathStyle puts the name of the bucket into the path of every address, and not into the host name.
	PathStyle bool `yaml:"path_style"`
}

var (
	bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	keyPrefix  = regexp.MustCompile(`^[a-zA-Z0-9_-][a-zA-Z0-9_.-]*(/[a-zA-Z0-9_-][a-zA-Z0-9_.-]*)*/?$`)
)

const maxKeyPrefix = 200

// Bounds of Files.LinkLife: long enough to load a page, and short enough to end with a right.
const (
	minLinkLife = time.Minute
	maxLinkLife = 7 * 24 * time.Hour

	maxReserve = 1 << 20 // MiB
)

// ReserveBytes returns Reserve in bytes.
func (f *Files) ReserveBytes() int64 { return int64(f.Reserve) << 20 }

// check reports settings that cannot be used, and those that belong to another store, because they would be ignored.
func (f *Files) check(fault func(name, format string, args ...any)) {
	switch f.Store {
	case FilesFolder:
		if f.S3 != (S3{}) {
			fault("files.s3", "needs files.store: s3")
		}
	case FilesS3:
		if f.Folder != "" {
			fault("files.folder", "needs files.store: folder")
		}
		f.S3.check("files.s3", fault)
	default:
		fault("files.store", "must be folder or s3")
	}
	if f.LinkLife < minLinkLife || f.LinkLife > maxLinkLife {
		fault("files.link_life", "must be from 1m to 168h")
	}
	if f.Reserve < 0 || f.Reserve > maxReserve {
		fault("files.reserve", "must be a number of MiB from 0 to %d", maxReserve)
	}
	u, err := url.Parse(f.Scan)
	switch {
	case f.Scan == "" && !f.ScanToken.IsZero():
		fault("files.scan_token", "needs files.scan")
	case f.Scan == "":
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil:
		fault("files.scan", "is not an address like http://127.0.0.1:3310/scan; a token has a setting of its own")
	case u.Scheme == "http" && !isLoopback(u.Hostname()) && !f.ScanToken.IsZero():
		fault("files.scan_token", "would go to %s unencrypted: use https in files.scan, or a scanner on this machine", u.Host)
	}
}

// check reports settings of the section of that name that cannot be used.
func (s *S3) check(section string, fault func(name, format string, args ...any)) {
	u, err := url.Parse(s.Endpoint)
	if s.Endpoint == "" {
		fault(section+".endpoint", "is not set: name the server, such as https://s3.example.com")
	} else if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" ||
		strings.Trim(u.Path, "/") != "" || u.Fragment != "" {
		fault(section+".endpoint", "is not an address like https://s3.example.com; bucket and keys have settings of their own")
	}
	if !bucketName.MatchString(s.Bucket) {
		fault(section+".bucket", "name the bucket: 3 to 63 of a-z, 0-9, . and -, with a letter or digit at both ends")
	}
	if s.Prefix != "" && (!keyPrefix.MatchString(s.Prefix) || len(s.Prefix) > maxKeyPrefix) {
		fault(section+".prefix", "must be like tenantry or apps/tenantry, with at most %d characters", maxKeyPrefix)
	}
	if s.AccessKey == "" {
		fault(section+".access_key", "name the key with which the server is called")
	}
	if s.SecretKey.IsZero() {
		fault(section+".secret_key", "set the secret of %s.access_key", section)
	}
}

// FilesDir returns the folder of the store folder.
func (c *Config) FilesDir() string {
	if c.Files.Folder != "" {
		return c.Files.Folder
	}
	return filepath.Join(c.Data, "files")
}
