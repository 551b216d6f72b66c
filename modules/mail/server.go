package mail

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	netmail "net/mail"
	"net/textproto"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	gomail "github.com/wneessen/go-mail"
	"github.com/wneessen/go-mail/smtp"

	"tenantry/config"
)

// sendTimeout bounds what the server takes to be connected, and for one mail.
const sendTimeout = 30 * time.Second

// Server is the mail server of the installation. Safe for concurrent use.
type Server struct {
	settings config.MailServer
	from     netmail.Address
	tls      *tls.Config
	parsed   func() parsed // the templates, which are read for the first mail
}

// NewServer returns the server that the settings name, nil if they name none. It does not connect. The errors name the
// setting.
func NewServer(c config.Mail) (*Server, error) {
	if c.URL.IsZero() {
		return nil, nil
	}
	settings, ok := c.Server()
	from, err := c.Sender()
	if !ok || err != nil {
		return nil, errors.New("mail.url and mail.from do not name a mail server and a sender")
	}
	s := &Server{
		settings: settings, from: *from, parsed: sync.OnceValue(parse),
		tls: &tls.Config{ServerName: settings.Host, MinVersion: tls.VersionTLS12},
	}
	if c.TLSCAFile != "" {
		pem, err := os.ReadFile(c.TLSCAFile)
		if err != nil {
			return nil, fmt.Errorf("mail.tls_ca_file: %w", err)
		}
		if s.tls.RootCAs = x509.NewCertPool(); !s.tls.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("mail.tls_ca_file: %s has no certificate in PEM", c.TLSCAFile)
		}
	}
	return s, nil
}

// Address returns host and port of the server, for people.
func (s *Server) Address() string { return fmt.Sprintf("%s:%d", s.settings.Host, s.settings.Port) }

// conn is a connection to a server. Not safe for concurrent use.
type conn struct {
	of     *Server
	client *gomail.Client
	smtp   *smtp.Client
	stop   func() bool // ends the watch over the context
	// refused counts mails that were refused for themselves.
	refused int
}

// dial connects, encrypts and signs in. The connection ends with ctx. The error holds no secret and no address of a
// person.
func (s *Server) dial(ctx context.Context) (*conn, error) {
	policy := gomail.TLSMandatory
	switch {
	case s.settings.Scheme == config.MailPlainScheme:
		policy = gomail.NoTLS
	case s.settings.Scheme == config.MailScheme && s.settings.Loopback():
		policy = gomail.TLSOpportunistic
	}
	var raw atomic.Pointer[net.Conn]
	dialer := func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		raw.Store(&c)
		if s.settings.Scheme == config.MailTLSScheme {
			c = tls.Client(c, s.tls)
		}
		return c, nil
	}
	options := []gomail.Option{
		gomail.WithPort(s.settings.Port), gomail.WithTLSPolicy(policy), gomail.WithTLSConfig(s.tls),
		gomail.WithTimeout(sendTimeout), gomail.WithDialContextFunc(dialer),
	}
	if s.settings.Scheme == config.MailTLSScheme {
		options = append(options, gomail.WithSSL())
	}
	if s.settings.User != "" {
		options = append(options, gomail.WithUsername(s.settings.User), gomail.WithPassword(s.settings.Password.Reveal()),
			gomail.WithOpportunisticSMTPAuth(gomail.SMTPAuthSCRAMSHA256, gomail.SMTPAuthPlain, gomail.SMTPAuthLogin))
	}
	client, err := gomail.NewClient(s.settings.Host, options...)
	if err != nil {
		return nil, fmt.Errorf("mail server %s: %s", s.Address(), describe(err))
	}
	hangUp := func() {
		if c := raw.Load(); c != nil {
			_ = (*c).Close()
		}
	}
	stop := context.AfterFunc(ctx, hangUp)
	session, err := client.DialToSMTPClientWithContext(ctx)
	if err != nil {
		stop()
		hangUp()
		return nil, fmt.Errorf("mail server %s: %s", s.Address(), describe(err))
	}
	return &conn{of: s, client: client, smtp: session, stop: stop}, nil
}

// close takes leave of the server.
func (c *conn) close() {
	_ = c.client.CloseWithSMTPClient(c.smtp) // what was sent has been acknowledged
	c.stop()
}

// Reach reports whether the server answers and takes the sender. It sends nothing. The error is for the operator.
func (s *Server) Reach(ctx context.Context) error {
	c, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.smtp.Mail("<" + s.from.Address + ">"); err != nil {
		return fmt.Errorf("mail server %s: does not take mail.from as the sender: %s", s.Address(), describe(err))
	}
	_ = c.smtp.Reset()
	return nil
}

// describe returns what a failed connection was about, without texts of the server, which may hold addresses and names.
func describe(err error) string {
	if reply, ok := errors.AsType[*textproto.Error](err); ok {
		return fmt.Sprintf("answers %d", reply.Code)
	}
	var network net.Error
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &authority), errors.As(err, &host), errors.As(err, &invalid), errors.As(err, &network):
		return err.Error()
	case strings.Contains(err.Error(), "STARTTLS"):
		return "does not offer STARTTLS, without which nothing is sent to another machine"
	case errors.Is(err, gomail.ErrNoSupportedAuthDiscovered), strings.Contains(err.Error(), "AUTH"):
		return "offers no way to sign in that is supported"
	}
	return "the connection failed"
}

// outcome is what became of a mail that was offered to the server.
type outcome struct {
	sent      bool
	permanent bool // it will never be taken
	away      bool // the server itself is at fault: other mails would fare the same
	code      int  // of its reply; 0: there was none
}

// send offers a mail to the server.
func (c *conn) send(m *gomail.Msg) (out outcome) {
	err := c.client.SendWithSMTPClient(c.smtp, m)
	if err == nil || m.IsDelivered() {
		return outcome{sent: true}
	}
	failed, ok := errors.AsType[*gomail.SendError](err)
	if !ok {
		return outcome{away: true}
	}
	code := failed.ErrorCode()
	out = outcome{code: code, permanent: code >= 500}
	defer func() {
		if !out.away {
			c.refused++
		}
	}()
	switch failed.Reason {
	case gomail.ErrSMTPRcptTo, gomail.ErrSMTPData, gomail.ErrSMTPDataClose:
		out.away = code == 0 || code == textClosing
	case gomail.ErrGetSender, gomail.ErrGetRcpts:
		out.permanent = true
	default: // the sender, the connection
		out.permanent, out.away = false, true
	}
	if network, broken := errors.AsType[net.Error](err); broken && network != nil {
		out.permanent, out.away = false, true
	}
	return out
}

// textClosing is the reply of a server that closes the connection.
const textClosing = 421

// message returns the mail with a content, for one address.
func (s *Server) message(id, name, to string, c *Content, now time.Time) (*gomail.Msg, error) {
	text, html, err := c.render(s.parsed())
	if err != nil {
		return nil, err
	}
	m := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	if name = line(name); name == "" {
		name = line(s.from.Name)
	}
	m.FromMailAddress(&netmail.Address{Name: name, Address: s.from.Address})
	m.ToMailAddress(&netmail.Address{Address: to})
	if c.ReplyTo != "" {
		m.ReplyToMailAddress(&netmail.Address{Address: c.ReplyTo})
	}
	m.Subject(line(c.Subject))
	m.SetDateWithValue(now)
	_, domain, _ := strings.Cut(s.from.Address, "@")
	m.SetMessageIDWithValue(id + "@" + domain) // the same in every try, so that readers show it once
	m.SetGenHeader("Auto-Submitted", "auto-generated")
	if c.Unsubscribe != "" {
		m.SetListUnsubscribe(c.Unsubscribe)
		if strings.HasPrefix(c.Unsubscribe, "https:") { // RFC 8058: readers may unsubscribe by themselves
			m.SetListUnsubscribePost()
		}
	}
	m.SetBodyString(gomail.TypeTextPlain, text)
	m.AddAlternativeString(gomail.TypeTextHTML, html)
	for i, p := range c.Pictures {
		id := pictureID(i)
		err := m.EmbedReader(id+".png", bytes.NewReader(p.PNG), gomail.WithFileContentID(id), gomail.WithFileContentType("image/png"))
		if err != nil {
			return nil, err
		}
	}
	for _, f := range c.Files {
		err := m.AttachReader(line(f.Name), bytes.NewReader(f.Data), gomail.WithFileContentType("text/csv; charset=utf-8"))
		if err != nil {
			return nil, err
		}
	}
	return m, nil
}
