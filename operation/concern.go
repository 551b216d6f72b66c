package operation

import (
	"time"

	"tenantry/tenants"
)

// Concern is a record that somebody should check, and why.
type Concern struct {
	ID, Name string // of the record: its key, and the name that people read
	Cause    Cause
	Expires  time.Time            // of ExpiresSoon
	Unused   []tenants.Permission // of UnusedRights
}

// Cause is the reason why somebody should check a record.
type Cause uint8

// The causes.
const (
	ExpiresSoon  Cause = iota + 1 // it expires at Expires
	NeverUsed                     // it was made long ago and never used
	UnusedRights                  // it has had the permissions Unused for long and never needed them
	OpenToAll                     // everybody who has its address can read it
	Halted                        // the gateway paused it
	Failing                       // what it does by itself failed when it last did it
)

// Concerns are the records of a list that somebody should check.
type Concerns struct {
	First []Concern // in the order of their identifiers
	Count int64     // of all, including First
	// AtLeast: there may be more than Count, because not every record was examined.
	AtLeast bool
}
