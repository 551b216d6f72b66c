package driver

import "context"

// DamagedError says that what a workspace lies in is missing, or cannot be read. It concerns that
// workspace alone, and is an ErrUnavailable: nobody takes it for a refusal, or for nothing there.
type DamagedError struct {
	Reason string // names the file
	Err    error  // the engine's own error; may be nil
}

func (e *DamagedError) Error() string { return e.Reason }

// Unwrap makes it an ErrUnavailable.
func (e *DamagedError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrUnavailable}
	}
	return []error{ErrUnavailable, e.Err}
}

// Examiner is an Engine whose workspaces lie in a file each, any of which may be lost or damaged
// by itself. Safe for concurrent use.
type Examiner interface {
	// Place returns the file of the workspace.
	Place(workspace string) string
	// Missing returns a *DamagedError where the file is not there. It costs a look at the folder.
	Missing(workspace string) error
	// Examine reads the whole file. Errors: *DamagedError with the first fault; the context's own.
	Examine(ctx context.Context, workspace string) error
}
