package console

import (
	"strings"

	"tenantry/gateway/console/site"
	"tenantry/internal/fault"
)

// said is the sentence that a fault is, with its field named as the page names it.
func said(f fault.Fault) string { return told(f, f.Field, site.Label(f.Field)) }

// told is that sentence where the field at the path has the title.
func told(f fault.Fault, path, title string) string {
	rest, begins := strings.CutPrefix(f.Message, path)
	if !begins || path == "" || rest == "" || !strings.ContainsRune(" :.[", rune(rest[0])) {
		return site.Sentence(f.Message)
	}
	if within, is := strings.CutPrefix(rest, "."); is {
		rest = ": " + within
	}
	return site.Sentence(title + rest)
}

// belongs reports whether a fault is about that field, or a part of it.
func belongs(path, field string) bool {
	return path == field || strings.HasPrefix(path, field+".") || strings.HasPrefix(path, field+"[")
}
