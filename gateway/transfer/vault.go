package transfer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"tenantry/backends/contacts"
	"tenantry/backends/schema"
	"tenantry/crypto/fields"
	"tenantry/crypto/sealing"
	"tenantry/internal/fault"
	"tenantry/tenants"
)

// DataKeys gives an organization's keys for a purpose.
type DataKeys interface {
	DataKeys(ctx context.Context, t *tenants.Tenant, purpose string) (*tenants.DataKeys, error)
}

// secretValue is the value of an encrypted field as a line gives it. An encrypted value
// was opened when the line was read; it is kept so that it need not be encrypted again.
type secretValue struct {
	plain  string
	sealed string // "" where the value came in clear
	record string // the record that sealed was made for
	given  any    // as the line has it, where the vault does not open
}

// place is where a secret is kept: part of what it is bound to.
type place struct {
	collection string
	record     string
}

// sealedName is the one member of a value that travels encrypted.
const sealedName = "enc"

// vault seals and opens the secrets of one organization.
type vault struct {
	keys   DataKeys
	tenant *tenants.Tenant
	reveal bool // of an export
	// sealTo and openWith are the two halves of a key under which values travel to another
	// organization; nil where they do not.
	sealTo   *sealing.PublicKey
	openWith *sealing.PrivateKey
	// trusting: lines are those of an export under way, whose encrypted values need no proof.
	trusting bool
	// kept and lost count an export's encrypted values: those that open only here, and
	// those that open nowhere and were left out.
	kept, lost int
}

// purpose returns what the data keys of a collection are for.
func purpose(collection string) string {
	if collection == "contacts" {
		return contacts.Purpose
	}
	return collection
}

func (v *vault) location(at place, field string) fields.Location {
	return fields.Location{Organization: v.tenant.Org.OrgID, Collection: at.collection, Record: at.record, Field: field}
}

func (v *vault) open(ctx context.Context, at place, field, sealed string) (string, error) {
	version, err := fields.KeyVersion(sealed)
	if err != nil {
		return "", err
	}
	keys, err := v.keys.DataKeys(ctx, v.tenant, purpose(at.collection))
	if err != nil {
		return "", err
	}
	key, ok := keys.Version(version)
	if !ok {
		return "", fields.ErrCorrupt
	}
	plain, err := fields.Open(key, v.location(at, field), sealed)
	if err != nil {
		return "", err
	}
	return plain.Reveal(), nil
}

func (v *vault) seal(ctx context.Context, at place, field, plain string) (string, error) {
	keys, err := v.keys.DataKeys(ctx, v.tenant, purpose(at.collection))
	if err != nil {
		return "", err
	}
	return fields.Seal(keys.Current(), v.location(at, field), plain)
}

// take moves the secret values out of values. Those that arrive encrypted must have been
// encrypted for this very place; id is "" where the line does not say which record it is.
func (v *vault) take(ctx context.Context, at place, path string, values map[string]any, secret func(string) bool, errs *fault.List) map[string]secretValue {
	var taken map[string]secretValue
	for name, given := range values {
		if !secret(name) {
			continue
		}
		delete(values, name)
		field := path + "." + name
		s, ok := v.read(ctx, at, name, field, given, errs)
		if !ok {
			continue
		}
		if taken == nil {
			taken = map[string]secretValue{}
		}
		taken[name] = s
	}
	return taken
}

func (v *vault) read(ctx context.Context, at place, name, field string, given any, errs *fault.List) (secretValue, bool) {
	if table, ok := given.(map[string]any); ok && len(table) == 1 {
		if sealed, ok := table[sealedName].(string); ok {
			return v.readKept(ctx, at, name, field, sealed, errs)
		}
		if sealed, ok := table[carriedName].(string); ok {
			return v.readCarried(at, name, field, sealed, errs)
		}
	}
	plain, isText := given.(string)
	if !isText {
		if given != nil {
			schema.CheckValue(errs, field, schema.Encrypted, given)
		}
		return secretValue{}, false
	}
	before := len(*errs)
	schema.CheckValue(errs, field, schema.Encrypted, plain)
	return secretValue{plain: plain, given: given}, plain != "" && len(*errs) == before
}

// readKept reads a value that is encrypted as an organization keeps it.
func (v *vault) readKept(ctx context.Context, at place, name, field, sealed string, errs *fault.List) (secretValue, bool) {
	if v.trusting {
		return secretValue{given: map[string]any{sealedName: sealed}}, true
	}
	plain, err := v.open(ctx, at, name, sealed)
	if err != nil {
		errs.Add(field, "format", "%s holds a value that was not encrypted for this field of this record in this organization, or whose key is gone; "+
			"such values import only where they were exported: export with --secrets to move them", field)
		return secretValue{}, false
	}
	return secretValue{plain: plain, sealed: sealed, record: at.record}, true
}

// readCarried reads a value that travels sealed to a key.
func (v *vault) readCarried(at place, name, field, sealed string, errs *fault.List) (secretValue, bool) {
	switch {
	case v.trusting:
		return secretValue{given: map[string]any{carriedName: sealed}}, true
	case v.openWith == nil:
		errs.Add(field, "format", "%s holds a value that travels sealed to a key: give the private half of that key with --secrets", field)
		return secretValue{}, false
	}
	plain, err := v.openWith.OpenFor(carriedContext(at, name), sealed)
	if err != nil {
		errs.Add(field, "format", "%s holds a value that was not sealed for this field of this record to the key given with --secrets (%s)", field, v.openWith.Public().KeyID()[:16])
		return secretValue{}, false
	}
	if before := len(*errs); len(plain) > 0 {
		schema.CheckValue(errs, field, schema.Encrypted, string(plain))
		return secretValue{plain: string(plain)}, len(*errs) == before
	}
	return secretValue{}, false
}

// carriedName is the one member of a value that travels sealed to a key.
const carriedName = "sealed"

// carriedContext says for which place a value is sealed: under another it does not open.
func carriedContext(at place, field string) []string {
	return []string{"tenantry bundle value 1", at.collection, at.record, field}
}

// reseal sets the secrets of a record whose identifier is final. It reports whether one
// of them changed; equal values keep their encrypted form.
func (v *vault) reseal(ctx context.Context, at place, into *map[string]string, given map[string]secretValue) (bool, error) {
	changed := false
	for name, s := range given {
		if sealed, ok := (*into)[name]; ok {
			plain, err := v.open(ctx, at, name, sealed)
			if err == nil && plain == s.plain {
				continue
			}
			if err != nil && !errors.Is(err, fields.ErrCorrupt) { // a value that cannot be opened is replaced
				return changed, fmt.Errorf("comparing the encrypted field %s: %w", name, err)
			}
		}
		sealed := s.sealed
		if sealed == "" || s.record != at.record {
			var err error
			if sealed, err = v.seal(ctx, at, name, s.plain); err != nil {
				return changed, fmt.Errorf("encrypting the field %s: %w", name, err)
			}
		}
		if *into == nil {
			*into = map[string]string{}
		}
		(*into)[name] = sealed
		changed = true
	}
	return changed, nil
}

// show returns the secrets of a record as they travel: in clear where the export reveals
// them, sealed to a key where it has one, otherwise as they are kept.
func (v *vault) show(ctx context.Context, at place, secrets map[string]string) (map[string]any, error) {
	if len(secrets) == 0 {
		return nil, nil
	}
	shown := make(map[string]any, len(secrets))
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		if !v.reveal && v.sealTo == nil {
			shown[name] = map[string]any{sealedName: secrets[name]}
			v.kept++
			continue
		}
		plain, err := v.open(ctx, at, name, secrets[name])
		if errors.Is(err, fields.ErrCorrupt) && v.sealTo != nil {
			v.lost++
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("revealing the field %s of record %s in %s: %w", name, at.record, at.collection, err)
		}
		shown[name] = plain
		if v.sealTo != nil {
			sealed, err := v.sealTo.SealFor(carriedContext(at, name), []byte(plain))
			if err != nil {
				return nil, fmt.Errorf("sealing the field %s of record %s in %s: %w", name, at.record, at.collection, err)
			}
			shown[name] = map[string]any{carriedName: sealed}
		}
	}
	return shown, nil
}
