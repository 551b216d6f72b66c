package layout

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// rgb is a colour in linear light, with components from 0 to 1.
type rgb [3]float64

func colour(t *testing.T, text string) (c rgb) {
	t.Helper()
	if text = strings.TrimPrefix(text, "#"); len(text) == 3 {
		text = string([]byte{text[0], text[0], text[1], text[1], text[2], text[2]})
	}
	for i := range c {
		n, err := strconv.ParseUint(text[2*i:2*i+2], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		if c[i] = float64(n) / 255; c[i] <= 0.04045 {
			c[i] /= 12.92
		} else {
			c[i] = math.Pow((c[i]+0.055)/1.055, 2.4)
		}
	}
	return c
}

func (c rgb) times(m [3]rgb) (out rgb) {
	for i, row := range m {
		out[i] = min(max(row[0]*c[0]+row[1]*c[1]+row[2]*c[2], 0), 1)
	}
	return out
}

// contrast returns the contrast ratio of WCAG.
func contrast(a, b rgb) float64 {
	light := func(c rgb) float64 { return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2] + 0.05 }
	return max(light(a), light(b)) / min(light(a), light(b))
}

// difference returns the distance of two colours in OKLab, in hundredths.
func difference(a, b rgb) float64 {
	lab := func(c rgb) rgb {
		l := c.times([3]rgb{{0.4122214708, 0.5363325363, 0.0514459929}, {0.2119034982, 0.6806995451, 0.1073969566}, {0.0883024619, 0.2817188376, 0.6299787005}})
		for i := range l {
			l[i] = math.Cbrt(l[i])
		}
		return rgb{0.2104542553*l[0] + 0.793617785*l[1] - 0.0040720468*l[2], 1.9779984951*l[0] - 2.428592205*l[1] + 0.4505937099*l[2], 0.0259040371*l[0] + 0.7827717662*l[1] - 0.808675766*l[2]}
	}
	x, y := lab(a), lab(b)
	return 100 * math.Sqrt((x[0]-y[0])*(x[0]-y[0])+(x[1]-y[1])*(x[1]-y[1])+(x[2]-y[2])*(x[2]-y[2]))
}

// TestColoursOfPictures checks that the colours of charts contrast with their background, and that people with colour
// blindness can tell them apart.
func TestColoursOfPictures(t *testing.T) {
	t.Parallel()
	// Machado, Oliveira and Fernandes, 2009: protanopia, deuteranopia, tritanopia.
	eyes := [][3]rgb{
		{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
		{{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
		{{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
		{{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}},
	}
	var sheets [3]string // the variables of the light theme, the dark theme and print; the last definition counts
	for _, name := range []string{"console.css", "report.css"} {
		raw, err := assets.ReadFile("assets/" + name)
		if err != nil {
			t.Fatal(err)
		}
		roots := regexp.MustCompile(`:root \{([^}]*)\}`).FindAllStringSubmatch(string(raw), -1)
		sheets[0] += roots[0][1]
		sheets[1] += roots[1][1]
		sheets[2] += roots[len(roots)-1][1]
	}
	for i, theme := range []string{"light", "dark", "print"} {
		value := func(name string) rgb {
			all := regexp.MustCompile(`--`+name+`: (#[0-9a-f]{3,6});`).FindAllStringSubmatch(sheets[i], -1)
			if len(all) == 0 {
				t.Fatalf("%s has no --%s", theme, name)
			}
			return colour(t, all[len(all)-1][1])
		}
		paper := value("paper")
		for _, text := range []string{"ink", "soft"} {
			if got := contrast(value(text), paper); got < 4.5 {
				t.Errorf("%s: contrast of --%s = %.1f, want at least 4.5", theme, text, got)
			}
		}
		names := []string{"c1", "c2", "c3", "c4", "c5", "c6", "rest"}
		for j, name := range names {
			if got := contrast(value(name), paper); got < 3 {
				t.Errorf("%s: contrast of --%s = %.1f, want at least 3", theme, name, got)
			}
			for _, other := range names[:j] {
				for k, eye := range eyes {
					if got := difference(value(name).times(eye), value(other).times(eye)); got < 6 {
						t.Errorf("%s: difference of --%s and --%s for eye %d = %.1f, want at least 6", theme, name, other, k, got)
					}
				}
			}
		}
		for shade := 1; shade <= 7; shade++ {
			on := map[bool]string{true: "on-low", false: "on-high"}[shade < 4]
			if shade == 4 {
				on = "on-middle"
			}
			if got := contrast(value("h"+strconv.Itoa(shade)), value(on)); got < 4.5 {
				t.Errorf("%s: contrast of text on shade %d = %.1f, want at least 4.5", theme, shade, got)
			}
			if shade == 1 {
				continue
			}
			if got := difference(value("h"+strconv.Itoa(shade)), value("h"+strconv.Itoa(shade-1))); got < 5 {
				t.Errorf("%s: difference of shades %d and %d = %.1f, want at least 5", theme, shade-1, shade, got)
			}
		}
	}
}
