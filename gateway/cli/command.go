package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tenantry/gateway/control"
	"tenantry/internal/declare"
	"tenantry/tenants"
)

// values are what a command sends: the fields that its flags and its argument name.
type values map[string]any

// work is what a command does besides what its row says.
type work struct {
	check func(args []string, in values) error // finds wrong usage
	// open returns what the command reads and writes besides, and what is to be done in the end.
	open func(args []string, in values, b *bar) (control.Streams, func(*control.Answer, error) error, error)
}

// commands returns the commands that are rows, in their groups.
func (p *program) commands() []*cobra.Command {
	var all []*cobra.Command
	for _, g := range new(control.Server).Groups() {
		var made []*cobra.Command
		for i := range g.Commands {
			if c := &g.Commands[i]; c.Flag == "" {
				made = append(made, p.command(c, g.Commands))
			}
		}
		if g.Name == "keyring" {
			made = append(made, p.transferKeyCommand())
		}
		if g.Name != "" {
			made = []*cobra.Command{group(g.Name, g.Short, made...)}
		}
		all = append(all, made...)
	}
	return all
}

// command makes a command of its row, and of those beside it that are flags of it.
func (p *program) command(c *control.Command, beside []control.Command) *cobra.Command {
	words := c.Words()
	cmd := &cobra.Command{
		Use: words[len(words)-1] + strings.TrimPrefix(c.Line, strings.Join(words, " ")), Short: c.Short, Long: c.Long, Example: c.Example, Args: cobra.NoArgs,
	}
	given := map[string]func() (any, error){} // what a flag says, by the name of its field
	for i := range c.Fields {
		f := &c.Fields[i]
		if what := f.Tag.Get("arg"); what != "" {
			cmd.Args = oneArg(what)
			continue
		}
		given[f.Name] = p.flag(cmd.Flags(), f)
		if f.Rule.Ref == "" && c.Nothing == "" && strings.Contains(c.Line, " --"+f.Flag+" ") {
			_ = cmd.MarkFlagRequired(f.Flag) // fails only for a flag that is not there
		}
	}
	flags := map[string]*control.Command{}
	for i := range beside {
		if other := &beside[i]; other.Flag != "" && strings.HasPrefix(other.Name, c.Name+".") {
			flags[other.Flag] = other
			p.beside(cmd, other, given)
		}
	}
	if c.Confirm != "" {
		cmd.Flags().Bool("yes", false, "confirm that everything is to be deleted")
	}
	w := work{check: func([]string, values) error { return nil }, open: func([]string, values, *bar) (control.Streams, func(*control.Answer, error) error, error) {
		return control.Streams{}, func(_ *control.Answer, err error) error { return err }, nil
	}}
	switch c.Name {
	case "import":
		cmd.Args = oneArg("the file, or - for standard input")
		w = work{checkImport, p.importStreams}
	case "export":
		p.exportWork(cmd, &w)
	}
	cmd.RunE = p.run(func(ctx context.Context, args []string) error {
		in, row, err := p.input(cmd, c, args, given, flags)
		if err == nil {
			err = w.check(args, in)
		}
		if err != nil {
			return err
		}
		if org := cmd.Flags().Lookup("org"); org != nil && org.Value.String() == "" {
			return p.whichOrg(ctx, cmd)
		}
		for name, v := range in {
			if read, ok := v.(later); ok {
				if in[name], err = read(); err != nil {
					return err
				}
			}
		}
		return p.with(ctx, cmd, c.Begins, func(ctx context.Context, client *control.Client) error {
			b := p.newBar()
			open := w.open
			if row.Reads {
				open = p.readStreams(cmd.Flags().Lookup(row.Flag).Value.String())
			}
			streams, end, err := open(args, in, b)
			if err != nil {
				return err
			}
			streams.Progress = b.at
			answer, err := client.Do(ctx, row.Name, in, streams)
			b.end()
			return p.show(row, answer, end(answer, err))
		})
	})
	return cmd
}

// beside makes the flag that stands for another command, and those of what only that takes.
func (p *program) beside(cmd *cobra.Command, other *control.Command, given map[string]func() (any, error)) {
	flags := cmd.Flags()
	if !other.Reads {
		flags.Bool(other.Flag, false, valueName(other.Short))
		return
	}
	flags.String(other.Flag, "", valueName(other.Short))
	for i := range other.Fields {
		given[other.Fields[i].Name] = p.flag(flags, &other.Fields[i])
	}
	cmd.PreRun = func(*cobra.Command, []string) {
		if flags.Changed(other.Flag) { // what else is needed is in the file
			flags.VisitAll(func(f *pflag.Flag) { delete(f.Annotations, cobra.BashCompOneRequiredFlag) })
		}
	}
}

// valueName marks what the value of a flag is called.
func valueName(doc string) string {
	return regexp.MustCompile(`<([^>]*)>`).ReplaceAllString(doc, "`$1`")
}

// show tells the answer to a command, and what went wrong.
func (p *program) show(c *control.Command, answer *control.Answer, err error) error {
	var cut *control.InterruptedError
	if errors.As(err, &cut) && c.Hint != "" {
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
	var g grid
	var e error
	if p.tables() {
		g, e = tableOf(c, answer.Data)
	}
	if e == nil {
		e = p.print(answer.Data, g)
	}
	return errors.Join(err, e)
}

// later is a value that is not in the command line itself. It is read once nothing is wrong with that.
type later func() (string, error)

// flag makes the flag of a field, and returns what tells its value, nil where there is none. Errors: wrong usage.
func (p *program) flag(flags *pflag.FlagSet, f *declare.Field) func() (any, error) {
	doc := f.Doc
	if f.Rule.Ref == "organization" {
		doc = "the organization's <slug>"
	}
	doc = strings.ReplaceAll(doc, "{settings}", strings.Join(tenants.AllSettings(), ", "))
	doc = valueName(doc)
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch read := f.Tag.Get("read"); {
	case read == "stdin":
		is := flags.Bool(f.Flag, false, doc)
		return func() (any, error) { return given(*is, later(p.password)), nil }
	case read == "file":
		path := flags.String(f.Flag, "", doc)
		return func() (any, error) {
			return given(*path != "", later(func() (string, error) { return transferKey(*path) })), nil
		}
	case t == reflect.TypeFor[time.Duration]():
		d := flags.Duration(f.Flag, 0, doc)
		least, _ := time.ParseDuration(f.Tag.Get("least")) // none is 0
		return func() (any, error) {
			switch {
			case *d < 0 && least == 0:
				return nil, usagef("--%s %s: it must not be negative", f.Flag, d)
			case *d < least:
				return nil, usagef("--%s %s: it must be at least %s", f.Flag, d, least)
			}
			return *d, nil
		}
	case t.Kind() == reflect.Bool:
		return valueOf(flags.Bool(f.Flag, false, doc))
	case t.Kind() == reflect.Int:
		n, _ := strconv.Atoi(f.Default) // none is 0
		return valueOf(flags.Int(f.Flag, n, doc))
	case t.Kind() == reflect.String:
		return valueOf(flags.String(f.Flag, f.Default, doc))
	case t.Kind() == reflect.Slice:
		return valueOf(flags.StringSlice(f.Flag, nil, doc))
	}
	list := flags.StringSlice(f.Flag, nil, doc)
	return func() (any, error) { return pairs(f, t.Elem().Kind(), *list) }
}

func valueOf[T any](v *T) func() (any, error) { return func() (any, error) { return *v, nil } }

func given(is bool, v any) any {
	if !is {
		return nil
	}
	return v
}

// input returns what the flags and the argument say, and the row that takes it: the command's, or that of
// a flag. Errors: wrong usage.
func (p *program) input(cmd *cobra.Command, c *control.Command, args []string, given map[string]func() (any, error), others map[string]*control.Command) (values, *control.Command, error) {
	in, row, flags, changes := values{}, c, cmd.Flags(), 0
	for name, other := range others {
		if flags.Changed(name) {
			row, changes = other, changes+1
		}
	}
	fields, alone := slices.Clone(c.Fields), ""
	for name, other := range others {
		if other.Reads {
			fields, alone = append(fields, other.Fields...), name
		}
	}
	for i := range fields {
		f := &fields[i]
		var v any
		var err error
		switch {
		case f.Tag.Get("arg") != "":
			v, err = argument(c, f, args[0])
		case flags.Changed(f.Flag):
			if f.Rule.Ref != "organization" {
				changes++
			}
			v, err = given[f.Name]()
		}
		if err != nil {
			return nil, nil, err
		}
		if v != nil {
			in[f.Name] = v
		}
	}
	if c.Nothing != "" && (changes == 0 || len(others) > 0 && changes > 1) {
		return nil, nil, usageError(c.Nothing)
	}
	for i := range fields {
		f := &fields[i]
		if _, sent := in[f.Name]; sent && !slices.ContainsFunc(row.Fields, func(of declare.Field) bool { return of.Name == f.Name }) {
			if row == c {
				return nil, nil, usagef("--%s is for --%s alone", f.Flag, alone)
			}
			return nil, nil, usagef("--%s does not go with --%s", f.Flag, row.Flag)
		}
	}
	if yes, _ := flags.GetBool("yes"); c.Confirm != "" && !yes {
		return nil, nil, usagef(c.Confirm, args[0])
	}
	return in, row, nil
}

func argument(c *control.Command, f *declare.Field, text string) (any, error) {
	if f.Type.Kind() != reflect.Int {
		return text, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || int64(n) < f.Rule.Min {
		return nil, usagef("%q is no %s; tenantry %s list shows them", text, f.Name, c.Words()[0])
	}
	return n, nil
}

// pairs returns the values of a map by name, as a list says them: NAME=VALUE.
func pairs(f *declare.Field, of reflect.Kind, list []string) (_ any, err error) {
	out := values{}
	for _, text := range list {
		name, value, given := strings.Cut(text, "=")
		if !given {
			value = f.Tag.Get("bare")
		}
		switch of {
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

const maxPasswordInput = 8 << 10

// password reads the password from standard input, without the line end.
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
		return "", usagef("--password-stdin: standard input holds more than a password")
	}
	return text, nil
}

// oneArg takes exactly one argument, which is called what.
func oneArg(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return usagef("name %s", what)
		case len(args) > 1:
			return usagef("one argument is taken (%s), %d were given", what, len(args))
		}
		return nil
	}
}
