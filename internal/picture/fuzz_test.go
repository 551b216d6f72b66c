package picture

import (
	"bytes"
	"errors"
	"image"
	"io"
	"testing"
)

// seed adds every sample and every hostile file.
func seed(f *testing.F) {
	f.Helper()
	for _, s := range samples(f) {
		f.Add(s.clean)
		f.Add(s.laden)
	}
	for _, file := range turned(f, 6) {
		f.Add(file)
	}
	for _, c := range hostile(f) {
		if len(c.file) < 10_000 {
			f.Add(c.file)
		}
	}
	f.Add(fromBase64(f, lossyPixel))
	f.Add(sofOf(jpegSOF2, 30, 30, 0x22, 0x11, 0x11))
}

// known reports whether Thumbnail and Plain name an error so.
func known(err error) bool {
	return errors.Is(err, ErrUnsupported) || errors.Is(err, ErrTooLarge) || errors.Is(err, ErrBroken)
}

func FuzzPlain(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, file []byte) {
		pieces, facts, err := Plain(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			if !known(err) {
				t.Fatalf("got %v, want an error of the package", err)
			}
			return
		}
		if len(pieces) > maxPieces || facts.Width < 1 || facts.Height < 1 {
			t.Fatalf("got %d pieces of %v", len(pieces), facts)
		}
		got, err := io.ReadAll(pieces.Reader(bytes.NewReader(file)))
		if err != nil || int64(len(got)) != pieces.Size() {
			t.Fatalf("got %d bytes, %v, want %d", len(got), err, pieces.Size())
		}
		again, same, err := Plain(bytes.NewReader(got), int64(len(got)))
		if err != nil || same != facts {
			t.Fatalf("the plain file: got %v, %v, want %v", same, err, facts)
		}
		if twice, err := io.ReadAll(again.Reader(bytes.NewReader(got))); err != nil || !bytes.Equal(twice, got) {
			t.Fatalf("the plain file changes when it is made plain again (%v)\nfrom %q\nto   %q", err, got, twice)
		}
	})
}

func FuzzThumbnail(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, file []byte) {
		const edge = 16
		encoded, media, err := Thumbnail(t.Context(), bytes.NewReader(file), edge)
		if err != nil {
			if !known(err) {
				t.Fatalf("got %v, want an error of the package", err)
			}
			return
		}
		got, format, err := image.Decode(bytes.NewReader(encoded))
		if err != nil || "image/"+format != media {
			t.Fatalf("got %s, %s, %v, want a picture", media, format, err)
		}
		if size := got.Bounds().Size(); size.X > edge || size.Y > edge {
			t.Fatalf("got %v, want at most %d × %d", size, edge, edge)
		}
	})
}
