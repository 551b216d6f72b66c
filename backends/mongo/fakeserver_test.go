package mongo

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"math/big"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"tenantry/crypto/secret"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// fakeServer speaks enough of MongoDB's protocol to give answers that cannot be provoked from a real server. It stores
// nothing.
type fakeServer struct {
	addr string
	// hello has additional members of the server's description of itself.
	hello bson.D
	// answer answers a command; if it returns nil, the connection is closed without an answer.
	answer func(name string, command bson.Raw) bson.D

	mu    sync.Mutex
	conns []net.Conn
	names []string
}

func fake(t *testing.T, f *fakeServer, secured *tls.Config) *fakeServer {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = l.Addr().String()
	if secured != nil {
		l = tls.NewListener(l, secured)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.conns = append(f.conns, c)
			f.mu.Unlock()
			wg.Go(func() { f.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		f.mu.Lock()
		for _, c := range f.conns {
			_ = c.Close()
		}
		f.mu.Unlock()
		wg.Wait()
	})
	return f
}

func (f *fakeServer) serve(c net.Conn) {
	defer c.Close()
	for {
		head := make([]byte, 16)
		if _, err := io.ReadFull(c, head); err != nil {
			return
		}
		size := binary.LittleEndian.Uint32(head)
		if size < 16 || size > 1<<24 {
			return
		}
		body := make([]byte, size-16)
		if _, err := io.ReadFull(c, body); err != nil {
			return
		}
		var command bson.Raw
		const query, message = 2004, 2013
		op := binary.LittleEndian.Uint32(head[12:])
		switch op {
		case query: // the first hello: flags, a name, skip and limit
			command = body[4+bytes.IndexByte(body[4:], 0)+1+8:]
		case message: // flags, then sections
			command = body[5:]
		default:
			return
		}
		size = binary.LittleEndian.Uint32(command)
		command = command[:size]
		elements, err := command.Elements()
		if err != nil || len(elements) == 0 {
			return
		}
		reply := f.reply(elements[0].Key(), command)
		if reply == nil {
			return
		}
		raw, err := bson.Marshal(reply)
		if err != nil {
			return
		}
		var out []byte
		if op == query {
			out = append(make([]byte, 16), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0)
			binary.LittleEndian.PutUint32(out[12:], 1)
		} else {
			out = append(make([]byte, 16), 0, 0, 0, 0, 0)
			binary.LittleEndian.PutUint32(out[12:], message)
		}
		out = append(out, raw...)
		binary.LittleEndian.PutUint32(out, uint32(len(out)))
		copy(out[8:12], head[4:8])
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

func (f *fakeServer) reply(name string, command bson.Raw) bson.D {
	fine := bson.D{{Key: "ok", Value: 1.0}}
	if name == "hello" || name == "isMaster" || name == "ismaster" {
		return append(append(bson.D{
			{Key: "isWritablePrimary", Value: true}, {Key: "ismaster", Value: true}, {Key: "helloOk", Value: true}, {Key: "maxBsonObjectSize", Value: int32(16 << 20)},
			{Key: "maxMessageSizeBytes", Value: int32(48 << 20)}, {Key: "maxWriteBatchSize", Value: int32(100_000)}, {Key: "minWireVersion", Value: int32(0)},
			{Key: "maxWireVersion", Value: int32(17)}, {Key: "logicalSessionTimeoutMinutes", Value: int32(30)},
		}, f.hello...), fine...)
	}
	f.mu.Lock()
	f.names = append(f.names, name)
	f.mu.Unlock()
	if f.answer == nil {
		return fine
	}
	return f.answer(name, command)
}

// took returns how often the server received the command.
func (f *fakeServer) took(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(f.names), func(n string) bool { return n != name }))
}

// member makes the server the primary of a replica set with a single member.
func (f *fakeServer) member(set string) *fakeServer {
	f.hello = bson.D{{Key: "setName", Value: set}, {Key: "setVersion", Value: int32(1)}, {Key: "hosts", Value: bson.A{f.addr}}, {Key: "me", Value: f.addr}, {Key: "secondary", Value: false}}
	return f
}

func refusal(code int32, name string) bson.D {
	return bson.D{{Key: "ok", Value: 0.0}, {Key: "code", Value: code}, {Key: "codeName", Value: name}, {Key: "errmsg", Value: "no"}}
}

// selfSigned returns a TLS configuration with a self-signed certificate.
func selfSigned(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// onFake returns a workspace "org-1" on the server, without creating indexes.
func onFake(t *testing.T, f *fakeServer) (*Engine, *workspace, *kind) {
	t.Helper()
	e := openAt(t, Options{URI: secret.New("mongodb://" + f.addr + "/?replicaSet=rs0")})
	c := things()
	k, err := e.kind(e.client.Database("d"), c)
	if err != nil {
		t.Fatal(err)
	}
	return e, &workspace{engine: e, name: "org-1", lease: newLease(), schema: &schema{kinds: map[string]*kind{"things": k}}}, k
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
