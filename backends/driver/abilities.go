package driver

import (
	"context"
	"time"
)

// The optional abilities of an engine or a workspace; Meter is in meter.go. Package store checks for each by its
// interface and does without it if an engine lacks it. So an engine asserts at its type which ones it has: otherwise it
// would lose an ability whose signature is wrong. All methods are safe for concurrent use.

// Remote is an engine that may be on another machine.
type Remote interface {
	// Remote reports whether calls wait for another machine. Callers then make those calls concurrently that do not need
	// each other's results.
	Remote() bool
}

// Elector is an engine whose primary server may be replaced in an election. For a moment the former primary may still
// answer, without the writes of its successor.
type Elector interface {
	// Elected returns the time at which this process first saw the current primary. It is the zero time if the server
	// has no elections or this process cannot observe them.
	Elected() time.Time
}

// Atomic is an engine that may have transactions.
type Atomic interface {
	// Atomic reports whether a batch is applied completely or not at all, even if the process is killed meanwhile.
	Atomic() bool
}

// Examiner is an engine that stores workspaces in files, each of which may be lost or damaged independently.
type Examiner interface {
	// Place returns the path of the workspace's file.
	Place(workspace string) string
	// Missing returns a *DamagedError if the file does not exist or does not contain the workspace. It is cheap.
	Missing(workspace string) error
	// Examine reads the whole file and removes its mark if the file is intact or was removed with its workspace. A file
	// that was recently found intact is read again only if anew is set. Errors: *DamagedError with the first fault;
	// ErrUnavailable; the context's own.
	Examine(ctx context.Context, file string, anew bool) error
	// Mark records next to the file that it is damaged, so that the next process knows it too. An existing mark is kept
	// as it is. Error: ErrUnavailable.
	Mark(m Mark) error
	// Marks returns the marks of all damaged files. Error: ErrUnavailable.
	Marks() ([]Mark, error)
}

// Finder is an engine that can look up whether a workspace exists without creating it.
type Finder interface {
	// Exists reports whether anything was ever prepared for the workspace. Nothing is changed. Error: ErrUnavailable.
	Exists(ctx context.Context, workspace string) (bool, error)
}

// Checkpointer is an engine that writes to a log first and moves the log's content into the files of workspaces later.
type Checkpointer interface {
	// Checkpoint moves the logs of all files that the workspace is or was in into these files and empties the logs, so
	// that they hold no deleted data either. Error: ErrUnavailable, if the context ends before that.
	Checkpoint(ctx context.Context, workspace string) error
	// Lag returns the total size of the logs of open files in bytes, and an upper bound on how long data has been in a
	// log alone.
	Lag() (bytes int64, age time.Duration)
}

// Counting is a workspace that can list its counters.
type Counting interface {
	// Counters returns the values of all counters of the workspace, by name. Error: ErrUnavailable.
	Counters(ctx context.Context) (map[string]int64, error)
}

// Snapshotter is an engine that can read a workspace as it was at one moment.
type Snapshotter interface {
	// Snapshot returns a context with which calls of this engine read what was committed when the first of them began.
	// They may fail with ErrSnapshotLost. If the server cannot do that, calls read what is committed when they are made.
	// The context is for one goroutine, and for reading; release must be called. Error: ErrUnavailable.
	Snapshot(ctx context.Context) (reading context.Context, release func(), err error)
}

// Archiver is an engine that can copy the files of its workspaces while it serves.
type Archiver interface {
	// Archive copies every file of workspaces into an existing folder and checks the copies, which are complete and
	// durable when it returns. Each has what was committed at one moment of the call. A damaged file is copied as far as
	// that is possible, and does not keep others from being copied. After an error the folder may have copies. Errors:
	// ErrUnavailable; *DamagedError for the file of Last; the context's own.
	Archive(ctx context.Context, o Archiving) ([]Archived, error)
}

// Archiving says how workspaces are copied. All fields are required, but for Last.
type Archiving struct {
	Dir string // the folder
	// Last names the workspace whose copy has the latest state.
	Last string
	// Still calls do while no workspace is created, and returns its error. The state of Last is from then, and every
	// workspace that there is then has been copied. do takes some milliseconds.
	Still func(ctx context.Context, do func() error) error
	// Told is called with how many bytes of a file have been copied, of how many.
	Told func(file string, done, total int64)
}

// Archived is a copy of a file.
type Archived struct {
	File       string // its name in the folder
	Workspaces []string
	Documents  int64
	// Damage says how the file is damaged; empty: it is intact. There may be no copy of a damaged file.
	Damage string
	// Unsettled: the copy may have documents of different moments, because they changed all the time.
	Unsettled bool
}

// Mark records that a file is damaged. The file must not be written to until an examination finds it intact.
type Mark struct {
	File      string    `json:"-"`
	Workspace string    `json:"workspace"` // in whose use the damage was found; it may have been removed since
	Reason    string    `json:"reason"`
	Found     time.Time `json:"found"`
}

// Sizer is an engine that knows how much storage a workspace takes.
type Sizer interface {
	// Size returns the size in bytes: of the workspace's own files, or of its documents if it shares a file. Error:
	// ErrUnavailable.
	Size(ctx context.Context, workspace string) (int64, error)
}

// Indexer is an engine that builds indexes while it serves queries. Until an index is ready, queries that need it
// return the same results, but slower.
type Indexer interface {
	// Indexes returns the state of the indexes of all collections that have been opened, in a stable order. Error:
	// ErrUnavailable.
	Indexes(ctx context.Context) ([]IndexStatus, error)
}

// Explainer is a workspace that can explain how the engine executes a query.
type Explainer interface {
	// Explain returns the plan of a query, or of a count if Query.Limit is 0. It reads no document. Error:
	// ErrUnavailable.
	Explain(ctx context.Context, q Query) (Plan, error)
}

// Parted is a workspace that several parties use, as organizations use the control workspace.
type Parted interface {
	// Part returns a handle on the workspace for one party. Its calls are scheduled fairly among those of other
	// parties. Party is the name of the party's own workspace.
	Part(party string) Workspace
}

// Plan is how an engine executes a query.
type Plan struct {
	// Index is the index through which documents are found: "id" for their key, empty for none.
	Index string
	// Every: all documents of the collection, or all entries of the index, are read.
	Every bool
	// Fields are the conditions on fields defined by the organization that an index could serve; Index is the name of
	// the field. State is empty if the field has no index.
	Fields []IndexStatus
}

// IndexStatus describes one index to an operator.
type IndexStatus struct {
	Database   string
	Collection string
	Index      string
	State      IndexState
	// Reason says why the index was refused, and the consequence.
	Reason string
}

// IndexState is the state of an index.
type IndexState string

// The states of an index.
const (
	IndexReady    IndexState = "ready"
	IndexBuilding IndexState = "building"
	IndexRefused  IndexState = "refused"
)

// Keeper is an engine that keeps state in memory for each workspace in use.
type Keeper interface {
	// Kept returns the number of workspaces that have such state.
	Kept() int
}

// Breaker is an engine that fails calls immediately while its server does not answer.
type Breaker interface {
	// Refusing reports whether calls fail so now.
	Refusing() bool
}

// Upgrader is an engine whose databases get the layout of this version (tables, columns and indexes) when a workspace in
// them is first opened.
type Upgrader interface {
	// Layouts compares the databases with this version, and changes none. of returns the collections with which a
	// workspace is opened; for a database of several workspaces it is called with a name that none of them has. Error:
	// ErrUnavailable; that of the context.
	Layouts(ctx context.Context, of func(workspace string) []*Collection) (Layouts, error)
}

// Layouts says how many databases have the layout of this version.
type Layouts struct {
	Current int
	Others  []string // the names of those that have that of another version, sorted
}

// Inspector is an engine that can report to an operator on the services it depends on, beyond whether it answers.
type Inspector interface {
	// Inspect returns findings in a stable order, even while the server does not answer. When the context ends, it
	// returns those it has made so far.
	Inspect(ctx context.Context) []Finding
}

// Finding is one observation about an engine for an operator.
type Finding struct {
	Subject string // one word
	Verdict FindingVerdict
	Says    string
	Advice  string // may be empty
}

// FindingVerdict is the severity of a Finding.
type FindingVerdict int

// The verdicts. The zero value means that all is well.
const (
	FindingGood FindingVerdict = iota
	FindingWarning
	FindingWrong
)
