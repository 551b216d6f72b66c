package picture

import "encoding/binary"

// Blocks of GIF.
const (
	gifExtension = 0x21
	gifFrame     = 0x2c
	gifTrailer   = 0x3b

	gifControl     = 0xf9
	gifApplication = 0xff
)

// readGIF lays out a GIF. Kept are the frames, their controls, and how often the animation repeats.
func (l *layout) readGIF(s *source) error {
	b, err := s.bytes(13)
	if err != nil {
		return err
	}
	l.width, l.height = int64(binary.LittleEndian.Uint16(b[6:])), int64(binary.LittleEndian.Uint16(b[8:]))
	l.decoded = 2 * area(l.width, l.height) // rows of an interlaced frame are put in order in a second one
	if err := s.skip(gifColours(b[10])); err != nil {
		return err
	}
	l.parts.keep(0, s.pos)
	for frames := 0; ; {
		begin := s.pos
		if begin == s.size && frames > 0 { // many files lack the trailer, and all that show them do without it
			l.parts.put(gifTrailer)
			return nil
		}
		b, err := s.bytes(1)
		if err != nil {
			return err
		}
		kept := true
		switch b[0] {
		case gifTrailer:
			if frames == 0 {
				return broken("it has no pixels")
			}
			l.parts.keep(begin, 1)
			return nil
		case gifFrame:
			frames++
			err = s.gifFrame()
		case gifExtension:
			kept, err = s.gifExtension()
		default:
			return broken("it has a block of an unknown kind")
		}
		if err != nil {
			return err
		}
		if kept {
			l.parts.keep(begin, s.pos-begin)
		}
	}
}

// gifColours returns the bytes of the colour table that flags announce.
func gifColours(flags byte) int64 {
	if flags&0x80 == 0 {
		return 0
	}
	return 3 << (1 + flags&7)
}

// gifFrame passes a frame, whose first byte was read.
func (s *source) gifFrame() error {
	b, err := s.bytes(9)
	if err != nil {
		return err
	}
	if err := s.skip(gifColours(b[8]) + 1); err != nil { // and the bits of a code
		return err
	}
	return s.gifBlocks()
}

// gifBlocks passes blocks of up to 255 bytes up to the empty one.
func (s *source) gifBlocks() error {
	for {
		b, err := s.bytes(1)
		if err != nil || b[0] == 0 {
			return err
		}
		if err := s.skip(int64(b[0])); err != nil {
			return err
		}
	}
}

// gifExtension passes an extension, whose first byte was read, and reports whether it is kept.
func (s *source) gifExtension() (bool, error) {
	begin := s.pos
	head, err := s.peek(13)
	if err != nil {
		return false, err
	}
	kind, repeats := first(head), false
	if kind == gifApplication && len(head) == 13 && head[1] == 11 {
		id := string(head[2:13])
		repeats = id == "NETSCAPE2.0" || id == "ANIMEXTS1.0"
	}
	if err := s.skip(1); err != nil {
		return false, err
	}
	if err := s.gifBlocks(); err != nil {
		return false, err
	}
	length := s.pos - begin
	// Both have one length: a control of 4 bytes, or a name of 11 and a number of repetitions of 3.
	return kind == gifControl && length == 1+5+1 || repeats && length == 1+12+4+1, nil
}
