package report

import (
	"errors"
	"maps"
	"strings"

	"tenantry/gateway/console/chart"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/locale"
	"tenantry/modules/mail"
	"tenantry/reports"
)

// Bounds of what a mail shows of a report.
const (
	mailRows     = 20
	mailColumns  = 8
	mailPictures = 3
	mailPicture  = 256 << 10 // bytes of one
	mailCell     = 200       // characters
)

// Mails draws reports for mails. Safe for concurrent use.
type Mails struct {
	locale  *locale.Locale
	palette chart.Palette
}

// NewMails returns what draws reports for mails, in English and in the light colours of pages. Error: the style sheets have
// no colours.
func NewMails(locales *locale.Set) (*Mails, error) {
	m := &Mails{locales.For(""), chart.Palette{}}
	for _, name := range []string{"console.css", "report.css"} {
		some, err := chart.ReadPalette(layout.Sheet(name))
		if err != nil {
			return nil, err
		}
		maps.Copy(m.palette, some)
	}
	return m, nil
}

// Draw returns what a mail shows of a report: its numbers or its picture, and its first rows.
func (m *Mails) Draw(s *reports.Sent) mail.Report {
	out := mail.Report{Title: s.Title, Desc: s.Desc, Omitted: s.Omitted}
	laid := layOut(&s.Shared, m.locale, 1, mailRows)
	for _, f := range laid.Figures {
		out.Figures = append(out.Figures, mail.Fact{Label: f.Title, Value: f.Text})
	}
	drawable := true
	for _, c := range laid.Charts[:min(len(laid.Charts), mailPictures)] {
		file, width, height, err := c.PNG(m.palette)
		drawable = drawable && !errors.Is(err, chart.ErrLetters)
		if err == nil && len(file) <= mailPicture {
			out.Pictures = append(out.Pictures, mail.Picture{PNG: file, Alt: c.Title() + ". " + c.Describe(), Width: width, Height: height})
		}
	}
	if len(out.Figures) == 0 {
		out.Table = m.table(&laid)
	}
	if !drawable {
		out.Table.Note = strings.TrimSpace(out.Table.Note + " The page of the report has its picture.")
	}
	if s.CSV != nil {
		out.File = &mail.File{Name: fileName(s.Title), Data: s.CSV}
	}
	return out
}

// table returns the first rows and columns.
func (m *Mails) table(laid *reportView) (t mail.Table) {
	columns := min(len(laid.Columns), mailColumns)
	for _, c := range laid.Columns[:columns] {
		t.Head = append(t.Head, c.Title)
	}
	for _, row := range laid.Rows {
		cells := make([]string, columns)
		for i := range cells {
			if cells[i] = row[i].Text; len([]rune(cells[i])) > mailCell {
				cells[i] = string([]rune(cells[i])[:mailCell-1]) + "…"
			}
		}
		t.Rows = append(t.Rows, cells)
	}
	t.Note = laid.Count
	if more := len(laid.Columns) - columns; more > 0 {
		t.Note = strings.TrimSpace(t.Note + " The page of the report has further columns.")
	}
	return t
}

// fileName returns the name of the file of a report's rows.
func fileName(title string) string {
	title = strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\:*?"<>|`, r) || r < ' ' {
			return '-'
		}
		return r
	}, title)
	return title + ".csv"
}
