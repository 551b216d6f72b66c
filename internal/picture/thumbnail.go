package picture

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/draw"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"

	"golang.org/x/image/webp"
)

const (
	maxMemory = 100 << 20 // bytes that one thumbnail may need, by estimate
	maxScans  = 200       // of a progressive JPEG, each of which passes all pixels; encoders write about ten
	bandBytes = 1 << 20   // of the pixels that are converted at a time
	quality   = 85        // of JPEG
)

// Thumbnail returns the picture scaled to fit into edge × edge pixels, upright (EXIF orientation is honoured) and
// without metadata: as JPEG if it is opaque, as PNG otherwise. It never enlarges. Of animations it shows the first
// frame; an animated WebP is ErrUnsupported. media is the media type of the result.
//
// Errors: ErrUnsupported; ErrTooLarge if decoding would need more than 100 MiB, if a JPEG has more than 200 scans, or
// as for Plain; ErrBroken; errors of reading; the context's error, soon after the context has ended. The memory is
// estimated before anything is decoded. Not included are the codes of a lossless WebP: a file that was made for that
// can take 130 MiB more.
func Thumbnail(ctx context.Context, src io.ReadSeeker, edge int) (encoded []byte, media string, err error) {
	if edge < 1 {
		return nil, "", fmt.Errorf("a thumbnail of %d pixels: want at least 1", edge)
	}
	in := &input{ctx: ctx, src: src}
	size, err := in.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, "", err
	}
	l, err := read(in, size)
	if err != nil {
		return nil, "", err
	}
	width, height := fit(l.width, l.height, int64(edge))
	if l.memory(width, height) > maxMemory || l.scans > maxScans {
		return nil, "", ErrTooLarge
	}
	full, err := l.decode(in)
	if err != nil {
		return nil, "", err
	}
	small := image.NewRGBA(image.Rect(0, 0, int(width), int(height)))
	if err := scale(ctx, small, place(full.Bounds(), l, small.Rect), full); err != nil {
		return nil, "", err
	}
	small = turn(small, l.orientation)
	var out bytes.Buffer
	if small.Opaque() {
		err = jpeg.Encode(&out, small, &jpeg.Options{Quality: quality})
		return out.Bytes(), mediaJPEG, err
	}
	err = png.Encode(&out, small)
	return out.Bytes(), mediaPNG, err
}

// input is a source that ends with a context. It keeps the first error of reading, because decoders hide it in theirs.
type input struct {
	ctx context.Context
	src io.ReadSeeker
	err error
}

func (i *input) Read(p []byte) (n int, err error) {
	if err = i.ctx.Err(); err == nil {
		n, err = i.src.Read(p)
	}
	i.note(err)
	return n, err
}

func (i *input) Seek(offset int64, whence int) (at int64, err error) {
	if err = i.ctx.Err(); err == nil {
		at, err = i.src.Seek(offset, whence)
	}
	i.note(err)
	return at, err
}

func (i *input) note(err error) {
	if err != nil && !errors.Is(err, io.EOF) && i.err == nil {
		i.err = err
	}
}

// memory returns about how many bytes a thumbnail of that size needs.
func (l *layout) memory(width, height int64) int64 {
	band := max(bandBytes, 4*l.width)
	result := 2*4*area(width, height) + 3*8*4*width // before and after it is turned, and the sums of its rows
	return l.decoded + band + result
}

// decode returns the first frame.
func (l *layout) decode(in *input) (img image.Image, err error) {
	r := bufio.NewReader(l.parts.pieces.Reader(in))
	switch {
	case l.animated:
		return nil, fmt.Errorf("%w: it is an animated WebP", ErrUnsupported)
	case l.media == mediaJPEG:
		img, err = jpeg.Decode(r)
	case l.media == mediaPNG:
		img, err = png.Decode(r)
	case l.media == mediaGIF:
		img, err = gif.Decode(r)
	default:
		img, err = webp.Decode(r)
	}
	var unsupported jpeg.UnsupportedError
	var unsupportedPNG png.UnsupportedError
	switch {
	case in.err != nil:
		return nil, in.err
	case errors.As(err, &unsupported), errors.As(err, &unsupportedPNG):
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrBroken, err)
	case img.Bounds().Empty():
		return nil, broken("it has no pixels")
	}
	return img, nil
}

// fit returns the size of a picture of that width and height within edge × edge, at least 1 and never more than before.
func fit(width, height, edge int64) (int64, int64) {
	longest := max(width, height)
	if longest <= edge {
		return width, height
	}
	part := func(n int64) int64 { return max(1, (n*edge+longest/2)/longest) }
	return part(width), part(height)
}

// place returns where the frame is in the thumbnail. A frame of a GIF may be smaller than the picture.
func place(frame image.Rectangle, l *layout, all image.Rectangle) image.Rectangle {
	span := func(from, to int, length int64, scaled int) (int, int) {
		begin := int(int64(from) * int64(scaled) / length)
		end := int((int64(to)*int64(scaled) + length - 1) / length)
		return begin, min(end, begin+to-from)
	}
	x0, x1 := span(frame.Min.X, frame.Max.X, l.width, all.Dx())
	y0, y1 := span(frame.Min.Y, frame.Max.Y, l.height, all.Dy())
	return image.Rect(x0, y0, x1, y1)
}

// scale draws src into the rectangle of dst, which is not larger than src: each pixel is the mean of the area that it
// covers. It converts src in bands, before each of which it returns the error of a context that has ended.
func scale(ctx context.Context, dst *image.RGBA, to image.Rectangle, src image.Image) error {
	from := src.Bounds()
	width, height := from.Dx(), from.Dy()
	high := max(1, bandBytes/(4*width))
	band := image.NewRGBA(image.Rect(0, 0, width, min(high, height)))
	m := mean{
		width: width, height: height, dst: dst, to: to,
		row: make([]uint64, 4*to.Dx()), now: make([]uint64, 4*to.Dx()), next: make([]uint64, 4*to.Dx()),
	}
	for y := 0; y < height; y += high {
		if err := ctx.Err(); err != nil {
			return err
		}
		rows := min(high, height-y)
		draw.Draw(band, image.Rect(0, 0, width, rows), src, from.Min.Add(image.Pt(0, y)), draw.Src)
		for i := range rows {
			m.add(y+i, band.Pix[i*band.Stride:][:4*width])
		}
	}
	return nil
}

// mean sums the pixels of a picture, row by row, weighted by the area that they share with a pixel of the result.
type mean struct {
	width, height int
	dst           *image.RGBA
	to            image.Rectangle
	row           []uint64 // sums along the last row, 4 channels for each pixel of the result
	now, next     []uint64 // sums of the row of the result that is not complete, and of the one after it
}

// add adds row y. A row of the result that it completes is written.
func (m *mean) add(y int, pix []uint8) {
	shares(m.row, pix, m.width, m.to.Dx())
	// In units of 1/height of a row of the result, the row of the source reaches from begin to end.
	begin, end := y*m.to.Dy(), (y+1)*m.to.Dy()
	line := begin / m.height
	border := (line + 1) * m.height
	weight := uint64(min(end, border) - begin)
	over := uint64(max(0, end-border))
	for i, sum := range m.row {
		m.now[i] += sum * weight
		m.next[i] += sum * over
	}
	if end < border {
		return
	}
	total := uint64(m.width) * uint64(m.height)
	out := m.dst.Pix[m.dst.PixOffset(m.to.Min.X, m.to.Min.Y+line):]
	for i, sum := range m.now {
		out[i] = uint8((sum + total/2) / total)
	}
	m.now, m.next = m.next, m.now
	clear(m.next)
}

// shares sets sums to the weighted sums of a row of width pixels, for the pixels of a row of small ones. All weights of
// a sum make width.
func shares(sums []uint64, pix []uint8, width, small int) {
	clear(sums)
	at, left := 0, width // the pixel of the result, and what is left of it
	for ; len(pix) >= 4; pix = pix[4:] {
		weight := min(small, left)
		s := sums[at : at+4 : at+4]
		for c := range s {
			s[c] += uint64(pix[c]) * uint64(weight)
		}
		if left -= weight; left > 0 {
			continue
		}
		if at, left = at+4, width; at == len(sums) {
			return
		}
		if rest := small - weight; rest > 0 {
			for c := range 4 {
				sums[at+c] += uint64(pix[c]) * uint64(rest)
			}
			left -= rest
		}
	}
}

// turn returns the picture upright. The orientation is that of EXIF, 1 to 8.
func turn(src *image.RGBA, orientation uint8) *image.RGBA {
	w, h := src.Rect.Dx(), src.Rect.Dy()
	if orientation < 2 || orientation > 8 {
		return src
	}
	size := image.Rect(0, 0, w, h)
	if orientation >= 5 {
		size = image.Rect(0, 0, h, w)
	}
	dst := image.NewRGBA(size)
	for y := range size.Dy() {
		for x := range size.Dx() {
			var from image.Point
			switch orientation {
			case 2:
				from = image.Pt(w-1-x, y)
			case 3:
				from = image.Pt(w-1-x, h-1-y)
			case 4:
				from = image.Pt(x, h-1-y)
			case 5:
				from = image.Pt(y, x)
			case 6:
				from = image.Pt(y, h-1-x)
			case 7:
				from = image.Pt(w-1-y, h-1-x)
			case 8:
				from = image.Pt(w-1-y, x)
			}
			dst.SetRGBA(x, y, src.RGBAAt(from.X, from.Y))
		}
	}
	return dst
}
