package picture

import (
	"encoding/binary"
	"hash/crc32"
)

const (
	pngSignature = "\x89PNG\r\n\x1a\n"
	pngHeadEnd   = 8 + 12 + 13 // of the signature and the first chunk
)

// readPNG lays out a PNG. Kept are the chunks that pngKept names.
func (l *layout) readPNG(s *source) error {
	if err := s.skip(8); err != nil {
		return err
	}
	var rest plan // behind the first chunk
	var depth, colour byte
	pixels, transparent, interlaced := false, false, false
	for {
		begin := s.pos
		head, err := s.bytes(8)
		if err != nil {
			return err
		}
		length, kind := int64(binary.BigEndian.Uint32(head)), string(head[4:])
		if (begin == 8) != (kind == "IHDR") {
			return broken("its first chunk is not its only header")
		}
		switch kind {
		case "IHDR":
			if length != 13 {
				return broken("its header has %d bytes, want 13", length)
			}
			b, err := s.bytes(13 + 4)
			if err != nil {
				return err
			}
			l.width, l.height = int64(binary.BigEndian.Uint32(b)), int64(binary.BigEndian.Uint32(b[4:]))
			depth, colour, interlaced = b[8], b[9], b[12] != 0
			continue
		case "eXIf":
			if l.orientation, err = s.exif(length, l.orientation); err != nil {
				return err
			}
			if err := s.skip(4); err != nil {
				return err
			}
			continue
		case "IDAT":
			pixels = true
		case "tRNS":
			transparent = true
		}
		if err := s.skip(length); err != nil {
			return err
		}
		if _, err := s.bytes(4); err != nil { // the checksum
			return err
		}
		switch {
		case pngKept(kind):
			rest.keep(begin, s.pos-begin)
		case kind[0]&0x20 == 0:
			return ErrUnsupported // without this chunk the picture would be another
		}
		if kind == "IEND" {
			break
		}
	}
	if !pixels {
		return broken("it has no pixels")
	}
	each := pngBytes(depth, colour, transparent)
	l.decoded = each * area(l.width, l.height)
	if interlaced {
		l.decoded *= 2 // each pass is decoded into a picture of its own
	}
	l.decoded += 2 * each * l.width // the last two rows, before they are filtered
	l.parts.keep(0, pngHeadEnd)
	if l.orientation != 1 { // before the pixels, where browsers look for it
		l.parts.put(pngChunk("eXIf", minimalExif(l.orientation))...)
	}
	l.parts.append(rest)
	return nil
}

// exif passes a chunk of EXIF data of the given length and returns its orientation, unless one is known.
func (s *source) exif(length int64, known uint8) (uint8, error) {
	begin := s.pos
	if known == 1 {
		b, err := s.peek(int(min(length, maxRead)))
		if err != nil {
			return 0, err
		}
		known = orientationOf(b)
	}
	return known, s.skip(begin + length - s.pos)
}

// pngKept reports whether a chunk after the first holds pixels, colours or an animation.
func pngKept(kind string) bool {
	switch kind {
	case "PLTE", "IDAT", "IEND",
		"tRNS", "bKGD", "pHYs", "sBIT",
		"gAMA", "cHRM", "sRGB", "iCCP", "cICP", "mDCV", "cLLI",
		"acTL", "fcTL", "fdAT":
		return true
	}
	return false
}

// pngBytes returns the bytes of a decoded pixel. A colour key makes it transparent, so that it takes all channels.
func pngBytes(depth, colour byte, key bool) int64 {
	const gray, palette = 0, 3
	channels := int64(4)
	if colour == palette || colour == gray && !key {
		channels = 1
	}
	if depth == 16 {
		channels *= 2
	}
	return channels
}

// pngChunk returns a chunk.
func pngChunk(kind string, content []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(content)))
	b = append(append(b, kind...), content...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b[4:]))
}
