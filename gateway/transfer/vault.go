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
	"tenantry/gateway/api"
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
func (v *vault) take(ctx context.Context, at place, path string, values map[string]any, secret func(string) bool, errs *api.Errors) map[string]secretValue {
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

func (v *vault) read(ctx context.Context, at place, name, field string, given any, errs *api.Errors) (secretValue, bool) {
	if table, ok := given.(map[string]any); ok && len(table) == 1 {
		if sealed, ok := table[sealedName].(string); ok {
			plain, err := v.open(ctx, at, name, sealed)
			if err != nil {
				errs.Add(field, "format", "%s holds a value that was not encrypted for this field of this record in this organization, or whose key is gone; "+
					"encrypted values import only where they were exported: export with --reveal-secrets to move them", field)
				return secretValue{}, false
			}
			return secretValue{plain, sealed, at.record}, true
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
	return secretValue{plain: plain}, plain != "" && len(*errs) == before
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

// show puts the secrets of a record among its values: in clear where the export reveals
// them, otherwise as they are kept.
func (v *vault) show(ctx context.Context, at place, secrets map[string]string, values *map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		if *values == nil {
			*values = map[string]any{}
		}
		if !v.reveal {
			(*values)[name] = map[string]any{sealedName: secrets[name]}
			continue
		}
		plain, err := v.open(ctx, at, name, secrets[name])
		if err != nil {
			return fmt.Errorf("revealing the field %s of record %s in %s: %w", name, at.record, at.collection, err)
		}
		(*values)[name] = plain
	}
	return nil
}
