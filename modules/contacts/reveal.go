package contacts

import (
	"context"
	"errors"
	"net/http"

	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/crypto/sealing"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/internal/together"
	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/secrets"
)

// Headers that say how a revealed value is encrypted.
const (
	headerAlgorithm = "X-Encryption-Algorithm"
	headerKeyID     = "X-Encryption-Key-Id"
)

// Revealed is the answer of contacts.reveal.
type Revealed struct {
	FieldValue string `json:"field_value" doc:"The value in clear or, if a public key was given, encrypted to it, in standard base64."`
}

const (
	messageNotFound = "Contact not found"
	messageNoValue  = "Contact has no value for this field"
)

func (m *Module) reveal() operation.Row {
	return operation.Row{
		Name: "contacts.reveal", Method: http.MethodGet, Path: "/api/contacts/{id}/reveal-secret",
		Policy: operation.Policy{
			Credentials: operation.Key, Kinds: operation.ServerFull, Rule: operation.Needs(tenants.Contacts),
			Audit: operation.AuditAlways,
		},
		Request: operation.Request{
			Contract: true,
			Teams:    true,
			Params: []operation.Param{
				{
					Name: "id", In: operation.InPath, Shape: operation.Text, Required: true,
					Description: "The contact.", Example: "65f1a2b3c4d5e6f708192a3b",
				},
				{
					Name: "field", In: operation.InQuery, Shape: operation.Text, Required: true,
					Description: "The key of the encrypted field.", Example: "passport_number",
				},
				{Name: "public_key", In: operation.InQuery, Shape: operation.Text, Secret: true,
					Description: "A public key to encrypt the value to, in standard or URL-safe base64: RSA of 2048 to 4096 bits " +
						"as SubjectPublicKeyInfo (DER or PEM), or 32 bytes X25519. Required if the organization's settings say so."},
			},
		},
		Response: operation.Response{
			Data: Revealed{}, Message: "success", Example: Revealed{FieldValue: "C01X00T47"},
			Failures: []operation.Failure{
				{
					Code: http.StatusOK, Message: messageNotFound,
					When: "There is no such contact, or the caller's teams do not see it.",
				},
				{
					Code: http.StatusOK, Message: messageNoValue,
					When: "The contact has no value for that encrypted field.",
				},
				{Code: http.StatusUnprocessableEntity, Message: `Validation failed: field: "email" is not an encrypted field`,
					When: "field is missing or does not name an encrypted field; public_key is required but missing, not accepted, or too small for the value."},
			},
		},
		Docs: operation.Docs{
			IDs: []string{"revealContactField"}, Tag: "Contacts",
			Summary: "Reveal an encrypted contact field",
			Description: "Returns the decrypted value of one encrypted field. If a public key is given, the value is encrypted to it instead: " +
				"with RSA-OAEP (SHA-256) or as an X25519 sealed box, named in the header " + headerAlgorithm + "; " + headerKeyID +
				" is the SHA-256 of the key. Organizations can require a public key with the setting " + tenants.SettingRequirePublicEncryptionKey +
				". Answers are never cached, and every call is recorded in the audit log before it is answered.",
		},
		Handler: m.handleReveal,
	}
}

// Disclosed is the answer of contacts.disclose.
type Disclosed struct {
	Revealed
	Algorithm string `json:"algorithm,omitempty" doc:"How the value is encrypted to the public key; left out if none was given."`
	KeyID     string `json:"key_id,omitempty" doc:"SHA-256 of the public key."`
}

type discloseInput struct {
	ID        string `json:"id" doc:"The contact." example:"65f1a2b3c4d5e6f708192a3b"`
	Field     string `json:"field" rule:"required max=200" doc:"The key of the encrypted field." example:"passport_number"`
	Reason    string `json:"reason" rule:"required min=3 max=300 format=line" doc:"Reason for the disclosure. It is written to the audit log and must not contain personal data." ask:"Reason|It is written to the audit log. Leave out personal details." example:"Visa application of 12 March"`
	PublicKey string `json:"public_key" rule:"min=1 max=4000" doc:"A public key to encrypt the value to, as contacts.reveal takes it. Required if the organization's settings say so." ask:"Public key|The value is encrypted to it. Your organization may require one."`
}

// disclose returns the row that reveals a field to persons, as reveal does to keys.
func (m *Module) disclose() operation.Row {
	return operation.Typed(operation.Row{
		Name: "contacts.disclose", Method: http.MethodPost, Path: "/api/contacts/{id}/disclose",
		Policy: operation.Policy{
			Credentials: operation.Session, Rule: operation.Needs(tenants.Contacts),
			Audit: operation.AuditAlways, Reads: true,
		},
		Request: operation.Request{
			Teams:     true,
			BodyLimit: 16 << 10,
		},
		Response: operation.Response{
			Once:    true,
			Message: "Field revealed", Example: Disclosed{Revealed: Revealed{FieldValue: "C01X00T47"}},
			Failures: []operation.Failure{
				{
					Code: http.StatusNotFound, Message: messageNotFound,
					When: "there is no such contact, or the person's teams do not see it",
				},
				{
					Code: http.StatusNotFound, Message: messageNoValue,
					When: "the contact has no value for that encrypted field",
				},
				{
					Code: http.StatusUnprocessableEntity, Message: `Validation failed: field: "email" is not an encrypted field`,
					When: "a field is missing, or the public key is not accepted",
				},
			},
		},
		Target: operation.Target{
			Action:  operation.DisclosureAction,
			Defined: operation.Defined{By: m.Fields.Name, Encrypted: "field"},
		},
		Docs: operation.Docs{
			Ask: "Your name, the field and the reason are recorded first.", Tag: "Contacts",
			Summary: "Reveal an encrypted field for a reason", Verb: "Reveal",
			Description: "Answers a signed-in person the value of one encrypted field, as contacts.reveal does for keys. " +
				"The person, the field and the reason are recorded in the audit log before the answer, including refusals.",
		},
	}, func(ctx context.Context, c *operation.Call, in discloseInput) (Disclosed, error) {
		c.Note("reason", in.Reason)
		told, err := m.open(ctx, c, in.ID, in.Field, in.PublicKey)
		if p := (*operation.Problem)(nil); errors.As(err, &p) && p.Code == http.StatusOK { // the contract reports missing records with a 200
			err = operation.NotFound(p.Message)
		}
		return Disclosed{told, c.Header.Get(headerAlgorithm), c.Header.Get(headerKeyID)}, err
	})
}

func (m *Module) handleReveal(ctx context.Context, c *operation.Call) (operation.Result, error) {
	told, err := m.open(ctx, c, c.Path("id"), c.Query.Text("field"), c.Query.Text("public_key"))
	if err != nil {
		return operation.Result{}, err
	}
	return operation.Result{Data: told}, nil
}

// open returns the value of a field, encrypted to the given key or, without one, in clear.
func (m *Module) open(ctx context.Context, c *operation.Call, id, name, keyText string) (out Revealed, err error) {
	c.Header.Set("Cache-Control", "no-store") // refusals too
	if store.ValidID(id) {
		c.Note("contact", id)
	}
	// Faults of the input must not reveal whether the contact exists.
	var keyErrs fault.List
	key := publicKey(c, keyText, &keyErrs)
	checked := func() error { return m.checkInput(ctx, c, name, keyErrs) }
	if len(keyErrs) > 0 || name == "" {
		return out, checked()
	}
	var contact *Contact
	err = together.Do(c.Workspace.Remote(), checked, func() (err error) {
		contact, err = m.Contacts.In(c.Workspace).Get(ctx, id)
		if errors.Is(err, store.ErrNotFound) {
			return operation.Failed(messageNotFound, nil)
		}
		return err
	})
	if err != nil {
		return out, err
	}
	sealed, ok := contact.Secrets[name]
	if !ok {
		return out, operation.Failed(messageNoValue, nil)
	}
	value, err := (&secrets.Vault{Keys: m.keys, Tenant: c.Tenant}).Open(ctx, secrets.Place{
		Collection: m.Contacts.Spec().Name, Record: contact.ID,
	}, name, sealed)
	if err != nil {
		return out, err
	}
	if key == nil {
		return Revealed{FieldValue: value.Reveal()}, nil
	}
	return sealTo(c, key, value.Reveal())
}

// checkInput returns the faults of the field and the others.
func (m *Module) checkInput(ctx context.Context, c *operation.Call, name string, others fault.List) error {
	var errs fault.List
	if err := m.checkField(ctx, c, &errs, name); err != nil {
		return err
	}
	return append(errs, others...).Err()
}

// checkField notes a field that does not exist or is not encrypted, without saying which.
func (m *Module) checkField(ctx context.Context, c *operation.Call, errs *fault.List, name string) error {
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
		errs.Add("field", "forbidden", "field: %q is not an encrypted field", texts.Clip(name))
	}
	return nil
}

// publicKey returns the key to encrypt to; nil if none is given or it is not accepted.
func publicKey(c *operation.Call, text string, errs *fault.List) *sealing.PublicKey {
	if text == "" && !c.Query.Has("public_key") {
		if c.Tenant.Org.Setting(tenants.SettingRequirePublicEncryptionKey) {
			errs.Add("public_key", "required", "public_key is required by this organization's settings")
		}
		return nil
	}
	key, err := sealing.ParsePublicKey(text)
	if err != nil {
		errs.Add("public_key", "format", "public_key is not accepted: %s", err)
		return nil
	}
	return key
}

func sealTo(c *operation.Call, key *sealing.PublicKey, value string) (Revealed, error) {
	c.Note("public_key", key.KeyID())
	sealed, err := key.Seal([]byte(value))
	if errors.Is(err, sealing.ErrTooLong) { // its text reveals the length of the value
		return Revealed{}, fault.One("public_key", "length",
			"public_key is too small for the value: it holds at most %d bytes; send a longer RSA key or an X25519 key", key.MaxPlaintext())
	}
	if err != nil {
		return Revealed{}, operation.Internal(err)
	}
	c.Header.Set(headerAlgorithm, key.Algorithm())
	c.Header.Set(headerKeyID, key.KeyID())
	return Revealed{FieldValue: sealed}, nil
}
