// Package toml replaces github.com/pelletier/go-toml/v2, which Gin imports for TOML.
package toml

import (
	"errors"
	"io"
)

// ErrUnused is the error of everything here.
var ErrUnused = errors.New("TOML is not part of Gin in this program; see replace in its go.mod")

// Decoder decodes nothing.
type Decoder struct{}

// NewDecoder returns a Decoder.
func NewDecoder(io.Reader) *Decoder { return &Decoder{} }

// Decode returns ErrUnused.
func (*Decoder) Decode(any) error { return ErrUnused }

// Marshal returns ErrUnused.
func Marshal(any) ([]byte, error) { return nil, ErrUnused }
