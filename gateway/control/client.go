package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	callTimeout = 5 * time.Minute // deleting an organization can take long
	maxAnswer   = 64 << 20
)

// Client carries out commands. Its errors are *Error for what the commands themselves
// refuse. Safe for concurrent use.
type Client struct {
	http  *http.Client
	close func() error
}

// Dial returns a Client of the server whose control socket is at path, or an error where
// nobody answers there.
func Dial(ctx context.Context, path string) (*Client, error) {
	dial := func(ctx context.Context) (net.Conn, error) {
		d := net.Dialer{Timeout: 2 * time.Second}
		return d.DialContext(ctx, "unix", path)
	}
	probe, err := dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("the server does not answer on its control socket: %w", err)
	}
	if err := probe.Close(); err != nil {
		return nil, fmt.Errorf("the control socket: %w", err)
	}
	return newClient(dial, func() error { return nil }), nil
}

// closeTimeout is how long a command that was stopped has to come to its end.
const closeTimeout = 10 * time.Second

// InProcess returns a Client of a handler in this process. Close waits for the handler.
func InProcess(h http.Handler) *Client {
	l := &pipes{accept: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // ends with the client
	}()
	return newClient(l.dial, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		err := server.Shutdown(ctx)
		if err != nil {
			err = errors.Join(err, server.Close())
		}
		<-done
		return err
	})
}

func newClient(dial func(context.Context) (net.Conn, error), end func() error) *Client {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		// A Unix socket and a pipe have one end each; nothing may be sent elsewhere.
		Proxy: nil, DisableCompression: true, MaxIdleConns: 2, ExpectContinueTimeout: 10 * time.Second,
	}
	return &Client{http: &http.Client{Transport: transport}, close: func() error {
		transport.CloseIdleConnections()
		return end()
	}}
}

// Close releases the connections.
func (c *Client) Close() error { return c.close() }

// pipes is a listener within the process.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.accept <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "in process", Net: "unix"} }

// call carries out a command.
func call[Res any](ctx context.Context, c *Client, name string, req any) (res Res, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	body, err := json.Marshal(req)
	if err != nil {
		return res, fmt.Errorf("command %s: %w", name, err)
	}
	resp, err := c.post(ctx, name, nil, nil, bytes.NewReader(body))
	if err != nil {
		return res, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&res); err != nil {
		return res, fmt.Errorf("command %s: the answer cannot be read: %w", name, err)
	}
	return res, nil
}

// post sends a request; the answer is a success, and its body must be closed.
func (c *Client) post(ctx context.Context, name string, query url.Values, header http.Header, body io.Reader) (*http.Response, error) {
	u := url.URL{Scheme: "http", Host: "control", Path: "/v1/" + name, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("command %s: %w", name, err)
	}
	maps.Copy(req.Header, header)
	if _, known := body.(*bytes.Reader); !known {
		req.Header.Set("Expect", "100-continue") // what is refused at once need not be sent
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("command %s was stopped: %w", name, context.Cause(ctx))
		}
		var outer *url.Error // repeats the address
		if errors.As(err, &outer) {
			err = outer.Err
		}
		return nil, fmt.Errorf("command %s: the server went away: %w", name, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	failure := &Error{}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxRequest))
	if err == nil {
		err = json.Unmarshal(raw, failure)
	}
	if err != nil || failure.Message == "" {
		return nil, errors.Join(fmt.Errorf("command %s: the server answered %s", name, resp.Status), err)
	}
	if failure.Code == CodeUnknown {
		failure.Message += "; it may be of another version: restart it with this one"
	}
	return nil, failure
}

// CreateOrganization makes an organization.
func (c *Client) CreateOrganization(ctx context.Context, r OrganizationChange) (Organization, error) {
	return call[Organization](ctx, c, "org/create", r)
}

// ListOrganizations returns organizations of every state, by slug.
func (c *Client) ListOrganizations(ctx context.Context, r OrganizationPage) (List[Organization], error) {
	return call[List[Organization]](ctx, c, "org/list", r)
}

// ShowOrganization returns one organization.
func (c *Client) ShowOrganization(ctx context.Context, slug string) (Organization, error) {
	return call[Organization](ctx, c, "org/show", Slug{slug})
}

// UpdateOrganization changes an organization.
func (c *Client) UpdateOrganization(ctx context.Context, r OrganizationChange) (Organization, error) {
	return call[Organization](ctx, c, "org/update", r)
}

// SuspendOrganization makes an organization answer nobody.
func (c *Client) SuspendOrganization(ctx context.Context, slug string) (Organization, error) {
	return call[Organization](ctx, c, "org/suspend", Slug{slug})
}

// ResumeOrganization ends a suspension.
func (c *Client) ResumeOrganization(ctx context.Context, slug string) (Organization, error) {
	return call[Organization](ctx, c, "org/resume", Slug{slug})
}

// DeleteOrganization deletes an organization with everything it has, for good.
func (c *Client) DeleteOrganization(ctx context.Context, slug string) (Slug, error) {
	return call[Slug](ctx, c, "org/delete", Slug{slug})
}

// CreateUser makes a person, with a password or a link to choose one.
func (c *Client) CreateUser(ctx context.Context, r NewUser) (Invited, error) {
	return call[Invited](ctx, c, "user/create", r)
}

// ListUsers returns people by number.
func (c *Client) ListUsers(ctx context.Context, r Page) (List[User], error) {
	return call[List[User]](ctx, c, "user/list", r)
}

// ShowUser returns one person.
func (c *Client) ShowUser(ctx context.Context, r UserRef) (User, error) {
	return call[User](ctx, c, "user/show", r)
}

// UpdateUser changes a person.
func (c *Client) UpdateUser(ctx context.Context, r UserChange) (Invited, error) {
	return call[Invited](ctx, c, "user/update", r)
}

// DeactivateUser ends a person's access.
func (c *Client) DeactivateUser(ctx context.Context, r UserRef) (User, error) {
	return call[User](ctx, c, "user/deactivate", r)
}

// CreateKey makes an API key.
func (c *Client) CreateKey(ctx context.Context, r NewKey) (Issued, error) {
	return call[Issued](ctx, c, "key/create", r)
}

// ListKeys returns API keys, the oldest first.
func (c *Client) ListKeys(ctx context.Context, r Page) (List[Key], error) {
	return call[List[Key]](ctx, c, "key/list", r)
}

// RevokeKey ends an API key.
func (c *Client) RevokeKey(ctx context.Context, r KeyRef) (Key, error) {
	return call[Key](ctx, c, "key/revoke", r)
}

// RotateKey makes a successor of an API key.
func (c *Client) RotateKey(ctx context.Context, r KeyRef) (IssuedKey, error) {
	return call[IssuedKey](ctx, c, "key/rotate", r)
}

// ListKeyring returns the encryption keys by version.
func (c *Client) ListKeyring(ctx context.Context) (List[EncryptionKey], error) {
	return call[List[EncryptionKey]](ctx, c, "keyring/list", None{})
}

// RotateKeyring makes a new primary encryption key and wraps all data keys under it.
func (c *Client) RotateKeyring(ctx context.Context) (Rotation, error) {
	return call[Rotation](ctx, c, "keyring/rotate", None{})
}

// RetireFromKeyring takes an encryption key out of use.
func (c *Client) RetireFromKeyring(ctx context.Context, version int) (Version, error) {
	return call[Version](ctx, c, "keyring/retire", Version{version})
}
