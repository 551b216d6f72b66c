package config

import (
	"net/mail"
	"net/url"
	"strconv"
	"strings"

	"tenantry/crypto/secret"
)

// Schemes of mail.url.
const (
	MailScheme      = "smtp"       // STARTTLS, which only a server on this machine may lack
	MailTLSScheme   = "smtps"      // TLS from the first byte
	MailPlainScheme = "smtp+plain" // no encryption
)

// Mail says through which server mail is sent.
type Mail struct {
	// URL is the address of the server, like smtp://user:password@mail.example.com:587; empty: nobody is mailed.
	URL secret.String `yaml:"url"`
	// From is the sender, like noreply@example.com. The name that readers see is that of the organization.
	From string `yaml:"from"`
	// TLSCAFile is a PEM file of the authorities that sign the certificate of the server; empty: those of the system.
	TLSCAFile string `yaml:"tls_ca_file"`
	// PerOrganization is how many mails an organization sends in an hour, PerAddress how many of them to one address.
	// Further mails wait.
	PerOrganization int `yaml:"per_organization"`
	PerAddress      int `yaml:"per_address"`
}

// MailServer is what mail.url names.
type MailServer struct {
	Scheme   string
	Host     string
	Port     int
	User     string
	Password secret.String
}

// Loopback reports whether the server is on this machine.
func (s *MailServer) Loopback() bool { return isLoopback(s.Host) }

const (
	maxMailLimit  = 1_000_000
	minMailServer = 1 // port
	maxMailServer = 1<<16 - 1
)

// Server returns what the address names. ok is false if it is not an address of a mail server.
func (m *Mail) Server() (s MailServer, ok bool) {
	u, err := url.Parse(m.URL.Reveal())
	if err != nil || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return s, false
	}
	ports := map[string]int{MailScheme: 587, MailTLSScheme: 465, MailPlainScheme: 25}
	if s.Port = ports[u.Scheme]; s.Port == 0 {
		return s, false
	}
	if text := u.Port(); text != "" {
		if s.Port, err = strconv.Atoi(text); err != nil || s.Port < minMailServer || s.Port > maxMailServer {
			return s, false
		}
	}
	password, _ := u.User.Password()
	s.Scheme, s.Host, s.User, s.Password = u.Scheme, u.Hostname(), u.User.Username(), secret.New(password)
	return s, s.Host != ""
}

// Sender returns the address and the name of From. The error does not tell the text.
func (m *Mail) Sender() (*mail.Address, error) { return mail.ParseAddress(m.From) }

// check reports settings that cannot be used. No fault tells the address of the server, which may hold a password.
func (m *Mail) check(fault func(name, format string, args ...any)) {
	const form = "is not an address like smtp://user:password@mail.example.com:587, smtps:// or smtp+plain://; " +
		"characters such as @ and / in a password are written as %%40 and %%2F"
	for name, n := range map[string]int{"mail.per_organization": m.PerOrganization, "mail.per_address": m.PerAddress} {
		if n < 1 || n > maxMailLimit {
			fault(name, "must be a number of mails in an hour from 1 to %d", maxMailLimit)
		}
	}
	if m.URL.IsZero() {
		if m.From != "" || m.TLSCAFile != "" {
			fault("mail.url", "name the mail server, such as smtp://mail.example.com:587; the other settings of mail need it")
		}
		return
	}
	s, ok := m.Server()
	switch {
	case !ok:
		fault("mail.url", form)
	case (s.User == "") != s.Password.IsZero():
		fault("mail.url", "needs user and password, or neither")
	case s.Scheme == MailPlainScheme && s.User != "" && !s.Loopback():
		fault("mail.url", "would send the password unencrypted: use smtp:// or smtps://, or a server that takes mail without")
	case s.Scheme == MailPlainScheme && m.TLSCAFile != "":
		fault("mail.tls_ca_file", "is for an encrypted connection: use smtp:// or smtps:// in mail.url")
	}
	if a, err := m.Sender(); err != nil || strings.ContainsAny(m.From, "\r\n") || !strings.Contains(a.Address, "@") {
		fault("mail.from", "name the sender, such as noreply@example.com")
	}
}
