// Package rival has what the programs beside Tenantry have in common: how they are started, read
// the data they shall hold and end.
package rival

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
)

// Line is one line of a bundle, as far as rivals keep it.
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

// Read calls do with every line of the bundle.
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

// Ready tells whoever started the program where it listens, and what callers send as Authorization.
// The program ends when that one closes the program's input, or is gone.
func Ready(l net.Listener, token string) error {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return json.NewEncoder(os.Stdout).Encode(map[string]string{"addr": l.Addr().String(), "token": token})
}

// Exit ends the program with what went wrong.
func Exit(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
