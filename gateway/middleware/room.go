package middleware

import (
	"context"
	"sync"

	"tenantry/internal/request"
)

// answerCopies is how many times a byte of a record is held in memory while an answer is made of it: decoded, encoded,
// as spare capacity of the growing buffer, and compressed.
const answerCopies = 6

// room is the memory that a request holds for a large answer, until it has been answered.
type room struct {
	mu    sync.Mutex
	bytes int64
	place place
	ended bool // Hold reserves nothing after the request has ended
}

// Hold implements request.Room.
func (x *exchange) Hold(ctx context.Context, more int64) error {
	if x.call.Tenant == nil || x.call.Principal == nil {
		return nil // authentication never needs much
	}
	x.room.mu.Lock()
	defer x.room.mu.Unlock()
	if x.room.ended {
		return nil
	}
	// The request waits with nothing reserved, because requests that waited for more while they kept what they have
	// could block each other.
	x.room.place.leave()
	x.room.bytes += more
	var err error
	x.room.place, err = x.enter(ctx, x.p.Answers, answerCopies*x.room.bytes)
	return err
}

// encoded shrinks the reservation to what is still held once the answer is encoded: its body, and the compressed body.
func (x *exchange) encoded(body []byte) {
	x.room.mu.Lock()
	defer x.room.mu.Unlock()
	if p := &x.room.place; p.in != nil {
		p.load = p.in.Shrink(p.load, max(2*int64(len(body)), 1))
	}
}

// leave gives back all that the request has reserved.
func (x *exchange) leave() {
	x.work.leave()
	x.uploading.leave()
	x.room.mu.Lock()
	defer x.room.mu.Unlock()
	x.room.place.leave()
	x.room.ended = true
}

// roomOf returns the room for the request. A query of a page uses the room of the page, which holds its result.
func (x *exchange) roomOf() request.Room {
	if page := request.From(x.r.Context()); page != nil && page.Room != nil {
		return page.Room
	}
	return x
}
