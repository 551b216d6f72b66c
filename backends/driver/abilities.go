package driver

import (
	"context"
	"time"
)

// What an engine may be able to do. Package store asks for each by its interface, and goes on
// without where an engine lacks it. All methods are safe for concurrent use.

// Remote is an engine whose calls may wait for another machine, where Remote returns true.
// Then callers make those at the same time that do not need each other's answers.
type Remote interface{ Remote() bool }

// Elector is an engine whose server is replaced by another in an election, while the former may answer on for a moment
// and not know what the other has stored.
type Elector interface {
	// Elected returns since when this process has seen the server that takes writes now; the zero time where it is not
	// replaced so, or that cannot be seen.
	Elected() time.Time
}

// Atomic is an engine that applies a batch whole or not at all, whatever becomes of the process
// meanwhile, where Atomic returns true.
type Atomic interface{ Atomic() bool }

// Examiner is an engine whose workspaces lie in files, any of which may be lost or damaged by itself.
type Examiner interface {
	// Place returns the file of the workspace.
	Place(workspace string) string
	// Missing returns a *DamagedError where the file is not there, or lacks the workspace. It costs a look.
	Missing(workspace string) error
	// Examine reads the whole file: again, where it was found whole lately, only if anew is set. One that is whole, or
	// that was removed with its workspace, has no mark any more. Errors: *DamagedError with the first fault;
	// ErrUnavailable; the context's own.
	Examine(ctx context.Context, file string, anew bool) error
	// Mark writes down beside the file that it is damaged, so that it is known in the next process too. One that is
	// marked stays so as it is. Error: ErrUnavailable.
	Mark(m Mark) error
	// Marks returns the files that are marked. Error: ErrUnavailable.
	Marks() ([]Mark, error)
}

// Finder is an engine that can tell whether a workspace has been made, without making it.
type Finder interface {
	// Exists reports whether anything was ever prepared for the workspace. Nothing is changed. Error: ErrUnavailable.
	Exists(ctx context.Context, workspace string) (bool, error)
}

// Settler is an engine that writes to a log first, and moves what that has into the files of workspaces by and by.
type Settler interface {
	// Settle moves everything of the files that a workspace is in, or was in, and leaves nothing in their logs: of what
	// was deleted neither. Error: ErrUnavailable, where that cannot be before the context ends.
	Settle(ctx context.Context, workspace string) error
	// Lag returns how many bytes the logs of open files have, and for how long at most something has been in a log
	// alone.
	Lag() (bytes int64, age time.Duration)
}

// Mark says of a file that it is damaged: nothing may be written to it until it has been examined, and is whole.
type Mark struct {
	File      string    `json:"-"`
	Workspace string    `json:"workspace"` // the one that found it, which may be gone
	Reason    string    `json:"reason"`
	Found     time.Time `json:"found"`
}

// Sizer is an engine that can tell how much room a workspace takes.
type Sizer interface {
	// Size returns bytes: of the workspace's files, or where it shares them, of its documents. Error: ErrUnavailable.
	Size(ctx context.Context, workspace string) (int64, error)
}

// Indexer is an engine that makes indexes while it answers. A question that needs an index which
// is not ready gets the same answer, later.
type Indexer interface {
	// Indexes tells of those of every collection that has been opened, in an order that stays.
	// Error: ErrUnavailable.
	Indexes(ctx context.Context) ([]IndexStatus, error)
}

// Explainer is a workspace that can tell how the engine finds what a question asks for.
type Explainer interface {
	// Explain returns how; of a count where Query.Limit is 0. No document is read. Error: ErrUnavailable.
	Explain(ctx context.Context, q Query) (Plan, error)
}

// Parted is a workspace of which several parties have parts, as organizations have of the control workspace.
type Parted interface {
	// Part returns the workspace as one party uses it, which takes turns with others there as it does with its own.
	// Party is the name of the workspace that it has besides.
	Part(party string) Workspace
}

// Plan is how a question is answered.
type Plan struct {
	// Index is the one that leads to the documents, "id" their key; empty: none does.
	Index string
	// Every: all documents of the collection are looked at, or all entries of the index.
	Every bool
	// Fields are those conditions on fields that the organization defined which an index could serve, by
	// Index their names. The State of one that has none is empty.
	Fields []IndexStatus
}

// IndexStatus tells an operator about one index.
type IndexStatus struct {
	Database   string
	Collection string
	Index      string
	State      IndexState
	// Reason says why an index was refused and what that means.
	Reason string
}

// IndexState is what became of an index.
type IndexState string

// The states of an index.
const (
	IndexReady    IndexState = "ready"
	IndexBuilding IndexState = "building"
	IndexRefused  IndexState = "refused"
)

// Keeper is an engine that keeps something in memory of each workspace in use.
type Keeper interface {
	// Kept returns of how many it does.
	Kept() int
}

// Breaker is an engine that refuses calls at once while its server does not answer.
type Breaker interface {
	// Refusing reports whether it does so now.
	Refusing() bool
}
