// Package rival has the common parts of the programs that are compared with Tenantry: their start, their data and their
// end.
package rival

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
)

// Line is the part of a bundle's line that rivals store.
type Line struct {
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	ID        string `json:"id"`
	Email     string `json:"email"`
	FirstName string `json:"first_name"`
	LastName  string `json:"last_name"`
	Country   string `json:"country"`
	City      string `json:"city"`
	Status    string `json:"status"`
	Filename  string `json:"filename"`
	Mimetype  string `json:"mimetype"`
	FolderID  string `json:"folder_id"`
	Fields    struct {
		Tier  string  `json:"tier"`
		Seats float64 `json:"seats"`
	} `json:"fields"`
}

// Read calls do with every line of the bundle, until it returns an error.
func Read(path string, do func(Line) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	dec := json.NewDecoder(bufio.NewReaderSize(f, 1<<20))
	for {
		var l Line
		if err := dec.Decode(&l); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := do(l); err != nil {
			return err
		}
	}
}

// Listen returns a listener on a free port of this machine.
func Listen() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }

// Ready prints the address of the listener and the callers' Authorization for the parent process. The program exits
// when the parent closes its standard input or ends.
func Ready(l net.Listener, token string) error {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return json.NewEncoder(os.Stdout).Encode(map[string]string{"addr": l.Addr().String(), "token": token})
}

// Exit prints the error and ends the program with 1.
func Exit(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
