package schema

import (
	"encoding/json"
	"fmt"
	"math"
	"mime"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/store"
	"tenantry/crypto/tokens"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
)

// Limits of the members of fields of the type File.
const (
	MaxFiles    = 10
	MaxFileSize = 1 << 40 // bytes

	maxAccepted   = 20 // media types
	maxMediaBytes = 127
)

// Accept are the media types that a field of the type File takes, such as "application/pdf" and "image/*", in their
// order with commas between, so that fields can be compared. JSON has a list. Empty: all.
type Accept string

// List returns the media types.
func (a Accept) List() []string {
	if a == "" {
		return nil
	}
	return strings.Split(string(a), ",")
}

// MarshalJSON writes the list.
func (a Accept) MarshalJSON() ([]byte, error) { return json.Marshal(a.List()) }

// UnmarshalJSON reads a list.
func (a *Accept) UnmarshalJSON(text []byte) error {
	var list []string
	if err := json.Unmarshal(text, &list); err != nil {
		return fmt.Errorf("accepted media types: %w", err)
	}
	*a = Accept(strings.Join(list, ","))
	return nil
}

// OpenAPISchema describes the list.
func (Accept) OpenAPISchema() map[string]any { return acceptSchema() }

func acceptSchema() map[string]any {
	return map[string]any{
		"type": "array", "maxItems": maxAccepted,
		"items": map[string]any{"type": "string", "maxLength": maxMediaBytes, "pattern": `^[A-Za-z0-9!#$&^_.+-]+/([A-Za-z0-9!#$&^_.+-]+|\*)$`},
	}
}

// includes reports whether a media type without parameters is among the accepted ones. Types that may contain scripts
// are accepted only by name.
func (a Accept) includes(media string) bool {
	family, _, _ := strings.Cut(media, "/")
	if media == "image/svg+xml" || media == "text/html" {
		family = media
	}
	return a == "" || slices.ContainsFunc(a.List(), func(one string) bool { return one == media || one == family+"/*" })
}

// Takes reports whether the field takes a file that its sender declared as one media type and whose bytes show another.
// Both must be accepted. Bytes that show only the general form of the declared type count as that type: plain text for
// CSV, JSON and other texts, an archive for office documents, and no form at all for those of old versions.
func (f Field) Takes(declared, detected string) bool {
	declared, detected = bare(declared), bare(detected)
	if f.Accept == "" {
		return true
	}
	return f.Accept.includes(declared) && (f.Accept.includes(detected) || detected == generalForm(declared))
}

// TakesDeclared reports whether the field takes files that are declared as the media type, before their bytes are
// known.
func (f Field) TakesDeclared(media string) bool { return f.Accept.includes(bare(media)) }

// bare returns a media type in lower case and without parameters; "" if it is none.
func bare(media string) string {
	media, _, err := mime.ParseMediaType(media)
	if err != nil {
		return ""
	}
	return media
}

// generalForm returns the type that the bytes of a declared type show, if they have no signature of their own.
func generalForm(declared string) string {
	switch declared {
	case "text/csv", "text/tab-separated-values", "text/markdown", "text/calendar", "text/vcard", "application/json",
		"application/x-ndjson", "application/yaml":
		return "text/plain"
	case "application/msword", "application/vnd.ms-excel", "application/vnd.ms-powerpoint":
		return "application/octet-stream"
	case "application/epub+zip":
		return "application/zip"
	}
	if strings.HasPrefix(declared, "application/vnd.openxmlformats-officedocument.") ||
		strings.HasPrefix(declared, "application/vnd.oasis.opendocument.") {
		return "application/zip"
	}
	return ""
}

// Most returns how many files a value of the field may name.
func (f Field) Most() int { return max(f.MaxFiles, 1) }

// parseFile reads the members that only fields of the type File have. known reports whether name is one of them.
func parseFile(errs *fault.List, at, name string, value any, field *Field) (known bool) {
	at += "." + name
	switch name {
	case "accept":
		field.Accept = parseAccept(errs, at, value)
	case "max_size":
		field.MaxSize = wholeNumber(errs, at, value, MaxFileSize)
	case "max_files":
		field.MaxFiles = int(wholeNumber(errs, at, value, MaxFiles))
	case "folder_id":
		id, ok := value.(string)
		if field.FolderID = id; !ok || !store.ValidID(id) {
			errs.Add(at, fault.Format, "%s must be the identifier of a folder", at)
		}
	default:
		return false
	}
	if field.Type != File && field.Type != "" {
		errs.Add(at, fault.Forbidden, "%s: only fields of the type File have this member", at)
	}
	return true
}

func parseAccept(errs *fault.List, at string, value any) Accept {
	list, ok := value.([]any)
	if !ok || len(list) > maxAccepted {
		errs.Add(at, fault.Type, "%s must be a list of at most %d media types", at, maxAccepted)
		return ""
	}
	all := make([]string, len(list))
	for i, one := range list {
		text, _ := one.(string)
		if all[i] = strings.ToLower(text); !validAccepted(all[i]) {
			errs.Add(at, fault.Format, "%s must have media types such as application/pdf or image/*", at)
			return ""
		}
	}
	return Accept(strings.Join(all, ","))
}

// validAccepted reports whether text is a media type without parameters, or one such as image/*.
func validAccepted(text string) bool {
	const more = "!#$&^_.+-"
	family, kind, _ := strings.Cut(text, "/")
	return len(text) <= maxMediaBytes && texts.Plain(family, maxMediaBytes, more) &&
		(kind == "*" || texts.Plain(kind, maxMediaBytes, more))
}

// wholeNumber returns a number from 1 to most; 0 if it has a fault.
func wholeNumber(errs *fault.List, at string, value any, most int64) int64 {
	n, err := strconv.ParseInt(fmt.Sprint(value), 10, 64)
	switch number := value.(type) {
	case json.Number, int64:
	case float64: // stored definitions are read as such
		n, err = int64(number), nil
		if number != math.Trunc(number) || math.Abs(number) > MaxFileSize {
			n = 0
		}
	default:
		n, err = 0, strconv.ErrSyntax
	}
	if err != nil || n < 1 || n > most {
		errs.Add(at, fault.Range, "%s must be a whole number from 1 to %d", at, most)
		return 0
	}
	return n
}

// fileMembers describes the members that only fields of the type File have.
func fileMembers() map[string]any {
	return map[string]any{
		"accept":    acceptSchema(),
		"max_size":  map[string]any{"type": "integer", "minimum": 1, "maximum": MaxFileSize},
		"max_files": map[string]any{"type": "integer", "minimum": 1, "maximum": MaxFiles},
		"folder_id": map[string]any{"type": "string", "pattern": "^[0-9a-f]{24}$"},
	}
}

// Files returns what a value of a field of the type File names: identifiers of files and, until the value is stored,
// tokens of uploaded ones.
func Files(value any) []string {
	switch v := value.(type) {
	case string:
		return []string{v}
	case []string:
		return v
	case []any:
		all := make([]string, len(v))
		for i := range v {
			all[i], _ = v[i].(string)
		}
		return all
	}
	return nil
}

// checkFiles returns the value to store in a field of the type File: a text, or a list if it may name several files.
func checkFiles(f Field, value any) (stored any, complaint string) {
	says := "the identifier of a file, or the token of an uploaded one"
	if f.Most() > 1 {
		says = "a list of at most " + strconv.Itoa(f.Most()) + " different identifiers of files, or tokens of uploaded ones"
	}
	named := Files(value)
	_, one := value.(string)
	if value == "" { // no value
		return value, ""
	}
	if one != (f.Most() == 1) && !one || len(named) > f.Most() || !one && named == nil || f.Required && len(named) == 0 {
		return value, says
	}
	for i, name := range named {
		if !validFileRef(name) || slices.Contains(named[:i], name) {
			return value, says
		}
	}
	if one && f.Most() > 1 {
		return []any{value}, ""
	}
	return value, ""
}

// validFileRef reports whether text is an identifier, or a token.
func validFileRef(text string) bool { return store.ValidID(text) || IsToken(text) }

// TokenPrefix begins the tokens of files that wait for a submission; see tokens.NewOpaque.
const TokenPrefix = "att"

// IsToken reports whether the text has the form of such a token.
func IsToken(text string) bool {
	_, is := tokens.HashOpaque(TokenPrefix, text)
	return is
}
