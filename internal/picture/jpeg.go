package picture

import "encoding/binary"

// Markers of JPEG, each after a byte 0xff.
const (
	jpegSOF0  = 0xc0
	jpegSOF2  = 0xc2 // progressive
	jpegDHT   = 0xc4
	jpegJPG   = 0xc8
	jpegDAC   = 0xcc
	jpegSOF15 = 0xcf
	jpegRST0  = 0xd0
	jpegRST7  = 0xd7
	jpegSOI   = 0xd8
	jpegEOI   = 0xd9
	jpegSOS   = 0xda
	jpegEXP   = 0xdf
	jpegAPP0  = 0xe0
	jpegAPP1  = 0xe1
	jpegAPP2  = 0xe2
	jpegAPP14 = 0xee
)

// readJPEG lays out a JPEG. Kept are the tables, frames and scans, the JFIF header without its preview, colour profiles
// and Adobe's colour transform. Bytes between segments are left out: decoders skip them.
func (l *layout) readJPEG(s *source) error {
	if err := s.skip(2); err != nil {
		return err
	}
	l.parts.keep(0, 2)
	var f jpegFrame
	for marked := false; ; { // marked: the byte 0xff of the next marker was read
		if !marked {
			if err := s.until(0xff); err != nil {
				return err
			}
		}
		marker, err := jpegMarker(s)
		if err != nil {
			return err
		}
		marked = marker == jpegSOS
		switch {
		case marker == jpegEOI:
			if l.scans == 0 {
				return broken("it has no pixels")
			}
			l.parts.keep(s.pos-2, 2)
			l.decoded = f.memory(area(l.width, l.height))
			return nil
		case marker == jpegSOI:
			return broken("a second picture begins within it")
		case marker <= 1 || marker >= jpegRST0 && marker <= jpegRST7: // without content, and without effect here
		default:
			if err := l.readSegment(s, marker, &f); err != nil {
				return err
			}
		}
	}
}

// jpegMarker returns the marker after the byte 0xff that was read. Any number of them may precede it.
func jpegMarker(s *source) (byte, error) {
	for {
		b, err := s.bytes(1)
		if err != nil || b[0] != 0xff {
			return first(b), err
		}
	}
}

// first returns the first byte, or 0.
func first(b []byte) byte {
	if len(b) == 0 {
		return 0
	}
	return b[0]
}

// readSegment reads what follows a marker: a length, that many bytes, and the data of a scan.
func (l *layout) readSegment(s *source, marker byte, f *jpegFrame) error {
	begin := s.pos - 2
	b, err := s.bytes(2)
	if err != nil {
		return err
	}
	length := int(binary.BigEndian.Uint16(b)) - 2
	if length < 0 {
		return broken("a segment has no length")
	}
	content, err := s.bytes(length)
	if err != nil {
		return err
	}
	switch {
	case marker == jpegSOS:
		if l.scans++; f.samples == 0 {
			return broken("its pixels have no size")
		}
		if err := skipScan(s); err != nil {
			return err
		}
		l.parts.keep(begin, s.pos-1-begin)
	case marker >= jpegSOF0 && marker <= jpegSOF15 && marker != jpegDHT && marker != jpegJPG && marker != jpegDAC:
		if err := l.readFrame(marker, content, f); err != nil {
			return err
		}
		l.parts.keep(begin, s.pos-begin)
	case marker >= jpegSOF0 && marker <= jpegEXP:
		l.parts.keep(begin, s.pos-begin)
	case marker >= jpegAPP0:
		l.readApplication(marker, content, begin, f)
	default:
		return broken("it has a segment of an unknown kind")
	}
	return nil
}

// skipScan passes the data of a scan and the byte 0xff of the marker that ends it.
func skipScan(s *source) error {
	for {
		if err := s.until(0xff); err != nil {
			return err
		}
		b, err := s.peek(1)
		if err != nil {
			return err
		}
		if len(b) == 0 {
			return broken("it ends early")
		}
		switch m := b[0]; {
		case m == 0, m >= jpegRST0 && m <= jpegRST7: // a byte 0xff of the data; a restart
			if err := s.skip(1); err != nil {
				return err
			}
		case m == 0xff: // may precede any marker
		default:
			return nil
		}
	}
}

// readApplication adds what is kept of the segments APP0 to APP15, COM and others without pixels.
func (l *layout) readApplication(marker byte, content []byte, begin int64, f *jpegFrame) {
	whole := int64(len(content)) + 4
	has := func(id string, least int) bool {
		return len(content) >= max(least, len(id)) && string(content[:len(id)]) == id
	}
	switch {
	case marker == jpegAPP0 && has("JFIF\x00", 14): // the rest is a preview
		if len(content) == 14 {
			l.parts.keep(begin, whole)
			return
		}
		l.parts.put(0xff, jpegAPP0, 0, 16)
		l.parts.keep(begin+4, 12)
		l.parts.put(0, 0)
	case marker == jpegAPP1 && has(exifHeader, 0) && l.orientation == 1 && l.scans == 0: // later ones have no effect
		if l.orientation = orientationOf(content); l.orientation != 1 {
			exif := minimalExif(l.orientation)
			l.parts.put(append([]byte{0xff, jpegAPP1, 0, byte(2 + len(exifHeader) + len(exif))},
				append([]byte(exifHeader), exif...)...)...)
		}
	case marker == jpegAPP2 && has("ICC_PROFILE\x00", 14):
		l.parts.keep(begin, whole)
	case marker == jpegAPP14 && has("Adobe", 12):
		f.rgb = f.rgb || content[11] == 0
		if len(content) == 12 {
			l.parts.keep(begin, whole)
			return
		}
		l.parts.put(0xff, jpegAPP14, 0, 14)
		l.parts.keep(begin+4, 12)
	}
}

// jpegFrame is what the decoder's memory depends on.
type jpegFrame struct {
	samples     int64 // of all components, in whole blocks
	components  int
	rgb         bool // is converted after decoding
	progressive bool // coefficients of all scans are held
}

// readFrame reads the size of the picture and of its components.
func (l *layout) readFrame(marker byte, b []byte, f *jpegFrame) error {
	if f.samples != 0 {
		return broken("it has two sizes")
	}
	if len(b) < 6 || len(b) != 6+3*int(b[5]) {
		return broken("its size cannot be read")
	}
	l.height, l.width = int64(binary.BigEndian.Uint16(b[1:])), int64(binary.BigEndian.Uint16(b[3:]))
	f.components, f.progressive = int(b[5]), marker == jpegSOF2
	f.rgb = f.rgb || f.components == 3 && b[6] == 'R' && b[9] == 'G' && b[12] == 'B'
	var wide, high, blocks int64 = 1, 1, 0 // in blocks of 8 × 8, of the smallest unit that has all components
	for c := b[6:]; len(c) > 0; c = c[3:] {
		h, v := int64(c[1]>>4), int64(c[1]&15)
		if h < 1 || h > 4 || v < 1 || v > 4 {
			return broken("its components have no size")
		}
		wide, high, blocks = max(wide, h), max(high, v), blocks+h*v
	}
	units := area((l.width+8*wide-1)/(8*wide), (l.height+8*high-1)/(8*high))
	f.samples = units * blocks * 64
	return nil
}

// memory returns about how many bytes the decoder of the standard library allocates.
func (f *jpegFrame) memory(pixels int64) int64 {
	sum := f.samples
	if f.progressive {
		sum += 4 * f.samples
	}
	if f.rgb || f.components == 4 {
		sum += 4 * pixels
	}
	return sum
}
