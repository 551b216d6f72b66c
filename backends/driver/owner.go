package driver

import (
	"fmt"
	"strings"
)

// Opening says which workspace to open, and for whom.
type Opening struct {
	// Workspace is made by package store and matches ^[a-z0-9-]{1,64}$.
	Workspace string
	// Owner is whose the workspace must be, in any text. An engine keeps it with the workspace
	// and compares it whenever it opens one. Empty: the workspace must have no owner.
	Owner       string
	Collections []*Collection
	// New: nothing may lie there yet but what is the owner's. Otherwise documents that have no
	// owner, because an older version wrote them, become the owner's.
	New bool
	// Apart: it is to have a file, or the like, of its own, where others may share one.
	Apart bool
}

// CheckName returns an error where the text cannot name a workspace.
func CheckName(name string) error {
	if len(name) > 64 || name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return fmt.Errorf("workspace %q: the name must match [a-z0-9-]{1,64}", name)
	}
	return nil
}

// Admit decides whether the workspace, which has that owner or none, may be opened; claim
// says that the engine must write down the opening's owner. documents reports whether
// there are any, where is where an operator finds them. Error: *ForeignError, or that of documents.
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

// ErrForeign: what lies there belongs to somebody else and is left untouched. For callers
// the workspace is unavailable.
var ErrForeign = fmt.Errorf("%w: what lies there belongs to somebody else", ErrUnavailable)

// ForeignError tells an operator what an ErrForeign is about.
type ForeignError struct {
	Workspace string
	Where     string // file, database or the like
	Owner     string // empty: there are documents, but nobody knows whose
	Wanted    string
}

func (e *ForeignError) Error() string {
	owner := "documents without an owner"
	if e.Owner != "" {
		owner = "what belongs to " + e.Owner
	}
	return fmt.Sprintf("%v: workspace %s (%s) holds %s, and was asked for by %s; it is left as it is. Restore control data and documents that belong together, or move it away",
		ErrForeign, e.Workspace, e.Where, owner, orNobody(e.Wanted))
}

func orNobody(owner string) string {
	if owner == "" {
		return "nobody"
	}
	return owner
}

// Unwrap makes it an ErrForeign.
func (e *ForeignError) Unwrap() error { return ErrForeign }
