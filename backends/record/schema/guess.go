package schema

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"tenantry/backends/store"
	"tenantry/internal/texts"
)

// longSample is the length in characters above which a sample makes a field LongText.
const longSample = 1000

// maxDigits is the number of digits before the decimal point that a Number may have; a longer one is an identifier.
const maxDigits = 18

// Guess infers the type of a column from samples of its values: Number, Boolean, Date, DateTime, Email or Url if every
// sample is valid for it; otherwise LongText if one is long or has several lines, or else Text. Blank samples are
// ignored; without others the type is Text. The zero value is ready to use.
//
// A type must not lose information. A Number must be written as it would be written back: "007", "+49", "1.10", "1e6"
// and numbers with too many digits are Text. A Boolean needs true or false, or both yes and no, because NO is also a
// country. Dates whose day and month cannot be told apart are Text.
type Guess struct {
	seen, long, yes, no bool
	written             bool                 // true or false was among the samples
	unfit               [candidateCount]bool // candidates that are ruled out
}

const candidateCount = 6

// candidates returns the types that a guess may return besides texts, the narrowest first.
func candidates() [candidateCount]string {
	return [...]string{Number, Boolean, Date, DateTime, Email, URL}
}

// fits reports whether a sample is valid for the candidate.
func fits(candidate, s string) (ok bool) {
	switch candidate {
	case Number:
		whole, _, _ := strings.Cut(strings.TrimPrefix(s, "-"), ".")
		_, ok = numberOf(s)
		ok = ok && len(whole) <= maxDigits
	case Boolean:
		_, ok = booleanOf(s)
		ok = ok && s != "1" && s != "0"
	case Date:
		_, ok = dateOf(s)
	case DateTime:
		_, ok = timeOf(s)
	case Email:
		ok = ValidEmail(s)
	case URL:
		ok = validURL(s)
	}
	return ok
}

// Add adds a value as a sample.
func (g *Guess) Add(sample string) {
	s := strings.TrimSpace(sample)
	if s == "" {
		return
	}
	g.seen = true
	g.long = g.long || strings.ContainsAny(s, "\r\n") || len(s) > longSample && utf8.RuneCountInString(s) > longSample
	for i, candidate := range candidates() {
		g.unfit[i] = g.unfit[i] || !utf8.ValidString(s) || !fits(candidate, s)
	}
	if value, is := booleanOf(s); is {
		g.yes, g.no = g.yes || value, g.no || !value
		g.written = g.written || strings.EqualFold(s, "true") || strings.EqualFold(s, "false")
	}
}

// Exclude rules a type out.
func (g *Guess) Exclude(fieldType string) {
	for i, candidate := range candidates() {
		g.unfit[i] = g.unfit[i] || candidate == fieldType
	}
}

// Type returns the type that the samples suggest.
func (g *Guess) Type() string {
	for i, candidate := range candidates() {
		if g.seen && !g.unfit[i] && (candidate != Boolean || g.written || g.yes && g.no) {
			return candidate
		}
	}
	if g.long {
		return LongText
	}
	return Text
}

// Convert converts text to a value of the type: int64 or float64 for Number, bool for Boolean, []string for MultiSelect
// (parts separated by ";" or "|"), string or []string for File, string for the others, with Date as 2006-01-02 and
// DateTime as RFC 3339 in UTC. Blank text gives nil, no value. An error says what is expected and does not repeat the text.
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
		return nil, fmt.Errorf(
			"expected a number such as 12.5 or -3; a leading zero, a plus sign or other text would be lost")
	case Boolean:
		if b, ok := booleanOf(s); ok {
			return b, nil
		}
		return nil, fmt.Errorf("true or false is expected")
	case Date:
		if t, ok := dateOf(s); ok {
			return t.Format(time.DateOnly), nil
		}
		// A time is accepted at midnight only, because the time of day would be lost.
		if t, ok := timeOf(s); ok && t.Equal(time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, t.Location())) {
			return t.Format(time.DateOnly), nil
		}
		return nil, fmt.Errorf("a date like 2024-05-17 is expected%s", texts.NoSuchTime(s))
	case DateTime:
		if t, ok := timeOf(s); ok {
			return t.UTC().Format(texts.TimeLayout), nil
		}
		if t, ok := dateOf(s); ok {
			return t.Format(texts.TimeLayout), nil
		}
		return nil, fmt.Errorf("a time like 2024-05-17T08:30:00Z is expected%s", texts.NoSuchTime(s))
	case MultiSelect:
		return choicesOf(s)
	case File:
		return filesOf(s)
	case Text, LongText, Encrypted:
		s = text // blanks may matter
	}
	v, complaint := check(Field{Type: fieldType}, s)
	if complaint != "" {
		return nil, fmt.Errorf("%s is expected", complaint)
	}
	return v, nil
}

// filesOf returns the text if it names one file, otherwise the list of those that it names.
func filesOf(s string) (any, error) {
	named, err := choicesOf(s)
	list, _ := named.([]string)
	if err != nil || len(list) == 0 || len(list) > MaxFiles ||
		slices.ContainsFunc(list, func(one string) bool { return !store.ValidID(one) }) {
		return nil, fmt.Errorf("identifiers of at most %d files are expected", MaxFiles)
	}
	if len(list) == 1 {
		return list[0], nil
	}
	return list, nil
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

// numberOf parses a number that is written as it would be written back.
func numberOf(s string) (any, bool) {
	if len(s) > 64 || !strings.ContainsAny(s[:1], "0123456789-") {
		return nil, false
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, strconv.FormatInt(n, 10) == s
	}
	f, err := strconv.ParseFloat(s, 64) // finite, or err is a range error
	return f, err == nil && strconv.FormatFloat(f, 'f', -1, 64) == s && s != "-0"
}

// Exact reports whether a JSON number keeps its value when it is stored, however it is written.
func Exact(number string) bool {
	if _, err := strconv.ParseInt(number, 10, 64); err == nil {
		return true
	}
	f, err := strconv.ParseFloat(number, 64)
	return err == nil && decimal(number) == decimal(strconv.FormatFloat(f, 'g', -1, 64))
}

// decimal returns the canonical notation of a decimal number.
func decimal(number string) string {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(number), "e")
	power, err := strconv.Atoi(cmp.Or(exponent, "0"))
	if err != nil {
		return number
	}
	sign := ""
	if mantissa, _ = strings.CutPrefix(mantissa, "+"); strings.HasPrefix(mantissa, "-") {
		sign, mantissa = "-", mantissa[1:]
	}
	whole, part, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+part, "0")
	short := strings.TrimRight(digits, "0")
	if short == "" {
		return "0"
	}
	return fmt.Sprintf("%s%se%d", sign, short, power-len(part)+len(digits)-len(short))
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

// dateOf parses a date in a format whose day and month cannot be confused.
func dateOf(s string) (time.Time, bool) {
	return parseTime(s, 24, time.DateOnly, "2006/01/02", "Jan 2 2006", "Jan 2, 2006", "2 Jan 2006", "2-Jan-2006",
		"January 2 2006", "January 2, 2006", "2 January 2006")
}

// timeOf parses a date with a time of day; without a zone it is in UTC. Times with more than milliseconds are refused,
// because the rest would be lost.
func timeOf(s string) (time.Time, bool) {
	t, ok := parseTime(s, 40, time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05",
		"2006-01-02 15:04:05Z07:00", "2006-01-02T15:04", "2006-01-02 15:04")
	return t, ok && t.Equal(t.Truncate(time.Millisecond))
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
