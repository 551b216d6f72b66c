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
	// breakAfter failures in a row the server is left alone for breakFor; then one call tries again.
	breakAfter = 5
	breakFor   = time.Second
	// patience is how long a call must have waited for its timeout to speak against the server:
	// a caller in a hurry says nothing about it.
	patience = time.Second
	// maxCause is how much of the library's text goes into an error.
	maxCause = 400
)

var (
	errClosed  = fmt.Errorf("%w: the MongoDB store is closed", driver.ErrUnavailable)
	errRemoved = errors.New("the workspace was removed; open it again")
)

// verdict is what an outcome says about the server.
type verdict int

const (
	answered verdict = iota
	unreachable
	silent // neither: the caller went away first
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
			tellBreaker(log, from, to)
		},
	})
}

// tellBreaker tells of the beginning and the end of an outage. Attempts in between, one every
// breakFor, are not worth a line each.
func tellBreaker(log *slog.Logger, from, to gobreaker.State) {
	switch {
	case from == gobreaker.StateClosed:
		log.Warn("MongoDB does not answer: calls are refused at once, and one at a time tries it again", "failed_calls", breakAfter)
	case to == gobreaker.StateClosed:
		log.Info("MongoDB answers again")
	default:
		log.Debug("MongoDB is tried again", "from", from.String(), "to", to.String())
	}
}

// Refusing reports whether calls are refused at once, but for one at a time that tries the server.
func (e *Engine) Refusing() bool { return e.breaker.State() != gobreaker.StateClosed }

// call runs do within the engine's deadline.
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

// run runs do with limited, which is ctx or ends earlier; own says that the engine set its deadline.
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
		err := patiently(limited, do)
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
		return fmt.Errorf("%s: %w: MongoDB did not answer the last calls and is tried again within %s", doing, driver.ErrUnavailable, breakFor)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// judge turns an error of the library into one that callers of the driver can judge, and
// says whether the server answered. Messages of the server stay behind: they repeat values of documents.
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
		case time.Since(start) >= patience:
			return unreachable, context.DeadlineExceeded
		}
		return silent, context.DeadlineExceeded
	}
	switch {
	case slow:
		return answered, fmt.Errorf("%w: %w: MongoDB needs longer than %s", driver.ErrSlow, context.DeadlineExceeded, e.opts.QueryTimeout)
	case fromServer && locked(err):
		return answered, fmt.Errorf("%w: other writes hold what this one needs (%s)", driver.ErrUnavailable, codes(err, server))
	case fromServer && hasCode(server, codeSignIn):
		return unreachable, fmt.Errorf("%w: MongoDB does not accept the user or the password of the address (%s)", driver.ErrUnavailable, codes(err, server))
	case fromServer && passing(server):
		return unreachable, fmt.Errorf("%w: MongoDB cannot take it now (%s)", driver.ErrUnavailable, codes(err, server))
	case fromServer:
		return answered, fmt.Errorf("MongoDB refused it (%s)", codes(err, server))
	}
	// The cause is text only: its own context errors are not the caller's.
	return unreachable, fmt.Errorf("%w: MongoDB does not answer: %s", driver.ErrUnavailable, e.health.because(err))
}

// nearDeadline: the library gives up a little before the deadline where an answer would come too late.
func nearDeadline(ctx context.Context) bool {
	d, ok := ctx.Deadline()
	return ok && time.Until(d) < 250*time.Millisecond
}

// fault is an error of this package about what it was asked or what it found.
type fault struct{ error }

func (f fault) Unwrap() error { return f.error }

// isOurs reports whether err says something about the call, not about the way to the server.
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
	codeSignIn         = 18
	codeMaxTimeExpired = 50
	codeDuplicate      = 11000
)

// passing reports whether the server's refusal has a cause outside the command that may go away:
// elections, shutdowns, lost members, a full disk.
func passing(err mongo.ServerError) bool {
	if slices.ContainsFunc([]string{"RetryableWriteError", "TransientTransactionError", "SystemOverloadedError"}, err.HasErrorLabel) {
		return true
	}
	for _, code := range err.ErrorCodes() {
		switch code {
		case 6, 7, 89, 9001, 202, // hosts and networks
			10107, 10058, 13435, 13436, 189, 91, 11600, 11602, 11601, // elections and shutdowns
			64, 79, 100, 133, 134, 262, // majorities
			63, 150, 234, 13388, // chunks on the move
			391, 462, 14031: // sign-in to repeat, limits, disk
			return true
		}
	}
	return false
}

func hasCode(err mongo.ServerError, code int) bool { return slices.Contains(err.ErrorCodes(), code) }

// codes names the error by its numbers and, where given, by the server's name for it.
func codes(err error, server mongo.ServerError) string {
	if command, is := errors.AsType[mongo.CommandError](err); is && command.Name != "" {
		return fmt.Sprintf("code %d, %s", command.Code, command.Name)
	}
	return "code " + strings.Trim(fmt.Sprint(server.ErrorCodes()), "[]")
}
