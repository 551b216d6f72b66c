package redisconn

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// TLSOptions name the files of a connection over TLS; all may be empty.
type TLSOptions struct {
	CAFile     string // PEM; empty: the authorities of the system
	CertFile   string // PEM; the gateway's own certificate, with KeyFile
	KeyFile    string // PEM
	ServerName string // expected in the server's certificate; empty: the host of its address
}

// Config reads the files. The certificate and its key are read again for every connection, so that they can be replaced
// without a restart; the authorities are not. Errors name the file.
func (o TLSOptions) Config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.ServerName}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("the authorities of Redis: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("the authorities of Redis: %s holds no certificate in PEM form", o.CAFile)
		}
	}
	if o.CertFile == "" && o.KeyFile == "" {
		return c, nil
	}
	if _, err := o.certificate(); err != nil {
		return nil, err
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return o.certificate() }
	return c, nil
}

func (o TLSOptions) certificate() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("the certificate %q for Redis and its key %q: %w", o.CertFile, o.KeyFile, err)
	}
	return &pair, nil
}
