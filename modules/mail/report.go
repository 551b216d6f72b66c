package mail

import (
	"context"
	"slices"

	"tenantry/backends/store"
	"tenantry/tenants"
	"tenantry/tenants/identity"
)

// Report is what the mails of one run of a report's schedule show.
type Report struct {
	Schedule string    `json:"schedule"` // its identifier
	Name     string    `json:"name"`     // of the schedule
	Title    string    `json:"title"`
	Desc     string    `json:"desc,omitempty"`
	Moment   string    `json:"moment"` // when it was run, in the time zone of the schedule
	Figures  []Fact    `json:"figures,omitempty"`
	Pictures []Picture `json:"pictures,omitempty"`
	Table    Table     `json:"table"`
	File     *File     `json:"file,omitempty"`
	Omitted  string    `json:"omitted,omitempty"` // why there is no file
}

// Reported is what a mail about a report holds sealed: the run, and the path of the link, which has a token.
type Reported struct {
	Run  string `json:"run"`
	Link string `json:"link"`
}

// StageReport adds a mail to each address, once, to the batch that stores the run. The caller calls Wake when the batch is
// committed. Errors: ErrFull, store.ErrUnavailable.
func (m *Module) StageReport(ctx context.Context, t *tenants.Tenant, b *store.Batch, r Reported, to []string) error {
	var posts []post
	for _, address := range to {
		if !slices.ContainsFunc(posts, func(p post) bool { return identity.EmailKey(p.to) == identity.EmailKey(address) }) {
			posts = append(posts, post{topic: ReportTopic, to: address, data: r})
		}
	}
	return m.stage(ctx, t, b, posts...)
}

func (m *Module) composeReport(ctx context.Context, t *tenants.Tenant, in message) (*Content, error) {
	d, err := read[Reported](in)
	if err != nil {
		return nil, err
	}
	r, err := m.Report(ctx, t, d.Run, in.To)
	if r == nil || err != nil {
		return nil, err
	}
	c := &Content{
		Subject: line(r.Name) + ": " + line(r.Title), Title: r.Title, Facts: r.Figures, Pictures: r.Pictures, Table: r.Table,
		Action: Link{"Open the report", m.BaseURL(t.Org.Slug) + d.Link},
		Footer: "Run on " + r.Moment + ". You get this mail because your address is among the recipients of " + line(r.Name) + ".",
	}
	if r.Title == r.Name {
		c.Subject = r.Title
	}
	if r.Desc != "" {
		c.Paragraphs = append(c.Paragraphs, cut(r.Desc, maxFact))
	}
	if r.File != nil {
		c.Files = append(c.Files, *r.File)
	} else if r.Omitted != "" {
		c.After = append(c.After, "No file is attached. "+r.Omitted)
	}
	c.Unsubscribe, err = m.unsubscribeURL(ctx, t, subscription{Report: r.Schedule, Address: in.To})
	return c, err
}
