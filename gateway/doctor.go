package gateway

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenantry/backends/store"
	"tenantry/gateway/control"
	"tenantry/modules/files/contents"
	"tenantry/tenants"
)

// examination collects the findings of doctor.
type examination struct{ found []control.Finding }

func (e *examination) good(what, format string, args ...any) {
	e.found = append(e.found, control.Finding{What: what, Verdict: control.Good, Says: fmt.Sprintf(format, args...)})
}

func (e *examination) warn(what, says, advice string) {
	e.found = append(e.found, control.Finding{What: what, Verdict: control.Warning, Says: says, Advice: advice})
}

func (e *examination) wrong(what, says, advice string) {
	e.found = append(e.found, control.Finding{What: what, Verdict: control.Wrong, Says: says, Advice: advice})
}

// examine checks the settings and everything that the gateway depends on.
func (s *Services) examine(ctx context.Context) []control.Finding {
	e := &examination{}
	for _, d := range s.settingWarnings() {
		e.warn(d.About, d.Says, d.Advice)
	}
	s.examineKeyring(e)
	failures := s.checkBackends(ctx, checkTimeout)
	for _, name := range s.store.Backends() {
		s.examineBackend(ctx, e, name, failures[name])
	}
	s.examineRedis(ctx, e)
	s.examineBucket(ctx, e)
	s.examineMail(ctx, e)
	s.examineBackups(ctx, e)
	if failures[s.cfg.Control] != nil {
		e.warn("organizations", "not examined", "they are listed on backend "+s.cfg.Control)
		return e.found
	}
	s.examineInstallation(ctx, e)
	s.examineOrganizations(ctx, e)
	return e.found
}

func (s *Services) examineInstallation(ctx context.Context, e *examination) {
	switch err := s.directory.Installed(ctx); {
	case errors.Is(err, tenants.ErrLostControl):
		e.wrong("installation", fmt.Sprintf("%s in %s", err, s.controlLocation()),
			"running gateways work with what they have read; mount or restore the control data that belong to the keyring")
	case err != nil:
		e.wrong("installation", err.Error(), "")
	default:
		e.good("installation", "%s, with its control data in %s", s.directory.Installation(), s.controlLocation())
		s.examineOwnHead(ctx, e)
	}
	if page, err := s.directory.List(ctx, "", 1); err == nil && len(page) == 0 {
		e.warn("installation", "it has no organization, and never had one",
			"tenantry org create creates one; if there should be some, the settings name the wrong installation")
	}
}

func (s *Services) examineKeyring(e *examination) {
	versions := len(s.keyring.List())
	path := s.cfg.KeyringPath()
	info, err := os.Stat(path)
	switch {
	case err != nil:
		e.wrong("keyring", fmt.Sprintf("%s cannot be read: %v", path, err), "put it back before the gateway is started again")
	case info.Mode().Perm()&0o077 != 0:
		e.warn("keyring", fmt.Sprintf("%s can be read by others than its owner", path), "chmod 600 "+path)
	default:
		e.good("keyring", "%s opens this data; version %d of %d is the primary", path, s.keyring.PrimaryVersion(), versions)
	}
}

func (s *Services) examineBackend(ctx context.Context, e *examination, name string, failure error) {
	what := "backend " + name
	b := s.cfg.Backends[name]
	var uses []string
	if name == s.cfg.Control {
		uses = append(uses, "control")
	}
	if name == s.cfg.Store {
		uses = append(uses, "new organizations")
	}
	use := b.String()
	if len(uses) > 0 {
		use += ", for " + strings.Join(uses, " and ")
	}
	if failure != nil {
		says := failure.Error()
		if errors.Is(failure, context.DeadlineExceeded) {
			says = fmt.Sprintf("no answer within %s", checkTimeout)
		}
		cannot := "read and write"
		if errors.Is(failure, store.ErrReadOnly) {
			cannot = "write"
		}
		e.wrong(what, fmt.Sprintf("%s: cannot %s: %s", use, cannot, says),
			"check that the server runs and can be reached, and that the disk has room")
		s.inspectBackend(ctx, e, name)
		return
	}
	e.good(what, "%s: reads and writes", use)
	s.inspectBackend(ctx, e, name)
	s.examineLog(e, name)
	s.examineLayouts(ctx, e, name)
	s.examineRecords(ctx, e, name)
	s.examineFiles(ctx, e, name)
	indexes, err := s.store.Indexes(ctx, name)
	if err != nil {
		e.wrong(what+" indexes", err.Error(), "")
		return
	}
	var ready, building int
	for _, i := range indexes {
		switch i.State {
		case store.IndexReady:
			ready++
		case store.IndexBuilding:
			building++
		case store.IndexRefused:
			e.warn(what+" index", i.Index+" of "+i.Database+"."+i.Collection+": "+i.Reason, "")
		}
	}
	switch {
	case building > 0:
		e.warn(what+" indexes", fmt.Sprintf("%d are ready, %d are being built", ready, building),
			"queries that need them are slow until then")
	case ready > 0:
		e.good(what+" indexes", "%d are ready", ready)
	}
}

// maxLag is the age at which doctor warns of writes that are still in a log and not in the database file.
const maxLag = 5 * time.Minute

func (s *Services) examineLog(e *examination, name string) {
	if lag := s.store.Lag(name); lag != nil {
		if bytes, age := lag(); age > maxLag {
			says := fmt.Sprintf("writes of %s ago are only in a -wal file (%d bytes in all)", age.Round(time.Second), bytes)
			e.warn("backend "+name+" log", says,
				"end the program that reads the database, such as a backup or a shell; a copy without the -wal lacks these writes")
		}
	}
}

// examineLayouts says which databases are of an earlier or later version of the program.
func (s *Services) examineLayouts(ctx context.Context, e *examination, name string) {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	all, ok, err := s.store.Layouts(ctx, name)
	what := "backend " + name + " layout"
	switch n := all.Current + len(all.Others); {
	case err != nil:
		e.warn(what, err.Error(), "")
	case ok && len(all.Others) > 0:
		e.warn(what, fmt.Sprintf("%d of %d databases were last used by another version of the program, such as %s",
			len(all.Others), n, all.Others[0]), "each gets the tables, columns and indexes of this version when it is first used")
	case ok:
		e.good(what, "all databases (%d) have that of this version", n)
	}
}

// inspectBackend adds the findings of the backend itself.
func (s *Services) inspectBackend(ctx context.Context, e *examination, name string) {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	for _, f := range s.store.Inspect(ctx, name) {
		what := "backend " + name + " " + f.Subject
		switch f.Verdict {
		case store.FindingWrong:
			e.wrong(what, f.Says, f.Advice)
		case store.FindingWarning:
			e.warn(what, f.Says, f.Advice)
		default:
			e.good(what, "%s", f.Says)
		}
	}
}

func (s *Services) examineRedis(ctx context.Context, e *examination) {
	if s.localRedis != nil {
		if s.cfg.Shared() {
			e.warn("redis", "sessions and limits are kept within this process", "if there are several replicas, set redis.addrs")
			return
		}
		e.good("redis", "within this process")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := s.redis.Ping(ctx); err != nil {
		e.wrong("redis", fmt.Sprintf("does not answer: %v", err),
			"keys are looked up in the store and limits counted by each replica; sessions need it")
		return
	}
	says := "answers"
	version, eviction := s.redis.Describe(ctx)
	if version != "" {
		says = fmt.Sprintf("version %s answers", version)
	}
	if strings.HasPrefix(eviction, "allkeys") {
		e.warn("redis", says+", and drops keys of any kind when its memory is full",
			"set maxmemory-policy to volatile-lru or noeviction, or people are signed out early")
		return
	}
	e.good("redis", "%s", says)
}

// examineBucket checks that files can be read, and judged by the scanner if there is one.
func (s *Services) examineBucket(ctx context.Context, e *examination) {
	if err := s.reachFiles(ctx); err != nil {
		e.wrong("files", fmt.Sprintf("%s: cannot be reached: %v", s.bucketPlace(), err), "mount the folder, or start the server of the bucket")
	} else {
		e.good("files", "%s can be reached", s.bucketPlace())
	}
	if s.cfg.Files.Scan == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := contents.ReachScanner(ctx, s.cfg.Files.Scan, s.cfg.Files.ScanToken); err != nil {
		e.wrong("scanner", err.Error(), "no file can be stored until it answers, or files.scan is removed from the settings")
		return
	}
	e.good("scanner", "%s answers", s.cfg.Files.Scan)
}

// maxExamined bounds the organizations that doctor lists.
const maxExamined = 100_000

func (s *Services) examineOrganizations(ctx context.Context, e *examination) {
	at := map[string]int{}
	all := map[int64]*tenants.Organization{}
	after := ""
	for len(all) < maxExamined {
		page, err := s.directory.List(ctx, after, 0)
		if err != nil {
			e.wrong("organizations", err.Error(), "")
			return
		}
		for i := range page {
			s.examineOrganization(e, at, &page[i])
			all[page[i].OrgID] = &page[i]
		}
		if len(page) == 0 {
			break
		}
		after = page[len(page)-1].Slug
	}
	var parts []string
	for _, name := range s.store.Backends() {
		parts = append(parts, name+" "+strconv.Itoa(at[name]))
		if s.cfg.Shared() && !s.cfg.EngineOf(name).Shared && at[name] > 0 {
			e.warn("backend "+name, fmt.Sprintf("organizations that live in %s, which other replicas do not have: %d", s.cfg.BackendDir(name), at[name]),
				"remove this backend from the settings of other replicas, send requests of these organizations here, "+
					"and move them: tenantry org move SLUG --to "+s.cfg.Control)
		}
	}
	e.good("organizations", "by backend: %s", strings.Join(parts, ", "))
	for _, name := range s.store.Backends() {
		s.examineStrays(ctx, e, name, all)
	}
}

// maxStrays bounds the strays that are reported for a backend.
const maxStrays = 100

// examineStrays reports data on a backend that belong to none of the organizations.
func (s *Services) examineStrays(
	ctx context.Context, e *examination, backend string, all map[int64]*tenants.Organization,
) {
	what := "backend " + backend + " strays"
	if len(all) >= maxExamined {
		e.warn(what, fmt.Sprintf("not looked for: there are more than %d organizations", maxExamined), "")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	strays, err := s.directory.Strays(ctx, backend, all)
	if err != nil {
		e.warn(what, "not looked for: "+err.Error(), "")
		return
	}
	strays = slices.DeleteFunc(strays, func(s tenants.Stray) bool { // reported with the organization
		return s.Of != nil && s.Of.State == tenants.Removed && s.Of.Restoring()
	})
	for i := range strays[:min(len(strays), maxStrays)] {
		says, advice := describeStray(&strays[i])
		e.warn(what, strays[i].Where+" "+says, advice)
	}
	if more := len(strays) - maxStrays; more > 0 {
		e.warn(what, fmt.Sprintf("and %d more", more), "")
	}
}

func describeStray(s *tenants.Stray) (says, advice string) {
	const separate = "nothing uses it: move it away, or restore control data and documents that belong together"
	switch {
	case s.Err != nil:
		return fmt.Sprintf("does not say which organization it belongs to: %v", s.Err), separate
	case s.Of != nil && s.Of.State == tenants.Removed:
		return fmt.Sprintf("is left from organization %s, which was erased", s.Of.Slug),
			"tenantry org delete " + s.Of.Slug + " --yes --now removes it"
	case s.Of != nil:
		return fmt.Sprintf("is a copy of organization %s, which lives on %s", s.Of.Slug, s.Of.Home()), separate
	case s.Mine:
		return "belongs to this installation, which knows no such organization: " + s.Owner, separate
	case s.Owner != "":
		return "belongs to another installation: " + s.Owner, "give each installation a folder or database of its own"
	}
	return "has no owner", separate
}

func (s *Services) examineOrganization(e *examination, at map[string]int, o *tenants.Organization) {
	what := "organization " + o.Slug
	if o.State == tenants.Removed {
		if o.Restoring() {
			e.warn(what, "was erased, and is being restored from a backup", fmt.Sprintf("if that was interrupted: "+
				"the same tenantry org restore goes on, tenantry org delete %s --yes --now removes what was copied", o.Slug))
		}
		return
	}
	name := o.Home()
	at[name]++
	if o.CopyOf != "" {
		e.warn(what, "is an unfinished copy of "+o.CopyOf+" from a backup",
			fmt.Sprintf("if org restore --as was interrupted: tenantry org delete %s --yes --now removes it", o.Slug))
	}
	if !s.store.HasBackend(name) {
		e.wrong(what, fmt.Sprintf("lives on backend %s, which the configuration does not name", name), "add it to backends")
	}
	switch {
	case o.Move != nil && o.Move.Restores:
		e.warn(what, "is being restored from a backup",
			fmt.Sprintf("if that was interrupted: the same tenantry org restore goes on, tenantry org move %s --rollback undoes it", o.Slug))
	case o.Move != nil:
		e.warn(what, fmt.Sprintf("is being moved to %s", o.Move.To),
			fmt.Sprintf("if the move was interrupted: tenantry org move %[1]s --to %[2]s goes on, tenantry org move %[1]s --rollback undoes it",
				o.Slug, o.Move.To))
	}
	if o.Former != "" {
		e.warn(what, fmt.Sprintf("has an old copy on %s", o.Former), fmt.Sprintf("tenantry org move %s --finish removes it", o.Slug))
	}
}
