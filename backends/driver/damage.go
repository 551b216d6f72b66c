package driver

// DamagedError says that what a workspace lies in is missing, or cannot be read. It concerns that
// workspace alone, and is an ErrUnavailable: nobody takes it for a refusal, or for nothing there.
type DamagedError struct {
	Reason string // names the file
	Err    error  // the engine's own error; nil where the file is not there, or empty
}

func (e *DamagedError) Error() string { return e.Reason }

// Unwrap makes it an ErrUnavailable.
func (e *DamagedError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrUnavailable}
	}
	return []error{ErrUnavailable, e.Err}
}
