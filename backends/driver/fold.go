package driver

import (
	"slices"
	"unicode"
	"unicode/utf8"
)

// Cases returns a letter in all its cases, in order, and what has none alone. They are those of Unicode's simple
// folding, one character for one: K is k and the Kelvin sign, Σ is σ and ς; ß is ẞ, and not ss, and İ is itself alone.
func Cases(r rune) []rune {
	all := []rune{r}
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		all = append(all, other)
	}
	slices.Sort(all)
	return all
}

// Folded is a text to be looked for in others whatever its case; see ContainsFold and StartsWithFold. It is immutable.
type Folded struct {
	cases  [][]rune
	begins [256]bool // which bytes an occurrence can begin with
}

// Fold returns a text to look for, nil where it is not UTF-8, which no text has in it.
func Fold(text string) *Folded {
	if !utf8.ValidString(text) {
		return nil
	}
	f := &Folded{}
	for _, r := range text {
		f.cases = append(f.cases, Cases(r))
	}
	if len(f.cases) > 0 {
		for _, r := range f.cases[0] {
			f.begins[utf8.AppendRune(nil, r)[0]] = true
		}
	}
	return f
}

// In reports whether it occurs in a text.
func (f *Folded) In(text string) bool {
	if f == nil || len(f.cases) == 0 {
		return f != nil
	}
	for i := range len(text) {
		if f.begins[text[i]] && f.begin(text[i:]) {
			return true
		}
	}
	return false
}

// Caseless reports whether none of its letters has another case, so that it occurs as it is or not at all.
func (f *Folded) Caseless() bool {
	return f != nil && !slices.ContainsFunc(f.cases, func(cases []rune) bool { return len(cases) > 1 })
}

// Prefixes returns what a text that begins with it begins with: its first letters in all their cases, of which there
// are at most that many, in no order.
func (f *Folded) Prefixes(most int) []string {
	all := []string{""}
	if f == nil {
		return nil
	}
	for _, cases := range f.cases {
		if len(all)*len(cases) > most {
			break
		}
		longer := make([]string, 0, len(all)*len(cases))
		for _, prefix := range all {
			for _, r := range cases {
				longer = append(longer, prefix+string(r))
			}
		}
		all = longer
	}
	return all
}

// Begins reports whether a text begins with it.
func (f *Folded) Begins(text string) bool { return f != nil && f.begin(text) }

func (f *Folded) begin(text string) bool {
	for _, cases := range f.cases {
		r, n := utf8.DecodeRuneInString(text)
		if n == 0 || !slices.Contains(cases, r) {
			return false
		}
		text = text[n:]
	}
	return true
}
