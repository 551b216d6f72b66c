package redisconn_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"tenantry/crypto/secret"
	"tenantry/internal/maintest"
	"tenantry/tenants/redisconn"
	"tenantry/tenants/redistest"
)

func TestMain(m *testing.M) { maintest.Leakless(m) }

// authority issues certificates for a test.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, name)
	a.file = filepath.Join(a.dir, name+".pem")
	return a
}

// pair writes a certificate and its key and returns their files.
func (a *authority) pair(name string, usage x509.ExtKeyUsage) (cert, key string) {
	a.t.Helper()
	a.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, ExtKeyUsage: []x509.ExtKeyUsage{usage}, KeyUsage: x509.KeyUsageDigitalSignature,
	}, name)
	return filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
}

func (a *authority) issue(template *x509.Certificate, name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		name + ".pem": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "PRIVATE KEY", Bytes: pkcs8},
	} {
		if err := os.WriteFile(filepath.Join(a.dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	return cert, key
}

// ping returns what one command ends with. A busy machine may not get through a handshake
// in the client's time, which says nothing here: then it is tried again.
func ping(t *testing.T, o redisconn.Options) error {
	t.Helper()
	client, err := redisconn.Dial(o)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for deadline := time.Now().Add(30 * time.Second); ; {
		err := client.Ping(t.Context()).Err()
		var timeout net.Error
		if late := errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout(); !late || time.Now().After(deadline) {
			return err
		}
	}
}

// tlsServer starts a server that demands certificates, or skips the test where the
// installed one cannot speak TLS.
func tlsServer(t *testing.T, ca *authority, o redisconn.TLSOptions, extra ...string) *redistest.Server {
	t.Helper()
	program := redistest.Program(t, "redis-server")
	// One without TLS ends at the unknown setting, one with it at the missing file.
	out, _ := exec.Command(program, "--port", "0", "--tls-port", "1", "--tls-cert-file", "/nonexistent").CombinedOutput()
	if strings.Contains(string(out), "Bad directive") {
		t.Skip("the installed redis-server cannot speak TLS")
	}
	cert, key := ca.pair("redis.test", x509.ExtKeyUsageServerAuth)
	config, err := o.Config()
	if err != nil {
		t.Fatal(err)
	}
	return redistest.Start(t, func(s *redistest.Server) {
		redistest.Args(append([]string{"--port", "0", "--tls-port", redistest.Port(s.Addr), "--tls-cert-file", cert, "--tls-key-file", key,
			"--tls-ca-cert-file", ca.file, "--tls-auth-clients", "yes"}, extra...)...)(s)
		redistest.Credentials(redisconn.Options{TLS: config, Username: "tenantry", Password: secret.New("hunter2")})(s)
	})
}

func TestTLSWithClientCertificateAndUser(t *testing.T) {
	t.Parallel()
	ca, stranger := newAuthority(t, "ca"), newAuthority(t, "stranger")
	cert, key := ca.pair("gateway", x509.ExtKeyUsageClientAuth)
	good := redisconn.TLSOptions{CAFile: ca.file, CertFile: cert, KeyFile: key, ServerName: "redis.test"}
	server := tlsServer(t, ca, good, "--user", "default", "off", "--user", "tenantry", "on", ">hunter2", "~tnt:*", "&tnt:*", "+@all", "-@dangerous")
	user := func(o redisconn.TLSOptions, name, password string) redisconn.Options {
		c, err := o.Config()
		if err != nil {
			t.Fatal(err)
		}
		return redisconn.Options{Addrs: []string{server.Addr}, Username: name, Password: secret.New(password), TLS: c, PoolSize: 2}
	}
	client := redistest.Open(t, user(good, "tenantry", "hunter2"))
	if err := client.Set(t.Context(), "tnt:{1}:x", "y", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.Set(t.Context(), "other", "y", time.Minute).Err(); err == nil || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("the user may write elsewhere: %v", err)
	}
	if c, ok := client.(*redis.Client); !ok || c.Options().PoolSize != 2 {
		t.Error("the pool has another size than was asked for")
	}
	wrongCert, wrongKey := stranger.pair("gateway", x509.ExtKeyUsageClientAuth)
	for name, tt := range map[string]struct {
		o    redisconn.Options
		want string
	}{
		"wrong password":            {user(good, "tenantry", "hunter3"), "WRONGPASS"},
		"nobody's name":             {user(good, "somebody", "hunter2"), "WRONGPASS"},
		"no certificate":            {user(redisconn.TLSOptions{CAFile: ca.file, ServerName: "redis.test"}, "tenantry", "hunter2"), ""},
		"a stranger's certificate":  {user(redisconn.TLSOptions{CAFile: ca.file, CertFile: wrongCert, KeyFile: wrongKey, ServerName: "redis.test"}, "tenantry", "hunter2"), ""},
		"another authority":         {user(redisconn.TLSOptions{CAFile: stranger.file, CertFile: cert, KeyFile: key, ServerName: "redis.test"}, "tenantry", "hunter2"), "certificate"},
		"the system's authorities":  {user(redisconn.TLSOptions{CertFile: cert, KeyFile: key, ServerName: "redis.test"}, "tenantry", "hunter2"), "certificate"},
		"another name":              {user(redisconn.TLSOptions{CAFile: ca.file, CertFile: cert, KeyFile: key, ServerName: "other.test"}, "tenantry", "hunter2"), "redis.test"},
		"the address as the name":   {user(redisconn.TLSOptions{CAFile: ca.file, CertFile: cert, KeyFile: key}, "tenantry", "hunter2"), "127.0.0.1"},
		"no TLS where it is spoken": {redisconn.Options{Addrs: []string{server.Addr}, Username: "tenantry", Password: secret.New("hunter2")}, ""},
	} {
		err := ping(t, tt.o)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q in it", name, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error tells the password: %v", name, err)
		}
	}
	// Certificates are replaced while the gateway runs.
	for _, suffix := range []string{".pem", ".key"} {
		raw, err := os.ReadFile(filepath.Join(stranger.dir, "gateway"+suffix))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(ca.dir, "gateway"+suffix), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := ping(t, user(good, "tenantry", "hunter2")); err == nil {
		t.Error("a connection shows a certificate that is no longer there")
	}
}

func TestTLSFilesAreCheckedAtTheStart(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	cert, key := ca.pair("one", x509.ExtKeyUsageClientAuth)
	_, otherKey := ca.pair("two", x509.ExtKeyUsageClientAuth)
	missing := filepath.Join(t.TempDir(), "missing.pem")
	for name, tt := range map[string]struct {
		o    redisconn.TLSOptions
		want string
	}{
		"missing authorities":         {redisconn.TLSOptions{CAFile: missing}, missing},
		"authorities without any":     {redisconn.TLSOptions{CAFile: key}, "holds no certificate in PEM form"},
		"missing certificate":         {redisconn.TLSOptions{CertFile: missing, KeyFile: key}, missing},
		"certificate without key":     {redisconn.TLSOptions{CertFile: cert}, cert},
		"key without certificate":     {redisconn.TLSOptions{KeyFile: key}, key},
		"key of another certificate":  {redisconn.TLSOptions{CertFile: cert, KeyFile: otherKey}, "private key does not match"},
		"certificate and key swapped": {redisconn.TLSOptions{CertFile: key, KeyFile: cert}, cert},
	} {
		if _, err := tt.o.Config(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q in it", name, err, tt.want)
		}
	}
	if c, err := (redisconn.TLSOptions{}).Config(); err != nil || c.RootCAs != nil || c.InsecureSkipVerify {
		t.Errorf("without files: %+v, %v", c, err)
	}
}

// The sentinels and the servers behind them have users of their own.
func TestSentinelsWithTheirOwnUser(t *testing.T) {
	t.Parallel()
	program := redistest.Program(t, "redis-server")
	master := redistest.Start(t, redistest.Args("--user", "default", "off", "--user", "tenantry", "on", ">hunter2", "~*", "&*", "+@all"),
		redistest.Credentials(redisconn.Options{Username: "tenantry", Password: secret.New("hunter2")}))
	addr, dir := redistest.FreeAddr(t), t.TempDir()
	host, port, _ := net.SplitHostPort(master.Addr)
	file := filepath.Join(dir, "sentinel.conf")
	settings := strings.Join([]string{
		"bind 127.0.0.1", "port " + redistest.Port(addr), "dir " + dir, "logfile " + filepath.Join(dir, "log"),
		"user default off", "user watcher on >watchword ~* &* +@all",
		"sentinel monitor main " + host + " " + port + " 1",
		"sentinel auth-user main tenantry", "sentinel auth-pass main hunter2", "",
	}, "\n")
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	sentinel := exec.Command(program, file, "--sentinel")
	if err := sentinel.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = sentinel.Process.Kill()
		_ = sentinel.Wait()
	})
	o := redisconn.Options{
		Addrs: []string{addr}, MasterName: "main", Username: "tenantry", Password: secret.New("hunter2"),
		SentinelUsername: "watcher", SentinelPassword: secret.New("watchword"),
	}
	var err error
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if err = ping(t, o); err == nil || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		t.Fatalf("through the sentinel: %v", err)
	}
	wrong := o
	wrong.SentinelPassword = secret.New("watchwort")
	if err := ping(t, wrong); err == nil || strings.Contains(err.Error(), "watchwor") {
		t.Errorf("with a wrong password for the sentinel: %v", err)
	}
	wrong = o
	wrong.SentinelUsername = ""
	if err := ping(t, wrong); err == nil {
		t.Error("without the sentinel's user")
	}
	wrong = o
	wrong.MasterName = "other"
	if err := ping(t, wrong); err == nil || errors.Is(err, redis.Nil) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a set the sentinel does not know: %v; taken for an entry that is missing: %v", err,
			errors.Is(err, redis.Nil))
	}
}
