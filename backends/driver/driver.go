// Package driver declares the interfaces that storage engines implement. Modules never use it: package store
// validates, scopes, limits and pages every call, and an engine only executes it.
//
// Values are portable: nil, string, int64, float64, bool and []string. All engines must return the same results for
// the same query; package storetest checks that they do.
package driver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
)

// Engine stores any number of workspaces, which share no data. The optional abilities of an engine are declared in
// abilities.go. All methods are safe for concurrent use.
type Engine interface {
	// Open returns the workspace, and prepares its collections and indexes on first use. An engine may close the
	// workspace's files while the handle is in use and open them again, so Open does no I/O that a later call could
	// not repeat. Opening.Admit decides on every such opening whether the owner may use the workspace. Error: ErrForeign.
	Open(ctx context.Context, o Opening) (Workspace, error)
	// Remove deletes all data of the workspace, which must belong to the owner or have none. Removing a workspace that
	// does not exist is no error. Error: ErrForeign.
	Remove(ctx context.Context, workspace, owner string) error
	// Residents returns the names of the workspaces that the engine holds, sorted. Error: ErrUnavailable.
	Residents(ctx context.Context) ([]string, error)
	// Resident describes one workspace. The owner is empty if the workspace has none or does not exist. Nothing is
	// changed. Error: ErrUnavailable.
	Resident(ctx context.Context, workspace string) (Resident, error)
	// Check returns an error if the engine cannot read and write now: ErrUnavailable, which wraps ErrReadOnly if only
	// writes fail.
	Check(ctx context.Context) error
	// Close waits for running calls and releases all resources.
	Close() error
}

// Resident is a workspace that an engine holds.
type Resident struct {
	Workspace string
	Where     string // file, database or the like
	Owner     string // empty: none
}

// Workspace holds the documents of one organization (or of the control plane).
// All methods are safe for concurrent use and honour the context's deadline.
type Workspace interface {
	// Find returns at most q.Limit documents in q.Sort order. Ties are broken by id, ascending.
	Find(ctx context.Context, q Query) ([]Document, error)
	// Count returns the number of matching documents.
	Count(ctx context.Context, c *Collection, where Predicate) (int64, error)
	// Aggregate groups and measures in the engine. A row holds the group values, then the measures.
	Aggregate(ctx context.Context, a Aggregation) ([][]any, error)
	// Write applies the writes in order and returns once they are durable. After a *DuplicateError or *ConflictError
	// none of the batch is stored, but documents that a Put replaced may stay replaced. After any other error an engine
	// without transactions may have stored some of the writes. Concurrent readers may see part of its batches.
	Write(ctx context.Context, writes []Write) error
	// Counter sets the named counter to max(value, atLeast) + add, durably, and returns the new value.
	Counter(ctx context.Context, name string, add, atLeast int64) (int64, error)
}

// Type is the portable type of a field.
type Type int

// The field types. Time is an int64 of Unix milliseconds, Date a string that
// starts with an RFC 3339 date. Strings is a list, matched element by element.
const (
	Any Type = iota
	String
	Int
	Float
	Bool
	Time
	Date
	Strings
)

// Field is a declared top-level field of a collection's documents.
type Field struct {
	Name string
	Type Type
}

// Index orders the collection by its fields, then by id. A unique index ignores documents in which any of its fields
// is missing or null. An index on a Strings field has no other field and serves element look-ups.
type Index struct {
	Name   string
	Fields []string
	Unique bool
	// Sparse: the index serves conditions on values and no sort order, so an engine may leave out documents that have
	// no value.
	Sparse bool `json:",omitempty"`
	// Rides are fields that an engine may store in the index behind the id, so that queries on them are answered
	// without reading the documents.
	Rides []string `json:",omitempty"`
	// Ordered: queries without a value of the last field of this unique index ask for its order.
	Ordered bool `json:"-"`
}

// Collection describes the documents of one kind. Every name in it is a constant
// of the program ([a-z][a-z0-9_]*), never outside text.
type Collection struct {
	Name    string
	Fields  []Field
	Indexes []Index
	// Custom: documents may have custom values, which an engine may index.
	Custom bool
	// Of is the declared String field whose value determines which custom fields a document has: documents with
	// different values may use one key for different fields, and a query on custom fields is limited to one value. It is
	// empty if all documents have the same custom fields.
	Of string `json:"-"`
	// Rides are the fields that most queries on custom fields use besides. An engine may store them in indexes on
	// custom fields.
	Rides []string `json:"-"`
	// Uncounted: a Meter leaves out the documents of this collection.
	Uncounted bool `json:"-"`
}

// Document is one record.
type Document struct {
	ID  string
	Rev int64
	// Body is a JSON object.
	Body []byte
	// Custom is a JSON object with the values of the fields that the organization defined. It is nil if the collection
	// has no custom fields.
	Custom []byte
	// Values are the declared fields in the order of Collection.Fields. They are set on writes and repeat values of
	// Body, so that an engine need not parse it. Nil stands for a missing value, null, "", an empty list or the zero
	// Time.
	Values []any
	// Was is the Size of the document before a Replace or Delete, 0 if unknown. It is a hint: an engine that can look up
	// the size does not rely on it.
	Was int64
	// Damage is set if the engine cannot read a document that it found, because another program changed it. The error
	// gives the reason without values of the document. Only ID is set then, and not even that if this program cannot
	// have written it. Other documents of the result are unaffected.
	Damage error
}

// valueSize is the approximate memory that a decoded value takes besides its text: its slot in a map or list, and its
// header.
const valueSize = 64

// Held returns the approximate number of bytes that the document takes in memory once decoded. It is the same for all
// engines.
func (d *Document) Held() int64 {
	values := bytes.Count(d.Body, []byte{','}) + bytes.Count(d.Custom, []byte{','})
	return int64(len(d.ID) + len(d.Body) + len(d.Custom) + valueSize*(values+2))
}

// Ref names a value of a document: a declared field (or "id"), or, if Custom is set, a key of the custom object. The
// name of a custom value is untrusted text: an engine binds it as a parameter and never makes it part of a statement.
type Ref struct {
	Name   string
	Custom bool
	Type   Type
}

// Op is the operator of a Predicate.
type Op int

// The operators.
//
// A missing value and null are the same. Ne and Nin match it; Eq and the comparisons never do. Values are compared
// within a type: a number is never greater than a string, and true is not 1. Strings are compared by their bytes,
// numbers by value whatever their width.
//
// On a Strings field Eq, In and Contains match if some element equals one of the values, Ne and Nin if none does, and
// Exists if the list has an element.
//
// Contains and StartsWith on a string are case-sensitive. ContainsFold and StartsWithFold apply to strings alone, match
// each letter in all of its Cases, and match no text that is not UTF-8.
//
// From and Before apply to custom values that are not lists, in the order of a sort: From matches the value and all
// values, of any type, that follow it in ascending order; Before matches all others.
//
// And without kids matches everything and Or without kids nothing; In without values matches nothing and Nin without
// values everything.
const (
	And Op = iota
	Or
	Eq
	Ne
	Gt
	Gte
	Lt
	Lte
	In
	Nin
	Contains
	StartsWith
	ContainsFold
	StartsWithFold
	Exists // Values[0] is a bool
	From
	Before
)

// Predicate is a typed tree. The zero value matches everything.
type Predicate struct {
	Op     Op
	Kids   []Predicate // of And and Or
	Ref    Ref         // of the others
	Values []any       // string, int64, float64 or bool
}

// Pins reports whether the predicate requires one value for each of the declared fields.
func (p Predicate) Pins(fields ...string) bool {
	return !slices.ContainsFunc(fields, func(field string) bool {
		if p.Op == And {
			return !slices.ContainsFunc(p.Kids, func(kid Predicate) bool { return kid.Pins(field) })
		}
		return p.Op != Eq || p.Ref.Custom || p.Ref.Name != field
	})
}

// Order is one step of a sort. In ascending order missing values come first, together with custom values that are
// lists or objects; then numbers by value, strings by their bytes, false and true.
type Order struct {
	Ref  Ref
	Desc bool
}

// Query asks for documents. Limit is always positive.
type Query struct {
	Collection *Collection
	Where      Predicate
	Sort       []Order
	Limit      int
	Offset     int
	// Take, if set, is called with each document as it is read, and Find returns none. A caller that converts or
	// filters documents thus need not hold all of them. Take is called with nil before the first document, and again if
	// the engine starts over: the documents passed before are then void. It is called by one goroutine at a time, while
	// the engine holds the connection it reads from. Find stops at an error of Take and returns it.
	Take func(*Document) error
}

// Bucket rounds a Time or Date down in a group. The value is a string:
// 2024-05-17, 2024-W20 (ISO), 2024-05, 2024-Q2, 2024.
type Bucket int

// The buckets, all in UTC.
const (
	NoBucket Bucket = iota
	Day
	Week
	Month
	Quarter
	Year
)

// Group is one dimension of an aggregation. Missing values form a group of nil.
type Group struct {
	Ref Ref
	By  Bucket
}

// MeasureOp is what a Measure computes.
type MeasureOp int

// The measures. Count counts documents and needs no Ref. Sum, Avg, Min and Max ignore values that are not numbers,
// except that Min and Max of a String, Time or Date field use values of that type. They are nil if no value is left.
// Distinct counts the different values.
const (
	Count MeasureOp = iota
	Sum
	Avg
	Min
	Max
	Distinct
)

// Measure is one computed column.
type Measure struct {
	Op  MeasureOp
	Ref Ref
}

// Rank orders an aggregation by one of its columns (groups first, then measures).
type Rank struct {
	Column int
	Desc   bool
}

// Aggregation groups matching documents and measures each group. Without groups
// there is one row. Ties are broken by the group columns, ascending.
type Aggregation struct {
	Collection *Collection
	Where      Predicate
	Groups     []Group
	Measures   []Measure
	Sort       []Rank
	Limit      int
	// Bytes, if positive, bounds the size of the rows (see RowSize). The result ends with the first row that exceeds the
	// bound, which lets the caller see that there were more rows than fit. The first row alone never ends it.
	Bytes int64
}

// RowSize returns the approximate number of bytes that a row of an aggregation or of a list takes in memory.
func RowSize(row []any) int64 {
	const value = 32 // an interface and what it points to
	n := int64(value)
	for _, v := range row {
		n += value
		switch x := v.(type) {
		case string:
			n += int64(len(x))
		case []string:
			for _, s := range x {
				n += value + int64(len(s))
			}
		case []any:
			n += RowSize(x)
		case map[string]any:
			for name, v := range x {
				n += value + int64(len(name)) + RowSize([]any{v})
			}
		}
	}
	return n
}

// Ranks returns the complete order of the rows, with each column once: the requested order, then the groups. It is
// empty without groups, because there is one row then. It returns an error if the aggregation has no columns or is
// sorted by a column that it does not have.
func (a *Aggregation) Ranks() (order []Rank, err error) {
	seen := make([]bool, len(a.Groups)+len(a.Measures))
	if len(seen) == 0 {
		return nil, errors.New("an aggregation needs a group or a measure")
	}
	steps := slices.Clone(a.Sort)
	for i := range a.Groups {
		steps = append(steps, Rank{Column: i})
	}
	for _, r := range steps {
		if r.Column < 0 || r.Column >= len(seen) {
			return nil, fmt.Errorf("an aggregation of %d columns cannot be sorted by column %d", len(seen), r.Column)
		}
		if !seen[r.Column] && len(a.Groups) > 0 {
			order = append(order, r)
		}
		seen[r.Column] = true
	}
	return order, nil
}

// WriteOp says what a Write does.
type WriteOp int

// The writes. Insert stores revision 1. Replace and Delete need Doc.ID and, as the expected revision, Doc.Rev; the
// stored revision becomes Doc.Rev+1. Put stores the document at exactly Doc.Rev, whether or not it exists; it copies
// documents from one engine to another. Hold changes nothing: it is a precondition that fails the batch unless the
// document exists at Doc.Rev, or does not exist if Doc.Rev is 0. An engine without transactions checks it after it has
// applied the writes before it.
const (
	Insert WriteOp = iota
	Replace
	Delete
	Put
	Hold
)

// Write changes one document, or requires that it is unchanged (Hold).
type Write struct {
	Collection *Collection
	Op         WriteOp
	Doc        Document
}

// rowBytes is the size of a body that counts as one more row.
const rowBytes = 1 << 10

// Rows returns the approximate number of rows that the write changes in an engine: one for the document, one for its
// entry in each index, one for each element in an index on a list, and as many again for the rows that a Replace or Put
// removes. Values that the write does not carry, such as those of a deleted document, are not counted.
func (w *Write) Rows() int {
	if w.Op == Hold {
		return 1
	}
	rows := w.Collection.Rows(func(n int) int {
		if n < len(w.Doc.Values) {
			list, _ := w.Doc.Values[n].([]string)
			return len(list)
		}
		return 0
	})
	if w.Op == Replace || w.Op == Put {
		rows *= 2
	}
	return rows + (len(w.Doc.Body)+len(w.Doc.Custom))/rowBytes
}

// Rows returns the number of rows that a document of the collection takes, including its index entries. The function
// list returns the number of elements of the n-th field, which is a list.
func (c *Collection) Rows(list func(n int) int) int {
	rows := 1 + len(c.Indexes)
	for i := range c.Indexes {
		if fields := c.Indexes[i].Fields; len(fields) == 1 {
			if n := slices.IndexFunc(c.Fields, func(f Field) bool { return f.Name == fields[0] && f.Type == Strings }); n >= 0 {
				rows += list(n) - 1
			}
		}
	}
	return rows
}

// DuplicateError says that a write would repeat a unique value. Index is the name of the declared index, or "id".
// Position is the index of the write in its batch.
type DuplicateError struct {
	Collection string
	Index      string
	Position   int
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("%s: write %d repeats a unique value of index %s", e.Collection, e.Position, e.Index)
}

// ConflictError says that a document does not exist at the expected revision. Position is the index of the write in its
// batch.
type ConflictError struct {
	Collection string
	Position   int
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s: write %d expected another revision", e.Collection, e.Position)
}

// Errors that engines wrap, so that package store need not know their libraries.
var (
	// ErrUnavailable: the engine cannot be reached or cannot serve the call now (disk full, lock held, shut down). A
	// later attempt may succeed.
	ErrUnavailable = errors.New("the store is unavailable")
	// ErrReadOnly: data can be read but not written, because the disk is full or the file is damaged. It comes with
	// ErrUnavailable.
	ErrReadOnly = errors.New("the store cannot be written to now")
	// ErrSnapshotLost: the server has no longer what a Snapshot began with. A new one can be begun.
	ErrSnapshotLost = errors.New("the snapshot is too old")
	// ErrSlow: the deadline passed while the engine was executing the query, or while the query waited for others. It
	// comes with context.DeadlineExceeded and is no outage.
	ErrSlow = errors.New("query timed out")
	// ErrInUse: another process uses the data.
	ErrInUse = errors.New("another process uses the data")
	// ErrNewer: the data was written by a newer version and is left untouched.
	ErrNewer = errors.New("the data was written by a newer version")
)
