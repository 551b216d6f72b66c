package tabular

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"tenantry/backends/record/schema"
)

// Formats that determine the type of a field.
const (
	formatText   = "text"
	formatNumber = "number"
	formatList   = "list"
)

// dateLayout returns the layout of package time for a date format; "" for other formats.
func dateLayout(format string) string {
	switch format {
	case "yyyy-mm-dd":
		return time.DateOnly
	case "dd.mm.yyyy":
		return "2.1.2006"
	case "dd/mm/yyyy":
		return "2/1/2006"
	case "mm/dd/yyyy":
		return "1/2/2006"
	}
	return ""
}

// numberSeparators returns the thousands and decimal separators of a number format, both empty for other formats.
func numberSeparators(format string) (thousands, decimal string) {
	switch format {
	case formatNumber:
		return "", "."
	case "1,234.56":
		return ",", "."
	case "1.234,56":
		return ".", ","
	}
	return "", ""
}

// Formats returns the names of the formats of values in a map: texts, dates, numbers, whose trailing zeros are not
// kept, and lists separated by commas, semicolons, bars or ":::".
func Formats() []string {
	return []string{
		formatText, "yyyy-mm-dd", "dd.mm.yyyy", "dd/mm/yyyy", "mm/dd/yyyy", formatNumber, "1,234.56", "1.234,56",
		formatList,
	}
}

// typeOfFormat returns the type of a field with values in that format; "" if the format is empty.
func typeOfFormat(format string) string {
	_, decimal := numberSeparators(format)
	switch {
	case format == formatText:
		return schema.Text
	case format == formatList:
		return schema.MultiSelect
	case dateLayout(format) != "":
		return schema.Date
	case decimal != "":
		return schema.Number
	}
	return ""
}

// unwritten is the error of a cell that is not written in that format of dates or numbers.
func unwritten(format string) error {
	if dateLayout(format) != "" {
		return fmt.Errorf("a day that exists, written as %s, is expected", format)
	}
	return fmt.Errorf("a number written as %s, without a unit or other text, is expected", format)
}

// normalize returns a cell of that format in the default notation of its type.
func normalize(format, cell string) (string, error) {
	s := strings.TrimSpace(cell)
	if s == "" {
		return cell, nil
	}
	if layout := dateLayout(format); layout != "" {
		t, err := time.Parse(layout, s)
		if err != nil {
			return "", unwritten(format)
		}
		return t.Format(time.DateOnly), nil
	}
	thousands, decimal := numberSeparators(format)
	if decimal == "" {
		return cell, nil
	}
	whole, fraction, _ := strings.Cut(s, decimal)
	wrong := strings.Trim(fraction, "0123456789") != "" || strings.Trim(whole, "-") == "" && fraction == ""
	if thousands != "" {
		groups := strings.Split(strings.TrimPrefix(whole, "-"), thousands)
		for i, group := range groups {
			wrong = wrong || i > 0 && len(group) != 3 || i == 0 && len(groups) > 1 && (len(group) == 0 || len(group) > 3)
		}
		whole = strings.ReplaceAll(whole, thousands, "")
	}
	if wrong {
		return "", unwritten(format)
	}
	if fraction = strings.TrimRight(fraction, "0"); fraction != "" {
		whole += "." + fraction
	}
	if whole == "-0" || whole == "" || whole == "-" { // ",00"
		whole = "0"
	}
	return whole, nil
}

// splitList returns a list in the notations of address books, separated by ":::" or commas, as a JSON list. Groups
// that an address book created itself begin with an asterisk, which is removed.
func splitList(cell string) string {
	s := strings.TrimSpace(cell)
	var parts []string
	switch {
	case strings.HasPrefix(s, "["):
		return cell
	case strings.Contains(s, ":::"):
		parts = strings.Split(s, ":::")
	case strings.ContainsAny(s, ";|") || !strings.Contains(s, ","):
		return cell
	default:
		parts = strings.Split(s, ",")
	}
	list := []string{}
	seen := map[string]bool{"": true}
	for _, part := range parts {
		if part = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(part), "* ")); !seen[part] {
			seen[part] = true
			list = append(list, part)
		}
	}
	written, _ := json.Marshal(list) // cannot fail for texts
	return string(written)
}
