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

// Installation says which keyring belongs to the data, which installation the data is, and has data keys for what is
// the installation's own. There is one record for each. They are apart because an older version, which knows the first
// alone, writes it anew when keys are rotated.
type Installation struct {
	store.Meta
	Proof    string `json:"proof,omitempty"`    // wrapped under the keyring: another cannot open it
	Identity string `json:"identity,omitempty"` // 128 random bits, in hexadecimal digits
	// DataKeys are wrapped, by purpose, the newest last.
	DataKeys map[string][]string `json:"data_keys,omitempty"`
}

const (
	installationID = "000000000000000000000001"
	identityID     = "000000000000000000000002"
	ownKeysID      = "000000000000000000000003"
	proofContext   = "tenantry installation"
	proofSize      = 32
	identitySize   = 16
)

// ErrForeignKeyring: the data was encrypted with another keyring.
var ErrForeignKeyring = errors.New("the keyring is not the one that the data was encrypted with; give every replica the same keyring file")

// InUse reports whether a keyring belongs to the data of a control workspace.
func (k Kinds) InUse(ctx context.Context, control *store.Workspace) (bool, error) {
	_, err := k.Installations.In(control).Get(ctx, installationID)
	if !errors.Is(err, store.ErrNotFound) {
		return err == nil, err
	}
	n, err := k.Organizations.In(control).Count(ctx, store.Filter{})
	return n > 0, err
}

// Claim begins an installation on a control workspace that is nobody's yet: from then on the keyring that is made may
// be its own. Replicas may do it at the same time.
func (k Kinds) Claim(ctx context.Context, control *store.Workspace) error {
	random := make([]byte, identitySize)
	_, _ = rand.Read(random) // never fails
	_, err := decide(ctx, k.Installations.In(control), &Installation{Meta: store.Meta{ID: identityID}, Identity: hex.EncodeToString(random)})
	return err
}

// Claimed reports whether an installation was begun on a control workspace.
func (k Kinds) Claimed(ctx context.Context, control *store.Workspace) (bool, error) {
	_, err := k.Installations.In(control).Get(ctx, identityID)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// ErrLostControl: what the control data said of the installation is not there any more.
var ErrLostControl = errors.New("the control data of this installation are not there any more; bring them back and restart the gateway")

// Installed returns ErrLostControl where the control data are not, or no longer, those of the installation. Error:
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

// proveKeyring makes sure that the keyring is the one the other replicas have. The first to
// ask decides which that is.
func (d *Directory) proveKeyring(ctx context.Context) error {
	for again := false; ; again = true {
		rec, err := d.installations.Get(ctx, installationID)
		if errors.Is(err, store.ErrNotFound) {
			rec, err = d.firstProof(ctx)
		}
		if err != nil {
			return fmt.Errorf("checking the keyring against the data: %w", err)
		}
		_, err = d.keyring.Unwrap(rec.Proof, []byte(proofContext))
		if err == nil {
			return nil
		}
		// Another replica may have rotated it since the file was read.
		if again && errors.Is(err, keyring.ErrRetired) {
			return fmt.Errorf("the control data are older than the retirement of the key they need, as those of a backup: %w", err)
		}
		if again || !errors.Is(err, keyring.ErrUnknownVersion) || d.keyring.Reload() != nil {
			return fmt.Errorf("%w (%w)", ErrForeignKeyring, err)
		}
	}
}

func (d *Directory) firstProof(ctx context.Context) (*Installation, error) {
	if err := d.opensSome(ctx); err != nil {
		return nil, err
	}
	proof, err := d.prove()
	if err != nil {
		return nil, err
	}
	return decide(ctx, d.installations, &Installation{Meta: store.Meta{ID: installationID}, Proof: proof})
}

// decide stores a record that replicas must agree on, and returns the one that is stored.
func decide(ctx context.Context, installations store.Collection[Installation], rec *Installation) (*Installation, error) {
	err := installations.Insert(ctx, rec)
	if _, dup := errors.AsType[*store.DuplicateError](err); dup { // another replica was quicker
		return installations.Get(ctx, rec.ID)
	}
	return rec, err
}

// identify reads the identity of the installation. The first to ask decides what that is, unless
// the documents know, and it never changes.
func (d *Directory) identify(ctx context.Context) error {
	rec, err := d.installations.Get(ctx, identityID)
	if errors.Is(err, store.ErrNotFound) {
		rec, err = d.firstIdentity(ctx)
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

func (d *Directory) firstIdentity(ctx context.Context) (*Installation, error) {
	identity, err := d.marked(ctx)
	if err != nil {
		return nil, err
	}
	if identity == "" {
		random := make([]byte, identitySize)
		_, _ = rand.Read(random) // never fails
		identity = hex.EncodeToString(random)
	}
	return decide(ctx, d.installations, &Installation{Meta: store.Meta{ID: identityID}, Identity: identity})
}

// Installation returns the identity of the installation: 32 hexadecimal digits that no other
// installation has, the same in all replicas and for as long as the control data lives.
func (d *Directory) Installation() string { return d.installation }

// opensSome tries the keyring on a data key, where data is from before there were proofs.
func (d *Directory) opensSome(ctx context.Context) error {
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

func (d *Directory) prove() (string, error) {
	nothing := make([]byte, proofSize)
	_, _ = rand.Read(nothing) // never fails
	return d.keyring.Wrap(nothing, []byte(proofContext))
}

// proveAnew wraps the proof under the keyring's primary.
func (d *Directory) proveAnew(ctx context.Context) error {
	_, err := d.installations.Update(ctx, installationID, func(i *Installation) error {
		version, err := keyring.WrappedVersion(i.Proof)
		if err != nil {
			return err
		}
		if version == d.keyring.PrimaryVersion() {
			return errUnchanged
		}
		i.Proof, err = d.prove()
		return err
	})
	if err != nil && !errors.Is(err, errUnchanged) {
		return fmt.Errorf("wrap the keyring's proof anew: %w", err)
	}
	return nil
}
