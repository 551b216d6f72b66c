package mongo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"tenantry/backends/driver"

	"github.com/sony/gobreaker/v2"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

const (
	// After breakAfter consecutive failures calls are refused for breakFor; then one call tries the server again.
	breakAfter = 5
	breakFor   = time.Second
	// minWait is how long a call must have waited for its timeout to count as a failure of the server. A timeout of a
	// caller with a shorter deadline says nothing about the server.
	minWait = time.Second
	// maxCause bounds the bytes of a library's message in an error.
	maxCause = 400
)

var (
	errClosed  = fmt.Errorf("%w: the MongoDB store is closed", driver.ErrUnavailable)
	errRemoved = errors.New("the workspace was removed; open it again")
)

// verdict says what the outcome of a call means for the server.
type verdict int

const (
	answered verdict = iota
	unreachable
	silent // neither: the caller ended the call first
)

// outcome carries a verdict to the breaker.
type outcome struct {
	error
	verdict verdict
}

func newBreaker(log *slog.Logger) *gobreaker.CircuitBreaker[struct{}] {
	is := func(err error, v verdict) bool {
		if err == nil {
			return false
		}
		var o outcome
		return errors.As(err, &o) && o.verdict == v
	}
	return gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Name: "mongodb", MaxRequests: 1, Timeout: breakFor,
		ReadyToTrip:  func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= breakAfter },
		IsSuccessful: func(err error) bool { return err == nil || is(err, answered) },
		IsExcluded:   func(err error) bool { return is(err, silent) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			logBreaker(log, from, to)
		},
	})
}

// logBreaker logs the beginning and the end of an outage. Attempts in between, one every breakFor, are logged at debug
// level.
func logBreaker(log *slog.Logger, from, to gobreaker.State) {
	switch {
	case from == gobreaker.StateClosed:
		log.Warn("MongoDB does not answer: calls are refused at once, and one at a time tries it again",
			"failed_calls", breakAfter)
	case to == gobreaker.StateClosed:
		log.Info("MongoDB answers again")
	default:
		log.Debug("MongoDB is tried again", "from", from.String(), "to", to.String())
	}
}

// Refusing reports whether calls are refused without trying, except for one at a time that tries the server.
func (e *Engine) Refusing() bool { return e.breaker.State() != gobreaker.StateClosed }

// call runs do with the engine's timeout, unless the deadline of ctx is earlier.
func (e *Engine) call(ctx context.Context, doing string, do func(context.Context) error) error {
	own := true
	limited, cancel := ctx, context.CancelFunc(func() {})
	if d, ok := ctx.Deadline(); ok && time.Until(d) <= e.opts.QueryTimeout {
		own = false
	} else {
		limited, cancel = context.WithTimeout(ctx, e.opts.QueryTimeout)
	}
	defer cancel()
	return e.run(ctx, limited, own, doing, do)
}

// run runs do with the context limited, which is ctx or ends earlier. Own says that the engine has set its deadline.
func (e *Engine) run(ctx, limited context.Context, own bool, doing string, do func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	e.running.Add(1)
	defer e.running.Add(-1)
	if e.closed.Load() {
		return fmt.Errorf("%s: %w", doing, errClosed)
	}
	start := time.Now()
	_, err := e.breaker.Execute(func() (struct{}, error) {
		err := retryLocked(limited, do)
		e.health.accepted(err)
		if err == nil {
			return struct{}{}, nil
		}
		v, judged := e.judge(ctx, own, start, err)
		return struct{}{}, outcome{fmt.Errorf("%s: %w", doing, judged), v}
	})
	var o outcome
	switch {
	case err == nil:
		return nil
	case errors.As(err, &o):
		return o.error
	case errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests):
		return fmt.Errorf("%s: %w: MongoDB did not answer the last calls and is tried again within %s",
			doing, driver.ErrUnavailable, breakFor)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// judge turns an error of the library into one of package driver, and says whether the server answered. It drops the
// messages of the server, because they repeat values of documents.
func (e *Engine) judge(ctx context.Context, own bool, start time.Time, err error) (verdict, error) {
	if done := ctx.Err(); errors.Is(done, context.Canceled) {
		return silent, done
	}
	var server mongo.ServerError
	fromServer := errors.As(err, &server) && !server.HasErrorLabel("NetworkError")
	if isOurs(err) && !fromServer {
		return answered, err
	}
	slow := fromServer && hasCode(server, codeMaxTimeExpired)
	timeout := slow || mongo.IsTimeout(err)
	if ctx.Err() != nil || !own && slow || !own && timeout && nearDeadline(ctx) {
		switch {
		case slow:
			return answered, fmt.Errorf("%w: %w", driver.ErrSlow, context.DeadlineExceeded)
		case fromServer:
			return answered, context.DeadlineExceeded
		case time.Since(start) >= minWait:
			return unreachable, context.DeadlineExceeded
		}
		return silent, context.DeadlineExceeded
	}
	switch {
	case slow:
		return answered, fmt.Errorf("%w: %w: MongoDB needs longer than %s",
			driver.ErrSlow, context.DeadlineExceeded, e.opts.QueryTimeout)
	case fromServer && locked(err):
		return answered, fmt.Errorf("%w: other writes hold a lock that this one needs (%s)",
			driver.ErrUnavailable, codes(err, server))
	case fromServer && (hasCode(server, codeSnapshotTooOld) || hasCode(server, codeSnapshotUnavailable)):
		return answered, fmt.Errorf("%w (%s)", driver.ErrSnapshotLost, codes(err, server))
	case fromServer && hasCode(server, codeSignIn):
		return unreachable, fmt.Errorf("%w: MongoDB does not accept the user or the password of the address (%s)",
			driver.ErrUnavailable, codes(err, server))
	case fromServer && transient(server):
		return unreachable, fmt.Errorf("%w: MongoDB cannot execute the command now (%s)",
			driver.ErrUnavailable, codes(err, server))
	case fromServer:
		return answered, fmt.Errorf("MongoDB refused the command (%s)", codes(err, server))
	}
	// The cause is not wrapped, because its context errors are not those of the caller.
	return unreachable, fmt.Errorf("%w: MongoDB does not answer: %s", driver.ErrUnavailable, e.health.because(err))
}

// nearDeadline reports whether less than 250 ms remain. The library gives up before the deadline if it expects an
// answer to come too late.
func nearDeadline(ctx context.Context) bool {
	d, ok := ctx.Deadline()
	return ok && time.Until(d) < 250*time.Millisecond
}

// fault marks an error of this package that is about a request or about stored data, not about the server.
type fault struct{ error }

func (f fault) Unwrap() error { return f.error }

// isOurs reports whether err is about the call and not about the connection to the server.
func isOurs(err error) bool {
	var (
		duplicate *driver.DuplicateError
		conflict  *driver.ConflictError
		argument  mongo.InvalidArgumentError
		marshal   mongo.MarshalError
		f         fault
	)
	return errors.As(err, &duplicate) || errors.As(err, &conflict) || errors.As(err, &f) ||
		errors.As(err, &argument) || errors.As(err, &marshal) || errors.Is(err, mongo.ErrNoDocuments)
}

const (
	codeSignIn              = 18
	codeMaxTimeExpired      = 50
	codeCommandNotFound     = 59
	codeSnapshotTooOld      = 239
	codeSnapshotUnavailable = 246
	codeDuplicate           = 11000
)

// transient reports whether the server refused a command for a reason that may pass, such as an election, a shutdown,
// lost members or a full disk.
func transient(err mongo.ServerError) bool {
	labels := []string{"RetryableWriteError", "TransientTransactionError", "SystemOverloadedError"}
	if slices.ContainsFunc(labels, err.HasErrorLabel) {
		return true
	}
	for _, code := range err.ErrorCodes() {
		switch code {
		case 6, 7, 89, 9001, 202, // hosts and networks
			10107, 10058, 13435, 13436, 189, 91, 11600, 11602, 11601, // elections and shutdowns
			64, 79, 100, 133, 134, 262, // majorities
			63, 150, 234, 13388, // chunk migrations
			391, 462, 14031: // reauthentication, limits, disk
			return true
		}
	}
	return false
}

func hasCode(err mongo.ServerError, code int) bool { return slices.Contains(err.ErrorCodes(), code) }

// codes returns the codes of an error, and its name if the server gives one.
func codes(err error, server mongo.ServerError) string {
	if command, is := errors.AsType[mongo.CommandError](err); is && command.Name != "" {
		return fmt.Sprintf("code %d, %s", command.Code, command.Name)
	}
	return "code " + strings.Trim(fmt.Sprint(server.ErrorCodes()), "[]")
}
