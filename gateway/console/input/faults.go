package input

import (
	"strings"

	"tenantry/gateway/console/site"
	"tenantry/internal/fault"
)

// FaultSentence returns a fault as a sentence, with the title of its field.
func FaultSentence(f fault.Fault) string { return FaultText(f, f.Field, site.Label(f.Field)) }

// FaultText returns a fault as a sentence in which title replaces the path of the field.
func FaultText(f fault.Fault, path, title string) string {
	rest, found := strings.CutPrefix(f.Message, path)
	if !found || path == "" || rest == "" || !strings.ContainsRune(" :.[", rune(rest[0])) {
		return site.Sentence(f.Message)
	}
	if within, found := strings.CutPrefix(rest, "."); found {
		rest = ": " + within
	}
	return site.Sentence(title + rest)
}

// Concerns reports whether the path of a fault is the field or a part of it.
func Concerns(path, field string) bool {
	return path == field || strings.HasPrefix(path, field+".") || strings.HasPrefix(path, field+"[")
}
