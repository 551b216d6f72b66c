package control

import (
	"context"
	"errors"
	"fmt"

	"tenantry/crypto/keyring"
)

// latestKeyring returns what the keyring holds. Its file is read again: another replica may
// have changed it. Where that fails, what was read before is all there is to tell.
func (h *handler) latestKeyring() []keyring.Info {
	_ = h.Keyring.Reload()
	return h.Keyring.List()
}

func (h *handler) listKeyring(context.Context, *None) (List[EncryptionKey], error) {
	out := List[EncryptionKey]{Items: []EncryptionKey{}}
	for _, k := range h.latestKeyring() {
		out.Items = append(out.Items, EncryptionKey{Version: k.Version, State: string(k.State), CreatedAt: k.Created.UTC()})
	}
	return out, nil
}

// rotateKeyring makes a new primary and wraps every data key under it, so that the former
// one can be retired. It may be repeated where it failed midway.
func (h *handler) rotateKeyring(ctx context.Context, _ *None) (Rotation, error) {
	version, err := h.Keyring.Rotate() //nolint:contextcheck // it bounds its waiting itself
	if err != nil {
		return Rotation{}, err
	}
	// A keyring belongs to no organization, so no audit log can tell of it.
	h.Log.InfoContext(ctx, "the keyring was rotated", "primary", version, "subject", subject)
	n, err := h.Directory.Rewrap(ctx)
	if err != nil {
		return Rotation{}, fmt.Errorf("version %d is the primary now, but not every data key is wrapped under it; run tenantry keyring rotate again before you retire a version: %w", version, err)
	}
	return Rotation{Version: version, Rewrapped: n}, nil
}

// retireFromKeyring wraps every data key under the primary first: what is left under a
// retired version could not be read any more.
func (h *handler) retireFromKeyring(ctx context.Context, r *Version) (Version, error) {
	known := false
	for _, k := range h.latestKeyring() {
		if k.Version == r.Version {
			known = true
			if k.State == keyring.Primary {
				return Version{}, &Error{Code: CodeConflict, Message: fmt.Sprintf("version %d is the primary; make another with tenantry keyring rotate first", r.Version)}
			}
		}
	}
	if !known {
		return Version{}, &Error{Code: CodeNotFound, Message: fmt.Sprintf("the keyring has no version %d; tenantry keyring list shows those there are", r.Version)}
	}
	if _, err := h.Directory.Rewrap(ctx); err != nil {
		return Version{}, fmt.Errorf("version %d was not retired, because data keys wrapped under it could not be wrapped anew: %w", r.Version, err)
	}
	if err := h.Keyring.Retire(r.Version); err != nil { //nolint:contextcheck // it bounds its waiting itself
		if errors.Is(err, keyring.ErrPrimary) {
			return Version{}, &Error{Code: CodeConflict, Message: err.Error()}
		}
		return Version{}, err
	}
	h.Log.InfoContext(ctx, "a version of the keyring was retired", "version", r.Version, "subject", subject)
	return *r, nil
}
