package driver

import (
	"fmt"
	"strings"
)

// Opening says which workspace to open, and for whom.
type Opening struct {
	// Workspace is the name, given by package store; it matches ^[a-z0-9-]{1,64}$.
	Workspace string
	// Owner is an opaque text that must equal the owner of the workspace. An engine stores it with the workspace and
	// compares it on every opening. Empty: the workspace must have no owner.
	Owner       string
	Collections []*Collection
	// New: there must be no documents yet, unless they belong to the owner. Otherwise documents without an owner, which
	// an older version wrote, become the owner's.
	New bool
	// Apart: the workspace gets a file, or the like, of its own, even if other workspaces share files.
	Apart bool
}

// CheckName returns an error if the text cannot name a workspace.
func CheckName(name string) error {
	if len(name) > 64 || name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return fmt.Errorf("workspace %q: the name must match [a-z0-9-]{1,64}", name)
	}
	return nil
}

// Admit decides whether a workspace whose stored owner is owner, or empty, may be opened. If claim is true, the engine
// must store the opening's owner. The function documents reports whether the workspace has any; where tells an operator
// its location. Error: *ForeignError, or that of documents.
func (o *Opening) Admit(owner, where string, documents func() (bool, error)) (claim bool, err error) {
	foreign := &ForeignError{Workspace: o.Workspace, Where: where, Owner: owner, Wanted: o.Owner}
	switch {
	case owner != "" && owner != o.Owner:
		return false, foreign
	case owner == "" && o.New:
		if some, err := documents(); err != nil {
			return false, err
		} else if some {
			return false, foreign
		}
	}
	return owner != o.Owner, nil
}

// ErrForeign: the stored documents belong to another owner and are left untouched. For callers the workspace is
// unavailable.
var ErrForeign = fmt.Errorf("%w: the workspace belongs to another owner", ErrUnavailable)

// ForeignError gives an operator the details of an ErrForeign.
type ForeignError struct {
	Workspace string
	Where     string // file, database or the like
	Owner     string // stored with the workspace; empty: there are documents without an owner
	Wanted    string // the owner of the Opening; empty: none
}

func (e *ForeignError) Error() string {
	holds := "documents without an owner"
	if e.Owner != "" {
		holds = "documents of " + e.Owner
	}
	wanted := "without an owner"
	if e.Wanted != "" {
		wanted = "for " + e.Wanted
	}
	return fmt.Sprintf("%v: workspace %s (%s) holds %s, and was opened %s; it was left unchanged. "+
		"Restore control data and documents that belong together, or move it away", ErrForeign, e.Workspace, e.Where, holds, wanted)
}

// Unwrap returns ErrForeign.
func (e *ForeignError) Unwrap() error { return ErrForeign }
