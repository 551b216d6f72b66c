package chart

import (
	"bytes"
	"errors"
	"image"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestPNG draws every kind of chart: colours of each series, and ink of texts, are in the picture. With the variable set,
// the pictures are written to that folder to be looked at.
func TestPNG(t *testing.T) {
	t.Parallel()
	sheet, err := os.ReadFile("../layout/assets/report.css")
	if err != nil {
		t.Fatal(err)
	}
	colours, err := ReadPalette(string(sheet))
	if err != nil {
		t.Fatal(err)
	}
	ground, err := os.ReadFile("../layout/assets/console.css")
	if err != nil {
		t.Fatal(err)
	}
	more, err := ReadPalette(string(ground))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range more {
		colours[name] = c
	}
	times := make([]time.Time, 12)
	for i := range times {
		times[i] = time.Date(2026, time.Month(i+1), 1, 0, 0, 0, 0, time.UTC)
	}
	labels := Axis{Title: "Country", Labels: []string{"Germany", "France", "Österreich", "Ελλάδα", "Україна"}}
	months := Axis{Title: "Month", Times: times, Step: Month}
	one := []Series{{Name: "count", Values: []float64{12, 7, 5, 3, -2}, Sums: true}}
	two := []Series{
		{Name: "Ada", Values: []float64{1, 4, 2, 8, 5, 7, 1, 2, 3, 4, 5, 6}, Sums: true},
		{Name: "Bob", Values: []float64{2, 1, math.NaN(), 3, 5, 8, 9, 7, 3, 2, 2, 1}, Sums: true},
	}
	for name, c := range map[string]*Chart{
		"bars":    {Kind: Bar, Measure: "count", Over: labels, Series: one},
		"time":    {Kind: Bar, Measure: "count", Over: months, Series: two[:1]},
		"lines":   {Kind: Line, Measure: "count", Over: months, Series: two},
		"area":    {Kind: Area, Measure: "count", Over: months, Series: two[:1]},
		"stacked": {Kind: Area, Measure: "count", Over: months, Series: two, Parts: true},
		"pie":     {Kind: Pie, Measure: "count", Over: labels, Series: []Series{{Name: "count", Values: []float64{12, 7, 5, 3, 2}, Sums: true}}},
		"heat":    {Kind: Heat, Measure: "count", Over: months, Series: two, Parts: true},
	} {
		c.Formatter = plain{}
		c.Prepare()
		file, width, height, err := c.PNG(colours)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if dir := os.Getenv("TENANTRY_TEST_PICTURES"); dir != "" {
			if err := os.WriteFile(filepath.Join(dir, name+".png"), file, 0o600); err != nil {
				t.Error(err)
			}
		}
		picture, err := png.Decode(bytes.NewReader(file))
		if err != nil || picture.Bounds().Dx() < width*2 || picture.Bounds().Dy() < height*2 || len(file) > 100<<10 {
			t.Errorf("%s: %d bytes, %v", name, len(file), err)
			continue
		}
		wanted := []string{"ink", "c1"}
		if len(c.Series) > 1 && c.Kind != Heat {
			wanted = append(wanted, "c2")
		}
		if c.Kind == Heat {
			wanted[1] = "h7"
		}
		for _, colour := range wanted {
			if !shows(picture, colours, colour) {
				t.Errorf("%s: %s is not in the picture", name, colour)
			}
		}
	}
	c := &Chart{Kind: Bar, Measure: "count", Over: Axis{Labels: []string{"日本"}}, Series: []Series{{Values: []float64{1}}}, Formatter: plain{}}
	c.Prepare()
	if _, _, _, err := c.PNG(colours); !errors.Is(err, ErrLetters) {
		t.Errorf("letters that the font lacks: got %v", err)
	}
}

// shows reports whether a picture has many pixels of a colour.
func shows(picture image.Image, colours Palette, name string) bool {
	n, want := 0, colours[name]
	for y := range picture.Bounds().Dy() {
		for x := range picture.Bounds().Dx() {
			if r, g, b, _ := picture.At(x, y).RGBA(); uint8(r>>8) == want.R && uint8(g>>8) == want.G && uint8(b>>8) == want.B {
				n++
			}
		}
	}
	return n > 20
}
