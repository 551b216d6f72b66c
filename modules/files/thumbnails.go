package files

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"tenantry/internal/deliver"
	"tenantry/internal/fairqueue"
	"tenantry/internal/picture"
	"tenantry/modules/files/contents"
	"tenantry/operation"
	"tenantry/tenants"
)

const (
	maxPending    = 1000             // small pictures that are waiting to be made; others are made when they are asked for
	thumbnailTime = 20 * time.Second // for making one
	thumbnailWait = 5 * time.Second  // of a reader for one that is being made
	maxWaiting    = 2                // readers of an organization that wait; the others are told to ask again
)

// pictures makes small pictures in the background, one at a time and in turns by organization.
type pictures struct {
	turns fairqueue.Queue[int64]

	mu     sync.Mutex
	making map[string]chan struct{} // by object, guarded by mu; closed when it has been made, or is not going to be now

	waiting map[int64]int // readers, by organization, guarded by mu; none is 0
}

// wait waits for a small picture that is being made, unless maxWaiting readers of the organization do, because each holds
// a place among the calls.
func (p *pictures) wait(ctx context.Context, org int64, made <-chan struct{}) {
	p.mu.Lock()
	waits := p.waiting[org] < maxWaiting
	if waits {
		p.waiting[org]++
	}
	p.mu.Unlock()
	if !waits {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, thumbnailWait)
	defer cancel()
	select {
	case <-made:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting[org]--; p.waiting[org] == 0 {
		delete(p.waiting, org)
	}
}

func newPictures() *pictures {
	return &pictures{turns: fairqueue.Queue[int64]{Size: 1, Places: maxPending}, making: map[string]chan struct{}{}, waiting: map[int64]int{}}
}

// hasThumbnail reports whether there is a small picture of a file, or will be.
func hasThumbnail(f *File) bool {
	return f.Stored() && picture.Supports(f.Detected)
}

// wantThumbnail has the small picture of a blob made, unless it is none of a picture. The channel is closed when that has
// ended, also if it was not made: of the organization with the most pictures that wait, those beyond maxPending are not.
func (m *Module) wantThumbnail(t *tenants.Tenant, hash string) <-chan struct{} {
	p, key := m.pictures, strconv.FormatInt(t.Org.OrgID, 10)+"/"+hash
	p.mu.Lock()
	defer p.mu.Unlock()
	if done := p.making[key]; done != nil {
		return done
	}
	done := make(chan struct{})
	ended := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.making, key)
		close(done)
	}
	if !m.deps.Background.Go("a thumbnail", func(ctx context.Context) {
		defer ended()
		if p.turns.Enter(ctx, t.Org.OrgID) != nil {
			return
		}
		defer p.turns.Leave(t.Org.OrgID)
		ctx, cancel := context.WithTimeout(ctx, thumbnailTime)
		defer cancel()
		if err := m.deps.Contents.MakeThumbnail(ctx, t, hash); err != nil && ctx.Err() == nil {
			m.deps.Contents.Log.WarnContext(ctx, "a thumbnail could not be made and will be retried",
				"organization", t.Org.Slug, "error", err)
		}
	}) {
		close(done)
		return done
	}
	p.making[key] = done
	return done
}

// fetchThumbnail answers the small picture of a blob. If it is being made, it waits a little.
func (m *Module) fetchThumbnail(
	ctx context.Context, c *operation.Call, read reading, blob *contents.Blob, in fetchInput,
) (_ operation.Result, err error) {
	small := blob.Small(m.deps.Now())
	if small == nil && hasThumbnail(read.file) {
		m.pictures.wait(ctx, c.Tenant.Org.OrgID, m.wantThumbnail(c.Tenant, read.hash))
		if blob, err = m.deps.Contents.Find(ctx, c.Tenant, read.hash); err != nil {
			return operation.Result{}, opened(err)
		}
		if small = blob.Small(m.deps.Now()); small == nil {
			return operation.Result{}, &operation.Problem{
				Code: http.StatusServiceUnavailable, Message: "The small picture is being made, please retry", RetryAfter: 2 * time.Second,
				Reason: "a thumbnail is not made yet",
			}
		}
	}
	if small == nil || small.Object == "" {
		return operation.Result{}, operation.NotFound("There is no small picture of the file")
	}
	object, err := m.deps.Contents.Bucket.Open(ctx, small.Object)
	if err != nil {
		return operation.Result{}, opened(err)
	}
	m.head(c, read, in)
	served := deliver.Policy(small.Media, small.Media, frameAncestors(m.deps.BaseURL(c.Tenant.Org.Slug)))
	c.Header.Set("Content-Disposition", deliver.Disposition(!in.Download, read.file.Filename))
	c.Header.Set("Content-Security-Policy", served.CSP)
	return operation.Result{Content: &operation.Content{
		ReadSeekCloser: whole(object), Media: served.ContentType, Tag: strconv.Quote(read.hash + "-small"),
	}}, nil
}
