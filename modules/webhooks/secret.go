package webhooks

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"tenantry/crypto/keyring"
	"tenantry/tenants"
)

// KeySet are an organization's data keys.
type KeySet interface {
	Current() keyring.DataKey
	Version(n int) (keyring.DataKey, bool)
}

// Secrets are not stored. A secret is derived from a data key of the organization, the webhook and a random text, and the
// webhook has only the version of the key and that text.

// newSecret returns the name of a new secret.
func newSecret(keys KeySet) string {
	return strconv.Itoa(keys.Current().Version()) + "." + rand.Text()
}

// secretOf returns the secret of that name of a webhook. It fails if the data key is gone.
func secretOf(keys KeySet, hook, name string) ([]byte, error) {
	version, salt, _ := strings.Cut(name, ".")
	n, err := strconv.Atoi(version)
	key, ok := keys.Version(n)
	if err != nil || !ok {
		return nil, fmt.Errorf("the secret of webhook %s: its data key is gone; rotate the secret", hook)
	}
	mac := hmac.New(sha256.New, key.Bytes())
	mac.Write([]byte("webhook secret\x00" + hook + "\x00" + salt))
	return mac.Sum(nil), nil
}

// shownSecret returns the secret as receivers need it.
func shownSecret(secret []byte) string { return "whsec_" + base64.StdEncoding.EncodeToString(secret) }

// signer signs what is sent to one webhook.
type signer []*standard.Webhook

// signerOf returns the signer of a webhook, with the former secret while that is valid.
func (m *Module) signerOf(ctx context.Context, t *tenants.Tenant, h *Hook) (signer, error) {
	keys, err := m.Keys(ctx, t)
	if err != nil {
		return nil, err
	}
	names := []string{h.Signing}
	if h.Former != "" && m.Now().UnixMilli() < h.FormerUntil {
		names = append(names, h.Former)
	}
	var s signer
	for _, name := range names {
		secret, err := secretOf(keys, h.ID, name)
		if err != nil {
			return nil, err
		}
		one, err := standard.NewWebhookRaw(secret)
		if err != nil {
			return nil, err
		}
		s = append(s, one)
	}
	return s, nil
}

// sign sets the headers of a message.
func (s signer) sign(h http.Header, id string, at time.Time, body []byte) error {
	all := make([]string, len(s))
	for i, one := range s {
		text, err := one.Sign(id, at, body)
		if err != nil {
			return fmt.Errorf("signing a delivery: %w", err)
		}
		all[i] = text
	}
	h.Set(standard.HeaderWebhookID, id)
	h.Set(standard.HeaderWebhookTimestamp, strconv.FormatInt(at.Unix(), 10))
	h.Set(standard.HeaderWebhookSignature, strings.Join(all, " "))
	return nil
}
