package mail

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	netmail "net/mail"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/gatewaytest"
	"tenantry/tenants/redistest"
)

const (
	mailUser     = "tenantry"
	mailPassword = "a p@ss/word"
	mailSender   = "noreply@tenantry.example"
)

// received is a mail that the server took.
type received struct {
	From, To   string
	Header     netmail.Header
	Subject    string
	Text, HTML string
	Parts      map[string][]byte // by media type
	Raw        string
}

// mailServer is an SMTP server of a test. Its fields may be set before it is started.
type mailServer struct {
	t    *testing.T
	tls  *tls.Config // nil: it offers no STARTTLS
	auth bool        // callers must sign in
	// implicit, unless nil, encrypts from the first byte.
	implicit *tls.Config
	address  string
	server   *smtp.Server
	listens  net.Listener
	mails    chan received

	mu     sync.Mutex
	refuse func(step, address string) error // of MAIL, RCPT and DATA; nil: nothing
	signed atomic.Int64                     // sign-ins
	clear  atomic.Int64                     // mails that came over a connection without encryption
}

func newServer(t *testing.T) *mailServer {
	t.Helper()
	s := &mailServer{t: t, mails: make(chan received, 5000)}
	t.Cleanup(s.stop)
	return s
}

// start makes the server answer, on the port that it had before.
func (s *mailServer) start() *mailServer {
	s.t.Helper()
	if s.address == "" {
		s.address = redistest.FreeAddr(s.t) // which nobody gets while the server is away
	}
	l, err := net.Listen("tcp", s.address)
	for end := time.Now().Add(time.Minute); err != nil; l, err = net.Listen("tcp", s.address) {
		if time.Now().After(end) { // the port may still be in use by a connection that ends
			s.t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	s.address = l.Addr().String()
	if s.implicit != nil {
		l = tls.NewListener(l, s.implicit)
	}
	s.server = smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) {
		return &session{of: s, conn: c}, nil
	}))
	s.server.Domain, s.server.TLSConfig, s.server.AllowInsecureAuth = "mail.test", s.tls, true
	s.server.ErrorLog = quiet{}
	server := s.server
	s.listens = l
	go func() { _ = server.Serve(l) }()
	return s
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}
func (quiet) Println(...any)        {}

// stop makes the server unreachable.
func (s *mailServer) stop() {
	if s.server != nil {
		_, _ = s.server.Close(), s.listens.Close() // of which the first knows nothing before Serve has begun
		s.server = nil
	}
}

// refusing sets what the server refuses; nil: nothing.
func (s *mailServer) refusing(refuse func(step, address string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = refuse
}

func (s *mailServer) judge(step, address string) error {
	s.mu.Lock()
	refuse := s.refuse
	s.mu.Unlock()
	if refuse == nil {
		return nil
	}
	return refuse(step, address)
}

// next returns the next mail.
func (s *mailServer) next() received {
	s.t.Helper()
	select {
	case m := <-s.mails:
		return m
	case <-time.After(30 * time.Second):
		s.t.Fatal("no mail arrived within 30 s")
	}
	return received{}
}

// none fails if a mail has arrived.
func (s *mailServer) none() {
	s.t.Helper()
	select {
	case m := <-s.mails:
		s.t.Fatalf("got a mail to %s: %s", m.To, m.Subject)
	default:
	}
}

// session is a connection to the server.
type session struct {
	of       *mailServer
	conn     *smtp.Conn
	signedIn bool
	from, to string
}

func (c *session) AuthMechanisms() []string { return []string{sasl.Plain} }

func (c *session) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, username, password string) error {
		if username != mailUser || password != mailPassword {
			return smtp.ErrAuthFailed
		}
		c.of.signed.Add(1)
		c.signedIn = true
		return nil
	}), nil
}

func (c *session) Reset()        {}
func (c *session) Logout() error { return nil }

func (c *session) Mail(from string, _ *smtp.MailOptions) error {
	if c.of.auth && !c.signedIn {
		return smtp.ErrAuthRequired
	}
	if _, encrypted := c.conn.TLSConnectionState(); !encrypted {
		c.of.clear.Add(1)
	}
	c.from = from
	return c.of.judge("MAIL", from)
}

func (c *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	c.to = to
	return c.of.judge("RCPT", to)
}

func (c *session) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err == nil {
		err = c.of.judge("DATA", c.to)
	}
	if err != nil {
		return err
	}
	m, err := parseMail(raw)
	if err != nil {
		return &smtp.SMTPError{Code: 554, Message: "not a mail: " + err.Error()}
	}
	m.From, m.To = c.from, c.to
	c.of.mails <- m
	return c.of.judge("TAKEN", c.to)
}

func parseMail(raw []byte) (received, error) {
	out := received{Raw: string(raw)}
	m, err := netmail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		return out, err
	}
	out.Header = m.Header
	if out.Subject, err = new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject")); err != nil {
		return out, err
	}
	out.Parts = map[string][]byte{}
	if err = out.read(m.Header.Get("Content-Type"), m.Body); err == nil && out.Parts["text/plain"] == nil {
		err = errors.New("there is no text")
	}
	out.HTML = string(out.Parts["text/html"])
	out.Text = strings.ReplaceAll(string(out.Parts["text/plain"]), "\r\n", "\n")
	return out, err
}

// read reads the parts of a body.
func (m *received) read(kind string, in io.Reader) error {
	_, params, err := mime.ParseMediaType(kind)
	if err != nil {
		return err
	}
	for parts := multipart.NewReader(in, params["boundary"]); ; {
		p, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		kind := p.Header.Get("Content-Type")
		if strings.HasPrefix(kind, "multipart/") {
			if err := m.read(kind, p); err != nil {
				return err
			}
			continue
		}
		var body io.Reader = p
		switch p.Header.Get("Content-Transfer-Encoding") {
		case "quoted-printable":
			body = quotedprintable.NewReader(p)
		case "base64":
			body = base64.NewDecoder(base64.StdEncoding, p) // it passes over line breaks
		}
		media, _, err := mime.ParseMediaType(kind)
		if err != nil {
			return err
		}
		if m.Parts[media], err = io.ReadAll(body); err != nil {
			return err
		}
	}
}

// withMail is an Option that makes the gateway send mail through the server.
func (s *mailServer) withMail(change ...func(*config.Mail)) gatewaytest.Option {
	return func(cfg *config.Config, _ *gateway.Options) {
		url := "smtp://" + s.address
		if s.auth {
			url = "smtp://" + mailUser + ":" + strings.NewReplacer("@", "%40", "/", "%2F", " ", "%20").Replace(mailPassword) + "@" + s.address
		}
		if err := cfg.Mail.URL.UnmarshalText([]byte(url)); err != nil {
			panic(err)
		}
		cfg.Mail.From = mailSender
		for _, c := range change {
			c(&cfg.Mail)
		}
	}
}

// certificate returns a server's certificate for 127.0.0.1 and the path of its authority's.
func certificate(t *testing.T) (*tls.Config, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "mail.test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12,
	}, path
}
