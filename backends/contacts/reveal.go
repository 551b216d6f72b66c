package contacts

import (
	"context"
	"errors"
	"net/http"

	"tenantry/backends/api"
	"tenantry/backends/schema"
	"tenantry/backends/secrets"
	"tenantry/backends/store"
	"tenantry/crypto/sealing"
	"tenantry/internal/fault"
	"tenantry/internal/together"
	"tenantry/tenants"
)

// Headers that say how a revealed value is encrypted.
const (
	headerAlgorithm = "X-Encryption-Algorithm"
	headerKeyID     = "X-Encryption-Key-Id"
)

// Revealed is the answer of contacts.reveal.
type Revealed struct {
	FieldValue string `json:"field_value" doc:"The value in clear or, where a public key was given, encrypted to it, in standard base64."`
}

const (
	messageNotFound = "Contact not found"
	messageNoValue  = "Contact has no value for this field"
)

func (m *Module) reveal() api.Operation {
	return api.Operation{
		Name: "contacts.reveal", Contract: true, Method: http.MethodGet, Path: "/api/contacts/{id}/reveal-secret", IDs: []string{"revealContactField"}, Tag: "Contacts",
		Summary: "Reveal an encrypted contact field",
		Description: "Returns the decrypted value of one encrypted field. Where a public key is given, the value is encrypted to it instead: " +
			"with RSA-OAEP (SHA-256) or as an X25519 sealed box, named in the header " + headerAlgorithm + "; " + headerKeyID +
			" is the SHA-256 of the key. Organizations can require a public key with the setting " + tenants.SettingRequirePublicEncryptionKey +
			". Answers are never cached, and every call is recorded before it is answered.",
		Credentials: api.Key, Kinds: api.ServerFull, Rule: api.Needs(tenants.Contacts), Audit: api.AuditAlways, Teams: true,
		Params: []api.Param{
			{Name: "id", In: api.InPath, Shape: api.Text, Required: true, Description: "The contact.", Example: "65f1a2b3c4d5e6f708192a3b"},
			{Name: "field", In: api.InQuery, Shape: api.Text, Required: true, Description: "The key of the encrypted field.", Example: "passport_number"},
			{Name: "public_key", In: api.InQuery, Shape: api.Text, Secret: true,
				Description: "A public key to encrypt the value to, in standard or URL-safe base64: RSA of 2048 to 4096 bits as SubjectPublicKeyInfo (DER or PEM), or 32 bytes X25519. Required where the organization's settings say so."},
		},
		Data: Revealed{}, Message: "success", Example: Revealed{FieldValue: "C01X00T47"},
		Failures: []api.Failure{
			{Code: http.StatusOK, Message: messageNotFound, When: "There is no such contact, or the caller's teams do not see it."},
			{Code: http.StatusOK, Message: messageNoValue, When: "The contact has no value for that encrypted field."},
			{Code: http.StatusUnprocessableEntity, Message: "Validation failed: field is not an encrypted field",
				When: "field is missing or names no encrypted field; public_key is missing though required, not accepted, or too small for the value."},
		},
		Handler: m.handleReveal,
	}
}

func (m *Module) handleReveal(ctx context.Context, c *api.Call) (api.Result, error) {
	c.Header.Set("Cache-Control", "no-store") // refusals too
	id, name := c.Path("id"), c.Query.Text("field")
	if store.ValidID(id) {
		c.Note("contact", id)
	}
	// Nothing that is said about the input depends on the contact.
	var keyErrs fault.List
	key := publicKey(c, &keyErrs)
	checked := func() error { return m.checkInput(ctx, c, name, keyErrs) }
	if len(keyErrs) > 0 || name == "" {
		return api.Result{}, checked()
	}
	var contact *Contact
	err := together.Do(c.Workspace.Remote(), checked, func() (err error) {
		contact, err = m.Contacts.In(c.Workspace).Get(ctx, id)
		if errors.Is(err, store.ErrNotFound) {
			return api.Failed(messageNotFound, nil)
		}
		return err
	})
	if err != nil {
		return api.Result{}, err
	}
	sealed, ok := contact.Secrets[name]
	if !ok {
		return api.Result{}, api.Failed(messageNoValue, nil)
	}
	value, err := (&secrets.Vault{Keys: m.keys, Tenant: c.Tenant}).Open(ctx, secrets.Place{Collection: Collection, Record: contact.ID}, name, sealed)
	if err != nil {
		return api.Result{}, err
	}
	if key == nil {
		return api.Result{Data: Revealed{FieldValue: value.Reveal()}}, nil
	}
	return sealTo(c, key, value.Reveal())
}

// checkInput fails where the field is none to reveal, or there are other problems.
func (m *Module) checkInput(ctx context.Context, c *api.Call, name string, others fault.List) error {
	var errs fault.List
	if err := m.checkField(ctx, c, &errs, name); err != nil {
		return err
	}
	return append(errs, others...).Err()
}

// checkField notes a field that is not declared as encrypted. Which of the reasons
// applies is not told.
func (m *Module) checkField(ctx context.Context, c *api.Call, errs *fault.List, name string) error {
	if name == "" {
		errs.Add("field", "required", "field is required")
		return nil
	}
	def, declared, err := m.definition(ctx, c.Workspace, name)
	if err != nil {
		return err
	}
	if declared {
		c.Note("field", def.Key)
	}
	if !declared || def.Type != schema.Encrypted {
		errs.Add("field", "forbidden", "field is not an encrypted field")
	}
	return nil
}

// publicKey returns the key to encrypt to, nil where none is given or it is not accepted.
func publicKey(c *api.Call, errs *fault.List) *sealing.PublicKey {
	if !c.Query.Has("public_key") {
		if c.Tenant.Org.Setting(tenants.SettingRequirePublicEncryptionKey) {
			errs.Add("public_key", "required", "public_key is required by this organization's settings")
		}
		return nil
	}
	key, err := sealing.ParsePublicKey(c.Query.Text("public_key"))
	if err != nil {
		errs.Add("public_key", "format", "public_key is not accepted: %s", err)
		return nil
	}
	return key
}

func sealTo(c *api.Call, key *sealing.PublicKey, value string) (api.Result, error) {
	c.Note("public_key", key.KeyID())
	sealed, err := key.Seal([]byte(value))
	if errors.Is(err, sealing.ErrTooLong) { // its text tells the length of the value
		return api.Result{}, fault.One("public_key", "length",
			"public_key is too small for the value: it holds at most %d bytes; send a longer RSA key or an X25519 key", key.MaxPlaintext())
	}
	if err != nil {
		return api.Result{}, api.Internal(err)
	}
	c.Header.Set(headerAlgorithm, key.Algorithm())
	c.Header.Set(headerKeyID, key.KeyID())
	return api.Result{Data: Revealed{FieldValue: sealed}}, nil
}
