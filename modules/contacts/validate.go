package contacts

import (
	"slices"

	"tenantry/backends/record/schema"
	"tenantry/internal/fault"
)

// ValidateField notes in errs what the tags of a contact field's definition cannot say of it.
func (k Kinds) ValidateField(def *FieldDef, errs *fault.List) {
	_, standard := k.Askable(nil).Field(def.Key)
	if standard || slices.Contains([]string{"or", "teams", "fields"}, def.Key) {
		errs.Add("key", fault.Forbidden, "key is the name of something that every contact has")
	}
	schema.CheckType(errs, "type", def.Type)
}
