package picture

import (
	"errors"
	"fmt"
	"io"
)

// maxPieces bounds what a document keeps of a picture.
const maxPieces = 64

// Piece is a part of a file: a range of the original, or a few bytes that replace one.
type Piece struct {
	From   int64  `json:"from,omitempty"`   // offset in the original
	Length int64  `json:"length,omitempty"` // bytes of the original; 0 if Bytes are given
	Bytes  []byte `json:"bytes,omitempty"`
}

// size returns the bytes of the piece in the file.
func (p Piece) size() int64 {
	if len(p.Bytes) > 0 {
		return int64(len(p.Bytes))
	}
	return max(0, p.Length)
}

// Pieces are the parts of a file, in order.
type Pieces []Piece

// Size returns the bytes of the file that the pieces make.
func (p Pieces) Size() (size int64) {
	for _, piece := range p {
		size += piece.size()
	}
	return size
}

// Reader returns a reader of the pieces as one file. src is the original, which the reader moves and does not close.
func (p Pieces) Reader(src io.ReadSeeker) *Reader {
	return &Reader{pieces: p, src: src, size: p.Size()}
}

// Reader reads pieces as one file. It implements io.ReadSeeker. Not safe for concurrent use.
type Reader struct {
	pieces Pieces
	src    io.ReadSeeker
	size   int64
	pos    int64 // in the file that the pieces make

	at    int   // the piece of pos, if found
	start int64 // of that piece
	ready bool  // src is where pos is
}

// Size returns the bytes of the file.
func (r *Reader) Size() int64 { return r.size }

// Read reads the next bytes. Errors: io.EOF at the end; io.ErrUnexpectedEOF if the original is shorter than its pieces;
// errors of the original.
func (r *Reader) Read(p []byte) (int, error) {
	for ; r.at < len(r.pieces); r.next() {
		piece, in := r.pieces[r.at], r.pos-r.start
		left := piece.size() - in
		if left <= 0 {
			continue
		}
		if len(piece.Bytes) > 0 {
			n := copy(p, piece.Bytes[in:])
			r.pos += int64(n)
			return n, nil
		}
		if !r.ready {
			if _, err := r.src.Seek(piece.From+in, io.SeekStart); err != nil {
				return 0, err
			}
			r.ready = true
		}
		n, err := r.src.Read(p[:min(int64(len(p)), left)])
		r.pos += int64(n)
		if errors.Is(err, io.EOF) {
			if err = nil; n == 0 {
				err = io.ErrUnexpectedEOF
			}
		}
		return n, err
	}
	return 0, io.EOF
}

// next goes to the begin of the next piece.
func (r *Reader) next() {
	r.start += r.pieces[r.at].size()
	r.at++
	r.ready = false
}

// Seek sets the offset of the next Read, as io.Seeker describes. An offset before the begin is an error.
func (r *Reader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.pos
	case io.SeekEnd:
		offset += r.size
	}
	if whence < io.SeekStart || whence > io.SeekEnd || offset < 0 {
		return 0, fmt.Errorf("seeking to %d from %d in pieces: no such place", offset, whence)
	}
	r.pos, r.at, r.start, r.ready = offset, 0, 0, false
	for r.at < len(r.pieces) && r.start+r.pieces[r.at].size() <= offset {
		r.next()
	}
	return offset, nil
}

// plan collects pieces. It stops growing soon after maxPieces.
type plan struct{ pieces Pieces }

// keep adds a range of the original. It grows the last piece if that one ends where the range begins.
func (p *plan) keep(from, length int64) {
	if last := len(p.pieces) - 1; last >= 0 && p.pieces[last].Bytes == nil &&
		p.pieces[last].From+p.pieces[last].Length == from {
		p.pieces[last].Length += length
		return
	}
	p.add(Piece{From: from, Length: length})
}

// put adds bytes of our own.
func (p *plan) put(b ...byte) { p.add(Piece{Bytes: b}) }

// append adds the pieces of another plan.
func (p *plan) append(other plan) {
	for _, piece := range other.pieces {
		if piece.Bytes == nil {
			p.keep(piece.From, piece.Length)
		} else {
			p.add(piece)
		}
	}
}

func (p *plan) add(piece Piece) {
	if len(p.pieces) <= maxPieces {
		p.pieces = append(p.pieces, piece)
	}
}
