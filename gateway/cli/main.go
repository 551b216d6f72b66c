// Package cli implements the command tenantry. It writes results to standard output and everything else to standard
// error, and exits with 0 on success, 1 on failure and 2 on wrong usage.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tenantry/config"
	"tenantry/gateway/control"
	"tenantry/internal/typos"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// program is one run of the command.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string
	signals        *signals

	configFile string
	data       string
	output     string
	started    bool // a command was found and its usage is valid
}

// Main runs the command with the given arguments (without the program's name) until it is done or ctx ends, and returns
// the exit code. The first of the signals that the process gets, other than SIGHUP for a server, ends ctx. What those
// after it mean is in signals.
func Main(
	ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, environ []string, got <-chan os.Signal,
) int {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := &program{stdin: stdin, stdout: stdout, stderr: stderr, environ: environ, signals: newSignals(cancel)}
	over := make(chan struct{})
	defer close(over)
	go p.signals.watch(over, got)
	root := p.root() //nolint:contextcheck // commands get their context when they run
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if wrong := usageError(""); p.started && !errors.As(err, &wrong) {
		p.report(err)
		return exitFailure
	}
	fmt.Fprintf(stderr, "%s: %v\nRun '%s --help' for usage.\n", cmd.CommandPath(), err, cmd.CommandPath())
	return exitUsage
}

// usageError is wrong usage that a command detects after it has started. Every error before that is wrong usage too.
type usageError string

func (e usageError) Error() string { return string(e) }

func usagef(format string, args ...any) error { return usageError(fmt.Sprintf(format, args...)) }

// report writes a failure to standard error, with each of several faults on its own line.
func (p *program) report(err error) {
	var refused *control.Error
	var faults configFaults
	switch {
	case errors.As(err, &faults):
		fmt.Fprintln(p.stderr, "tenantry: the configuration cannot be used:")
		for _, fault := range faults {
			fmt.Fprintf(p.stderr, "  %v\n", fault)
		}
	case errors.As(err, &refused) && len(refused.Faults) > 0:
		fmt.Fprintln(p.stderr, "tenantry: the input cannot be taken:")
		for _, fault := range refused.Faults {
			fmt.Fprintf(p.stderr, "  %s: %s\n", fault.Field, fault.Message)
		}
	default:
		fmt.Fprintf(p.stderr, "tenantry: %v\n", err)
	}
}

func (p *program) root() *cobra.Command {
	made := p.commands()
	for _, c := range made {
		if c.Name() == "backup" {
			c.AddCommand(p.backupListCommand())
		}
	}
	commands := append(made, p.restoreCommand(), p.serveCommand(), p.demoCommand(), p.versionCommand())
	root := group("tenantry", "A multi-tenant workspace API gateway", commands...)
	root.SilenceErrors, root.SilenceUsage = true, true
	flags := root.PersistentFlags()
	flags.StringVar(&p.configFile, "config", "", "a YAML `file` of settings")
	flags.StringVar(&p.data, "data", "", "the `folder` that holds the data (default \"./tenantry-data\")")
	flags.StringVar(&p.output, "output", "",
		"how results are written: `json or table` (default table on a terminal, else json)")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkNames(cmd); err != nil {
			return err
		}
		switch p.output {
		case "", outputJSON, outputTable:
			return nil
		}
		return usagef("--output %s: must be json or table", p.output)
	}
	return root
}

// checkNames refuses names that a shell has made by mistake: an empty one of a file, folder, place, backup or second,
// which a variable that is not set leaves and which would be taken as if the flag was not given, and a path that begins
// with ~, which would be a folder of that name.
func checkNames(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		what, _ := pflag.UnquoteUsage(f)
		isPath := slices.Contains([]string{"file", "folder", "place"}, what)
		switch text := f.Value.String(); {
		case err != nil:
		case text == "" && (isPath || slices.Contains([]string{"backup", "second"}, what)):
			err = usagef("--%s is empty: name a %s", f.Name, what)
		case isPath && strings.HasPrefix(text, "~"):
			err = usagef("--%s %s begins with ~, which the shell did not replace: write the whole path", f.Name, text)
		}
	})
	return err
}

// group returns a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(cmd.ErrOrStderr())
			_ = cmd.Help() // a failure to write to standard error cannot be reported
			return usagef("name a command")
		},
	}
	cmd.AddCommand(commands...)
	// An unknown command is reported before its flags, which are unknown only because the command is.
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if args := c.Flags().Args(); c == cmd && len(args) > 0 {
			return unknownCommand(cmd, args[0])
		}
		return flagFault(c, err)
	})
	return cmd
}

// flagFault turns an error of pflag into one that suggests the flag that was meant, or says what the value must be.
func flagFault(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := typos.Nearest(unknown.GetSpecifiedName(), names); near != "" {
			return usagef("%v; did you mean --%s?", err, near)
		}
	case errors.As(err, &invalid):
		flag := invalid.GetFlag()
		types := map[string]string{"bool": config.WantSwitch, "int": config.WantNumber, "duration": config.WantDuration}
		if wanted, ok := types[flag.Value.Type()]; ok {
			return usagef("--%s must be %s, not %.60q", flag.Name, wanted, invalid.GetValue())
		}
	}
	return err
}

// unknownCommand returns the error for a command that cmd does not have. It lists those it has and suggests one.
func unknownCommand(cmd *cobra.Command, given string) error {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	full := given
	if _, below, nested := strings.Cut(cmd.CommandPath(), " "); nested {
		full = below + " " + given
	}
	text := fmt.Sprintf("unknown command %q; there are: %s", full, strings.Join(names, ", "))
	if near := suggest(given, names); near != "" {
		text += "; did you mean " + near + "?"
	}
	return usageError(text)
}

// suggest returns the name that was most likely meant, by synonym or spelling, or "" if none is close.
func suggest(given string, names []string) string {
	for _, synonyms := range [][]string{
		{"delete", "remove", "rm", "deactivate", "revoke", "retire"},
		{"create", "add", "new", "make"},
		{"show", "get", "describe"},
		{"list", "ls"},
		{"update", "edit", "set", "change"},
	} {
		known := slices.IndexFunc(synonyms, func(name string) bool { return slices.Contains(names, name) })
		if known >= 0 && slices.Contains(synonyms, given) {
			return synonyms[known]
		}
	}
	return typos.Nearest(given, names)
}

// run wraps the body of a command so that its errors are no longer taken for wrong usage.
func (p *program) run(do func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		p.started = true
		return do(cmd.Context(), args)
	}
}
