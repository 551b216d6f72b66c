package crud

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"tenantry/backends/record"
	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/operation"
	"tenantry/operation/export"
	"tenantry/tenants"
)

// exportInput is the input of an export.
type exportInput struct {
	export.Input
	selection
}

// export returns the row that writes all pages of a list.
func (s *handlers) export() operation.Row {
	row := s.row("export", http.MethodGet, s.Path+"/export", s.Things+" found")
	row.Summary = "Export " + strings.ToLower(s.Things)
	row.Description = "Answers all records of a list. Each line of ndjson is a record as the list shows it. The " +
		"columns of csv are its fields and those of its current definition."
	s.declareFilters(&row)
	export.Row(&row)
	row = operation.Typed(row, s.writeExport)
	s.declareSort(&row)
	return row
}

// exportBatch is how many records of an export are read at once, unless store.BatchBytes is reached first.
const exportBatch = 500

func (s *handlers) writeExport(ctx context.Context, c *operation.Call, in exportInput) (operation.Result, error) {
	var errs fault.List
	q, where, order, err := s.query(ctx, c, in.selection, &errs)
	if err == nil {
		err = errs.Err()
	}
	var known record.Known
	if err == nil && in.Format == export.CSV {
		_, err = s.loadDefinitions(ctx, c, &known)
	}
	if err != nil {
		return operation.Result{}, err
	}
	definition := ""
	if s.parent != "" {
		definition = c.Path(s.parent)
	}
	defined, _ := known.Fields(s.of.DefinedBy, definition)
	columns, cells := s.columns(c, defined)
	q.Limit, q.Bytes = exportBatch, store.BatchBytes
	return export.Answer(c, in.Input, s.Name, columns, func(ctx context.Context, w *export.Writer) error {
		for {
			part, err := s.of.Collection.FindPart(ctx, s.workspace(c), q)
			if err != nil {
				return err
			}
			found := part.Records
			c.Forget() // definitions may have changed since the last batch, and a value that is now encrypted must not be shown
			lines, err := s.results(ctx, c, found)
			for i := 0; i < len(found) && err == nil; i++ {
				err = w.Row(lines[i], func() []any { return cells(reflect.ValueOf(lines[i])) })
			}
			if err != nil || len(found) < q.Limit && !part.Cut {
				return err
			}
			further, ok := s.afterCursor(s.cursor(found[len(found)-1], order), order)
			if !ok {
				return fmt.Errorf("export %s: no position to continue from after a batch of %d", s.Name, len(found))
			}
			q.Filter = store.All(where, further)
		}
	})
}

// columns returns the columns of a CSV file and the function that makes the cells of an answer. Encrypted fields have
// no column. The column of a defined field that has the name of a field of the record is prefixed with the name of the
// field that holds the values.
func (s *handlers) columns(
	c *operation.Call, defined schema.Fields,
) (names []string, cells func(answer reflect.Value) []any) {
	var makes []func(answer reflect.Value) any
	for i, f := range s.model.fields {
		if f.Name == "teams" && !c.Tenant.Org.Feature(tenants.FeatureTeams) {
			continue
		}
		if s.of.DefinedBy == "" || f.Name != s.of.ValuesName() {
			names = append(names, f.Name)
			makes = append(makes, func(answer reflect.Value) any {
				if v := reflect.Indirect(answer.Field(i + 1)); v.IsValid() {
					return v.Interface()
				}
				return nil
			})
			continue
		}
		for _, name := range defined.Names() {
			if defined[name].Type == schema.Encrypted {
				continue
			}
			column := name
			if _, own := s.of.Index(name); own {
				column = f.Name + "." + name
			}
			names = append(names, column)
			typ := defined[name].Type
			known := slices.Contains(schema.KnownTypes(), typ) && typ != schema.File // which has texts and lists
			makes = append(makes, func(answer reflect.Value) any {
				v := answer.Field(i + 1).Interface().(map[string]any)[name]
				if !known {
					v = export.Any{Value: v}
				}
				return v
			})
		}
	}
	return names, func(answer reflect.Value) []any {
		row := make([]any, len(makes))
		for i, cell := range makes {
			row[i] = cell(answer)
		}
		return row
	}
}
