package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/backup"
	"tenantry/gateway/control"
)

// backupPlace returns a place of backups as the gateway names it: a server has another working folder. Errors: wrong
// usage.
func backupPlace(flag, place string) (string, error) {
	switch {
	case place == "":
		return "", usagef("%s is empty: name a folder, or a bucket as s3://bucket/prefix", flag)
	case config.IsBucket(place):
		return place, nil
	case strings.Contains(place, "://"):
		return "", usagef("%s %s: name a folder by its path, or a bucket as s3://bucket/prefix", flag, place)
	}
	return filepath.Abs(place)
}

// backupListCommand lists what a place can be restored to. It needs no data, because they may be lost.
func (p *program) backupListCommand() *cobra.Command {
	from := ""
	cmd := &cobra.Command{
		Use:   "list --from PLACE",
		Short: "List the backups in a place, and the seconds that its log of changes has",
		Args:  noArgs,
		Long: "List the backups in a place, the newest first, and the seconds that tenantry restore --at can restore with its log of\n" +
			"changes (the setting backup.log). Only manifests and the log are read: restore --dry-run reads the rest.",
		Example: "  tenantry backup list --from /backup/tenantry\n" +
			"  tenantry backup list --from s3://bucket/prefix",
	}
	cmd.Flags().StringVar(&from, "from", "", "the `place` of backups: a folder, or s3://bucket/prefix on the server of backup.s3")
	_ = cmd.MarkFlagRequired("from") // fails only for a flag that does not exist
	cmd.RunE = p.run(func(ctx context.Context, _ []string) error {
		cfg, err := p.load(nil)
		if err != nil {
			return err
		}
		if from, err = backupPlace("--from", from); err != nil {
			return err
		}
		found, err := gateway.ListBackups(ctx, cfg, from)
		if err != nil {
			return explainOpenError(cfg, err)
		}
		if !p.tables() {
			return p.print(found, "", false)
		}
		for _, s := range found.Seconds {
			p.note("Each second from %s to %s can be restored with --at.", s.First.Format(time.RFC3339), s.Last.Format(time.RFC3339))
		}
		return p.print(found.Backups, "name, ended, organizations, documents, bytes, keyring, damaged, fault", false)
	})
	return cmd
}

// maxLackingNames bounds the files that an error names.
const maxLackingNames = 5

// restoreCommand puts a backup back. It does not go through a server, because none can run without data.
func (p *program) restoreCommand() *cobra.Command {
	var o gateway.RestoreOptions
	var identity, at string
	var withoutFiles bool
	cmd := &cobra.Command{
		Use:   "restore --from PLACE",
		Short: "Restore a backup into an empty place",
		Args:  noArgs,
		Long: "Restore a backup of tenantry backup into the places that the settings name, such as the data folder of --data. There must\n" +
			"be no databases in them: nothing is overwritten. The bytes of files that are there already stay. A keyring that is there\n" +
			"stays; otherwise the one of the backup is opened with --identity. At the end the installation is opened for a trial.\n" +
			"With --at it is the state of any second that the log of changes has (the setting backup.log).\n" +
			"A restoration that was interrupted is begun again by the same command; until then no gateway serves what is there.",
		Example: "  tenantry restore --from /backup/tenantry --identity key.txt --dry-run\n" +
			"  tenantry restore --from /backup/tenantry --identity key.txt\n" +
			"  tenantry restore --from /backup/tenantry --at 2026-11-27T15:45:07Z --identity key.txt\n" +
			"  tenantry restore --from /backup/tenantry --backup 20261127T154500Z --identity key.txt --data /srv/elsewhere",
	}
	flags := cmd.Flags()
	flags.StringVar(&o.From, "from", "", "the `place` of backups: a folder, or s3://bucket/prefix on the server of backup.s3")
	flags.StringVar(&o.Name, "backup", "", "the `backup` in it, by its name (default: the newest)")
	flags.StringVar(&at, "at", "", "the `second` of the state, such as 2026-11-27T15:45:07Z: the backup is completed from the log of changes")
	flags.StringVar(&identity, "identity", "", "the `file` with the age identity that opens the keyring of the backup")
	flags.BoolVar(&withoutFiles, "without-files", false, "leave out the bytes of files")
	flags.BoolVar(&o.DryRun, "dry-run", false, "only say what would be restored, and whether it could be")
	_ = cmd.MarkFlagRequired("from") // fails only for a flag that does not exist
	cmd.RunE = p.run(func(ctx context.Context, _ []string) error {
		cfg, err := p.load(nil)
		if err != nil {
			return err
		}
		if o.From, err = backupPlace("--from", o.From); err != nil {
			return err
		}
		if at != "" {
			if o.At, err = backup.ParseMoment(at); err != nil {
				return usagef("--at: %v", err)
			}
		}
		if identity != "" {
			text, err := smallFile(identity)
			if err != nil {
				return fmt.Errorf("--identity: %w", err)
			}
			o.Identity = strings.NewReader(text)
		}
		b := p.newBar()
		o.Files, o.Holder, o.Version, o.Operator = !withoutFiles, "tenantry restore", version().Version, operator()
		o.Log = slog.New(slog.NewTextHandler(p.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
		o.Told = func(t backup.Progress) {
			b.update(control.Progress{Step: t.Step, Detail: t.Detail, Done: t.Done, Total: t.Total, Bytes: true, Told: true})
		}
		restored, err := gateway.Restore(ctx, cfg, o)
		b.end()
		if err != nil && ctx.Err() != nil {
			return fmt.Errorf("the restoration was interrupted (%w): no gateway serves what is there; the same command begins again",
				context.Cause(ctx))
		}
		if errors.Is(err, backup.ErrKeyring) && identity != "" {
			return fmt.Errorf("%w (--identity %s)", err, identity)
		}
		if err != nil {
			return explainOpenError(cfg, err)
		}
		if len(restored.Damaged) > 0 {
			p.note("These were damaged when the backup was made; an older one may have them: " + strings.Join(restored.Damaged, "; "))
		}
		if o.DryRun {
			p.note("Nothing was changed. The backup can be restored.")
		}
		err = p.print(restored, "backup=name, ended, at?, organizations, documents, bytes, installation", false)
		if n := len(restored.Lacking) + restored.MoreLacking; err == nil && n > 0 {
			err = fmt.Errorf("all was restored, but %s lacks the bytes of files and versions (%d), such as %s; tenantry doctor says "+
				"what can be done", o.From, n, strings.Join(restored.Lacking[:min(len(restored.Lacking), maxLackingNames)], ", "))
		}
		return err
	})
	return cmd
}
