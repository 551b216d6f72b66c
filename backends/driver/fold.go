package driver

import (
	"slices"
	"unicode"
	"unicode/utf8"
)

// Cases returns all case variants of a letter, sorted; a character without case is returned alone. The variants are
// those of Unicode's simple folding, which maps one character to one: K has k and the Kelvin sign, Σ has σ and ς, ß has
// ẞ but not ss, and İ has no other.
func Cases(r rune) []rune {
	all := []rune{r}
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		all = append(all, other)
	}
	slices.Sort(all)
	return all
}

// Folded is a text prepared for case-insensitive search; see ContainsFold and StartsWithFold. It is immutable. A nil
// *Folded matches nothing.
type Folded struct {
	cases  [][]rune
	begins [256]bool // the bytes that an occurrence can begin with
}

// Fold prepares a text for search. It returns nil if the text is not UTF-8, because it then occurs in no other text.
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

// In reports whether f occurs in the text.
func (f *Folded) In(text string) bool {
	if f == nil || len(f.cases) == 0 {
		return f != nil
	}
	for i := range len(text) {
		if f.begins[text[i]] && f.matchesPrefix(text[i:]) {
			return true
		}
	}
	return false
}

// Caseless reports whether none of its characters has another case, so that an exact search finds the same.
func (f *Folded) Caseless() bool {
	return f != nil && !slices.ContainsFunc(f.cases, func(cases []rune) bool { return len(cases) > 1 })
}

// Prefixes returns, in no order, at most the given number of strings such that every text that begins with f begins
// with one of them: the case variants of its first letters, as many letters as the bound allows.
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

// Begins reports whether the text begins with f.
func (f *Folded) Begins(text string) bool { return f != nil && f.matchesPrefix(text) }

func (f *Folded) matchesPrefix(text string) bool {
	for _, cases := range f.cases {
		r, n := utf8.DecodeRuneInString(text)
		if n == 0 || !slices.Contains(cases, r) {
			return false
		}
		text = text[n:]
	}
	return true
}
