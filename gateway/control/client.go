package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"tenantry/operation"
)

const maxAnswer = 64 << 20

const anotherVersion = "; it may be of another version: restart it with this one"

// silence is how long nothing may come from the server before it counts as gone.
const silence = 6 * heartbeat

// Client gives commands. Its errors are *Error for what the commands themselves refuse, and
// *InterruptedError where their end is not known. Safe for concurrent use.
type Client struct {
	run   func(ctx context.Context, name string, in []byte, streams Streams) (*Answer, error)
	close func()
}

// InterruptedError says that a command was stopped before it had told its end.
type InterruptedError struct {
	Command string
	Err     error
}

func (e *InterruptedError) Error() string {
	return "command " + e.Command + " was interrupted: " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *InterruptedError) Unwrap() error { return e.Err }

// InProcess returns a Client of a Server in this process.
func InProcess(s *Server) *Client { return &Client{run: s.run, close: func() {}} }

// Dial returns a Client of the server whose control socket is at path, or an error where
// nobody answers there.
func Dial(ctx context.Context, path string) (*Client, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		d := net.Dialer{Timeout: 2 * time.Second}
		return d.DialContext(ctx, "unix", path)
	}
	probe, err := dial(ctx, "", "")
	if err == nil {
		err = probe.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("the server does not answer on its control socket: %w", err)
	}
	// A Unix socket has one end; nothing may be sent elsewhere.
	transport := &http.Transport{DialContext: dial, Proxy: nil, DisableCompression: true, MaxIdleConns: 2, ExpectContinueTimeout: 10 * time.Second}
	return &Client{run: remote{&http.Client{Transport: transport}}.run, close: transport.CloseIdleConnections}, nil
}

// Close releases the connections.
func (c *Client) Close() { c.close() }

// Do gives a command.
func (c *Client) Do(ctx context.Context, name string, in any, streams Streams) (*Answer, error) {
	raw, err := encode(in)
	if err != nil {
		return nil, fmt.Errorf("command %s: %w", name, err)
	}
	if streams.Output == nil {
		streams.Output = io.Discard
	}
	if streams.Progress == nil {
		streams.Progress = func(Progress) {}
	}
	answer, err := c.run(ctx, name, raw, streams)
	if err != nil && ctx.Err() != nil {
		err = &InterruptedError{name, context.Cause(ctx)}
	}
	return answer, err
}

// Call gives a command whose answer is an Out.
func Call[Out any](ctx context.Context, c *Client, name string, in any) (out Out, err error) {
	answer, err := c.Do(ctx, name, in, Streams{})
	if err == nil {
		err = json.Unmarshal(answer.Data, &out)
	}
	return out, err
}

// remote carries out commands through a server's socket.
type remote struct{ http *http.Client }

func (r remote) run(ctx context.Context, name string, in []byte, streams Streams) (*Answer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(silence, func() { cancel(fmt.Errorf("nothing came from the server for %s", silence)) })
	defer quiet.Stop()
	interrupted := func(err error) error {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return &InterruptedError{name, err}
	}
	u := url.URL{Scheme: "http", Host: "control", Path: operation.ControlPath + strings.ReplaceAll(name, ".", "/")}
	body := io.Reader(bytes.NewReader(in))
	if streams.Input != nil {
		quiet.Stop() // until all is sent
		body = &watched{streams.Input, func() { quiet.Reset(silence) }}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("command %s: %w", name, err)
	}
	req.Header.Set(operatorHeader, url.QueryEscape(streams.Operator))
	if streams.Input != nil {
		req.Header.Set(inputHeader, url.QueryEscape(string(in)))
		req.Header.Set("Expect", "100-continue") // what is refused at once need not be sent
	}
	resp, err := r.http.Do(req)
	if err != nil {
		var outer *url.Error // repeats the address
		if errors.As(err, &outer) {
			err = outer.Err
		}
		return nil, interrupted(fmt.Errorf("the server went away: %w", err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("command %s: the server answered %s%s", name, resp.Status, anotherVersion)
	}
	limited := &io.LimitedReader{R: resp.Body}
	lines := bufio.NewReader(limited)
	for {
		limited.N = maxAnswer
		var e event
		line, err := lines.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &e)
		}
		if err == nil && e.Output > 0 {
			_, err = io.CopyN(streams.Output, lines, int64(e.Output))
		}
		switch {
		case err != nil && len(line) == 0:
			return nil, interrupted(fmt.Errorf("the server went away: %w", err))
		case err != nil:
			return nil, interrupted(fmt.Errorf("the answer cannot be read: %w", err))
		case e.Error != nil && e.Error.Code == CodeUnknown:
			e.Error.Message += anotherVersion
			fallthrough
		case e.Error != nil:
			return e.Answer, e.Error
		case e.Answer != nil:
			return e.Answer, nil
		case e.Progress != nil:
			streams.Progress(*e.Progress)
		}
		quiet.Reset(silence)
	}
}
