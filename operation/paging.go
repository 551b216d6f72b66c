package operation

import (
	"fmt"
	"strconv"
	"strings"

	"tenantry/backends/store"
	"tenantry/internal/fault"
)

// Paging is the input of lists that says which page is asked for. Inputs of Typed embed it.
type Paging struct {
	Page    int64 `json:"page" rule:"min=1 max=1000000000" default:"1" doc:"Page of the list, from 1."`
	PerPage int64 `json:"per_page" rule:"min=1 max=9223372036854775807" default:"50" doc:"Records on a page, from 1; cut to 1000."`
}

// MostPerPage is the largest number of records on a page.
const MostPerPage = 1000

// PageBytes bounds the decoded size of the records of a page. A page that would be larger ends early.
const PageBytes = 4 << 20

// Limit returns the largest number of records on the page.
func (p Paging) Limit() int { return int(min(p.PerPage, MostPerPage)) }

// Offset returns how many records come before the page.
func (p Paging) Offset() int { return int(p.Page-1) * p.Limit() }

// Pages returns the number of pages for that many records.
func (p Paging) Pages(count int64) int64 {
	limit := int64(p.Limit())
	return (count + limit - 1) / limit
}

// Page is a page of a list.
type Page[T any] struct {
	Page    int64 `json:"page" doc:"The page asked for."`
	Pages   int64 `json:"pages" doc:"How many pages there are; 0 where there is nothing."`
	Count   int64 `json:"count" doc:"How many there are in all."`
	Results []T   `json:"results" doc:"Those of the page."`
}

// PageOf returns the page that was asked for, of a list with count records.
func PageOf[T any](p Paging, count int64, results []T) Page[T] {
	return Page[T]{p.Page, p.Pages(count), count, results}
}

// Following is a Paging of lists that can also be read part after part: each part begins where the one before ended.
type Following struct {
	Paging
	After string `json:"after" rule:"max=16000" doc:"Instead of page: what follows the records that an answer with this next ended with; empty for the beginning. No page costs more than the first then."`
}

// Span limits the query of a list to the page, or to a part and one record more, which shows whether more follow;
// follows says which. Beyond returns the filter for the records after a position in the list; ok is false if the
// position is malformed. Faults are noted in errs.
func (p Following) Span(
	c *Call, q *store.Query, errs *fault.List, beyond func(position string) (f store.Filter, ok bool),
) (follows bool) {
	q.Bytes = PageBytes
	if q.Limit, follows = p.Limit(), c.Query.Has("after"); !follows {
		q.Offset = p.Offset()
		return false
	}
	q.Limit++
	if p.Page != 1 { // generated clients send the default, 1
		errs.Add("after", fault.Duplicate, "after and page exclude each other")
	}
	if p.After != "" {
		further, ok := beyond(p.After)
		if q.Filter = store.All(q.Filter, further); !ok {
			errs.Add("after", fault.Format, "after must be the value of next in an answer with the same sort")
		}
	}
	return true
}

// ByTime is a Following of lists in the order in which their records were created.
type ByTime struct {
	Following
	Sort string `json:"sort" rule:"enum=created_at|-created_at" default:"-created_at" doc:"Order; - is descending."`
}

// Query returns the query of the page or part that was asked for, of the records that match of. Errors: a *fault.Error.
func (p ByTime) Query(c *Call, of store.Filter) (q store.Query, follows bool, err error) {
	q, further := store.Query{Filter: of, Sort: store.NewestFirst()}, store.OpLt
	if p.Sort == "created_at" {
		q.Sort, further = []store.Order{store.Asc("created_at")}, store.OpGt
	}
	var errs fault.List
	follows = p.Span(c, &q, &errs, func(place string) (store.Filter, bool) {
		moment, id, _ := strings.Cut(place, "-")
		ms, err := strconv.ParseInt(moment, 10, 64)
		return store.AnyOf(
			store.Where(store.F("created_at"), further, ms),
			store.All(store.Eq("created_at", ms), store.Where(store.F("id"), further, id)),
		), err == nil && store.ValidID(id)
	})
	return q, follows, errs.Err()
}

// Position returns the position of a record for PartOf.
func (p ByTime) Position(rec *store.Meta) string { return fmt.Sprintf("%d-%s", rec.CreatedAt, rec.ID) }

// Part is a page of a list, or the part that follows another.
type Part[T any] struct {
	Page  int64   `json:"page,omitempty" doc:"The page asked for. Left out with after."`
	Pages *int64  `json:"pages,omitempty" doc:"How many pages there are; 0 where there is nothing. Left out with after."`
	Next  *string `json:"next,omitempty" doc:"What to send as after for the records that follow; empty at the end. With page it is there only where the page ends early, because its records are large: the rest of the page and what follows it come after that."`
	// More and Gone are of answers with changes.
	More    *bool     `json:"more,omitempty" doc:"Only with changed_after: whether more changes follow."`
	Gone    *[]string `json:"gone,omitempty" doc:"Only with changed_after: identifiers of records that were deleted, or that the list does not show any more."`
	Count   int64     `json:"count" doc:"How many records match in all; with changed_after, those of this answer."`
	Results []T       `json:"results" doc:"The records."`
}

// OnePage is a list of one record on its only page, as examples show it.
func OnePage[T any](record T) Part[T] {
	pages := int64(1)
	return Part[T]{Page: 1, Pages: &pages, Count: 1, Results: []T{record}}
}

// PartOf returns the page or part that was asked for, of a list with count records. Found are the readable records of
// its Span; left is the number of unreadable ones, and cut is set if the span ended early. A part, and a page that
// ends early, has as Next the position at of the last record that it shows. Error: *store.UnreadableError if it shows
// none and more follow.
func PartOf[T any](
	c *Call, p Following, follows bool, count int64, found []T, left int, cut bool, at func(last int) string,
) (Part[T], error) {
	limit, pages, next := p.Limit(), p.Pages(count), ""
	out := Part[T]{Count: count, Results: found[:min(limit, len(found))]}
	if !follows {
		if out.Page, out.Pages = p.Page, &pages; !cut {
			return out, nil
		}
		c.Header.Set("X-Warning", fmt.Sprintf("the page ends early, after %d records, because they are large; next says where to go on", len(found)))
	}
	if len(found)+left > limit || cut {
		if len(found) == 0 { // there is no position to continue from
			return Part[T]{}, &store.UnreadableError{Kind: "record", Reason: "it is one of a whole page"}
		}
		next = at(len(out.Results) - 1)
	}
	out.Next = &next
	return out, nil
}
