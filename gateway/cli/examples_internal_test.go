package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestExamples: the examples in the help of every command are accepted by the command that they name.
func TestExamples(t *testing.T) {
	t.Parallel()
	tried := 0
	eachCommand((&program{signals: newSignals(func(error) {})}).root(), func(c *cobra.Command, _ []string) {
		for line := range strings.Lines(c.Example) {
			if _, piped, is := strings.Cut(line, "| "); is {
				line = piped
			}
			words := shellWords(t, line)
			if len(words) == 0 || words[0] != "tenantry" {
				continue
			}
			tried++
			root := (&program{signals: newSignals(func(error) {})}).root() // flags keep their values
			found, args, err := root.Find(words[1:])
			if err == nil {
				err = found.ParseFlags(args)
			}
			if err == nil {
				err = found.ValidateArgs(found.Flags().Args())
			}
			if err == nil && found.PreRun != nil {
				found.PreRun(found, nil)
			}
			if err == nil {
				err = found.ValidateRequiredFlags()
			}
			if err == nil {
				err = found.ValidateFlagGroups()
			}
			if err != nil {
				t.Errorf("the example of %s: %s: %v", c.CommandPath(), strings.TrimSpace(line), err)
			}
		}
	})
	if tried < 35 {
		t.Errorf("only %d examples were found", tried)
	}
}

// shellWords returns the words of the first command of a line, without its redirections and variables before it.
func shellWords(t *testing.T, line string) (words []string) {
	t.Helper()
	var word strings.Builder
	begun, quote := false, rune(0)
	end := func() {
		if begun {
			words = append(words, word.String())
		}
		word.Reset()
		begun = false
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, begun = r, true
		case r == ' ' || r == '\n':
			end()
		case strings.ContainsRune("|<>&;#", r) && !begun:
			return words
		default:
			begun = true
			word.WriteRune(r)
		}
	}
	end()
	if quote != 0 {
		t.Errorf("a quote is not closed: %s", line)
	}
	return words
}
