// Package control runs the commands of the operator on the data. A command is an operation row with the operator's
// credential; it runs like every other row, and the command line is made from it. A running server accepts commands on
// a Unix socket that only its own user can reach. If no server runs, the command runs in its own process. The result is
// the same, and a running server sees changes at once.
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

// Group holds related commands, such as those of organizations. The commands of the group without a name stand alone.
type Group struct {
	Name, Short string
	Commands    []Command
	Own         bool // commands are recorded in the audit log of the installation too
}

// Command is one command. The tags of structs declare its input and its answer.
type Command struct {
	// Line is its usage: "team show NAME --org SLUG". Words in lower case are its name. Its flags are required, unless
	// Nothing is set.
	Line                 string
	Short, Long, Example string
	Name                 string // of the row and in audit logs: "team.show"; empty: derived from Line
	Flag                 string // if set, the command is this flag of the command that Line begins with
	Reads                bool   // the argument, or the Flag, names the file for the Input
	Writes               bool   // --out names the file for the Output

	// Audit says whether the command is recorded in the audit log of the organization that it names.
	Audit operation.Audit
	// Once: the answer cannot be obtained again, so it is given even if no audit record could be written.
	Once   bool
	Begins bool // it may make the installation

	Confirm string // message if --yes is missing; %s is the argument
	Nothing string // message if no flag says what to change
	Hint    string // what to do after an interruption

	// Table lists the fields of the answer that tables show, as name or title=name. Fields with a question mark are
	// left out if they are empty. A single record is shown field by field, or in columns like a list if it is Wide.
	Table string
	Wide  bool

	Row    operation.Row
	Fields []declare.Field                    // of the input
	own    bool                               // Group.Own of its group
	bind   func(*Server, *call) operation.Row // returns the row for one call
}

// command completes a command with its handler. If a field of the input refers to an organization, that organization
// becomes the Tenant of the call.
func command[In, Out any](c Command, do func(context.Context, *call, In) (Out, error)) Command {
	if c.Name == "" {
		c.Name = strings.Join(c.Words(), ".")
	}
	c.Fields, _ = declare.Of(reflect.TypeFor[In]()) // Validate of the row reports invalid tags
	row := c.row()
	org := slices.IndexFunc(c.Fields, func(f declare.Field) bool { return f.Rule.Ref == "organization" })
	c.bind = func(s *Server, of *call) operation.Row {
		return operation.Typed(row, func(ctx context.Context, _ *operation.Call, in In) (out Out, err error) {
			if org >= 0 {
				err = s.setTenant(ctx, of, reflect.ValueOf(in).FieldByIndex(c.Fields[org].Index).String())
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

// row returns the row without its body and answer.
func (c *Command) row() operation.Row {
	row := operation.Row{
		Name: c.Name, Method: http.MethodPost,
		Path:    operation.ControlPath + strings.ReplaceAll(c.Name, ".", "/"),
		Policy:  operation.Policy{Credentials: operation.Operator, Rule: operation.AnyCaller(), Audit: c.Audit},
		Request: operation.Request{Body: []operation.Field{}},
		Docs:    operation.Docs{Summary: c.Short, Description: c.Long},
	}
	if c.Audit == operation.NoAudit {
		row.Method = http.MethodGet // it only reads, although the socket takes POST
	}
	return row
}

// Words returns the words of the name in the command line.
func (c *Command) Words() []string {
	words := strings.Fields(c.Line)
	end := slices.IndexFunc(words, func(word string) bool { return strings.ToLower(word) != word || word[0] == '-' })
	if end < 0 {
		return words
	}
	return words[:end]
}

// Progress is the progress of a command.
type Progress struct {
	Step   string `json:"step,omitempty"`
	Detail string `json:"detail,omitempty"`
	Done   int64  `json:"done,omitempty"`
	Total  int64  `json:"total,omitempty"` // 0: not known
	Bytes  bool   `json:"bytes,omitempty"` // Done and Total count bytes
	Note   string `json:"note,omitempty"`  // a line for people
	Told   bool   `json:"told,omitempty"`  // print the name of the step if no progress bar is shown
}

// Streams are the input and output of a command besides its request and its answer. All fields may be zero for
// Client.Do.
type Streams struct {
	Input    io.Reader
	Output   io.Writer
	Progress func(Progress)
	Operator string // name of the operator, for the audit log of the installation
}

// call is one call of a command.
type call struct {
	*operation.Call
	Streams
	command *Command
	notes   []string
}

// addNote adds a sentence for the operator to the answer.
func (c *call) addNote(text string) {
	if text != "" {
		c.notes = append(c.notes, text)
	}
}

// noteChanged notes the names of the changed fields for the audit log.
func (c *call) noteChanged(fields []string) {
	c.Note("changed", strings.Join(slices.Sorted(slices.Values(fields)), ","))
}
