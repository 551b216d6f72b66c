package visit

import (
	"slices"
	"strings"

	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/site"
)

// eventsOperation is the operation that answers events; events.stream tells the same callers of the same events.
const eventsOperation = "events.list"

// Follow returns which events change a page that shows records of these pages, or nil if the person is told of none. It
// is called before the records are read, so that the page misses nothing.
func (v *Visit) Follow(pages ...*site.Page) *layout.Follows {
	if !v.May(v.Site.Rows[eventsOperation]) {
		return nil
	}
	var kinds []string
	for _, p := range pages {
		if row := v.Site.Logged(p); v.May(row) && !slices.Contains(kinds, row.Logged.Resource) {
			kinds = append(kinds, row.Logged.Resource)
		}
	}
	if kinds == nil {
		return nil
	}
	follows := &layout.Follows{Kinds: strings.Join(kinds, ",")}
	if log := v.Tenant.Org.EventLog; log == nil || !log.Whole {
		return follows // a page does not wait until the log has begun
	}
	unanswered := v.Unanswered // the page is complete without a cursor
	if data, ok := v.ReadNamed(eventsOperation, "kinds="+follows.Kinds); ok {
		follows.After = data.Get("next").Text
	}
	v.Unanswered = unanswered
	return follows
}
