package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"tenantry/crypto/secret"
)

// Backup says when the gateway backs itself up, and where to.
type Backup struct {
	// To is the place of backups: the absolute path of a folder, or a bucket of the server S3 as s3://bucket/prefix.
	// Empty: the gateway makes none by itself.
	To string `yaml:"to"`
	// At are the times of the day, as HH:MM in UTC.
	At []string `yaml:"at"`
	// Keep is how many backups remain in the folder; 0: all.
	Keep int `yaml:"keep"`
	// Log is how long the log of changes is kept, with which a backup becomes the state of any later second; 0: there is
	// none.
	Log time.Duration `yaml:"log"`
	// Recipient is the age recipient that the keyring is encrypted to; empty: backups have no keyring.
	Recipient string `yaml:"recipient"`
	// WithoutFiles leaves the bytes of files out.
	WithoutFiles bool `yaml:"without_files"`
	// S3 is the server of places like s3://bucket/prefix.
	S3 BackupServer `yaml:"s3"`
}

// BackupServer is an S3-compatible server. The settings are those of S3.
type BackupServer struct {
	Endpoint  string        `yaml:"endpoint"`
	Region    string        `yaml:"region"`
	AccessKey string        `yaml:"access_key"`
	SecretKey secret.String `yaml:"secret_key"`
	PathStyle bool          `yaml:"path_style"`
}

// bucketScheme begins places that are buckets.
const bucketScheme = "s3://"

// IsBucket reports whether a place of backups is a bucket, and not a folder.
func IsBucket(place string) bool { return strings.HasPrefix(place, bucketScheme) }

// Bucket returns the bucket that a place like s3://bucket/prefix names. Error: the place or the settings of the server
// cannot be used; it says why.
func (b *Backup) Bucket(place string) (S3, error) {
	name, prefix, _ := strings.Cut(strings.TrimPrefix(place, bucketScheme), "/")
	s := S3{
		Endpoint: b.S3.Endpoint, Region: b.S3.Region, Bucket: name, Prefix: strings.Trim(prefix, "/"),
		AccessKey: b.S3.AccessKey, SecretKey: b.S3.SecretKey, PathStyle: b.S3.PathStyle,
	}
	var faults []error
	s.check("backup.s3", func(setting, format string, args ...any) {
		if setting == "backup.s3.bucket" || setting == "backup.s3.prefix" {
			setting = "s3://bucket/prefix" // it is no setting
		}
		faults = append(faults, fmt.Errorf(setting+": "+format, args...))
	})
	return s, errors.Join(faults...)
}

const (
	timeOfDay    = "15:04"
	maxBackups   = 10_000 // in a folder, and in a day
	minBackupLog = time.Hour
)

var ageRecipient = regexp.MustCompile(`^age1[0-9a-z]{50,1000}$`)

func (b *Backup) check(fault func(name, format string, args ...any)) {
	switch {
	case IsBucket(b.To):
		if _, err := b.Bucket(b.To); err != nil {
			fault("backup.to", "%.100q cannot be used: %s", b.To, strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	case b.To != "" && !filepath.IsAbs(b.To):
		fault("backup.to", "must be the whole path of a folder, s3://bucket/prefix, or empty")
	}
	for _, at := range b.At {
		if _, err := time.Parse(timeOfDay, at); err != nil {
			fault("backup.at", "must be times of the day (UTC) like 03:00, not %.20q", at)
		}
	}
	if len(b.At) > maxBackups || b.To != "" && len(b.At) == 0 {
		fault("backup.at", "must name a time of the day, such as 03:00")
	}
	if b.Keep < 0 || b.Keep > maxBackups {
		fault("backup.keep", "must be from 0 (all) to %d", maxBackups)
	}
	if b.Log != 0 && b.Log < minBackupLog {
		fault("backup.log", "must be at least 1h, like 168h for 7 days, or 0 for no log of changes")
	}
	if b.Log != 0 && (b.To == "" || IsBucket(b.To)) {
		fault("backup.log", "needs a folder: set backup.to")
	}
	if b.Recipient != "" && !ageRecipient.MatchString(b.Recipient) {
		fault("backup.recipient", "must be the public half of an age key (age1…), which age-keygen prints")
	}
}

// Due returns the latest time, not after now, at which a backup was to be made. It is zero if there is none.
func (b *Backup) Due(now time.Time) (due time.Time) {
	now = now.UTC()
	today := now.Truncate(24 * time.Hour)
	for _, text := range b.At {
		at, err := time.Parse(timeOfDay, text)
		if err != nil {
			continue // check has refused it
		}
		one := today.Add(time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute)
		if one.After(now) {
			one = one.Add(-24 * time.Hour)
		}
		if one.After(due) {
			due = one
		}
	}
	return due
}
