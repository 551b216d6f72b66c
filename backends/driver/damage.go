package driver

// DamagedError says that the storage of a workspace is missing or unreadable. It affects only the workspaces in that
// file. It wraps ErrUnavailable, so that callers take it neither for a refusal nor for an empty result.
type DamagedError struct {
	Reason string // names the file
	Err    error  // the engine's own error; nil if the file is missing or empty
}

func (e *DamagedError) Error() string { return e.Reason }

// Unwrap returns ErrUnavailable and, if there is one, the engine's own error.
func (e *DamagedError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrUnavailable}
	}
	return []error{ErrUnavailable, e.Err}
}
