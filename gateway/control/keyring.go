package control

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"tenantry/crypto/keyring"
	"tenantry/operation"
)

// EncryptionKey is a key of the keyring, without its bytes.
type EncryptionKey struct {
	Version   int       `json:"version"`
	State     string    `json:"state"`
	CreatedAt time.Time `json:"created_at" from:"Created"`
}

// Rotation is the result of a rotation of the keyring.
type Rotation struct {
	Version   int `json:"version"`
	Rewrapped int `json:"rewrapped"` // data keys that were wrapped under the new version
}

// Version names a key of the keyring.
type Version struct {
	Version int `json:"version" rule:"required min=1" arg:"the version"`
}

// Retired names a retired key of the keyring.
type Retired struct {
	State   string `json:"state"`
	Version int    `json:"version"`
}

// Reinstated names a key of the keyring that is in use again.
type Reinstated Retired

// keyring returns the commands of the keyring. They are recorded in the audit log of the installation, because a
// keyring belongs to no organization.
func (s *Server) keyring() Group {
	const short = "List, rotate and retire encryption keys; create a key for transfers"
	return Group{Name: "keyring", Short: short, Own: true, Commands: []Command{
		command(Command{
			Line: "keyring list", Short: "List encryption keys, by version",
			Table: "version, state, created=created_at",
		}, func(context.Context, *call, struct{}) ([]EncryptionKey, error) {
			return viewsOf[EncryptionKey](s.latestKeyring()), nil
		}),
		command(Command{
			Line: "keyring rotate", Short: "Rotate the primary encryption key: create a new one and wrap all data keys under it",
			Audit: operation.AuditAlways,
			Long: "Rotate the primary encryption key: create a new one and wrap all data keys under it. The data itself does not change.\n" +
				"Back up the keyring afterwards; without it encrypted values are lost.",
			Table: "version, data keys rewrapped=rewrapped",
		}, s.rotateKeyring),
		command(Command{
			Line: "keyring retire VERSION", Short: "Retire a former encryption key", Audit: operation.AuditAlways,
			Long: "Retire a former encryption key. Data keys still wrapped under it are wrapped under the primary first.\n" +
				"A backup from before then needs the retired version: tenantry keyring reinstate brings it back.",
			Table: "version, state",
		}, s.retireFromKeyring),
	}}
}

// latestKeyring returns the keys of the keyring. It reads the file again, because another replica may have changed it;
// if that fails, it returns what was read before.
func (s *Server) latestKeyring() []keyring.Info {
	_ = s.Keyring.Reload()
	return s.Keyring.List()
}

// rotateKeyring makes a new primary and wraps all data keys under it, so that the former primary can be retired. It can
// be repeated after a failure.
func (s *Server) rotateKeyring(ctx context.Context, c *call, _ struct{}) (Rotation, error) {
	version, err := s.Keyring.Rotate() //nolint:contextcheck // it bounds its own wait
	if err != nil {
		return Rotation{}, err
	}
	c.Note("version", strconv.Itoa(version)) // even if the rest fails
	s.Log.InfoContext(ctx, "the keyring was rotated", "primary", version, "subject", c.Principal.Subject())
	n, err := s.Directory.Rewrap(ctx)
	if err != nil {
		return Rotation{}, fmt.Errorf("version %d is the primary now, but not every data key is wrapped under it; "+
			"run tenantry keyring rotate again before you retire a version: %w", version, err)
	}
	c.addNote("Back up the keyring: without it encrypted values are lost.")
	return Rotation{Version: version, Rewrapped: n}, nil
}

// retireFromKeyring wraps all data keys under the primary before it retires a version, because data keys under a
// retired version cannot be read.
func (s *Server) retireFromKeyring(ctx context.Context, c *call, in Version) (Retired, error) {
	keys := s.latestKeyring()
	switch at := slices.IndexFunc(keys, func(k keyring.Info) bool { return k.Version == in.Version }); {
	case at < 0:
		return Retired{}, fail(CodeNotFound, "the keyring has no version %d; tenantry keyring list shows all versions",
			in.Version)
	case keys[at].State == keyring.Primary:
		return Retired{}, fail(CodeConflict, "version %d is the primary; make another with tenantry keyring rotate first",
			in.Version)
	}
	if _, err := s.Directory.Rewrap(ctx); err != nil {
		return Retired{}, fmt.Errorf("version %d was not retired, because data keys wrapped under it could not be rewrapped: %w",
			in.Version, err)
	}
	if err := s.Keyring.Retire(in.Version); err != nil { //nolint:contextcheck // it bounds its own wait
		return Retired{}, err
	}
	c.Note("version", strconv.Itoa(in.Version))
	s.Log.InfoContext(ctx, "a version of the keyring was retired", "version", in.Version, "subject", c.Principal.Subject())
	return Retired{"retired", in.Version}, nil
}
