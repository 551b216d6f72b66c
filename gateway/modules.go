package gateway

import (
	"context"
	"sync"
	"time"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/modules/audit"
	"tenantry/modules/campaigns"
	"tenantry/modules/compliance"
	"tenantry/modules/contacts"
	"tenantry/modules/events"
	"tenantry/modules/files"
	"tenantry/modules/files/contents"
	"tenantry/modules/forms"
	"tenantry/modules/imports"
	"tenantry/modules/imports/bundle"
	"tenantry/modules/objects"
	"tenantry/modules/organization"
	"tenantry/modules/people"
	"tenantry/modules/usage"
	"tenantry/operation"
	"tenantry/operation/idempotency"
	"tenantry/reports"
	"tenantry/tenants"
)

// Module works on the data of organizations: it has the kinds of records that it stores, and the operations that it
// serves.
type Module interface {
	Kept() []record.Kept
	operationSource
}

// operationSource has operations to serve.
type operationSource interface{ Operations() []operation.Row }

// openModules makes the modules; more are those of the embedding program. To add a module, add it to the list. Bundles
// hold records in the order of the list, which must be that of references: definitions come first. An error is about the
// settings of mail.
func (s *Services) openModules(more []Module) error {
	s.idempotency = idempotency.New(s.directory, s.now)
	s.store.OnEnd(s.idempotency.End)
	s.usage = usage.New(s.log, s.now, s.cfg.Memory.Organizations, s.background.Go)
	s.seals = audit.NewSeals(s.audit, s.directory, s.now)
	s.heads = audit.NewHeads(s.audit, s.directory, s.now)

	contactModule := contacts.New(contacts.Deps{Keys: s.directory})
	objectModule, formModule := objects.New(s.directory), forms.New(s.directory)
	s.forms = formModule
	formModule.Spent = spentChallenges{s.redis}
	if err := s.openMail(formModule); err != nil {
		return err
	}
	formModule.Alerts = formAlerts{s.mails}
	var scan func(context.Context, *tenants.Tenant, *contents.Arrival) error
	if s.cfg.Files.Scan != "" {
		scan = contents.ScanBy(s.cfg.Files.Scan, s.cfg.Files.ScanToken)
	}
	s.contents = contents.New(contents.Options{
		Bucket: s.markedBucket(), Incoming: s.incomingFolder(), Reserve: s.cfg.Files.ReserveBytes(), Now: s.now, Log: s.log, Scan: scan,
		Keys: func(ctx context.Context, t *tenants.Tenant, purpose string) (contents.KeySet, error) {
			return s.directory.DataKeys(ctx, t, purpose)
		},
	})
	s.directory.OnErase(s.contents.Erase)
	s.files = files.New(files.Deps{
		CDNBase: s.fileHost, BaseURL: s.baseURL, Contents: s.contents, LinkLife: s.cfg.Files.LinkLife, Now: s.now,
		Background: s.background, Contacts: contactModule, Users: s.people,
	})
	formModule.Attachments = formFiles{s.files}
	campaignModule := campaigns.New(campaigns.Deps{Contacts: contactModule})
	s.reports = reports.New(reports.Deps{
		Now: s.now, Reuse: s.reportReuse, RunTimeout: s.reportTimeout,
		Keys: func(ctx context.Context, t *tenants.Tenant) (reports.KeySet, error) {
			return s.directory.DataKeys(ctx, t, reports.KeyPurpose)
		},
		Classes: []reports.Class{
			reports.NewClass("Contacts", contactModule.Contacts.Kind, "", contactModule.SchemaFields),
			reports.NewClass("Records", objectModule.Records.Kind, "object", objectModule.SchemaFields),
			reports.NewClass("Submissions", formModule.Submissions.Kind, "form", formModule.SchemaFields),
			reports.NewClass("Files", s.files.Files.Kind, "", nil),
			reports.NewClass("Campaigns", campaignModule.Campaigns.Kind, "", nil),
		},
	})
	objectModule.Reports, formModule.Reports, contactModule.Reports = s.reports, s.reports, s.reports
	contactModule.Campaigns = campaignModule
	s.peopleModule = people.New(people.Deps{
		Kinds: s.kinds.people, Stored: s.kinds.keys, People: s.people, Keys: s.keys, Now: s.now, Mails: s.mails,
	})
	s.imports = imports.New(imports.Options{
		Transfer: func() *bundle.Service { return s.transfer }, Audit: s.recordImport, Log: s.log,
		Background: s.background, Now: s.now, Dir: s.importsFolder(), Reserve: s.cfg.Files.ReserveBytes(),
	})
	s.events = events.New(func() time.Duration { return s.settings().Events.Keep }, s.background.Go)
	s.webhooks = s.openWebhooks()
	if err := s.openSchedules(); err != nil {
		return err
	}
	s.modules = append([]Module{
		contactModule, s.files, objectModule, formModule, campaignModule, s.reports,
		s.compliance(contactModule, objectModule, formModule), s.peopleModule, s.imports,
		s.events, s.webhooks, s.schedules, s.mails, s.audit, s.seals, s.heads, s.usage,
		&organization.Module{
			Directory: s.directory, Defaults: s.limiter.Defaults,
			FileBytes: s.fileBytes,
		},
	}, more...)

	kept := s.storedKinds()
	s.store.Keep(record.Specs(kept)...)
	resources := record.Described(append(s.kinds.people.Kept(), kept...))
	record.Link(resources)
	s.store.Tell(s.logged(resources))
	s.store.OnEvents(s.events.Committed)
	s.transfer = bundle.New(bundle.Deps{
		Directory: s.directory, People: s.kinds.people, Resources: resources, End: s.endRecords(),
		Bytes: bundledBytes{s.contents},
	})
	return nil
}

// logged returns the kinds of records of which event logs tell, with the names of their resources.
func (s *Services) logged(resources []*record.Resource) map[*store.Spec]string {
	told := map[*store.Spec]string{}
	for _, m := range s.modules {
		for _, row := range m.Operations() {
			for _, of := range resources {
				if row.Logged != nil && of.Name == row.Logged.Resource {
					told[of.Records.Spec()] = of.Name
				}
			}
		}
	}
	return told
}

// endRecords returns a function that ends records of a resource for good, with the handler of the row that deletes or
// purges them. The function reports whether the resource has such a row.
func (s *Services) endRecords() func(context.Context, *tenants.Tenant, string, []string) (bool, error) {
	rows := sync.OnceValue(func() map[string]*operation.Row {
		by := map[string]*operation.Row{}
		for _, m := range s.modules {
			for _, row := range m.Operations() {
				if row.End != nil {
					by[row.Resource] = &row
				}
			}
		}
		return by
	})
	return func(ctx context.Context, t *tenants.Tenant, name string, ids []string) (bool, error) {
		row := rows()[name]
		if row == nil {
			return false, nil
		}
		return true, row.End(ctx, s.systemCall(row, t), ids)
	}
}

// systemCall returns a call by the gateway itself, with access to all of the organization.
func (s *Services) systemCall(row *operation.Row, t *tenants.Tenant) *operation.Call {
	c := operation.NewCall(row, func(string) string { return "" })
	c.Tenant, c.Principal = t, &tenants.Principal{Kind: tenants.System}
	c.Workspace, c.Scope = t.Workspace(), store.Scope{All: true}
	return c
}

// compliance returns the module that checks, by their lessons, whether contacts comply. Lessons are records of the
// object, or submissions of the form, with the name compliance.Lesson.
func (s *Services) compliance(
	people *contacts.Module, objects *objects.Module, forms *forms.Module,
) *compliance.Module {
	return compliance.New(compliance.Deps{
		Contacts: people.Contacts.Table,
		Records: func(ctx context.Context, ws *store.Workspace) (compliance.Lessons, error) {
			fields, err := objects.SchemaFields(ctx, ws, compliance.Lesson)
			return compliance.Lessons{
				Table: objects.Records.Table(ws), Of: store.Eq("object", compliance.Lesson), Fields: fields,
			}, err
		},
		Submissions: func(ctx context.Context, ws *store.Workspace) (compliance.Lessons, error) {
			form, err := forms.Forms.In(ws).First(ctx, store.Query{Filter: store.Eq("name", compliance.Lesson)})
			if err != nil {
				return compliance.Lessons{}, err
			}
			return compliance.Lessons{
				Table: forms.Submissions.Table(ws), Of: store.Eq("form", form.ID), Fields: form.Fields(),
			}, nil
		},
	})
}

// storedKinds returns the kinds of records in the workspaces of organizations.
func (s *Services) storedKinds() []record.Kept {
	all := []record.Kept{s.idempotency}
	for _, m := range s.modules {
		all = append(all, m.Kept()...)
	}
	return all
}

// recordImport writes the changes of an import to the audit log of the organization.
func (s *Services) recordImport(
	ctx context.Context, ws *store.Workspace, subject string, facts map[string]string,
) error {
	rec := audit.Record{Operation: "import", Subject: subject, Outcome: audit.OK, Facts: facts}
	return s.audit.Write(ctx, ws, rec)
}
