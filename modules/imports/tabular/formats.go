package tabular

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"tenantry/backends/record/schema"
)

// Formats of values that say more than how they look.
const (
	formatText   = "text"
	formatNumber = "number"
	formatList   = "list"
)

// layouts are formats of days by what people call them.
var layouts = map[string]string{
	"yyyy-mm-dd": time.DateOnly, "dd.mm.yyyy": "2.1.2006", "dd/mm/yyyy": "2/1/2006", "mm/dd/yyyy": "1/2/2006",
}

// points are formats of numbers: what groups digits, and what stands before the fraction.
var points = map[string][2]string{formatNumber: {"", "."}, "1,234.56": {",", "."}, "1.234,56": {".", ","}}

// Formats returns how a map may say that values are written: as texts, as days, as numbers, whose zeros at the end are
// not kept, or as lists between commas, semicolons, bars or ":::".
func Formats() []string {
	return []string{formatText, "yyyy-mm-dd", "dd.mm.yyyy", "dd/mm/yyyy", "mm/dd/yyyy", formatNumber, "1,234.56", "1.234,56", formatList}
}

// typeOfFormat returns which type values of a format have; "" where nothing is said.
func typeOfFormat(format string) string {
	switch {
	case format == formatText:
		return schema.Text
	case format == formatList:
		return schema.MultiSelect
	case layouts[format] != "":
		return schema.Date
	case points[format] != [2]string{}:
		return schema.Number
	}
	return ""
}

// formatted returns a cell of that format as it is written where nothing is said.
func formatted(format, cell string) (string, error) {
	s := strings.TrimSpace(cell)
	if s == "" {
		return cell, nil
	}
	if layout := layouts[format]; layout != "" {
		t, err := time.Parse(layout, s)
		if err != nil {
			return "", fmt.Errorf("a date written as %s is expected", format)
		}
		return t.Format(time.DateOnly), nil
	}
	point, is := points[format]
	if !is {
		return cell, nil
	}
	whole, fraction, _ := strings.Cut(s, point[1])
	wrong := strings.Trim(fraction, "0123456789") != "" || strings.Trim(whole, "-") == "" && fraction == ""
	if point[0] != "" {
		groups := strings.Split(strings.TrimPrefix(whole, "-"), point[0])
		for i, group := range groups {
			wrong = wrong || i > 0 && len(group) != 3 || i == 0 && len(groups) > 1 && (len(group) == 0 || len(group) > 3)
		}
		whole = strings.ReplaceAll(whole, point[0], "")
	}
	if wrong {
		return "", fmt.Errorf("a number written as %s is expected", format)
	}
	if fraction = strings.TrimRight(fraction, "0"); fraction != "" {
		whole += "." + fraction
	}
	if whole == "-0" || whole == "" || whole == "-" { // ",00"
		whole = "0"
	}
	return whole, nil
}

// listed returns a list as address books write them, between ":::" or commas, as one between semicolons. Groups that a
// program makes itself are marked with an asterisk there.
func listed(cell string) string {
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
	written, _ := json.Marshal(list) // texts alone
	return string(written)
}
