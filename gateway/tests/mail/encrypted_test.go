package mail

import (
	"net"
	"strings"
	"testing"

	"github.com/emersion/go-smtp"

	"tenantry/config"
	"tenantry/modules/mail"
)

// reach asks a server whether it answers and takes the sender.
func reach(t *testing.T, url, authority string) error {
	t.Helper()
	c := config.Mail{From: mailSender, TLSCAFile: authority}
	if err := c.URL.UnmarshalText([]byte(url)); err != nil {
		t.Fatal(err)
	}
	s, err := mail.NewServer(c)
	if err != nil {
		t.Fatal(err)
	}
	return s.Reach(t.Context())
}

// TestServerIsReached checks which servers are used: those with a certificate of the authority, and without encryption
// only those of this machine or of smtp+plain. No refusal tells the password.
func TestServerIsReached(t *testing.T) {
	t.Parallel()
	certificates, authority := certificate(t)
	encrypted, clear, refusing := newServer(t), newServer(t), newServer(t)
	encrypted.tls, encrypted.auth = certificates, true
	encrypted.start()
	clear.start()
	refusing.refusing(func(step, address string) error {
		if step == "MAIL" {
			return &smtp.SMTPError{Code: 550, Message: "nobody sends as " + address}
		}
		return nil
	})
	refusing.start()
	implicit := newServer(t)
	implicit.implicit, implicit.auth = certificates, true
	implicit.start()
	const right, wrong = mailUser + ":a%20p%40ss%2Fword@", mailUser + ":hunter2-hunter2@"
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := gone.Addr().String()
	_ = gone.Close()
	for _, test := range []struct{ url, authority, want string }{
		{"smtp://" + right + encrypted.address, authority, ""},
		{"smtp://" + wrong + encrypted.address, authority, "answers 535"},
		{"smtp://" + encrypted.address, authority, "does not take mail.from as the sender: answers 502"},
		{"smtp://" + right + encrypted.address, "", "certificate"},
		{"smtps://" + right + implicit.address, authority, ""},
		{"smtps://" + wrong + implicit.address, authority, "answers 535"},
		{"smtps://" + right + implicit.address, "", "certificate"},
		{"smtp://" + clear.address, "", ""},
		{"smtp+plain://" + clear.address, "", ""},
		{"smtp://" + refusing.address, "", "does not take mail.from as the sender: answers 550"},
		{"smtp://" + nobody, "", "connection refused"},
	} {
		err := reach(t, test.url, test.authority)
		switch {
		case test.want == "" && err != nil, test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: got %v, want %q", test.url, err, test.want)
		case err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "nobody sends") || strings.Contains(err.Error(), "@")):
			t.Errorf("%s: the error tells too much: %v", test.url, err)
		}
	}
}

// TestStartTLSIsRequired checks that nothing is sent in clear to another machine, unless the scheme says so.
func TestStartTLSIsRequired(t *testing.T) {
	t.Parallel()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	var own net.IP
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && n.IP.To4() != nil {
			own = n.IP
		}
	}
	if own == nil {
		t.Skip("the machine has no address besides those of itself")
	}
	server := newServer(t)
	server.address = own.String() + ":0"
	server.start()
	if err := reach(t, "smtp://"+server.address, ""); err == nil || !strings.Contains(err.Error(), "STARTTLS") {
		t.Errorf("got %v, want STARTTLS required", err)
	}
	if n := server.clear.Load(); n != 0 {
		t.Errorf("senders in clear = %d, want none", n)
	}
	if err := reach(t, "smtp+plain://"+server.address, ""); err != nil {
		t.Errorf("smtp+plain: got %v", err)
	}
}
