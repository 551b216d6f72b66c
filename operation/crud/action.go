package crud

import "tenantry/operation"

// actions are those of the rows that pages treat apart, by what the rows are called.
func actions() map[string]operation.Action {
	return map[string]operation.Action{
		"list": operation.ListAction, "create": operation.CreateAction, "restore": operation.RestoreAction, "purge": operation.PurgeAction,
		"bulk": operation.BulkAction,
	}
}
