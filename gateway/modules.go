package gateway

import (
	"context"
	"sync"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/modules/audit"
	"tenantry/modules/campaigns"
	"tenantry/modules/compliance"
	"tenantry/modules/contacts"
	"tenantry/modules/files"
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

// Module is a part that works on an organization's data: what it keeps, and the operations it serves.
type Module interface {
	Kept() []record.Kept
	serving
}

// serving is what has operations.
type serving interface{ Operations() []operation.Row }

// openModules makes the modules. One is a line of the list; bundles hold their records in its
// order, which is that of references: definitions first.
func (s *Services) openModules(more []Module) {
	s.repeats, s.usage, s.seals = idempotency.New(s.directory, s.now), usage.New(s.log, s.now, s.cfg.Memory.Organizations, s.background.Go), audit.NewSeals(s.audit, s.directory, s.now)
	s.store.OnEnd(s.repeats.End)
	addresses := contacts.New(contacts.Deps{Keys: s.directory})
	records, filled := objects.New(s.directory), forms.New(s.directory)
	filled.Spent = spent{s.redis}
	stored := files.New(files.Deps{CDNBase: s.fileHost, Contacts: addresses, Users: s.people})
	sent := campaigns.New(campaigns.Deps{Contacts: addresses})
	s.reports = reports.New(reports.Deps{
		Now: s.now, Reuse: s.reuse,
		Keys: func(ctx context.Context, t *tenants.Tenant) (reports.KeySet, error) {
			return s.directory.DataKeys(ctx, t, reports.KeyPurpose)
		},
		Classes: []reports.Class{
			reports.NewClass("Contacts", addresses.Contacts.Kind, "", addresses.SchemaFields),
			reports.NewClass("Records", records.Records.Kind, "object", records.SchemaFields),
			reports.NewClass("Submissions", filled.Submissions.Kind, "form", filled.SchemaFields),
			reports.NewClass("Files", stored.Files.Kind, "", nil),
			reports.NewClass("Campaigns", sent.Campaigns.Kind, "", nil),
		},
	})
	records.Reports, filled.Reports, addresses.Reports, addresses.Campaigns = s.reports, s.reports, s.reports, sent
	s.members = people.New(people.Deps{Kinds: s.kinds.people, Stored: s.kinds.keys, People: s.people, Keys: s.keys, Now: s.now})
	s.bundles = imports.New(imports.Options{Transfer: func() *bundle.Service { return s.transfer }, Audit: s.recordImport, Log: s.log, Background: s.background, Now: s.now, Dir: s.importsFolder()})
	s.modules = append([]Module{
		addresses, stored, records, filled, sent, s.reports, s.compliance(addresses, records, filled), s.members, s.bundles, s.audit, s.seals, s.usage,
		&organization.Module{Directory: s.directory, Defaults: s.limiter.Defaults()},
	}, more...)

	kept := s.kept()
	s.store.Keep(record.Specs(kept)...)
	described := record.Described(append(s.kinds.people.Kept(), kept...))
	record.Link(described)
	s.transfer = bundle.New(bundle.Deps{Directory: s.directory, People: s.kinds.people, Resources: described, End: s.ending()})
}

// ending returns what ends records of a resource for good, as the rows that delete or purge them do.
func (s *Services) ending() func(context.Context, *tenants.Tenant, string, []string) (bool, error) {
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
		return true, row.End(ctx, s.own(row, t), ids)
	}
}

// own returns a call of the gateway's own, which all of an organization is shown to.
func (s *Services) own(row *operation.Row, t *tenants.Tenant) *operation.Call {
	c := operation.NewCall(row, func(string) string { return "" })
	c.Tenant, c.Principal, c.Workspace, c.Scope = t, &tenants.Principal{Kind: tenants.System}, t.Workspace(), store.Scope{All: true}
	return c
}

// compliance returns the module that checks contacts by their lessons, which are records and submissions.
func (s *Services) compliance(people *contacts.Module, records *objects.Module, filled *forms.Module) *compliance.Module {
	return compliance.New(compliance.Deps{
		Contacts: people.Contacts.Table,
		Records: func(ctx context.Context, ws *store.Workspace) (compliance.Lessons, error) {
			fields, err := records.SchemaFields(ctx, ws, compliance.Lesson)
			return compliance.Lessons{Table: records.Records.Table(ws), Of: store.Eq("object", compliance.Lesson), Fields: fields}, err
		},
		Submissions: func(ctx context.Context, ws *store.Workspace) (compliance.Lessons, error) {
			form, err := filled.Collections.In(ws).First(ctx, store.Query{Filter: store.Eq("name", compliance.Lesson)})
			if err != nil {
				return compliance.Lessons{}, err
			}
			return compliance.Lessons{Table: filled.Submissions.Table(ws), Of: store.Eq("form", form.ID), Fields: form.Fields()}, nil
		},
	})
}

// kept returns all that is in the workspaces of organizations.
func (s *Services) kept() []record.Kept {
	all := []record.Kept{s.repeats}
	for _, m := range s.modules {
		all = append(all, m.Kept()...)
	}
	return all
}

// recordImport writes what an import has changed into the organization's audit log.
func (s *Services) recordImport(ctx context.Context, ws *store.Workspace, subject string, facts map[string]string) error {
	return s.audit.Write(ctx, ws, audit.Record{Operation: "import", Subject: subject, Outcome: audit.OK, Facts: facts})
}
