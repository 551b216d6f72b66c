package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/user"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tenantry/gateway/backup"
	"tenantry/gateway/control"
	"tenantry/internal/declare"
	"tenantry/tenants"
)

// values are the fields that a command sends, by name; they come from its flags and its argument.
type values map[string]any

// rowCommand is the cobra command of a row. Rows that are selected by a flag of the same command follow the first.
type rowCommand struct {
	*cobra.Command
	rows []*control.Command
}

// commands returns the commands made from the rows of package control, by group.
func (p *program) commands() []*cobra.Command {
	var all []*cobra.Command
	for _, g := range new(control.Server).Groups() {
		var made []*cobra.Command
		for i := range g.Commands {
			if g.Commands[i].Flag == "" {
				made = append(made, p.command(&g.Commands[i], g.Commands))
			}
		}
		if g.Name == "keyring" {
			made = append(made, p.reinstateCommand(), p.transferKeyCommand())
		}
		made = nest(made, g.Commands)
		if g.Name != "" {
			made = []*cobra.Command{group(g.Name, g.Short, made...)}
		}
		all = append(all, made...)
	}
	return all
}

// nest puts the commands of a group without a name below those whose names they begin with: audit head below audit.
func nest(made []*cobra.Command, rows []control.Command) (top []*cobra.Command) {
	at := 0
	for i := range rows {
		if rows[i].Flag != "" {
			continue
		}
		words := rows[i].Words()
		over := slices.IndexFunc(top, func(c *cobra.Command) bool { return len(words) > 1 && c.Name() == words[0] })
		if over >= 0 {
			top[over].AddCommand(made[at])
		} else {
			top = append(top, made[at])
		}
		at++
	}
	return append(top, made[at:]...)
}

// command makes the command of a row, and gives it the rows of the same group that are flags of it.
func (p *program) command(c *control.Command, siblings []control.Command) *cobra.Command {
	words := c.Words()
	l := &rowCommand{rows: []*control.Command{c}, Command: &cobra.Command{
		Use:   words[len(words)-1] + strings.TrimPrefix(c.Line, strings.Join(words, " ")),
		Short: c.Short, Long: c.Long, Example: c.Example, Args: noArgs,
	}}
	l.flags(c)
	for i := range siblings {
		if other := &siblings[i]; other.Flag != "" && strings.HasPrefix(other.Name, c.Name+".") {
			l.rows = append(l.rows, other)
			l.flags(other)
		}
	}
	l.RunE = p.run(func(ctx context.Context, args []string) error {
		in, row, err := p.input(l, args)
		switch {
		case err != nil:
		case row.Name == "import":
			err = checkImport(args[0], in)
		}
		if err != nil {
			return err
		}
		named := func(f declare.Field) bool { return f.Flag == "org" && f.Rule.Ref == "organization" }
		if org := l.Flag("org"); org != nil && org.Value.String() == "" && slices.ContainsFunc(row.Fields, named) {
			return p.missingOrg(ctx, l.Command)
		}
		for name, v := range in {
			if read, ok := v.(lazyValue); ok {
				if in[name], err = read(); err != nil {
					return err
				}
			}
		}
		return p.withClient(ctx, l.Command, c.Begins, func(ctx context.Context, client *control.Client) error {
			b := p.newBar()
			streams, end, err := p.open(l, row, args, in, b)
			if err != nil {
				return err
			}
			streams.Progress, streams.Operator = b.update, operator()
			answer, err := client.Do(ctx, row.Name, in, streams)
			l.nameFiles(row, err)
			b.end()
			return p.show(row, answer, end(answer, err))
		})
	})
	return l.Command
}

// nameFiles adds to an error about the content of a flag's file the name of the file, which a server does not know.
func (l *rowCommand) nameFiles(row *control.Command, err error) {
	refused, is := errors.AsType[*control.Error](err)
	for _, f := range row.Fields {
		if is && f.Tag.Get("read") == "text" {
			flag := "--" + f.Flag
			if says, about := strings.CutPrefix(refused.Message, flag+": "); about {
				refused.Message = fmt.Sprintf("%s %s: %s", flag, l.Flag(f.Flag).Value, says)
			}
		}
	}
}

// operator returns the name of the account that gives the command. Under sudo it is the account of the person who
// called sudo.
func operator() string {
	if name := os.Getenv("SUDO_USER"); name != "" {
		return name
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}

// flags adds the flags of a row: the one that selects it, and those of its fields.
func (l *rowCommand) flags(c *control.Command) {
	flags := l.Flags()
	switch {
	case c.Reads && c.Flag != "":
		flags.String(c.Flag, "", valueName(c.Short))
		l.PreRun = func(*cobra.Command, []string) {
			if flags.Changed(c.Flag) { // the file holds the other required fields
				flags.VisitAll(func(f *pflag.Flag) { delete(f.Annotations, cobra.BashCompOneRequiredFlag) })
			}
		}
	case c.Flag != "":
		flags.Bool(c.Flag, false, valueName(c.Short))
	case c.Reads:
		l.Args = oneArg("the file, or - for standard input")
	}
	if c.Writes {
		flags.StringP("out", "o", "",
			"the `file` to write, replaced when the export is complete (default standard output)")
	}
	if c.Confirm != "" {
		flags.Bool("yes", false, "confirm it")
	}
	for i := range c.Fields {
		f := &c.Fields[i]
		if what := f.Tag.Get("arg"); what != "" {
			l.Args = oneArg(what)
			continue
		}
		if flags.Lookup(f.Flag) == nil { // another row may take it too
			flagOf(flags, f)
		}
		if f.Rule.Ref == "" && c.Nothing == "" && strings.Contains(c.Line, " --"+f.Flag+" ") {
			_ = l.MarkFlagRequired(f.Flag) // fails only for a flag that does not exist
		}
	}
}

// flagOf adds the flag of a field. Flags of lists and maps may be repeated.
func flagOf(flags *pflag.FlagSet, f *declare.Field) {
	doc := f.Doc
	if f.Rule.Ref == "organization" {
		doc = "the organization's <slug>"
	}
	names := strings.NewReplacer(
		"{settings}", strings.Join(tenants.AllSettings(), ", "), "{limits}", strings.Join(tenants.AllLimits(), ", "))
	doc = valueName(names.Replace(doc))
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[time.Duration]():
		flags.Duration(f.Flag, 0, doc)
	case t.Kind() == reflect.Bool, f.Tag.Get("read") == "stdin":
		flags.Bool(f.Flag, false, doc)
	case t.Kind() == reflect.Int:
		n, _ := strconv.Atoi(f.Default) // 0 without a default
		flags.Int(f.Flag, n, doc)
	case t.Kind() == reflect.String:
		flags.String(f.Flag, f.Default, doc)
	default:
		flags.StringSlice(f.Flag, nil, doc)
	}
}

// valueName marks the name of a flag's value, <name> in the documentation of a field, the way pflag expects it.
func valueName(doc string) string {
	return regexp.MustCompile(`<([^>]*)>`).ReplaceAllString(doc, "`$1`")
}

// input returns the fields that the flags and the argument give, and the row that takes them: the command's own, or the
// one selected by a flag. Errors: wrong usage.
func (p *program) input(l *rowCommand, args []string) (values, *control.Command, error) {
	in, row, flags, changes := values{}, l.rows[0], l.Flags(), 0
	for _, other := range l.rows {
		if other.Flag != "" && flags.Changed(other.Flag) {
			row, changes = other, changes+1
		}
		for i := range other.Fields {
			f := &other.Fields[i]
			if without := f.Tag.Get("without"); without != "" && flags.Changed(without) && flags.Changed(f.Flag) {
				return nil, nil, usagef("--%s does not go with --%s", f.Flag, without)
			}
			var err error
			if f.Tag.Get("arg") != "" {
				in[f.Name], err = argument(other, f, args[0])
			} else if flags.Changed(f.Flag) {
				if f.Rule.Ref != "organization" {
					changes++
				}
				in[f.Name], err = p.value(f, flags.Lookup(f.Flag))
			}
			if err != nil {
				return nil, nil, err
			}
		}
	}
	if c := l.rows[0]; c.Nothing != "" && (changes == 0 || len(l.rows) > 1 && changes > 1) {
		return nil, nil, usageError(c.Nothing)
	}
	maps.DeleteFunc(in, func(_ string, v any) bool { return v == nil })
	for _, other := range l.rows {
		for _, f := range other.Fields {
			switch _, sent := in[f.Name]; {
			case !sent || slices.ContainsFunc(row.Fields, func(of declare.Field) bool { return of.Name == f.Name }):
			case row.Flag == "":
				return nil, nil, usagef("--%s is for --%s alone", f.Flag, other.Flag)
			default:
				return nil, nil, usagef("--%s does not go with --%s", f.Flag, row.Flag)
			}
		}
	}
	if yes, _ := flags.GetBool("yes"); row.Confirm != "" && !yes {
		return nil, nil, usagef(row.Confirm, args[0])
	}
	return in, row, nil
}

// lazyValue reads a value from a file or standard input. It is called once the command line has been validated.
type lazyValue func() (string, error)

// value returns the value that a flag gives a field, or nil if it gives none. Errors: wrong usage.
func (p *program) value(f *declare.Field, flag *pflag.Flag) (any, error) {
	text := flag.Value.String()
	list, several := flag.Value.(pflag.SliceValue)
	switch read := f.Tag.Get("read"); {
	case read == "stdin" && text == "true":
		return lazyValue(p.password), nil
	case read == "text" && text != "":
		return lazyValue(func() (string, error) {
			content, err := smallFile(text)
			if err != nil {
				err = fmt.Errorf("--%s: %w", f.Flag, err)
			}
			return content, err
		}), nil
	case read == "file" && text != "":
		return lazyValue(func() (string, error) { return transferKey(text) }), nil
	case read != "":
		return nil, nil
	case several && f.Type.Kind() == reflect.Map:
		return parseMap(f, list.GetSlice())
	case several:
		return list.GetSlice(), nil
	}
	switch flag.Value.Type() {
	case "duration":
		least, _ := time.ParseDuration(f.Tag.Get("least")) // 0 without the tag
		switch d, err := time.ParseDuration(text); {
		case d < 0 && least == 0:
			return nil, usagef("--%s %s: must not be negative", f.Flag, d)
		case d < least:
			return nil, usagef("--%s %s: must be at least %s", f.Flag, d, least)
		default:
			return d, err
		}
	case "bool":
		return text == "true", nil
	case "int":
		if n, err := strconv.ParseInt(text, 10, 64); err != nil || n < f.Rule.Min {
			return nil, usagef("--%s %s: must be at least %d", f.Flag, text, f.Rule.Min)
		}
		return json.Number(text), nil
	}
	if enum := f.Rule.Enum; len(enum) > 0 && !slices.Contains(enum, text) {
		return nil, usagef("--%s %.60q: must be %s", f.Flag, text, strings.Join(enum, " or "))
	}
	switch what, _ := pflag.UnquoteUsage(flag); what {
	case "place":
		return backupPlace("--"+f.Flag, text)
	case "second":
		if _, err := backup.ParseMoment(text); err != nil {
			return nil, usagef("--%s: %v", f.Flag, err)
		}
	}
	return text, nil
}

// show prints the answer to a command. It returns err, joined with what went wrong while printing.
func (p *program) show(c *control.Command, answer *control.Answer, err error) error {
	if _, cut := errors.AsType[*control.InterruptedError](err); cut && c.Hint != "" {
		err = fmt.Errorf("%w; %s", err, c.Hint)
	}
	if answer == nil {
		return err
	}
	for _, text := range answer.Notes {
		p.note("%s", plain(text))
	}
	if answer.Data == nil {
		return err
	}
	v := any(answer.Data)
	if p.tables() {
		typed := reflect.New(reflect.TypeOf(c.Row.Data))
		if e := json.Unmarshal(answer.Data, typed.Interface()); e != nil {
			return errors.Join(err, fmt.Errorf("reading the result: %w", e))
		}
		v = typed.Elem().Interface()
	}
	return errors.Join(err, p.print(v, c.Table, c.Wide))
}

// argument returns the value that the argument of a command gives a field. Errors: wrong usage.
func argument(c *control.Command, f *declare.Field, text string) (any, error) {
	if f.Type.Kind() != reflect.Int {
		return text, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || int64(n) < f.Rule.Min {
		return nil, usagef("%q is not a %s; tenantry %s list shows them", text, f.Name, c.Words()[0])
	}
	return n, nil
}

// maxTextFile bounds a file that a flag names for a text, in bytes.
const maxTextFile = 64 << 10

// smallFile returns the text of a file, which must have some.
func smallFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxTextFile+1))
	switch {
	case err != nil:
	case len(raw) > maxTextFile:
		err = fmt.Errorf("the file %s holds more than %d bytes", name, maxTextFile)
	case len(bytes.TrimSpace(raw)) == 0: // it would be taken as if the flag was not given
		err = fmt.Errorf("the file %s is empty", name)
	}
	return string(raw), err
}

// parseMap returns the value of a map field from a list of NAME=VALUE. Errors: wrong usage.
func parseMap(f *declare.Field, list []string) (_ any, err error) {
	out := values{}
	for _, text := range rejoinValues(list) {
		name, value, given := strings.Cut(text, "=")
		if !given {
			value = f.Tag.Get("bare")
		}
		switch f.Type.Elem().Kind() {
		case reflect.Bool:
			out[name], err = strconv.ParseBool(value)
		case reflect.Int64:
			out[name], err = strconv.ParseInt(value, 10, 64)
		default:
			if !given || name == "" {
				err = strconv.ErrSyntax
			}
			list, _ := out[name].([]string)
			out[name] = append(list, value)
		}
		if err != nil {
			return nil, usagef("--%s %s: write %s", f.Flag, text, f.Tag.Get("write"))
		}
	}
	return out, nil
}

// rejoinValues undoes pflag's split at commas that belong to the format of a value, as in Price=price:1.234,56.
func rejoinValues(list []string) (all []string) {
	for _, text := range list {
		if last := len(all) - 1; last >= 0 && !strings.Contains(text, "=") && strings.Contains(all[last], ":") {
			all[last] += "," + text
			continue
		}
		all = append(all, text)
	}
	return all
}

// maxPasswordInput bounds what is read as a password, in bytes.
const maxPasswordInput = 8 << 10

// password reads a password from standard input, without the end of its line.
func (p *program) password() (string, error) {
	raw, err := io.ReadAll(io.LimitReader(p.stdin, maxPasswordInput+1))
	if err != nil {
		return "", fmt.Errorf("reading the password: %w", err)
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(raw), "\n"), "\r")
	switch {
	case text == "":
		return "", usagef("--password-stdin: standard input holds no password")
	case len(raw) > maxPasswordInput:
		return "", usagef("--password-stdin: standard input holds more than a password; send the password alone")
	}
	return text, nil
}

// noArgs refuses arguments. cobra.NoArgs would call one an unknown command.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("unexpected argument %q; this command takes flags only", args[0])
	}
	return nil
}

// oneArg takes exactly one argument, which errors call by the name of what.
func oneArg(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return usagef("name %s", what)
		case len(args) > 1:
			return usagef("expected one argument (%s), got %d", what, len(args))
		}
		return nil
	}
}
