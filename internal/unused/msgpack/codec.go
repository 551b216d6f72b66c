// Package codec replaces github.com/ugorji/go/codec, which Gin imports for MessagePack.
package codec

import (
	"errors"
	"io"
)

// ErrUnused is the error of everything here.
var ErrUnused = errors.New("MessagePack is not part of this program; see replace in its go.mod")

// MsgpackHandle has no options.
type MsgpackHandle struct{}

// Decoder decodes nothing.
type Decoder struct{}

// NewDecoder returns a Decoder.
func NewDecoder(io.Reader, *MsgpackHandle) *Decoder { return &Decoder{} }

// Decode returns ErrUnused.
func (*Decoder) Decode(any) error { return ErrUnused }

// Encoder encodes nothing.
type Encoder struct{}

// NewEncoder returns an Encoder.
func NewEncoder(io.Writer, *MsgpackHandle) *Encoder { return &Encoder{} }

// Encode returns ErrUnused.
func (*Encoder) Encode(any) error { return ErrUnused }
