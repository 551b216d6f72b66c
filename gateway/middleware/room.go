package middleware

import (
	"context"
	"sync"

	"tenantry/internal/request"
)

// answerCopies is how often a byte of what an answer is made of is held at the same time: decoded, encoded, with the
// room that the encoder grows by, and compressed.
const answerCopies = 6

// room is what a request holds of the room for large answers, until it has been answered.
type room struct {
	mu    sync.Mutex
	bytes int64
	place place
	ended bool // nothing is held any more, also by what goes on after the request
}

// Hold makes it a request.Room.
func (x *exchange) Hold(ctx context.Context, more int64) error {
	if x.call.Tenant == nil || x.call.Principal == nil {
		return nil // it asks who calls, which is never much
	}
	x.room.mu.Lock()
	defer x.room.mu.Unlock()
	if x.room.ended {
		return nil
	}
	// Who waited for more with what it has would keep that from others who wait for the same.
	x.room.place.leave()
	x.room.bytes += more
	var err error
	x.room.place, err = x.enter(ctx, x.p.Answers, answerCopies*x.room.bytes)
	return err
}

// encoded gives back the room of what an answer was made of: from now on its body is held, and that compressed.
func (x *exchange) encoded(body []byte) {
	x.room.mu.Lock()
	defer x.room.mu.Unlock()
	if p := &x.room.place; p.in != nil {
		p.load = p.in.Shrink(p.load, max(2*int64(len(body)), 1))
	}
}

// leave gives back all room that the request has.
func (x *exchange) leave() {
	x.work.leave()
	x.room.mu.Lock()
	defer x.room.mu.Unlock()
	x.room.place.leave()
	x.room.ended = true
}

// roomOf returns where a request finds room: what is asked for a page takes that of the page, which holds all of it.
func (x *exchange) roomOf() request.Room {
	if page := request.From(x.r.Context()); page != nil && page.Room != nil {
		return page.Room
	}
	return x
}
