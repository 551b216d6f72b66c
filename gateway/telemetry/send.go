package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"tenantry/config"
	"tenantry/internal/texts"
)

const (
	sendTimeout  = 5 * time.Second  // of one request
	retryTimeout = 20 * time.Second // of a request with its retries
	firstPause   = time.Second      // before the first retry; it doubles
	maxAnswer    = 64 << 10         // bytes of an answer that are read
)

// sender posts messages in the protobuf encoding of OTLP/HTTP. It replaces the exporters of OpenTelemetry, which would
// bring gRPC and 140 packages for these two requests. Safe for concurrent use.
type sender struct {
	client  *http.Client
	cfg     config.Telemetry
	agent   string
	closing context.Context // done: no more retries
}

// post sends the message to a path of the collector. As OTLP/HTTP asks, it retries while the collector is busy or
// unavailable, until ctx, closing or retryTimeout ends. Its errors contain neither the token nor the message.
func (s *sender) post(ctx context.Context, path string, message proto.Message) error {
	body, err := proto.Marshal(message)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, retryTimeout)
	defer cancel()
	for pause := firstPause; ; pause *= 2 {
		delay, err := s.try(ctx, path, body)
		if delay < 0 || err == nil {
			return err
		}
		select {
		case <-time.After(max(delay, pause/2+rand.N(pause/2))): //nolint:gosec // jitter needs no secure randomness
		case <-s.closing.Done():
			return err
		case <-ctx.Done():
			return err
		}
	}
}

// try sends the body once. delay is the least time to wait before a retry; negative: do not retry.
func (s *sender) try(ctx context.Context, path string, body []byte) (delay time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.cfg.Endpoint+path, bytes.NewReader(body))
	if err != nil {
		return -1, err
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	request.Header.Set("User-Agent", s.agent)
	if !s.cfg.Token.IsZero() {
		request.Header.Set("Authorization", "Bearer "+s.cfg.Token.Reveal())
	}
	answer, err := s.client.Do(request)
	if err != nil {
		return -1, err
	}
	defer answer.Body.Close()
	reply, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	switch code := answer.StatusCode; {
	case code >= 200 && code < 300 && err != nil:
		return -1, fmt.Errorf("the answer of the collector could not be read: %w", err)
	case code >= 200 && code < 300:
		return -1, rejected(reply)
	case code == http.StatusTooManyRequests, code >= http.StatusBadGateway && code <= http.StatusGatewayTimeout:
		return retryAfter(answer.Header.Get("Retry-After")), fmt.Errorf("the collector answered %s", answer.Status)
	default:
		return -1, fmt.Errorf("the collector answered %s", answer.Status)
	}
}

// retryAfter parses a Retry-After header, which has seconds or a date.
func retryAfter(header string) time.Duration {
	if seconds, err := strconv.ParseUint(header, 10, 16); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// rejected returns an error for the items that the collector rejected from an accepted message. They are field 1 of its
// answer, with the number of items in field 1 and the reason in field 2, for traces and metrics alike.
func rejected(answer []byte) error {
	var items uint64
	var reason string
	fields(answer, func(number protowire.Number, _ uint64, partial []byte) {
		if number != 1 {
			return
		}
		fields(partial, func(number protowire.Number, n uint64, text []byte) {
			switch number {
			case 1:
				items = n
			case 2:
				reason = string(text)
			}
		})
	})
	if items == 0 {
		return nil
	}
	return errors.New("the collector rejected " + strconv.FormatUint(items, 10) + " items: " + texts.Clip(reason))
}

// fields calls each for the varints and byte strings of an encoded message. It stops at malformed input.
func fields(message []byte, each func(number protowire.Number, n uint64, text []byte)) {
	for len(message) > 0 {
		number, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return
		}
		message = message[size:]
		var n uint64
		var text []byte
		switch kind {
		case protowire.VarintType:
			n, size = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			text, size = protowire.ConsumeBytes(message)
		default:
			size = protowire.ConsumeFieldValue(number, kind, message)
		}
		if size < 0 {
			return
		}
		each(number, n, text)
		message = message[size:]
	}
}
