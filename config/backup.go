package config

import (
	"path/filepath"
	"regexp"
	"time"
)

// Backup says when the gateway backs itself up, and where to.
type Backup struct {
	// To is the folder of backups, an absolute path; empty: the gateway makes none by itself.
	To string `yaml:"to"`
	// At are the times of the day, as HH:MM in UTC.
	At []string `yaml:"at"`
	// Keep is how many backups remain in the folder; 0: all.
	Keep int `yaml:"keep"`
	// Recipient is the age recipient that the keyring is encrypted to; empty: backups have no keyring.
	Recipient string `yaml:"recipient"`
	// WithoutFiles leaves the bytes of files out.
	WithoutFiles bool `yaml:"without_files"`
}

const (
	timeOfDay  = "15:04"
	maxBackups = 10_000 // in a folder, and in a day
)

var ageRecipient = regexp.MustCompile(`^age1[0-9a-z]{50,1000}$`)

func (b *Backup) check(fault func(name, format string, args ...any)) {
	if b.To != "" && !filepath.IsAbs(b.To) {
		fault("backup.to", "must be the whole path of a folder, or empty, not %.100q", b.To)
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
