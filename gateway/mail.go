package gateway

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tenantry/backends/store"
	"tenantry/internal/background"
	"tenantry/modules/forms"
	"tenantry/modules/mail"
	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/limits"
)

// Every replica sends the mails that it has stored. One replica at a time looks, in rounds, for those that a killed one
// has left, and a process does when it starts.
const (
	mailChore   = "000000000000000000000004"
	mailTick    = time.Minute      // between two turns that a replica tries to take
	mailRound   = 5 * time.Minute  // between two rounds
	mailTurn    = 40 * time.Second // after this no further organization is looked at
	mailEach    = 5 * time.Second  // timeout for one organization
	mailHold    = time.Minute      // after this the turn of a replica that died is free for others
	mailPage    = 500              // organizations that are listed at once
	mailSenders = 4                // organizations whose mails a process sends at the same time
)

// openMail makes the module that sends mail.
func (s *Services) openMail(formModule *forms.Module) error {
	server, err := mail.NewServer(s.cfg.Mail)
	s.mails = mail.New(mail.Options{
		Server: server, Keys: s.directory, People: s.people, APIKeys: s.keys, BaseURL: s.baseURL, Now: s.now, Log: s.log,
		PerOrganization: s.cfg.Mail.PerOrganization, PerAddress: s.cfg.Mail.PerAddress,
		Form: func(ctx context.Context, t *tenants.Tenant, form, submission string) (*mail.Form, error) {
			alert, err := formModule.Alert(ctx, t, form, submission)
			if alert == nil || err != nil {
				return nil, err
			}
			out := &mail.Form{
				Label: alert.Label, Subject: alert.Subject, Recipients: alert.Recipients, ReplyTo: alert.ReplyTo,
				Path: strings.TrimSuffix("/form/collections/"+form+"/submissions/"+alert.Submission, "/"),
			}
			for _, v := range alert.Values {
				out.Values = append(out.Values, mail.Fact{Label: v.Title, Value: v.Text})
			}
			return out, nil
		},
		Leave: formModule.RemoveRecipient,
	})
	return err
}

// formAlerts mails alerts about submissions. It implements forms.Alerter.
type formAlerts struct{ mails *mail.Module }

// Stage implements forms.Alerter.
func (f formAlerts) Stage(ctx context.Context, c *operation.Call, b *store.Batch, form, submission string) error {
	return f.mails.StageAlert(ctx, c.Tenant, b, form, submission)
}

// Wake implements forms.Alerter.
func (f formAlerts) Wake(t *tenants.Tenant) { f.mails.Wake(t) }

// Silent implements forms.Alerter.
func (f formAlerts) Silent() string {
	if f.mails.On() {
		return ""
	}
	return mail.Nobody
}

// mailTenant returns an organization for sending its mails.
func (s *Services) mailTenant(ctx context.Context, org int64) (*tenants.Tenant, error) {
	return s.directory.BySlug(ctx, s.directory.SlugOf(ctx, org))
}

// sendMail sends mail in the background.
func (a *App) sendMail() {
	if !a.mails.On() {
		return
	}
	a.background.Go("looking for mail", func(ctx context.Context) {
		if err := a.eachMailbox(ctx); err != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "mail of an earlier process is looked for later", "error", err)
		}
	})
	a.background.Every(mailTick, "looking for mail", func(ctx context.Context) {
		if _, err := a.lookForMail(ctx); err != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "mail of other processes could not be looked for and will be retried", "error", err)
		}
	})
	for range mailSenders {
		a.background.Go("sending mail", func(ctx context.Context) {
			for ctx.Err() == nil { // a panic ends one turn, not the sender
				if err := background.Try(func() error { a.mails.Serve(ctx, a.mailTenant); return nil }); err != nil {
					a.log.ErrorContext(ctx, "a turn of sending mail failed", "error", err)
				}
			}
		})
	}
}

// eachMailbox looks for mail that waits in all organizations.
func (a *App) eachMailbox(ctx context.Context) error {
	return a.directory.Each(ctx, func(org *tenants.Organization) error {
		a.mailbox(ctx, org)
		return ctx.Err()
	})
}

// mailbox looks for mail of an organization that waits.
func (a *App) mailbox(ctx context.Context, org *tenants.Organization) {
	if org.State != tenants.Active {
		return
	}
	each, cancel := context.WithTimeout(ctx, mailEach)
	defer cancel()
	t, err := a.directory.BySlug(each, org.Slug)
	if err == nil {
		err = a.mails.Look(each, t)
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, tenants.ErrUnknownTenant) {
		a.log.WarnContext(ctx, "mail of an organization could not be looked for and will be retried",
			"organization", org.Slug, "error", err)
	}
}

// lookForMail takes one turn of looking for mail in all organizations; see takeTurn.
func (a *App) lookForMail(ctx context.Context) (taken bool, err error) {
	return a.takeTurn(ctx, round{chore: mailChore, turn: mailTurn, hold: mailHold, every: mailRound, page: mailPage},
		func(ctx context.Context, org *tenants.Organization) bool { a.mailbox(ctx, org); return false },
		func(context.Context) bool { return false })
}

// SendMail looks for mail in all organizations, sends what is due, and returns when no more is. Programs that embed the
// gateway need not call it.
func (a *App) SendMail(ctx context.Context) error {
	if err := a.eachMailbox(ctx); err != nil {
		return err
	}
	for worked := true; worked && ctx.Err() == nil; {
		worked, _ = a.mails.Work(ctx, a.mailTenant)
	}
	return ctx.Err()
}

// noteSignIn tells a person of a sign-in from a new place. Of the address only the network counts.
func (s *Services) noteSignIn(ctx context.Context, c *operation.Call, u *identity.User, browser string) {
	s.mails.NoteSignIn(ctx, c, u, limits.Network(c.Remote).String(), browser)
}

// forgetMail removes old mails of an organization, and tells its administrators of keys that expire. It reports whether
// there is more to remove.
func (a *App) forgetMail(ctx context.Context, t *tenants.Tenant) (left bool, err error) {
	err = background.Try(func() error {
		left, err = a.mails.Forget(ctx, t)
		return errors.Join(err, a.mails.TellExpiring(ctx, t))
	})
	return left, err
}

// examineMail checks that the mail server answers and takes the sender.
func (s *Services) examineMail(ctx context.Context, e *examination) {
	server, err := mail.NewServer(s.cfg.Mail)
	if err != nil {
		e.wrong("mail", err.Error(), "correct the settings of mail")
		return
	}
	if server == nil {
		e.good("mail", "nobody is mailed, because mail.url is not set")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, mailCheck)
	defer cancel()
	if err := server.Reach(ctx); err != nil {
		e.wrong("mail", err.Error(), "mails wait for up to three days; check mail.url, mail.from, and the log of the server")
		return
	}
	e.good("mail", "%s answers and takes mail of %s", server.Address(), s.cfg.Mail.From)
}

// mailCheck bounds the check of the mail server.
const mailCheck = 10 * time.Second

// measureMail registers the metrics of mail.
func (a *App) measureMail(registry *prometheus.Registry) {
	for _, state := range mail.Ends() {
		registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "tenantry_mails_total", Help: "Mails of this process by what became of them: sent, failed, or later, if they are tried again.",
			ConstLabels: prometheus.Labels{"status": state},
		}, func() float64 { return float64(a.mails.Ended(state)) }))
	}
}
