package driver

import (
	"context"
	"errors"
	"iter"
	"time"
)

// ErrNotYet: a cut cannot be stored before the caller of PageLogger.LogPages is ready. Files are followed meanwhile.
var ErrNotYet = errors.New("changes are not logged yet")

// PageLogger is an engine that can pass on every change of its files, page by page.
type PageLogger interface {
	// LogPages passes the changes of all files to o.Ship until Close, about once a second. It must be called once, before
	// any workspace is opened. Afterwards nothing is committed that is not passed on. Error: ErrUnavailable.
	LogPages(ctx context.Context, o PageLogging) error
}

// PageLogging says where changes go. All fields are required.
type PageLogging struct {
	// Known are the last positions of files in the log, by the names of files; see FileCut.
	Known map[string]PagePosition
	// Last is the time of the last cut in the log.
	Last time.Time
	// Ship stores a cut. It is durable when Ship returns nil; otherwise it counts as not stored, and the next cut has its
	// changes too. It returns ErrNotYet until cuts can be stored. Calls do not overlap.
	Ship func(ctx context.Context, cut PageCut) error
	Now  func() time.Time
	// Told is called when cuts fail, and with nil when they succeed again.
	Told func(err error)
}

// PageCut is what changed in all files up to one moment, since the cut before. Everything that was committed and
// acknowledged before a later commit began is in a cut that has the later commit.
type PageCut struct {
	// At is the time of the cut. It is a full second if this is the first cut in it: then the cut has everything that was
	// acknowledged before this second, and perhaps some of what was committed within it. Times never decrease.
	At time.Time
	// Since is when there was nothing to be cut besides what earlier cuts have. If a cut has changes, the states of the
	// seconds after Since and before At are not known.
	Since time.Time
	Files []FileCut
}

// CutKind says what a FileCut is.
type CutKind string

// The kinds of cuts of a file.
const (
	// CutChanged: pages were changed. If there are none, only the position is new.
	CutChanged CutKind = "changed"
	// CutCreated: the file is new, and the pages since the empty file follow.
	CutCreated CutKind = "created"
	// CutGone: the file was removed.
	CutGone CutKind = "gone"
	// CutBroken: changes before this cut are not in the log. A copy of the file that was begun after it has them.
	CutBroken CutKind = "broken"
)

// FileCut is what changed in one file. Several of one file follow each other in a cut.
type FileCut struct {
	File     string // its name in the folder of the engine
	Kind     CutKind
	Position PagePosition // after this cut
	Why      string       // with CutBroken: the reason, if it is known
	// PageSize is the size of a page in bytes, and Pages the number of pages of the file after this cut. Both are 0 if no
	// pages changed.
	PageSize, Pages int
	// Changed is the number of changed pages, and Read returns their numbers, from 1 and ascending, and contents, which are
	// valid until the next one. It may be called until Ship returns. It ends early after an error, which Err returns.
	Changed int
	Read    iter.Seq2[uint32, []byte]
	Err     func() error
}

// PagePosition is a place in the log of a file.
type PagePosition struct {
	Salt  uint64 `json:"salt,omitempty"`  // of the generation of the log
	Frame uint32 `json:"frame,omitempty"` // the last one that was passed on
	Sum   uint64 `json:"sum,omitempty"`   // the checksum in the log of all frames up to that; 0: it is not known
	// Sealed: the generation ends here, and the file had this size and time of modification, in nanoseconds since 1970,
	// with all of it at best. The log may have been emptied since, without a change of the file.
	Sealed bool `json:"sealed,omitempty"`
	// Rests: the log is empty, and the file has this size and time of modification.
	Rests    bool  `json:"rests,omitempty"`
	Size     int64 `json:"size,omitempty"`
	Modified int64 `json:"modified,omitempty"`
}
