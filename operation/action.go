package operation

// Action is what an operation does with records, as far as pages and others that are made of rows treat it apart: the
// page of a list leads to what creates a record, that of a deleted record to what restores it.
type Action uint8

// The actions. The zero value is any other: its page has a form of its own, or a button.
const (
	OtherAction      Action = iota
	ListAction              // answers with the records of Resource, page by page
	CreateAction            // makes a record of those that a list at the same path has
	RestoreAction           // takes a record out of the trash
	PurgeAction             // ends a record in the trash for good
	BulkAction              // takes many records at once, which pages do not offer
	DuplicateAction         // makes a record like another
	ShareAction             // makes a link to a record
	DisclosureAction        // answers with a value that other answers hide
	DeactivateAction        // takes a record out of use
	ReactivateAction        // takes it back into use
)
