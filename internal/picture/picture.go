// Package picture makes thumbnails of pictures that strangers uploaded, and finds the parts of a picture that are not
// metadata. It knows JPEG, PNG, GIF and WebP.
//
// A picture is first laid out: its structure is read without decoding, and every length in it is checked against the
// size of the file. Decoders then read only what was laid out, so that they cannot see another picture than the one
// whose memory was estimated. All functions are safe for concurrent use on different sources.
package picture

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// Errors of Thumbnail and Plain. Errors of reading and of the context are returned as they are.
var (
	// ErrUnsupported: the file is no JPEG, PNG, GIF or WebP picture, or uses a feature of its format that is not read.
	ErrUnsupported = errors.New("the file is not a JPEG, PNG, GIF or WebP picture that can be read")
	// ErrTooLarge: decoding would need too much memory or time, or metadata are in too many places.
	ErrTooLarge = errors.New("the picture is too large")
	// ErrBroken: the file is incomplete or contradicts its format.
	ErrBroken = errors.New("the picture is broken")
)

// Facts describe a picture as it is shown.
type Facts struct {
	Media  string // image/jpeg, image/png, image/gif or image/webp
	Width  int    // in pixels, after the orientation was applied
	Height int
}

// Plain returns the parts of a picture of size bytes that are not metadata, which may be shown to everybody: pixels,
// colours, animation and orientation, but neither positions, times, comments, embedded previews nor bytes behind the
// end. It decodes nothing, so the pixels are those of the original. Errors: ErrUnsupported; ErrBroken; ErrTooLarge if
// there are more than 64 pieces; errors of reading.
//
// Text that is hidden in colour profiles, tables or pixels remains.
func Plain(src io.ReadSeeker, size int64) (Pieces, Facts, error) {
	l, err := read(src, size)
	if err != nil {
		return nil, Facts{}, err
	}
	facts := Facts{l.media, int(l.width), int(l.height)}
	if l.orientation >= 5 {
		facts.Width, facts.Height = facts.Height, facts.Width
	}
	return l.parts.pieces, facts, nil
}

// Media types of the formats.
const (
	mediaJPEG = "image/jpeg"
	mediaPNG  = "image/png"
	mediaGIF  = "image/gif"
	mediaWebP = "image/webp"
)

// Supports reports whether the media type is one of these.
func Supports(media string) bool {
	return media == mediaJPEG || media == mediaPNG || media == mediaGIF || media == mediaWebP
}

// layout is the structure of a picture.
type layout struct {
	media         string
	width, height int64 // as stored, at least 1
	orientation   uint8 // 1 to 8, as in EXIF
	animated      bool  // WebP only
	scans         int   // JPEG only
	decoded       int64 // estimate of what its decoder allocates, in bytes
	parts         plan
}

// read lays out a picture. Errors are those of Plain.
func read(src io.ReadSeeker, size int64) (*layout, error) {
	s, err := open(src, size)
	if err != nil {
		return nil, err
	}
	head, err := s.peek(12)
	if err != nil {
		return nil, err
	}
	l := &layout{orientation: 1}
	switch {
	case len(head) >= 3 && string(head[:3]) == "\xff\xd8\xff":
		l.media, err = mediaJPEG, l.readJPEG(s)
	case len(head) >= 8 && string(head[:8]) == pngSignature:
		l.media, err = mediaPNG, l.readPNG(s)
	case len(head) >= 6 && (string(head[:6]) == "GIF87a" || string(head[:6]) == "GIF89a"):
		l.media, err = mediaGIF, l.readGIF(s)
	case len(head) >= 12 && string(head[:4]) == "RIFF" && string(head[8:]) == "WEBP":
		l.media, err = mediaWebP, l.readWebP(s)
	default:
		return nil, ErrUnsupported
	}
	if err == nil && (l.width < 1 || l.height < 1) {
		err = broken("it has no pixels")
	}
	if err == nil && len(l.parts.pieces) > maxPieces {
		err = fmt.Errorf("%w: its metadata are in too many places", ErrTooLarge)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// broken returns an ErrBroken with a detail.
func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrBroken, fmt.Sprintf(format, args...))
}

// area returns the product of two sizes, at most 2^40, so that a few bytes for each pixel do not overflow.
func area(width, height int64) int64 {
	const most = 1 << 40
	if width <= 0 || height <= 0 {
		return 0
	}
	if width > most/height {
		return most
	}
	return width * height
}

// source reads a file forwards and knows where it is.
type source struct {
	src  io.ReadSeeker
	buf  *bufio.Reader
	pos  int64
	size int64
}

// maxRead bounds the bytes of one call of source.bytes: a JPEG segment.
const maxRead = 1 << 16

// open returns a source at the begin of a file of size bytes.
func open(src io.ReadSeeker, size int64) (*source, error) {
	if _, err := src.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return &source{src: src, buf: bufio.NewReaderSize(src, maxRead), size: size}, nil
}

// peek returns the next n bytes, or fewer at the end, without passing them. They are valid until the next call.
func (s *source) peek(n int) ([]byte, error) {
	b, err := s.buf.Peek(int(min(int64(n), s.size-s.pos)))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b, nil
}

// bytes returns the next n bytes, at most maxRead, and passes them. They are valid until the next call. If the file is
// shorter, the error is ErrBroken.
func (s *source) bytes(n int) ([]byte, error) {
	b, err := s.peek(n)
	if err != nil {
		return nil, err
	}
	if len(b) < n {
		return nil, broken("it ends early")
	}
	_, _ = s.buf.Discard(n) // they are in the buffer
	s.pos += int64(n)
	return b, nil
}

// skip passes n bytes. If the file is shorter, the error is ErrBroken.
func (s *source) skip(n int64) error {
	if n < 0 || n > s.size-s.pos {
		return broken("a length in it exceeds the file")
	}
	s.pos += n
	if n <= int64(s.buf.Buffered()) {
		_, _ = s.buf.Discard(int(n)) // they are in the buffer
		return nil
	}
	if _, err := s.src.Seek(s.pos, io.SeekStart); err != nil {
		return err
	}
	s.buf.Reset(s.src)
	return nil
}

// until passes bytes up to and with the next b. If there is none, the error is ErrBroken.
func (s *source) until(b byte) error {
	for {
		part, err := s.buf.ReadSlice(b)
		s.pos += int64(len(part))
		if s.pos > s.size || errors.Is(err, io.EOF) {
			return broken("it ends early")
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}
