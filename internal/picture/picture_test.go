package picture

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"image"
	"image/gif"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

// plain returns what Plain makes of a file.
func plain(t testing.TB, file []byte) ([]byte, Facts) {
	t.Helper()
	src := bytes.NewReader(file)
	pieces, facts, err := Plain(src, src.Size())
	if err != nil {
		t.Fatalf("got %v, want no error", err)
	}
	got, err := io.ReadAll(pieces.Reader(src))
	if err != nil {
		t.Fatalf("reading the pieces: %v", err)
	}
	return got, facts
}

// pixelsOf returns the decoded pictures of a file.
func pixelsOf(t testing.TB, file []byte) any {
	t.Helper()
	if bytes.HasPrefix(file, []byte("GIF")) {
		if file[len(file)-1] != gifTrailer {
			file = append(bytes.Clone(file), gifTrailer)
		}
		all, err := gif.DecodeAll(bytes.NewReader(file))
		if err != nil {
			t.Fatalf("decoding: %v", err)
		}
		return all
	}
	img, _, err := image.Decode(bytes.NewReader(file))
	if err != nil {
		t.Fatalf("decoding: %v", err)
	}
	return img
}

// TestPlainRemovesMetadata checks for every format that nothing but the metadata is removed.
func TestPlainRemovesMetadata(t *testing.T) {
	t.Parallel()
	for _, s := range samples(t) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			got, facts := plain(t, s.laden)
			if bytes.Contains(got, []byte(secret[:3])) {
				t.Errorf("the file contains its metadata: %q", got)
			}
			if !bytes.Equal(got, s.clean) {
				t.Errorf("got  %q\nwant %q", got, s.clean)
			}
			if facts.Width != s.width || facts.Height != s.height || !strings.HasPrefix(facts.Media, "image/") {
				t.Errorf("got %v, want %d × %d", facts, s.width, s.height)
			}
			again, _ := plain(t, got)
			if !bytes.Equal(again, got) {
				t.Errorf("the plain file changes when it is made plain again")
			}
			if s.name != "animated WebP" && !reflect.DeepEqual(pixelsOf(t, got), pixelsOf(t, decodable(s))) {
				t.Errorf("the pixels have changed")
			}
		})
	}
}

// decodable returns what a decoder of the standard library can read of a sample with metadata: it refuses an extension
// of a GIF that is malformed.
func decodable(s sample) []byte {
	if strings.HasPrefix(s.name, "GIF") {
		return bytes.ReplaceAll(s.laden, extension(0xf9, secret), nil)
	}
	return s.laden
}

func TestPlainKeepsOrientation(t *testing.T) {
	t.Parallel()
	for orientation := range uint16(9) {
		for media, file := range turned(t, orientation) {
			got, facts := plain(t, file)
			want := Facts{media, 40, 24}
			if orientation >= 5 {
				want = Facts{media, 24, 40}
			}
			if facts != want {
				t.Errorf("%s, orientation %d: got %v, want %v", media, orientation, facts, want)
			}
			l, err := read(bytes.NewReader(got), int64(len(got)))
			if err != nil || uint16(l.orientation) != max(1, orientation) {
				t.Errorf("%s, orientation %d: got %v, %v afterwards, want the same", media, orientation, l, err)
			}
			if media == mediaWebP && got[20] != map[bool]byte{orientation > 1: webpEXIF}[true] {
				t.Errorf("orientation %d: got flags %#x, want EXIF only if there is some", orientation, got[20])
			}
			if bytes.Contains(got, []byte(secret)) {
				t.Errorf("%s, orientation %d: the file contains its metadata", media, orientation)
			}
			if again, _ := plain(t, got); !bytes.Equal(again, got) {
				t.Errorf("%s, orientation %d: the plain file changes when it is made plain again", media, orientation)
			}
			if !reflect.DeepEqual(pixelsOf(t, got), pixelsOf(t, file)) {
				t.Errorf("%s, orientation %d: the pixels have changed", media, orientation)
			}
		}
	}
}

// TestOrientationBehindPixels checks that an orientation which browsers do not see is not taken for one.
func TestOrientationBehindPixels(t *testing.T) {
	t.Parallel()
	j := jpegOf(t, quadrants(40, 24))
	exif := exifOf(binary.BigEndian, 6)
	for name, file := range map[string][]byte{
		"JPEG": join(j[:len(j)-2], segment(jpegAPP1, exifHeader+exif), j[len(j)-2:]),
		"WebP": riffOf(riffChunk("VP8L", lossless(40, 24)), riffChunk("EXIF", exif)),
	} {
		if got, facts := plain(t, file); facts.Width != 40 || bytes.Contains(got, []byte(secret)) {
			t.Errorf("%s: got %v, want a width of 40", name, facts)
		}
	}
}

func TestOrientationOf(t *testing.T) {
	t.Parallel()
	little := exifOf(binary.LittleEndian, 8)
	for name, c := range map[string]struct {
		exif string
		want uint8
	}{
		"big endian":                 {exifOf(binary.BigEndian, 3), 3},
		"little endian":              {little, 8},
		"with the header of JPEG":    {exifHeader + little, 8},
		"orientation 0":              {exifOf(binary.BigEndian, 0), 1},
		"orientation 99":             {exifOf(binary.BigEndian, 99), 1},
		"empty":                      {"", 1},
		"no directory":               {"MM\x00\x2a\x00\x00\x00\x08", 1},
		"directory behind the end":   {"MM\x00\x2a\xff\xff\xff\xff\x00\x01", 1},
		"directory is the header":    {"MM\x00\x2a\x00\x00\x00\x00", 1},
		"fewer entries than claimed": {"MM\x00\x2a\x00\x00\x00\x08\xff\xff\x01\x0e\x00\x02", 1},
		"no byte order":              {"XX" + exifOf(binary.BigEndian, 6)[2:], 1},
		"a long":                     {strings.Replace(little, "\x12\x01\x03", "\x12\x01\x04", 1), 1},
		"two values":                 {strings.Replace(little, "\x03\x00\x01", "\x03\x00\x02", 1), 1},
	} {
		if got := orientationOf([]byte(c.exif)); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

// hostile returns files that lie, with the error that they cause.
func hostile(t testing.TB) map[string]struct {
	file []byte
	want error
} {
	t.Helper()
	j, p, g := jpegOf(t, quadrants(40, 24)), pngOf(t, quadrants(40, 24)), gifOf(t, paletted(40, 24))
	scan := bytes.Index(j, []byte{0xff, jpegSOS})
	comment := segment(0xfe, "c")
	size := func(width, components, sampling byte) []byte {
		return []byte{0xff, jpegSOF0, 0, 11, 8, 0, 1, 0, width, components, 1, sampling, 0}
	}
	restart := []byte{0xff, 0xdd, 0, 4, 0, 0}
	data, end := bytes.Index(p, []byte("IDAT"))-4, len(p)-12
	narrow := chunk("IHDR", "\x00\x00\x00\x00\x00\x00\x00\x01\x08\x02\x00\x00\x00")
	repeat := func(chunks ...[]byte) []byte { return bytes.Repeat(join(chunks...), 5000) }
	texts := repeat(chunk("tEXt", ""), chunk("gAMA", "1234"))
	frame := 13 + int(gifColours(g[10]))
	comments := repeat(extension(0xfe, "c"), extension(0xf9, "1234"))
	endless := append([]byte{gifExtension, 0xfe}, bytes.Repeat([]byte{1}, 100_001)...)
	pixels, junk := riffChunk("VP8L", lossless(40, 24)), repeat(riffChunk("JUNK", ""), riffChunk("ICCP", ""))
	still := riffOf(pixels)
	longer := riffChunk("VP8X", "\x00\x00\x00\x00\x27\x00\x00\x17\x00\x0012")
	long := func(riff []byte, at int, length uint32) []byte {
		riff = bytes.Clone(riff)
		binary.LittleEndian.PutUint32(riff[at:], length)
		return riff
	}
	frames := func(content string) []byte {
		return riffOf(vp8x(webpAnimated, 1, 1), riffChunk("ANMF", strings.Repeat("\x00", 16)+content))
	}
	return map[string]struct {
		file []byte
		want error
	}{
		"empty":                            {nil, ErrUnsupported},
		"one byte":                         {[]byte{0xff}, ErrUnsupported},
		"text":                             {[]byte("hello, this is a text"), ErrUnsupported},
		"a bitmap":                         {[]byte("BM\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), ErrUnsupported},
		"SVG":                              {[]byte("<svg xmlns='http://www.w3.org/2000/svg'/>"), ErrUnsupported},
		"a wave":                           {[]byte("RIFF\x04\x00\x00\x00WAVE"), ErrUnsupported},
		"JPEG: no end":                     {j[:len(j)-2], ErrBroken},
		"JPEG: no scan":                    {join(j[:scan], []byte{0xff, jpegEOI}), ErrBroken},
		"JPEG: no size":                    {join(j[:2], j[scan:]), ErrBroken},
		"JPEG: only 255":                   {[]byte{0xff, 0xd8, 0xff}, ErrBroken},
		"JPEG: many 255":                   {append([]byte{0xff, 0xd8}, bytes.Repeat([]byte{0xff}, 200_000)...), ErrBroken},
		"JPEG: segment without a length":   {join(j[:2], []byte{0xff, 0xe1, 0, 0}, j[2:]), ErrBroken},
		"JPEG: segment of 1 byte":          {join(j[:2], []byte{0xff, 0xe1, 0, 1}, j[2:]), ErrBroken},
		"JPEG: segment longer than it":     {join(j[:2], []byte{0xff, 0xe1, 0xff, 0xff}, j[2:]), ErrBroken},
		"JPEG: a picture in it":            {join(j[:2], j), ErrBroken},
		"JPEG: two sizes":                  {join(j[:2], size(1, 1, 0x11), j[2:]), ErrBroken},
		"JPEG: a component without a size": {join(j[:2], size(1, 1, 0x01), j[scan:]), ErrBroken},
		"JPEG: no width":                   {join(j[:2], size(0, 1, 0x11), j[scan:]), ErrBroken},
		"JPEG: fewer components":           {join(j[:2], size(1, 3, 0x11), j[scan:]), ErrBroken},
		"JPEG: half a size":                {join(j[:2], segment(jpegSOF0, "\x08\x00\x01\x00\x01"), j[scan:]), ErrBroken},
		"JPEG: no components":              {join(j[:2], segment(jpegSOF0, "\x08\x00\x01\x00\x01\x00"), j[scan:]), ErrBroken},
		"JPEG: an unknown segment":         {join(j[:2], segment(0x40, "x"), j[2:]), ErrBroken},
		"JPEG: thousands of comments":      {join(j[:2], repeat(comment, restart), j[2:]), ErrTooLarge},
		"PNG: only its signature":          {[]byte(pngSignature), ErrBroken},
		"PNG: no header":                   {join(p[:8], p[pngHeadEnd:]), ErrBroken},
		"PNG: a header of 12 bytes":        {join(p[:8], chunk("IHDR", "123456789012"), p[pngHeadEnd:]), ErrBroken},
		"PNG: a header of another length":  {bytes.Replace(p, []byte("\x0dIHDR"), []byte("\x0cIHDR"), 1), ErrBroken},
		"PNG: two headers":                 {join(p[:pngHeadEnd], p[8:]), ErrBroken},
		"PNG: no width":                    {join(p[:8], narrow, p[pngHeadEnd:]), ErrBroken},
		"PNG: no pixels":                   {join(p[:data], p[end:]), ErrBroken},
		"PNG: no end":                      {p[:end], ErrBroken},
		"PNG: chunk of 2^32-1":             {join(p[:data], []byte("\xff\xff\xff\xfftEXt"), p[data:]), ErrBroken},
		"PNG: EXIF of 2^31":                {join(p[:data], []byte("\x80\x00\x00\x00eXIf"), p[data:]), ErrBroken},
		"PNG: unknown critical chunk":      {join(p[:pngHeadEnd], chunk("CgBI", "1234"), p[pngHeadEnd:]), ErrUnsupported},
		"PNG: thousands of chunks":         {join(p[:data], texts, p[data:]), ErrTooLarge},
		"GIF: only its header":             {g[:13], ErrBroken},
		"GIF: colours behind the end":      {join(g[:10], []byte{0xf7, 0, 0}), ErrBroken},
		"GIF: no frame":                    {join(g[:frame], []byte{gifTrailer}), ErrBroken},
		"GIF: unknown block":               {join(g[:frame], []byte{0x00}, g[frame:]), ErrBroken},
		"GIF: endless blocks":              {join(g[:frame], endless), ErrBroken},
		"GIF: half an extension":           {join(g[:frame], []byte{gifExtension}), ErrBroken},
		"GIF: no width":                    {join(g[:6], []byte{0, 0}, g[8:]), ErrBroken},
		"GIF: thousands of comments":       {join(g[:frame], comments, g[frame:]), ErrTooLarge},
		"WebP: only its header":            {still[:12], ErrBroken},
		"WebP: of 2^32-1":                  {long(still, 4, 1<<32-1), ErrBroken},
		"WebP: empty":                      {riffOf(), ErrBroken},
		"WebP: chunk of 2^31":              {long(still, 16, 1<<31), ErrBroken},
		"WebP: chunk one longer":           {long(still, 16, uint32(len(lossless(40, 24))+2)), ErrBroken},
		"WebP: half a chunk":               {riffOf(pixels, []byte("EXIF")), ErrBroken},
		"WebP: no pixels":                  {riffOf(vp8x(0, 1, 1), riffChunk("ICCP", "x")), ErrBroken},
		"WebP: two pictures":               {riffOf(pixels, pixels), ErrBroken},
		"WebP: two headers":                {riffOf(vp8x(0, 40, 24), vp8x(0, 40, 24), pixels), ErrBroken},
		"WebP: a header at the end":        {riffOf(pixels, vp8x(0, 40, 24)), ErrBroken},
		"WebP: a header of 9 bytes":        {riffOf(riffChunk("VP8X", "123456789"), pixels), ErrBroken},
		"WebP: a header of 12 bytes":       {riffOf(longer, pixels), ErrBroken},
		"WebP: a chunk longer than it":     {join(long(still, 16, uint32(len(still)-12)), make([]byte, 100)), ErrBroken},
		"WebP: no size":                    {riffOf(riffChunk("VP8 ", "1234567890")), ErrBroken},
		"WebP: a frame without a size":     {riffOf(vp8x(webpAnimated, 1, 1), riffChunk("ANMF", "1234567890")), ErrBroken},
		"WebP: metadata in a frame":        {frames(string(riffChunk("EXIF", secret))), ErrBroken},
		"WebP: chunk longer than a frame":  {frames("VP8L\xff\xff\xff\xff"), ErrBroken},
		"WebP: thousands of chunks":        {riffOf(pixels, junk), ErrTooLarge},
	}
}

func TestPlainRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range hostile(t) {
		if _, _, err := Plain(bytes.NewReader(c.file), int64(len(c.file))); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}

// TestPlainOfParts checks that no part of a picture from its begin passes for a picture.
func TestPlainOfParts(t *testing.T) {
	t.Parallel()
	for _, s := range samples(t) {
		whole := s.laden
		if at := bytes.LastIndex(whole, []byte(secret)); at > 0 && s.name != "GIF without its trailer" {
			whole = s.clean
		}
		for n := range len(whole) {
			_, _, err := Plain(bytes.NewReader(whole[:n]), int64(n))
			if err == nil && !strings.HasPrefix(s.name, "GIF") || err != nil && !errors.Is(err, ErrBroken) && n >= 12 {
				t.Errorf("%s, %d of %d bytes: got %v, want ErrBroken", s.name, n, len(whole), err)
			}
			// The size may also be wrong.
			if _, _, err := Plain(bytes.NewReader(whole), int64(n)); !errors.Is(err, ErrBroken) && n >= 12 &&
				!strings.HasPrefix(s.name, "GIF") {
				t.Errorf("%s, size %d of %d: got %v, want ErrBroken", s.name, n, len(whole), err)
			}
		}
	}
}

// TestPlainReadError checks that an error of reading is not taken for a fault of the picture.
func TestPlainReadError(t *testing.T) {
	t.Parallel()
	for _, s := range samples(t) {
		failed := errors.New("failed")
		src := &failing{ReadSeeker: bytes.NewReader(s.laden), err: failed}
		if _, _, err := Plain(src, int64(len(s.laden))); !errors.Is(err, failed) {
			t.Errorf("%s: got %v, want the error of reading", s.name, err)
		}
	}
}

// failing reads 10 bytes and fails.
type failing struct {
	io.ReadSeeker
	err  error
	read bool
}

func (f *failing) Read(p []byte) (int, error) {
	if f.read {
		return 0, f.err
	}
	f.read = true
	return f.ReadSeeker.Read(p[:min(10, len(p))])
}

// TestPlainPadsWebP checks that the byte which follows a chunk of odd length may be absent.
func TestPlainPadsWebP(t *testing.T) {
	t.Parallel()
	content := lossless(40, 24)
	if len(content)%2 == 0 {
		content += "\x00"
	}
	want := riffOf(riffChunk("VP8L", content))
	short := riffOf(riffChunk("VP8L", content)[:8+len(content)])
	if got, _ := plain(t, short); !bytes.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	last := riffOf(riffChunk("VP8L", content), riffChunk("XMP ", "odd")[:8+3])
	if got, _ := plain(t, last); !bytes.Equal(got, want) {
		t.Errorf("before metadata: got  %q\nwant %q", got, want)
	}
}

// TestPlanIsBounded checks that a file with many pieces takes no memory for them.
func TestPlanIsBounded(t *testing.T) {
	t.Parallel()
	var p plan
	for i := range int64(10_000) {
		p.keep(2*i, 1)
	}
	if len(p.pieces) > maxPieces+1 {
		t.Errorf("got %d pieces, want at most %d", len(p.pieces), maxPieces+1)
	}
}

func TestPieces(t *testing.T) {
	t.Parallel()
	original := bytes.NewReader([]byte("0123456789"))
	pieces := Pieces{
		{From: 2, Length: 3}, {Bytes: []byte("ab")}, {}, {From: 0, Length: 2}, {Bytes: []byte("c")}, {From: 9, Length: 1}, {},
	}
	stored, err := json.Marshal(pieces)
	if err != nil {
		t.Fatal(err)
	}
	var loaded Pieces
	if err := json.Unmarshal(stored, &loaded); err != nil || !reflect.DeepEqual(loaded, pieces) {
		t.Errorf("got %v, %v from %s, want the same pieces", loaded, err, stored)
	}
	r := loaded.Reader(original)
	if r.Size() != 9 {
		t.Errorf("got size %d, want 9", r.Size())
	}
	if err := iotest.TestReader(r, []byte("234ab01c9")); err != nil {
		t.Error(err)
	}
	if _, err := r.Seek(-1, io.SeekStart); err == nil {
		t.Error("seeking before the begin: got no error")
	}
	if _, err := r.Seek(0, 7); err == nil {
		t.Error("seeking from nowhere: got no error")
	}
	short := Pieces{{From: 8, Length: 5}}.Reader(original)
	if got, err := io.ReadAll(short); string(got) != "89" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("an original that is too short: got %q, %v, want 89 and io.ErrUnexpectedEOF", got, err)
	}
}
