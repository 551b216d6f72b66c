package handover

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Path is where the control socket takes the request of a successor.
const Path = "/handover"

const protocol = "tenantry-handover"

// answerTimeout bounds the wait for the answer to the request of a successor, which takes no work.
const answerTimeout = 10 * time.Second

// ErrRefused is wrapped by the errors of Ask if the running server answers, but does not hand over.
var ErrRefused = errors.New("the running server does not hand over")

// processHeader is the header of the request that has the number of the successor's process.
const processHeader = "Tenantry-Process"

// errSuccessorEnded: the new process was killed, or ended, before it served.
var errSuccessorEnded = errors.New("the new process ended before it was ready")

// Successor is a process that waits to take over from this one. Its owner calls Give or Refuse, once.
type Successor struct {
	// PID is the number of the process; 0: it did not say.
	PID  int
	conn *net.UnixConn
}

// Accept takes the request of a successor. If it cannot, it answers the request and returns an error.
func Accept(w http.ResponseWriter, r *http.Request) (*Successor, error) {
	if r.Method != http.MethodPost || !strings.EqualFold(r.Header.Get("Upgrade"), protocol) {
		http.Error(w, "ask for the upgrade "+protocol, http.StatusUpgradeRequired)
		return nil, errors.New("a request for a handover without its upgrade")
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return nil, err
	}
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%s is not a Unix socket", conn.LocalAddr()), conn.Close())
	}
	_, err = io.WriteString(unix,
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+protocol+"\r\n\r\n")
	if err == nil {
		// It begins once the successor has read the answer, and so nothing that follows is in a buffer of either.
		err = unix.SetReadDeadline(time.Now().Add(answerTimeout))
	}
	if err == nil {
		_, err = io.ReadFull(buffered, make([]byte, 1))
	}
	if err == nil {
		err = unix.SetReadDeadline(time.Time{})
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close())
	}
	pid, _ := strconv.Atoi(r.Header.Get(processHeader)) // 0 if it does not say: the number is for messages alone
	return &Successor{PID: pid, conn: unix}, nil
}

// result is what a successor says at the end: the empty one that it serves.
type result struct {
	Error string `json:"error,omitempty"`
}

// Give passes the estate, whose sockets remain open in this process, and waits until the successor serves. An error
// means that it does not: it has failed or ended, or ctx has ended.
func (s *Successor) Give(ctx context.Context, e Estate) error {
	defer func() { _ = s.conn.Close() }() // nothing more is said
	defer interrupt(ctx, s.conn)()
	var got result
	err := send(s.conn, e)
	if err == nil {
		err = json.NewDecoder(s.conn).Decode(&got)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("handing over: %w", ctx.Err())
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.EPIPE),
		errors.Is(err, syscall.ECONNRESET):
		return errSuccessorEnded // however the connection says so
	case err != nil:
		return fmt.Errorf("handing over: %w", err)
	}
	if got.Error != "" {
		return errors.New(got.Error)
	}
	return nil
}

// Refuse ends the handover before anything was passed.
func (s *Successor) Refuse() { _ = s.conn.Close() }

// Predecessor is the process that this one takes over from. Its owner calls Ready or Fail, once.
type Predecessor struct{ conn *net.UnixConn }

// Ask asks the server at the control socket to hand over. Errors: ErrRefused, and those of the connection.
func Ask(ctx context.Context, path string) (*Predecessor, error) {
	conn, err := (&net.Dialer{Timeout: answerTimeout}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%s is not a Unix socket", path), conn.Close())
	}
	if err := upgrade(ctx, unix); err != nil {
		return nil, errors.Join(err, unix.Close())
	}
	return &Predecessor{unix}, nil
}

func upgrade(ctx context.Context, conn *net.UnixConn) error {
	if err := conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://control"+Path, http.NoBody)
	if err != nil {
		return err
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", protocol)
	r.Header.Set(processHeader, strconv.Itoa(os.Getpid()))
	if err := r.Write(conn); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // the connection remains
	if resp.StatusCode != http.StatusSwitchingProtocols {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000)) // only for the message
		return fmt.Errorf("%w: %s", ErrRefused, cmp.Or(strings.TrimSpace(string(text)), resp.Status))
	}
	if _, err := conn.Write([]byte{0}); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// Estate waits until the predecessor has released the data folder, and returns what it leaves. An error means that it
// has not, or has ended.
func (p *Predecessor) Estate(ctx context.Context) (Estate, error) {
	defer interrupt(ctx, p.conn)()
	e, err := Estate{}, ctx.Err()
	if err == nil {
		e, err = receive(p.conn)
	}
	if err != nil {
		return Estate{}, fmt.Errorf("taking over from the running server: %w", cmp.Or(ctx.Err(), err))
	}
	return e, nil
}

// Ready tells the predecessor that this process serves, so that it ends.
func (p *Predecessor) Ready() { p.end(result{}) }

// Fail tells the predecessor that this process cannot serve and why, so that it goes on.
func (p *Predecessor) Fail(err error) { p.end(result{Error: err.Error()}) }

// end ignores errors: the predecessor has gone, and this process decides nothing by it.
func (p *Predecessor) end(r result) {
	_ = json.NewEncoder(p.conn).Encode(r)
	_ = p.conn.Close()
}

// interrupt ends calls of the connection when ctx ends, until the returned function is called.
func interrupt(ctx context.Context, c *net.UnixConn) func() {
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	return func() { stop() }
}
