package tenants

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"tenantry/crypto/keyring"
)

// sealPurpose is the purpose of the data keys that seal values in Redis.
const sealPurpose = "redis"

// ErrUnsealed: the organization did not seal the value under that name, or sealed it with a key that is no longer in
// use.
var ErrUnsealed = errors.New("the value is not sealed by the organization")

// Seal returns the value preceded by a seal: an HMAC-SHA-256, under a data key of the organization, of the value and
// its name in Redis. Writers to Redis can therefore neither forge a value nor move one to another name. Seal creates
// the organization's first key if there is none. Errors: as DataKeys.
func (d *Directory) Seal(ctx context.Context, t *Tenant, name string, value []byte) ([]byte, error) {
	keys, err := d.tenantKeys(t, sealPurpose)
	if err != nil || keys == nil {
		if keys, err = d.DataKeys(ctx, t, sealPurpose); err != nil {
			return nil, fmt.Errorf("seal a value for Redis: %w", err)
		}
	}
	key := keys.Current()
	out := append(strconv.AppendInt(nil, int64(key.Version()), 10), '.')
	out = append(base64.RawURLEncoding.AppendEncode(out, seal(key, name, value)), '.')
	return append(out, value...), nil
}

// Unseal returns the value that Seal was given for that name. It reads the store only if the tenant does not have the
// key that the seal names. Errors: ErrUnsealed, store.ErrUnavailable.
func (d *Directory) Unseal(ctx context.Context, t *Tenant, name string, sealed []byte) ([]byte, error) {
	version, rest, _ := bytes.Cut(sealed, []byte{'.'})
	text, value, ok := bytes.Cut(rest, []byte{'.'})
	number, err := strconv.Atoi(string(version))
	if !ok || err != nil {
		return nil, ErrUnsealed
	}
	given, err := base64.RawURLEncoding.Strict().AppendDecode(nil, text)
	if err != nil {
		return nil, ErrUnsealed
	}
	keys, err := d.tenantKeys(t, sealPurpose)
	key, found := keys.Version(number)
	if err != nil || !found {
		keys, err = d.readKeys(ctx, vaultKey{t.Org.OrgID, sealPurpose}, false)
		key, found = keys.Version(number)
	}
	switch {
	case errors.Is(err, keyring.ErrUnknownVersion), errors.Is(err, keyring.ErrCorrupt):
		return nil, fmt.Errorf("%w: %w", ErrUnsealed, err)
	case err != nil:
		return nil, err
	case !found || !hmac.Equal(given, seal(key, name, value)):
		return nil, ErrUnsealed
	}
	return value, nil
}

func seal(key keyring.DataKey, name string, value []byte) []byte {
	mac := hmac.New(sha256.New, key.Bytes())
	var size [8]byte // of the name, because otherwise bytes could move between name and value
	binary.BigEndian.PutUint64(size[:], uint64(len(name)))
	_, _ = mac.Write(size[:]) // a hash never fails
	_, _ = mac.Write([]byte(name))
	_, _ = mac.Write(value)
	return mac.Sum(nil)
}
