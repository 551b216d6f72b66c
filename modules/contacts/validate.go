package contacts

import (
	"slices"

	"tenantry/backends/record/schema"
	"tenantry/internal/fault"
)

// ValidateField notes in errs the faults of a contact field that its tags cannot express.
func (k Kinds) ValidateField(def *FieldDef, errs *fault.List) {
	_, standard := k.CatalogOf(nil).Field(def.Key)
	if standard || slices.Contains([]string{"or", "teams", "fields"}, def.Key) {
		errs.Add("key", fault.Forbidden, "key is the name of a field that every contact has")
	}
	schema.CheckType(errs, "type", def.Type)
}
