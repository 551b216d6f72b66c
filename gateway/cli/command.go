package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
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
	for i := range c.Fields {
		f := &c.Fields[i]
		if what := f.Tag.Get("arg"); what != "" {
			cmd.Args = oneArg(what)
			continue
		}
		addFlag(cmd.Flags(), f)
		if f.Rule.Ref == "" && c.Nothing == "" && strings.Contains(c.Line, " --"+f.Flag+" ") {
			_ = cmd.MarkFlagRequired(f.Flag) // fails only for a flag that is not there
		}
	}
	flags := map[string]*control.Command{}
	for i := range beside {
		if other := &beside[i]; other.Flag != "" && strings.HasPrefix(other.Name, c.Name+".") {
			flags[other.Flag] = other
			cmd.Flags().Bool(other.Flag, false, other.Short)
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
	cmd.RunE = run(func(ctx context.Context, args []string) error {
		in, row, err := p.input(cmd, c, args, flags)
		if err == nil {
			err = w.check(args, in)
		}
		if err != nil {
			return err
		}
		if org := cmd.Flags().Lookup("org"); org != nil && org.Value.String() == "" {
			return p.whichOrg(ctx, cmd)
		}
		if err := p.read(cmd.Flags(), c, in); err != nil {
			return err
		}
		return p.with(ctx, cmd, c.Begins, func(ctx context.Context, client *control.Client) error {
			b := p.newBar()
			streams, end, err := w.open(args, in, b)
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
	g, e := tableOf(c, answer.Data)
	if e == nil {
		e = p.print(answer.Data, g)
	}
	return errors.Join(err, e)
}

// Where a value is read from: the flag says only that it is, or names the file.
const (
	fromStdin = "stdin"
	fromFile  = "file"
)

// addFlag makes the flag of a field.
func addFlag(flags *pflag.FlagSet, f *declare.Field) {
	doc := f.Doc
	if f.Rule.Ref == "organization" {
		doc = "the organization's <slug>"
	}
	doc = strings.ReplaceAll(doc, "{settings}", strings.Join(tenants.AllSettings(), ", "))
	doc = regexp.MustCompile(`<([^>]*)>`).ReplaceAllString(doc, "`$1`") // what the value is called
	t := typeOf(f)
	switch {
	case t.Kind() == reflect.Bool, f.Tag.Get("read") == fromStdin:
		flags.Bool(f.Flag, false, doc)
	case t == reflect.TypeFor[time.Duration]():
		flags.Duration(f.Flag, 0, doc)
	case t.Kind() == reflect.Int:
		n, _ := strconv.Atoi(f.Default) // none is 0
		flags.Int(f.Flag, n, doc)
	case t.Kind() == reflect.String:
		flags.String(f.Flag, f.Default, doc)
	default: // lists, and maps as lists of NAME=VALUE
		flags.StringSlice(f.Flag, nil, doc)
	}
}

func typeOf(f *declare.Field) reflect.Type {
	if f.Type.Kind() == reflect.Pointer {
		return f.Type.Elem()
	}
	return f.Type
}

// input returns what the flags and the argument say, and the row that takes it: the command's, or that of
// a flag. Errors: wrong usage.
func (p *program) input(cmd *cobra.Command, c *control.Command, args []string, others map[string]*control.Command) (values, *control.Command, error) {
	in, row, flags, changes := values{}, c, cmd.Flags(), 0
	for name, other := range others {
		if flags.Changed(name) {
			row, changes = other, changes+1
		}
	}
	for i := range c.Fields {
		f := &c.Fields[i]
		var err error
		switch {
		case f.Tag.Get("arg") != "":
			in[f.Name], err = argument(c, f, args[0])
		case flags.Changed(f.Flag):
			if f.Rule.Ref != "organization" {
				changes++
			}
			in[f.Name], err = flagValue(flags, f)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if c.Nothing != "" && (changes == 0 || len(others) > 0 && changes > 1) {
		return nil, nil, usageError(c.Nothing)
	}
	if yes, _ := flags.GetBool("yes"); c.Confirm != "" && !yes {
		return nil, nil, usagef(c.Confirm, args[0])
	}
	return in, row, nil
}

func argument(c *control.Command, f *declare.Field, text string) (any, error) {
	if typeOf(f).Kind() != reflect.Int {
		return text, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || int64(n) < f.Rule.Min {
		return nil, usagef("%q is no %s; tenantry %s list shows them", text, f.Name, c.Words()[0])
	}
	return n, nil
}

func flagValue(flags *pflag.FlagSet, f *declare.Field) (any, error) {
	t := typeOf(f)
	text := flags.Lookup(f.Flag).Value.String()
	switch {
	case f.Tag.Get("read") != "":
		return text, nil // read later
	case t == reflect.TypeFor[time.Duration]():
		d, err := flags.GetDuration(f.Flag)
		least, _ := time.ParseDuration(f.Tag.Get("least")) // none is 0
		switch {
		case d < 0 && least == 0:
			return nil, usagef("--%s %s: it must not be negative", f.Flag, d)
		case d < least:
			return nil, usagef("--%s %s: it must be at least %s", f.Flag, d, least)
		}
		return d, err
	case t.Kind() == reflect.Bool:
		return text == "true", nil
	case t.Kind() == reflect.Int:
		return json.Number(text), nil
	case t.Kind() == reflect.Slice:
		return flags.GetStringSlice(f.Flag)
	case t.Kind() != reflect.Map:
		return text, nil
	}
	list, err := flags.GetStringSlice(f.Flag)
	pairs := values{}
	for _, text := range list {
		name, value, given := strings.Cut(text, "=")
		if !given {
			value = f.Tag.Get("bare")
		}
		switch t.Elem().Kind() {
		case reflect.Bool:
			pairs[name], err = strconv.ParseBool(value)
		case reflect.Int64:
			pairs[name], err = strconv.ParseInt(value, 10, 64)
		default:
			if !given || name == "" {
				err = strconv.ErrSyntax
			}
			list, _ := pairs[name].([]string)
			pairs[name] = append(list, value)
		}
		if err != nil {
			return nil, usagef("--%s %s: write %s", f.Flag, text, f.Tag.Get("write"))
		}
	}
	return pairs, err
}

// read reads the values that are not in the command line itself.
func (p *program) read(flags *pflag.FlagSet, c *control.Command, in values) (err error) {
	for i := range c.Fields {
		f := &c.Fields[i]
		from := f.Tag.Get("read")
		text, _ := in[f.Name].(string)
		switch {
		case from == fromFile && text != "":
			in[f.Name], err = transferKey(text)
		case from == fromStdin:
			delete(in, f.Name)
			if is, _ := flags.GetBool(f.Flag); is {
				in[f.Name], err = p.password()
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
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
