package secret_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"tenantry/crypto/secret"
)

const canary = "s3cr3t-canary-4711"

func TestStringIsRedactedByEveryVerb(t *testing.T) {
	t.Parallel()
	s := secret.New(canary)
	hexForm := fmt.Sprintf("%x", canary)
	type hidden struct{ inner secret.String }
	type shown struct{ Inner secret.String }
	values := map[string]any{
		"value": s, "pointer": &s,
		"unexported field": hidden{s}, "pointer to unexported field": &hidden{s},
		"exported field": shown{s}, "slice": []secret.String{s}, "map": map[string]secret.String{"k": s},
		"nested slice": []hidden{{s}}, "map key": map[secret.String]int{s: 1},
	}
	for name, v := range values {
		for _, verb := range "vsqxXdcbtTpeEfFgGoOU" {
			for _, flag := range []string{"", "+", "#", "-20", "020", " "} {
				got := fmt.Sprintf("%"+flag+string(verb), v)
				if strings.Contains(got, canary) || strings.Contains(strings.ToLower(got), hexForm) {
					t.Errorf("%s with %%%s%c: %q holds the secret", name, flag, verb, got)
				}
			}
		}
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		if got := fmt.Sprintf(format, s); got != secret.Redacted {
			t.Errorf("%s: got %q, want %q", format, got, secret.Redacted)
		}
	}
}

func TestStringIsRedactedInLogsAndJSON(t *testing.T) {
	t.Parallel()
	s := secret.New(canary)
	var out bytes.Buffer
	slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "s", s, "in", struct{ S secret.String }{s})
	slog.New(slog.NewTextHandler(&out, nil)).Info("m", "s", s, "in", struct{ S, t secret.String }{s, s})
	encoded, err := json.Marshal(map[string]any{"s": s, "p": &s, "in": struct{ S secret.String }{s}})
	if err != nil {
		t.Fatal(err)
	}
	out.Write(encoded)
	if strings.Contains(out.String(), canary) {
		t.Fatalf("the secret is in %s", out.String())
	}
	if n := strings.Count(out.String(), secret.Redacted); n < 6 {
		t.Fatalf("%d placeholders in %s", n, out.String())
	}
}

func TestStringReadsText(t *testing.T) {
	t.Parallel()
	var cfg struct{ Key secret.String }
	if err := json.Unmarshal([]byte(`{"Key":"`+canary+`"}`), &cfg); err != nil {
		t.Fatal(err)
	}
	if cfg.Key.Reveal() != canary || cfg.Key.Len() != len(canary) || cfg.Key.IsZero() {
		t.Fatalf("read %q", cfg.Key.Reveal())
	}
	if err := json.Unmarshal([]byte(`{"Key":"[redacted]"}`), &cfg); !errors.Is(err, secret.ErrPlaceholder) {
		t.Fatalf("placeholder: got %v", err)
	}
	if err := json.Unmarshal([]byte(`{"Key":47114711}`), &cfg); err == nil || strings.Contains(err.Error(), "4711") {
		t.Fatalf("number: got %v", err)
	}
}

func TestStringZeroAndEqual(t *testing.T) {
	t.Parallel()
	var zero secret.String
	if !zero.IsZero() || zero.Reveal() != "" || fmt.Sprint(zero) != "" || !secret.New("").IsZero() {
		t.Fatal("the zero value is not the empty secret")
	}
	if !secret.New("a").Equal(secret.New("a")) || secret.New("a").Equal(secret.New("b")) ||
		secret.New("a").Equal(zero) || !zero.Equal(secret.New("")) {
		t.Fatal("Equal compares something else than the content")
	}
}
