package operation

// Action is what an operation does with records, as far as pages and documents treat it specially: the page of a list
// links to the operation that creates a record, that of a deleted record to the one that restores it.
type Action uint8

// The actions. The zero value is any other action; its page has a form of its own, or a button.
const (
	OtherAction      Action = iota
	ListAction              // answers with the records of Resource, page by page
	CreateAction            // creates a record of the list at the same path
	RestoreAction           // restores a record from the trash
	PurgeAction             // deletes a record in the trash for good
	BulkAction              // changes many records at once; pages do not offer it
	DuplicateAction         // copies a record
	ShareAction             // creates a link to a record
	DisclosureAction        // answers a value that other answers hide
	DeactivateAction        // takes a record out of use
	ReactivateAction        // takes it back into use
)
