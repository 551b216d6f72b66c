package picture

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"testing"
)

// secret stands for the metadata that nobody else may see.
const secret = "N59.9139 E10.7522"

// sample is a picture without metadata, and the same with many.
type sample struct {
	name          string
	width, height int
	clean, laden  []byte
}

// quadrants returns a picture of four colours: red and green above, blue and white below, each with a shade.
func quadrants(width, height int) *image.NRGBA {
	img := image.NewNRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			c := color.NRGBA{R: 200, A: 255}
			switch {
			case y >= height/2 && x >= width/2:
				c = color.NRGBA{R: 230, G: 230, B: 230, A: 255}
			case y >= height/2:
				c = color.NRGBA{B: 200, A: 255}
			case x >= width/2:
				c = color.NRGBA{G: 200, A: 255}
			}
			img.SetNRGBA(x, y, c)
		}
	}
	return img
}

func jpegOf(t testing.TB, img image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, img, &jpeg.Options{Quality: 95}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func pngOf(t testing.TB, img image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gifOf(t testing.TB, frames ...*image.Paletted) []byte {
	t.Helper()
	var b bytes.Buffer
	g := gif.GIF{Image: frames, Delay: make([]int, len(frames))}
	if err := gif.EncodeAll(&b, &g); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// paletted returns a picture of 4 colours as quadrants does, with the shades that its palette has.
func paletted(width, height int) *image.Paletted {
	from := quadrants(width, height)
	p := color.Palette{from.At(0, 0), from.At(width-1, 0), from.At(0, height-1), from.At(width-1, height-1)}
	img := image.NewPaletted(from.Rect, p)
	for y := range height {
		for x := range width {
			img.Set(x, y, from.At(x, y))
		}
	}
	return img
}

// segment returns a segment of a JPEG.
func segment(marker byte, content string) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{0xff, marker}, uint16(len(content)+2)), content...)
}

// exifOf returns EXIF data with the orientation, behind another entry, and the secret.
func exifOf(order binary.AppendByteOrder, orientation uint16) string {
	b := []byte("MM\x00\x2a")
	if order.String() == "LittleEndian" {
		b = []byte("II\x2a\x00")
	}
	b = order.AppendUint16(order.AppendUint32(b, 8), 2)
	b = order.AppendUint32(order.AppendUint32(order.AppendUint16(order.AppendUint16(b, 0x010e), 2), 17), 38)
	b = order.AppendUint32(order.AppendUint16(order.AppendUint16(b, tagOrientation), 3), 1)
	b = order.AppendUint16(order.AppendUint16(b, orientation), 0)
	b = order.AppendUint32(b, 8) // the next directory is the first one: a loop
	return string(b) + secret
}

// join returns one file of parts.
func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// chunk returns a chunk of a PNG.
func chunk(kind, content string) []byte { return pngChunk(kind, []byte(content)) }

// extension returns an extension of a GIF.
func extension(kind byte, blocks ...string) []byte {
	b := []byte{gifExtension, kind}
	for _, block := range append(blocks, "") {
		b = append(append(b, byte(len(block))), block...)
	}
	return b
}

// riffOf returns a WebP of chunks.
func riffOf(chunks ...[]byte) []byte {
	all := join(chunks...)
	return join(webpHead("RIFF", len(all)+4), []byte("WEBP"), all)
}

// riffChunk returns a chunk of a WebP.
func riffChunk(kind, content string) []byte {
	b := append(webpHead(kind, len(content)), content...)
	return append(b, make([]byte, len(content)%2)...)
}

// vp8x returns the chunk VP8X.
func vp8x(flags byte, width, height int) []byte {
	w, h := width-1, height-1
	return riffChunk("VP8X", string([]byte{
		flags, 0, 0, 0, byte(w), byte(w >> 8), byte(w >> 16), byte(h), byte(h >> 8), byte(h >> 16),
	}))
}

// lossless returns the content of a chunk VP8L: a picture whose left half is black and right half is green.
func lossless(width, height int) string {
	b := []byte{0x2f}
	var bits uint64
	var n uint
	put := func(v uint64, count uint) {
		bits |= v << n
		for n += count; n >= 8; n -= 8 {
			b = append(b, byte(bits))
			bits >>= 8
		}
	}
	put(uint64(width-1), 14)
	put(uint64(height-1), 14)
	put(0, 1+3)              // no transparency; the version
	put(0, 1+1+1)            // no transform, no cache, one set of codes
	put(1|1<<1|1<<2, 3)      // green: a simple code of two symbols, the first of 8 bits
	put(0|200<<8, 16)        // which are 0 and 200
	put(1|0<<1|1<<2, 3)      // red: one symbol
	put(0, 8)                // which is 0
	put(1|0<<1|1<<2, 3)      // blue
	put(0, 8)                //
	put(1|0<<1|1<<2, 3)      // opacity
	put(255, 8)              //
	put(1|0<<1|0<<2|0<<3, 4) // distance: one symbol, of one bit
	for range height {
		for x := range width {
			put(uint64(2*x/width), 1)
		}
	}
	put(0, 7)
	return string(b)
}

// fromBase64 returns the bytes of a file.
func fromBase64(t testing.TB, text string) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The smallest files of WebP: one pixel.
const (
	lossyPixel = "UklGRiIAAABXRUJQVlA4IBYAAAAwAQCdASoBAAEADsD+JaQAA3AAAAAA"
	alphaPixel = "UklGRkoAAABXRUJQVlA4WAoAAAAQAAAAAAAAAAAAQUxQSAwAAAARBxAR/Q9ERP8DAABWUDggGAAAABQBAJ0BKgEAAQAA" +
		"AP4AAA3AAP7mtQAAAA=="
	animation = "UklGRlIAAABXRUJQVlA4WAoAAAASAAAAAAAAAAAAQU5JTQYAAAD/////AABBTk1GJgAAAAAAAAAAAAAAAAAAAGQAAABWUDhM" +
		"DQAAAC8AAAAQBxAREYiI/gcA"
)

// samples returns pictures of every format whose metadata do not turn them.
func samples(t testing.TB) []sample {
	t.Helper()
	j := jpegOf(t, quadrants(40, 24))
	scan := bytes.Index(j, []byte{0xff, jpegSOS})
	jfif := segment(jpegAPP0, "JFIF\x00\x01\x01\x00\x00\x48\x00\x48\x00\x00")
	icc := segment(jpegAPP2, "ICC_PROFILE\x00\x01\x01profile")
	adobe := segment(jpegAPP14, "Adobe\x00\x64\x00\x00\x00\x00\x01")
	p := pngOf(t, quadrants(40, 24))
	data, end := bytes.Index(p, []byte("IDAT"))-4, len(p)-12
	colours := join(chunk("gAMA", "\x00\x00\xb1\x8f"), chunk("pHYs", "\x00\x00\x0b\x13\x00\x00\x0b\x13\x01"))
	g := gifOf(t, paletted(40, 24), paletted(40, 24))
	frame := 13 + int(gifColours(g[10]))
	still := riffOf(riffChunk("VP8L", lossless(40, 24)))
	wide := func(flags byte, chunks ...[]byte) []byte {
		return riffOf(append([][]byte{vp8x(flags, 40, 24)}, chunks...)...)
	}
	pixels, profile := riffChunk("VP8L", lossless(40, 24)), riffChunk("ICCP", "profile")
	alpha, moving := fromBase64(t, alphaPixel), fromBase64(t, animation)
	return []sample{
		{"JPEG", 40, 24, join(j[:2], jfif, icc, adobe, j[2:]), join(
			j[:2], segment(jpegAPP0, "JFIF\x00\x01\x01\x00\x00\x48\x00\x48\x01\x01"+secret[:3]),
			segment(jpegAPP0, "JFXX\x00\x10"+secret), segment(jpegAPP1, exifHeader+exifOf(binary.BigEndian, 1)),
			segment(jpegAPP1, "http://ns.adobe.com/xap/1.0/\x00<x>"+secret), icc, segment(jpegAPP2, "MPF\x00"+secret),
			segment(0xed, "Photoshop 3.0\x00"+secret), segment(0xe4, secret), segment(0xef, secret),
			segment(jpegAPP14, "Adobe\x00\x64\x00\x00\x00\x00\x01"+secret), segment(0xfe, secret),
			[]byte(secret), []byte{0xff, 0xd0, 0xff, 0xff}, j[2:scan], segment(0xfe, secret), j[scan:],
			[]byte(secret), j,
		)},
		{"PNG", 40, 24, join(p[:pngHeadEnd], colours, p[pngHeadEnd:]), join(
			p[:pngHeadEnd], chunk("tEXt", "Comment\x00"+secret), colours, chunk("iTXt", secret),
			chunk("tIME", "\x07\xea\x01\x01\x00\x00\x00"), chunk("eXIf", exifOf(binary.LittleEndian, 99)), p[pngHeadEnd:data],
			chunk("zTXt", secret), chunk("prIv", secret), p[data:end], chunk("tEXt", secret), p[end:], []byte(secret),
		)},
		{"GIF", 40, 24, join(g[:frame], extension(gifApplication, "NETSCAPE2.0", "\x01\x00\x00"), g[frame:]), join(
			g[:frame], extension(0xfe, secret), extension(gifApplication, "XMP DataXMP", secret),
			extension(gifApplication, "STRANGER1.0", secret[:3]),
			extension(gifApplication, "NETSCAPE2.0", "\x01\x00\x00"), extension(gifApplication, "NETSCAPE2.0", secret),
			extension(1, "0123456789ab", secret), extension(0xf9, secret), g[frame:len(g)-1], extension(0xfe, secret, secret),
			g[len(g)-1:], []byte(secret),
		)},
		{"GIF without its trailer", 40, 24, g, g[:len(g)-1]},
		{"WebP", 40, 24, still, join(riffOf(
			riffChunk("VP8L", lossless(40, 24)), riffChunk("EXIF", exifOf(binary.BigEndian, 6)), riffChunk("XMP ", secret),
		), []byte(secret))},
		{"WebP with a profile", 40, 24, wide(0x20, profile, pixels), join(
			wide(0x2c, profile, riffChunk("JUNK", secret), pixels,
				riffChunk("EXIF", exifHeader+exifOf(binary.BigEndian, 0)), riffChunk("XMP ", secret)), []byte(secret),
		)},
		{"WebP with transparency", 1, 1, alpha, join(riffOf(alpha[12:], riffChunk("XMP ", secret)), []byte(secret))},
		{"animated WebP", 1, 1, moving, join(riffOf(moving[12:], riffChunk("EXIF", secret)), []byte(secret))},
	}
}

// turned returns a picture of 40 × 24 in every format that names an orientation.
func turned(t testing.TB, orientation uint16) map[string][]byte {
	t.Helper()
	exif := exifOf(binary.BigEndian, orientation)
	j, p := jpegOf(t, quadrants(40, 24)), pngOf(t, quadrants(40, 24))
	return map[string][]byte{
		mediaJPEG: join(j[:2], segment(jpegAPP1, exifHeader+exif), j[2:]),
		mediaPNG:  join(p[:len(p)-12], chunk("eXIf", exif), p[len(p)-12:]),
		mediaWebP: riffOf(vp8x(webpEXIF, 40, 24), riffChunk("VP8L", lossless(40, 24)), riffChunk("EXIF", exif)),
	}
}
