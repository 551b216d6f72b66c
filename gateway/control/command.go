// Package control is how commands reach the data. A command is a row with the operator's credential,
// which runs as every row does, and from which the command line is made. A running server takes
// commands on a socket of its own user; where none runs, a command is carried out within itself. It
// works the same either way, and what it changes holds in the running server at once.
package control

import (
	"context"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"tenantry/internal/declare"
	"tenantry/operation"
)

// Group holds the commands of one kind of things. Those of the group without a name stand alone.
type Group struct {
	Name, Short string
	Commands    []Command
	// Own: what these commands do is recorded in the audit log of the installation too.
	Own bool
}

// Command is one command: what it takes and answers is declared by the tags of structs.
type Command struct {
	// Line is how it is typed: "team show NAME --org SLUG". Its words in lower case name it, its flags are
	// required, unless Nothing says what is.
	Line                 string
	Short, Long, Example string
	Name                 string // of the row and in audit logs: "team.show"; empty: made of Line
	Flag                 string // of the command before it in Line, in place of a command of its own
	Reads                bool   // the argument, or the Flag, names a file, which becomes the Input
	Writes               bool   // --out names a file, which holds the Output in the end

	// Audit: a command that changes something is recorded in the log of the organization it names.
	Audit operation.Audit
	// Once: the answer cannot be had again, so that it is given where no record could be written.
	Once   bool
	Begins bool // it may make an installation

	Confirm string // what is said where --yes is missing, of what the argument names
	Nothing string // what is said where no flag says what to change
	Hint    string // what to do where it was interrupted

	// Table lists what people are shown of the answer: names of its fields, or title=name, those
	// with a question mark where they are not empty. One record is shown field by field, or in
	// columns as lists are where it is Wide.
	Table string
	Wide  bool

	Row    operation.Row
	Fields []declare.Field // of what it takes
	own    bool
	bind   func(*Server, *call) operation.Row // the row, for one call
}

// command completes a command by its handler. What a field refers to as an organization becomes the
// Tenant of the call, which is nobody's else.
func command[In, Out any](c Command, do func(context.Context, *call, In) (Out, error)) Command {
	if c.Name == "" {
		c.Name = strings.Join(c.Words(), ".")
	}
	c.Fields, _ = declare.Of(reflect.TypeFor[In]()) // what is wrong with them is a fault of the row
	row := c.row()
	org := slices.IndexFunc(c.Fields, func(f declare.Field) bool { return f.Rule.Ref == "organization" })
	c.bind = func(s *Server, of *call) operation.Row {
		return operation.Typed(row, func(ctx context.Context, _ *operation.Call, in In) (out Out, err error) {
			if org >= 0 {
				err = s.enter(ctx, of, reflect.ValueOf(in).FieldByIndex(c.Fields[org].Index).String())
			}
			if err == nil {
				out, err = do(ctx, of, in)
			}
			return out, err
		})
	}
	c.Row = c.bind(nil, nil)
	return c
}

// row returns the row without what it takes and answers.
func (c *Command) row() operation.Row {
	row := operation.Row{
		Name: c.Name, Method: http.MethodPost,
		Path:    operation.ControlPath + strings.ReplaceAll(c.Name, ".", "/"),
		Policy:  operation.Policy{Credentials: operation.Operator, Rule: operation.AnyCaller(), Audit: c.Audit},
		Request: operation.Request{Body: []operation.Field{}},
		Docs:    operation.Docs{Summary: c.Short, Description: c.Long},
	}
	if c.Audit == operation.NoAudit {
		row.Method = http.MethodGet // it reads, whatever the socket takes
	}
	return row
}

// Words returns what the command is called in the command line.
func (c *Command) Words() []string {
	words := strings.Fields(c.Line)
	end := slices.IndexFunc(words, func(word string) bool { return strings.ToLower(word) != word || word[0] == '-' })
	if end < 0 {
		return words
	}
	return words[:end]
}

// Progress tells how far a command has come.
type Progress struct {
	Step   string `json:"step,omitempty"`
	Detail string `json:"detail,omitempty"`
	Done   int64  `json:"done,omitempty"`
	Total  int64  `json:"total,omitempty"` // 0: not known
	Bytes  bool   `json:"bytes,omitempty"` // are what Done and Total count
	Note   string `json:"note,omitempty"`  // for everybody to read
	Told   bool   `json:"told,omitempty"`  // where nothing moves, the step is told by its name
}

// Streams are what a command reads and writes besides its request and its answer. All may be nil for Client.Do.
type Streams struct {
	Input    io.Reader
	Output   io.Writer
	Progress func(Progress)
	Operator string // the name of whoever gives the command, for the installation's audit log
}

// call is one call of a command.
type call struct {
	*operation.Call
	Streams
	command *Command
	notes   []string
}

// say adds a sentence for whoever gave the command, beside its answer.
func (c *call) say(text string) { c.notes = append(c.notes, text) }

// changed notes what of a record was changed.
func (c *call) changed(fields []string) {
	c.Note("changed", strings.Join(slices.Sorted(slices.Values(fields)), ","))
}
