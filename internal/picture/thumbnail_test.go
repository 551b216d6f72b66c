package picture

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/color"
	"io"
	"runtime"
	"strings"
	"testing"
)

func TestThumbnailSize(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ width, height, edge, wantWidth, wantHeight int }{
		{40, 24, 20, 20, 12},
		{40, 24, 40, 40, 24},
		{40, 24, 4000, 40, 24},
		{24, 40, 20, 12, 20},
		{40, 24, 1, 1, 1},
		{1000, 1, 10, 10, 1},
		{1, 1000, 10, 1, 10},
		{3, 3, 2, 2, 2},
		{1, 1, 1, 1, 1},
		{101, 67, 100, 100, 66},
		{512, 257, 511, 511, 256},
	} {
		encoded, media, err := Thumbnail(t.Context(), bytes.NewReader(jpegOf(t, quadrants(c.width, c.height))), c.edge)
		if err != nil || media != mediaJPEG {
			t.Errorf("%v: got %s, %v, want a JPEG", c, media, err)
			continue
		}
		got, _, err := image.Decode(bytes.NewReader(encoded))
		if err != nil || got.Bounds() != image.Rect(0, 0, c.wantWidth, c.wantHeight) {
			t.Errorf("%v: got %v, %v, want that size", c, got.Bounds(), err)
		}
	}
	if _, _, err := Thumbnail(t.Context(), bytes.NewReader(jpegOf(t, quadrants(4, 4))), 0); err == nil {
		t.Error("a thumbnail without pixels: got no error")
	}
}

// TestThumbnailOfEachFormat checks media types, colours, and that metadata are gone.
func TestThumbnailOfEachFormat(t *testing.T) {
	t.Parallel()
	clear := quadrants(40, 24)
	for i := 3; i < len(clear.Pix); i += 4 * 40 {
		clear.Pix[i] = 0
	}
	small := paletted(40, 24)
	small.Rect = small.Rect.Add(image.Pt(40, 24)) // the lower right of 80 × 48
	files := map[string]struct {
		file  []byte
		media string
	}{
		"transparent PNG":          {pngOf(t, clear), mediaPNG},
		"GIF with a smaller frame": {gifOf(t, small), mediaPNG},
	}
	for _, s := range samples(t) {
		if s.width > 1 {
			files[s.name] = struct {
				file  []byte
				media string
			}{s.laden, mediaJPEG}
		}
	}
	for name, c := range files {
		encoded, media, err := Thumbnail(t.Context(), bytes.NewReader(c.file), 20)
		if err != nil || media != c.media {
			t.Errorf("%s: got %s, %v, want %s", name, media, err, c.media)
			continue
		}
		if bytes.Contains(encoded, []byte(secret)) {
			t.Errorf("%s: the thumbnail contains metadata", name)
		}
		got, _, err := image.Decode(bytes.NewReader(encoded))
		if err != nil || got.Bounds() != image.Rect(0, 0, 20, 12) {
			t.Errorf("%s: got %v, %v, want 20 × 12", name, got, err)
			continue
		}
		right := color.NRGBA{G: 200, A: 255}
		if strings.Contains(name, "frame") {
			right = color.NRGBA{}
			if inner := got.At(17, 7); !near(inner, color.NRGBA{G: 200, A: 255}) {
				t.Errorf("%s: got %v in the frame, want green", name, inner)
			}
		}
		if c := got.At(17, 2); !near(c, right) {
			t.Errorf("%s: got %v at the upper right, want %v", name, c, right)
		}
	}
}

// near reports whether two colours look the same.
func near(a color.Color, b color.Color) bool {
	r, g, bl, al := a.RGBA()
	r2, g2, bl2, al2 := b.RGBA()
	for _, pair := range [][2]uint32{{r, r2}, {g, g2}, {bl, bl2}, {al, al2}} {
		if max(pair[0], pair[1])-min(pair[0], pair[1]) > 40<<8 {
			return false
		}
	}
	return true
}

// TestThumbnailIsUpright checks the corners of a picture in every orientation. R, G, B and W are those of quadrants,
// from the upper left.
func TestThumbnailIsUpright(t *testing.T) {
	t.Parallel()
	colours := map[byte]color.Color{
		'R': color.NRGBA{R: 200, A: 255}, 'G': color.NRGBA{G: 200, A: 255}, 'B': color.NRGBA{B: 200, A: 255},
		'W': color.NRGBA{R: 230, G: 230, B: 230, A: 255},
	}
	for orientation, corners := range map[uint16]string{
		0: "RGBW", 1: "RGBW", 2: "GRWB", 3: "WBGR", 4: "BWRG", 5: "RBGW", 6: "BRWG", 7: "WGBR", 8: "GWRB", 99: "RGBW",
	} {
		for media, file := range turned(t, orientation) {
			encoded, _, err := Thumbnail(t.Context(), bytes.NewReader(file), 20)
			if err != nil {
				t.Fatalf("%s, orientation %d: %v", media, orientation, err)
			}
			got, _, err := image.Decode(bytes.NewReader(encoded))
			if err != nil {
				t.Fatal(err)
			}
			b, want := got.Bounds(), image.Pt(20, 12)
			if orientation >= 5 && orientation <= 8 {
				want = image.Pt(12, 20)
			}
			if b.Max != want {
				t.Errorf("%s, orientation %d: got %v, want %v", media, orientation, b.Max, want)
			}
			if media == mediaWebP {
				continue // the sample has two halves
			}
			for i, at := range []image.Point{{2, 2}, {b.Max.X - 3, 2}, {2, b.Max.Y - 3}, {b.Max.X - 3, b.Max.Y - 3}} {
				if c := got.At(at.X, at.Y); !near(c, colours[corners[i]]) {
					t.Errorf("%s, orientation %d: got %v at %v, want %c", media, orientation, c, at, corners[i])
				}
			}
		}
	}
}

// sofOf returns a JPEG of a size with components of the given sampling, and no data.
func sofOf(marker byte, width, height int, sampling ...byte) []byte {
	content := []byte{8, byte(height >> 8), byte(height), byte(width >> 8), byte(width), byte(len(sampling))}
	scan := []byte{byte(len(sampling))}
	for i, s := range sampling {
		content = append(content, byte(i+1), s, 0)
		scan = append(scan, byte(i+1), 0)
	}
	return join([]byte{0xff, jpegSOI}, segment(0xdb, "\x00"+strings.Repeat("\x01", 64)),
		segment(marker, string(content)),
		segment(jpegDHT, "\x00\x01"+strings.Repeat("\x00", 16)), segment(jpegDHT, "\x10\x01"+strings.Repeat("\x00", 16)),
		segment(jpegSOS, string(append(scan, 0, 63*(1-(marker&2)/2), 0))), []byte{0xff, jpegEOI})
}

// ihdrOf returns a PNG of a size, with broken data.
func ihdrOf(width, height uint32, depth, colour, interlaced byte, more ...[]byte) []byte {
	head := []byte{
		byte(width >> 24), byte(width >> 16), byte(width >> 8), byte(width),
		byte(height >> 24), byte(height >> 16), byte(height >> 8), byte(height), depth, colour, 0, 0, interlaced,
	}
	return join([]byte(pngSignature), chunk("IHDR", string(head)), join(more...),
		chunk("IDAT", "x\x9c"), chunk("IEND", ""))
}

// TestThumbnailBounds checks that memory is refused before anything is decoded: none of these files has any pixels, so
// the first use of a decoder makes them ErrBroken.
func TestThumbnailBounds(t *testing.T) {
	t.Parallel()
	gifHead := func(width, height int) []byte {
		size := []byte{byte(width), byte(width >> 8), byte(height), byte(height >> 8)}
		return join([]byte("GIF89a"), size, []byte{0x80, 0, 0}, make([]byte, 6),
			[]byte{gifFrame, 0, 0, 0, 0}, size, []byte{0, 2, 1, 0, 0})
	}
	large := sofOf(jpegSOF0, 7000, 7000, 0x22, 0x11, 0x11)
	rgb := segment(jpegAPP14, "Adobe\x00\x64\x00\x00\x00\x00\x00")
	big := lossless(9000, 9000)
	noFrame := join([]byte("GIF89a\x01\x00\x01\x00\x80\x00\x00"), make([]byte, 6),
		[]byte{gifFrame, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0x2c, 0, gifTrailer})
	none := riffChunk("VP8 ", "0123456789")
	transparent := riffOf(vp8x(webpAlpha, 4000, 4000), riffChunk("ALPH", "\x00"), none)
	tiny := jpegOf(t, quadrants(8, 8))
	deep := bytes.Replace(tiny, []byte{17, 8, 0, 8}, []byte{17, 12, 0, 8}, 1)
	arithmetic := bytes.Replace(tiny, []byte{0xff, 0xc0}, []byte{0xff, 0xc9}, 1)
	for name, c := range map[string]struct {
		file []byte
		want error
	}{
		"JPEG of 49 million pixels":              {sofOf(jpegSOF0, 7000, 7000, 0x22, 0x11, 0x11), ErrBroken},
		"JPEG of 100 million pixels":             {sofOf(jpegSOF0, 10000, 10000, 0x22, 0x11, 0x11), ErrTooLarge},
		"JPEG of 49 million pixels, all colours": {sofOf(jpegSOF0, 7000, 7000, 0x11, 0x11, 0x11), ErrTooLarge},
		"gray JPEG of 49 million pixels":         {sofOf(jpegSOF0, 7000, 7000, 0x11), ErrBroken},
		"JPEG of the largest size":               {sofOf(jpegSOF0, 65535, 65535, 0x11), ErrTooLarge},
		"CMYK JPEG of 16 million pixels":         {sofOf(jpegSOF0, 4000, 4000, 0x11, 0x11, 0x11, 0x11), ErrTooLarge},
		"RGB JPEG of 49 million pixels":          {join(large[:2], rgb, large[2:]), ErrTooLarge},
		"progressive JPEG of 9 million pixels":   {sofOf(jpegSOF2, 3000, 3000, 0x22, 0x11, 0x11), ErrBroken},
		"progressive JPEG of 16 million pixels":  {sofOf(jpegSOF2, 4000, 4000, 0x22, 0x11, 0x11), ErrTooLarge},
		"PNG of 20 million pixels":               {ihdrOf(5000, 4000, 8, 6, 0), ErrBroken},
		"PNG of 20 million pixels of 16 bits":    {ihdrOf(5000, 4000, 16, 6, 0), ErrTooLarge},
		"interlaced PNG of 20 million pixels":    {ihdrOf(5000, 4000, 8, 6, 1), ErrTooLarge},
		"gray PNG of 64 million pixels":          {ihdrOf(8000, 8000, 8, 0, 0), ErrBroken},
		"gray PNG of 64 million, transparent":    {ihdrOf(8000, 8000, 8, 0, 0, chunk("tRNS", "\x00\x00")), ErrTooLarge},
		"PNG of the largest size":                {ihdrOf(1<<31-1, 1<<31-1, 8, 6, 0), ErrTooLarge},
		"PNG of a size beyond the largest":       {ihdrOf(1<<32-1, 1<<32-1, 16, 6, 1), ErrTooLarge},
		"PNG with long rows of 16 bits":          {ihdrOf(4_000_000, 1, 16, 6, 0), ErrTooLarge},
		"GIF with an empty frame":                {noFrame, ErrBroken},
		"PNG with long rows":                     {ihdrOf(50_000_000, 1, 1, 0, 0), ErrTooLarge},
		"GIF of 49 million pixels":               {gifHead(7000, 7000), ErrBroken},
		"GIF of the largest size":                {gifHead(65535, 65535), ErrTooLarge},
		"lossless WebP of 81 million pixels":     {riffOf(riffChunk("VP8L", big[:30])), ErrTooLarge},
		"WebP of the largest size":               {riffOf(vp8x(0, 1<<24, 1<<24), none), ErrTooLarge},
		"WebP of 16 million pixels":              {riffOf(vp8x(0, 4000, 4000), none), ErrBroken},
		"transparent WebP of 16 million pixels":  {transparent, ErrTooLarge},
		"animated WebP":                          {fromBase64(t, animation), ErrUnsupported},
		"JPEG of 12 bits":                        {deep, ErrUnsupported},
		"arithmetic JPEG":                        {arithmetic, ErrUnsupported},
		"PNG of an unknown kind":                 {ihdrOf(1, 1, 7, 6, 0), ErrUnsupported},
	} {
		_, _, err := Thumbnail(t.Context(), bytes.NewReader(c.file), 256)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
	for name, c := range hostile(t) {
		if _, _, err := Thumbnail(t.Context(), bytes.NewReader(c.file), 256); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}

// zeros are a file of zeros behind its begin.
type zeros struct{ begin []byte }

func (z zeros) ReadAt(p []byte, at int64) (int, error) {
	clear(p)
	if at < int64(len(z.begin)) {
		copy(p, z.begin[at:])
	}
	return len(p), nil
}

// TestThumbnailOfLongData checks that the data of a WebP count, because its decoder holds them.
func TestThumbnailOfLongData(t *testing.T) {
	t.Parallel()
	const length = 80 << 20
	head := join(webpHead("RIFF", length+30), []byte("WEBP"), vp8x(0, 4000, 4000), webpHead("VP8 ", length))
	src := io.NewSectionReader(zeros{head}, 0, length+38)
	if _, _, err := Thumbnail(t.Context(), src, 16); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
}

// TestThumbnailOfSmallFrames checks frames of a GIF that are between the pixels of the thumbnail.
func TestThumbnailOfSmallFrames(t *testing.T) {
	t.Parallel()
	for size := range 7 {
		for at := range size + 1 {
			dot := paletted(1, 1)
			dot.Rect = dot.Rect.Add(image.Pt(at, at))
			file := gifOf(t, dot)
			file[6], file[8] = byte(size+1), byte(size+1) // the size of the whole picture
			encoded, _, err := Thumbnail(t.Context(), bytes.NewReader(file), 2)
			if err != nil {
				t.Fatalf("%d of %d: %v", at, size, err)
			}
			got, _, err := image.Decode(bytes.NewReader(encoded))
			if err != nil {
				t.Fatal(err)
			}
			visible := 0
			for i := range 4 {
				if _, _, _, a := got.At(i%2, i/2).RGBA(); a > 0 && image.Pt(i%2, i/2).In(got.Bounds()) {
					visible++
				}
			}
			if visible != 1 {
				t.Errorf("%d of %d: got %d pixels, want one", at, size, visible)
			}
		}
	}
}

// TestThumbnailOfManyScans checks that a small file cannot take minutes.
func TestThumbnailOfManyScans(t *testing.T) {
	t.Parallel()
	file := sofOf(jpegSOF2, 3000, 3000, 0x22, 0x11, 0x11)
	at := bytes.Index(file, []byte{0xff, jpegSOS})
	scan := file[at : len(file)-2]
	many := join(file[:at], bytes.Repeat(scan, maxScans+1), file[len(file)-2:])
	if _, _, err := Thumbnail(t.Context(), bytes.NewReader(many), 256); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
}

// TestMemoryEstimate measures what decoders allocate. It does not run in parallel, because the process is measured.
func TestMemoryEstimate(t *testing.T) {
	const side = 500
	full := quadrants(side, side)
	gray, deep, deepGray := image.NewGray(full.Rect), image.NewNRGBA64(full.Rect), image.NewGray16(full.Rect)
	deep.Pix[1] = 1
	interlaced := gifOf(t, paletted(side, side))
	interlaced[bytes.IndexByte(interlaced[13+12:], gifFrame)+13+12+9] |= 0x40
	rgb := sofOf(jpegSOF0, side, side, 0x11, 0x11, 0x11)
	for name, file := range map[string][]byte{
		"JPEG":                 jpegOf(t, full),
		"gray JPEG":            jpegOf(t, gray),
		"progressive JPEG":     sofOf(jpegSOF2, side, side, 0x22, 0x11, 0x11),
		"progressive, 4:1:0":   sofOf(jpegSOF2, side, side, 0x42, 0x11, 0x11),
		"progressive and gray": sofOf(jpegSOF2, side, side, 0x42),
		"JPEG of all colours":  rgb,
		"PNG":                  pngOf(t, full),
		"gray PNG":             pngOf(t, gray),
		"PNG of 16 bits":       pngOf(t, deep),
		"gray PNG of 16 bits":  pngOf(t, deepGray),
		"GIF":                  gifOf(t, paletted(side, side)),
		"interlaced GIF":       interlaced,
		"lossless WebP":        riffOf(riffChunk("VP8L", lossless(side, side))),
		"interlaced PNG":       ihdrOf(side, side, 8, 6, 1),
	} {
		l, err := read(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		in := &input{ctx: t.Context(), src: bytes.NewReader(file)}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = l.decode(in) // some files have no pixels: what decoders allocate before they see that counts
		runtime.ReadMemStats(&after)
		allocated, pixels := int64(after.TotalAlloc-before.TotalAlloc), int64(side*side)
		if allocated > l.decoded+200_000 || err == nil && l.decoded > 4*allocated+pixels {
			t.Errorf("%s: %d bytes were allocated, %d estimated (%v)", name, allocated, l.decoded, err)
		}
	}
}

// stopping ends a context with the last read that it allows.
type stopping struct {
	io.ReadSeeker
	left int
	stop context.CancelFunc
}

func (s *stopping) Read(p []byte) (int, error) {
	if s.left--; s.left == 0 {
		s.stop()
	}
	return s.ReadSeeker.Read(p[:min(512, len(p))])
}

// TestThumbnailEnds checks that each read may be the last one.
func TestThumbnailEnds(t *testing.T) {
	t.Parallel()
	noise := quadrants(100, 100)
	for i := range noise.Pix {
		if i%4 != 3 {
			noise.Pix[i] += byte(i * i >> 3)
		}
	}
	for name, file := range map[string][]byte{
		"JPEG": jpegOf(t, noise), "PNG": pngOf(t, noise), "GIF": gifOf(t, paletted(100, 100)),
		"WebP": riffOf(riffChunk("VP8L", lossless(500, 500))),
	} {
		for reads := 1; ; reads++ {
			ctx, stop := context.WithCancel(t.Context())
			src := &stopping{bytes.NewReader(file), reads, stop}
			_, _, err := Thumbnail(ctx, src, 16)
			stop()
			if src.left > 0 && err == nil {
				if reads < 3 {
					t.Errorf("%s: it was read at once", name)
				}
				break
			}
			if !errors.Is(err, context.Canceled) || src.left < 0 {
				t.Errorf("%s, read %d: got %v after %d more, want context.Canceled", name, reads, err, -src.left)
				break
			}
		}
	}
}

// counting ends a context with one of the pixels.
type counting struct {
	image.Image
	left int
	stop context.CancelFunc
}

func (c *counting) At(x, y int) color.Color {
	if c.left--; c.left == 0 {
		c.stop()
	}
	return c.Image.At(x, y)
}

// TestScaleEnds checks that scaling ends with the band in which the context does.
func TestScaleEnds(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	src := &counting{image.NewGray(image.Rect(0, 0, 1024, 2048)), 10, stop}
	dst := image.NewRGBA(image.Rect(0, 0, 8, 8))
	if err := scale(ctx, dst, dst.Rect, src); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if read := 10 - src.left; read > bandBytes {
		t.Errorf("got %d pixels, want those of one band", read)
	}
}

// TestScaleIsTheMean compares the result with means that are computed pixel by pixel.
func TestScaleIsTheMean(t *testing.T) {
	t.Parallel()
	src := image.NewRGBA(image.Rect(3, 5, 3+17, 5+13))
	for i := range src.Pix {
		src.Pix[i] = byte(i*i + 31*i)
	}
	for _, size := range []image.Point{{1, 1}, {2, 3}, {5, 4}, {8, 12}, {16, 13}, {17, 13}, {17, 1}} {
		got := image.NewRGBA(image.Rectangle{Max: size})
		if err := scale(t.Context(), got, got.Rect, src); err != nil {
			t.Fatal(err)
		}
		for i := range got.Pix {
			x, y, c := i/4%size.X, i/4/size.X, i%4
			sum := 0 // over parts, of which each pixel of src has size.X × size.Y
			for part := range 17 * 13 {
				fine := image.Pt(x*17+part%17, y*13+part/17)
				sum += int(src.Pix[src.PixOffset(3+fine.X/size.X, 5+fine.Y/size.Y)+c])
			}
			if want := (sum + 17*13/2) / (17 * 13); int(got.Pix[i]) != want {
				t.Fatalf("%v: got %d at %d, %d, channel %d, want %d", size, got.Pix[i], x, y, c, want)
			}
		}
	}
}
