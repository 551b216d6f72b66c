// Package secrets encrypts the values of encrypted fields, each for its organization, collection, record and field. It
// also carries them in exports and imports, in one of three forms: in clear, as stored ({"enc": "..."}, which opens
// only in
// the same place), or sealed to a transfer key ({"sealed": "..."}).
package secrets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"tenantry/backends/record/schema"
	"tenantry/crypto/fields"
	"tenantry/crypto/sealing"
	"tenantry/crypto/secret"
	"tenantry/internal/fault"
	"tenantry/tenants"
)

// Keys returns an organization's data keys for a purpose, which is the name of a collection.
type Keys interface {
	DataKeys(ctx context.Context, t *tenants.Tenant, purpose string) (*tenants.DataKeys, error)
}

// Value is the value of an encrypted field as it was given. An encrypted value was opened when it was read, and its
// encrypted form is kept for storing it unchanged.
type Value struct {
	Given  any // the input, if the vault did not open it
	plain  string
	sealed string // "" if the value was given in clear
	record string // record that sealed was encrypted for
}

// Size estimates the size in bytes of the encrypted value.
func (v *Value) Size() int {
	if v.sealed != "" {
		return len(v.sealed)
	}
	return len(v.plain)*4/3 + 64
}

// Rewritten reports whether the value was given in encrypted form, for that record, and differs from its present
// encrypted form.
func (v *Value) Rewritten(record, sealed string) bool {
	return v.sealed != "" && v.record == record && v.sealed != sealed
}

// Place is the record that a value is encrypted for.
type Place struct {
	Collection string
	Record     string // must be final before a value is sealed
}

// The only member of a value as stored, and of one that is sealed to a transfer key.
const (
	keptName    = "enc"
	carriedName = "sealed"
)

// Vault encrypts and opens the secrets of one organization. Open is safe for concurrent use; Show is not, because it
// counts.
type Vault struct {
	Keys   Keys
	Tenant *tenants.Tenant
	Reveal bool // Show returns values in clear
	// SealTo and OpenWith are the halves of a transfer key, by which values are carried to another organization; nil:
	// none.
	SealTo   *sealing.PublicKey
	OpenWith *sealing.PrivateKey
	// Trusting means that Take reads what Show returned, so that encrypted values need not be opened to be checked.
	Trusting bool
	// Kept counts values that Show returned as stored, which open only here. Lost counts values that it left out
	// because they could not be opened.
	Kept, Lost int
}

func (v *Vault) location(at Place, field string) fields.Location {
	return fields.Location{Organization: v.Tenant.Org.OrgID, Collection: at.Collection, Record: at.Record, Field: field}
}

// Open decrypts the value of that field of that record. Errors: fields.ErrCorrupt if it was encrypted for another place
// or with a key that is gone; those of the organization's data keys.
func (v *Vault) Open(ctx context.Context, at Place, field, sealed string) (secret.String, error) {
	fail := func(err error) (secret.String, error) {
		return secret.String{}, fmt.Errorf("the field %s of record %s in %s: %w", field, at.Record, at.Collection, err)
	}
	version, err := fields.KeyVersion(sealed)
	if err != nil {
		return fail(err)
	}
	keys, err := v.Keys.DataKeys(ctx, v.Tenant, at.Collection)
	if err != nil {
		return fail(err)
	}
	key, _ := keys.Version(version) // the zero key opens nothing
	plain, err := fields.Open(key, v.location(at, field), sealed)
	if err != nil {
		return fail(err)
	}
	return plain, nil
}

// Seal encrypts a value for that field of that record, where alone it opens. Errors: fields.ErrTooLong, those of the
// organization's data keys.
func (v *Vault) Seal(ctx context.Context, at Place, field, plain string) (string, error) {
	keys, err := v.Keys.DataKeys(ctx, v.Tenant, at.Collection)
	if err != nil {
		return "", err
	}
	return fields.Seal(keys.Current(), v.location(at, field), plain)
}

// Take removes the secret values from values and returns them. Values in encrypted form must have been encrypted for
// this place. Faults are noted in errs. at.Record is "" if the input does not identify the record.
func (v *Vault) Take(
	ctx context.Context, at Place, path string, values map[string]any, secret func(string) bool, errs *fault.List,
) map[string]Value {
	var taken map[string]Value
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
			taken = map[string]Value{}
		}
		taken[name] = s
	}
	return taken
}

func (v *Vault) read(ctx context.Context, at Place, name, field string, given any, errs *fault.List) (Value, bool) {
	plain, isText := given.(string)
	table, _ := given.(map[string]any)
	kept, isKept := table[keptName].(string)
	carried, isCarried := table[carriedName].(string)
	switch encrypted := len(table) == 1 && (isKept || isCarried); {
	case given == nil:
		return Value{}, false
	case encrypted && v.Trusting:
		return Value{Given: given}, true
	case encrypted && isKept:
		opened, err := v.Open(ctx, at, name, kept)
		if err != nil && !errors.Is(err, fields.ErrCorrupt) {
			errs.Add(field, fault.Unavailable,
				"%s could not be checked, because the organization's keys cannot be read now; try again later", field)
		} else if err != nil {
			errs.Add(field, "format", "%s holds a value that was not encrypted for this field of this record in this organization, "+
				"or whose key is gone; such values import only where they were exported: export with --secrets to move them", field)
		}
		return Value{plain: opened.Reveal(), sealed: kept, record: at.Record}, err == nil
	case encrypted && v.OpenWith == nil:
		errs.Add(field, "format",
			"%s holds a value that is sealed to a transfer key: give the private half of that key with --secrets", field)
		return Value{}, false
	case encrypted:
		opened, err := v.OpenWith.OpenFor(carriedContext(at, name), carried)
		if err != nil {
			errs.Add(field, "format",
				"%s holds a value that was not sealed for this field of this record to the key given with --secrets (%s)",
				field, v.OpenWith.Public().KeyID()[:16])
		}
		if len(opened) == 0 {
			return Value{}, false
		}
		plain = string(opened)
	case !isText:
		schema.CheckValue(errs, field, schema.Field{Type: schema.Encrypted}, given)
		return Value{}, false
	}
	before := len(*errs)
	schema.CheckValue(errs, field, schema.Field{Type: schema.Encrypted}, plain)
	return Value{Given: given, plain: plain}, plain != "" && len(*errs) == before
}

// carriedContext returns the context for sealing a value to a transfer key, which binds the value to its place.
func carriedContext(at Place, field string) []string {
	return []string{"tenantry bundle value 1", at.Collection, at.Record, field}
}

// Put sets secrets of a record whose identifier is final, and reports whether one of them changed. Equal values keep
// their encrypted form.
func (v *Vault) Put(ctx context.Context, at Place, into *map[string]string, given map[string]Value) (bool, error) {
	changed := false
	for name, s := range given {
		if sealed, ok := (*into)[name]; ok {
			plain, err := v.Open(ctx, at, name, sealed)
			if err == nil && plain.Reveal() == s.plain {
				continue
			}
			if err != nil && !errors.Is(err, fields.ErrCorrupt) { // a corrupt value is replaced
				return changed, fmt.Errorf("comparing the encrypted field %s: %w", name, err)
			}
		}
		sealed := s.sealed
		if sealed == "" || s.record != at.Record {
			var err error
			if sealed, err = v.Seal(ctx, at, name, s.plain); err != nil {
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

// Show returns the secrets of a record in the form for export: in clear if Reveal is set, sealed to SealTo if that is
// set, and otherwise as stored.
func (v *Vault) Show(ctx context.Context, at Place, secrets map[string]string) (map[string]any, error) {
	if len(secrets) == 0 {
		return nil, nil
	}
	shown := make(map[string]any, len(secrets))
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		if !v.Reveal && v.SealTo == nil {
			shown[name] = map[string]any{keptName: secrets[name]}
			v.Kept++
			continue
		}
		plain, err := v.Open(ctx, at, name, secrets[name])
		if errors.Is(err, fields.ErrCorrupt) && v.SealTo != nil {
			v.Lost++
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("revealing %w", err)
		}
		shown[name] = plain.Reveal()
		if v.SealTo != nil {
			sealed, err := v.SealTo.SealFor(carriedContext(at, name), []byte(plain.Reveal()))
			if err != nil {
				return nil, fmt.Errorf("sealing the field %s of record %s in %s: %w", name, at.Record, at.Collection, err)
			}
			shown[name] = map[string]any{carriedName: sealed}
		}
	}
	return shown, nil
}
