package bundle

import (
	"fmt"
	"strings"

	"tenantry/internal/fault"
)

// What an import that is Bounded keeps in memory until it ends, in bytes. Lines that are under way come besides.
const (
	maxRemembered = 32 << 20 // of identifiers, unique values and references of lines
	maxDefined    = 32 << 20 // of definitions, those of the organization and of the file together
)

// What one of these takes, in bytes, with its share of the table that it is in.
const (
	entryMemory = 512 // a line that defines something, whatever that is
	knownMemory = 128 // the identity of a definition of which nothing else is kept
	claimMemory = 32  // an identifier, a unique value or a digest
	edgeMemory  = 80
	lyingMemory = 48
	aliasMemory = 160
)

// account is what a session keeps in memory. Its bounds are 0 where there are none.
type account struct {
	prepared                   int64 // of what is remembered, what a feed does
	remembered, mostRemembered int64
	defined, mostDefined       int64
}

// remember notes that more is kept of lines. Error: ErrTooMany.
func (a *account) remember(bytes int64) error {
	if a.remembered += bytes; a.mostRemembered > 0 && a.remembered > a.mostRemembered {
		return fmt.Errorf("%w: what is remembered of their identifiers, unique values and references takes more than %d MiB; split it into several files",
			ErrTooMany, a.mostRemembered>>20)
	}
	return nil
}

// define notes that another definition is kept. Error: ErrTooMany.
func (a *account) define(bytes int64) error {
	if a.defined += bytes; a.mostDefined > 0 && a.defined > a.mostDefined {
		return fmt.Errorf("%w that define something: with what the organization has defined they take more than %d MiB; split it into several files, or import it by command",
			ErrTooMany, a.mostDefined>>20)
	}
	return nil
}

// maxFaultBytes bounds what a report says of one line.
const maxFaultBytes = 4 << 10

// kept returns what a report says of a line, without the text of that, which names may be parts of.
func kept(errs fault.List) fault.List {
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
