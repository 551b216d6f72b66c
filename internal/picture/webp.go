package picture

import "encoding/binary"

// Flags of the chunk VP8X.
const (
	webpAnimated = 1 << 1
	webpXMP      = 1 << 2
	webpEXIF     = 1 << 3
	webpAlpha    = 1 << 4
)

// readWebP lays out a WebP. Kept are the chunks of pixels, animation and colours. The sizes and flags that precede them
// are written anew.
func (l *layout) readWebP(s *source) error {
	b, err := s.bytes(12)
	if err != nil {
		return err
	}
	w := riff{layout: l, source: s, end: 8 + int64(binary.LittleEndian.Uint32(b[4:]))}
	for s.pos < w.end {
		if err := w.chunk(); err != nil {
			return err
		}
	}
	if w.pixels == 0 {
		return broken("it has no pixels")
	}
	var chunks plan
	if w.header != nil {
		w.header[8] &^= webpXMP | webpEXIF
		if l.orientation != 1 {
			w.header[8] |= webpEXIF
			exif := minimalExif(l.orientation)
			w.rest.put(append(webpHead("EXIF", len(exif)), exif...)...)
		}
		chunks.put(w.header...)
	} else {
		l.orientation = 1 // without that header, metadata have no effect
	}
	chunks.append(w.rest)
	l.parts.put(append(webpHead("RIFF", int(4+chunks.pieces.Size())), "WEBP"...)...)
	l.parts.append(chunks)
	l.decoded = w.memory()
	return nil
}

// riff is a WebP that is read.
type riff struct {
	*layout
	*source
	end int64 // of the RIFF list

	header   []byte // the chunk VP8X, if the picture has one
	rest     plan   // the other chunks
	pixels   int64  // bytes of the last chunk of pixels
	lossless bool
}

// webpHead returns the head of a chunk.
func webpHead(kind string, length int) []byte {
	return binary.LittleEndian.AppendUint32([]byte(kind), uint32(length))
}

// chunk reads the next chunk.
func (w *riff) chunk() error {
	begin := w.pos
	b, err := w.bytes(8)
	if err != nil {
		return err
	}
	kind, length := string(b[:4]), int64(binary.LittleEndian.Uint32(b[4:]))
	if length > w.end-w.pos {
		return broken("a chunk exceeds it")
	}
	after := w.pos + length
	kept, err := w.content(kind, length)
	if err != nil {
		return err
	}
	if err := w.skip(after - w.pos); err != nil {
		return err
	}
	if kept {
		w.rest.keep(begin, after-begin)
	}
	if length%2 == 0 {
		return nil
	}
	if w.pos == w.end { // some leave the last byte out, which makes the length even
		if kept {
			w.rest.put(0)
		}
		return nil
	}
	if kept {
		w.rest.keep(w.pos, 1)
	}
	return w.skip(1)
}

// content reads what is needed of a chunk's content and reports whether the chunk is kept as it is.
func (w *riff) content(kind string, length int64) (bool, error) {
	switch kind {
	case "VP8X":
		return false, w.extended(length)
	case "EXIF":
		var err error
		w.orientation, err = w.exif(length, w.orientation)
		return false, err
	case "VP8 ", "VP8L":
		if w.pixels > 0 {
			return false, broken("it has two pictures without an animation")
		}
		w.pixels, w.lossless = length, kind == "VP8L"
		return true, w.bareSize(length)
	case "ANMF":
		w.animated, w.pixels = true, length
		return true, w.frame(length)
	case "ALPH", "ANIM", "ICCP":
		return true, nil
	}
	return false, nil
}

// extended reads the chunk VP8X.
func (w *riff) extended(length int64) error {
	if length != 10 || w.header != nil || w.rest.pieces != nil {
		return broken("its header is misplaced")
	}
	b, err := w.bytes(10)
	if err != nil {
		return err
	}
	w.header = append(webpHead("VP8X", 10), b...)
	w.width = 1 + int64(b[4]) + int64(b[5])<<8 + int64(b[6])<<16
	w.height = 1 + int64(b[7]) + int64(b[8])<<8 + int64(b[9])<<16
	w.animated = b[0]&webpAnimated != 0
	return nil
}

// bareSize reads the size of a picture without the chunk VP8X from that of its pixels.
func (w *riff) bareSize(length int64) error {
	if w.header != nil {
		return nil // decoders check that both are the same
	}
	b, err := w.peek(int(min(length, 10)))
	if err != nil {
		return err
	}
	switch {
	case w.lossless && len(b) >= 5 && b[0] == 0x2f:
		bits := int64(binary.LittleEndian.Uint32(b[1:]))
		w.width, w.height = 1+(bits&0x3fff), 1+(bits>>14&0x3fff)
	case !w.lossless && len(b) == 10 && string(b[3:6]) == "\x9d\x01\x2a":
		w.width = int64(binary.LittleEndian.Uint16(b[6:])) & 0x3fff
		w.height = int64(binary.LittleEndian.Uint16(b[8:])) & 0x3fff
	}
	return nil
}

// frame checks that a frame of an animation contains only pixels. Its caller checks where the frame ends.
func (w *riff) frame(length int64) error {
	after := w.pos + length
	if err := w.skip(16); err != nil {
		return err
	}
	for w.pos < after {
		b, err := w.bytes(8)
		if err != nil {
			return err
		}
		kind, length := string(b[:4]), int64(binary.LittleEndian.Uint32(b[4:]))
		if kind != "ALPH" && kind != "VP8 " && kind != "VP8L" {
			return broken("a frame has a chunk of an unknown kind")
		}
		if err := w.skip(length + length%2); err != nil {
			return err
		}
	}
	return nil
}

// memory returns about how many bytes the decoder allocates. A lossless picture takes 4 bytes a pixel, twice if it has
// a palette, and up to 1 for its tables; so does compressed transparency, beside which pixels take 1.5 bytes. The data
// of a lossy picture are held.
//
// Not included are the codes of a lossless picture, up to 2,600 sets. A file made for that can have 130 MiB of them.
func (w *riff) memory() int64 {
	pixels := area((w.width+15)&^15, (w.height+15)&^15)
	const lossless = 9
	switch {
	case w.lossless:
		return lossless * pixels
	case w.header != nil && w.header[8]&webpAlpha != 0:
		return (lossless+3)*pixels + w.pixels
	}
	return 2*pixels + w.pixels
}
