package contacts

import (
	"context"
	"errors"
	"fmt"

	"tenantry/backends/schema"
	"tenantry/crypto/fields"
	"tenantry/crypto/keyring"
	"tenantry/crypto/secret"
	"tenantry/internal/fault"
	"tenantry/tenants"
)

// collection is the part of a secret's location that tells contacts from other records.
const collection = "contacts"

func location(t *tenants.Tenant, contactID, field string) fields.Location {
	return fields.Location{Organization: t.Org.OrgID, Collection: collection, Record: contactID, Field: field}
}

// Seal returns the plaintext encrypted for one field of one contact, as Contact.Secrets
// keeps it. The contact's identifier must be final. Errors: fields.ErrTooLong, those of
// the organization's data keys.
func (m *Module) Seal(ctx context.Context, t *tenants.Tenant, contactID, field, plaintext string) (string, error) {
	keys, err := m.keys.DataKeys(ctx, t, Purpose)
	if err != nil {
		return "", fmt.Errorf("reading the data keys of contacts: %w", err)
	}
	sealed, err := fields.Seal(keys.Current(), location(t, contactID, field), plaintext)
	if err != nil {
		return "", fmt.Errorf("encrypting the contact field %s: %w", field, err)
	}
	return sealed, nil
}

// Open returns the value that Seal encrypted for that field of that contact. Errors:
// fields.ErrCorrupt where it was made for another place or by a key that is gone, those
// of the organization's data keys.
func (m *Module) Open(ctx context.Context, t *tenants.Tenant, contactID, field, sealed string) (secret.String, error) {
	keys, err := m.keys.DataKeys(ctx, t, Purpose)
	if err != nil {
		return secret.String{}, fmt.Errorf("reading the data keys of contacts: %w", err)
	}
	version, err := fields.KeyVersion(sealed)
	if err != nil {
		return secret.String{}, fmt.Errorf("contact %s, field %s: %w", contactID, field, err)
	}
	var key keyring.DataKey
	if k, ok := keys.Version(version); ok {
		key = k
	}
	value, err := fields.Open(key, location(t, contactID, field), sealed)
	if err != nil {
		return secret.String{}, fmt.Errorf("contact %s, field %s, data key version %d: %w", contactID, field, version, err)
	}
	return value, nil
}

// SealSecrets moves the values of encrypted fields from c.Fields to c.Secrets, encrypted
// for this contact, whose identifier must be final. A value that arrived encrypted
// ({"enc": "..."}) is kept as it is where it opens here; otherwise that is noted in errs.
// The contact must have passed Validate. Errors: those of the data keys.
func (m *Module) SealSecrets(ctx context.Context, t *tenants.Tenant, c *Contact, defs map[string]FieldDef, errs *fault.List) error {
	for key, value := range c.Fields {
		if defs[key].Type != schema.Encrypted {
			continue
		}
		at := "fields." + key
		var sealed string
		var err error
		if text, ok := sealedText(value); ok {
			sealed = text
			_, err = m.Open(ctx, t, c.ID, key, text)
		} else if plaintext, ok := value.(string); ok {
			sealed, err = m.Seal(ctx, t, c.ID, key, plaintext)
		} else {
			err = fields.ErrCorrupt
		}
		switch {
		case errors.Is(err, fields.ErrCorrupt):
			errs.Add(at, "format", "%s was not encrypted for this field of this contact in this organization; import the value in clear", at)
			continue
		case errors.Is(err, fields.ErrTooLong):
			errs.Add(at, "length", "%s must have at most %d bytes", at, fields.MaxPlaintext)
			continue
		case err != nil:
			return err
		}
		if c.Secrets == nil {
			c.Secrets = map[string]string{}
		}
		c.Secrets[key] = sealed
		delete(c.Fields, key)
	}
	return nil
}
