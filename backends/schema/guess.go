package schema

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"tenantry/internal/texts"
)

// longSample is the length, in characters, from which a sample makes a field LongText.
const longSample = 1000

// Guess returns the narrowest type that every sample fits: Number, Boolean, Date,
// DateTime, Email or Url, else LongText where a sample is long or has several lines, else
// Text. Blank samples do not count; without any other the type is Text. Digits that do
// not survive as a number ("007", "+49", more than 18 of them) are Text, and so are dates
// whose day and month could be taken for each other.
func Guess(samples []string) string {
	candidates := []struct {
		fieldType string
		fits      func(string) bool
	}{
		{Number, looksNumber},
		{Boolean, func(s string) bool { _, ok := booleanOf(s); return ok && s != "1" && s != "0" }},
		{Date, func(s string) bool { _, ok := dateOf(s); return ok }},
		{DateTime, func(s string) bool { _, ok := timeOf(s); return ok }},
		{Email, ValidEmail},
		{URL, validURL},
	}
	seen, long := false, false
	fits := make([]bool, len(candidates))
	for i := range fits {
		fits[i] = true
	}
	for _, sample := range samples {
		s := strings.TrimSpace(sample)
		if s == "" {
			continue
		}
		seen = true
		long = long || strings.Contains(s, "\n") || utf8.RuneCountInString(s) > longSample
		for i, c := range candidates {
			fits[i] = fits[i] && utf8.ValidString(s) && c.fits(s)
		}
	}
	for i, c := range candidates {
		if seen && fits[i] {
			return c.fieldType
		}
	}
	if long {
		return LongText
	}
	return Text
}

// Convert returns the text as a value of the type: int64 or float64 for Number, bool,
// []string for MultiSelect (parts separated by ";" or "|"), string for the others, Date
// as 2006-01-02, DateTime as RFC 3339 in UTC. Blank text is nil: no value. The error says
// what was expected and does not repeat the text.
func Convert(fieldType, text string) (any, error) {
	s := strings.TrimSpace(text)
	if s == "" {
		return nil, nil
	}
	if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return nil, fmt.Errorf("UTF-8 text without NUL characters is expected")
	}
	switch fieldType {
	case Number:
		if n, ok := numberOf(s); ok {
			return n, nil
		}
		return nil, fmt.Errorf("a number is expected")
	case Boolean:
		if b, ok := booleanOf(s); ok {
			return b, nil
		}
		return nil, fmt.Errorf("true or false is expected")
	case Date:
		if t, ok := dateOf(s); ok {
			return t.Format(time.DateOnly), nil
		}
		if t, ok := timeOf(s); ok {
			return t.Format(time.DateOnly), nil
		}
		return nil, fmt.Errorf("a date like 2024-05-17 is expected")
	case DateTime:
		if t, ok := timeOf(s); ok {
			return t.UTC().Format(texts.TimeLayout), nil
		}
		if t, ok := dateOf(s); ok {
			return t.Format(texts.TimeLayout), nil
		}
		return nil, fmt.Errorf("a time like 2024-05-17T08:30:00Z is expected")
	case MultiSelect:
		return choicesOf(s)
	case Text, LongText, Encrypted:
		s = text // blanks may matter
	}
	v, complaint := check(fieldType, s)
	if complaint != "" {
		return nil, fmt.Errorf("%s is expected", complaint)
	}
	return v, nil
}

func choicesOf(s string) (any, error) {
	list := []string{}
	if strings.HasPrefix(s, "[") && json.Unmarshal([]byte(s), &list) == nil && isChoices(list) {
		return list, nil
	}
	list = list[:0]
	seen := map[string]bool{}
	for part := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ';' || r == '|' }) {
		if part = strings.TrimSpace(part); part != "" && !seen[part] {
			seen[part] = true
			list = append(list, part)
		}
	}
	if !isChoices(list) {
		return nil, fmt.Errorf("at most %d choices of at most %d characters are expected", MaxChoices, maxChoice)
	}
	return list, nil
}

func looksNumber(s string) bool {
	digits := strings.TrimPrefix(s, "-")
	whole, _, _ := strings.Cut(digits, ".")
	if len(whole) > 18 || (len(whole) > 1 && whole[0] == '0') || strings.HasPrefix(s, "+") {
		return false
	}
	_, ok := numberOf(s)
	return ok
}

func numberOf(s string) (any, bool) {
	if len(s) > 64 || strings.Trim(s, "0123456789+-.eE") != "" || !strings.ContainsAny(s[:1], "0123456789+-.") {
		return nil, false
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(s, 64) // finite, or err is a range error
	return f, err == nil
}

func booleanOf(s string) (value, ok bool) {
	switch strings.ToLower(s) {
	case "true", "yes", "1":
		return true, true
	case "false", "no", "0":
		return false, true
	}
	return false, false
}

// dateOf reads a date whose day and month cannot be taken for each other.
func dateOf(s string) (time.Time, bool) {
	return parseTime(s, 24, time.DateOnly, "2006/01/02", "Jan 2 2006", "Jan 2, 2006", "2 Jan 2006", "2-Jan-2006", "January 2 2006", "January 2, 2006", "2 January 2006")
}

// timeOf reads a date with a time of day; without a zone it is UTC.
func timeOf(s string) (time.Time, bool) {
	return parseTime(s, 40, time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04:05Z07:00", "2006-01-02T15:04", "2006-01-02 15:04")
}

func parseTime(s string, longest int, layouts ...string) (time.Time, bool) {
	if len(s) < len("1 May 98") || len(s) > longest || !strings.ContainsAny(s, "0123456789") {
		return time.Time{}, false
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, s); err == nil && t.UTC().Year() >= 1 && t.UTC().Year() <= 9999 {
			return t, true
		}
	}
	return time.Time{}, false
}
