package backup

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Listed is a backup in a Survey.
type Listed struct {
	Name          string    `json:"name"`
	Ended         time.Time `json:"ended,omitzero"`
	Organizations int       `json:"organizations"`
	Documents     int64     `json:"documents"`
	Bytes         int64     `json:"bytes"`
	Keyring       string    `json:"keyring"` // as in Manifest
	Files         bool      `json:"files"`
	Damaged       []string  `json:"damaged"`         // as in Manifest
	Fault         string    `json:"fault,omitempty"` // why it cannot be restored
}

// Seconds are all seconds from First to Last.
type Seconds struct {
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// Survey says what a place can be restored to.
type Survey struct {
	Installation string   `json:"installation"` // of the newest readable backup
	Backups      []Listed `json:"backups"`      // the newest first
	// Seconds can be restored by the log of changes, the newest first.
	Seconds []Seconds `json:"seconds"`
}

// Survey returns what a place can be restored to, by the manifests and the log alone: no database and no page is read.
// Errors: ErrNone; those of blobs.Bucket.
func (d *Depot) Survey(ctx context.Context) (*Survey, error) {
	names, err := d.list(ctx)
	if err != nil {
		return nil, err
	}
	x := &logIndex{}
	if d.folder != "" {
		if x, err = readIndex(d.folder, time.Time{}); err != nil {
			return nil, err
		}
	}
	x.now = time.Now()
	found := &Survey{Backups: []Listed{}, Seconds: []Seconds{}}
	var all []span
	for _, name := range names {
		m, err := d.read(ctx, name)
		if errors.Is(err, ErrDamaged) {
			found.Backups = append(found.Backups, Listed{Name: name, Fault: err.Error(), Damaged: []string{}})
			continue
		}
		if err != nil {
			return nil, err
		}
		if found.Installation == "" {
			found.Installation = m.Installation
		}
		found.Backups = append(found.Backups, Listed{
			Name: name, Ended: m.Ended, Organizations: m.Organizations, Documents: m.Documents, Bytes: m.Bytes,
			Keyring: m.Keyring, Files: m.Files != nil, Damaged: m.Damaged,
		})
		covered, _ := x.spans(m)
		all = append(all, covered...)
	}
	for _, s := range slices.Backward(merge(all)) {
		found.Seconds = append(found.Seconds, Seconds{s.first, s.last})
	}
	return found, nil
}
