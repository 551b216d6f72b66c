package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/image/draw"
	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/f64"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// Palette has the colours of the style sheet by the names of its variables, such as c1 and ink.
type Palette map[string]color.NRGBA

// pngScale is how many pixels of the file a pixel of the chart takes, so that it is sharp on dense screens.
const pngScale = 2.5

// ErrLetters: a text of the chart has letters that the font of pictures lacks.
var ErrLetters = errors.New("the picture has letters that cannot be drawn")

// PNG draws the narrow chart with its title and its legend as a picture for mails, on white. width and height are how
// large it is meant to be shown. Error: ErrLetters.
func (c *Chart) PNG(colours Palette) (file []byte, width, height int, err error) {
	parsed, err := opentype.Parse(goregular.TTF)
	if err != nil {
		return nil, 0, 0, err
	}
	face, err := opentype.NewFace(parsed, &opentype.FaceOptions{Size: fontSize * pngScale, DPI: 72})
	if err != nil {
		return nil, 0, 0, err
	}
	p := &painter{colours: colours, font: parsed, face: face}
	svg := xml.NewDecoder(strings.NewReader(string(c.SVG(Narrow))))
	top := lineHeight
	legend := c.Legend()
	head := top + lineHeight*float64(len(legend)) + 6
	for {
		token, err := svg.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, 0, 0, err
		}
		switch e := token.(type) {
		case xml.StartElement:
			if p.image == nil {
				box := numbers(attribute(e, "viewBox"))
				width, height = int(math.Ceil(box[2])), int(math.Ceil(box[3]+head))
				p.begin(width, height)
				p.text(0, lineHeight-6, "name", "", clip(c.Title(), box[2]))
				for i, k := range legend {
					y := top + lineHeight*float64(i)
					p.rect(k.Class, 0, y+2, fontSize, fontSize)
					p.text(fontSize+6, y+fontSize, "name", "", clip(strings.TrimSpace(k.Name+" "+k.Value), box[2]-fontSize-6))
				}
				p.at = []place{{y: head}}
				continue
			}
			p.element(e)
		case xml.EndElement:
			p.end(e)
		case xml.CharData:
			if p.writing != nil && p.hidden == 0 {
				p.written += string(e)
			}
		}
	}
	if p.missing {
		return nil, 0, 0, ErrLetters
	}
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	err = encoder.Encode(&out, p.image)
	return out.Bytes(), width, height, err
}

const lineHeight = 22.0

// painter draws the elements that a drawing consists of.
type painter struct {
	colours Palette
	font    *opentype.Font
	face    font.Face
	image   *image.NRGBA
	at      []place // of the elements that are open; the last one applies
	writing *xml.StartElement
	written string
	hidden  int  // open elements that are not drawn
	missing bool // a letter is
}

// place is where the coordinates of an element begin, and whether its texts are tilted.
type place struct {
	x, y   float64
	tilted bool
}

func (p *painter) begin(width, height int) {
	p.image = image.NewNRGBA(image.Rect(0, 0, int(float64(width)*pngScale), int(float64(height)*pngScale)))
	draw.Draw(p.image, p.image.Bounds(), image.NewUniform(p.colour("paper")), image.Point{}, draw.Src)
	p.at = []place{{}}
}

func (p *painter) colour(name string) color.NRGBA {
	if c, ok := p.colours[name]; ok {
		return c
	}
	return color.NRGBA{A: 255}
}

func (p *painter) element(e xml.StartElement) {
	here := p.at[len(p.at)-1]
	get := func(name string) float64 {
		v, _ := strconv.ParseFloat(attribute(e, name), 64)
		return v
	}
	class := attribute(e, "class")
	switch e.Name.Local {
	case "title", "desc":
		p.hidden++
	case "svg":
		here.x, here.y = here.x+get("x"), here.y+get("y")
	case "g":
		if by := numbers(attribute(e, "transform")); len(by) >= 2 {
			here.x, here.y, here.tilted = here.x+by[0], here.y+by[1], len(by) > 2
		}
	case "text":
		p.writing, p.written = &e, ""
	case "rect":
		p.rect(class, get("x"), get("y"), get("width"), get("height"))
	case "circle":
		p.ring(class, get("cx"), get("cy"), get("r"), get("stroke-width"))
	case "path":
		p.path(class, attribute(e, "d"), get("stroke-width"))
	}
	p.at = append(p.at, here)
}

func (p *painter) end(e xml.EndElement) {
	if len(p.at) < 2 {
		return
	}
	p.at = p.at[:len(p.at)-1]
	switch e.Name.Local {
	case "title", "desc":
		p.hidden--
	case "text":
		if w := p.writing; w != nil {
			x, _ := strconv.ParseFloat(attribute(*w, "x"), 64)
			y, _ := strconv.ParseFloat(attribute(*w, "y"), 64)
			p.text(x, y, attribute(*w, "class"), attribute(*w, "text-anchor"), p.written)
		}
		p.writing = nil
	}
}

// paint returns the colours with which a class is filled and stroked, and the width of its stroke; a colour without
// opacity is not drawn.
func (p *painter) paint(class string) (fill, stroke color.NRGBA, width float64) {
	width = 1
	names := strings.Fields(class)
	has := func(name string) bool { return strings.Contains(" "+class+" ", " "+name+" ") }
	for _, name := range names {
		if of, ok := strings.CutPrefix(name, "s"); ok && len(of) == 1 {
			name = "c" + of
		}
		if c, ok := p.colours[name]; ok && (len(name) == 2 || name == "rest") {
			fill, stroke = c, c
		}
	}
	switch {
	case has("grid"):
		return color.NRGBA{}, p.colour("line"), 1
	case has("axis"):
		return color.NRGBA{}, p.colour("edge"), 1
	case has("cell") && has("none"):
		return color.NRGBA{}, p.colour("line"), 1
	case has("line"), has("edge"):
		fill, width = color.NRGBA{}, 2
		if has("points") {
			width = 4
		}
	case has("area") && has("full"):
		stroke, width = p.colour("paper"), 1.5
	case has("area"):
		stroke = color.NRGBA{}
		fill.A = 64
	case has("slice"):
		stroke, width = p.colour("paper"), 2
	case has("dot"):
		stroke, width = p.colour("paper"), 1.5
	case has("ring"):
		fill = color.NRGBA{}
	case has("cells"):
	default:
		stroke = color.NRGBA{}
	}
	return fill, stroke, width
}

func (p *painter) rect(class string, x, y, w, h float64) {
	fill, stroke, width := p.paint(class)
	corners := []point{{x, y}, {x + w, y}, {x + w, y + h}, {x, y + h}}
	p.fill(fill, corners)
	p.stroke(stroke, width, append(corners, corners[0]))
}

func (p *painter) ring(class string, x, y, r, width float64) {
	_, stroke, _ := p.paint(class)
	if width == 0 { // a dot
		fill, edge, wide := p.paint(class)
		p.fill(fill, circle(x, y, r))
		p.stroke(edge, wide, append(circle(x, y, r), point{x + r, y}))
		return
	}
	p.stroke(stroke, width, append(circle(x, y, r), point{x + r, y}))
}

// path draws a path. Its commands are those that drawings use.
func (p *painter) path(class, d string, strokeWidth float64) {
	fill, stroke, width := p.paint(class)
	if strokeWidth > 0 {
		width = strokeWidth
	}
	for _, line := range flatten(d) {
		p.fill(fill, line)
		p.stroke(stroke, width, line)
	}
}

type point struct{ x, y float64 }

// fill fills a polygon.
func (p *painter) fill(c color.NRGBA, corners []point) {
	if c.A > 0 && len(corners) > 2 {
		p.polygons(c, [][]point{corners})
	}
}

// stroke draws lines through the points, with round joins.
func (p *painter) stroke(c color.NRGBA, width float64, points []point) {
	if c.A == 0 || len(points) == 0 {
		return
	}
	half := width / 2
	var all [][]point
	for i, a := range points {
		if width > 1 && width < 10 { // others are straight lines
			all = append(all, circle(a.x, a.y, half))
		}
		if i == 0 {
			continue
		}
		b := points[i-1]
		length := math.Hypot(a.x-b.x, a.y-b.y)
		if length == 0 {
			continue
		}
		dx, dy := (a.y-b.y)/length*half, (b.x-a.x)/length*half
		all = append(all, []point{{a.x + dx, a.y + dy}, {b.x + dx, b.y + dy}, {b.x - dx, b.y - dy}, {a.x - dx, a.y - dy}})
	}
	p.polygons(c, all)
}

// polygons fills what any of the polygons covers.
func (p *painter) polygons(c color.NRGBA, all [][]point) {
	here := p.at[len(p.at)-1]
	box := p.bounds(here, all)
	if box.Empty() {
		return
	}
	raster := vector.NewRasterizer(box.Dx(), box.Dy())
	for _, corners := range all {
		area := 0.0
		for i, a := range corners {
			b := corners[(i+1)%len(corners)]
			area += a.x*b.y - b.x*a.y
		}
		for i := range corners {
			a := corners[i]
			if area < 0 { // all in one direction, so that none takes away what another covers
				a = corners[len(corners)-1-i]
			}
			x, y := float32((a.x+here.x)*pngScale)-float32(box.Min.X), float32((a.y+here.y)*pngScale)-float32(box.Min.Y)
			if i == 0 {
				raster.MoveTo(x, y)
			} else {
				raster.LineTo(x, y)
			}
		}
		raster.ClosePath()
	}
	raster.Draw(p.image, box, image.NewUniform(c), image.Point{})
}

// bounds returns the part of the image that the polygons are in.
func (p *painter) bounds(here place, all [][]point) image.Rectangle {
	low, high := point{math.Inf(1), math.Inf(1)}, point{math.Inf(-1), math.Inf(-1)}
	for _, corners := range all {
		for _, a := range corners {
			low, high = point{min(low.x, a.x), min(low.y, a.y)}, point{max(high.x, a.x), max(high.y, a.y)}
		}
	}
	if low.x > high.x {
		return image.Rectangle{}
	}
	pixel := func(v, from float64) int { return int(math.Floor((v + from) * pngScale)) }
	return image.Rect(pixel(low.x, here.x), pixel(low.y, here.y), pixel(high.x, here.x)+1, pixel(high.y, here.y)+1).Intersect(p.image.Bounds())
}

// text draws a text at the baseline.
func (p *painter) text(x, y float64, class, anchor, text string) {
	here := p.at[len(p.at)-1]
	name := "soft"
	switch has := " " + class + " "; {
	case strings.Contains(has, " name "):
		name = "ink"
	case strings.Contains(has, " on h1 "), strings.Contains(has, " on h2 "), strings.Contains(has, " on h3 "):
		name = "on-low"
	case strings.Contains(has, " on h4 "):
		name = "on-middle"
	case strings.Contains(has, " on "):
		name = "on-high"
	}
	text = strings.Map(func(r rune) rune {
		if r >= 0x2066 && r <= 0x2069 || r == 0x200e || r == 0x200f { // they isolate texts in pages
			return -1
		}
		return r
	}, text)
	for _, r := range text {
		if i, err := p.font.GlyphIndex(nil, r); err != nil || i == 0 {
			p.missing = p.missing || !unicode.IsSpace(r)
		}
	}
	length := font.MeasureString(p.face, text).Round()
	left := (x + here.x) * pngScale
	back := map[string]float64{"middle": float64(length) / 2, "end": float64(length)}[anchor]
	baseline := (y + here.y) * pngScale
	ink := image.NewUniform(p.colour(name))
	if !here.tilted {
		d := font.Drawer{Dst: p.image, Src: ink, Face: p.face, Dot: fixed.P(int(left-back), int(baseline))}
		d.DrawString(text)
		return
	}
	const room = 8
	height := int(math.Round(fontSize * pngScale * 1.5))
	label := image.NewNRGBA(image.Rect(0, 0, length+2*room, height))
	d := font.Drawer{Dst: label, Src: ink, Face: p.face, Dot: fixed.P(room, height*2/3)}
	d.DrawString(text)
	s := math.Sqrt2 / 2
	ox, oy := x*pngScale-back-room, y*pngScale-float64(height)*2/3
	gx, gy := here.x*pngScale, here.y*pngScale
	draw.BiLinear.Transform(p.image, f64.Aff3{s, -s, gx + s*ox - s*oy, s, s, gy + s*ox + s*oy}, label, label.Bounds(), draw.Over, nil)
}

func circle(x, y, r float64) []point {
	n := int(max(12, math.Ceil(r*4)))
	all := make([]point, n)
	for i := range all {
		turn := 2 * math.Pi * float64(i) / float64(n)
		all[i] = point{x + r*math.Cos(turn), y + r*math.Sin(turn)}
	}
	return all
}

// flatten returns the lines of a path: M, L, H, V, A and Z, and h and v in both cases.
func flatten(d string) (lines [][]point) {
	var line []point
	end := func() {
		if len(line) > 0 {
			lines = append(lines, line)
		}
		line = nil
	}
	for len(d) > 0 {
		command := d[0]
		rest := strings.IndexAny(d[1:], "MLHVAZhvz")
		if rest < 0 {
			rest = len(d) - 1
		}
		args := numbers(d[1 : 1+rest])
		d = d[1+rest:]
		var last point
		if len(line) > 0 {
			last = line[len(line)-1]
		}
		switch {
		case command == 'M' && len(args) > 1:
			end()
			line = []point{{args[0], args[1]}}
		case command == 'L' && len(args) > 1:
			line = append(line, point{args[0], args[1]})
		case command == 'H' && len(args) > 0:
			line = append(line, point{args[0], last.y})
		case command == 'V' && len(args) > 0:
			line = append(line, point{last.x, args[0]})
		case command == 'h' && len(args) > 0:
			line = append(line, point{last.x + args[0], last.y})
		case command == 'v' && len(args) > 0:
			line = append(line, point{last.x, last.y + args[0]})
		case command == 'A' && len(args) > 6:
			line = append(line, arc(last, point{args[5], args[6]}, args[0], args[3] != 0, args[4] != 0)...)
		case (command == 'Z' || command == 'z') && len(line) > 0:
			line = append(line, line[0])
		}
	}
	end()
	return lines
}

// arc returns points on the arc of a circle with that radius.
func arc(a, b point, r float64, large, clockwise bool) (all []point) {
	chord := math.Hypot(b.x-a.x, b.y-a.y)
	if chord == 0 {
		return nil
	}
	r = max(r, chord/2)
	off := math.Sqrt(r*r - chord*chord/4)
	if large == clockwise {
		off = -off
	}
	cx := (a.x+b.x)/2 - off*(b.y-a.y)/chord
	cy := (a.y+b.y)/2 + off*(b.x-a.x)/chord
	from, to := math.Atan2(a.y-cy, a.x-cx), math.Atan2(b.y-cy, b.x-cx)
	if clockwise && to < from {
		to += 2 * math.Pi
	} else if !clockwise && to > from {
		to -= 2 * math.Pi
	}
	n := int(math.Ceil(math.Abs(to-from)*r/2)) + 1
	for i := 1; i <= n; i++ {
		turn := from + (to-from)*float64(i)/float64(n)
		all = append(all, point{cx + r*math.Cos(turn), cy + r*math.Sin(turn)})
	}
	return all
}

func attribute(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// numbers returns the numbers in a text.
func numbers(text string) (all []float64) {
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return !strings.ContainsRune("0123456789.-+e", r) }) {
		if v, err := strconv.ParseFloat(word, 64); err == nil {
			all = append(all, v)
		}
	}
	return all
}

// ReadPalette returns the colours that the first rule of a style sheet gives to variables. Error: there are none.
func ReadPalette(sheet string) (Palette, error) {
	all := Palette{}
	rule, _, _ := strings.Cut(sheet, "}")
	for line := range strings.SplitSeq(rule, ";") {
		name, value, _ := strings.Cut(line, ":")
		_, name, ok := strings.Cut(name, "--")
		if _, after, cut := strings.Cut(line, "{"); cut { // the first one
			name, value, _ = strings.Cut(after, ":")
			_, name, ok = strings.Cut(name, "--")
		}
		hex := strings.TrimPrefix(strings.TrimSpace(value), "#")
		if len(hex) == 3 {
			hex = string([]byte{hex[0], hex[0], hex[1], hex[1], hex[2], hex[2]})
		}
		n, err := strconv.ParseUint(hex, 16, 32)
		if ok && err == nil && len(hex) == 6 {
			all[strings.TrimSpace(name)] = color.NRGBA{uint8(n >> 16), uint8(n >> 8), uint8(n), 255}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the style sheet has no colours")
	}
	return all, nil
}
