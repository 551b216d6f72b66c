package tenants

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"tenantry/backends/store"
	"tenantry/crypto/keyring"
)

// Installation is one of four records about the whole control workspace: the proof of its keyring, its identity, its own
// data keys, and the note that it has files. They are separate because an earlier version, which knows the proof only,
// rewrites that record when keys are rotated.
type Installation struct {
	store.Meta
	Proof    string `json:"proof,omitempty"`    // random bytes wrapped by the keyring, which no other keyring unwraps
	Identity string `json:"identity,omitempty"` // 128 random bits in hexadecimal
	// DataKeys are wrapped data keys by purpose, newest last.
	DataKeys map[string][]string `json:"data_keys,omitempty"`
}

const (
	installationID = "000000000000000000000001"
	identityID     = "000000000000000000000002"
	ownKeysID      = "000000000000000000000003"
	filesID        = "000000000000000000000004"
	proofContext   = "tenantry installation"
	proofSize      = 32
	identitySize   = 16
)

// ErrForeignKeyring: the data was encrypted with another keyring.
var ErrForeignKeyring = errors.New("the keyring is not the one that the data was encrypted with; " +
	"give every replica the same keyring file, or restore a copy made after the last tenantry keyring rotate")

// InUse reports whether a control workspace holds data that belong to a keyring.
func (k Kinds) InUse(ctx context.Context, control *store.Workspace) (bool, error) {
	_, err := k.Installations.In(control).Get(ctx, installationID)
	if !errors.Is(err, store.ErrNotFound) {
		return err == nil, err
	}
	n, err := k.Organizations.In(control).Count(ctx, store.Filter{})
	return n > 0, err
}

// Claim begins an installation on a control workspace that has none: from then on a new keyring may be created for it.
// Replicas may call it at the same time.
func (k Kinds) Claim(ctx context.Context, control *store.Workspace) error {
	random := make([]byte, identitySize)
	_, _ = rand.Read(random) // never fails
	_, err := insertOrGet(ctx, k.Installations.In(control), &Installation{Meta: store.Meta{ID: identityID},
		Identity: hex.EncodeToString(random)})
	return err
}

// Claimed reports whether an installation has begun on a control workspace.
func (k Kinds) Claimed(ctx context.Context, control *store.Workspace) (bool, error) {
	_, err := k.Installations.In(control).Get(ctx, identityID)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// ErrLostControl: the control data of this installation are missing, or were replaced by those of another.
var ErrLostControl = errors.New("the control data of this installation are missing; " +
	"restore them and restart the gateway")

// Installed returns ErrLostControl if the control data are not, or no longer, those of the installation. Other error:
// store.ErrUnavailable.
func (d *Directory) Installed(ctx context.Context) error {
	if err := d.store.ControlFileMissing(); err != nil {
		return fmt.Errorf("%w: %w", ErrLostControl, err)
	}
	rec, err := d.installations.Get(ctx, identityID)
	if errors.Is(err, store.ErrNotFound) || err == nil && rec.Identity != d.installation {
		return ErrLostControl
	}
	return err
}

// checkKeyring checks that the keyring is the one that the other replicas use. The first replica decides which one that
// is.
func (d *Directory) checkKeyring(ctx context.Context) error {
	for again := false; ; again = true {
		rec, err := d.installations.Get(ctx, installationID)
		if errors.Is(err, store.ErrNotFound) {
			rec, err = d.createProof(ctx)
		}
		if err != nil {
			return fmt.Errorf("checking the keyring against the data: %w", err)
		}
		_, err = d.keyring.Unwrap(rec.Proof, []byte(proofContext))
		if err == nil {
			return nil
		}
		// Another replica may have rotated the keyring since its file was read.
		if again && errors.Is(err, keyring.ErrRetired) {
			return fmt.Errorf("the control data need a retired key, as after restoring an old backup: %w", err)
		}
		if again || !errors.Is(err, keyring.ErrUnknownVersion) || d.keyring.Reload() != nil {
			return fmt.Errorf("%w (%w)", ErrForeignKeyring, err)
		}
	}
}

func (d *Directory) createProof(ctx context.Context) (*Installation, error) {
	if err := d.checkDataKey(ctx); err != nil {
		return nil, err
	}
	proof, err := d.newProof()
	if err != nil {
		return nil, err
	}
	return insertOrGet(ctx, d.installations, &Installation{Meta: store.Meta{ID: installationID}, Proof: proof})
}

// insertOrGet stores a record that replicas must agree on, and returns the stored one: the first insert wins.
func insertOrGet(
	ctx context.Context, installations store.Collection[Installation], rec *Installation,
) (*Installation, error) {
	err := installations.Insert(ctx, rec)
	if _, dup := errors.AsType[*store.DuplicateError](err); dup { // another replica was first
		return installations.Get(ctx, rec.ID)
	}
	return rec, err
}

// loadIdentity loads the identity of the installation. If there is none, the first replica takes the one that the
// workspaces name, or a new one. It never changes.
func (d *Directory) loadIdentity(ctx context.Context) error {
	rec, err := d.installations.Get(ctx, identityID)
	if errors.Is(err, store.ErrNotFound) {
		rec, err = d.createIdentity(ctx)
	}
	if err == nil && len(rec.Identity) != 2*identitySize {
		err = errors.New("the record is damaged; restore the control data from a backup")
	}
	if err != nil {
		return fmt.Errorf("reading the identity of the installation: %w", err)
	}
	d.installation = rec.Identity
	return nil
}

func (d *Directory) createIdentity(ctx context.Context) (*Installation, error) {
	identity, err := d.identityFromWorkspaces(ctx)
	if err != nil {
		return nil, err
	}
	if identity == "" {
		random := make([]byte, identitySize)
		_, _ = rand.Read(random) // never fails
		identity = hex.EncodeToString(random)
	}
	return insertOrGet(ctx, d.installations, &Installation{Meta: store.Meta{ID: identityID}, Identity: identity})
}

// Installation returns the identity of the installation: 32 hexadecimal digits, unique to the installation, the same in
// all replicas, and constant for the lifetime of the control data.
func (d *Directory) Installation() string { return d.installation }

// HasFiles reports whether bytes of files were ever stored in the installation; see NoteFiles.
func (d *Directory) HasFiles(ctx context.Context) (bool, error) {
	_, err := d.installations.Get(ctx, filesID)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// NoteFiles notes that bytes of files are stored in the installation.
func (d *Directory) NoteFiles(ctx context.Context) error {
	_, err := insertOrGet(ctx, d.installations, &Installation{Meta: store.Meta{ID: filesID}})
	return err
}

// checkDataKey opens one stored data key with the keyring, for data that are older than the proof.
func (d *Directory) checkDataKey(ctx context.Context) error {
	found, err := d.orgs.Find(ctx, store.Query{Sort: []store.Order{store.Asc("org_id")}})
	if err != nil {
		return err
	}
	for _, o := range found {
		for purpose, wrapped := range o.DataKeys {
			if _, err := keyring.OpenDataKey(d.keyring, o.OrgID, purpose, wrapped[0]); err != nil {
				return fmt.Errorf("%w (%w)", ErrForeignKeyring, err)
			}
			return nil
		}
	}
	return nil
}

func (d *Directory) newProof() (string, error) {
	payload := make([]byte, proofSize)
	_, _ = rand.Read(payload) // never fails
	return d.keyring.Wrap(payload, []byte(proofContext))
}

// rewrapProof wraps the proof again under the keyring's primary.
func (d *Directory) rewrapProof(ctx context.Context) error {
	_, err := d.installations.Update(ctx, installationID, func(i *Installation) error {
		version, err := keyring.WrappedVersion(i.Proof)
		if err != nil {
			return err
		}
		if version == d.keyring.PrimaryVersion() {
			return errUnchanged
		}
		i.Proof, err = d.newProof()
		return err
	})
	if err != nil && !errors.Is(err, errUnchanged) {
		return fmt.Errorf("rewrap the keyring's proof: %w", err)
	}
	return nil
}
