package bundle

import (
	"fmt"
	"strings"

	"tenantry/internal/fault"
)

// Bounds in bytes of what a Bounded import keeps in memory until it ends, in addition to the lines being processed.
const (
	maxRemembered = 32 << 20 // of identifiers, unique values and references of lines
	maxDefined    = 32 << 20 // of definitions, both of the organization and of the file
)

// Estimated bytes of one item, including its share of the table that holds it.
const (
	entryMemory    = 512 // a definition, without its content
	knownMemory    = 128 // the identity of a definition, if nothing else of it is kept
	claimMemory    = 32  // an identifier, a unique value or a digest
	edgeMemory     = 80
	locationMemory = 48
	aliasMemory    = 160
)

// memoryUse counts the memory of a session. Bounds are 0 if there are none.
type memoryUse struct {
	prepared                   int64 // the part of remembered that the preparation took
	remembered, mostRemembered int64
	defined, mostDefined       int64
}

// remember counts further memory for lines. Error: ErrTooMany.
func (a *memoryUse) remember(bytes int64) error {
	if a.remembered += bytes; a.mostRemembered > 0 && a.remembered > a.mostRemembered {
		return fmt.Errorf("%w: their identifiers, unique values and references take more than %d MiB; split it into several files",
			ErrTooMany, a.mostRemembered>>20)
	}
	return nil
}

// define counts the memory of another definition. Error: ErrTooMany.
func (a *memoryUse) define(bytes int64) error {
	if a.defined += bytes; a.mostDefined > 0 && a.defined > a.mostDefined {
		return fmt.Errorf("%w with definitions: together with those of the organization they take more than %d MiB; split "+
			"it into several files, or import it by command",
			ErrTooMany, a.mostDefined>>20)
	}
	return nil
}

// maxFaultBytes bounds the problems of one line in a report.
const maxFaultBytes = 4 << 10

// cloneFaults returns the problems of a line for a report. Names are cloned, because they may be parts of the line,
// which must not be held.
func cloneFaults(errs fault.List) fault.List {
	var out fault.List
	size := 0
	for _, f := range errs {
		if size += len(f.Field) + len(f.Message); size > maxFaultBytes && len(out) > 0 {
			break
		}
		out = append(out, fault.Fault{Field: strings.Clone(f.Field), Code: f.Code, Message: f.Message})
	}
	return out
}
