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

// maxAnswer bounds one line of an answer, in bytes, together with the output that follows it.
const maxAnswer = 64 << 20

const versionHint = "; it may be of another version: restart it with this one"

// silenceTimeout is how long a client waits for the next event before it considers the server gone.
const silenceTimeout = 6 * heartbeat

// Client sends commands to a Server. Errors: *Error for commands that failed; *InterruptedError if it is not known how
// a command ended. Safe for concurrent use.
type Client struct {
	run   func(ctx context.Context, name string, in []byte, streams Streams) (*Answer, error)
	close func()
}

// InterruptedError is returned when a command was interrupted before its result arrived.
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

// Dial returns a Client of the server whose control socket is at path. It returns an error if the server does not
// answer.
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
	// Without a proxy, because commands must go nowhere but to the socket.
	transport := &http.Transport{
		DialContext: dial, Proxy: nil, DisableCompression: true, MaxIdleConns: 2, ExpectContinueTimeout: 10 * time.Second,
	}
	return &Client{run: socketClient{&http.Client{Transport: transport}}.run, close: transport.CloseIdleConnections}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.close() }

// Do runs a command and returns its answer. An answer may come together with an error.
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

// Call runs a command and decodes its answer.
func Call[Out any](ctx context.Context, c *Client, name string, in any) (out Out, err error) {
	answer, err := c.Do(ctx, name, in, Streams{})
	if err == nil {
		err = json.Unmarshal(answer.Data, &out)
	}
	return out, err
}

// socketClient runs commands through the control socket of a server.
type socketClient struct{ http *http.Client }

func (r socketClient) run(ctx context.Context, name string, in []byte, streams Streams) (*Answer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(silenceTimeout, func() {
		cancel(fmt.Errorf("nothing came from the server for %s", silenceTimeout))
	})
	defer idle.Stop()
	interrupted := func(err error) error {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return &InterruptedError{name, err}
	}
	u := url.URL{Scheme: "http", Host: "control", Path: operation.ControlPath + strings.ReplaceAll(name, ".", "/")}
	body := io.Reader(bytes.NewReader(in))
	if streams.Input != nil {
		idle.Stop() // the server is silent until the input has been sent
		body = &endReader{streams.Input, func() { idle.Reset(silenceTimeout) }}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("command %s: %w", name, err)
	}
	req.Header.Set(operatorHeader, url.QueryEscape(streams.Operator))
	if streams.Input != nil {
		req.Header.Set(inputHeader, url.QueryEscape(string(in)))
		req.Header.Set("Expect", "100-continue") // the input is not sent if the command is refused at once
	}
	resp, err := r.http.Do(req)
	if err != nil {
		var outer *url.Error // its text repeats the address
		if errors.As(err, &outer) {
			err = outer.Err
		}
		return nil, interrupted(fmt.Errorf("the server closed the connection: %w", err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("command %s: the server answered %s%s", name, resp.Status, versionHint)
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
			return nil, interrupted(fmt.Errorf("the server closed the connection: %w", err))
		case err != nil:
			return nil, interrupted(fmt.Errorf("the answer cannot be read: %w", err))
		case e.Error != nil && e.Error.Code == CodeUnknown:
			e.Error.Message += versionHint
			fallthrough
		case e.Error != nil:
			return e.Answer, e.Error
		case e.Answer != nil:
			return e.Answer, nil
		case e.Progress != nil:
			streams.Progress(*e.Progress)
		}
		idle.Reset(silenceTimeout)
	}
}
