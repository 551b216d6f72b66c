package config_test

import (
	"strings"
	"testing"
)

func TestMailSettings(t *testing.T) {
	t.Parallel()
	const secretText = "hunter2-hunter2"
	for _, test := range []struct {
		yaml string
		want []string // beginnings of the lines of the error
	}{
		{"mail: {url: 'smtp://mail.example.com', from: noreply@example.com}", nil},
		{"mail: {url: 'smtp://u:" + secretText + "@mail.example.com:587', from: 'Tenantry <noreply@example.com>'}", nil},
		{"mail: {url: 'smtps://u:p%40ss@mail.example.com', from: a@b.c, tls_ca_file: /etc/ca.pem}", nil},
		{"mail: {url: 'smtp+plain://10.0.0.5:25', from: a@b.c}", nil},
		{"mail: {url: 'smtp+plain://u:" + secretText + "@127.0.0.1:25', from: a@b.c}", nil},
		{"mail: {url: 'smtp+plain://u:" + secretText + "@10.0.0.5:25', from: a@b.c}", []string{"mail.url: would send the password unencrypted"}},
		{"mail: {url: 'smtp+plain://10.0.0.5', from: a@b.c, tls_ca_file: /etc/ca.pem}", []string{"mail.tls_ca_file: is for an encrypted connection"}},
		{"mail: {from: a@b.c}", []string{"mail.url: name the mail server"}},
		{"mail: {tls_ca_file: /etc/ca.pem}", []string{"mail.url: name the mail server"}},
		{"mail: {url: 'smtp://mail.example.com'}", []string{"mail.from: name the sender"}},
		{"mail: {url: 'smtp://mail.example.com', from: nobody}", []string{"mail.from: name the sender"}},
		{"mail: {url: 'smtp://mail.example.com', from: \"a@b.c\\r\\nBcc: d@e.f\"}", []string{"mail.from: name the sender"}},
		{"mail: {url: 'smtp://u@mail.example.com', from: a@b.c}", []string{"mail.url: needs user and password, or neither"}},
		{"mail: {per_address: 0}", []string{"mail.per_address: must be a number of mails in an hour from 1"}},
		{"mail: {per_organization: 1000001}", []string{"mail.per_organization: must be a number of mails in an hour from 1"}},
		{"mail: {tls_ca_file: ~/ca.pem, url: 'smtp://mail.example.com', from: a@b.c}", []string{"mail.tls_ca_file: begins with ~"}},
	} {
		_, err := loadYAML(t, test.yaml)
		var lines []string
		if err != nil {
			lines = strings.Split(err.Error(), "\n")
			if strings.Contains(err.Error(), secretText) {
				t.Errorf("%s: got the secret in %v", test.yaml, err)
			}
		}
		good := len(lines) == len(test.want)
		for i := range min(len(lines), len(test.want)) {
			good = good && strings.HasPrefix(lines[i], test.want[i])
		}
		if !good {
			t.Errorf("%s: got %q, want %q", test.yaml, lines, test.want)
		}
	}
	for _, bad := range []string{
		"mail.example.com", "http://mail.example.com", "smtp://", "smtp:///x", "smtp://h/path", "smtp://h?x=1", "smtp://h#x", "smtp://h:0", "smtp://h:65536",
		"smtp://[::1", "smtp://u:p@ss@h:x", "smtp://%zz", "smtp://u:" + secretText + "@h/x",
	} {
		_, err := loadYAML(t, "mail: {url: '"+bad+"', from: a@b.c}")
		if err == nil || !strings.HasPrefix(err.Error(), "mail.url: is not an address") || strings.Contains(err.Error(), secretText) {
			t.Errorf("mail.url %s: got %v, want a fault without the secret", bad, err)
		}
	}
}
