package config

import (
	"bytes"
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"iter"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"tenantry/internal/typos"
)

// EnvPrefix begins the name of every environment variable that is read. Two underscores separate levels:
// TENANTRY_LOG__LEVEL is log.level.
const EnvPrefix = "TENANTRY_"

// TestEnvPrefix begins the names of variables that only tests read.
const TestEnvPrefix = "TENANTRY_TEST_"

// The formats of values, in words.
const (
	WantDuration = "a duration such as 30s or 720h"
	WantNumber   = "a whole number"
	WantSwitch   = "true or false"
)

// Source says where settings come from.
type Source struct {
	File    string            // path of a YAML file; empty: none
	Environ []string          // like os.Environ
	Flags   map[string]string // by dotted name; only those that were given
	// Descriptors is how many files and sockets the process may have open; 0: what the system says.
	Descriptors uint64
	// Memory is how many bytes of it the process may use; 0: what the system says.
	Memory uint64
}

// Load reads the settings. The error joins all faults; each names its setting, where it was set and, unless it may be a
// secret, its value. Settings that work but are seldom intended are in Config.Warnings.
func Load(src Source) (Config, error) {
	c, l := Default(), loader{given: map[string]origin{}}
	c.Backends = map[string]Backend{} // backends in the settings replace the default
	root := reflect.ValueOf(&c).Elem()
	fileErr := l.file(root, src.File)
	var links []string
	for _, variable := range src.Environ {
		name, value, _ := strings.Cut(variable, "=")
		if serviceLink.MatchString(variable) {
			links = append(links, name)
			continue
		}
		if low, ours := strings.CutPrefix(name, EnvPrefix); ours && !strings.HasPrefix(name, TestEnvPrefix) {
			scalar := &yaml.Node{Kind: yaml.ScalarNode, Value: value}
			l.put(root, "", strings.Split(strings.ToLower(low), "__"), scalar, name)
		}
	}
	for name, value := range src.Flags {
		scalar := &yaml.Node{Kind: yaml.ScalarNode, Value: value}
		l.put(root, "", strings.Split(name, "."), scalar, "--"+strings.ReplaceAll(name, "_", "-"))
	}
	descriptors := cmp.Or(src.Descriptors, descriptorLimit())
	c.complete(descriptors)
	if _, given := l.given["timeouts.drain"]; !given && !c.isLocal() {
		c.Timeouts.Drain = DefaultDrain
	}
	if fileErr == nil { // without the file the settings are incomplete, and more faults would mislead
		c.check(descriptors, l.fault)
		c.warn(cmp.Or(src.Memory, memoryLimit()), l.fault)
	}
	c.warnServiceLinks(links)
	slices.SortFunc(l.faults, func(a, b fault) int { return strings.Compare(a.Error(), b.Error()) })
	all := []error{fileErr}
	for _, f := range l.faults {
		all = append(all, f)
	}
	return c, errors.Join(all...)
}

// loader applies the values of the sources to the settings. Every value is a text, whatever the source, and is
// converted to the type of its setting.
type loader struct {
	given  map[string]origin // by the setting's name
	faults []fault
}

// origin is where a setting was last set, and its value, unless that may be a secret.
type origin struct{ where, text string }

// fault is an error of one setting.
type fault struct{ name, text string }

func (f fault) Error() string { return cmp.Or(f.name, "the settings") + ": " + f.text }

func (l *loader) fault(name, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	switch from := l.given[name]; {
	case from.text != "":
		text += fmt.Sprintf(" (%s says %.60q)", from.where, from.text)
	case from.where != "":
		text += " (" + from.where + ")"
	}
	l.faults = append(l.faults, fault{name, text})
}

// file applies a YAML file. It returns an error if the file cannot be read.
func (l *loader) file(root reflect.Value, path string) error {
	if path == "" {
		return nil
	}
	var doc yaml.Node
	raw, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(raw, &doc)
	}
	if err != nil {
		return fmt.Errorf("configuration file %s: %w", path, err)
	}
	if len(bytes.TrimSpace(raw)) == 0 { // such as one that is being written, or whose disk was full
		return fmt.Errorf("configuration file %s: it is empty; if the defaults are meant, do not name a file, or write a comment into it",
			path)
	}
	for _, n := range doc.Content { // a file of comments has none
		l.put(root, "", nil, n, path)
	}
	return nil
}

// put sets the setting that path leads to from at, whose name is name, to the value of n.
func (l *loader) put(at reflect.Value, name string, path []string, n *yaml.Node, source string) {
	where := source
	if n.Line > 0 {
		where = fmt.Sprintf("%s line %d", source, n.Line)
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case len(path) > 0 && at.Kind() == reflect.Map:
		entry := reflect.New(at.Type().Elem()).Elem()
		if had := at.MapIndex(reflect.ValueOf(path[0])); had.IsValid() {
			entry.Set(had)
		}
		l.put(entry, below(name, path[0]), path[1:], n, source)
		at.SetMapIndex(reflect.ValueOf(path[0]), entry)
	case len(path) > 0:
		for label, field := range fields(at) {
			if strings.EqualFold(label, path[0]) {
				l.put(field, below(name, label), path[1:], n, source)
				return
			}
		}
		given := strings.Join(path, ".")
		text := "there is no such setting"
		if near := typos.Nearest(given, names(at, "")); near != "" {
			if near = below(name, near); n.Line == 0 {
				near = EnvPrefix + strings.ToUpper(strings.ReplaceAll(near, ".", "__"))
			}
			text += "; did you mean " + near + "?"
		}
		l.given[below(name, given)] = origin{where: where}
		l.fault(below(name, given), "%s", text)
	default:
		l.faults = slices.DeleteFunc(l.faults, func(f fault) bool { return f.name == name }) // of an earlier source
		l.given[name] = origin{where: where}
		if isSection(at) {
			l.section(at, name, n, source)
		} else {
			l.value(at, name, n)
		}
	}
}

func (l *loader) section(at reflect.Value, name string, n *yaml.Node, source string) {
	switch {
	case n.Kind == yaml.MappingNode:
		seen := map[string]bool{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i].Value
			if seen[key] {
				l.fault(name, "%s is set twice", key)
			}
			seen[key] = true
			l.put(at, name, strings.Split(key, "."), n.Content[i+1], source)
		}
	case n.Tag != "!!null":
		l.fault(name, "is a section, not a value; set one of its settings, such as %s", names(at, name)[1])
	}
}

func (l *loader) value(at reflect.Value, name string, n *yaml.Node) {
	text, parsed := n.Value, reflect.New(at.Type())
	if n.Tag == "!!null" {
		text = ""
	}
	scalar := n.Kind == yaml.ScalarNode
	good, wanted, telling := scalar, "a text", true
	var err error
	switch to := parsed.Interface().(type) {
	case *string:
		*to = text
	case *bool:
		wanted = WantSwitch
		*to, err = strconv.ParseBool(cmp.Or(text, "false"))
	case *int:
		var whole int64
		wanted = WantNumber
		whole, err = strconv.ParseInt(cmp.Or(text, "0"), 0, strconv.IntSize)
		*to = int(whole)
	case *int64:
		wanted = WantNumber
		*to, err = strconv.ParseInt(cmp.Or(text, "0"), 0, 64)
	case *time.Duration:
		wanted = WantDuration
		*to, err = time.ParseDuration(cmp.Or(text, "0"))
	case *[]string:
		*to, telling = []string{}, false
		good, wanted = scalar || n.Kind == yaml.SequenceNode, "a list of texts"
		if text != "" {
			for item := range strings.SplitSeq(text, ",") {
				*to = append(*to, strings.TrimSpace(item))
			}
		}
		for _, item := range n.Content {
			*to = append(*to, item.Value)
			good = good && item.Kind == yaml.ScalarNode
		}
	case encoding.TextUnmarshaler: // its errors contain the value unless that is a secret
		if telling, err = false, to.UnmarshalText([]byte(text)); err != nil {
			l.fault(name, "%v", err)
			return
		}
	default: // a field of a type that no source can set; see TestEverySettingIsRead
		l.fault(name, "cannot be set: the program does not read settings of type %s", at.Type())
		return
	}
	if scalar && telling {
		l.given[name] = origin{l.given[name].where, text}
	}
	if err != nil || !good {
		l.fault(name, "must be %s", wanted)
		return
	}
	at.Set(parsed.Elem())
}

// isSection reports whether a setting contains others.
func isSection(at reflect.Value) bool {
	_, text := at.Addr().Interface().(encoding.TextUnmarshaler)
	return at.Kind() == reflect.Map || at.Kind() == reflect.Struct && !text
}

// fields iterates over the settings of a section, by name.
func fields(at reflect.Value) iter.Seq2[string, reflect.Value] {
	return func(yield func(string, reflect.Value) bool) {
		if !isSection(at) {
			return
		}
		for i := range at.NumField() {
			if label := at.Type().Field(i).Tag.Get("yaml"); label != "-" && !yield(label, at.Field(i)) {
				return
			}
		}
	}
}

// names lists a setting and the settings in it.
func names(at reflect.Value, name string) []string {
	all := []string{name}
	if at.Kind() == reflect.Map {
		entry := reflect.New(at.Type().Elem()).Elem()
		for _, key := range append(at.MapKeys(), reflect.ValueOf("NAME")) {
			all = append(all, names(entry, below(name, key.String()))...)
		}
	} else {
		for label, field := range fields(at) {
			all = append(all, names(field, below(name, label))...)
		}
	}
	slices.Sort(all)
	return all
}

func below(name, label string) string { return strings.TrimPrefix(name+"."+label, ".") }
