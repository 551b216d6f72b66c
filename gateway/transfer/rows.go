package transfer

// Column is what an import of rows makes of one column.
type Column struct {
	Name  string `json:"name"`
	Field string `json:"field"`          // "" where the column is left out
	Type  string `json:"type,omitempty"` // of a field that the organization defines
	New   bool   `json:"new,omitempty"`  // the field is made by the import
}
