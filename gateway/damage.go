package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"tenantry/backends/store"
	"tenantry/gateway/control"
	"tenantry/modules/files"
	"tenantry/tenants"
)

const (
	// The files of lookPage organizations are looked for every lookInterval, in turns: 10,000 in two minutes.
	lookInterval = 6 * time.Second
	lookPage     = 500
	// reexamineInterval lies between two examinations of damaged organizations, which may have been repaired.
	reexamineInterval = time.Minute

	// examineTimeout bounds the examination of one organization, examinePage that of the organizations in one call of
	// doctor.
	examineTimeout = time.Minute
	examinePage    = 5 * time.Second

	damagedAdvice = "restore the file, without the -wal and -shm of the damaged one; until then writes to it are refused, " +
		"for every organization in it. Other files are not affected"
)

// noteDamage logs that a workspace was found to be damaged, or whole again, and updates the metric.
func (s *Services) noteDamage(d store.Damage, whole bool) {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	slug := s.orgOf(ctx, d.Org)
	if whole {
		s.metrics.damaged.Reset() // a deleted organization has no slug by which its label could be removed
		for _, left := range s.store.Damaged() {
			s.metrics.damaged.WithLabelValues(left.Backend, s.orgOf(ctx, left.Org)).Set(1)
		}
		s.log.InfoContext(ctx, "an organization's data is no longer damaged or missing",
			"backend", d.Backend, "org", slug, "file", d.File)
		return
	}
	s.metrics.damaged.WithLabelValues(d.Backend, slug).Set(1)
	s.log.ErrorContext(ctx, "an organization's data is damaged or missing", "backend", d.Backend, "org", slug,
		"file", d.File, "reason", d.Reason, "writes_refused", d.Corrupt)
}

// noteUnreadable logs that a record cannot be read.
func (s *Services) noteUnreadable(ctx context.Context, u store.Unreadable) {
	s.log.ErrorContext(ctx, "a record cannot be read: lists leave it out, and exports and moves of the organization are refused",
		"backend", u.Backend, "org", s.orgOf(ctx, u.Org), "kind", u.Kind, "id", u.ID, "reason", u.Reason)
}

// orgOf returns the slug of an organization for logs; empty for the control data.
func (s *Services) orgOf(ctx context.Context, org int64) string {
	if org == 0 || s.directory == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer cancel()
	return s.directory.SlugOf(ctx, org)
}

// examineRecords reports the records of a backend that were found unreadable and still are.
func (s *Services) examineRecords(ctx context.Context, e *examination, name string) {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	for _, u := range s.store.Unreadable(ctx, name, true) {
		whose := "the control data"
		if slug := s.orgOf(ctx, u.Org); slug != "" {
			whose = "organization " + slug
		}
		e.wrong("backend "+name+" records", fmt.Sprintf("%s: %s %s cannot be read: %s", whose, u.Kind, u.ID, u.Reason),
			"restore or remove it on the backend; until then lists leave it out, and exports and moves of the organization are refused")
	}
}

// examineFiles examines the files of a backend that were found damaged, and reports those that still are, each once for
// all of its organizations. A file that is whole again accepts writes again.
func (s *Services) examineFiles(ctx context.Context, e *examination, name string) {
	seen := map[string]bool{}
	for _, d := range s.store.Damaged() {
		if d.Backend != name || !d.Corrupt || seen[d.File] {
			continue
		}
		seen[d.File] = true
		ctx, cancel := context.WithTimeout(ctx, examineTimeout)
		if err := s.store.Reexamine(ctx, d); err != nil {
			e.wrong("backend "+name+" file", err.Error(), damagedAdvice)
		}
		cancel()
	}
}

// watch looks in the background for the files of all organizations, a page at a time, and examines damaged
// organizations again.
func (s *Services) watch() {
	after, turn := "", 0
	s.background.Every(lookInterval, "looking for the data of organizations", func(ctx context.Context) {
		after = s.lookFor(ctx, after)
	})
	s.background.Every(reexamineInterval, "examining damaged organizations", func(ctx context.Context) {
		found := s.store.Damaged()
		for began := time.Now(); turn < len(found) && time.Since(began) < examinePage; turn++ {
			s.reexamine(ctx, found[turn])
		}
		if turn >= len(found) {
			turn = 0
		}
	})
}

// lookFor looks for the files of the organizations after the slug. It returns the slug to continue after; empty: begin
// again.
func (s *Services) lookFor(ctx context.Context, after string) string {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	page, err := s.directory.List(ctx, after, lookPage)
	if err != nil || len(page) == 0 {
		return ""
	}
	for i := range page {
		if page[i].State != tenants.Removed {
			s.store.NoteMissing(page[i].OrgID, page[i].Place)
		}
	}
	return page[len(page)-1].Slug
}

// reexamine examines a known damage again. The damage of a file lasts until the file is whole, even if its organization
// is gone.
func (s *Services) reexamine(ctx context.Context, d store.Damage) {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	if d.Corrupt {
		_ = s.store.Reexamine(ctx, d) // the error is the known damage
		return
	}
	t, err := s.directory.BySlug(ctx, s.directory.SlugOf(ctx, d.Org))
	switch {
	case errors.Is(err, tenants.ErrUnknownTenant), err == nil && !t.Org.Uses(d.Backend): // deleted or moved since
		_ = s.store.Reexamine(ctx, d)
	case err == nil:
		_, _ = s.directory.Examine(ctx, &t.Org) // the store notes what it finds
	}
}

// examineEach examines the organizations after the slug, one after another, for about examinePage.
func (s *Services) examineEach(ctx context.Context, after string) control.Examined {
	e := &examination{}
	var done control.Examined
	began := time.Now()
	page, err := s.directory.List(ctx, after, lookPage)
	if err != nil {
		e.wrong("organizations", err.Error(), "")
	}
	for i := range page {
		if page[i].State != tenants.Removed && s.store.HasBackend(page[i].Home()) {
			done.Organizations++
			done.Documents += s.examineOne(ctx, e, &page[i])
			s.examineBytes(ctx, e, &page[i])
			s.examineHead(ctx, e, &page[i])
		}
		done.Next = page[i].Slug
		if time.Since(began) >= examinePage || ctx.Err() != nil {
			break
		}
	}
	done.Items = e.found
	return done
}

func (s *Services) examineOne(ctx context.Context, e *examination, org *tenants.Organization) int64 {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	documents, err := s.directory.Examine(ctx, org)
	what, where := "organization "+org.Slug, "backend "+org.Home()
	var damage *store.DamagedError
	switch {
	case err == nil:
	case errors.As(err, &damage):
		e.wrong(what, where+": "+damage.Reason, damagedAdvice)
	case errors.Is(err, context.DeadlineExceeded):
		e.warn(what, fmt.Sprintf("%s: not read whole within %s", where, examineTimeout), "")
	default:
		e.wrong(what, where+": "+err.Error(), "")
	}
	return documents
}

// examineBytes compares the files of an organization with the bytes that are kept.
func (s *Services) examineBytes(ctx context.Context, e *examination, org *tenants.Organization) {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	what := "files of organization " + org.Slug
	t, err := s.directory.BySlug(ctx, org.Slug)
	var d files.Damage
	if err == nil {
		d, err = s.files.Examine(ctx, t)
	}
	var damage *store.DamagedError
	switch {
	case errors.Is(err, tenants.ErrUnknownTenant), errors.As(err, &damage): // examineOne has said so
		return
	case errors.Is(err, context.DeadlineExceeded):
		e.warn(what, fmt.Sprintf("not compared whole within %s", examineTimeout), "")
		return
	case err != nil:
		e.wrong(what, "could not be compared with their bytes: "+err.Error(), "check the files folder, or the server of the bucket")
		return
	}
	if n := len(d.Files) + d.MoreFiles; n > 0 {
		says := fmt.Sprintf("bytes are missing or have another size, of files and versions (%d): %s", n, strings.Join(d.Files, ", "))
		if d.MoreFiles > 0 {
			says += " and others"
		}
		e.wrong(what, says, bytesAdvice)
	} else if n := len(d.Missing) + d.More; n > 0 {
		e.warn(what, fmt.Sprintf("bytes that no file uses are missing (%d)", n), "nothing depends on them; they are forgotten within two days")
	}
	if d.Orphans > 0 {
		says := fmt.Sprintf("objects that no file uses: %d of %d bytes", d.Orphans, d.OrphanBytes)
		if d.Old > 0 {
			e.warn(what, says+fmt.Sprintf(", %d for more than three days", d.Old),
				"a running gateway removes them a day after they were stored; its log says why it could not")
		} else {
			e.warn(what, says, "a running gateway removes them within two days; nothing has to be done")
		}
	}
	if d.Lost != 0 {
		e.warn(what, fmt.Sprintf("the stored size differs from that of the bytes by %d", d.Lost),
			"it counts towards the limit file_bytes; restore control data and databases of one backup")
	}
}

const bytesAdvice = "restore the files folder or the bucket from a backup that is not older than that of the databases, " +
	"or import an archive of the organization (export --with-files) that has them"
