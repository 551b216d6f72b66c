package input

import (
	"strings"

	"tenantry/gateway/console/site"
	"tenantry/internal/fault"
)

// FaultSentence is the sentence that a fault is, with its field named as the page names it.
func FaultSentence(f fault.Fault) string { return FaultText(f, f.Field, site.Label(f.Field)) }

// FaultText is that sentence where the field at the path has the title.
func FaultText(f fault.Fault, path, title string) string {
	rest, begins := strings.CutPrefix(f.Message, path)
	if !begins || path == "" || rest == "" || !strings.ContainsRune(" :.[", rune(rest[0])) {
		return site.Sentence(f.Message)
	}
	if within, is := strings.CutPrefix(rest, "."); is {
		rest = ": " + within
	}
	return site.Sentence(title + rest)
}

// Concerns reports whether a fault is about that field, or a part of it.
func Concerns(path, field string) bool {
	return path == field || strings.HasPrefix(path, field+".") || strings.HasPrefix(path, field+"[")
}
