// Package driver is what a storage engine implements. Modules never see it:
// package store checks, scopes, limits and pages once, an engine only executes.
//
// Values are portable: nil, string, int64, float64, bool and []string. Engines
// must give equal answers for equal questions; package storetest holds them to it.
package driver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
)

// Engine keeps any number of workspaces that share nothing. What an engine may be able to do
// besides is in abilities.go. All methods are safe for concurrent use.
type Engine interface {
	// Open returns the workspace, preparing its collections and indexes when first used.
	// It does no I/O that a later call could not repeat: an engine may close files behind
	// the handle and open them again. It admits by Opening.Admit, then too; error: ErrForeign.
	Open(ctx context.Context, o Opening) (Workspace, error)
	// Remove deletes everything of the workspace, which must be the owner's or nobody's; error:
	// ErrForeign. Removing what is not there is no error.
	Remove(ctx context.Context, workspace, owner string) error
	// Residents returns the names of the workspaces it holds, sorted. Error: ErrUnavailable.
	Residents(ctx context.Context) ([]string, error)
	// Resident tells of one; it has no owner also where there is no such workspace. Nothing is
	// changed. Error: ErrUnavailable.
	Resident(ctx context.Context, workspace string) (Resident, error)
	// Check reports whether the engine can read and write now. Errors: ErrUnavailable, in it ErrReadOnly where only
	// writes fail.
	Check(ctx context.Context) error
	// Close waits for running calls and releases everything.
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
	// Count returns how many documents match.
	Count(ctx context.Context, c *Collection, where Predicate) (int64, error)
	// Aggregate groups and measures in the engine. A row holds the group values, then the measures.
	Aggregate(ctx context.Context, a Aggregation) ([][]any, error)
	// Write applies the writes in order and returns once they are durable. Errors: *DuplicateError,
	// *ConflictError; of a batch with such a refusal nothing remains, save what a Put replaced.
	// After any other error an engine without transactions may have kept the writes
	// before it, and others may see a batch half done.
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

// Index orders the collection by its fields, then by id. A unique index ignores
// documents in which any of its fields is missing or null. An index over a Strings
// field stands alone and serves element look-ups. What rides along follows the id, where an engine has a
// use for it: questions about it are answered without the documents. A sparse index serves questions for values
// alone, and no order: an engine may leave documents out of it that have none. Ordered says of a unique index that
// questions without a value of its last field are asked in its order.
type Index struct {
	Name    string
	Fields  []string
	Unique  bool
	Sparse  bool     `json:",omitempty"`
	Rides   []string `json:",omitempty"`
	Ordered bool     `json:"-"`
}

// Collection describes the documents of one kind. Every name in it is a constant
// of the program ([a-z][a-z0-9_]*), never outside text.
type Collection struct {
	Name    string
	Fields  []Field
	Indexes []Index
	// Custom: documents may have custom values, which an engine may index. Of is the declared String field whose value
	// says which custom fields a document has: under a key, documents of another value have another field, and
	// questions about one are of one value. It is empty where all documents have the same. The fields of Rides are in
	// most questions about them, so they may ride along.
	Custom bool
	Of     string   `json:"-"`
	Rides  []string `json:"-"`
	// Uncounted: a Meter leaves its documents out.
	Uncounted bool `json:"-"`
}

// Document is one record. Body and Custom are JSON objects. Custom, nil where the
// collection has none, holds the values of fields that the organization defined.
// Values are the declared fields in the order of Collection.Fields; they are set
// on writes and repeat what Body says, so that an engine need not parse it; nil stands
// for what is missing, null, "", an empty list or the zero Time.
//
// Was is the Size of the document that a Replace or Delete is of, 0 where that is not known. An engine that can look
// relies on it in nothing.
//
// Damage is set of a found document that the engine cannot read, since somebody else changed it, and says why without
// its values. There is nothing else but the ID then, and not that where it is not this program's. The others come as
// they are.
type Document struct {
	ID     string
	Rev    int64
	Body   []byte
	Custom []byte
	Values []any
	Was    int64
	Damage error
}

// valueSize is about what a value takes once it is decoded, besides its text: its place in a map or list, and its
// header.
const valueSize = 64

// Held returns about how many bytes the document takes once it is decoded, whatever engine it is of.
func (d *Document) Held() int64 {
	values := bytes.Count(d.Body, []byte{','}) + bytes.Count(d.Custom, []byte{','})
	return int64(len(d.ID) + len(d.Body) + len(d.Custom) + valueSize*(values+2))
}

// Ref names a value of a document: a declared field (or "id"), or, where Custom is
// set, a key of the custom object. Name of a custom value is outside text: an
// engine binds it, it never becomes part of a statement.
type Ref struct {
	Name   string
	Custom bool
	Type   Type
}

// Op is the operator of a Predicate.
type Op int

// The operators. Missing and null are the same thing. Ne and Nin match it, Eq and the comparisons never do. Comparisons
// are within a type: a number is never greater than a string, true is not 1. Strings compare by their bytes, numbers by
// value whatever their width. On a Strings field Eq, In and Contains ask whether some element is (one of) the value(s),
// Ne and Nin whether none is; Exists whether there is an element. Contains and StartsWith on a string are exact about
// case; ContainsFold and StartsWithFold, which are of strings alone, take every letter for what Cases has of it, and
// find no text that is not UTF-8. From and Before are of custom values that are no lists, and of their Order: From is
// what is the value or comes after it ascending, of whatever type, and Before all else. And with no kids matches
// everything, Or with no kids nothing, In of nothing nothing, Nin of nothing everything.
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

// Pins reports whether it admits one value of each of the declared fields.
func (p Predicate) Pins(fields ...string) bool {
	return !slices.ContainsFunc(fields, func(field string) bool {
		if p.Op == And {
			return !slices.ContainsFunc(p.Kids, func(kid Predicate) bool { return kid.Pins(field) })
		}
		return p.Op != Eq || p.Ref.Custom || p.Ref.Name != field
	})
}

// Order is one step of a sort. Missing values come first, ascending, and with them the lists and objects of custom
// values; then numbers by value, strings by their bytes, false and true.
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
	// Take, where set, is given each document as it is read, and Find returns none: so that who wants them in another
	// form, or not all, does not hold them all. It gets nil before the first, and again where they are read anew: what
	// it was given before is then void. It is called by one goroutine at a time, while the engine has what it reads
	// from in use. An error ends the reading and is that of Find.
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

// The measures. Count counts documents and needs no Ref. Sum, Avg, Min and Max
// ignore values that are not numbers (Min and Max of a String, Time or Date take
// those) and are nil where nothing is left; Distinct counts the different values.
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
	// Bytes, where positive, ends the rows with the one with which they take more than that, see RowSize, but with no
	// first one: so that who asks sees whether there are more than fit.
	Bytes int64
}

// RowSize returns about how many bytes the row of an aggregation or of a list takes.
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

// Ranks returns the whole order of the rows, each column once: the one that is asked for, then that of the groups; none
// of the one row without groups. It fails where there are no columns, or not the one that is to be sorted by.
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

// The writes. Replace and Delete need Doc.ID and, as the expected
// revision, Doc.Rev; the stored revision becomes Doc.Rev+1. Insert stores revision 1.
// Put stores the document at exactly Doc.Rev, whether or not it is there: that is how
// documents get from one engine to another. Hold changes nothing: it refuses the batch unless the document is at
// Doc.Rev, or is not there where that is 0. Where there are no transactions it looks after the writes before it.
const (
	Insert WriteOp = iota
	Replace
	Delete
	Put
	Hold
)

// Write changes one document, or holds it.
type Write struct {
	Collection *Collection
	Op         WriteOp
	Doc        Document
}

// rowBytes is how much of a body counts as one row more.
const rowBytes = 1 << 10

// Rows returns about how many rows the write changes in an engine: the document, an entry in each index, one for each
// element in an index of a list, and what is taken away of those before where it changes or deletes one. What is not
// given of it, as of one that is deleted, is not counted.
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

// Rows returns how many rows a document of the collection is, with its entries in indexes, where list returns the
// length of its n-th field, a list.
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

// DuplicateError says that a write would repeat a unique value. Index is the name
// of the declared index, or "id"; Position the place of the write in its batch.
type DuplicateError struct {
	Collection string
	Index      string
	Position   int
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("%s: write %d repeats a unique value of index %s", e.Collection, e.Position, e.Index)
}

// ConflictError says that the document does not exist at the expected revision.
type ConflictError struct {
	Collection string
	Position   int
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s: write %d expected another revision", e.Collection, e.Position)
}

// Errors an engine wraps, so that package store need not know its library.
var (
	// ErrUnavailable: the engine cannot be reached or cannot take this now (disk full, lock held, shut down). Trying
	// later may help.
	ErrUnavailable = errors.New("the store is unavailable")
	// ErrReadOnly: what is there can be read, and nothing can be written: the disk is full, or the file is damaged. It
	// comes with ErrUnavailable.
	ErrReadOnly = errors.New("the store cannot be written now")
	// ErrSlow: the question was ended by its deadline, while the engine was at work or had others to answer
	// first. It comes with context.DeadlineExceeded, and is no outage.
	ErrSlow = errors.New("query timed out")
	// ErrNewer: the data was written by a newer version and is left untouched.
	ErrNewer = errors.New("the data was written by a newer version")
)
